# SPDX-License-Identifier: Apache-2.0
"""medusa/_tell.py: a line for the command, and nothing that an engine could notice. Needs no PyTorch."""
import os
import tempfile
import unittest
from unittest import mock

import medusa
from medusa import _tell


class Tell(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "told")
        patch = mock.patch.dict(os.environ, MEDUSA_TELL=self.path)
        patch.start()
        self.addCleanup(patch.stop)

    def told(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def test_lines_are_appended(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("before\n")
        _tell.tell("medusa-torch", "does\nthis\tand  that")
        _tell.tell("medusa-vllm", "x" * 5000, "7.8")
        first, second = self.told().splitlines()[1:]
        self.assertEqual(first, f"medusa-torch {medusa.__version__} {os.getpid()} does this and that")
        self.assertEqual(second, f"medusa-vllm 7.8 {os.getpid()} " + "x" * _tell.MOST)

    def test_nothing_is_made_followed_or_waited_for(self):
        _tell.tell("medusa-torch", "is loaded")
        self.assertFalse(os.path.exists(self.path), "a command that has ended wants no file")
        os.symlink("/dev/null", self.path)
        _tell.tell("medusa-torch", "is loaded")
        os.remove(self.path)
        os.mkfifo(self.path)
        _tell.tell("medusa-torch", "is loaded")

    def test_nobody_has_asked(self):
        for unset in ({"MEDUSA_TELL": ""}, {"MEDUSA_TELL": "/proc/self/mem"}, {"MEDUSA_TELL": "/"}):
            with mock.patch.dict(os.environ, unset):
                _tell.tell("medusa-torch", "is loaded")
        with mock.patch.dict(os.environ):
            del os.environ["MEDUSA_TELL"]
            _tell.tell("medusa-torch", "is loaded")


if __name__ == "__main__":
    unittest.main()
