# SPDX-License-Identifier: Apache-2.0
"""The first model runner of the stand-in with a compiled model in pieces, and with vLLM's dispatch of batch sizes to them."""
import contextlib
import sys

import torch

import standin
import standin_compiled
import standin_first
from standin import BLOCK, BLOCKS, MOST_REQUESTS, MOST_TOKENS, WIDTH, CUDAGraphMode
from standin_compiled import LARGEST, step
from standin_first import BatchDescriptor


class GPUModelRunner(standin_first.GPUModelRunner):
    def __init__(self, sizes, log):
        super().__init__(sizes, log)
        self.model = standin_first.CUDAGraphWrapper(standin_compiled.Model(log), self.context)
        self.model_config = standin.settings_of_model()
        self.device, self.execute_model_state = torch.device("cpu"), None

    def initialize_kv_cache(self):
        """Pieces go up to larger batches than full graphs."""
        super().initialize_kv_cache()
        self.kv_caches = [torch.zeros(BLOCKS, BLOCK, WIDTH) for _ in range(2)]
        keys = self.cudagraph_dispatcher.cudagraph_keys
        if keys[CUDAGraphMode.PIECEWISE]:
            keys[CUDAGraphMode.PIECEWISE].add(BatchDescriptor(LARGEST))

    def profile_run(self):
        self.log.append("profile")
        kv, slots = [torch.zeros(BLOCKS, BLOCK, WIDTH)] * 2, torch.zeros(4, dtype=torch.int64)
        with self.in_context(CUDAGraphMode.NONE, None, kv, slots, True):
            self.model(torch.zeros(4), kv, slots)

    def in_context(self, mode, descriptor, kv, slots, capturing):
        layers = {f"layers.{number}": cache for number, cache in enumerate(kv)}
        return self.context.set(mode=mode, descriptor=descriptor, cudagraph_runtime_mode=mode, batch_descriptor=descriptor,
                                layers=layers, slots=slots, capturing=capturing)

    def _dispatch(self, mode, tokens, uniform):
        """As vLLM's dispatcher: a batch without a key runs without graphs."""
        wanted = BatchDescriptor(tokens, tokens, True) if uniform else BatchDescriptor(tokens)
        found = mode != CUDAGraphMode.NONE and wanted in self.cudagraph_dispatcher.cudagraph_keys[mode]
        return (mode, wanted) if found else (CUDAGraphMode.NONE, BatchDescriptor(tokens))

    @torch.inference_mode()
    def _dummy_run(self, num_tokens, cudagraph_runtime_mode=None, force_attention=False, uniform_decode=False, allow_microbatching=True,
                   skip_eplb=False, is_profile=False, create_mixed_batch=False, remove_lora=True, is_graph_capturing=False,
                   num_active_loras=0, profile_seq_lens=None):
        mode, desc = self._dispatch(cudagraph_runtime_mode, num_tokens, uniform_decode)
        assert mode == cudagraph_runtime_mode, f"Cudagraph runtime mode mismatch in dummy_run. Expected {mode}, but got {cudagraph_runtime_mode}."
        slots = self.input_batch.block_table.block_tables[0].slot_mapping.gpu[:num_tokens]
        slots.fill_(-1)
        if force_attention or mode == CUDAGraphMode.FULL:
            self._build_attention_metadata(num_tokens, desc.num_reqs or num_tokens, 1, for_cudagraph_capture=is_graph_capturing)
        with self.in_context(mode, desc, self.kv_caches, slots, True):
            out = self.model(self.input_ids.gpu[:num_tokens], self.kv_caches, slots)
        return out, out[:1]

    def _warmup_and_capture(self, desc, cudagraph_runtime_mode, profile_seq_lens=None, allow_microbatching=False, num_warmups=None,
                            profiler=None):
        for _ in range(self.compilation_config.cudagraph_num_of_warmups if num_warmups is None else num_warmups):
            self._dummy_run(desc.num_tokens, CUDAGraphMode.NONE, cudagraph_runtime_mode == CUDAGraphMode.FULL, desc.uniform)
        self._dummy_run(desc.num_tokens, cudagraph_runtime_mode, uniform_decode=desc.uniform, is_graph_capturing=True)

    def execute_model(self, ids, uniform=None, adapters=0):
        """A batch of these tokens, each of which is written to a place of its own."""
        mode, desc = self._dispatch(CUDAGraphMode.FULL if uniform else CUDAGraphMode.PIECEWISE, len(ids), uniform)
        slots = self.input_batch.block_table.block_tables[0].slot_mapping.gpu
        self.input_ids.gpu[: len(ids)] = torch.tensor(ids)
        slots.fill_(-1)
        slots[: len(ids)] = torch.arange(len(ids)) + BLOCK
        with self.in_context(mode, desc, self.kv_caches, slots[: len(ids)], False):
            out = self.model(self.input_ids.gpu[: len(ids)], self.kv_caches, slots[: len(ids)])
        self.execute_model_state = mode, out.clone()


class Worker(standin_first.Worker):
    def __init__(self, sizes=(1, 2, 4), **config):
        super().__init__(sizes, **config)
        layers = {f"layers.{number}": layer for number, layer in enumerate(self.model_runner.get_model().layers)}
        self.vllm_config.compilation_config.static_forward_context = layers

    def compile_or_warm_up_model(self):
        self.model_runner.capture_model()
        return "times"

    execute_model = standin_compiled.Worker.execute_model
    sample_tokens = standin_compiled.Worker.sample_tokens
    shutdown = standin_compiled.Worker.shutdown


@contextlib.contextmanager
def installed(version="0.26.0"):
    with standin_compiled.installed(version):
        modules = sys.modules
        modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner = type(
            "GPUModelRunner", (GPUModelRunner,), {**vars(standin_first.GPUModelRunner), **vars(GPUModelRunner)})
        modules["vllm.v1.worker.gpu_worker"].Worker = type("Worker", (Worker,), {
            name: vars(owner)[name] for owner, name in ((standin_first.Worker, "determine_available_memory"), (Worker, "compile_or_warm_up_model"))})
        yield


__all__ = ["MOST_REQUESTS", "MOST_TOKENS", "Worker", "installed", "standin", "step"]
