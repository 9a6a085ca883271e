# SPDX-License-Identifier: Apache-2.0
"""Pieces in an artifact, on the stand-ins: what is noted of them, the plan that is made of the notes, and what does not fit."""
import contextlib
import ctypes
import json
import os
import random
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin  # noqa: E402
import standin_compiled  # noqa: E402
import torch  # noqa: E402
from fakes import Graph  # noqa: E402
from medusa import _api  # noqa: E402
from medusa.torch.graphs import Graphs  # noqa: E402
from medusa_vllm import arena, background, compiled, hooks, plan, prefills, recording, turns  # noqa: E402
from standin import BLOCK, VOCABULARY, WIDTH, CUDAGraphMode  # noqa: E402
from standin_compiled import step  # noqa: E402

NONE, PIECEWISE = CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE
SIZES, KINDS = (8, 4, 2, 1), ("piece.0", "piece.1", "piece.2")
MEMORY = 1 << 16


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


class Pieces(starts.Starts):
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
        os.environ[prefills.SWITCH] = "1"
        os.environ[background.AFTER] = os.environ[background.SWITCH] = "0"
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
                    self.library._launch(graph.value, worker.model_runner.model)
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
            return standin_compiled.Compiled(runner.model)(runner.model, torch.tensor(ids), kv, slots), kv

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
        self.assertEqual(stated, list(range(1, 13)))

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
        del os.environ[prefills.SWITCH]
        _, artifact = self.record()
        os.environ[prefills.SWITCH] = "1"
        self.eager(artifact, "the artifact has no pieces (it was captured without MEDUSA_VLLM_PIECES=1)")

    def test_it_is_off_unless_it_is_switched_on(self):
        _, artifact = self.record()
        for value in ("0", None):
            os.environ.pop(prefills.SWITCH, None)
            if value:
                os.environ[prefills.SWITCH] = value
            _, library = self.process("capture")
            self.assertEqual({key[0] for key in library.artifact if key != "kv"}, {"decode.1"})
            self.assertNotIn("pieces.0", library.bound)

            def serve(worker, launched):
                self.assertEqual(step(worker, self.tokens(4))[0], NONE)
                self.assertEqual((worker.log[-1], launched), (("eager", 4), []))

            self.restore(artifact, serve)
        self.assertNotIn("pieces.0", self.library.bound)

    def test_what_is_not_covered_is_named(self):
        for change, reason in (
            (lambda worker: setattr(worker.vllm_config, "lora_config", object()), "no support yet for adapters (LoRA)"),
            (lambda worker: setattr(worker, "use_v2_model_runner", False), "no support yet for the first model runner"),
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

        with mock.patch.dict(os.environ, {background.SWITCH: wish}):
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
