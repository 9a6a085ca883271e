# SPDX-License-Identifier: Apache-2.0
"""The stand-in with vLLM's compile wrappers: a model that its first forward loads from a cache, in pieces with graphs of their own."""
import contextlib
import sys
import time
import types
import unittest
from unittest import mock

import torch
from torch._inductor import compile_fx

import standin
from standin import CUDAGraphMode, Descriptor
from standin_first import BatchDescriptor, Context, CUDAGraphEntry

PIECES, LARGEST = 3, 8  # pieces of two layers; tokens


try:
    from torch._library.opaque_object import register_opaque_type
    from torch._opaque_base import OpaqueBase
except ImportError:
    raise unittest.SkipTest("this PyTorch cannot hide a layer's name from its compiler") from None


class LayerName(OpaqueBase):
    """vllm.utils.torch_utils: what operations are given in place of a layer's name."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, LayerName) and self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __fx_repr__(self):
        return f"LayerName({self.value!r})", {"LayerName": LayerName}


register_opaque_type(LayerName, typ="value", hoist=True)


def _now():
    return sys.modules["vllm.forward_context"].context.now


def write_cache(x: torch.Tensor, layer_name: LayerName) -> torch.Tensor:
    """Writes a layer's KV cache, and returns what only orders operations."""
    now = _now()
    now.layers[layer_name.value].view(-1, standin.WIDTH)[now.slots.clamp(min=0)] += x
    return torch.empty(0)


def attend(x: torch.Tensor, out: torch.Tensor, layer_name: LayerName, scale: float, after: torch.Tensor) -> None:
    """Attention of a layer: there is none while pieces are captured."""
    now = _now()
    assert layer_name.value in now.layers
    out.zero_() if now.capturing else out.copy_(x * scale)


LIBRARY = torch.library.Library("standin_vllm", "FRAGMENT")
for function, writes in ((write_cache, []), (attend, ["out"])):
    LIBRARY.define(function.__name__ + torch.library.infer_schema(function, mutates_args=writes))
    LIBRARY.impl(function.__name__, function, dispatch_key="CPU")


class Pool:
    """Where captured pieces leave their values: in one piece of memory, if a test gives one."""

    def __init__(self):
        self.memory, self.end = None, 0

    def place(self, value):
        if isinstance(value, tuple):
            return tuple(map(self.place, value))
        if self.memory is None:
            return value
        size = value.numel() * value.element_size()
        placed = self.memory[self.end : self.end + size].view(value.dtype).view(value.shape)
        self.end += -(-size // 64) * 64
        return placed.copy_(value)


def _copy(into, values):
    for one, other in zip(into, values) if isinstance(into, tuple) else ((into, values),):
        one.copy_(other)


class CUDAGraphWrapper:
    """Of a piece: captures at the first call with a batch of its mode, replays at all others."""

    def __init__(self, runnable):
        self.runnable, self.concrete_cudagraph_entries, self.runtime_mode = runnable, {}, CUDAGraphMode.PIECEWISE

    def __call__(self, *args):
        now, counter = sys.modules["vllm.forward_context"].context.now, sys.modules["vllm.compilation.counter"].compilation_counter
        if now.mode != CUDAGraphMode.PIECEWISE:
            return self.runnable(*args)
        entry = self.concrete_cudagraph_entries.setdefault(now.descriptor, CUDAGraphEntry(now.descriptor))
        if entry.cudagraph is None:
            sys.modules["vllm.compilation.monitor"].validate_cudagraph_capturing_enabled()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=1, stream=torch.cuda.current_stream()):
                torch.cuda.empty_cache()
                entry.output = sys.modules["vllm.platforms"].current_platform.pool.place(self.runnable(*args))
            entry.cudagraph, entry.input_addresses = graph, [arg.data_ptr() for arg in args]
            graph.again = lambda: _copy(entry.output, self.runnable(*args))
            graph.piece = self.runnable.__name__, args, entry.output
            counter.num_cudagraph_captured += 1
            return entry.output
        if entry.input_addresses is not None:
            assert [arg.data_ptr() for arg in args] == entry.input_addresses, "a piece replays where it was captured"
        entry.cudagraph.replay()
        return entry.output


def functions_of(model):
    """The pieces of a model, by name. Each but the last leaves memory for attention, beside what attention reads."""
    first, second = (getattr(layer, "base_layer", layer) for layer in model.layers)

    def embed(ids):
        x = model.embed(ids.long())
        return x, torch.empty_like(x)

    def up_first(x):
        x = first.up(x)
        return x, torch.empty_like(x)

    def up_second(x):
        return second.up(x)

    return embed, up_first, up_second


class Compiled:
    """What vLLM keeps in aot_compiled_fn."""

    def __init__(self, model):
        wrapper = sys.modules["vllm.compilation.cuda_graph"].CUDAGraphWrapper
        self.pieces = [wrapper(piece) for piece in functions_of(model)]
        self.log = model._log

    def __call__(self, model, ids, kv, slots):
        self.log.append(("compiled", _now().mode, len(ids)))
        *before, last = self.pieces
        x = ids
        for number, piece in enumerate(before):
            x, out = piece(x)
            layer = LayerName(f"layers.{number}")
            written = torch.ops.standin_vllm.write_cache(x, layer)
            torch.ops.standin_vllm.attend(x.view(len(ids), -1), out, layer, 1.0, written)
            x = out
        return last(x)


