# SPDX-License-Identifier: Apache-2.0
"""Each method, attribute and setting that fit.py and facts.py look at, against lists of this file's own: none of them is left out there."""
import contextlib
import os
import sys
import tempfile
import types
import unittest

import starts  # skips without PyTorch
import standin  # noqa: E402
from medusa.torch import facts as torch_facts  # noqa: E402
from medusa_vllm import facts, fit  # noqa: E402

WORKER = {"determine_available_memory": ["self"], "compile_or_warm_up_model": ["self"]}
MANAGER = {"capture": ["self", "create_forward_fn", "progress_bar_desc"], "run_fullgraph": ["self", "desc"],
           "dispatch": ["self", "num_reqs", "num_tokens", "uniform_token_count", "num_active_loras"]}
FIRST = {
    "_capture_cudagraphs": ["self", "batch_descriptors", "cudagraph_runtime_mode", "profiler"],
    "_warmup_and_capture": ["self", "desc", "cudagraph_runtime_mode", "profile_seq_lens", "allow_microbatching", "num_warmups", "profiler"],
    "_get_slot_mappings": ["self", "num_tokens_padded", "num_reqs_padded", "num_tokens_unpadded", "ubatch_slices"],
    "_build_attention_metadata": ["self", "num_tokens", "num_reqs", "max_query_len", "num_tokens_padded", "num_reqs_padded", "ubatch_slices",
                                  "logits_indices", "use_spec_decode", "for_cudagraph_capture", "num_scheduled_tokens", "cascade_attn_prefix_lens",
                                  "slot_mappings"],
    "get_model": ["self"],
}
SECOND_HAS = "model kv_caches input_buffers block_tables attn_groups model_state kv_cache_config device".split()
FIRST_HAS = ("model kv_caches input_ids positions query_start_loc seq_lens optimistic_seq_lens_cpu input_batch attn_groups kv_cache_config "
             "cudagraph_dispatcher uniform_decode_query_len max_model_len model_config").split()
ATTENTION = ("FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec", "MLAAttentionSpec")


def owner_of(methods):
    """A class with these methods."""
    made = {}
    for name, parameters in methods.items():
        exec(f"def {name}({', '.join(parameters)}): pass", made)  # pylint: disable=exec-used
    return type("Owner", (), {name: made[name] for name in methods})


def runner_of(names, but="", kinds=("FullAttentionSpec",), **others):
    groups = [types.SimpleNamespace(kv_cache_spec=type(kind, (), {})()) for kind in kinds]
    found = {**dict.fromkeys(names), "kv_cache_config": types.SimpleNamespace(kv_cache_groups=groups), **others}
    return types.SimpleNamespace(**{name: value for name, value in found.items() if name != but})


class Fit(unittest.TestCase):
    def test_each_method_and_each_of_its_parameters(self):
        for known, methods in ((fit.WORKER, WORKER), (fit.MANAGER, MANAGER), (fit.FIRST, FIRST)):
            self.assertEqual(fit.unfit_module(owner_of(methods), known), "")
            for name, parameters in methods.items():
                with self.subTest(name):
                    less = {other: given for other, given in methods.items() if other != name}
                    self.assertEqual(fit.unfit_module(owner_of(less), known), f"Owner has no {name}")
                    for other in ([*parameters, "more"], parameters[:-1], ["of_class", *parameters[1:]]):
                        self.assertEqual(fit.unfit_module(owner_of({**methods, name: other}), known),
                                         f"Owner.{name} has the parameters {other}, not {parameters}")

    def test_each_attribute_of_a_model_runner(self):
        manager, model = types.SimpleNamespace(use_breakable_cg=False), type("CUDAGraphWrapper", (), {})()
        for unfit, names in ((lambda runner: fit.unfit_second(runner, manager), SECOND_HAS), (fit.unfit_first, FIRST_HAS)):
            self.assertEqual(unfit(runner_of(names, model=model)), "")
            for name in names:
                self.assertEqual(unfit(runner_of(names, name, model=model)), f"the model runner has no {name}")

    def test_each_group_of_a_kv_cache(self):
        manager, model = types.SimpleNamespace(use_breakable_cg=False), type("CUDAGraphWrapper", (), {})()
        for unfit, names in ((lambda runner: fit.unfit_second(runner, manager), SECOND_HAS), (fit.unfit_first, FIRST_HAS)):
            self.assertEqual(unfit(runner_of(names, kinds=ATTENTION, model=model)), "")
            for kinds in (("MambaSpec",), ("FullAttentionSpec", "MambaSpec"), ("MambaSpec", "FullAttentionSpec")):
                self.assertEqual(unfit(runner_of(names, kinds=kinds, model=model)), "no support yet for a KV cache of MambaSpec")

    def test_versions(self):
        for version, fits in (("0.26.0", True), ("0.26.1rc2", True), ("0.26", False), ("0.260.0", False), ("0.27.0", False), ("10.26.0", False)):
            with self.subTest(version), standin.installed(version):
                self.assertEqual(fit.unfit_version() == "", fits)


