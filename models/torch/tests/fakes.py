# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for a GPU and for the C side, so that the adapter's own decisions run on PyTorch's CPU tensors.

What they claim is little: a "graph" calls its forward again and copies what it returns into the outputs that it had at
capture; a failed capture_end leaves what PyTorch leaves. Whether real graphs are restored right, tests/gpu shows.
"""
import contextlib
import ctypes
import weakref
from unittest import mock

import torch

from medusa import _api
from medusa.torch import bindings, live, outputs, owner, rng, steps
from medusa.torch.outputs import tensors_of


class Stream:
    def __init__(self, name="side"):
        self.name, self.capturing = name, None

    def wait_stream(self, other):
        pass

    def query(self):
        return True


class Generator:
    """Counts as PyTorch's does; refuses to draw when it believes to be capturing."""

    def __init__(self):
        self.offset, self.seed, self.capturing = 0, 7, False

    def draw(self):
        if self.capturing != (Cuda.now.current.capturing is not None):
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        if self.capturing:
            Cuda.now.current.capturing.increment += 4
        else:
            self.offset += 4

    def get_offset(self):
        return self.offset

    def set_offset(self, offset):
        self.offset = offset

    def initial_seed(self):
        return self.seed

    def get_state(self):
        return self.seed, self.offset

    def set_state(self, state):
        self.seed, self.offset = state


class Graph:
    """torch.cuda.CUDAGraph."""

    def __init__(self, keep_graph=False):
        self.increment, self.launches, self.ended, self.handle, self.keep_graph = 0, 0, False, None, keep_graph
        Cuda.now.graphs.append(self)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        assert Cuda.now.current.capturing is None
        if pool in Cuda.now.recording_pools:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        self.pool, self.mode = pool, capture_error_mode
        Cuda.now.recording_pools.append(pool)
        Cuda.now.current.capturing, Cuda.now.generator.capturing = self, True

    def capture_end(self):
        Cuda.now.current.capturing = None
        if Cuda.now.broken:
            Cuda.now.broken = False
            raise RuntimeError("operation failed due to a previous error during capture")
        Cuda.now.generator.capturing, self.ended = False, True
        Cuda.now.recording_pools.remove(self.pool)
        if not self.keep_graph:
            self.instantiate()

    def instantiate(self):
        if Cuda.now.fail_instantiate:
            raise RuntimeError("out of memory")
        self.handle = 0x1000 + len(Cuda.now.graphs)

    def raw_cuda_graph_exec(self):
        return self.handle

    def replay(self):
        self.launches += 1
        Cuda.now.generator.offset += self.increment
        if self.again:
            self.again()

    again = None

    def reset(self):
        self.handle = None


class Cuda:
    """The state of the one fake device; patch() puts it in place of torch.cuda."""

    now = None

    def __init__(self):
        Cuda.now = self
        self.main = self.current = Stream("main")
        self.generator, self.graphs, self.recording_pools = Generator(), [], []
        self.broken = self.fail_instantiate = False
        self.pools = 0
        self.backend, self.segments = "native", []  # the allocator's state

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def set_stream(self, stream):
        self.current = stream

    def new_pool(self):
        self.pools += 1
        return self.pools

    def end_pool(self, device, pool):
        self.recording_pools.remove(pool)

    def capture(self, graph, pool=None, stream=None, capture_error_mode="global"):
        """torch.cuda.graph, with the order of its exit."""
        context = self.stream(stream or Stream())
        fake = mock.MagicMock()

        def enter(_self=None):
            context.__enter__()
            graph.capture_begin(pool, capture_error_mode)

        def leave(*what):
            graph.capture_end()
            context.__exit__(None, None, None)

        fake.__enter__.side_effect, fake.__exit__.side_effect = enter, leave
        return fake

    def patch(self):
        """A context in which the adapter runs on this device."""
        stack = contextlib.ExitStack()
        for name, value in {
            "current_device": lambda: 0,
            "current_stream": lambda device=None: self.current,
            "set_stream": self.set_stream,
            "stream": self.stream,
            "Stream": lambda device=None: Stream(),
            "device": lambda index: contextlib.nullcontext(),
            "synchronize": lambda device=None: None,
            "CUDAGraph": Graph,
            "graph": self.capture,
            "graph_pool_handle": self.new_pool,
            "is_current_stream_capturing": lambda: self.current.capturing is not None,
            "default_generators": [self.generator],
            "get_allocator_backend": lambda: self.backend,
            "memory_snapshot": lambda: self.segments,
            "mem_get_info": lambda device=None: (1 << 30, 1 << 31),
        }.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch._C, "_cuda_endAllocateToPool", self.end_pool, create=True))
        stack.enter_context(mock.patch.object(bindings, "device_of", lambda index: torch.device("cpu")))
        stack.enter_context(mock.patch.object(bindings, "is_on", lambda tensor, index: tensor.device.type == "cpu"))
        stack.enter_context(mock.patch.object(outputs, "over", over))
        stack.enter_context(mock.patch.object(steps, "_device_now", lambda: 0))
        stack.enter_context(mock.patch.object(steps, "_stream_of", lambda device: 0x57))
        stack.enter_context(mock.patch.object(steps._driver, "launcher", lambda: self.launch))
        self.launched = []
        return stack

    def launch(self, graph, stream):
        self.launched.append((graph.value, stream))
        return 0


