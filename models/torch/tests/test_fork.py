# SPDX-License-Identifier: Apache-2.0
"""A template's fork: an engine, or a refusal, and never a second template. Needs no PyTorch."""
import os
import signal
import sys
import threading
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE)]

from medusa import template  # noqa: E402


class Fork(unittest.TestCase):
    def test_a_system_without_processes_refuses_and_the_template_lives(self):
        forks, fork, own, (goes_on, says) = [], os.fork, os.getpid(), os.pipe2(os.O_NONBLOCK)

        def second_fails():
            if forks:  # in the process between the two
                raise BlockingIOError("no process left")
            forks.append(True)
            return fork()

        stuck = threading.Timer(20, os.kill, (own, signal.SIGABRT))
        stuck.start()
        try:
            with mock.patch.object(os, "fork", second_fails), self.assertRaisesRegex(template.Refused, "no process left"):
                template.Template._fork(mock.Mock())  # pylint: disable=protected-access
        finally:
            if os.getpid() != own:
                os.write(says, b"the process between the two goes on as a template")
                os._exit(3)
            stuck.cancel()
        os.close(says)
        self.assertEqual(os.read(goes_on, 100), b"")
        os.close(goes_on)


if __name__ == "__main__":
    unittest.main()
