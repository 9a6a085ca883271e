# SPDX-License-Identifier: Apache-2.0
"""Graphs that an engine captures by itself: what is noted of them, refused, and given back."""
import json
import unittest

import test_torch  # skips without PyTorch
import torch
from medusa import _api
from medusa.torch.outputs import Unsupported


class Adopted(test_torch.OnFakeDevice):
    def captured(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=7, stream=torch.cuda.current_stream()):
            pass
        return graph

    def adopt(self, value, more=None, **options):
        """Of one graph in a capture: why it is refused, and the C side."""
        with self.process("capture") as library:
            graphs = self.engine()
            answer = graphs.adopt("piece", 4, self.captured(), value() if callable(value) else value, more, **options)
            graphs.close()
        return answer, library

    def test_what_lies_in_bindings_comes_back_in_those_of_another_process(self):
        why, library = self.adopt(lambda: (self.inputs["x"][1:3], [self.kv[1].t(), 5], torch.empty(0)), {"then": ["more"]})
        self.assertEqual((why, library.refused), ("", {}))
        with self.process("restore", library.artifact):
            graphs = self.engine()
            (step, more), = graphs.take(["piece"], 4)
            rows, (turned, five), empty = step.outputs
            self.assertEqual((rows.data_ptr(), rows.shape), (self.inputs["x"][1].data_ptr(), (2, 8)))
            self.assertEqual((turned.data_ptr(), turned.stride(), five, empty.numel()), (self.kv[1].data_ptr(), (1, 8), 5, 0))
            self.assertEqual((more, step.restored), ({"then": ["more"]}, True))
            step.replay()
            self.assertEqual(self.cuda.launched, [(0xE0 + 4, 0x57)])
            graphs.close()

    def test_memory_that_nobody_has_bound_is_refused(self):
        why, library = self.adopt({"out": torch.zeros(3)})
        self.assertIn("['out'] lies in memory that is not bound", why)
        self.assertEqual((list(library.refused.values()), library.artifact), ([why], {}))

    def test_a_reason_of_the_engine_and_a_note_without_room(self):
        for options, reason in (({"refusal": "it has outgrown its memory"}, "it has outgrown"), ({"more": "x" * _api.NOTE_MAX}, "more than")):
            why, library = self.adopt(lambda: self.kv[0], **options)
            self.assertIn(reason, why)
            self.assertEqual(library.artifact, {})

    def test_a_graph_that_is_refused_later(self):
        with self.process("capture") as library:
            graphs = self.engine()
            graph = self.captured()
            graphs.adopt("piece", 4, graph, self.kv[0], None)
            graphs.refuse(graph, "it draws")
            self.assertEqual(library.refused, {graph.handle: "it draws"})
            graphs.close()

    def take(self, artifact, **engine):
        with self.process("restore", artifact):
            graphs = self.engine(**engine)
            try:
                graphs.take(["piece"], 4)
            finally:
                graphs.close()

    def test_what_does_not_fit_is_refused_by_name(self):
        _, library = self.adopt(lambda: self.kv[0])
        with self.assertRaisesRegex(Unsupported, "its facts differ"):
            self.take(library.artifact, fingerprint={"more": "facts"})
        note = json.loads(library.artifact["piece", 4]["note"])
        for change, reason in (({"adopted": 2}, "not recorded by this version"), ({"outputs": {"bound": {}, "name": "gone"}}, "binding gone"),
                               ({"outputs": 3}, "can't be read"), ({"outputs": {"tensor": {}, "index": 0}}, "can't be read|is not bound")):
            artifact = {("piece", 4): {"note": json.dumps({**note, **change}).encode()}}
            with self.assertRaisesRegex(Unsupported, reason):
                self.take(artifact)
        with self.assertRaises(_api.Error):
            self.take({})

    def test_only_a_restore_gives_graphs(self):
        with self.process("capture"):
            graphs = self.engine()
            with self.assertRaisesRegex(Unsupported, "nothing is being restored"):
                graphs.take(["piece"], 4)
            graphs.close()

    def test_what_is_bound_later_is_told_and_found(self):
        with self.process("capture") as library:
            graphs, late = self.engine(), torch.zeros(16)
            graphs.bind("late", [late])
            self.assertEqual(library.bound["late.0"][:2], (late.data_ptr(), 64))
            self.assertEqual(graphs.pack(late[4:])["name"], "late.0")
            self.assertEqual(graphs.unpack(graphs.pack(late[4:])).data_ptr(), late[4:].data_ptr())
            graphs._look_for_moved()
            self.assertEqual(graphs.why_live, "")
            graphs.close()

    def test_own_tests_run_once_when_all_graphs_are_made(self):
        with self.process("capture") as library:
            graphs, calls = self.engine(), []
            graphs.on_ready(lambda: calls.append(list(library.marks)))
            graphs.ready()
            graphs.ready()
            self.assertEqual(calls, [[]], "before the mark")
            graphs.close()

    def test_a_remark_goes_with_each_graph(self):
        for remark in (None, {"arena": [5]}):
            with self.process("capture") as library:
                graphs = self.engine(remark=remark)
                graphs.get("decode", 1, self.forward)
                graphs.close()
            with self.process("restore", library.artifact):
                graphs = self.engine()
                self.assertEqual(graphs.get("decode", 1, self.forward).remark, remark)
                graphs.close()


if __name__ == "__main__":
    unittest.main()
