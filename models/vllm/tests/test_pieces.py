# SPDX-License-Identifier: Apache-2.0
"""Pieces in an artifact, on the stand-ins: what is noted of them, the plan that is made of the notes, and what does not fit."""
import contextlib
import json
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin_compiled  # noqa: E402
import torch  # noqa: E402
from fakes import Graph  # noqa: E402
from medusa import _api  # noqa: E402
from medusa.torch.graphs import Graphs  # noqa: E402
from medusa_vllm import arena, background, compiled, hooks, prefills, recording, switches  # noqa: E402
from piece_starts import KINDS, MEMORY, NONE, PIECEWISE, SIZES, WORKSPACE, Arena, PieceStarts  # noqa: E402
from standin_compiled import step  # noqa: E402


class Pieces(PieceStarts):
    # ---- capture ----

    def test_a_capture_labels_and_launches_all_pieces(self):
        worker, artifact = self.record()
        self.assertEqual({key for key in artifact if key[0] in KINDS}, {(kind, size) for kind in KINDS for size in SIZES})
        self.assertEqual({key for key in artifact if key[0] == "decode.1"}, {("decode.1", size) for size in (1, 2, 4)})
        pieces = [graph for graph in self.cuda.graphs if hasattr(graph, "piece")]
        self.assertEqual([graph.launches for graph in pieces], [1] * 12)
        self.assertEqual([graph.mode for graph in pieces], ["thread_local"] * 12)
        self.assertEqual(self.bound["pieces.0"][1:], (MEMORY, _api.STATE))
        self.assert_said("12 pieces of 4 batch sizes captured live and labelled for the artifact; 0 sizes refused")
        self.assert_said("3 full graphs captured live and labelled for the artifact")
        self.assertFalse([line for line in self.said if "restored" in line])
        self.assertEqual(worker.model_runner.cudagraph_manager.dispatch(1, 4, None, 0).cg_mode, NONE)

    def test_pieces_are_launched_when_all_graphs_are_made_and_on_values_that_vary(self):
        found = []
        replay = Graph.replay

        def watch(graph):
            found.append(len(starts.Cuda.now.graphs))
            if hasattr(graph, "piece"):
                found.append([tensor.clone() for tensor in graph.piece[1]])
            return replay(graph)

        with mock.patch.object(Graph, "replay", watch):
            self.record()
        inputs = [entry for entry in found if isinstance(entry, list)]
        self.assertEqual({entry for entry in found if isinstance(entry, int)}, {15}, "all of them")
        self.assertGreater(len(set(inputs[0][0].tolist())), 3, "token ids")
        self.assertTrue(all(entry[0].float().abs().sum() > 0 for entry in inputs[1::3]), "what attention leaves")

    def test_memory_of_full_graphs_is_stated_to_be_theirs_after_each_capture_of_a_piece(self):
        stated, restate = [], Graphs.restate_scratch

        def watch(graphs):
            stated.append([hasattr(graph, "piece") for graph in starts.Cuda.now.graphs].count(True))
            restate(graphs)

        with mock.patch.object(Graphs, "restate_scratch", watch):
            self.record()
        self.assertEqual(stated, list(range(13)), "once for each, and once before the first")

    def test_the_workspace_of_pieces_is_stated_to_be_theirs_before_there_are_graphs_and_after_each_capture(self):
        said = []  # pieces and full graphs that there were at each statement

        def say(_library, address, size):
            if (address, size) == WORKSPACE:
                said.append(len(starts.Cuda.now.graphs))

        with mock.patch.object(starts.CSide, "graph_scratch", say):
            self.record()
        self.assertEqual(said[:2], [0, 0])
        self.assertEqual(sorted(set(said)), list(range(16)))

    def test_notes_say_what_the_plan_is_made_of(self):
        _, artifact = self.record()
        notes = [json.loads(artifact[kind, 4]["note"]) for kind in KINDS]
        self.assertEqual([note["more"]["of"] for note in notes], [3] * 3)
        names = [[call["name"] for call in note["more"]["then"]] for note in notes]
        self.assertEqual(names, [["standin_vllm::write_cache", "standin_vllm::attend"]] * 2 + [[]])
        self.assertIn({"layer": "layers.1"}, notes[1]["more"]["then"][1]["arguments"]["list"])
        self.assertIn({"value": 1.0}, notes[1]["more"]["then"][1]["arguments"]["list"])
        ids = notes[0]["more"]["arguments"]["list"][0]["list"][0]
        self.assertEqual((ids["name"], ids["offset"], ids["bound"]["shape"]), ("inputs.input_ids", 0, [4]))
        query, out = notes[0]["outputs"]["tuple"]
        self.assertEqual((query["name"], out["name"], out["bound"]), ("pieces.0", "pieces.0", {"dtype": "float32", "shape": [4, 8], "stride": [8, 1]}))
        self.assertNotEqual(query["offset"], out["offset"])
        self.assertEqual(notes[2]["more"]["result"], notes[2]["outputs"])

    def test_a_verification_launches_each_piece_on_several_inputs(self):
        _, artifact = self.record()
        self.process("verify", artifact)
        pieces = [graph for graph in self.cuda.graphs if hasattr(graph, "piece")]
        self.assertEqual([graph.launches for graph in pieces], [recording.ROUNDS] * 12)

    def test_what_cannot_be_described_refuses_the_size_by_name(self):
        describe = recording.operations.describe

        def strange(graphs, operation, arguments, options):
            if arguments[0].shape[0] == 2 and "attend" in str(operation):
                options = {"more": object()}
            return describe(graphs, operation, arguments, options)

        with mock.patch.object(recording.operations, "describe", strange):
            _, library = self.process("capture")
        self.assertEqual({key[1] for key in library.artifact if key[0] in KINDS}, {8, 4, 1})
        self.assertEqual(len(library.refused), 3)
        self.assert_said("the pieces of 2 tokens will not be restored: after piece 1: the operation standin_vllm.attend.default")
        self.assertIn(("decode.1", 2), library.artifact)

    def test_memory_that_was_not_prepared_refuses_pieces(self):
        with mock.patch.object(Arena, "grown", 4096):
            _, library = self.process("capture")
        self.assertEqual({key[0] for key in library.artifact if key != "kv"}, {"decode.1"})
        self.assert_said("their graph pool has grown by 4096 bytes that no binding covers")

    def test_random_numbers_refuse_pieces(self):
        replay = Graph.replay

        def draws(graph):
            starts.Cuda.now.generator.offset += 4 * (getattr(graph, "piece", ("",))[0] == "embed")
            return replay(graph)

        with mock.patch.object(Graph, "replay", draws):
            _, library = self.process("capture")
        self.assertEqual(len(library.refused), 12)

    def test_a_failure_leaves_full_graphs_as_they_are(self):
        for owner, name in ((Arena, "fill"), (recording.Recording, "capture"), (recording.Recording, "test")):
            with mock.patch.object(owner, name, side_effect=RuntimeError("no memory for pieces")):
                _, library = self.process("capture")
            self.assert_said("no memory for pieces")
            self.said.clear()
            self.assertEqual({key for key in library.artifact if key[0] == "decode.1"}, {("decode.1", size) for size in (1, 2, 4)})
            self.assertEqual(library.marks, ["ready", "complete"])

    # ---- restore ----

    def test_prefills_are_those_of_the_compiled_model(self):
        self.check_prefills()

    def eager(self, artifact, reason, change=None, other=4, **options):
        """Batches of 4 tokens run eagerly, by name; those of another size as `other` says."""

        def serve(worker, launched):
            for _ in range(2):
                worker.log.clear()
                out, _ = self.expected(worker, ids := self.tokens(4))
                worker.log.clear()
                self.assertTrue(torch.equal(step(worker, ids)[1], out))
                self.assertEqual(worker.log, [("eager", 4)])
            self.assertEqual(launched, [])
            self.assertEqual(step(worker, self.tokens(4))[0], NONE, "it is not dispatched any more")
            if other != 4:
                self.assert_as_compiled(worker, self.tokens(other))

        self.restore(artifact, serve, change, **options)
        self.assert_said(reason)
        self.assertEqual(len([line for line in self.said if reason in line]), 1, self.said)

    def change_note(self, artifact, label, change):
        note = json.loads(artifact[label]["note"])
        change(note)
        artifact[label]["note"] = json.dumps(note).encode()

    def test_a_missing_piece(self):
        _, artifact = self.record()
        del artifact["piece.1", 4]
        self.eager(artifact, "batches of 4 tokens run eagerly: the artifact has no graph piece.1/4", other=8)

    def test_notes_that_do_not_fit(self):
        def first(note):
            return note["more"]["then"][0]

        for reason, label, change in (
            ("the note of piece 1 says that there are 5 pieces, not 3", "piece.1", lambda note: note["more"].update(of=5)),
            ("this model has no layer layers.7", "piece.1", lambda note: first(note)["arguments"]["list"].__setitem__(1, {"layer": "layers.7"})),
            ("no operation standin_vllm::nothing.default", "piece.0", lambda note: first(note).update(name="standin_vllm::nothing")),
            ("not recorded by this version", "piece.2", lambda note: note.update(adopted=99)),
            ("its facts differ", "piece.2", lambda note: note.update(facts="others")),
            ("binding pieces.9, which does not exist", "piece.0", lambda note: note["outputs"]["tuple"][1].update(name="pieces.9")),
            ("can't be read", "piece.2", lambda note: note["more"].pop("result")),
            ("can't be read", "piece.2", lambda note: note.pop("outputs")),
        ):
            with self.subTest(reason):
                self.said.clear()
                _, artifact = self.record()
                self.change_note(artifact, (label, 4), change)
                self.eager(artifact, reason, other=2)

    def test_a_call_with_other_arguments_runs_eagerly(self):
        _, artifact = self.record()

        def shape(note):
            note["more"]["arguments"]["list"][0]["list"][0]["bound"]["shape"] = [3]

        self.change_note(artifact, ("piece.0", 4), shape)

        def serve(worker, launched):
            step(worker, self.tokens(4))
            self.assertEqual((worker.log[-1], launched), (("eager", 4), []))
            self.assert_as_compiled(worker, self.tokens(2))

        self.restore(artifact, serve)
        self.assert_said("other arguments than in the capture")

    def test_memory_of_another_size(self):
        _, artifact = self.record()
        with mock.patch.object(arena, "_bytes", lambda size: torch.zeros(size + 512, dtype=torch.uint8)):
            self.eager(artifact, "binding pieces.0 has")

    def test_pieces_that_are_late_are_waited_for_and_used_when_they_are_there(self):
        _, artifact = self.record()

        def serve(worker, launched):
            self.library.late = ("piece.1",)
            self.assertEqual(step(worker, self.tokens(4))[0], PIECEWISE)
            self.assertEqual((worker.log[-1], launched), (("eager", 4), []))
            self.library.late = ()
            self.assert_as_compiled(worker, self.tokens(4))

        self.restore(artifact, serve)
        self.assertFalse([line for line in self.said if "eagerly" in line])

    def test_a_failure_to_prepare_leaves_batches_eager(self):
        _, artifact = self.record()
        with mock.patch.object(arena, "_bytes", side_effect=RuntimeError("out of memory")):
            self.eager(artifact, "batches with prefills run eagerly, without pieces: out of memory")

    def test_an_artifact_without_pieces(self):
        os.environ[switches.PIECES] = "0"
        _, artifact = self.record()
        os.environ[switches.PIECES] = "1"
        self.eager(artifact, "the artifact has no pieces; the log of its capture says why")

    def test_it_is_on_unless_it_is_switched_off(self):
        del os.environ[switches.PIECES]
        _, artifact = self.record()
        self.restore(artifact, lambda worker, launched: self.assert_as_compiled(worker, self.tokens(4)))
        os.environ[switches.PIECES] = "0"
        _, library = self.process("capture")
        self.assertEqual({key[0] for key in library.artifact if key != "kv"}, {"decode.1"})
        self.assertNotIn("pieces.0", library.bound)

        def serve(worker, launched):
            self.assertEqual(step(worker, self.tokens(4))[0], NONE)
            self.assertEqual((worker.log[-1], launched), (("eager", 4), []))

        self.restore(artifact, serve)
        self.assertNotIn("pieces.0", self.library.bound)

    def test_what_is_not_covered_is_named(self):
        del os.environ[switches.PIECES]
        for change, reason in (
            (lambda worker: setattr(worker.vllm_config, "lora_config", object()), "no support yet for adapters (LoRA), unless MEDUSA_VLLM_PIECES=1"),
            (lambda worker: setattr(worker.vllm_config.compilation_config, "use_inductor_graph_partition", True), "Inductor's own partitions"),
            (lambda worker: setattr(worker.vllm_config.compilation_config, "cudagraph_copy_inputs", True), "cudagraph_copy_inputs"),
        ):
            def after(worker, change=change, reason=reason):
                taken = hooks.takeover_of(worker)
                change(worker)
                self.said.clear()
                with mock.patch.object(prefills._api, "mode", lambda: "capture"):
                    worker.model_runner.model.do_not_compile = False
                    self.assertIsNone(prefills.prepare(taken))
                self.assert_said(reason)

            self.process("capture", after=after)

    def test_a_graph_that_is_captured_live_ends_eager_batches_and_plans(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]

        def serve(worker, launched):
            self.assertEqual(step(worker, self.tokens(4))[0], NONE)
            self.assertEqual((worker.log[-1], launched), (("compiled", NONE, 4), []))

        self.restore(artifact, serve)

    # ---- the compiled model takes over ----

    def take_over(self, artifact, serve, change=None, wish="load"):
        def after(worker, launched):
            taking = getattr(worker, hooks.ATTRIBUTE).background
            self.assert_as_compiled(worker, self.tokens(4))
            self.assertTrue(taking.join(60))
            serve(worker, launched)

        with mock.patch.dict(os.environ, {switches.TAKEOVER: wish}):
            return self.restore(artifact, after, change)

    def test_restored_pieces_are_handed_to_the_compiled_model(self):
        _, artifact = self.record()

        def serve(worker, launched):
            self.assertNotIn("forward", vars(worker.model_runner.model))
            for size in SIZES:
                del launched[:]
                self.assert_as_compiled(worker, self.tokens(size))
                self.assertEqual(worker.log, [("compiled", PIECEWISE, size)])
                self.assertEqual(launched, [(kind, size) for kind in KINDS])

        self.take_over(artifact, serve)
        self.assert_said("has taken over after")
        self.assert_said("0 piecewise graphs")

    def test_until_they_are_handed_over_no_batch_is_dispatched_to_them(self):
        _, artifact = self.record()
        graphs, seen = background.Background._graphs, []

        def watch(work):
            manager = work._takeover.manager
            seen.append([manager.dispatch(1, size, None, 0).cg_mode for size in SIZES])
            made = graphs(work)
            seen.append([manager.dispatch(1, size, None, 0).cg_mode for size in SIZES])
            return made

        with mock.patch.object(background.Background, "_graphs", watch):
            self.take_over(artifact, lambda worker, launched: None)
        self.assertEqual(seen, [[NONE] * 4, [PIECEWISE] * 4], "vLLM's wrappers would capture where they have no graph")

    def test_what_was_not_restored_is_captured(self):
        _, artifact = self.record()
        del artifact["piece.2", 2]

        def serve(worker, launched):
            for size, count in ((2, 0), (8, 3)):
                del launched[:]
                self.assert_as_compiled(worker, self.tokens(size))
                self.assertEqual(len(launched), count, "2 tokens have graphs of vLLM's own")

        self.take_over(artifact, serve)
        self.assert_said("3 piecewise graphs")

    def test_where_vllm_checks_addresses_it_captures_its_own(self):
        _, artifact = self.record()
        with mock.patch.object(standin_compiled.CUDAGraphWrapper, "is_debugging_mode", True, create=True):
            self.take_over(artifact, lambda worker, launched: self.assert_as_compiled(worker, self.tokens(2)))
        self.assert_said("12 piecewise graphs")

    def test_plans_end_before_the_model_is_compiled(self):
        _, artifact = self.record()
        profile, seen = standin_compiled.Runner.profile_run, []

        def watch(runner):
            seen.append(("forward" in vars(runner.model), runner.cudagraph_manager.dispatch(1, 4, None, 0).cg_mode))
            profile(runner)

        def change(worker):
            sys.modules["vllm.compilation.decorators"].cache.stored = False

        with mock.patch.object(standin_compiled.Runner, "profile_run", watch):
            self.take_over(artifact, lambda worker, launched: self.assert_as_compiled(worker, self.tokens(4)), change, wish="compile")
        self.assertEqual(seen, [(False, NONE)])
        self.assert_said("12 piecewise graphs")

    def test_plans_stay_where_the_compiled_model_fails(self):
        _, artifact = self.record()

        def broken(model, path):
            def fail(*_):
                raise RuntimeError("the first forward fails")
            return fail

        def change(worker):
            sys.modules["vllm.compilation.decorators"]._try_load_aot_compiled_fn = lambda model, aot_compilation_path: broken(model, "")

        def serve(worker, launched):
            del launched[:]
            self.assert_as_compiled(worker, self.tokens(2))
            self.assertEqual(len(launched), 3)

        self.take_over(artifact, serve, change)
        self.assert_said("stay as they are")

    def test_the_compiled_model_is_found_by_its_own_forward(self):
        _, artifact = self.record()

        def serve(worker, launched):
            module = worker.model_runner.model
            self.assertIn("forward", vars(module))
            seen = []
            with mock.patch.object(type(module), "__call__", lambda twin: seen.append(vars(twin).get("forward"))):
                with contextlib.suppress(compiled.Missing):
                    compiled.load(module, lambda frame: None)
            self.assertEqual(seen, [None])

        self.restore(artifact, serve)


if __name__ == "__main__":
    unittest.main()
