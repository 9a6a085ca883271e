# SPDX-License-Identifier: Apache-2.0
"""Stand-in: the manager, whose thread makes the batch processor unless it is there."""
import queue
import threading

from .cache import PagedAttentionCache
from .model_runner import INTERVAL, ContinuousBatchingIOs, ModelRunner


class LogitProcessors:
    def __init__(self, configuration):
        self.logits_processor, self.scale = [], -1 if configuration.values["repetition_penalty"] else 1


class ContinuousBatchProcessor:
    def __init__(self, cache, settings, logit_processor):
        self.model_runner = ModelRunner(settings, cache, ContinuousBatchingIOs(cache), logit_processor)


class ContinuousBatchingManager:
    def __init__(self, model, configuration, settings):
        self.model, self.continuous_batching_config, self.batch_processor = model, settings, None
        self.logit_processor = LogitProcessors(configuration)
        self.requests, self._generation_thread = queue.Queue(), None

    def warmup(self):
        if self.batch_processor is None:
            self.batch_processor = self._create_batch_processor()
        self.batch_processor.model_runner.warmup(self.model)

    def is_running(self):
        return self._generation_thread is not None and self._generation_thread.is_alive()

    def start(self):
        self._generation_thread = threading.Thread(target=self._run_generation_loop)  # Python's end waits for it
        self._generation_thread.start()

    def stop(self, block=True, timeout=None):
        if self._generation_thread is None:
            return
        self.requests.put(None)
        self._generation_thread.join()
        self.batch_processor = None

    def _create_batch_processor(self):
        if self.batch_processor is not None:
            return self.batch_processor
        return ContinuousBatchProcessor(
            PagedAttentionCache(self.continuous_batching_config), self.continuous_batching_config, self.logit_processor)

    def _run_generation_loop(self):
        self.batch_processor = self._create_batch_processor()
        for ids, count, answer in iter(self.requests.get, None):
            try:
                answer.put(self._generate(ids, count))
            except Exception as error:
                answer.put(error)
                raise  # and there are no more answers

    def _generate(self, ids, count):
        runner = self.batch_processor.model_runner
        made, new = [], ids
        while len(made) < count:
            runner.inputs_and_outputs.prepare(new, len(ids) + len(made) - len(new), -(-len(new) // INTERVAL) * INTERVAL)
            runner.compute_batch(self.model)
            new = [int(runner.inputs_and_outputs.output_ids[0])]
            made += new
        return made
