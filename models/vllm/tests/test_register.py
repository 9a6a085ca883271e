# SPDX-License-Identifier: Apache-2.0
"""The entry point: what register() waits for, and that it never raises. Needs neither PyTorch nor vLLM."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../../torch")]

import medusa  # noqa: E402
import medusa_vllm  # noqa: E402
from medusa import _api, _imports  # noqa: E402
from medusa_vllm import _start, tuning  # noqa: E402

NAMES = [medusa_vllm.WORKER, medusa_vllm.GRAPHS, medusa_vllm.FIRST, tuning.TUNERS]


class Register(unittest.TestCase):
    def setUp(self):
        def fail(module):
            raise RuntimeError("the hook fails")

        hooks = types.SimpleNamespace(hook_worker=fail, hook_graphs=fail, hook_first=fail)
        for patch in (mock.patch.object(_start, "preloaded", lambda: True), mock.patch.dict(sys.modules, {"medusa_vllm.hooks": hooks}), mock.patch.object(medusa_vllm, "hooks", hooks, create=True),
                      mock.patch.object(sys, "meta_path", list(sys.meta_path)), mock.patch.dict(os.environ)):
            patch.start()
            self.addCleanup(patch.stop)
        sys.modules.pop(tuning.TUNERS, None)  # an imported module is waited for no longer
        for name in ("MEDUSA_VLLM", "MEDUSA_VLLM_SLEEP", "MEDUSA_SWAP_CONTROL"):
            os.environ.pop(name, None)

    def waits(self, mode):
        """The modules that a register() waits for in this mode."""
        with mock.patch.object(_api, "mode", lambda: mode):
            medusa_vllm.register()
        return sorted(finder.name for finder in sys.meta_path if isinstance(finder, _imports.Finder))

    def test_without_a_library_nothing_waits_and_nothing_is_loaded(self):
        with mock.patch.dict(sys.modules, {"medusa._imports": None, "medusa_vllm.hooks": None}), self.assertNoLogs("vllm.medusa"):
            self.assertEqual(self.waits("none"), [])

    def test_with_one_it_waits_for_the_workers_modules_once(self):
        self.assertEqual(self.waits("restore"), sorted(NAMES))
        self.assertEqual(self.waits("restore"), sorted(NAMES))

    def test_it_can_be_switched_off(self):
        os.environ["MEDUSA_VLLM"] = "0"
        self.assertEqual(self.waits("restore"), [])

    def test_an_engine_that_is_swapped_without_an_artifact_waits_for_sleep_mode_alone(self):
        os.environ["MEDUSA_SWAP_CONTROL"] = "/somewhere"
        self.assertEqual(self.waits("none"), [medusa_vllm.WORKER])
        os.environ["MEDUSA_VLLM_SLEEP"] = "0"
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _imports.Finder)]
        self.assertEqual(self.waits("none"), [])

    def alone(self, script="", **environment):
        """register() in a process of its own: exit code, and all that it says."""
        folders = [environment.pop("before", ""), *(os.path.dirname(os.path.dirname(package.__file__)) for package in (medusa_vllm, medusa))]
        script = f"{script}import medusa_vllm, sys\nmedusa_vllm.register()\nprint(sorted(name for name in sys.modules if name.split('.')[0] == 'medusa'))"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEDUSA_", "LD_PRELOAD", "PYTHON"))}
        done = subprocess.run([sys.executable, "-S", "-B", "-c", script], capture_output=True, text=True, check=False,
                              env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def another_package(self):
        """A package `medusa` of somebody else, as decoding heads of that name have one."""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "medusa"))
            with open(os.path.join(folder, "medusa", "__init__.py"), "w", encoding="ascii") as file:
                file.write("print('the other medusa runs')\n")
            yield folder

    def test_without_a_library_nothing_of_medusa_is_imported_in_a_process(self):
        for environment in ({}, {"PYTHONOPTIMIZE": "2"}, {"MEDUSA_VLLM": "1"}):
            self.assertEqual(self.alone(**environment), "[]\n")
        with self.another_package() as folder:
            self.assertEqual(self.alone(before=folder), "[]\n")
            self.assertEqual(self.alone("import sys; sys.modules['ctypes.util'] = None\n", before=folder), "[]\n")

    def test_with_a_library_another_package_of_that_name_is_named_and_not_run(self):
        library = os.path.join(os.environ.get("MEDUSA_BUILD", ""), "lib", "libmedusa-restore.so")
        if not os.path.exists(library) or b"__asan" in pathlib.Path(library).read_bytes():
            self.skipTest("needs MEDUSA_BUILD, without sanitizers")
        with self.another_package() as folder:
            said = self.alone(before=folder, LD_PRELOAD=library, MEDUSA_LOG="error")
        self.assertIn(f"medusa: vLLM is left as it is: the package medusa in {folder}/medusa is another one than medusa-torch's: remove it, or put", said)
        self.assertNotIn("the other medusa runs", said)
        self.assertNotIn("Traceback", said)

    def test_a_missing_adapter_is_named_under_a_library_of_ours_alone(self):
        with mock.patch.dict(sys.modules, {"medusa": None}), self.assertLogs("vllm.medusa", "ERROR") as said:
            medusa_vllm.register()
        with mock.patch.object(_start, "preloaded", lambda: False), mock.patch.dict(sys.modules, {"medusa": None}), self.assertNoLogs("vllm.medusa"):
            medusa_vllm.register()
        self.assertEqual(said.output, ["ERROR:vllm.medusa:medusa: vLLM is left as it is: the package medusa-torch is not installed: "
                                       "pip install ./models/torch ./models/vllm"])

    def test_the_command_hears_of_an_engine_without_a_library(self):
        with mock.patch.object(_start, "preloaded", lambda: False):
            self.assertEqual(self.told("capture"), ["does nothing: no Medusa library is preloaded"])

    def test_a_start_that_has_not_read_the_pth_file_is_named(self):
        with mock.patch.object(_start, "begun", []), self.assertLogs("vllm.medusa", "WARNING") as said:
            self.waits("restore")
        self.assertIn("Python did not read medusa-vllm.pth when it started", said.output[0])
        with mock.patch.object(_start, "begun", []), self.assertNoLogs("vllm.medusa"):
            self.waits("none")
        with mock.patch.object(_start, "begun", [True]), self.assertNoLogs("vllm.medusa"):
            self.waits("restore")

    def test_what_is_neither_on_nor_off_leaves_vllm_as_it_is(self):
        os.environ["MEDUSA_VLLM"] = "of"
        self.assertEqual(self.waits("restore"), [])

    def test_an_adapter_that_is_older_is_logged_and_not_raised(self):
        for name in ("medusa._imports",):
            with self.subTest(name), mock.patch.dict(sys.modules, {name: None}), self.assertLogs("vllm.medusa", "ERROR") as said:
                self.assertEqual(self.waits("restore"), [])
            self.assertIn("medusa: the plug-in could not be registered: vLLM is left as it is", said.output[0])

    def told(self, mode):
        """What a register() in this mode says to the command."""
        with tempfile.NamedTemporaryFile(mode="r") as file, mock.patch.dict(os.environ, MEDUSA_TELL=file.name):
            self.waits(mode)
            lines = [line.rstrip("\n").split(" ", 3) for line in file]
        self.assertEqual([line[:3] for line in lines], [["medusa-vllm", medusa_vllm._version(), str(os.getpid())]] * len(lines))
        return [line[3] for line in lines]

    def test_the_command_hears_that_it_is_loaded_or_why_it_does_nothing(self):
        self.assertEqual(self.told("capture"), ["is loaded, and waits for vLLM's worker (capture)"])
        with mock.patch.object(_api, "_why_none", "the library has no medusa_mark"):
            self.assertEqual(self.told("none"), ["does nothing: the library has no medusa_mark"])
        with mock.patch.dict(sys.modules, {"medusa._imports": None}), self.assertLogs("vllm.medusa", "ERROR"):
            self.assertIn("does nothing, because it failed: ModuleNotFoundError", self.told("restore")[0])
        worker = types.ModuleType(medusa_vllm.WORKER)
        with mock.patch.dict(sys.modules, {medusa_vllm.WORKER: worker}), self.assertLogs("vllm.medusa", "ERROR"):
            self.assertEqual(self.told("restore")[0], f"leaves {medusa_vllm.WORKER} as it is, because it failed: RuntimeError('the hook fails')")
        os.environ["MEDUSA_VLLM"] = "0"
        self.assertEqual(self.told("capture"), ["does nothing, because MEDUSA_VLLM is 0"])

    def test_a_failing_hook_is_logged_and_not_raised(self):
        worker = types.ModuleType(medusa_vllm.WORKER)
        with mock.patch.dict(sys.modules, {medusa_vllm.WORKER: worker}), self.assertLogs("vllm.medusa", "ERROR") as said:
            self.waits("restore")
        self.assertIn("the hook fails", said.output[0])

    def test_what_a_hook_raises_after_its_import_goes_to_the_logger_of_vllm(self):
        self.waits("restore")
        finder = next(finder for finder in sys.meta_path if isinstance(finder, _imports.Finder))
        self.assertEqual(finder._log, "vllm.medusa")


if __name__ == "__main__":
    unittest.main()
