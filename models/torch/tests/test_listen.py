# SPDX-License-Identifier: Apache-2.0
"""Where a template may listen: real folders, sockets and processes. Needs no PyTorch."""
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
if os.path.isdir(os.path.join(HERE, "../medusa")):
    sys.path.insert(0, os.path.dirname(HERE))

from medusa import _listen  # noqa: E402

TEMPLATE = [sys.executable, "-m", "medusa.template", "--socket"]


class Listening(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "f")
        os.mkdir(self.folder, 0o700)
        self.path = os.path.join(self.folder, "s")

    def listen(self, path=None, private=True):
        made = _listen.listen(path or self.path, private, 4)
        self.addCleanup(made.close)
        return made

    def connects(self, path=None):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path or self.path)

    def refused(self, text, path=None, private=True):
        with self.assertRaises(_listen.Failed) as failed:
            self.listen(path, private)
        self.assertIn(text, str(failed.exception))

    def test_the_socket_is_its_users_and_nothing_else_stays(self):
        for private in (True, False):
            with self.subTest(private):
                made = self.listen(private=private)
                self.connects()
                self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
                self.assertEqual(os.listdir(self.folder), ["s"])
                made.close()

    def test_a_folder_of_others(self):
        for mode, private in ((0o777, False), (0o1777, False), (0o720, False), (0o702, False), (0o777, True), (0o750, True), (0o701, True)):
            with self.subTest(f"{mode:o}"):
                os.chmod(self.folder, mode)
                self.refused(f"others may {'use' if private else 'write to'} this folder (mode {mode:o} of user {os.geteuid()}); make it mode 700", private=private)
                self.assertEqual(os.listdir(self.folder), [])
        os.chmod(self.folder, 0o755)
        self.listen(private=False)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a folder away")
    def test_a_folder_of_another_user(self):
        os.chown(self.folder, 12345, -1)
        for private in (True, False):
            self.refused("of user 12345)", private=private)

    def test_the_systems_folder_will_do_where_nobody_else_writes(self):
        with mock.patch.object(os, "geteuid", lambda: 12345), mock.patch.object(os, "stat", lambda _: mock.Mock(st_uid=0, st_mode=0o40755)):
            _listen.check("/run/s", private=False)
            with self.assertRaises(_listen.Failed):
                _listen.check("/run/s", private=True)

    def test_a_folder_is_made_if_it_may_be(self):
        path = os.path.join(self.folder, "a/b/s")
        self.listen(path)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        self.refused("No such file or directory: name a socket in a folder that this user has or can make", os.path.join(self.folder, "c/s"), private=False)
        open(os.path.join(self.folder, "file"), "w", encoding="utf-8").close()
        self.refused("name a socket in a folder that this user has or can make", os.path.join(self.folder, "file/d/s"))

    def test_a_path_that_is_too_long(self):
        most = os.path.join(self.folder, "x" * (_listen.PATH_MOST - len(self.folder) - 1))
        self.listen(most)
        self.connects(most)
        self.refused(f"its name has {_listen.PATH_MOST + 1} bytes, and a socket's at most {_listen.PATH_MOST}: name a shorter one", most + "x")

    def test_a_stale_socket_is_replaced_and_a_file_is_not(self):
        self.listen().close()
        self.assertTrue(os.path.exists(self.path))
        self.listen()
        self.connects()
        self.refused("another template listens there; end it, or name another path")
        os.unlink(self.path)
        open(self.path, "w", encoding="utf-8").close()
        self.refused("this file exists and is not a socket; remove it, or name another path")
        os.unlink(self.path)
        os.symlink("/nowhere", self.path)
        self.refused("is not a socket")

    def test_one_that_takes_no_connection_is_not_waited_for(self):
        with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as waits:
            full.bind(self.path)
            full.listen(0)
            waits.connect(self.path)
            began = time.monotonic()
            self.refused("a process listens there and takes no connection; end it")
            self.assertLess(time.monotonic() - began, 5)
            self.assertTrue(os.path.exists(self.path))

    def test_of_many_that_start_at_once_one_listens(self):
        """Also where a stale socket lies at the path, which each of them would remove."""
        for stale in (False, True):
            if stale:
                os.unlink(self.path)
                self.listen().close()
            code = ("import sys, time; from medusa import _listen\nlook = _listen._remove_dead\n"
                    "_listen._remove_dead = lambda path: look(path) or time.sleep(0.1)  # as long as it takes others to come here\ntry:\n made = _listen.listen(sys.argv[1], True, 16); print('listens', flush=True)\n"
                    "except _listen.Failed as why:\n print(why, flush=True)\nsys.stdin.read()")
            started = [subprocess.Popen([sys.executable, "-c", code, self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) for _ in range(8)]
            said = [process.stdout.readline() for process in started]
            self.connects()
            for process in started:
                process.communicate(timeout=20)
            self.assertEqual(sorted(line == "listens\n" for line in said), [False] * 7 + [True], said)
            self.assertEqual(sum("another template listens there" in line for line in said), 7, said)

    def test_the_template_says_it_before_it_imports(self):
        os.chmod(self.folder, 0o777)
        done = subprocess.run([*TEMPLATE, self.path, "no_such_module"], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"medusa.template: {self.folder}: others may write to this folder (mode 777 of user", done.stderr)


if __name__ == "__main__":
    unittest.main()
