# SPDX-License-Identifier: Apache-2.0
"""The plug-in's decisions on a stand-in for vLLM, a stand-in for the device and one for the C side; what a GPU does, tests/gpu shows."""
import os
import sys
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin  # noqa: E402
from medusa import _api  # noqa: E402
from medusa_vllm import fit, second, takeover  # noqa: E402

GRAPHS = [("decode.1", 1), ("decode.1", 2), ("decode.1", 4)]


class Plugin(starts.Starts):
    # ---- capture ----

    def test_capture_names_all_full_graphs(self):
        worker, artifact = self.record()
        self.assertEqual(sorted(key for key in artifact if key != "kv"), GRAPHS)
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 0)
        self.assertIn("measured", worker.log)
        self.assertTrue(worker.model_runner.model.layers[0].compiled)

    def test_capture_binds_what_the_engine_owns(self):
        _, library = self.process("capture")
        self.assertLess({"kv.0", "kv.1", "inputs.input_ids", "inputs.seq_lens", "tables.slot_mappings", "tables.block_tables.0",
                         "attention.0.scheduler_metadata", "hidden_states", "model.layers.0.up.weight"}, set(library.bound))
        self.assertEqual(library.bound["kv.0"][2], _api.STATE)
        self.assertEqual(library.bound["model.layers.0.up.weight"][2], _api.CONSTANT)
        self.assertEqual(library.marks, ["ready", "complete"])
        self.assertEqual(library.facts["engine.vllm.config"], "c0ffee")

    def test_attention_is_made_anew_between_warm_up_and_capture(self):
        worker, _ = self.record()
        self.assertEqual([entry for entry in worker.log if entry[0] == "inputs"],
                         [("inputs", size, warmup) for size in (4, 2, 1) for warmup in (True, False)])

    def test_each_graph_is_tested_on_inputs_that_are_valid_for_it(self):
        worker, _ = self.record()
        self.assertEqual([graph.launches for graph in self.cuda.graphs], [1, 1, 1])
        self.assertEqual([entry[1] for entry in worker.log if entry[0] == "attention" and not entry[2]], [4, 2, 1])

    def test_pieces_are_not_dispatched(self):
        worker, _ = self.record()
        manager = worker.model_runner.cudagraph_manager
        self.assertEqual(manager.dispatch(1, 4, 1, 0).cg_mode, standin.CUDAGraphMode.FULL)
        self.assertEqual(manager.dispatch(1, 4, None, 0).cg_mode, standin.CUDAGraphMode.NONE)

    # ---- restore ----

    def test_restore_profiles_and_compiles_nothing(self):
        _, artifact = self.record()
        worker, library = self.process("restore", artifact)
        steps = worker.model_runner.cudagraph_manager.graphs
        self.assertEqual([step.restored for step in steps.values()], [True] * 3)
        self.assertEqual(worker.log, [], "neither a profile nor a forward")
        self.assertEqual(worker.kv_bytes, 12 * (64 << 20))
        self.assertFalse(worker.model_runner.model.layers[0].compiled)
        self.assertEqual(library.wanted, {"decode.1": [1, 2, 4]})
        self.assertIn("medusa: 3 of 3 full graphs restored", self.said)
        self.assertTrue(worker.model_runner.cudagraph_manager._graphs_captured)

    def test_a_missing_graph_is_captured_from_the_compiled_model(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]
        worker, _ = self.process("restore", artifact)
        restored = {desc.num_tokens: step.restored for desc, step in worker.model_runner.cudagraph_manager.graphs.items()}
        self.assertEqual(restored, {4: True, 2: False, 1: True})
        self.assertTrue(worker.model_runner.model.layers[0].compiled)
        self.assertEqual(worker.log.count("profile"), 1)

    def test_only_what_waits_is_told_to_compile(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]
        worker, _ = self.process("restore", artifact)
        self.assertEqual([layer.do_not_compile for layer in worker.model_runner.model.layers], [False, True])

    def test_compiled_prefill_by_wish(self):
        _, artifact = self.record()
        with mock.patch.dict(os.environ, MEDUSA_VLLM_PREFILL="compiled"):
            worker, _ = self.process("restore", artifact)
        self.assertEqual(worker.log, ["profile"])
        self.assertTrue(worker.model_runner.model.layers[0].compiled)
        self.assertTrue(all(step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()))

    def test_another_configuration_is_refused_by_name(self):
        _, artifact = self.record()
        worker, _ = self.process("restore", artifact, hash="decade")
        self.assertFalse(any(step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()))
        self.assertIn("measured", worker.log, "KV capacity is measured, too")
        self.assertTrue(worker.model_runner.model.layers[0].compiled)

    def test_a_setting_of_a_layer_counts_and_progress_does_not(self):
        _, artifact = self.record()

        def compiled_elsewhere(worker):
            worker.model_runner.model.layers[0].compiled = True

        def other_eps(worker):
            worker.model_runner.model.layers[0].eps = 1e-6

        worker, _ = self.process("restore", artifact, change=compiled_elsewhere)
        self.assertTrue(all(step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()))
        worker, _ = self.process("restore", artifact, change=other_eps)
        self.assertFalse(any(step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()))

    # ---- left to vLLM ----

    def left_alone(self, reason, mode="capture", **options):
        worker, library = self.process(mode, **options)
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        self.assertEqual(library.bound, {})
        self.assertEqual(library.marks, ["complete"], "a capture of a server would never end")
        self.assertTrue(any(reason in text for text in self.said), self.said)

    def test_without_a_library_nothing_is_touched(self):
        worker, library = self.process("none")
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        self.assertEqual(self.said, [])
        self.assertEqual(worker.kv_bytes, 1 << 30)

    def test_another_version(self):
        self.left_alone("vLLM 0.27.1 was never tried", version="0.27.1")
        with mock.patch.dict(os.environ, MEDUSA_VLLM_ANY_VERSION="1"):
            self.process("capture", version="0.27.1")

    def test_what_is_not_restored_yet(self):
        self.left_alone("speculative decoding", speculative_config=object())
        several = types.SimpleNamespace(tensor_parallel_size=2)
        self.left_alone("tensor_parallel_size is 2", parallel_config=several)

    def test_no_full_graphs(self):
        def only_pieces(worker):
            made = worker.model_runner.initialize_kv_cache

            def initialize():
                made()
                worker.model_runner.cudagraph_manager._capture_descs.pop(standin.CUDAGraphMode.FULL)

            worker.model_runner.initialize_kv_cache = initialize

        self.left_alone("has no full graphs", change=only_pieces)

    def test_a_method_that_takes_something_else(self):
        class Other:
            def capture(self, forward):
                pass

        self.assertIn("Other.capture has the parameters ['self', 'forward']", fit.unfit_module(Other, fit.MANAGER))
        self.assertIn("has no run_fullgraph", fit.unfit_module(Other, {"run_fullgraph": ["self"]}))

    def test_a_failure_of_the_plug_in_is_not_the_engines(self):
        with mock.patch.object(second.Second, "bindings", side_effect=KeyError("gone")):
            worker, _ = self.process("capture")
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        with mock.patch.object(fit, "unfit", side_effect=AttributeError("gone")):
            worker, _ = self.process("capture")
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        self.assertEqual(worker.kv_bytes, 1 << 30)

    def test_a_failure_in_the_middle(self):
        with mock.patch.object(takeover.Graphs, "get", side_effect=[mock.Mock(restored=False), RuntimeError("out of memory")]):
            worker, _ = self.process("capture")
        manager = worker.model_runner.cudagraph_manager
        self.assertEqual((manager.own_captures, len(manager.graphs)), (1, 3))
        self.assertTrue(manager._candidates[4, 0][1].cg_mode, standin.CUDAGraphMode.PIECEWISE)
        with mock.patch.object(takeover.Graphs, "complete", side_effect=RuntimeError("gone")):
            self.process("capture")

    def test_a_failure_of_kv_capacity(self):
        with mock.patch("medusa_vllm.capacity.kv_capacity", side_effect=RuntimeError("gone")):
            worker, _ = self.process("capture")
        self.assertEqual(worker.kv_bytes, 1 << 30)

    def test_a_profile_that_fails_fails_the_engine_once(self):
        def broken(worker):
            calls = []

            def profile_run():
                calls.append(1)
                raise MemoryError("its own")

            worker.model_runner.profile_run, worker.calls = profile_run, calls
            self.worker = worker

        with self.assertRaisesRegex(MemoryError, "its own"):
            self.process("capture", change=broken)
        self.assertEqual(len(self.worker.calls), 1)

    def test_the_kv_number_that_is_used_is_the_one_that_is_stored(self):
        """vLLM measures less than Medusa: both starts have vLLM's number, in whole grains."""

        def measures_less(worker):
            worker.measures = (5 << 26) + 12345

        captured, library = self.process("capture", change=measures_less)
        restored, _ = self.process("restore", library.artifact)
        self.assertEqual((captured.kv_bytes, restored.kv_bytes), (5 << 26, 5 << 26))

    def by_hand(self, size):
        def change(worker):
            worker.cache_config.kv_cache_memory_bytes = worker.measures = size

        return change

    def test_kv_memory_by_hand_is_used_as_it_is_and_nothing_is_compiled_for_it(self):
        size = (5 << 26) + 3
        captured, library = self.process("capture", change=self.by_hand(size))
        self.assertEqual((captured.kv_bytes, captured.log.count("profile")), (size, 1))
        restored, _ = self.process("restore", library.artifact, change=self.by_hand(size))
        self.assertEqual((restored.kv_bytes, restored.log.count("profile")), (size, 0))
        other, _ = self.process("restore", library.artifact, change=self.by_hand(2 * size))
        self.assertEqual((other.kv_bytes, other.log.count("profile")), (2 * size, 1), "the artifact is of another size")

    def test_kv_memory_that_is_next_to_nothing_is_vllms(self):
        worker, library = self.process("capture", change=self.by_hand(77))
        self.assertEqual((worker.kv_bytes, "kv" in library.artifact), (77, False))


if __name__ == "__main__":
    unittest.main()
