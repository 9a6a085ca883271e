# SPDX-License-Identifier: Apache-2.0
"""The plug-in's decisions for vLLM's first model runner, on the same stand-ins; what a GPU does, tests/gpu shows."""
import contextlib
import os
import sys
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin_first  # noqa: E402
import standin_first_compiled  # noqa: E402
import torch  # noqa: E402
from medusa import _api  # noqa: E402
from medusa_vllm import compiled, first, fit, hooks, switches, takeover, turns  # noqa: E402
from piece_starts import KINDS, NONE, PIECEWISE, SIZES, PieceStarts  # noqa: E402
from standin import CUDAGraphMode  # noqa: E402
from standin_compiled import step  # noqa: E402

GRAPHS = [("decode.1", 1), ("decode.1", 2), ("decode.1", 4)]


class FirstRunner(starts.Starts):
    standin = standin_first

    def restored(self, worker):
        entries = worker.model_runner.model.concrete_cudagraph_entries
        return {desc.num_tokens: entry.cudagraph.restored for desc, entry in entries.items()}

    # ---- capture ----

    def test_capture_names_all_full_graphs(self):
        worker, artifact = self.record()
        self.assertEqual(sorted(key for key in artifact if key != "kv"), GRAPHS)
        self.assertEqual(worker.model_runner.model.own_captures, 0)
        self.assertIn("graphs are estimated", worker.log)
        self.assertNotIn(("own loop", "PIECEWISE"), worker.log)
        self.assertTrue(worker.model_runner.get_model().layer.compiled)

    def test_capture_binds_what_the_engine_owns(self):
        _, library = self.process("capture")
        self.assertLess({"kv.0", "inputs.input_ids", "inputs.positions", "inputs.seq_lens", "inputs.query_start_loc",
                         "tables.0.block_table", "tables.0.slot_mapping", "attention.0.scheduler_metadata", "workspace.0",
                         "model.layer.up.weight"}, set(library.bound))
        self.assertEqual(library.bound["workspace.0"][2], _api.STATE)
        self.assertEqual(library.bound["model.layer.up.weight"][2], _api.CONSTANT)
        self.assertEqual(library.facts["engine.vllm.runner"], "first")
        self.assertEqual(library.marks, ["ready", "complete"])

    def test_each_graph_is_warmed_up_by_vllm_and_then_captured(self):
        worker, _ = self.record()
        made = [entry for entry in worker.log if entry[0] == "attention"]
        self.assertEqual(made[:6], [("attention", size, capturing) for size in (4, 2, 1) for capturing in (False, True)])
        self.assertEqual(sorted(made[6:]), [("attention", size, False) for size in (1, 2, 4)], "and tested on random inputs")
        self.assertEqual([graph.launches for graph in self.cuda.graphs], [1, 1, 1])

    def test_random_batches_are_valid(self):
        def look(worker):
            runner = worker.model_runner
            descs = {("decode.1", 4): standin_first.BatchDescriptor(4, 4, True), ("full", 11): standin_first.BatchDescriptor(11, 8)}
            for (kind, batch), desc in descs.items():
                first.Randomizer(runner, descs)(kind, batch, torch.Generator().manual_seed(5))
                table = runner.input_batch.block_table.block_tables[0]
                slots = table.slot_mapping.gpu[:batch]
                self.assertEqual(len(set(slots.tolist())), batch, "no two tokens have one place")
                self.assertGreaterEqual(int(slots.min()), standin_first.BLOCK, "block 0 is nobody's")
                self.assertTrue((table.slot_mapping.gpu[batch:] == -1).all())
                ends = runner.query_start_loc.gpu[: desc.num_reqs + 1]
                self.assertEqual(int(ends[-1]), batch)
                last = runner.positions[ends[1:].long() - 1] + 1
                self.assertTrue((last == runner.seq_lens[: desc.num_reqs]).all(), "a request ends with its last token")

        self.process("capture", after=look)

    def test_what_is_served_is_the_captured_graph(self):
        def serve(worker):
            before = [graph.launches for graph in self.cuda.graphs]
            worker.model_runner.serve(4)
            self.assertEqual(sum(graph.launches for graph in self.cuda.graphs), sum(before) + 1)
            mode = worker.model_runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.PIECEWISE]
            self.assertEqual(mode, set(), "pieces are not dispatched")

        self.process("capture", after=serve)

    # ---- restore ----

    def test_restore_runs_one_eager_forward_for_the_workspace(self):
        _, artifact = self.record()
        worker, library = self.process("restore", artifact)
        self.assertEqual(self.restored(worker), {4: True, 2: True, 1: True})
        self.assertEqual(worker.log, [("profile", True)])
        self.assertFalse(worker.model_runner.get_model().layer.compiled)
        self.assertEqual(worker.kv_bytes, 12 * (64 << 20))
        self.assertEqual(library.wanted, {"decode.1": [1, 2, 4]})
        self.assertIn("medusa: 3 of 3 full graphs restored", self.said)

    def test_a_dense_model_runs_none(self):
        def dense(worker):
            worker.model_runner.model_config.is_moe = False
            worker.model_runner.workspace.get = lambda size: torch.zeros(size)

        _, artifact = self.record(change=dense)
        worker, _ = self.process("restore", artifact, change=dense)
        self.assertEqual(self.restored(worker), {4: True, 2: True, 1: True})
        self.assertEqual(worker.log, [])

    def test_a_missing_graph_is_captured_from_the_compiled_model(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]
        worker, _ = self.process("restore", artifact)
        self.assertEqual(self.restored(worker), {4: True, 2: False, 1: True})
        self.assertEqual([entry for entry in worker.log if entry[0] == "profile"], [("profile", True), ("profile", False)])
        self.assertTrue(worker.model_runner.get_model().layer.compiled)
        self.assertIs(type(worker.model_runner.model), standin_first.CUDAGraphWrapper, "nothing stands before it")

    def test_another_configuration_is_refused_by_name(self):
        _, artifact = self.record()
        worker, _ = self.process("restore", artifact, hash="decade")
        self.assertEqual(self.restored(worker), {4: False, 2: False, 1: False})
        self.assertIn("graphs are estimated", worker.log)

    # ---- pieces ----

    def test_pieces_are_captured_when_the_engine_is_idle(self):
        """Of the compiled model, which is loaded elsewhere; vLLM's dummy run captures only sizes that are dispatched."""
        parallel = types.SimpleNamespace(GraphCaptureContext=mock.Mock(), graph_capture=lambda *_: contextlib.nullcontext())
        monitor = mock.Mock()
        counter = types.SimpleNamespace(num_cudagraph_captured=0)
        modules = {"vllm.compilation.counter": types.SimpleNamespace(compilation_counter=counter), "vllm.compilation.monitor": monitor,
                   "vllm.distributed.parallel_state": parallel, "vllm.platforms": mock.Mock()}
        _, artifact = self.record()

        def after(worker):
            taking = getattr(worker, hooks.ATTRIBUTE)
            keys, runner = worker.model_runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.PIECEWISE], worker.model_runner
            runner.device = torch.device("cpu")
            self.assertFalse(taking.pieces_between_steps)
            self.assertEqual([desc.num_tokens for desc in taking.pieces()], [4, 2, 1])
            captured = []

            def capture(desc, cudagraph_runtime_mode):
                self.assertIn(desc, keys)
                if desc.num_tokens == 1:
                    raise MemoryError("out of memory")
                captured.append((desc.num_tokens, cudagraph_runtime_mode))

            runner._warmup_and_capture = capture
            worker.log.clear()
            with mock.patch.dict(sys.modules, modules), mock.patch.object(compiled, "load", return_value=None):
                with mock.patch.dict(os.environ, MEDUSA_VLLM_TAKEOVER="load", MEDUSA_VLLM_TAKEOVER_AFTER="0"), mock.patch.object(turns, "LATE_S", 0.0):
                    taking.serve()
                self.assertTrue(taking.background.join(20))
            self.assertEqual(captured, [(4, CUDAGraphMode.PIECEWISE), (2, CUDAGraphMode.PIECEWISE)])
            self.assertEqual({desc.num_tokens for desc in keys}, {4, 2}, "a size whose capture failed is not dispatched")

        self.process("restore", artifact, after=after)
        self.assertTrue(any("stay as they are" in text for text in self.said), self.said)

    # ---- left to vLLM ----

    def left_alone(self, reason, **options):
        worker, library = self.process("capture", **options)
        self.assertEqual(worker.model_runner.model.own_captures, 3)
        self.assertEqual([entry for entry in worker.log if entry[0] == "own loop"], [("own loop", "PIECEWISE"), ("own loop", "FULL")])
        self.assertEqual(library.bound, {})
        self.assertEqual(library.marks, ["complete"])
        self.assertTrue(any(reason in text for text in self.said), self.said)
        keys = worker.model_runner.cudagraph_dispatcher.cudagraph_keys
        self.assertEqual(len(keys[CUDAGraphMode.PIECEWISE]), 3)

    def test_what_is_not_restored_yet(self):
        self.left_alone("LoRA with the first model runner", lora_config=types.SimpleNamespace(max_loras=2, specialize_active_lora=False))
        self.left_alone("a pooling model", change=lambda worker: setattr(worker.model_runner, "is_pooling_model", True))

        def recurrent(worker):
            made = worker.model_runner.initialize_kv_cache

            def initialize():
                made()
                worker.model_runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec = type("MambaSpec", (), {})()

            worker.model_runner.initialize_kv_cache = initialize

        self.left_alone("a KV cache of MambaSpec", change=recurrent)

    def test_a_model_runner_of_the_users_own(self):
        """Its class inherits the method that is wrapped, and another one is not as the plug-in calls it."""
        def own(worker):
            kind = type(worker.model_runner)
            worker.model_runner.__class__ = type("Own", (kind,), {"_get_slot_mappings": lambda self, *given: kind._get_slot_mappings(self, *given)})

        self.left_alone("Own._get_slot_mappings has the parameters ['self', 'given'], not ", change=own)

    def test_a_workspace_that_nobody_expects(self):
        self.left_alone("a workspace without experts", change=lambda worker: setattr(worker.model_runner.model_config, "is_moe", False))

    def test_only_pieces(self):
        def only_pieces(worker):
            made = worker.model_runner.initialize_kv_cache

            def initialize():
                made()
                worker.model_runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.FULL].clear()

            worker.model_runner.initialize_kv_cache = initialize

        worker, _ = self.process("capture", change=only_pieces)
        self.assertEqual([entry for entry in worker.log if entry[0] == "own loop"], [("own loop", "PIECEWISE")])
        self.assertTrue(any("has no full graphs" in text for text in self.said), self.said)

    def test_a_failure_in_the_middle(self):
        with mock.patch.object(takeover.Graphs, "get", side_effect=[mock.Mock(restored=False), RuntimeError("out of memory")]):
            worker, _ = self.process("capture")
        self.assertEqual(worker.model_runner.model.own_captures, 3)
        self.assertEqual([entry for entry in worker.log if entry[0] == "own loop"], [("own loop", "PIECEWISE"), ("own loop", "FULL")])

    def test_a_method_that_takes_something_else(self):
        self.assertEqual(fit.unfit_module(standin_first.GPUModelRunner, fit.FIRST), "")

        class Other(standin_first.GPUModelRunner):
            def _warmup_and_capture(self, desc, mode):
                pass

        self.assertIn("Other._warmup_and_capture has the parameters", fit.unfit_module(Other, fit.FIRST))

    def test_without_a_library_nothing_is_touched(self):
        worker, _ = self.process("none")
        self.assertEqual(worker.model_runner.model.own_captures, 3)
        self.assertEqual(self.said, [])



