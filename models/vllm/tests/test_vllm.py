# SPDX-License-Identifier: Apache-2.0
"""The plug-in's decisions on a stand-in for vLLM, a stand-in for the device and one for the C side; what a GPU does, tests/gpu shows."""
import dataclasses
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin  # noqa: E402
from medusa import _api  # noqa: E402
from medusa_vllm import fit, second, takeover  # noqa: E402

ALONE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size",
         "world_size", "nnodes")
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
        self.assertEqual(library.facts["engine.vllm.configuration"], "c0ffee")

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

    def test_a_scale_that_a_checkpoint_gives_to_kernels_as_a_number_counts(self):
        """Other weights of the same shapes need no new artifact, but a number that vLLM has read from them is an argument of kernels."""
        def scaled(by):
            return lambda worker: setattr(worker.model_runner.model.layers[0], "_k_scale_float", by)

        _, artifact = self.record(change=scaled(0.5))
        for by, restored in ((0.5, True), (0.25, False)):
            worker, _ = self.process("restore", artifact, change=scaled(by))
            self.assertEqual({step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()}, {restored})
        self.assertTrue(any("configuration.standin.Layer: artifact has 2, " in said for said in self.said), self.said)

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
            worker, library = self.process("capture", version="0.27.1")
        self.assertEqual((worker.model_runner.cudagraph_manager.own_captures, sorted(key for key in library.artifact if key != "kv")), (0, GRAPHS))

    def test_a_worker_of_another_kind(self):
        original = standin.Worker.compile_or_warm_up_model

        def other(worker, kv_cache=None):
            return original(worker)

        with tempfile.NamedTemporaryFile(mode="r") as file, mock.patch.object(standin.Worker, "compile_or_warm_up_model", other):
            os.environ["MEDUSA_TELL"] = file.name
            self.left_alone("has the parameters ['worker', 'kv_cache'], not ['self']")
            self.assertEqual(file.readline().split(" ", 3)[3], "leaves vLLM as it is: Worker.compile_or_warm_up_model has the "
                             "parameters ['worker', 'kv_cache'], not ['self']\n")

    def test_what_is_not_restored_yet(self):
        self.left_alone("speculative decoding", speculative_config=object())
        self.left_alone("tensor_parallel_size is 2", change=self.with_settings("parallel_config", tensor_parallel_size=2))

    def with_settings(self, of, **settings):
        def change(worker):
            for name, value in settings.items():
                setattr(getattr(worker.vllm_config, of), name, value)

        return change

    REFUSED = (  # setting of vLLM's, its object, a value, what the log says
        *((name, "parallel_config", 2, f"{name} is 2, and only engines on one GPU are restored") for name in ALONE),
        ("worker_cls", "parallel_config", "mine.Worker", "worker_cls is mine.Worker, and only vLLM's own worker is known"),
        ("worker_cls", "parallel_config", b"pickled", "worker_cls is bytes, and"),
        ("use_ubatching", "parallel_config", True, "no support yet for microbatches"),
        ("enable_eplb", "parallel_config", True, "no support yet for balancing of experts"),
        ("enable_elastic_ep", "parallel_config", True, "no support yet for a number of GPUs that changes"),
        ("enable_sleep_mode", "model_config", True, "no support yet for sleep mode, but by"),
        ("is_encoder_decoder", "model_config", True, "no support yet for an encoder and a decoder"),
        ("is_diffusion", "model_config", True, "no support yet for diffusion"),
        ("enable_prompt_embeds", "model_config", True, "no support yet for prompts as embeddings"),
        ("uses_mrope", "model_config", True, "no support yet for positions in several dimensions"),
        ("uses_xdrope_dim", "model_config", 3, "no support yet for positions in several dimensions"),
        ("calculate_kv_scales", "cache_config", True, "no support yet for scales of the KV cache"),
        ("kv_sharing_fast_prefill", "cache_config", True, "no support yet for prefills that skip layers"),
    )

    def test_each_setting_that_is_not_restored_is_refused_by_name(self):
        for name, of, value, text in self.REFUSED:
            with self.subTest(name):
                self.said.clear()
                self.left_alone(text, change=self.with_settings(of, **{name: value}))
        self.left_alone("no support yet for an encoder's cache", ec_transfer_config=object())
        for name, text in (("supports_mm_inputs", "multimodal input"), ("is_pooling_model", "a pooling model")):
            self.left_alone(f"no support yet for {text}", change=lambda worker, name=name: setattr(worker.model_runner, name, True))
        lora = standin.Config(max_loras=2, specialize_active_lora=False)
        self.left_alone("no support yet for LoRA for a mixture of experts", lora_config=lora, change=self.with_settings("model_config", is_moe=True))

    def test_a_setting_that_vllm_has_renamed_is_not_one_that_is_off(self):
        """Each of them, also those that are never on here."""
        for of, names in (("parallel_config", (*ALONE, "worker_cls", "use_ubatching", "enable_eplb", "enable_elastic_ep")),
                          ("model_config", ("enable_sleep_mode", "is_encoder_decoder", "is_diffusion", "enable_prompt_embeds", "uses_mrope",
                                            "uses_xdrope_dim")),
                          ("cache_config", ("calculate_kv_scales", "kv_sharing_fast_prefill"))):
            for name in names:
                with self.subTest(name):
                    self.said.clear()
                    self.left_alone(f" has no {name}, as vLLM 0.26.* has",
                                    change=lambda worker, of=of, name=name: delattr(getattr(worker.vllm_config, of), name))
        self.left_alone("Whole has no ec_transfer_config", change=lambda worker: delattr(worker.vllm_config, "ec_transfer_config"))
        for name in ("supports_mm_inputs", "is_pooling_model"):
            self.left_alone(f"Runner has no {name}", change=lambda worker, name=name: delattr(worker.model_runner, name))

    def test_weights_that_stay_on_the_host(self):
        def offloaded(worker):
            sys.modules["vllm.model_executor.offloader.base"].get_offloader = type("PrefetchOffloader", (), {})

        self.left_alone("no support yet for weights on the host", change=offloaded)

    def test_adapters_on_two_streams(self):
        self.left_alone("no support yet for LoRA on two streams", lora_config=standin.Config(max_loras=2, specialize_active_lora=False),
                        change=lambda worker: setattr(sys.modules["vllm.envs"], "VLLM_LORA_ENABLE_DUAL_STREAM", True))

    def test_what_a_runner_and_its_manager_must_have(self):
        def runner_of(names, but="", **others):
            group = types.SimpleNamespace(kv_cache_spec=standin.FullAttentionSpec())
            found = {**dict.fromkeys(names), "kv_cache_config": types.SimpleNamespace(kv_cache_groups=[group]), **others}
            return types.SimpleNamespace(**{name: value for name, value in found.items() if name != but})

        plain, breakable = types.SimpleNamespace(use_breakable_cg=False), types.SimpleNamespace(use_breakable_cg=True)
        self.assertEqual(fit.unfit_second(runner_of(fit.SECOND_HAS), plain), "")
        self.assertIn("breakable graphs", fit.unfit_second(runner_of(fit.SECOND_HAS), breakable))
        for name in fit.SECOND_HAS:
            self.assertEqual(fit.unfit_second(runner_of(fit.SECOND_HAS, name), plain), f"the model runner has no {name}")
        wrapped = type("CUDAGraphWrapper", (), {})()
        self.assertEqual(fit.unfit_first(runner_of(fit.FIRST_HAS, model=wrapped)), "")
        self.assertEqual(fit.unfit_first(runner_of(fit.FIRST_HAS, model=object())), "the model is in a object, not in a CUDAGraphWrapper")
        for name in fit.FIRST_HAS:
            self.assertEqual(fit.unfit_first(runner_of(fit.FIRST_HAS, name, model=wrapped)), f"the model runner has no {name}")

    def test_vllms_own_worker_by_either_name(self):
        for name in ("auto", "vllm.v1.worker.gpu_worker.Worker"):
            worker, _ = self.record(change=self.with_settings("parallel_config", worker_cls=name))
            self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 0)

    def test_another_class_of_worker(self):
        def other(worker):
            worker.__class__ = type("Mine", (type(worker),), {})

        self.left_alone("and only vLLM's own worker is known", change=other)

    def test_a_kv_cache_of_another_kind(self):
        def recurrent(worker):
            made = worker.model_runner.initialize_kv_cache

            def initialize():
                made()
                worker.model_runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec = type("MambaSpec", (), {})()

            worker.model_runner.initialize_kv_cache = initialize

        self.left_alone("a KV cache of MambaSpec", change=recurrent)

    def test_settings_that_vllms_hash_leaves_out_are_compared(self):
        worker, artifact = self.record()
        connector = types.SimpleNamespace(kv_connector="Nixl", kv_role="kv_both")
        for name, change in (
            ("custom_all_reduce=False", {"change": self.with_settings("parallel_config", disable_custom_all_reduce=True)}),
            ("worker_extension_cls=unittest.mock.Mock:", {"change": self.with_settings("parallel_config", worker_extension_cls="unittest.mock.Mock")}),
            ("flashinfer_autotune=False", {"change": self.with_settings("kernel_config", enable_flashinfer_autotune=False)}),
            ("flashinfer_autotune_skip=a,b", {"change": lambda _: setattr(sys.modules["vllm.envs"], "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS", ["b", "a"])}),
            ("kv_connector=Nixl kv_both", {"kv_transfer_config": connector}),
        ):
            with self.subTest(name):
                self.said.clear()
                worker, _ = self.process("restore", artifact, **change)
                self.assertEqual({step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()}, {False})
                self.assertTrue(any("engine.vllm.settings: artifact has " in said and name in said for said in self.said), self.said)
                self.assertIn("measured", worker.log, "KV capacity is measured, too")
                _, other = self.record(**change)
                worker, _ = self.process("restore", other, **change)
                self.assertEqual({step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()}, {True})

    def test_two_graphs_of_one_label(self):
        def more(worker):
            made = worker.model_runner.initialize_kv_cache

            def initialize():
                made()
                full = worker.model_runner.cudagraph_manager._capture_descs[standin.CUDAGraphMode.FULL]
                full.append(dataclasses.replace(full[0], num_reqs=1))

            worker.model_runner.initialize_kv_cache = initialize

        self.left_alone("4 graphs of vLLM's have 3 labels", change=more)

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
