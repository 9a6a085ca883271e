# SPDX-License-Identifier: Apache-2.0
"""Sleep mode by medusa-swap: when our backend is chosen, what it states and in which order, and a whole engine on hostcuda."""
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(HERE, "../../torch")]

import vllm_sleep_standin  # noqa: E402
from medusa import _api, swap  # noqa: E402
from medusa_vllm import sleeping  # noqa: E402

BUILD = os.environ.get("MEDUSA_BUILD", "")
TOOL = os.path.join(BUILD, "bin/medusa-swap")
CONTROL = {"MEDUSA_SWAP_CONTROL": "/somewhere"}


class StandIn(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.dict(sys.modules, vllm_sleep_standin.modules()), mock.patch.dict(os.environ, CONTROL)):
            patch.start()
            self.addCleanup(patch.stop)
        sys.modules.pop("medusa_vllm.sleep", None)
        self.addCleanup(sys.modules.pop, "medusa_vllm.sleep", None)

    @staticmethod
    def config(**other):
        return types.SimpleNamespace(**{"enable_sleep_mode": True, "sleep_mode_backend": "cumem", "enable_cumem_allocator": True, **other})


class Choice(StandIn):
    def chosen(self, config, managed=True):
        with mock.patch.object(swap, "managed", lambda: managed):
            sleeping.choose(config)
        return config.sleep_mode_backend, config.enable_sleep_mode, config.enable_cumem_allocator

    def test_the_worker_runs_as_without_sleep_mode(self):
        self.assertEqual(self.chosen(self.config()), ("medusa", False, False))
        self.assertEqual(self.chosen(self.config()), ("medusa", False, False))  # a second engine in this process

    def test_it_is_left_to_vllm(self):
        self.assertEqual(self.chosen(self.config(enable_sleep_mode=False)), ("cumem", False, True))
        self.assertEqual(self.chosen(self.config(sleep_mode_backend="criu")), ("criu", True, True))
        with self.assertLogs("vllm.medusa", "WARNING") as said:
            self.assertEqual(self.chosen(self.config(), managed=False), ("cumem", True, True))
        self.assertIn("sleep mode is left to vLLM: medusa-swap run does not answer", said.output[0])

    def test_it_is_wanted_under_medusa_swap_alone(self):
        self.assertTrue(sleeping.wanted())
        with mock.patch.dict(os.environ, MEDUSA_VLLM_SLEEP="0"):
            self.assertFalse(sleeping.wanted())
        with mock.patch.dict(os.environ):
            del os.environ["MEDUSA_SWAP_CONTROL"]
            self.assertFalse(sleeping.wanted())

    def test_another_vllm_is_left_alone(self):
        worker = type("Worker", (), {"init_device": lambda self: None})
        before = worker.init_device
        with self.assertLogs("vllm.medusa", "WARNING") as said:
            sleeping.hook_worker(types.SimpleNamespace(Worker=worker))
        self.assertIn("sleep mode is left to vLLM: Worker has no _get_sleep_mode_backend", said.output[0])
        self.assertIs(worker.init_device, before)

    def test_a_failure_is_not_the_engines(self):
        made = []
        worker = sleeping._init_device(lambda self: made.append(self))
        with mock.patch.object(sleeping, "choose", side_effect=RuntimeError("no")), self.assertLogs("vllm.medusa", "ERROR"):
            worker(types.SimpleNamespace(vllm_config=types.SimpleNamespace(model_config=None)))
        self.assertEqual(len(made), 1)


