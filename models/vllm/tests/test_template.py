# SPDX-License-Identifier: Apache-2.0
"""Engines that come from a template: what they are given, how they end, and what is refused. Real processes, sockets and forks."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

from serving import IMAGE, HOST_ENGINE, LIBRARY, NAMED_THREADS, Run, Serving, alive, have_ended, wait_until, write

COMMAND = [sys.executable, "-m", "medusa_vllm.template"]
VARIES = ("MEDUSA_TEMPLATE", "_")  # of the environment of two starts that are the same


class Templates(Serving):
    def template(self, *options, before=(), **environment):
        """Starts one, and waits until it listens."""
        self.socket = os.path.join(self.folder, "run/socket")
        process = subprocess.Popen([*before, *COMMAND, "--socket", self.socket, *options], env={**self.environment, **environment},
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.said = ""
        for line in process.stderr:
            process.said += line
            if "medusa-vllm-template: ready" in line:
                return process
        process.wait()
        return process

    def client(self, *more):
        return [*COMMAND, "run", "--socket", self.socket, *more, "--"]

    def run_one(self, *orders, require=True, before=(), **options):
        return self.serve(*orders, before=(*before, *self.client(*(["--require"] if require else []))), **options)

    def start_one(self, *orders, environment=None):
        given = {**self.environment, "LD_PRELOAD": LIBRARY, **(environment or {})}
        process = subprocess.Popen([*self.client("--require"), "vllm", "serve", "model", *orders], env=given, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        process.server = json.loads(process.stdout.readline())
        process.core = json.loads(process.stdout.readline())
        return process

    def assert_refused(self, run, why):
        self.assertEqual(run.code, 125, run)
        self.assertIn(why, run.said, run)
        self.assertEqual(self.counted("standin_server"), 0, run)


class Given(Templates):
    def test_two_engines_import_nothing_anew(self):
        template = self.template()
        self.assertIn("ready", template.said)
        runs = [self.run_one(), self.run_one()]
        for run in runs:
            self.assertEqual(run.code, 0, run)
            self.assertIn("the engine core's process was forked", run.said)
        self.assertEqual((self.counted(), self.counted("vllm.v1.engine.core"), self.counted("vllm.v1.worker.gpu_worker")), (1, 1, 1))
        self.assertNotEqual(runs[0].found["pid"], runs[1].found["pid"])

    def test_two_engines_draw_other_numbers(self):
        write(os.path.join(self.folder, "site/numpy/__init__.py"), "from . import random\n")
        write(os.path.join(self.folder, "site/numpy/random.py"), "import os\nvalue = 1\ndef random():\n    return value\n"
              "def seed():\n    global value\n    value = os.urandom(8).hex()\n")
        with open(os.path.join(self.folder, "site/vllm/many/m7.py"), "a", encoding="utf-8") as file:
            file.write("import numpy\n")
        self.template()
        found = [self.run_one().found for _ in range(2)]
        for name in ("random", "numpy", "authkey"):
            self.assertNotEqual(found[0][name], found[1][name])

    def test_an_engine_is_what_its_command_starts(self):
        self.template()
        where = os.path.join(self.folder, "elsewhere")
        os.mkdir(where)
        given = {"cwd": where, "umask": 0o027, "environment": {"SOME_SETTING": "a\nb \\ ü", "VLLM_LATE": "1"}}
        for before, code in (((), 5), ((sys.executable, "-m", "vllm.entrypoints.cli.main"), 0)):
            with self.subTest(before):
                runs = []
                for client in (self.client("--require"), []):
                    run = self.serve("code=5", before=client, **given) if not before else self.module(client, before, **given)
                    self.assertEqual(run.code, code, run)
                    self.assertIn("was forked", run.said, run)
                    runs.append(run.found)
                for found in runs:
                    for key in ("parent", "server", "pid", "session", "random", "authkey", "gc_while_importing"):
                        found.pop(key, None)
                    for environment in (found["environment"], found["core"]["environment"]):
                        for name in VARIES:
                            environment.pop(name, None)
                    found["core"]["place"].pop("process group")
                    found["core"]["standard"] = [link.split(":")[0] for link in found["core"]["standard"]]
                self.assertEqual(runs[0], runs[1])

    def module(self, client, command, cwd, umask, environment):
        given = {**self.environment, "LD_PRELOAD": LIBRARY, **environment}
        done = subprocess.run([*client, *command, "serve", "model", "code=5"], env=given, cwd=cwd, umask=umask, capture_output=True,
                              text=True, timeout=60)
        return Run(done.returncode, done.stdout, done.stderr)

    def test_a_variable_of_the_template_is_not_the_engines(self):
        self.template(ONLY_THE_TEMPLATE="1", MEDUSA_LOG="error")
        run = self.run_one(environment={"MEDUSA_LOG": "debug"})
        self.assertEqual(run.code, 0, run)
        self.assertNotIn("ONLY_THE_TEMPLATE", run.found["environment"])
        self.assertNotIn("ONLY_THE_TEMPLATE", run.found["core"]["environment"])

    def test_it_has_a_session_of_its_own_and_the_clients_input(self):
        self.template()
        path = os.path.join(self.folder, "in")
        with open(path, "w+", encoding="utf-8") as file:
            run = self.run_one(stdin=file)
        self.assertEqual(run.code, 0, run)
        self.assertTrue(run.found["session"])
        self.assertEqual(run.found["core"]["standard"][0], path)

    def test_a_template_without_standard_descriptors(self):
        self.template(before=("sh", "-c", 'exec <&- >&-; exec "$@"', "sh"))
        run = self.run_one("code=5")
        self.assertEqual(run.code, 5, run)
        self.assertEqual(run.found["core"]["queue"], "through the queue", run)
        for closed in ("<&-", "<&- >&-"):
            with self.subTest(closed):
                run = self.run_one("code=6", before=("sh", "-c", f'exec {closed}; exec "$@"', "sh"))
                self.assertEqual(run.code, 6, run)
                self.assertIn("the engine core's process was forked", run.said)

    def test_the_client_ends_as_the_engine_does(self):
        self.template()
        self.assertEqual(self.run_one("code=3").code, 3)
        self.assertEqual(self.run_one(f"signal={int(signal.SIGKILL)}").code, -signal.SIGKILL)
        self.assertEqual(self.run_one(f"signal={int(signal.SIGSEGV)}").code, -signal.SIGSEGV)

    @unittest.skipUnless(os.path.exists(IMAGE), "no hostcuda")
    def test_two_artifacts_from_one_template(self):
        runs = {fact: self.captured(fact, f"fact={fact}") for fact in ("a", "b")}
        self.template()
        for artifact, orders in runs.values():
            self.assert_restored(self.restored(artifact, orders), True)
        other = self.restored(runs["a"][0], runs["b"][1])
        self.assert_restored(other, False)
        self.assertIn('fact "code": artifact has a, this engine b', other.said, other)

    @unittest.skipUnless(os.path.exists(IMAGE), "no hostcuda")
    def test_arguments_are_compared_as_in_a_start_from_nothing(self):
        artifact, orders = self.captured("plain", "nofacts=1")
        self.template()
        self.assert_restored(self.restored(artifact, orders), True)
        other = self.restored(artifact, [*orders, "more=1"])
        self.assert_restored(other, False)
        self.assertIn('argument 7 is "more=1", the artifact was captured with none there', other.said, other)

    def captured(self, name, *more):
        artifact, orders = os.path.join(self.folder, name + ".medusa"), [f"image={IMAGE}", f"engine={HOST_ENGINE}", *more]
        run = self.serve(*orders, before=("medusa-capture", "-o", artifact, "--"), preload=False)
        self.assertEqual(run.code, 0, run)
        return artifact, orders

    def restored(self, artifact, orders):
        return self.serve(*orders, before=("medusa-restore", artifact, "--", *self.client("--require")), preload=False)

    def assert_restored(self, run, restored):
        self.assertEqual(run.code, 0, run)
        self.assertEqual([(graph["restored"], graph["equal"]) for graph in run.graphs], [(restored, True)] * 2, run)


class Signals(Templates):
    def test_they_are_passed_on(self):
        self.template()
        engine = self.start_one("wait=20", "core_waits=20", "graceful=1")
        engine.send_signal(signal.SIGUSR1)
        self.assertEqual(engine.stdout.readline(), "usr1\n")
        engine.terminate()
        self.assertEqual(engine.stdout.readline(), "graceful\n")
        self.assertEqual(engine.wait(20), 7)
        os.kill(engine.core["pid"], signal.SIGKILL)  # this server has ended without its engine core

    def test_a_killed_client_takes_its_engine_along(self):
        template = self.template()
        engine = self.start_one("wait=60", "core_waits=60")
        engine.kill()
        have_ended(engine.server["server"], engine.core["pid"])
        self.assertIsNone(template.poll())

    def test_a_killed_engine_leaves_the_template(self):
        self.template()
        engine = self.start_one("wait=60", "core_waits=1")
        os.kill(engine.server["server"], signal.SIGKILL)
        self.assertEqual(engine.wait(20), -signal.SIGKILL)
        self.assertEqual(self.run_one().code, 0)

    def test_a_killed_template_leaves_its_engines(self):
        template = self.template()
        engine = self.start_one("wait=1", "code=9")
        template.kill()
        template.wait()
        self.assertEqual(engine.wait(20), 9)

    def test_an_ended_template_leaves_its_engines_and_no_socket(self):
        template = self.template()
        engine = self.start_one("wait=1", "code=9")
        template.terminate()
        self.assertEqual(template.wait(20), 0)
        self.assertFalse(os.path.exists(self.socket))
        self.assertEqual(engine.wait(20), 9)

    def test_a_killed_watcher_takes_its_engine_along(self):
        self.template()
        engine = self.start_one("wait=60", "core_waits=1")
        os.kill(engine.server["parent"], signal.SIGKILL)
        self.assertEqual(engine.wait(20), 125)
        have_ended(engine.server["server"])
        self.assertIn("was killed", engine.stderr.read())

    def test_a_killed_core_is_the_engines_matter(self):
        self.template()
        engine = self.start_one("core_waits=60", "code=4")
        os.kill(engine.core["pid"], signal.SIGKILL)
        self.assertEqual(json.loads(engine.stdout.readline()), {"exitcode": -9})
        self.assertEqual(engine.wait(20), 4)

    def test_nothing_is_left_behind(self):
        template = self.template()
        self.assertEqual(self.run_one().code, 0)
        wait_until(lambda: not children(template.pid), "without children")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return file.read().split()


class Refusals(Templates):
    def assert_without(self, run, why):
        self.assertEqual(run.code, 0, run)
        self.assertIn("starts without the template: " + why, run.said, run)
        self.assertIn("core", run.found, run)

    def test_no_template(self):
        self.socket = os.path.join(self.folder, "none")
        self.assert_without(self.run_one(require=False), self.socket + ": No such file or directory")
        run = self.run_one()
        self.assertEqual(run.code, 125, run)

    def test_a_template_that_does_not_answer(self):
        template = self.template()
        os.kill(template.pid, signal.SIGSTOP)
        try:
            # Pipes would stay open, because the template has not taken them yet.
            with open(os.path.join(self.folder, "out"), "w+", encoding="utf-8") as out:
                code = subprocess.call([*self.client(), "vllm", "serve", "model", "code=6"], env={**self.environment, "LD_PRELOAD": LIBRARY},
                                       stdout=out, stderr=out, timeout=60)
                out.seek(0)
                said = out.read()
            self.assertEqual(code, 6, said)
            self.assertIn(f"starts without the template: {self.socket}: timed out", said)
        finally:
            os.kill(template.pid, signal.SIGCONT)
        self.assertEqual(self.run_one().code, 0)

    def test_a_changed_file_is_named(self):
        self.template()
        path = os.path.join(self.folder, "site/vllm/many/m7.py")
        with open(path, "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.assert_refused(self.run_one(), f"{path} has changed since the template imported it")
        self.assert_without(self.run_one(require=False), path)

    def test_a_removed_file_is_named(self):
        self.template()
        path = os.path.join(self.folder, "site/vllm/many/m7.py")
        os.unlink(path)
        self.assert_refused(self.run_one(), f"{path} has changed since the template imported it")

    def test_a_variable_that_imports_have_read_is_named(self):
        with open(os.path.join(self.folder, "site/vllm/many/m7.py"), "a", encoding="utf-8") as file:
            file.write("os.environ.get('HF_HOME')\nos.environ.setdefault('SET_BY_IMPORT', 'yes')\nos.environ.copy()\n"
                       "dict(os.environ.items())\n{**os.environ}\n")
        self.template()
        self.assert_refused(self.run_one(environment={"HF_HOME": "/elsewhere"}), "the environment variable HF_HOME was read")
        self.assert_refused(self.run_one(environment={"OMP_NUM_THREADS": "3"}), "the environment variable OMP_NUM_THREADS was read")
        self.assert_refused(self.run_one(preload=False), "the environment variable LD_PRELOAD was read")
        run = self.run_one(environment={"NEVER_READ": "1", "CUDA_VISIBLE_DEVICES": "3"})
        self.assertEqual((run.code, run.found["environment"]["SET_BY_IMPORT"]), (0, "yes"), run)
        self.assert_refused(self.run_one(environment={"SET_BY_IMPORT": "no"}), "the environment variable SET_BY_IMPORT was read")

    def test_a_variable_may_be_let_vary(self):
        with open(os.path.join(self.folder, "site/vllm/many/m7.py"), "a", encoding="utf-8") as file:
            file.write("os.environ.get('TERM')\n")
        self.template("--vary", "TERM")
        self.assertEqual(self.run_one(environment={"TERM": "another"}).code, 0)

    def test_another_python_or_command(self):
        self.template()
        run = subprocess.run([*self.client("--require"), "/bin/true"], env={**self.environment, "LD_PRELOAD": LIBRARY},
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 125, run)
        self.assertIn("/bin/true: neither vllm nor python -m", run.stderr)
        link = os.path.join(self.folder, "python")
        os.symlink(sys.executable, link)
        run = subprocess.run([*self.client("--require"), link, "-m", "vllm.entrypoints.cli.main", "serve"],
                             env={**self.environment, "LD_PRELOAD": LIBRARY}, capture_output=True, text=True, timeout=60)
        self.assertIn(f"{link} is not the template's Python", run.stderr)

    def test_what_cannot_be_set_is_refused(self):
        self.template()
        run = self.run_one(before=("sh", "-c", f"mkdir '{self.folder}/gone' && cd '{self.folder}/gone' && rmdir '{self.folder}/gone' && exec \"$@\"", "sh"),
                           require=True)
        self.assertEqual(run.code, 125, run)

    def test_usage(self):
        for arguments, why in (([], "--socket PATH is missing"), (["--socket"], "--socket needs a value"), (["--what"], "--what is not an option"),
                               (["run", "--socket", "x"], "run needs --"), (["--socket", "x", "--", "vllm"], "needs the word run"),
                               (["--socket", "x", "--require"], "--require is not an option")):
            done = subprocess.run([*COMMAND, *arguments], env=self.environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 125)
            self.assertIn(why, done.stderr)


class NoTemplate(Templates):
    def assert_none(self, why, *options, **environment):
        template = self.template(*options, **environment)
        self.assertEqual(template.wait(), 125, template.said)
        self.assertIn(why, template.said)

    def test_a_folder_that_others_may_use(self):
        os.mkdir(os.path.join(self.folder, "run"), 0o755)
        self.assert_none("others may use this folder (mode 755 of user")

    def test_a_second_one(self):
        first = self.template()
        path = self.socket
        self.assert_none(f"{path}: another template listens there")
        self.assertIsNone(first.poll())
        self.assertEqual(self.run_one().code, 0)

    def test_after_a_killed_one(self):
        first = self.template()
        first.kill()
        first.wait()
        self.template()
        self.assertEqual(self.run_one().code, 0)

    def test_a_file_that_is_no_socket(self):
        os.mkdir(os.path.join(self.folder, "run"), 0o700)
        open(os.path.join(self.folder, "run/socket"), "w", encoding="utf-8").close()
        self.assert_none("this file exists and is not a socket")

    def test_an_artifact(self):
        self.assert_none("MEDUSA_ARTIFACT is set", MEDUSA_ARTIFACT="/x.medusa", LD_PRELOAD=LIBRARY)

    def test_threads(self):
        with open(os.path.join(self.folder, "site/vllm/many/m3.py"), "a", encoding="utf-8") as file:
            file.write(NAMED_THREADS.format(["worker", "jemalloc_bg_thd"]))
        self.assert_none("vllm.entrypoints.cli.serve cannot be in a template, which cannot be forked after this import: threads of C libraries are running (worker)",
                         "--import", "vllm.entrypoints.cli.serve")

    @unittest.skipUnless(os.path.exists(IMAGE), "no hostcuda")
    def test_a_device_in_use(self):
        with open(os.path.join(self.folder, "site/vllm/many/m3.py"), "a", encoding="utf-8") as file:
            file.write("import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        self.assert_none("vllm.entrypoints.cli.serve cannot be in a template, which cannot be forked after this import: cuInit was called",
                         "--import", "vllm.entrypoints.cli.serve")

    def test_what_cannot_be_forked_is_left_out(self):
        for name, text in (("threads", "import _thread, time\n_thread.start_new_thread(time.sleep, (60,))\n"),
                           ("a module that fails", "raise RuntimeError('it fails')\n")):
            with self.subTest(name):
                with open(os.path.join(self.folder, "site/vllm/v1/worker/gpu_worker.py"), "r+", encoding="utf-8") as file:
                    before = file.read()
                    file.write("import os\nif not os.environ.get('ENGINE'):\n    " + text.replace("\n", "\n    "))
                    file.write("\n")
                template = self.template()
                self.assertIn("vllm.v1.worker.gpu_worker", template.said)
                run = self.run_one(environment={"ENGINE": "1"}) if name == "threads" else None
                self.assertTrue(run is None or run.code == 0, run)
                template.kill()
                template.wait()
                write(os.path.join(self.folder, "site/vllm/v1/worker/gpu_worker.py"), before)

    def test_no_such_module(self):
        self.assert_none("no.such.module", "--import", "no.such.module")

    def test_another_version(self):
        with open(os.path.join(self.folder, "site/vllm/__init__.py"), "a", encoding="utf-8") as file:
            file.write("__version__ = '0.99.1'\n")
        self.assert_none("vLLM 0.99.1 was never tried")


class Hostile(Templates):
    def ask(self, data, descriptors=()):
        """What the template answers before it closes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(self.socket)
            try:
                if descriptors:
                    socket.send_fds(connection, [data[:1]], list(descriptors))
                    data = data[1:]
                connection.sendall(data)
            except OSError:
                pass
            answer = b""
            try:
                while part := connection.recv(4096):
                    answer += part
            except ConnectionResetError:
                pass
            return answer.decode()

    def whole(self, **changes):
        from medusa_vllm import inherited

        request = {"version": 1, "start": {"python": sys.executable, "arguments": ["x"], "module": "vllm.entrypoints.cli.main", "rest": []},
                   "environment": {**self.environment, "LD_PRELOAD": LIBRARY}, "settings": inherited.settings(), "fixed": inherited.fixed(),
                   "standard": []}
        return json.dumps({**request, **changes}).encode() + b"\n"

    def test_requests(self):
        template = self.template()
        limits = {"settings": {"folder": "/", "umask": 0, "nice": 0, "processors": [0], "ignored": [], "blocked": [], "limits": {"RLIMIT_NOFILE": "x"}}}
        for data, why in (
            (b"\n", "not JSON"), (b"{}\n", "version"), (b"[1]\n", "version"), (b"[" * 100000 + b"\n", "not JSON"), (b"\xff\xfe\n", "not JSON"),
            (self.whole(version=2), "version"), (self.whole(start={}), "start"), (self.whole(environment={"a": 1}), "environment"),
            (self.whole(environment={"a=b": "1"}), "environment"), (self.whole(environment={"a": "\0"}), "environment"),
            (self.whole(settings={}), "settings"), (self.whole(fixed=[]), "fixed"), (self.whole(standard=[0]), "descriptors"),
            (self.whole(standard=[7]), "standard"), (self.whole(standard=[1, 0]), "standard"), (self.whole(standard=[[0]]), "standard"), (self.whole(standard=[0, "a"]), "standard"),
            (self.whole(standard={}), "standard"), (self.whole(fixed={"Uid": "1"}), "client's"),
            (self.whole(**limits), "ValueError"), (self.whole(settings={**limits["settings"], "limits": {}, "folder": "/no/such"}), "FileNotFoundError"),
            (b"x" * (5 << 20), "too large"),
        ):
            with self.subTest(data[:60]):
                answer = self.ask(data)
                self.assertIn("refused", answer)
                self.assertIn(why, answer)
        self.assertIn("too large", self.ask(b"{}\n", [0] * 9))
        self.assertIsNone(template.poll())
        self.assertEqual(self.run_one().code, 0)

    def test_one_who_says_nothing_is_left(self):
        template = self.template()
        silent = []
        for _ in range(80):
            connection = socket.socket(socket.AF_UNIX)
            self.addCleanup(connection.close)
            connection.connect(self.socket)
            silent.append(connection)
        silent[0].sendall(b"{")
        wait_until(lambda: closed(silent[0]), "closed")
        self.assertEqual(self.run_one().code, 0)
        self.assertIsNone(template.poll())

    def test_one_who_never_says_go_gets_no_engine(self):
        template = self.template()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.socket)
        connection.settimeout(20)
        connection.sendall(self.whole())
        engine = json.loads(connection.recv(4096))["started"]
        self.assertTrue(alive(engine))
        connection.close()
        have_ended(engine)
        self.assertEqual(self.counted("standin_server"), 0)
        wait_until(lambda: not children(template.pid), "without children")

    def test_one_who_talks_nonsense_to_the_watcher_loses_its_engine(self):
        self.template()
        for word in (b"{}\n", b'{"signal": 99}\n', b'{"signal": "x"}\n', b"x" * 9000):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.socket)
            connection.settimeout(20)
            connection.sendall(self.whole())
            engine = json.loads(connection.recv(4096))["started"]
            connection.sendall(word)
            have_ended(engine)
            connection.close()


