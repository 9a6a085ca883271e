# SPDX-License-Identifier: Apache-2.0
"""medusa.swap: an engine in Python that goes to sleep by itself, and one that another process takes away by its name, on hostcuda."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from medusa import _api, swap

BUILD = os.environ.get("MEDUSA_BUILD", "")
TOOL = os.path.join(BUILD, "bin/medusa-swap")

ENGINE = """
import ctypes, json, subprocess, sys, time
from medusa import _api, _driver, swap
cuda = _driver.library()
MB = 1 << 20
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)
def free():
    a, b = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(a), ctypes.byref(b))
    return a.value
context, address = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(16 * MB))
call("cuMemsetD32_v2", address, 7, ctypes.c_size_t(4 * MB))
end = time.monotonic() + 20
while swap.status()["processes"] != 1 or swap.status()["swappable"] < 16 * MB:
    assert time.monotonic() < end
    time.sleep(0.01)
before, there = free(), swap.status()
gone = swap.out(deadline=5)
said = {"mode": _api.mode(), "managed": swap.managed(), "there": there, "gone": gone, "away": swap.status(), "freed": free() - before,
        "again": swap.out()["bytes"], "engines": swap.engines(), "back": swap.in_(verify=True)}
word = ctypes.c_uint32()
call("cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(address.value + 8 * MB), ctypes.c_size_t(4))
said["word"] = word.value
print(json.dumps(said), flush=True)
if "ask" in sys.argv:
    sys.stdin.readline()
    call("cuMemcpyDtoH_v2", ctypes.byref(word), address, ctypes.c_size_t(4))
    print(json.dumps(word.value), flush=True)
"""


@unittest.skipUnless(os.path.exists(TOOL), "MEDUSA_BUILD names no build")
@unittest.skipIf(os.environ.get("SAN"), "Python itself is not sanitized, and a sanitized library cannot be preloaded into it")
class WholeProcesses(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": folder.name, "LD_LIBRARY_PATH": f"{BUILD}/lib:" + os.environ.get("LD_LIBRARY_PATH", "")}

    def command(self, *more):
        return [TOOL, "run", "--name", "python", "--pool-bytes", "64M", "--", sys.executable, "-c", ENGINE, *more]

    def test_an_engine_goes_to_sleep_by_itself(self):
        done = subprocess.run(self.command(), env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual((said["mode"], said["managed"], said["word"]), ("none", True, 7))
        self.assertEqual((said["there"]["name"], said["there"]["processes_out"], said["there"]["released"]), ("python", 0, False))
        self.assertGreaterEqual(said["gone"]["bytes"], 16 << 20)
        self.assertGreater(said["gone"]["total_ns"], 0)
        self.assertGreaterEqual(said["freed"], 16 << 20)
        self.assertEqual((said["away"]["processes_out"], said["away"]["out"]), (1, said["gone"]["bytes"]))
        self.assertEqual((said["again"], said["back"]["bytes"]), (0, said["gone"]["bytes"]))
        self.assertEqual([engine["name"] for engine in said["engines"]], ["python"])

    def test_another_process_asks_by_its_name(self):
        ask = [sys.executable, "-c", "import sys\nfrom medusa import swap\nprint(getattr(swap, sys.argv[1])('python'))"]
        with subprocess.Popen(self.command("ask"), env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
            engine.stdout.readline()
            said = [subprocess.run([*ask, what], env=self.environment, capture_output=True, text=True, timeout=60, check=True).stdout
                    for what in ("out", "status", "in_", "release")]
            engine.stdin.write("\n")
            engine.stdin.flush()
            self.assertEqual(json.loads(engine.stdout.readline()), 7)
        self.assertIn("'processes_out': 1", said[1])
        self.assertEqual(said[3], "None\n")
        gone = subprocess.run([*ask, "out"], env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("medusa._api.Error: no engine called python runs", gone.stderr)


    def test_another_process_asks_for_all_of_it(self):
        ask = """if True:
            import json
            from medusa import swap
            gone, away = swap.out("python", full=True), swap.status("python")
            back = swap.in_("python", gpu=0)
            print(json.dumps([gone["checkpoint_ns"] > 0, away["full"], away["processes_silent"], back["restore_ns"] > 0, swap.status("python")["full"]]))
        """
        self.environment["HOSTCUDA_SHARED"] = os.path.join(self.environment["XDG_RUNTIME_DIR"], "devices")
        with subprocess.Popen(self.command("ask"), env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
            engine.stdout.readline()
            said = subprocess.run([sys.executable, "-c", ask], env=self.environment, capture_output=True, text=True, timeout=60, check=False)
            engine.stdin.write("\n")
            engine.stdin.flush()
            self.assertEqual(json.loads(engine.stdout.readline()), 7)
        self.assertEqual(said.stdout, "[true, true, 0, true, false]\n", said.stderr)


class WithoutAnything(unittest.TestCase):
    def test_a_process_that_is_no_engine(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("MEDUSA_SWAP_CONTROL", None)
            self.assertFalse(swap.managed())

    def test_a_name_that_ends_early(self):
        for function in (swap.out, swap.in_, swap.release, swap.status):
            with self.assertRaisesRegex(_api.Error, "is not a name for an engine"):
                function("qwen\0x")

    def test_no_library(self):
        with mock.patch.object(swap._client, "_loaded", None), mock.patch("ctypes.CDLL", side_effect=[object(), OSError("none")]):
            with self.assertRaisesRegex(_api.Error, "medusa.swap needs libmedusa.so.0"):
                swap.out("x")

    def test_a_socket_that_nobody_answers(self):
        with mock.patch.dict(os.environ, MEDUSA_SWAP_CONTROL="/nowhere"), mock.patch.object(swap, "status", side_effect=swap.Error(4, "gone")):
            self.assertFalse(swap.managed())


class Mode(unittest.TestCase):
    """An engine that is swapped and has no artifact restores nothing, so adapters do nothing."""

    def mode(self, number, **environment):
        with mock.patch.object(_api, "_library", mock.Mock(medusa_mode=lambda: number)), mock.patch.dict(os.environ, environment):
            return _api.mode()

    def test_modes(self):
        self.assertEqual(self.mode(2), "restore")
        self.assertEqual(self.mode(2, MEDUSA_SWAP_CONTROL="/s"), "none")
        self.assertEqual(self.mode(2, MEDUSA_SWAP_CONTROL="/s", MEDUSA_ARTIFACT="/a"), "restore")
        self.assertEqual(self.mode(1, MEDUSA_SWAP_CONTROL="/s"), "capture")


if __name__ == "__main__":
    unittest.main()