class Parts(unittest.TestCase):
    def test_each_part_of_vllms_configuration(self):
        names = "model cache parallel scheduler attention lora kernel compilation offload".split()
        config = types.SimpleNamespace(**{f"{name}_config": standin.Config(hash=f"hash of {name}") for name in names})
        self.assertEqual(facts.configurations(config), {f"vllm.config.{name}": f"hash of {name}"[:16] for name in names})
        config.lora_config = None
        self.assertNotIn("vllm.config.lora", facts.configurations(config))

    def test_progress_is_no_setting_and_everything_else_is(self):
        progress = ("compiled do_not_compile first_compile evaluate_guards was_aot_compile_fn_loaded_from_disk aot_compiled_fn _aot_compilation_path "
                    "_aot_cache_dir _compile_prefix").split()
        self.assertEqual([name for name in [*progress, "eps", "_k_scale_float", "compile"] if facts.is_setting(name, 1)], ["eps", "_k_scale_float", "compile"])
        inside, outside = (type("Config", (), {"__module__": module})() for module in ("vllm.config.model", "vllm.model_executor.layers"))
        self.assertEqual((facts.is_setting("config", inside), facts.is_setting("config", outside)), (False, True))


def put(owner, path, value):
    *owners, last = path.split(".")
    for name in owners:
        owner = getattr(owner, name)
    setattr(owner, last, value)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    torch_facts._file_hashes.clear()  # pylint: disable=protected-access  # a process reads each file once