class Order(StandIn):
    """What the backend says to the C side, and when."""

    def setUp(self):
        super().setUp()
        from medusa_vllm.sleep import Backend

        self.said, self.fails = [], {}
        for owner, name in ((_api, "swap_discardable"), (_api, "swap_needed"), (swap, "out"), (swap, "in_")):
            patch = mock.patch.object(owner, name, lambda *place, name=name, **_: self.note(name, *place))
            patch.start()
            self.addCleanup(patch.stop)
        self.worker = types.SimpleNamespace(model_runner=types.SimpleNamespace(
            kv_caches=[self.tensor(100), [self.tensor(200), self.tensor(200)]],
            model=types.SimpleNamespace(parameters=lambda: [self.tensor(300), self.tensor(400), self.tensor(500, 0)], buffers=lambda: [self.tensor(400)])))
        self.backend = Backend()
        self.backend.serve(lambda: self.worker)

    @staticmethod
    def tensor(address, size=10):
        return types.SimpleNamespace(numel=lambda: size, untyped_storage=lambda: types.SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: size))

    def note(self, name, *place):
        self.said.append((name, *place[:1]))
        if name in self.fails:
            raise self.fails[name]
        return {"bytes": 5, "total_ns": 1, "copied": 0, "discarded": 0, "stays": 0}

    def test_level_1_discards_the_kv_cache_alone(self):
        self.backend.suspend(1)
        self.assertEqual(self.said, [("swap_discardable", 100), ("swap_discardable", 200), ("out",)])
        self.assertEqual(self.backend.state(), "SUSPENDED")
        self.said.clear()
        self.backend.resume()
        self.assertEqual(self.said, [("in_",), ("swap_needed", 100), ("swap_needed", 200)])
        self.assertEqual(self.backend.state(), "RUNNING")

    def test_level_2_discards_parameters_but_not_where_a_buffer_lies(self):
        self.backend.suspend(2)
        self.assertEqual(self.said, [("swap_discardable", 100), ("swap_discardable", 200), ("swap_discardable", 300), ("out",)])
        self.said.clear()
        self.backend.resume(["weights"])
        self.assertEqual((self.said, self.backend.state()), ([("in_",), ("swap_needed", 300)], "RESUMING"))
        self.said.clear()
        self.backend.resume(["kv_cache"])
        self.assertEqual((self.said, self.backend.state()), ([("in_",), ("swap_needed", 100), ("swap_needed", 200)], "RUNNING"))

    def test_what_cannot_go_is_needed_again_and_vllm_is_told(self):
        self.fails["out"] = swap.Error(_api.NO_MEMORY, "the pool is too small")
        with self.assertRaisesRegex(swap.Error, "the pool is too small"):
            self.backend.suspend(1)
        self.assertEqual(self.said[3:], [("swap_needed", 100), ("swap_needed", 200)])
        self.assertEqual(self.backend.state(), "RUNNING")

    def test_what_cannot_come_back_sleeps_on(self):
        self.backend.suspend(1)
        self.fails["in_"] = swap.Error(_api.NO_MEMORY, "the device is full")
        with self.assertRaisesRegex(swap.Error, "the device is full"):
            self.backend.resume()
        self.assertEqual(self.backend.state(), "SUSPENDED")
        del self.fails["in_"]
        self.backend.resume()
        self.assertEqual(self.said[-2:], [("swap_needed", 100), ("swap_needed", 200)])

    def test_without_medusa_swap_run_the_memory_comes_by_itself(self):
        self.backend.suspend(1)
        self.fails["in_"] = swap.Error(_api.NOT_FOUND, "it has ended")
        with self.assertLogs("vllm.medusa", "WARNING") as logged:
            self.backend.resume()
        self.assertIn("the memory comes back by itself: it has ended", logged.output[0])
        self.assertEqual(self.backend.state(), "RUNNING")

    def test_without_a_worker_everything_is_saved(self):
        self.backend.serve(lambda: None)
        self.backend.suspend(2)
        self.assertEqual(self.said, [("out",)])


    def test_a_worker_that_is_built_otherwise_is_saved_as_a_whole(self):
        del self.worker.model_runner.kv_caches
        with self.assertLogs("vllm.medusa", "ERROR") as logged:
            self.backend.suspend(2)
        self.assertEqual((self.said, self.backend.state()), ([("out",)], "SUSPENDED"))
        self.assertIn("nothing is discarded", logged.output[0])

    def test_caches_that_are_gone_are_left_out(self):
        self.worker.model_runner.kv_caches[0] = None
        self.backend.suspend(1)
        self.assertEqual(self.said, [("swap_discardable", 200), ("out",)])


@unittest.skipUnless(os.path.exists(TOOL), "MEDUSA_BUILD names no build")
@unittest.skipIf(os.environ.get("SAN"), "Python itself is not sanitized, and a sanitized library cannot be preloaded into it")
class WholeEngine(unittest.TestCase):
    """sleeper.py under `medusa-swap run`: after suspend() it makes the calls that vLLM's worker makes."""

    def run_engine(self, *before, **environment):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            path = os.pathsep.join([HERE, os.path.dirname(HERE), os.path.join(HERE, "../../torch")])
            done = subprocess.run([*before, sys.executable, os.path.join(HERE, "sleeper.py")], capture_output=True, text=True, timeout=120, check=False,
                                  env={**os.environ, "XDG_RUNTIME_DIR": folder, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                                       "PATH": os.path.join(BUILD, "bin") + ":" + os.environ["PATH"], **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_levels_and_tags(self):
        said = self.run_engine(TOOL, "run", "--name", "sleeper", "--pool-bytes", "96M", "--")
        weight, buffer, kv, zero = [3, 3], [5, 5], [7, 7], [0, 0]
        self.assertEqual((said["backend"], said["pool"]), ("medusa", False))
        self.assertGreaterEqual(said["freed"], 52 << 20)
        self.assertGreaterEqual(said["status"], 52 << 20)
        self.assertEqual((said["state"], said["awake"], said["partly"], said["state_at_end"]), ("SUSPENDED", "RUNNING", "RESUMING", "RUNNING"))
        self.assertEqual(said["level1"], {"weight": weight, "buffer": buffer, "kv": zero})
        self.assertEqual(said["swapped"], {"weight": weight, "buffer": buffer, "kv": kv})
        self.assertEqual(said["level2"], {"weight": zero, "buffer": buffer, "kv": zero})
        self.assertEqual(said["reloaded"], {"weight": weight, "buffer": buffer, "kv": zero})
        self.assertEqual(said["end"], {"weight": weight, "buffer": buffer, "kv": kv})
        self.assertEqual(said["saved"], said["end"])

    def test_it_can_be_switched_off(self):
        said = self.run_engine(TOOL, "run", "--name", "sleeper", "--pool-bytes", "96M", "--", MEDUSA_VLLM_SLEEP="0")
        self.assertEqual((said["backend"], said["pool"]), ("cumem", True))

    def test_without_medusa_swap_nothing_changes(self):
        self.assertEqual(self.run_engine()["backend"], "cumem")


if __name__ == "__main__":
    unittest.main()
