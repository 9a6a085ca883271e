# SPDX-License-Identifier: Apache-2.0
"""What waits for an import, and that it harms nothing. Needs no framework."""
import contextlib
import importlib
import os
import sys
import tempfile
import unittest
from unittest import mock

from medusa import _imports


class Import(unittest.TestCase):
    def test_act_after_import_once(self):
        with self.folder("late_module", "value = 1\n"):
            seen = []
            _imports.after_import("late_module", lambda module: seen.append(module.value))
            _imports.after_import("late_module", lambda module: seen.append("twice"))
            self.assertEqual(seen, [])
            importlib.import_module("late_module")
            importlib.import_module("late_module")
            self.assertEqual(seen, [1])
            _imports.after_import("late_module", lambda module: seen.append("at once"))
            self.assertEqual(seen, [1, "at once"])
        self.assertFalse(any(isinstance(finder, _imports.Finder) for finder in sys.meta_path))

    def test_a_module_that_fails_fails_as_ever(self):
        with self.folder("broken_module", "raise ValueError('its own')\n"):
            _imports.after_import("broken_module", lambda module: self.fail("called"))
            with self.assertRaisesRegex(ValueError, "its own"):
                importlib.import_module("broken_module")

    def test_a_failing_act_leaves_the_module(self):
        with self.folder("plain_module", "value = 1\n"):
            _imports.after_import("plain_module", lambda module: 1 / 0, "some.logger")
            with self.assertLogs("some.logger", "ERROR"):
                self.assertEqual(importlib.import_module("plain_module").value, 1)

    @contextlib.contextmanager
    def folder(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
                file.write(text)
            with mock.patch.object(sys, "path", [folder, *sys.path]):
                importlib.invalidate_caches()
                yield
            sys.modules.pop(name, None)


if __name__ == "__main__":
    unittest.main()