def unpickle():
    """One of very many calls."""


class CompilerManager:
    """Of equal pieces only the first one has an entry of its own; vLLM finds the others when it is about to compile them."""

    def load(self, graph, example_inputs, graph_index, compile_range):
        cache = sys.modules["vllm.compilation.decorators"].cache
        time.sleep(cache.delay)
        until = time.monotonic() + cache.busy
        while time.monotonic() < until:
            unpickle()
        return (lambda: None) if graph_index == 0 and 0 not in cache.lost else None


def _try_load_aot_compiled_fn(model, aot_compilation_path):
    cache, manager = sys.modules["vllm.compilation.decorators"].cache, sys.modules["vllm.compilation.backends"].CompilerManager()
    try:
        if cache.broken:
            raise RuntimeError("the cache is broken")
        if not cache.stored:
            return None
        for at in range(PIECES):
            if manager.load(None, [], at, None) is None and at in cache.lost:
                compile_fx.fx_codegen_and_compile()
                model._log.append("a piece is compiled")
        model._log.append("loaded")
        return Compiled(model)
    except Exception:
        return None


class Model(standin.Model):
    """Decorated with support_torch_compile."""

    def __init__(self, log):
        super().__init__()
        self.do_not_compile, self.compiled, self.was_aot_compile_fn_loaded_from_disk = False, False, False
        self.aot_compiled_fn = None
        self._log = log

    def forward(self, ids, kv, slots):
        self._log.append(("eager", len(ids)))
        return super().forward(ids, kv, slots)

    def __call__(self, *args):
        if self.do_not_compile:
            return self.forward(*args)
        if self.aot_compiled_fn is not None:
            return self.aot_compiled_fn(self, *args)
        loaded = sys.modules["vllm.compilation.decorators"]._try_load_aot_compiled_fn(self, "/cache/model")
        if loaded is not None:
            self.aot_compiled_fn, self.was_aot_compile_fn_loaded_from_disk = loaded, True
            return loaded(self, *args)
        self._log.append(("compiles", len(args[0])))
        self.aot_compiled_fn = Compiled(self)
        return self.aot_compiled_fn(self, *args)


class Runner(standin.Runner):
    def __init__(self, sizes, log):
        super().__init__(sizes, log)
        self.model, self.execute_model_state = Model(log), None
        self.context = sys.modules["vllm.forward_context"].context

    def initialize_kv_cache(self):
        """Pieces go up to larger batches than full graphs, whose output vLLM's largest warm-up makes."""
        super().initialize_kv_cache()
        manager = self.cudagraph_manager
        if manager._capture_descs:
            largest = [Descriptor(CUDAGraphMode.PIECEWISE, LARGEST, num_active_loras=number) for number in self.lora_cases]
            manager._capture_descs[CUDAGraphMode.PIECEWISE][:0] = largest
            manager._candidates.update({(LARGEST, desc.num_active_loras): [desc] for desc in largest})

    def profile_run(self):
        self.log.append("profile")
        kv, slots = [torch.zeros(standin.BLOCKS, standin.BLOCK, standin.WIDTH)] * 2, torch.zeros(4, dtype=torch.int64)
        with self.in_context(CUDAGraphMode.NONE, None, kv, slots, True):
            self.model(torch.zeros(4), kv, slots)
        torch.rand(1)  # the sampler

    def in_context(self, mode, descriptor, kv, slots, capturing):
        layers = {f"layers.{number}": cache for number, cache in enumerate(kv)}
        return self.context.set(mode=mode, descriptor=descriptor, cudagraph_runtime_mode=mode, batch_descriptor=descriptor,
                                layers=layers, slots=slots, capturing=capturing)

    def call_model(self, mode, desc, capturing=False):
        buffers, tokens = self.input_buffers, desc.num_tokens
        slots, descriptor = self.block_tables.slot_mappings[0, :tokens], BatchDescriptor(tokens, num_active_loras=desc.num_active_loras)
        with self.in_context(mode, descriptor, self.kv_caches, slots, capturing):
            return self.model(buffers.input_ids[:tokens], self.kv_caches, slots)

    def capture_model(self):
        manager = self.cudagraph_manager

        def create_forward_fn(desc, warmup):
            requests = desc.num_reqs or min(desc.num_tokens, self.max_num_reqs)
            batch = standin.InputBatch.make_dummy(requests, desc.num_tokens, self.input_buffers)
            self.block_tables.slot_mappings.fill_(-1)
            self.select_adapters(desc)
            if desc.cg_mode == CUDAGraphMode.FULL:
                self.model_state.prepare_attn(batch, CUDAGraphMode.NONE, None, None, self.attn_groups, None, for_capture=True)

            def forward(mode):
                out = self.call_model(mode, desc, capturing=desc.cg_mode == CUDAGraphMode.PIECEWISE)
                if mode != CUDAGraphMode.PIECEWISE:
                    if manager.hidden_states is None:
                        manager.hidden_states = torch.empty_like(out)
                    manager.hidden_states[: desc.num_tokens] = out

            return forward

        manager.capture(create_forward_fn, "capturing")

    def execute_model(self, ids, uniform, adapters=0):
        """A batch of these tokens, each of which is written to a place of its own."""
        desc = self.cudagraph_manager.dispatch(len(ids), len(ids), uniform, adapters)
        buffers, slots = self.input_buffers, self.block_tables.slot_mappings
        buffers.input_ids[: len(ids)] = torch.tensor(ids)
        slots.fill_(-1)
        slots[0, : len(ids)] = torch.arange(len(ids)) + standin.BLOCK
        if desc.cg_mode == CUDAGraphMode.FULL:
            out = self.cudagraph_manager.run_fullgraph(desc)
        else:
            out = self.call_model(desc.cg_mode, desc)
        self.execute_model_state = desc.cg_mode, out.clone()


