# SPDX-License-Identifier: Apache-2.0
"""Inductor's choices among variants of a kernel: an earlier start's counts, whatever else is measured. Needs no vLLM."""
import importlib
import json
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../../torch")]

from medusa_vllm import fit, tuning  # noqa: E402


def launcher(block, warps=16):
    return types.SimpleNamespace(config=types.SimpleNamespace(kwargs={"XBLOCK": 1, "R0_BLOCK": block}, num_warps=warps, num_stages=1))


class Cache:
    """As PyTorch's AutotuneCache: its method is the hook that saves a choice."""

    def __init__(self, path):
        self.local_cache = (object(), path)

    def save(self, config):
        with open(self.local_cache[1], "w", encoding="utf-8") as file:
            json.dump({**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages, "configs_hash": "of another list"}, file)


class Tuning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "yr"))
        self.path = os.path.join(self.folder, "yr", "kernel.best_config")
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)

        class Tuner:  # measures that the last variant is the fastest
            measured = 0

            def __init__(self, path, *blocks):
                self.launchers, self.save_cache_hook = [launcher(block) for block in blocks], Cache(path).save

            def autotune_to_one_config(self, *args, **kwargs):
                Tuner.measured += 1
                self.launchers = self.launchers[-1:]
                self.save_cache_hook(self.launchers[0].config)

        self.tuner = Tuner
        self.version = mock.patch.object(fit, "_version", return_value="0.26.0")
        self.version.start()
        self.addCleanup(self.version.stop)
        tuning.hook_tuners(types.SimpleNamespace(CachingAutotuner=Tuner))

    def chosen(self, *blocks, path=None):
        tuner = self.tuner(path or self.path, *blocks)
        tuner.autotune_to_one_config(1, stream=2)
        self.assertEqual(len(tuner.launchers), 1)
        return tuner.launchers[0].config.kwargs["R0_BLOCK"]

    def test_what_was_measured_once_stays(self):
        self.assertEqual(self.chosen(2048, 4096), 4096)
        self.assertEqual(self.chosen(4096, 2048), 4096)
        self.assertEqual(self.tuner.measured, 1)

    def test_a_choice_that_is_no_longer_there_is_measured(self):
        self.chosen(2048, 4096)
        self.assertEqual(self.chosen(8192, 1024), 1024)
        self.assertEqual(self.tuner.measured, 2)

    def test_caches_that_were_moved_count_where_they_are_now(self):
        self.chosen(2048, 4096)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = self.folder
        self.assertEqual(self.chosen(4096, 2048, path="/of/another/machine/yr/kernel.best_config"), 4096)
        self.assertEqual(self.tuner.measured, 1)

    def test_a_file_that_says_nothing_is_passed_over(self):
        for text in ("", "{", "[1]", "null", '{"XBLOCK": 1}', "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")):
            with self.subTest(text), open(self.path, "w", encoding="latin-1") as file:
                file.write(text)
                file.flush()
                self.assertEqual(self.chosen(4096, 2048), 2048)

    def test_a_pipe_is_not_waited_for(self):
        os.mkfifo(self.path)
        tuner = self.tuner(self.path, 4096, 2048)
        tuner.save_cache_hook.__self__.save = None  # writing would wait for a reader
        self.assertIsNone(tuning._chosen_before(tuner))  # pylint: disable=protected-access

    def test_two_variants_that_the_choice_fits_are_measured(self):
        self.chosen(2048, 4096)
        self.assertEqual(self.chosen(4096, 4096, 2048), 2048)

    def test_a_tuner_that_keeps_nothing_measures(self):
        for hook in (None, lambda config: None):
            tuner = self.tuner(self.path, 2048, 4096)
            tuner.save_cache_hook = hook or (lambda config: None)
            tuner.autotune_to_one_config()
            self.assertEqual(tuner.launchers[0].config.kwargs["R0_BLOCK"], 4096)

    def test_another_pytorch_is_left_as_it_is(self):
        tuning.hook_tuners(types.SimpleNamespace())
        method = self.tuner.autotune_to_one_config
        tuning.hook_tuners(types.SimpleNamespace(CachingAutotuner=self.tuner))
        self.assertIs(self.tuner.autotune_to_one_config, method, "wrapped once")

    def test_what_was_never_tried_is_left_as_it_is_and_named(self):
        def tuner():
            return type("Tuner", (), {"autotune_to_one_config": lambda self, *args, **kwargs: None})

        class Other:
            def autotune_to_one_config(self, stream):
                pass

        for version, owner, said in (("0.27.1", tuner(), "vLLM 0.27.1 was never tried"), ("0.26.0", Other, "has the parameters ['self', 'stream']")):
            with self.subTest(version), mock.patch.object(fit, "_version", return_value=version), self.assertLogs("vllm.medusa", "WARNING") as logged:
                tuning.hook_tuners(types.SimpleNamespace(CachingAutotuner=owner))
                self.assertFalse(hasattr(owner.autotune_to_one_config, "_medusa"))
                self.assertIn(said, logged.output[0])
        owner = tuner()
        with mock.patch.dict(os.environ, MEDUSA_VLLM_TUNING="0"):
            tuning.hook_tuners(types.SimpleNamespace(CachingAutotuner=owner))
        self.assertFalse(hasattr(owner.autotune_to_one_config, "_medusa"))
        tuning.hook_tuners(types.SimpleNamespace(CachingAutotuner=owner))
        self.assertTrue(hasattr(owner.autotune_to_one_config, "_medusa"))

    def test_this_machines_pytorch_has_what_is_wrapped(self):
        try:
            module = importlib.import_module(tuning.TUNERS)
        except ImportError as error:
            self.skipTest(f"no PyTorch with Inductor: {error}")
        self.assertEqual(fit.unfit_module(module.CachingAutotuner, tuning.TUNER), "")


if __name__ == "__main__":
    unittest.main()