def over(address, size, keeper, device):
    """Host memory as a tensor; keeps its keeper as the real one does."""
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.keeper = keeper
    return torch.frombuffer(memory, dtype=torch.uint8)


class Library:
    """Medusa's C side in one dictionary: what one process labels, the next one gets."""

    def __init__(self, mode="none", artifact=None):
        self.mode_name, self.artifact = mode, artifact if artifact is not None else {}
        self.bound, self.facts, self.said, self.refused, self.marks, self.labels = {}, {}, {}, {}, [], []
        self.wanted, self.released, self.timeouts = {}, 0, 0
        self.waits, self.parted = [], 0  # timeouts of graph_get; the call in which another rank is found to be lost, from 1
        self.split = False  # another graph of each one's group was handed out
        self.memory = {}
        self.scratch = []  # since the last capture began, as the C side forgets the rest

    def mode(self):
        return self.mode_name

    def bind(self, name, address, size, role):
        self.bound[name] = (address, size, role)

    def fingerprint_add(self, name, value):
        self.facts[name] = value

    def graph_want(self, label, batches):
        self.wanted[label] = list(batches)

    def trigger(self, name, callback):
        self.trigger_callback = callback

    def graph_output(self, graph, index, address, size):
        self.said.setdefault(graph, {"outputs": {}})["outputs"][index] = size

    def graph_note(self, graph, data):
        self.said.setdefault(graph, {"outputs": {}})["note"] = data

    def graph_refuse(self, graph, why):
        self.refused[graph] = why

    def graph_scratch(self, address, size):
        self.scratch.append((address, size))

    def graph_label(self, graph, label, batch):
        self.labels.append((label, batch))
        if self.mode_name == "restore":
            if self.split:
                raise _api.Error(_api.MISMATCH, f"graph {label}/{batch} was captured live, and another was handed out")
            return
        if graph not in self.refused:
            self.artifact[label, batch] = self.said.get(graph, {"outputs": {}})

    def graph_get(self, label, batch, timeout_ns):
        self.waits.append(timeout_ns)
        if len(self.waits) == self.parted:
            raise _api.Error(_api.MISMATCH, "rank 1 has not asked for it")
        if self.timeouts:
            self.timeouts -= 1
            raise _api.Error(_api.TIMEOUT, "still being restored")
        if self.mode_name != "restore" or (label, batch) not in self.artifact:
            raise _api.Error(_api.NOT_FOUND, f"the artifact has no graph {label}/{batch}")
        return 0xE0 + batch

    def graph_note_get(self, label, batch):
        return self.artifact[label, batch].get("note", b"")

    def graph_output_get(self, label, batch, index):
        size = self.artifact[label, batch]["outputs"][index]
        memory = self.memory.setdefault((label, batch, index), (ctypes.c_uint8 * size)())
        return ctypes.addressof(memory), size

    def graph_ready(self, label, batch):
        return (label, batch) in self.artifact

    def mark(self, name):
        self.marks.append(name)

    def stats(self):
        return {}

    def release(self):
        self.released += 1

    def patch(self):
        """A context in which medusa._api answers from here, as in a new process."""
        stack = contextlib.ExitStack()
        for name in dir(self):
            if callable(getattr(self, name)) and not name.startswith("_") and name != "patch":
                stack.enter_context(mock.patch.object(_api, name, getattr(self, name)))
        from medusa.torch import facts, graphs

        stack.enter_context(mock.patch.object(facts, "_said", False))
        stack.enter_context(mock.patch.object(graphs, "_first_engine", None))
        stack.enter_context(mock.patch.object(graphs, "_open", weakref.WeakSet()))
        stack.enter_context(mock.patch.object(owner, "_current", None))
        stack.enter_context(mock.patch.dict(rng._words, clear=True))
        stack.enter_context(mock.patch.dict(rng._found, clear=True))
        return stack


__all__ = ["Cuda", "Generator", "Graph", "Library", "Stream", "live", "tensors_of"]
