# SPDX-License-Identifier: Apache-2.0
"""The first model runner of the stand-in: its call structure, a mixture of experts of one layer, and vLLM's workspace."""
import contextlib
import dataclasses
import sys
import types
from unittest import mock

import torch

import standin
from standin import BLOCK, BLOCKS, MOST_REQUESTS, MOST_TOKENS, VOCABULARY, WIDTH, Builder, CUDAGraphMode, FullAttentionSpec, Layer, settings_of_model


@dataclasses.dataclass(frozen=True)
class BatchDescriptor:
    num_tokens: int
    num_reqs: int = None
    uniform: bool = False
    has_lora: bool = False
    num_active_loras: int = 0


@dataclasses.dataclass
class CUDAGraphEntry:
    batch_descriptor: BatchDescriptor
    cudagraph: object = None
    output: object = None
    input_addresses: list = None


class CpuGpuBuffer:
    def __init__(self, *size, dtype):
        self.cpu, self.gpu = torch.zeros(*size, dtype=dtype), torch.zeros(*size, dtype=dtype)


class Context:
    """vllm.forward_context: what there is while the model is called."""

    now = None

    @contextlib.contextmanager
    def set(self, **what):
        self.now, before = types.SimpleNamespace(**what), self.now
        try:
            yield
        finally:
            self.now = before


class Workspace:
    """Grows until it is locked."""

    def __init__(self):
        self._current_workspaces, self.locked = [None], False

    def get(self, size):
        if self._current_workspaces[0] is None or len(self._current_workspaces[0]) < size:
            assert not self.locked, "Workspace is locked"
            self._current_workspaces[0] = torch.zeros(size)
        return self._current_workspaces[0][:size]


class Experts(torch.nn.Module):
    """Goes through the workspace."""

    def __init__(self):
        super().__init__()
        self.embed, self.layer = torch.nn.Embedding(VOCABULARY, WIDTH), Layer(True)

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None):
        workspace = sys.modules["vllm.v1.worker.workspace"].current_workspace_manager()
        between = workspace.get(len(input_ids) * WIDTH).view(len(input_ids), WIDTH)
        between.copy_(self.embed(input_ids.long()))
        now = sys.modules["vllm.forward_context"].get_forward_context()
        return self.layer(between, now.kv, now.slots) + positions.unsqueeze(1)


class CUDAGraphWrapper:
    def __init__(self, runnable, context):
        self.runnable, self.context, self.concrete_cudagraph_entries, self.own_captures = runnable, context, {}, 0

    def __getattr__(self, name):
        return getattr(self.runnable, name)

    def __call__(self, *args, **kwargs):
        now = self.context.now
        if now.cudagraph_runtime_mode != CUDAGraphMode.FULL:
            return self.runnable(*args, **kwargs)
        entry = self.concrete_cudagraph_entries.setdefault(now.batch_descriptor, CUDAGraphEntry(now.batch_descriptor))
        if entry.cudagraph is None:
            self.own_captures += 1
            entry.output, entry.cudagraph = self.runnable(*args, **kwargs), mock.Mock(restored=False)
            return entry.output
        entry.cudagraph.replay()
        return entry.output


class BlockTable:
    def __init__(self):
        self.block_size, self.block_table = BLOCK, CpuGpuBuffer(MOST_REQUESTS, 4, dtype=torch.int32)
        self.slot_mapping = CpuGpuBuffer(MOST_TOKENS, dtype=torch.int64)