def closed(connection):
    connection.settimeout(0.05)
    try:
        return b"" in (connection.recv(4096), connection.recv(4096))
    except TimeoutError:
        return False
    except OSError:
        return True


OTHER = 65534  # nobody
LISTENS = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[2])
    listening.listen()
    print("ready", flush=True)
    connection, _ = listening.accept()
    print(len(connection.recv(1)))
"""
ASKS = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(20)
    connection.connect(sys.argv[2])
    try:
        connection.sendall(b"{}\\n")
        print(connection.recv(4096))
    except (BrokenPipeError, ConnectionResetError):
        print(b"")
"""


@unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
class Users(Templates):
    """Only the peer's user decides here: the rights of folder and socket let everybody in."""

    def ask_as(self, user):
        return subprocess.run([sys.executable, "-c", ASKS, str(user), self.socket], capture_output=True, text=True, timeout=60, check=True).stdout

    def test_another_user_is_not_answered(self):
        template = self.template()
        os.chmod(self.folder, 0o711)
        os.chmod(os.path.dirname(self.socket), 0o711)
        os.chmod(self.socket, 0o666)
        self.assertIn("refused", self.ask_as(0))
        self.assertEqual(self.ask_as(OTHER), "b''\n")
        self.assertIsNone(template.poll())

    def test_another_users_template_is_given_nothing(self):
        folder = os.path.join(self.folder, "open")
        self.socket = os.path.join(folder, "socket")
        os.chmod(self.folder, 0o711)
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        with subprocess.Popen([sys.executable, "-c", LISTENS, str(OTHER), self.socket], stdout=subprocess.PIPE, text=True) as listener:
            self.addCleanup(listener.kill)
            self.assertEqual(listener.stdout.readline(), "ready\n")
            run = self.run_one()
            self.assert_refused(run, f"{self.socket}: user {OTHER} listens there, not user 0")
            self.assertEqual(listener.stdout.readline(), "0\n")


class Many(Templates):
    def test_engines_at_once(self):
        self.template()
        runs = []
        threads = [threading.Thread(target=lambda code=code: runs.append((code, self.run_one(f"code={code}").code))) for code in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([code for code, _ in runs], [found for _, found in runs])
        self.assertEqual(self.counted(), 1)


if __name__ == "__main__":
    unittest.main()
