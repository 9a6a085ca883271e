# SPDX-License-Identifier: Apache-2.0
"""medusa/_api.py and _driver.py against the real libraries: an engine in Python is captured, restored and refused."""
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

from medusa import _api, _driver

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("MEDUSA_BUILD", "")
ENGINE = [sys.executable, os.path.join(HERE, "host_engine.py"), os.path.join(BUILD, "tests/images/arith.host.so")]


class WithoutLibrary(unittest.TestCase):
    """Nothing is preloaded in this process."""

    def test_answers(self):
        self.assertEqual(_api.mode(), "none")
        self.assertEqual(_api.stats(), {})
        self.assertFalse(_api.graph_ready("decode", 1))

    def test_says_nothing_aloud(self):
        _api.bind("weights", 4096, 1, _api.CONSTANT)
        _api.graph_label(0, "decode", 1)
        _api.mark("ready")
        _api.release()

    def test_refusals_have_a_reason(self):
        for ask in (
            lambda: _api.graph_get("decode", 1),
            lambda: _api.graph_output_get("decode", 1, 0),
            lambda: _api.graph_note_get("decode", 1),
        ):
            with self.assertRaisesRegex(_api.Error, "no Medusa library is preloaded") as caught:
                ask()
            self.assertEqual(caught.exception.code, _api.NOT_FOUND)


class OlderLibrary(unittest.TestCase):
    def test_the_missing_function_is_named(self):
        known = {name: mock.Mock() for name in _api._PROTOTYPES if name != "medusa_graph_scratch"}
        with mock.patch.object(_api.ctypes, "CDLL", lambda name: types.SimpleNamespace(**known)):
            library, why = _api._load()
        self.assertIsNone(library)
        self.assertIn("has no medusa_graph_scratch: it is older than this package", why)

    @unittest.skipUnless(BUILD, "MEDUSA_BUILD names no build")
    def test_it_is_said_in_a_process_that_has_one(self):
        with open(os.path.join(BUILD, "lib/libmedusa-capture.so"), "rb") as file:
            newer = file.read()
        with tempfile.TemporaryDirectory() as folder:
            older = os.path.join(folder, "libmedusa-capture.so")
            with open(older, "wb") as file:
                file.write(newer.replace(b"\0medusa_graph_scratch\0", b"\0medusa_graph_scrotch\0"))
            done = subprocess.run([sys.executable, "-c", "from medusa import _api; print(_api.mode()); _api.graph_get('decode', 1)"],
                                  env={**os.environ, "LD_PRELOAD": older}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "none\n")
        self.assertIn("medusa: the Medusa library that is loaded has no medusa_graph_scratch", done.stderr)
        self.assertIn("Error: the Medusa library that is loaded has no medusa_graph_scratch", done.stderr)


class Callbacks(unittest.TestCase):
    def test_result_is_zero(self):
        self.assertEqual(_api.Callback(lambda: 7).pointer(None), 0)

    def test_what_is_raised_is_kept(self):
        def stop():
            raise KeyboardInterrupt

        callback = _api.Callback(stop)
        self.assertEqual(callback.pointer(None), 1)
        self.assertIsInstance(callback.take(), KeyboardInterrupt)
        self.assertIsNone(callback.take())


@unittest.skipUnless(os.path.exists(ENGINE[2]), "MEDUSA_BUILD names no build with hostcuda's test images")
class WholeProcesses(unittest.TestCase):
    """medusa-capture once, then the artifact in other processes."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.artifact = os.path.join(cls.folder.name, "host.medusa")
        cls.captured = cls.run_engine("medusa-capture", "-o", cls.artifact, "--")

    @classmethod
    def run_engine(cls, *before, more=()):
        tool = [os.path.join(BUILD, "bin", before[0]), *before[1:]] if before else []
        return subprocess.run(tool + ENGINE + list(more), capture_output=True, text=True, timeout=120, check=False)

    def report(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertTrue(lines, done.stdout + done.stderr)
        return lines[:-1], lines[-1]

    def assert_live(self, done, why):
        graphs, _ = self.report(done)
        self.assertEqual([(g["restored"], g["equal"]) for g in graphs], [(False, True)] * 2)
        for graph in graphs:
            self.assertIn(why, graph["why"])

    def test_live(self):
        self.assert_live(self.run_engine(), "no Medusa library is preloaded")

    def test_capture(self):
        self.assertEqual(self.captured.returncode, 0, self.captured.stderr)
        self.assertIn("2 passed, 0 failed", self.captured.stderr)

    def test_restore(self):
        graphs, last = self.report(self.run_engine("medusa-restore", self.artifact, "--"))
        self.assertEqual([(g["restored"], g["equal"]) for g in graphs], [(True, True)] * 2)
        self.assertEqual([g["note"] for g in graphs], [{"batch": b, "shape": [64]} for b in (1, 2)])
        self.assertEqual([g["why"] for g in graphs], ["256 bytes"] * 2)
        self.assertEqual(last["mode"], "restore")
        self.assertEqual((last["stats"]["graphs_total"], last["stats"]["graphs_restored"]), (2, 2))
        self.assertGreater(last["stats"]["private_bytes"], 0)

    def test_verify(self):
        done = self.run_engine("medusa-verify", self.artifact, "--")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_another_fact(self):
        done = self.run_engine("medusa-restore", self.artifact, "--", more=["fact=another"])
        self.assert_live(done, "another")

    def test_refused_at_verification(self):
        done = self.run_engine("medusa-verify", self.artifact, "--", more=["refuse"])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the test says so", done.stdout + done.stderr)

    def test_refused_at_capture(self):
        artifact = os.path.join(self.folder.name, "refused.medusa")
        done = self.run_engine("medusa-capture", "-o", artifact, "--", more=["refuse"])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the test says so", done.stderr)
        graphs, _ = self.report(self.run_engine("medusa-restore", artifact, "--"))
        self.assertEqual([(g["restored"], g["equal"]) for g in graphs], [(True, True), (False, True)])
        self.assertIn("the test says so", graphs[1]["why"])


class Driver(unittest.TestCase):
    def test_errors_have_names(self):
        try:
            _driver.library()
        except OSError:
            self.skipTest("no libcuda.so.1")
        self.assertEqual(_driver.error_name(400), "CUDA_ERROR_INVALID_HANDLE")
        self.assertEqual(_driver.error_name(77777), "CUDA error 77777")


if __name__ == "__main__":
    unittest.main()