class Facts(unittest.TestCase):
    """Each input of a fact changes it, and nothing else changes with it."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(standin.installed())
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.worker = standin.Worker(lora_config=standin.Config(max_loras=2, specialize_active_lora=False),
                                     kv_transfer_config=types.SimpleNamespace(kv_connector="Nixl", kv_role="kv_both"))
        self.worker.model_runner.initialize_kv_cache()
        self.envs = sys.modules["vllm.envs"]

    def found(self):
        return {**facts.of(self.worker, [16], "FULL"), "(memory)": facts.memory(self.worker)}

    def assert_changes(self, path, value, *names, owner=None):
        """names: the facts that are others afterwards, and no more of them."""
        before = self.found()
        put(owner or self.worker, path, value)
        after = self.found()
        with self.subTest(path):
            self.assertEqual(sorted(name for name in before if before[name] != after[name]), sorted(names))

    def test_which_there_are(self):
        parts = "model cache parallel scheduler attention lora kernel compilation offload".split()
        self.assertEqual(list(self.found()), ["vllm", *(f"vllm.config.{part}" for part in parts), "vllm.configuration", "vllm.environment", "vllm.settings",
                                              "vllm.limits", "vllm.tuned", "vllm.kv", "vllm.graphs", "vllm.attention", "vllm.runner", "(memory)"])
        self.assertEqual([self.found()[f"vllm.{name}"] for name in ("settings", "limits", "tuned", "kv", "graphs", "attention", "runner")], [
            "custom_all_reduce=True; worker_extension_cls=none; flashinfer_autotune=True; flashinfer_autotune_skip=none; adapters=2; kv_connector=Nixl kv_both",
            "max_num_seqs=8 max_num_batched_tokens=16 max_model_len=16", "none", "dtype=auto blocks=33 block_sizes=[16]", "FULL", "FlashAttentionBackend", "second"])

    def test_settings(self):
        for path, value in (("parallel_config.disable_custom_all_reduce", True), ("parallel_config.worker_extension_cls", "no.such.Class"),
                            ("kernel_config.enable_flashinfer_autotune", False), ("lora_config.max_loras", 3), ("lora_config.specialize_active_lora", True),
                            ("kv_transfer_config.kv_connector", "other"), ("kv_transfer_config.kv_role", "kv_consumer"), ("kv_transfer_config", None)):
            self.assert_changes(f"vllm_config.{path}", value, "vllm.settings", "(memory)")
        self.assert_changes("VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS", {"b", "a"}, "vllm.settings", "(memory)", owner=self.envs)
        self.assertIn("flashinfer_autotune_skip=a,b;", self.found()["vllm.settings"])
        put(self.worker, "vllm_config.lora_config", None)
        self.assertIn("adapters=none", self.found()["vllm.settings"])

    def test_limits(self):
        for path in ("scheduler_config.max_num_seqs", "scheduler_config.max_num_batched_tokens", "model_config.max_model_len"):
            self.assert_changes(f"vllm_config.{path}", 99, "vllm.limits", "(memory)")

    def test_the_kv_cache_and_what_is_left_for_it(self):
        self.assert_changes("vllm_config.cache_config.cache_dtype", "fp8", "vllm.kv")
        self.assert_changes("model_runner.kv_cache_config.num_blocks", 34, "vllm.kv")
        self.assertNotEqual(facts.of(self.worker, [16], "FULL")["vllm.kv"], facts.of(self.worker, [16, 32], "FULL")["vllm.kv"])
        self.assert_changes("cache_config.gpu_memory_utilization", 0.7, "(memory)")
        for given in (1 << 30, 2 << 30):
            self.assert_changes("cache_config.kv_cache_memory_bytes", given, "(memory)")
        self.assert_changes("vllm_config.hash", "other", "vllm.configuration", "(memory)")

    def test_runner_and_attention(self):
        self.assert_changes("use_v2_model_runner", False, "vllm.runner")
        backend = type("TritonBackend", (), {"__module__": "vllm.v1.attention.backends.triton"})
        self.worker.model_runner.attn_groups.append([types.SimpleNamespace(backend=backend)])
        self.assertEqual(self.found()["vllm.attention"], "FlashAttentionBackend TritonBackend")
        # A package whose name begins like vLLM's is not vLLM's.
        self.assert_changes("model_runner.attn_groups", [[types.SimpleNamespace(backend=type("B", (), {"__module__": "vllm_own.b"}))]], "vllm.attention")
        self.assertEqual(self.found()["vllm.attention"], "vllm_own.b.B:without a file")

    def test_source_of_a_worker_extension_and_of_a_backend(self):
        path = os.path.join(self.folder, "own.py")
        write(path, "one")
        sys.modules["own.module"] = types.SimpleNamespace(__file__=path)
        self.addCleanup(sys.modules.pop, "own.module")
        put(self.worker, "vllm_config.parallel_config.worker_extension_cls", "own.module.Extension")
        put(self.worker, "model_runner.attn_groups", [[types.SimpleNamespace(backend=type("Own", (), {"__module__": "own.module"}))]])
        before = self.found()
        self.assertRegex(before["vllm.settings"], "worker_extension_cls=own.module.Extension:[0-9a-f]{16};")
        self.assertRegex(before["vllm.attention"], "^own.module.Own:[0-9a-f]{16}$")
        write(path, "other")
        self.assertEqual([name for name in before if before[name] != self.found()[name]], ["vllm.settings", "vllm.attention", "(memory)"])

    def test_files_of_tuned_kernels(self):
        """In the user's folder always; in vLLM's own ones for experts and for quantized layers."""
        sys.modules["vllm"].__file__ = os.path.join(self.folder, "vllm/__init__.py")
        own = [os.path.join(self.folder, "vllm/model_executor/layers", name, "a.json")
               for name in ("fused_moe/configs", "quantization/utils/configs")]
        for path in own:
            write(path, "1")
        self.assertEqual(self.found()["vllm.tuned"], "none")
        for setting, value, off in (("is_moe", True, False), ("quantization", "fp8", None)):
            put(self.worker, f"vllm_config.model_config.{setting}", value)
            for path in own:
                before = self.found()["vllm.tuned"]
                write(path, before)
                self.assertNotEqual(self.found()["vllm.tuned"], before, (setting, path))
            write(path.replace("a.json", f"{setting}/in_a_folder.json"), "1")
            self.assertEqual(len(self.found()["vllm.tuned"].split()), 2)
            put(self.worker, f"vllm_config.model_config.{setting}", off)
        self.assertEqual(self.found()["vllm.tuned"], "none")
        self.envs.VLLM_TUNED_CONFIG_FOLDER = self.folder
        empty = self.found()["vllm.tuned"]
        write(os.path.join(self.folder, "b.json"), "1")
        one = self.found()["vllm.tuned"]
        os.rename(os.path.join(self.folder, "b.json"), os.path.join(self.folder, "c.json"))
        self.assertEqual(len({empty, one, self.found()["vllm.tuned"]}), 3, "names count, too")
        self.envs.VLLM_TUNED_CONFIG_FOLDER = os.path.join(self.folder, "none")
        self.assertEqual(self.found()["vllm.tuned"], "No such file or directory")

    def test_environment(self):
        factors = {"VLLM_A": 1, "VLLM_B": [2], "VLLM_API_KEY": "secret"}
        self.envs.compile_factors = lambda: dict(factors)
        before = facts.environment()
        factors["VLLM_API_KEY"] = "other"
        self.assertEqual(facts.environment(), before)
        self.assertRegex(before, "^[0-9a-f]{16}$")
        factors["VLLM_B"] = [3]
        self.assertNotEqual(facts.environment(), before)
        os.environ.update(VLLM_B="3", VLLM_A="x y", VLLM_API_KEY="k", VLLM_C="1")
        for name in ("VLLM_A", "VLLM_B", "VLLM_API_KEY", "VLLM_C"):
            self.addCleanup(os.environ.pop, name)
        self.assertEqual(facts.environment().split(" ", 1)[1], f"VLLM_A={torch_facts.shown('x y')} VLLM_B=3")


if __name__ == "__main__":
    unittest.main()
