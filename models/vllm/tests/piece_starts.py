# SPDX-License-Identifier: Apache-2.0
"""What tests of pieces have in common: the memory of a graph pool, a C side that restores pieces, and one start of such an engine."""
import ctypes
import os
import random
import sys
from unittest import mock

import starts  # skips without PyTorch
import standin_compiled
import torch
from medusa import _api
from medusa_vllm import arena, plan, recording, switches, turns
from standin import BLOCK, VOCABULARY, CUDAGraphMode
from standin_compiled import step

NONE, PIECEWISE = CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE
SIZES, KINDS = (8, 4, 2, 1), ("piece.0", "piece.1", "piece.2")
MEMORY = 1 << 16
WORKSPACE = (0x7000, 64)  # address and bytes of memory that only graphs use


class Arena:
    """Memory that the stand-in's pool takes."""

    grown = 0

    def __init__(self, pool, stream):
        self.tensors = []

    def fill(self, large, small):
        self.tensors = [torch.zeros(MEMORY, dtype=torch.uint8), torch.zeros(64, dtype=torch.uint8)]
        sys.modules["vllm.platforms"].current_platform.pool.memory = self.tensors[0]

    def take_workspace(self):
        pass

    def unbound(self):
        return [WORKSPACE]

    def outgrown(self):
        return self.grown


def place_of(tensor, bound):
    """Name and offset of the binding that a tensor lies in."""
    for name, (address, size, _) in bound.items():
        if address <= tensor.data_ptr() < address + size:
            return name, tensor.data_ptr() - address, tensor.dtype, tuple(tensor.shape), tensor.stride()
    raise AssertionError("a piece uses memory that nobody has bound")


def tensor_at(place, bound):
    name, offset, dtype, shape, stride = place
    address, size, _ = bound[name]
    memory = (ctypes.c_uint8 * (size - offset)).from_address(address + offset)
    return torch.frombuffer(memory, dtype=torch.uint8)[: (size - offset) // dtype.itemsize * dtype.itemsize].view(dtype).as_strided(shape, stride)


class CSide(starts.CSide):
    """Restores pieces, too: each computes with the new process's memory and weights."""

    sizes = {}  # of bindings, in the capture
    late = ()  # labels that are still being restored

    def graph_label(self, graph, label, batch):
        super().graph_label(graph, label, batch)
        made = next((each for each in starts.Cuda.now.graphs if each.handle == graph), None)
        if getattr(made, "piece", None) and (label, batch) in self.artifact:
            name, inputs, outputs = made.piece
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            places = [[place_of(tensor, self.bound) for tensor in tensors] for tensors in (inputs, outputs)]
            sizes = {place[0]: self.bound[place[0]][1] for each in places for place in each}
            self.artifact[label, batch] = {**self.artifact[label, batch], "recipe": (name, *places), "sizes": sizes}

    def graph_get(self, label, batch, timeout_ns):
        super().graph_get(label, batch, timeout_ns)
        if label in self.late:
            raise _api.Error(_api.TIMEOUT, "still being restored")
        for name, size in self.artifact[label, batch].get("sizes", {}).items():
            if self.bound.get(name, (0, 0))[1] != size:
                raise _api.Error(_api.MISMATCH, f"binding {name} has {self.bound.get(name, (0, 0))[1]} bytes, and had {size}")
        self.handles = getattr(self, "handles", [])
        self.handles.append((label, batch))
        return 0xA000 + len(self.handles) - 1

    def _launch(self, handle, model):
        label, batch = self.handles[handle - 0xA000]
        name, inputs, outputs = self.artifact[label, batch]["recipe"]
        function = next(each for each in standin_compiled.functions_of(model) if each.__name__ == name)
        values = function(*(tensor_at(place, self.bound) for place in inputs))
        for place, value in zip(outputs, values if isinstance(values, tuple) else (values,)):
            if place is outputs[0]:
                tensor_at(place, self.bound).copy_(value)


class PieceStarts(starts.Starts):
    """An engine whose pieces are recorded and restored."""

    standin = standin_compiled
    c_side = CSide

    def setUp(self):
        super().setUp()
        for owner, name, value in ((recording, "Arena", Arena), (recording, "most_at_once", lambda forwards: [run() for run in forwards][:2]),
                                   (arena, "_bytes", lambda size: torch.zeros(size, dtype=torch.uint8)),
                                   (turns, "LATE_S", 100), (turns, "IDLE_S", 0.01), (turns, "PATIENCE_S", 0.2), (plan, "PATIENCE_S", 0.05)):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        os.environ[switches.PIECES] = "1"
        os.environ[switches.AFTER] = os.environ[switches.TAKEOVER] = "0"
        self.numbers = random.Random(5)

    def assert_said(self, text):
        self.assertTrue(any(text in line for line in self.said), self.said)

    def restore(self, artifact, serve, change=None, **options):
        """serve(worker, launched) in a restored start; launched: labels of the pieces, as they were launched."""

        def begin(worker):
            launched = []

            def launch(graph, _):
                label = self.library.handles[graph.value - 0xA000]
                launched.append(label)
                if label[0] in KINDS:
                    self.library._launch(graph.value, worker.model_runner.get_model())
                return 0

            self.launched = launched
            starts.Cuda.now.launch = launch
            if change:
                change(worker)

        def after(worker):
            del self.launched[:]
            serve(worker, self.launched)

        return self.process("restore", artifact, change=begin, after=after, **options)

    def tokens(self, count):
        return [self.numbers.randrange(VOCABULARY) for _ in range(count)]

    def expected(self, worker, ids):
        """Of the compiled model without graphs, with a KV cache of its own."""
        runner = worker.model_runner
        kv = [torch.zeros_like(cache) for cache in runner.kv_caches]
        slots = torch.arange(len(ids)) + BLOCK
        with runner.in_context(NONE, None, kv, slots, False):
            return standin_compiled.Compiled(runner.get_model())(runner.get_model(), torch.tensor(ids), kv, slots), kv

    def assert_as_compiled(self, worker, ids, mode=PIECEWISE):
        for cache in worker.model_runner.kv_caches:
            cache.zero_()
        out, kv = self.expected(worker, ids)
        worker.log.clear()
        found_mode, found = step(worker, ids)
        self.assertEqual(found_mode, mode, self.said)
        self.assertTrue(torch.equal(out, found))
        for one, other in zip(kv, worker.model_runner.kv_caches):
            self.assertTrue(torch.equal(one, other), "operations between pieces write the KV cache")

    def check_prefills(self):
        """Prefills of a restored engine are those of the compiled model, and nothing but pieces runs."""
        _, artifact = self.record()

        def serve(worker, launched):
            for _ in range(20):
                size = self.numbers.choice(SIZES)
                del launched[:]
                self.assert_as_compiled(worker, self.tokens(size))
                self.assertEqual(launched, [(kind, size) for kind in KINDS])
                self.assertEqual(worker.log, [], "neither eager layers nor the compiled model")
            self.assertEqual(step(worker, self.tokens(10))[0], NONE, "larger than any piece")
            self.assertIn(("eager", 10), worker.log)

        worker, _ = self.restore(artifact, serve)
        self.assertEqual(worker.log.count("profile"), 0)
        self.assert_said("batches with prefills of up to 8 tokens run on restored pieces")
        self.assert_said("medusa: 3 of 3 full graphs restored")
