# SPDX-License-Identifier: Apache-2.0
"""A stand-in for vLLM 0.26: modules of its names, classes of its call structure, a model of two layers on PyTorch's CPU tensors.

What the plug-in touches is here, and calls in the order in which vLLM calls; what vLLM computes is not.
"""
import contextlib
import dataclasses
import enum
import gc
import os
import sys
import types
from unittest import mock

import torch

NAMES = ("vllm", "vllm.config", "vllm.config.compilation", "vllm.envs", "vllm.distributed", "vllm.distributed.parallel_state",
         "vllm.model_executor", "vllm.model_executor.offloader", "vllm.model_executor.offloader.base", "vllm.v1",
         "vllm.v1.worker", "vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu", "vllm.v1.worker.gpu.cudagraph_utils",
         "vllm.v1.worker.gpu.input_batch", "vllm.v1.worker.workspace", "vllm.v1.worker.gpu_model_runner", "vllm.compilation",
         "vllm.compilation.cuda_graph", "vllm.forward_context", "vllm.lora", "vllm.lora.layers", "vllm.lora.ops",
         "vllm.lora.ops.triton_ops", "vllm.lora.ops.triton_ops.utils")
WIDTH, VOCABULARY, BLOCK, BLOCKS, MOST_REQUESTS, MOST_TOKENS = 8, 50, 4, 33, 8, 16


class CUDAGraphMode(enum.Enum):
    NONE, PIECEWISE, FULL = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Descriptor:
    cg_mode: CUDAGraphMode
    num_tokens: int
    num_reqs: int = None
    uniform_token_count: int = None
    num_active_loras: int = 0