class GPUModelRunner:
    execute_model_state = None

    def __init__(self, sizes, log):
        self.log, self.sizes, self.max_model_len = log, sizes, 16
        self.context = sys.modules["vllm.forward_context"].context
        self.workspace = sys.modules["vllm.v1.worker.workspace"].current_workspace_manager()
        self.model = CUDAGraphWrapper(Experts(), self.context)
        self.model_config = settings_of_model(is_moe=True)
        self.compilation_config = types.SimpleNamespace(cudagraph_num_of_warmups=1, cudagraph_mode=CUDAGraphMode.FULL)
        self.input_ids = CpuGpuBuffer(MOST_TOKENS, dtype=torch.int32)
        self.query_start_loc = CpuGpuBuffer(MOST_REQUESTS + 1, dtype=torch.int32)
        self.positions, self.seq_lens = torch.zeros(MOST_TOKENS, dtype=torch.int64), torch.zeros(MOST_REQUESTS, dtype=torch.int32)
        self.optimistic_seq_lens_cpu, self.uniform_decode_query_len = torch.zeros(MOST_REQUESTS, dtype=torch.int32), 1
        self.supports_mm_inputs = self.is_pooling_model = False
        self.cudagraph_dispatcher = types.SimpleNamespace(
            cudagraph_mode=CUDAGraphMode.FULL, cudagraph_keys={CUDAGraphMode.PIECEWISE: set(), CUDAGraphMode.FULL: set()})

    def get_model(self):
        return self.model.runnable

    def initialize_kv_cache(self):
        self.kv_caches = [torch.zeros(BLOCKS, BLOCK, WIDTH)]
        self.input_batch = types.SimpleNamespace(block_table=types.SimpleNamespace(block_tables=[BlockTable()]))
        group = types.SimpleNamespace(kv_cache_spec=FullAttentionSpec())
        self.kv_cache_config = types.SimpleNamespace(num_blocks=BLOCKS, kv_cache_groups=[group])
        backend = type("FlashAttentionBackend", (), {"__module__": "vllm.v1.attention"})
        self.attn_groups = [[types.SimpleNamespace(backend=backend, metadata_builders=[Builder()])]]
        keys = self.cudagraph_dispatcher.cudagraph_keys
        keys[CUDAGraphMode.FULL] = {BatchDescriptor(size, size, True) for size in self.sizes}
        keys[CUDAGraphMode.PIECEWISE] = {BatchDescriptor(size) for size in self.sizes}

    def profile_run(self):
        self.log.append(("profile", self.get_model().layer.do_not_compile))
        self._dummy_run(MOST_TOKENS, CUDAGraphMode.NONE)

    def profile_cudagraph_memory(self):
        self.log.append("graphs are estimated")
        return 0

    def _get_slot_mappings(self, num_tokens_padded, num_reqs_padded, num_tokens_unpadded, ubatch_slices=None):
        return {0: self.input_batch.block_table.block_tables[0].slot_mapping.gpu[:num_tokens_padded]}, {}

    def _build_attention_metadata(
        self, num_tokens, num_reqs, max_query_len, num_tokens_padded=None, num_reqs_padded=None, ubatch_slices=None,
        logits_indices=None, use_spec_decode=False, for_cudagraph_capture=False, num_scheduled_tokens=None,
        cascade_attn_prefix_lens=None, slot_mappings=None
    ):
        self.log.append(("attention", num_reqs, for_cudagraph_capture))
        builder = self.attn_groups[0][0].metadata_builders[0]
        builder.scheduler_metadata[:num_reqs] = self.optimistic_seq_lens_cpu[:num_reqs]
        return {}, None

    @torch.inference_mode()
    def _dummy_run(self, num_tokens, cudagraph_runtime_mode=None, desc=None, is_graph_capturing=False, skip_eplb=False, remove_lora=True):
        kv, slots = torch.zeros(BLOCKS, BLOCK, WIDTH), torch.zeros(num_tokens, dtype=torch.int64)
        if desc is not None:
            found, _ = self._get_slot_mappings(num_tokens, desc.num_reqs, num_tokens)
            kv, slots = self.kv_caches[0], found[0]
            slots.fill_(-1)
            self._build_attention_metadata(num_tokens, desc.num_reqs, 1, for_cudagraph_capture=is_graph_capturing, slot_mappings=found)
        with self.context.set(cudagraph_runtime_mode=cudagraph_runtime_mode, batch_descriptor=desc, kv=kv, slots=slots):
            out = self.model(input_ids=self.input_ids.gpu[:num_tokens], positions=self.positions[:num_tokens],
                             intermediate_tensors=None, inputs_embeds=None)
        return out, out[:1]

    def _warmup_and_capture(self, desc, cudagraph_runtime_mode, profile_seq_lens=None, allow_microbatching=False, num_warmups=None,
                            profiler=None):
        for _ in range(self.compilation_config.cudagraph_num_of_warmups if num_warmups is None else num_warmups):
            self._dummy_run(desc.num_tokens, CUDAGraphMode.NONE, desc)
        self._dummy_run(desc.num_tokens, cudagraph_runtime_mode, desc, True)

    def _capture_cudagraphs(self, batch_descriptors, cudagraph_runtime_mode, profiler=None):
        self.log.append(("own loop", cudagraph_runtime_mode.name))
        for desc in batch_descriptors:
            if cudagraph_runtime_mode == CUDAGraphMode.FULL:
                self._warmup_and_capture(desc, cudagraph_runtime_mode)

    def capture_model(self):
        for mode in (CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL):
            descs = sorted(self.cudagraph_dispatcher.cudagraph_keys[mode], key=lambda desc: -desc.num_tokens)
            if descs:
                self._capture_cudagraphs(batch_descriptors=descs, cudagraph_runtime_mode=mode, profiler=None)
        self.workspace.locked = True

    def serve(self, size):
        """A batch that only decodes, as execute_model runs it."""
        desc = BatchDescriptor(size, size, True)
        there = desc in self.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.FULL]
        return self._dummy_run(size, CUDAGraphMode.FULL if there else CUDAGraphMode.NONE, desc)[0]


class Worker(standin.Worker):
    """Of a model that vLLM gives its first runner."""

    def __init__(self, sizes=(1, 2, 4), **config):
        super().__init__(sizes, **config)
        self.use_v2_model_runner = False

    def runner_of(self, sizes):
        return sys.modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner(sizes, self.log)

    def determine_available_memory(self):
        self.model_runner.profile_run()
        self.model_runner.profile_cudagraph_memory()
        return self.measures

    def compile_or_warm_up_model(self):
        self.model_runner.capture_model()
        self.model_runner._dummy_run(MOST_REQUESTS, CUDAGraphMode.NONE)  # as vLLM warms up the sampler
        return "times"


@contextlib.contextmanager
def installed(version="0.26.0"):
    with standin.installed(version):
        context, workspace, modules = Context(), Workspace(), sys.modules
        modules["vllm.forward_context"].context = context
        modules["vllm.forward_context"].get_forward_context = lambda: context.now
        modules["vllm.v1.worker.workspace"].current_workspace_manager = lambda: workspace
        modules["vllm.compilation.cuda_graph"].CUDAGraphEntry = CUDAGraphEntry
        modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner = type(
            "GPUModelRunner", (GPUModelRunner,), dict(vars(GPUModelRunner)))
        modules["vllm.v1.worker.gpu_worker"].Worker = type("Worker", (Worker,), {
            name: vars(Worker)[name] for name in ("determine_available_memory", "compile_or_warm_up_model")})
        yield
