# SPDX-License-Identifier: Apache-2.0
"""medusa-torch.pth in real starts of Python: what it loads, when it does nothing, and that it never raises."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import medusa

PLACE = os.path.dirname(os.path.dirname(os.path.abspath(medusa.__file__)))
LOADED = ("import sys; print(sorted(name for name in sys.modules if name.split('.')[0] in ('medusa', 'torch', 'ctypes')), "
          "[finder.name.rpartition('.')[2] for finder in sys.meta_path if type(finder).__module__ == 'medusa._imports'])")


def start(program, place=PLACE, **environment):
    """Python with `place` as one of its site-packages; a preloaded library that is not there is but a message of ld.so."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(f"import site\nsite.addsitedir({place!r})\n")
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if "ld.so" not in line]
    return done.stdout.strip(), said


class Start(unittest.TestCase):
    def test_nothing_is_loaded_without_a_medusa_library(self):
        self.assertEqual(start(LOADED, LD_PRELOAD=""), ("[] []", []))
        self.assertEqual(start(LOADED, LD_PRELOAD="libjemalloc.so"), ("[] []", []))

    def test_with_a_library_it_waits_for_the_server_and_loads_no_framework(self):
        self.assertEqual(start(LOADED, LD_PRELOAD="/usr/lib/libmedusa-restore.so"),
                         ("['medusa', 'medusa._imports', 'medusa._settings', 'medusa._start'] ['server', 'utils']", []))

    def test_it_can_be_switched_off(self):
        for off in ("0", "off", "False", "NO"):
            self.assertEqual(start(LOADED, LD_PRELOAD="/usr/lib/libmedusa-restore.so", MEDUSA_TRANSFORMERS=off),
                             ("['medusa', 'medusa._imports', 'medusa._settings', 'medusa._start'] []", []))

    def test_what_is_neither_on_nor_off_is_named_and_switches_it_off(self):
        self.assertEqual(start(LOADED, LD_PRELOAD="/usr/lib/libmedusa-restore.so", MEDUSA_TRANSFORMERS="of"),
                         ("['medusa', 'medusa._imports', 'medusa._settings', 'medusa._start'] []",
                          ["medusa: MEDUSA_TRANSFORMERS='of': one of 1, on, true, yes, 0, off, false, no is wanted; transformers' server is left as it is"]))

    def test_a_damaged_installation_raises_and_prints_nothing(self):
        with tempfile.TemporaryDirectory() as place:
            shutil.copy(os.path.join(PLACE, "medusa-torch.pth"), place)
            program = "print('it runs')"
            self.assertEqual(start(program, place, LD_PRELOAD="libmedusa-capture.so"), ("it runs", []))
            os.mkdir(os.path.join(place, "medusa"))
            for name, text in (("__init__.py", ""), ("_start.py", "raise RuntimeError('damaged')\n")):
                with open(os.path.join(place, "medusa", name), "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertEqual(start(program, place, LD_PRELOAD="libmedusa-capture.so"), ("it runs", []))


if __name__ == "__main__":
    unittest.main()