class Layer(torch.nn.Module):
    """Compiles at its first forward, unless it was told not to."""

    def __init__(self, compiles):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.do_not_compile, self.compiled, self.eps = not compiles, False, 1e-5

    def forward(self, x, kv, slots):
        if not self.do_not_compile:
            self.compiled = True
        kv.view(-1, WIDTH)[slots.clamp(min=0)] += x
        return self.up(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.ModuleList([Layer(True), Layer(False)])

    def forward(self, ids, kv, slots):
        x = self.embed(ids.long())
        for layer, cache in zip(self.layers, kv):
            x = layer(x, cache, slots)
        return x


class Builder:
    def __init__(self):
        self.scheduler_metadata, self.num_heads = torch.zeros(MOST_REQUESTS, dtype=torch.int32), 2


class ModelState:
    def __init__(self, log):
        self.log = log

    def prepare_attn(self, batch, mode, tables, slots, groups, kv_config, for_capture=False):
        self.log.append(("attention", batch.num_reqs, bool(for_capture)))
        groups[0][0].metadata_builders[0].scheduler_metadata[: batch.num_reqs] = batch.seq_lens_cpu_upper_bound.int()


class InputBatch:
    @classmethod
    def make_dummy(cls, requests, tokens, buffers):
        batch = cls()
        buffers.seq_lens[:requests] = tokens // requests
        buffers.query_start_loc[: requests + 1] = torch.arange(requests + 1) * (tokens // requests)
        buffers.input_ids[:tokens] = 0
        buffers.positions[:tokens] = 0
        batch.num_reqs, batch.num_tokens = requests, tokens
        batch.seq_lens_cpu_upper_bound = torch.full((requests,), tokens // requests)
        return batch


class BlockTables:
    def __init__(self):
        self.input_block_tables = [torch.zeros(MOST_REQUESTS, 4, dtype=torch.int32)]
        self.slot_mappings = torch.zeros(1, MOST_TOKENS, dtype=torch.int64)

    def get_dummy_block_tables(self, requests):
        return tuple(table[:requests] for table in self.input_block_tables)


class CudaGraphManager:
    def __init__(self, device, sizes, adapters=(0,)):
        self.device, self.graphs, self._graphs_captured, self.use_breakable_cg = device, {}, False, False
        self.cudagraph_mode, self.decode_query_len, self.hidden_states = CUDAGraphMode.FULL, 1, None
        cases = [(size, number) for size in sorted(sizes, reverse=True) for number in adapters]
        full = [Descriptor(CUDAGraphMode.FULL, size, size, 1, number) for size, number in cases]
        pieces = [Descriptor(CUDAGraphMode.PIECEWISE, size, num_active_loras=number) for size, number in cases]
        self._capture_descs = {CUDAGraphMode.PIECEWISE: pieces, CUDAGraphMode.FULL: full} if sizes else {}
        self._candidates = {(desc.num_tokens, desc.num_active_loras): [desc, piece] for desc, piece in zip(full, pieces)}
        self.own_captures = 0

    @torch.inference_mode()
    def capture(self, create_forward_fn, progress_bar_desc="Capturing CUDA graphs"):
        self.own_captures += 1
        for desc in self._capture_descs.get(CUDAGraphMode.FULL, []):
            create_forward_fn(desc, warmup=True)(CUDAGraphMode.NONE)
            create_forward_fn(desc, warmup=False)(CUDAGraphMode.NONE)
            self.graphs[desc] = mock.Mock(restored=False)
        self._graphs_captured = True

    def run_fullgraph(self, desc):
        self.graphs[desc].replay()
        return self.hidden_states[: desc.num_tokens]

    def dispatch(self, num_reqs, num_tokens, uniform_token_count, num_active_loras):
        for desc in self._candidates.get((num_tokens, num_active_loras), []):
            if desc.uniform_token_count in (None, uniform_token_count):
                return desc
        return Descriptor(CUDAGraphMode.NONE, num_tokens, num_reqs)


class FullAttentionSpec:
    pass


class Config(types.SimpleNamespace):
    """One of vLLM's configurations, each of which has a hash."""

    hash = "0"

    def compute_hash(self):
        sampling = vars(self).get("override_generation_config"), *(vars(self).get(name) for name in ("generation_config", "max_logprobs", "renderer_num_workers"))
        return self.hash if sampling in ((None,) * 4, ({}, "auto", 20, 1)) else f"{self.hash}{sampling}"


class Whole(types.SimpleNamespace):
    """VllmConfig."""

    def compute_hash(self):
        return self.hash + self.model_config.compute_hash().lstrip("0")


def settings_of_model(**others):
    """What the plug-in reads of a ModelConfig; the worker's configuration and its model runner have the same object."""
    return Config(**{
        **dict.fromkeys(("enable_sleep_mode", "is_encoder_decoder", "is_diffusion", "enable_prompt_embeds", "uses_mrope", "is_moe", "use_mla"), False),
        "uses_xdrope_dim": 0, "multimodal_config": None, "quantization": None, "override_generation_config": {},
        "generation_config": "auto", "max_logprobs": 20, "renderer_num_workers": 1,
        "max_model_len": 16, "get_vocab_size": lambda: VOCABULARY, **others})


class Runner:
    execute_model_state = None

    def __init__(self, sizes, log):
        self.log, self.device, self.max_num_reqs, self.max_model_len = log, torch.device("cpu"), MOST_REQUESTS, 16
        self.model, self.model_state, self.kernel_block_sizes = Model(), ModelState(log), [BLOCK]
        self.model_config = settings_of_model(get_hidden_size=lambda: WIDTH, dtype=torch.float32)
        self.input_buffers = types.SimpleNamespace(
            input_ids=torch.zeros(MOST_TOKENS, dtype=torch.int32), positions=torch.zeros(MOST_TOKENS, dtype=torch.int64),
            is_padding=torch.zeros(MOST_TOKENS, dtype=torch.bool), query_start_loc=torch.zeros(MOST_REQUESTS + 1, dtype=torch.int32),
            seq_lens=torch.zeros(MOST_REQUESTS, dtype=torch.int32), max_num_reqs=MOST_REQUESTS)
        self.sizes, self.cudagraph_manager, self.supports_mm_inputs, self.is_pooling_model = sizes, None, False, False
        self.lora_cases = (0,)

    def initialize_kv_cache(self):
        self.kv_caches = [torch.zeros(BLOCKS, BLOCK, WIDTH) for _ in range(2)]
        self.block_tables = BlockTables()
        group = types.SimpleNamespace(kv_cache_spec=FullAttentionSpec())
        self.kv_cache_config = types.SimpleNamespace(num_blocks=BLOCKS, kv_cache_groups=[group])
        backend = type("FlashAttentionBackend", (), {"__module__": "vllm.v1.attention.backends.flash_attn"})
        self.attn_groups = [[types.SimpleNamespace(backend=backend, metadata_builders=[Builder()])]]
        self.cudagraph_manager = sys.modules["vllm.v1.worker.gpu.cudagraph_utils"].CudaGraphManager(
            self.device, self.sizes, self.lora_cases)

    def get_model(self):
        return self.model

    @contextlib.contextmanager
    def maybe_select_dummy_loras(self, lora_config, num_scheduled_tokens, mapping_type=None, num_sampled_tokens=None, num_active_loras=0):
        yield

    def select_adapters(self, desc):
        """The hook that vLLM gives its captures."""
        with self.maybe_select_dummy_loras(None, [1] * desc.num_tokens, num_active_loras=desc.num_active_loras):
            pass

    def profile_run(self):
        self.log.append("profile")
        self.model(torch.zeros(4), [torch.zeros(BLOCKS, BLOCK, WIDTH)] * 2, torch.zeros(4, dtype=torch.int64))

    def capture_model(self):
        manager, buffers = self.cudagraph_manager, self.input_buffers

        def create_forward_fn(desc, warmup):
            self.log.append(("inputs", desc.num_tokens, warmup))
            self.select_adapters(desc)
            batch = InputBatch.make_dummy(desc.num_reqs, desc.num_tokens, buffers)
            self.model_state.prepare_attn(batch, CUDAGraphMode.NONE, None, None, self.attn_groups, None, for_capture=True)

            def forward(mode):
                out = self.model(buffers.input_ids[: desc.num_tokens], self.kv_caches, self.block_tables.slot_mappings[0, : desc.num_tokens])
                if manager.hidden_states is None:
                    manager.hidden_states = torch.empty_like(out)
                manager.hidden_states[: desc.num_tokens] = out

            return forward

        manager.capture(create_forward_fn, "capturing")


class Worker:
    """As vLLM calls it: determine_available_memory, the KV cache, compile_or_warm_up_model."""

    def __init__(self, sizes=(1, 2, 4), **config):
        self.log, self.measures = [], 1 << 30
        parallel = Config(
            **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
                             "prefill_context_parallel_size", "world_size", "nnodes"), 1),
            **dict.fromkeys(("use_ubatching", "enable_eplb", "enable_elastic_ep", "disable_custom_all_reduce"), False),
            worker_cls="vllm.v1.worker.gpu_worker.Worker", worker_extension_cls="")
        settings = {**dict.fromkeys(("lora_config", "speculative_config", "kv_transfer_config", "ec_transfer_config")), "hash": "c0ffee",
                    "parallel_config": parallel, "kernel_config": Config(enable_flashinfer_autotune=True),
                    "compilation_config": Config(use_inductor_graph_partition=False, cudagraph_copy_inputs=False),
                    "attention_config": Config(), "offload_config": Config(), **config}
        self.use_v2_model_runner, self.model_runner = True, self.runner_of(sizes)
        self.vllm_config = Whole(
            **settings,
            scheduler_config=Config(max_num_seqs=MOST_REQUESTS, max_num_batched_tokens=MOST_TOKENS),
            cache_config=Config(cache_dtype="auto", calculate_kv_scales=False, kv_sharing_fast_prefill=False),
            model_config=self.model_runner.model_config)
        self.cache_config = types.SimpleNamespace(kv_cache_memory_bytes=None, gpu_memory_utilization=0.8)

    def runner_of(self, sizes):
        return Runner(sizes, self.log)

    def determine_available_memory(self):
        self.model_runner.profile_run()
        self.log.append("measured")
        return self.measures

    def compile_or_warm_up_model(self):
        if self.model_runner.sizes:
            self.model_runner.capture_model()
        return "times"

    def sleep(self, level=1):
        self.log.append(("sleep", level))
        self.slept = ["weights", "kv_cache"]

    def wake_up(self, tags=None):
        self.slept = [tag for tag in self.slept if tags is not None and tag not in tags]

    def _get_sleep_mode_backend(self):
        return types.SimpleNamespace(state=lambda: "RESUMING" if self.slept else "RUNNING")

    def shutdown(self):
        """Frees the engine's memory."""
        runner = self.model_runner
        runner.kv_caches.clear()
        runner.attn_groups.clear()
        runner.model = runner.model_state = None
        gc.collect()

    def start(self):
        with torch.inference_mode():
            self.kv_bytes = self.determine_available_memory()
            self.model_runner.initialize_kv_cache()  # its buffers may be changed in inference mode alone
        return self.compile_or_warm_up_model()


def installed(version="0.26.0"):
    """A context in which `import vllm` finds the stand-in, its classes fresh."""
    modules = {name: types.ModuleType(name) for name in NAMES}
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        module.__spec__ = mock.Mock()
        if parent:
            setattr(modules[parent], last, module)
    modules["vllm"].__version__ = version
    modules["vllm.config.compilation"].CUDAGraphMode = CUDAGraphMode
    modules["vllm.envs"].compile_factors = lambda: {
        name: os.environ.get(name) for name in ("VLLM_X", "VLLM_API_KEY", "VLLM_CONFIG_ROOT", "VLLM_NIXL_SIDE_CHANNEL_PORT")}
    modules["vllm.envs"].VLLM_TUNED_CONFIG_FOLDER = modules["vllm.envs"].VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS = None
    modules["vllm.envs"].VLLM_LORA_ENABLE_DUAL_STREAM = False
    modules["vllm.distributed.parallel_state"].graph_capture = lambda device: contextlib.nullcontext()
    noop = type("NoopOffloader", (), {})
    modules["vllm.model_executor.offloader.base"].get_offloader = noop
    modules["vllm.v1.worker.gpu.input_batch"].InputBatch = InputBatch
    modules["vllm.v1.worker.workspace"].is_workspace_manager_initialized = lambda: True
    manager = types.SimpleNamespace(_current_workspaces=[None])
    modules["vllm.v1.worker.workspace"].current_workspace_manager = lambda: manager
    modules["vllm.v1.worker.gpu_worker"].Worker = type("Worker", (Worker,), dict(vars(Worker)))
    modules["vllm.v1.worker.gpu.cudagraph_utils"].CudaGraphManager = type(
        "CudaGraphManager", (CudaGraphManager,), dict(vars(CudaGraphManager)))
    return mock.patch.dict(sys.modules, modules)