class FirstRunnersPieces(PieceStarts):
    standin = standin_first_compiled

    def test_a_capture_labels_and_launches_all_pieces(self):
        worker, artifact = self.record()
        self.assertEqual({key for key in artifact if key[0] in KINDS}, {(kind, size) for kind in KINDS for size in SIZES})
        self.assertEqual({key for key in artifact if key[0] == "decode.1"}, {("decode.1", size) for size in (1, 2, 4)})
        self.assertEqual([graph.launches for graph in self.cuda.graphs if hasattr(graph, "piece")], [1] * 12)
        self.assertIn("pieces.0", self.bound)
        keys = worker.model_runner.cudagraph_dispatcher.cudagraph_keys
        self.assertEqual(keys[PIECEWISE], set(), "vLLM's wrappers are not used in a capture")
        self.assertEqual(len(keys[CUDAGraphMode.FULL]), 3)

    def test_prefills_are_those_of_the_compiled_model(self):
        self.check_prefills()

    def test_a_size_without_its_pieces_runs_eagerly(self):
        _, artifact = self.record()
        del artifact["piece.1", 4]

        def serve(worker, launched):
            step(worker, self.tokens(4))
            self.assertEqual((step(worker, self.tokens(4))[0], launched), (NONE, []))
            self.assert_as_compiled(worker, self.tokens(2))

        self.restore(artifact, serve)
        self.assertEqual(len([line for line in self.said if "batches of 4 tokens run eagerly" in line]), 1, self.said)

    def test_restored_pieces_are_handed_to_the_compiled_model(self):
        _, artifact = self.record()

        def serve(worker, launched):
            self.assert_as_compiled(worker, self.tokens(4))
            self.assertTrue(getattr(worker, hooks.ATTRIBUTE).background.join(60))
            for size in SIZES:
                del launched[:]
                self.assert_as_compiled(worker, self.tokens(size))
                self.assertEqual(worker.log, [("compiled", PIECEWISE, size)])
                self.assertEqual(launched, [(kind, size) for kind in KINDS])

        with mock.patch.dict(os.environ, {switches.TAKEOVER: "load"}):
            self.restore(artifact, serve)
        self.assert_said("has taken over after")

    def test_a_verification_launches_each_piece_on_several_inputs(self):
        _, artifact = self.record()
        self.process("verify", artifact)
        self.assertEqual({graph.launches for graph in self.cuda.graphs if hasattr(graph, "piece")}, {3})


if __name__ == "__main__":
    unittest.main()
