# SPDX-License-Identifier: Apache-2.0
"""Stand-in: the manager is made at the first request, with its configuration."""
import os
import queue

import transformers.generation.continuous_batching  # noqa: F401


class CBGenerateManager:
    def __init__(self, cb_config=None):
        self._cb, self._cb_config = None, cb_config

    def init_cb(self, model, gen_config):
        if self._cb is not None:
            return
        self._cb = model.init_continuous_batching(generation_config=gen_config, continuous_batching_config=self._cb_config)
        self._cb.start()

    def generate(self, ids, count):
        answer = queue.Queue()
        self._cb.requests.put((ids, count, answer))
        tokens = answer.get(timeout=20)
        if isinstance(tokens, Exception):
            raise tokens
        return tokens

    def stop(self):
        if self._cb is not None:
            self._cb.stop(block=True, timeout=2)


class GenerationState:
    def __init__(self, continuous_batching=False, cb_config=None):
        self._continuous_batching, self._cb_config, self._cb_manager = continuous_batching, cb_config, None

    def use_continuous_batching(self, model, modality):
        return self._continuous_batching

    def get_manager(self, model_id, use_cb=False):
        if self._cb_manager is None:
            self._cb_manager = CBGenerateManager(self._cb_config)
        return self._cb_manager


if os.environ.get("OTHER_BUILD"):  # another transformers, whose init_cb takes other parameters
    CBGenerateManager.init_cb = lambda self, model, gen_config, extra=None, init=CBGenerateManager.init_cb: init(self, model, gen_config)