class Worker(standin.Worker):
    def __init__(self, sizes=(1, 2, 4), **config):
        super().__init__(sizes, **config)
        layers = {f"layers.{number}": layer for number, layer in enumerate(self.model_runner.model.layers)}
        self.vllm_config.compilation_config.static_forward_context = layers

    def runner_of(self, sizes):
        return Runner(sizes, self.log)

    def execute_model(self, ids, uniform=None, adapters=0):
        self.model_runner.execute_model(ids, uniform, adapters)

    def sample_tokens(self):
        (mode, out), self.model_runner.execute_model_state = self.model_runner.execute_model_state, None
        return mode, out

    def shutdown(self):
        self.log.append("shut down")


def step(worker, ids, uniform=None, adapters=0):
    """One step of the engine: how it was dispatched, and its hidden states."""
    worker.execute_model(ids, uniform, adapters)
    return worker.sample_tokens()


@contextlib.contextmanager
def installed(version="0.26.0"):
    names = ("vllm.compilation.decorators", "vllm.compilation.backends", "vllm.compilation.counter", "vllm.compilation.monitor",
             "vllm.platforms", "vllm.utils", "vllm.utils.torch_utils")
    with standin.installed(version), mock.patch.dict(sys.modules, {name: types.ModuleType(name) for name in names}):
        modules = sys.modules
        for name in names:
            parent, _, last = name.rpartition(".")
            setattr(modules[parent], last, modules[name])
        modules["vllm.envs"].VLLM_USE_AOT_COMPILE, modules["vllm.envs"].VLLM_DISABLE_COMPILE_CACHE = True, False
        context = modules["vllm.forward_context"].context = Context()
        modules["vllm.forward_context"].get_forward_context = lambda: context.now
        modules["vllm.forward_context"].is_forward_context_available = lambda: context.now is not None
        modules["vllm.forward_context"].BatchDescriptor = BatchDescriptor
        modules["vllm.utils.torch_utils"]._encode_layer_name = LayerName
        modules["vllm.compilation.cuda_graph"].CUDAGraphWrapper = type("CUDAGraphWrapper", (CUDAGraphWrapper,), dict(vars(CUDAGraphWrapper)))
        modules["vllm.compilation.cuda_graph"].CUDAGraphEntry = CUDAGraphEntry
        modules["vllm.compilation.decorators"].cache = types.SimpleNamespace(stored=True, broken=False, lost=(), delay=0, busy=0)
        modules["vllm.compilation.decorators"]._try_load_aot_compiled_fn = _try_load_aot_compiled_fn
        modules["vllm.compilation.backends"].CompilerManager = type("CompilerManager", (CompilerManager,), dict(vars(CompilerManager)))
        modules["vllm.compilation.counter"].compilation_counter = types.SimpleNamespace(num_cudagraph_captured=0)
        monitor = modules["vllm.compilation.monitor"]
        monitor.cudagraph_capturing_enabled = False

        def validate():
            assert monitor.cudagraph_capturing_enabled, "CUDA graph capturing detected at an inappropriate time"

        monitor.validate_cudagraph_capturing_enabled = validate
        monitor.set_cudagraph_capturing_enabled = lambda enabled: setattr(monitor, "cudagraph_capturing_enabled", enabled)
        modules["vllm.platforms"].current_platform = types.SimpleNamespace(get_global_graph_pool=lambda: 1, pool=Pool())
        state = modules["vllm.distributed.parallel_state"]
        state.GraphCaptureContext = lambda stream: types.SimpleNamespace(stream=stream)
        state.graph_capture = lambda device, context=None: contextlib.nullcontext()
        modules["vllm.v1.worker.gpu_worker"].Worker = type("Worker", (Worker,), {
            name: vars(standin.Worker)[name] for name in ("determine_available_memory", "compile_or_warm_up_model")})
        yield


__all__ = ["Descriptor", "Worker", "installed", "step"]
