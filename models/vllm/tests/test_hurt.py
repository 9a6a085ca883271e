# SPDX-License-Identifier: Apache-2.0
"""What must never hurt an engine, on the stand-ins: other settings, failures of the plug-in, memory that is short for a while."""
import os
import sys
import tempfile
import types
import unittest
import weakref
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin_first  # noqa: E402
import torch  # noqa: E402
from medusa.torch import facts as torch_facts  # noqa: E402
from medusa_vllm import facts, first, interim, prefills, random_batch, second, takeover  # noqa: E402
from standin import CUDAGraphMode  # noqa: E402


def hash_file_anew():
    """A process reads each file once; these tests have several processes in one."""
    torch_facts._file_hashes.clear()  # pylint: disable=protected-access


def limited(**other):
    def change(worker):
        vars(worker.vllm_config.scheduler_config).update(other)

    return change


class SecondRunner(starts.Starts):
    def graphs(self, worker):
        return {desc.num_tokens: step.restored for desc, step in worker.model_runner.cudagraph_manager.graphs.items()}

    def has_said(self, text):
        self.assertTrue(any(text in said for said in self.said), self.said)

    # ---- the log names why graphs are live ----

    def test_one_graph_that_is_missing_is_named(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]
        self.process("restore", artifact)
        self.assertIn("medusa: 2 of 3 full graphs restored", self.said)
        self.has_said("medusa: graph decode.1/2 is captured live: ")

    def test_a_reason_that_all_graphs_share_is_said_once(self):
        _, artifact = self.record()
        self.said.clear()
        self.process("restore", artifact, hash="decade")
        self.assertIn("medusa: graph decode.1/4 and 2 others are captured live: engine.vllm.configuration: artifact has c0ffee, this process decade",
                      self.said)
        self.assertEqual(sum("captured live" in said for said in self.said), 1)

    def test_an_engine_without_graphs_is_named(self):
        for mode in ("capture", "restore"):
            with self.subTest(mode):
                self.said.clear()
                _, library = self.process(mode, sizes=())
                self.has_said("medusa: no graph is restored or recorded: vLLM makes none in this configuration")
                self.assertEqual(library.marks, ["complete"])

    # ---- other settings ----

    def test_kv_memory_of_other_limits_is_measured(self):
        """More requests at once need more memory beside the KV cache, and vLLM's hash of its configuration is the same."""
        _, artifact = self.record()
        for other in ({"max_num_seqs": 512}, {"max_num_batched_tokens": 8192}):
            with self.subTest(other):
                worker, _ = self.process("restore", artifact, change=limited(**other))
                self.assertIn("measured", worker.log)
                self.assertEqual(set(self.graphs(worker).values()), {False})

    def test_kv_memory_is_vllms_number_beside_other_processes(self):
        """gpu_memory_utilization concerns the engine's own memory: Medusa counts that of all processes, and must not apply it."""
        asked = []

        class Side(starts.CSide):
            def kv_capacity(self, key, block_bytes, utilization, callback, most=None):
                asked.append(utilization)
                return super().kv_capacity(key, block_bytes, utilization, callback, most)

        def other(worker):
            worker.cache_config.gpu_memory_utilization = 0.3

        with mock.patch.object(type(self), "c_side", Side):
            _, artifact = self.record()
            worker, _ = self.process("restore", artifact, change=other)
        self.assertEqual(set(asked), {1.0})
        self.assertIn("measured", worker.log)

    # ---- less memory is free than in the capture ----

    def restore_when_short(self, by):
        """One restore in which so many bytes fewer are free; the rule of the C side, which tests/test_kvprofile.c tests, for its numbers."""
        class Side(starts.CSide):
            baseline, free = 1 << 30, (1 << 30) - by

            def kv_capacity(self, key, block_bytes, utilization, callback, most=None):
                short, left = self.baseline - self.free, self.baseline - self.artifact["kv"][1] * block_bytes
                if short <= left // 2:
                    note = f"KV profile: {self.baseline} bytes were free in the capture, {self.free} are free now: the stored answer holds"
                    return super().kv_capacity(key, block_bytes, utilization, callback, most)[0], note if short else ""
                callback.pointer(None)
                blocks = most.value // block_bytes
                return types.SimpleNamespace(bytes=blocks * block_bytes, blocks=blocks, from_profile=0), f"KV profile: {self.free} are free now"

        def measures_less(worker):
            worker.measures = 11 * (64 << 20)  # another number of blocks

        _, artifact = self.record()
        self.said.clear()
        with mock.patch.object(type(self), "c_side", Side):
            return self.process("restore", artifact, change=measures_less)[0]

    def test_a_few_bytes_less_change_nothing(self):
        """The engine's number of blocks is the artifact's, up to the last byte that may be short."""
        left = (1 << 30) - 12 * (64 << 20)
        for by in (1, 5 << 20, left // 2):
            with self.subTest(by):
                worker = self.restore_when_short(by)
                self.assertEqual((worker.kv_bytes, worker.log), (12 * (64 << 20), []), "neither measured nor profiled")
                self.assertEqual(set(self.graphs(worker).values()), {True})
                self.has_said(f"0.75 GiB for the KV cache, from the artifact (KV profile: {1 << 30} bytes were free in the capture, "
                              f"{(1 << 30) - by} are free now")

    def test_one_byte_more_is_measured(self):
        worker = self.restore_when_short(((1 << 30) - 12 * (64 << 20)) // 2 + 1)
        self.assertEqual((worker.kv_bytes, worker.log.count("measured")), (11 * (64 << 20), 1))
        self.assertFalse(any("from the artifact" in said for said in self.said), self.said)

    def test_nothing_is_said_of_memory_that_is_not_short(self):
        self.restore_when_short(0)
        self.assertIn("medusa: 0.75 GiB for the KV cache, from the artifact", self.said)

    def assert_refused(self, text, artifact, change):
        """A start with this change is refused by this name, as is its own artifact by a start without; with the same change all is restored."""
        self.said.clear()
        worker, _ = self.process("restore", artifact, change=change)
        self.assertEqual(set(self.graphs(worker).values()), {False})
        self.has_said(text)
        _, changed = self.record(change=change)
        self.assertEqual(set(self.graphs(self.process("restore", changed, change=change)[0]).values()), {True})
        self.assertEqual(set(self.graphs(self.process("restore", changed)[0]).values()), {False})

    def test_a_part_of_the_configuration_is_named(self):
        _, artifact = self.record()
        for part in ("model", "cache", "parallel", "scheduler", "attention", "kernel", "compilation", "offload"):  # and lora, which is None here
            def other(worker, part=part):
                getattr(worker.vllm_config, f"{part}_config").hash = "0ther"

            with self.subTest(part):
                self.assert_refused(f"engine.vllm.config.{part}: artifact has 0, this process 0ther", artifact, other)

    def test_a_part_of_the_configuration_that_vllm_has_renamed(self):
        worker, _ = self.process("capture", change=lambda worker: delattr(worker.vllm_config, "offload_config"))
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        self.has_said("all graphs are captured live: AttributeError(\"'Whole' object has no attribute 'offload_config'")

    def test_how_tokens_are_chosen_may_differ(self):
        """vLLM's hash counts defaults of sampling, which is behind the graphs. The engine's own configuration stays as it is."""
        _, artifact = self.record()

        given = {"override_generation_config": {"temperature": 0.5}, "generation_config": "vllm", "max_logprobs": 5, "renderer_num_workers": 4}

        def other(worker):
            vars(worker.vllm_config.model_config).update(given)

        worker, _ = self.process("restore", artifact, change=other)
        self.assertEqual(set(self.graphs(worker).values()), {True})
        self.assertEqual(set(given), set(facts.SAMPLING))
        self.assertEqual((worker.kv_bytes, "measured" in worker.log), (12 * (64 << 20), False))
        self.assertEqual(worker.vllm_config.model_config.override_generation_config, {"temperature": 0.5})

    # ---- variables ----

    def test_a_variable_that_counts_is_named_with_both_values(self):
        _, artifact = self.record()
        os.environ["VLLM_X"] = "2"
        self.said.clear()
        self.process("restore", artifact)
        self.has_said("this process ")
        self.assertRegex(" ".join(self.said), r"engine.vllm.environment: artifact has [0-9a-f]{16}, this process [0-9a-f]{16} VLLM_X=2")

    def test_a_variable_that_no_kernel_depends_on_may_differ(self):
        """vLLM counts the user's HOME and key, and the ports of other engines' connections, as parts of the computation."""
        _, artifact = self.record()
        for name in ("VLLM_API_KEY", "VLLM_CONFIG_ROOT", "VLLM_NIXL_SIDE_CHANNEL_PORT"):
            with self.subTest(name), mock.patch.dict(os.environ, {name: "another"}):
                self.assertEqual(set(self.graphs(self.process("restore", artifact)[0]).values()), {True})

    def test_a_secret_is_not_in_the_artifact(self):
        with mock.patch.dict(os.environ, VLLM_API_KEY="hunter2"):
            _, artifact = self.record()
        self.assertNotIn("hunter2", str(artifact))

    def test_variables_of_compilers_count(self):
        """Inductor and Triton make other kernels of the same model, and no setting of vLLM's shows it."""
        _, artifact = self.record()
        self.said.clear()
        with mock.patch.dict(os.environ, TORCHINDUCTOR_EMULATE_PRECISION_CASTS="1"):
            worker, _ = self.process("restore", artifact)
        self.assertEqual(set(self.graphs(worker).values()), {False})
        self.has_said("compilers: artifact has none, this process TORCHINDUCTOR_EMULATE_PRECISION_CASTS=1")

    def test_the_source_of_a_backend_that_is_not_vllms_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "own_attention.py")

            def own(text):
                def change(worker):
                    made = worker.model_runner.initialize_kv_cache

                    def initialize():
                        made()
                        worker.model_runner.attn_groups[0][0].backend = type("Own", (), {"__module__": "own_attention"})

                    worker.model_runner.initialize_kv_cache = initialize
                    hash_file_anew()
                    with open(path, "w", encoding="ascii") as file:
                        file.write(text)

                return change

            with mock.patch.dict(sys.modules, own_attention=types.SimpleNamespace(__file__=path)):
                _, artifact = self.record(change=own("one"))
                self.assertEqual(set(self.graphs(self.process("restore", artifact, change=own("one"))[0]).values()), {True})
                self.assert_refused("engine.vllm.attention: artifact has own_attention.Own:", artifact, own("other"))

    def test_files_in_vllms_own_folders_are_compared_where_they_count(self):
        with tempfile.TemporaryDirectory() as folder:
            for place in facts.TUNED:
                os.makedirs(os.path.join(folder, place))

            def here(worker, quantization="fp8"):
                hash_file_anew()
                sys.modules["vllm"].__file__ = os.path.join(folder, "__init__.py")
                worker.vllm_config.model_config.quantization = quantization

            def dense(worker):
                here(worker, None)

            _, artifact = self.record(change=here)
            _, plain = self.record(change=dense)
            for place in facts.TUNED:
                path = os.path.join(folder, place, "E=8,N=64,device_name=NVIDIA_H200.json")
                for text in ("64", "32"):
                    with self.subTest(place=place, text=text):
                        with open(path, "w", encoding="ascii") as file:
                            file.write(text)
                        self.said.clear()
                        self.assertEqual(set(self.graphs(self.process("restore", artifact, change=here)[0]).values()), {False})
                        self.has_said("engine.vllm.tuned: artifact has ")
                        _, artifact = self.record(change=here)
                        self.assertEqual(set(self.graphs(self.process("restore", artifact, change=here)[0]).values()), {True})
                        self.assertEqual(set(self.graphs(self.process("restore", plain, change=dense)[0]).values()), {True})

    def test_files_of_tuned_kernels_are_compared(self):
        _, artifact = self.record()
        with tempfile.TemporaryDirectory() as folder:
            def tuned(worker):
                sys.modules["vllm.envs"].VLLM_TUNED_CONFIG_FOLDER = folder

            with open(os.path.join(folder, "shrink.json"), "w", encoding="utf-8") as file:
                file.write("{}")
            worker, _ = self.process("restore", artifact, change=tuned)
            self.assertEqual(set(self.graphs(worker).values()), {False})
            self.has_said("engine.vllm.tuned: artifact has none, this process ")
            _, tuned_artifact = self.record(change=tuned)
            worker, _ = self.process("restore", tuned_artifact, change=tuned)
            self.assertEqual(set(self.graphs(worker).values()), {True})

    def test_another_version_restores_nothing(self):
        _, artifact = self.record()
        worker, library = self.process("restore", artifact, version="0.27.1")
        self.assertEqual((worker.model_runner.cudagraph_manager.own_captures, library.bound), (1, {}))
        self.assertEqual(self.said[-1], "medusa: all graphs are captured live: vLLM 0.27.1 was never tried with Medusa (tried: 0.26.*); "
                                        "set MEDUSA_VLLM_ANY_VERSION=1 to try it")

    # ---- failures of the plug-in ----

    def test_a_failure_outside_of_the_attempt(self):
        _, artifact = self.record()
        for owner, name in ((second, "_label"), (second.Second, "_remark"), (prefills, "restore")):
            with self.subTest(name), mock.patch.object(owner, name, side_effect=AttributeError("gone")):
                worker, _ = self.process("restore", artifact)
                manager = worker.model_runner.cudagraph_manager
                self.assertEqual((manager.own_captures, set(self.graphs(worker).values())), (1, {False}))
                self.assertTrue(worker.model_runner.model.layers[0].compiled)
                self.assertEqual(manager.dispatch(1, 4, None, 0).cg_mode, CUDAGraphMode.PIECEWISE, "vLLM's own candidates are back")

    def test_compiling_that_cannot_be_postponed(self):
        _, artifact = self.record()
        with mock.patch.object(interim, "_eager_method", side_effect=[None, AttributeError("gone")]):
            worker, _ = self.process("restore", artifact)
        self.assertEqual(set(self.graphs(worker).values()), {True})
        self.assertEqual(worker.log.count("measured"), 1, "vLLM profiles, and so compiles")
        self.assertTrue(worker.model_runner.model.layers[0].compiled)
        self.assertEqual(worker.kv_bytes, 12 * (64 << 20), "graphs need a KV cache of the capture's size")

    # ---- the end of an engine whose process goes on ----

    def test_memory_of_an_engine_that_has_ended_is_free(self):
        _, artifact = self.record()
        seen = {}

        def end(worker):
            runner = worker.model_runner
            seen.update(kv=weakref.ref(runner.kv_caches[0]), weight=weakref.ref(runner.model.layers[0].up.weight))
            del runner
            worker.shutdown()
            seen["held"] = [name for name in ("kv", "weight") if seen[name]() is not None]

        for mode, given in (("restore", artifact), ("capture", None)):
            with self.subTest(mode):
                self.process(mode, given, after=end)
                self.assertEqual(seen["held"], [])

    def test_an_engine_core_that_ends_leaves_it_to_its_process(self):
        with mock.patch("multiprocessing.parent_process", return_value=object()), mock.patch.object(takeover.Takeover, "end") as end:
            self.process("capture", after=lambda worker: worker.shutdown())
        end.assert_not_called()

    def test_an_end_that_fails_is_vllms_end_all_the_same(self):
        with mock.patch.object(takeover.Takeover, "end", side_effect=RuntimeError("gone")):
            worker, _ = self.process("capture", after=lambda worker: worker.shutdown())
        self.assertIsNone(worker.model_runner.model)
        self.has_said("medusa: the engine's memory may stay in use until this process ends")

    # ---- memory that is short for a while ----

    def short_of_memory(self, times):
        def change(worker):
            runner, profile = worker.model_runner, worker.model_runner.profile_run

            def profile_run():
                runner.tries += 1
                if runner.tries <= times:
                    raise MemoryError("another process holds it")
                profile()

            runner.tries, runner.profile_run = 0, profile_run
            self.runner = runner

        return change

    def test_memory_is_short_while_graphs_are_made(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]
        worker, _ = self.process("restore", artifact, change=self.short_of_memory(1))
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        self.assertEqual(worker.log.count("profile"), 1, "the model is compiled as in a live engine, before its graphs are captured")
        self.has_said("medusa: all graphs are captured live: MemoryError")

    def test_memory_that_stays_short_is_the_engines_own_failure(self):
        _, artifact = self.record()
        del artifact["decode.1", 2]
        with self.assertRaisesRegex(MemoryError, "another process holds it"):
            self.process("restore", artifact, change=self.short_of_memory(9))

    # ---- a KV cache of fewer blocks than requests ----

    def test_requests_without_a_block_write_nothing(self):
        numbers, each = torch.Generator().manual_seed(1), random_batch.counts(8, 8, torch.device("cpu"))
        long = random_batch.lengths(each, 5, 4, 16, numbers)
        table, slots = torch.ones(8, 4, dtype=torch.int32), torch.zeros(16, dtype=torch.int64)
        random_batch.places(table, slots, random_batch.positions(long, each), each, 4, 5, numbers)
        self.assertEqual((set(long.tolist()), set(table.flatten().tolist()), set(slots.tolist())), ({1}, {0}, {-1}))


class FirstRunner(starts.Starts):
    standin = standin_first

    def test_a_failure_outside_of_the_attempt(self):
        _, artifact = self.record()
        for owner, name in ((first.First, "_label"), (prefills, "restore")):
            with self.subTest(name), mock.patch.object(owner, name, side_effect=AttributeError("gone")):
                worker, _ = self.process("restore", artifact)
                runner = worker.model_runner
                self.assertEqual([entry for entry in worker.log if entry[0] == "own loop"], [("own loop", "PIECEWISE"), ("own loop", "FULL")])
                self.assertEqual(runner.model.own_captures, 3)
                self.assertEqual(len(runner.cudagraph_dispatcher.cudagraph_keys[CUDAGraphMode.PIECEWISE]), 3)

    def test_what_vllms_own_capture_raises_is_raised_once(self):
        def broken(worker):
            runner = type(worker.model_runner)
            calls = runner.calls = []
            runner._warmup_and_capture = mock.Mock(side_effect=lambda *_, **__: calls.append(1) or (_ for _ in ()).throw(MemoryError("its own")))
            self.runner = runner

        with mock.patch.object(takeover.Takeover, "attempt", return_value=False), self.assertRaisesRegex(MemoryError, "its own"):
            self.process("restore", {}, change=broken)
        self.assertEqual(len(self.runner.calls), 1)


if __name__ == "__main__":
    unittest.main()
