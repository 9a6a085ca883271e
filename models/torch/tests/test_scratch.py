# SPDX-License-Identifier: Apache-2.0
"""medusa.torch with an allocator's state made up: which memory it states to be the graphs' alone, and when."""
import unittest
from unittest import mock

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed: which memory only graphs use") from missing

from medusa import _api
from medusa.torch.live import Recorder
from test_torch import OnFakeDevice


class FreeBlocks(OnFakeDevice):
    """Blocks of the graphs' own pool that belong to no tensor are stated to be scratch memory."""

    BLOCKS = [("inactive", 0x1000, 512), ("active_allocated", 0x1200, 512), ("active_pending_free", 0x1400, 512),
              ("inactive", 0x1600, 1024)]
    FREE = [(0x1000, 512), (0x1600, 1024)]

    @classmethod
    def segment(cls, **other):
        blocks = [{"state": state, "address": address, "size": size} for state, address, size in cls.BLOCKS]
        return {"device": 0, "segment_pool_id": 1, "blocks": blocks, **other}  # the first pool that is made

    def stated(self, segments, mode="capture", backend="native", **more):
        self.cuda.pools, self.cuda.segments, self.cuda.backend = 0, segments, backend
        with self.process(mode) as library:
            graphs = self.engine(**more)
            graphs.get("decode", 4, self.forward)
            after_capture, library.scratch = library.scratch, []
            graphs.restate_scratch()
            self.assertEqual(after_capture, library.scratch, "an engine that captures by itself has it said again")
            library.scratch = []
            graphs.ready()
            self.assertEqual(after_capture, library.scratch, "each capture ends what was said, and ready() says it again")
            graphs.close()
        return after_capture

    def test_those_of_the_pool(self):
        self.assertEqual(self.stated([self.segment()]), self.FREE)
        self.assertEqual(self.stated([self.segment(segment_pool_id=0), self.segment(segment_pool_id=2)]), [])
        self.assertEqual(self.stated([self.segment(device=1)]), [])

    def test_a_pool_is_a_pair_of_numbers(self):
        with mock.patch.object(torch.cuda, "graph_pool_handle", lambda: (0, 7)):
            for pool, free in (((0, 7), self.FREE), ([0, 7], self.FREE), ((7, 0), []), ((0, 0), [])):
                self.assertEqual(self.stated([self.segment(segment_pool_id=pool)]), free)

    def test_the_states_are_those_at_each_capture(self):
        self.cuda.segments = [self.segment()]
        with self.process("capture") as library:
            graphs = self.engine()
            graphs.get("decode", 4, self.forward)
            self.cuda.segments[0]["blocks"][3]["state"] = "active_allocated"
            library.scratch = []
            graphs.get("decode", 2, self.forward)
            self.assertEqual(library.scratch, self.FREE[:1])

    def test_those_of_every_engine_in_the_process(self):
        """A capture of one ends what was stated for the other."""
        with self.process("capture") as library:
            self.cuda.pools, self.cuda.segments = 0, [self.segment()]
            first = self.engine(name="first")
            first.get("decode", 4, self.forward)
            library.scratch = []
            second = self.engine(name="second")
            second.get("decode", 4, self.forward)
            self.assertEqual(library.scratch, self.FREE)
            first.close()
            library.scratch = []
            second.get("decode", 2, self.forward)
            self.assertEqual(library.scratch, [])

    def test_memory_that_the_engine_names_is_stated_again_as_well(self):
        with self.process("capture") as library:
            first, second = self.engine(name="first"), self.engine(name="second")
            first.add_scratch([(0x9000, 512)])
            self.assertEqual(library.scratch, [(0x9000, 512)])
            for graphs, batch in ((first, 4), (second, 4)):
                library.scratch = []
                graphs.get("decode", batch, self.forward)
                self.assertEqual(library.scratch, [(0x9000, 512)])
            library.scratch = []
            second.restate_scratch()
            self.assertEqual(library.scratch, [(0x9000, 512)])

    def test_of_a_broken_capture_the_pool_stays_ours(self):
        recorder = Recorder(0, None, 0)

        def forward():
            self.cuda.broken = True
            raise ValueError("mine")

        with self.assertRaises(ValueError):
            recorder.run(forward, lambda draws: None)
        recorder.run(lambda: None, lambda draws: None)
        self.assertEqual(recorder.own_pools, [1, 2])

    def test_a_pool_that_others_may_use(self):
        self.assertEqual(self.stated([self.segment()], pool=1), [])

    def test_only_in_a_capture(self):
        for mode in ("none", "verify"):
            self.assertEqual(self.stated([self.segment()], mode=mode), [])

    def test_only_the_native_allocator(self):
        self.assertEqual(self.stated([self.segment()], backend="cudaMallocAsync"), [])

    def test_a_pytorch_that_does_not_tell(self):
        older = self.segment()
        del older["segment_pool_id"]
        self.assertEqual(self.stated([older]), [])
        for field in ("state", "address", "size"):
            older = self.segment()
            for block in older["blocks"]:
                del block[field]
            self.assertEqual(self.stated([older]), [])
        self.assertEqual(self.stated([{}]), [])

    def test_a_refusal_costs_nothing_else(self):
        def refuse(address, size):
            raise _api.Error(_api.INVALID, "no such memory")

        self.cuda.segments = [self.segment()]
        with self.process("capture") as library, mock.patch.object(_api, "graph_scratch", refuse):
            with self.assertLogs("medusa.torch", "WARNING") as logged:
                graphs = self.engine()
                graphs.get("decode", 4, self.forward)
            self.assertIn("no such memory", logged.output[0])
            self.assertEqual(library.labels, [("decode", 4)])
