# SPDX-License-Identifier: Apache-2.0
"""A stand-in for `vllm serve` in real processes: modules of vLLM's names whose imports are counted, a server, an engine core.

The engine core says what it was given (environment, descriptors, signals ...), runs the engine of models/torch/tests on
hostcuda if there is an image of kernels, and ends as its orders say.
"""
import json
import os
import site
import subprocess
import sys
import tempfile
import time
import unittest

import medusa
import medusa_vllm

BUILD = os.environ.get("MEDUSA_BUILD", "")
LIBRARY = os.path.join(BUILD, "lib/libmedusa-restore.so")
IMAGE = os.path.join(BUILD, "tests/images/arith.host.so")
PLACES = [os.path.dirname(os.path.dirname(os.path.abspath(module.__file__))) for module in (medusa, medusa_vllm)]
HOST_ENGINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../torch/tests/host_engine.py")
# Text of a module that starts threads of these names, as C libraries do.
NAMED_THREADS = """
import _thread, ctypes, os, time
def wait(name, seconds):
    ctypes.CDLL(None).prctl(15, name.encode())
    time.sleep(seconds)
if "--multiprocessing-fork" not in __import__("sys").argv:
    for name in {}:
        _thread.start_new_thread(wait, (name, 600))
        while name + "\\n" not in [open(f"/proc/self/task/{{task}}/comm").read() for task in os.listdir("/proc/self/task")]:
            time.sleep(0.001)
"""
MANY = 30  # modules that stand for the thousands

COUNTED = """
import os
with open(os.environ["IMPORTS"], "a") as file:
    file.write(f"{os.getpid()} {__name__}\\n")
"""
MODULES = {
    "vllm": "from .version import __version__\n", "vllm.version": "__version__ = '0.26.0'\n",
    "vllm.plugins": "def load_general_plugins():\n    pass\n",
    "vllm.entrypoints": "", "vllm.entrypoints.cli": "", "vllm.entrypoints.serve": "", "vllm.entrypoints.serve.utils": "",
    "vllm.entrypoints.serve.utils.api_utils": """
import os
def cli_env_setup():
    if "VLLM_WORKER_MULTIPROC_METHOD" not in os.environ:
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
""",
    "vllm.entrypoints.cli.serve": "\n".join(f"import vllm.many.m{number}" for number in range(MANY)),
    "vllm.entrypoints.cli.main": """
def main():
    import vllm.entrypoints.cli.serve
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    cli_env_setup()
    import standin_server
    return standin_server.main()
if __name__ == "__main__":
    main()
""",
    "vllm.many": "", **{f"vllm.many.m{number}": "import gc\nGC = gc.isenabled()\n" for number in range(MANY)},
    "vllm.v1": "", "vllm.v1.engine": "", "vllm.v1.executor": "", "vllm.v1.worker": "",
    "vllm.v1.engine.core": """
import vllm.entrypoints.cli.serve
class EngineCoreProc:
    @staticmethod
    def run_engine_core(*, vllm_config, orders, reply, queue, dp_rank=0, local_dp_rank=0):
        import standin_server
        standin_server.core(orders, reply, queue)
""",
    "vllm.v1.executor.uniproc_executor": "",
    "vllm.v1.worker.gpu_worker": "class Worker: pass\n",
}
SERVER = """
import json, multiprocessing, os, resource, runpy, signal, sys, time, types

def _orders():
    return dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)

def main():
    # a server: signal handlers, a raised limit, another umask would be possible; then the engine core
    from vllm.v1.engine.core import EngineCoreProc
    orders = _orders()
    def ended(*_):
        if orders.get("graceful"):
            print("graceful", flush=True)
            os._exit(7)
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 777), hard))
    for name, value in (word.split(":") for word in orders.get("env", "").split(",") if word):
        os.environ[name] = value
    if "input" in orders:
        os.dup2(os.open(orders["input"], os.O_RDONLY), 0)
    if "umask" in orders:
        os.umask(int(orders["umask"], 8))
    if "kill_core" in orders:
        from medusa_vllm import inherited
        for name in os.listdir("/proc"):
            if name.isdigit() and f"PPid:\\t{os.getpid()}\\n" in inherited._read(f"/proc/{name}/status"):
                os.kill(int(name), int(orders["kill_core"]))
    context = multiprocessing.get_context(os.environ["VLLM_WORKER_MULTIPROC_METHOD"])
    listens, reply = context.Pipe(duplex=False)
    queue = context.Queue()
    queue.put("through the queue")
    parallel = types.SimpleNamespace(data_parallel_size=int(orders.get("dp", 1)), world_size=1, nnodes=1)
    config = types.SimpleNamespace(parallel_config=parallel)
    process = context.Process(target=EngineCoreProc.run_engine_core, name="EngineCore",
                              kwargs={"vllm_config": config, "orders": orders, "reply": reply, "queue": queue})
    process.start()
    reply.close()
    import gc, random
    print(json.dumps({"random": random.random(), "numpy": sys.modules["numpy"].random.random() if "numpy" in sys.modules else None,
                      "authkey": multiprocessing.current_process().authkey.hex(), "gc": gc.isenabled(),
                      "gc_while_importing": sys.modules["vllm.many.m1"].__dict__.get("GC"), "server": os.getpid(), "parent": os.getppid(), "argv": sys.argv, "main": sys.modules["__main__"].__file__,
                      "environment": {k: v for k, v in os.environ.items()}, "folder": os.getcwd(),
                      "path": sys.path[0], "session": os.getsid(0) == os.getpid()}), flush=True)
    try:
        print(json.dumps({"core": listens.recv(), "pid": process.pid}), flush=True)
    except EOFError:
        pass
    if "wait" in orders:
        time.sleep(float(orders["wait"]))
    process.join()
    print(json.dumps({"exitcode": process.exitcode}), flush=True)
    if "signal" in orders:
        os.kill(os.getpid(), int(orders["signal"]))
    return int(orders.get("code", 0))

def links():
    found = {}
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            found[str(number)] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            pass
    return found

def core(orders, reply, queue):
    import medusa_vllm.inherited as inherited
    import multiprocessing.resource_tracker as tracker
    import importlib
    importlib.import_module("vllm.v1.worker.gpu_worker")
    parent = multiprocessing.parent_process()
    given = {"environment": dict(os.environ), "argv": sys.argv, "settings": inherited.settings(), "fixed": inherited.fixed(),
             "place": inherited.place(), "standard": [links().get(str(number)) for number in (0, 1, 2)],
             "terminates": str(signal.getsignal(signal.SIGTERM)), "interrupts": str(signal.getsignal(signal.SIGINT)),
             "usr1": str(signal.getsignal(signal.SIGUSR1)), "name": multiprocessing.current_process().name,
             "parent_is_server": os.getppid() == parent.pid, "queue": queue.get(timeout=60), "daemon": multiprocessing.current_process().daemon,
             "start_method": multiprocessing.get_start_method(allow_none=True), "tracker": tracker._resource_tracker._fd is not None}
    reply.send(given)
    reply.close()
    if "image" in orders:
        if "nofacts" in orders:  # then the arguments of the process are compared
            from medusa import _api
            _api.fingerprint_add = lambda name, value: None
        sys.argv = ["host_engine.py", orders["image"], f"fact={orders.get('fact', 'none')}", orders.get("more", "")]
        runpy.run_path(orders["engine"])
    if "core_waits" in orders:
        time.sleep(float(orders["core_waits"]))
    if "core_signal" in orders:
        os.kill(os.getpid(), int(orders["core_signal"]))
    sys.exit(int(orders.get("core_code", 0)))
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


@unittest.skipUnless(os.path.exists(LIBRARY), "MEDUSA_BUILD names no build")
@unittest.skipIf(os.environ.get("SAN"), "Python itself is not sanitized, and a sanitized library cannot be preloaded into it")
class Serving(unittest.TestCase):
    """A folder with the stand-in, its command `vllm`, and a place where Python reads the packages' .pth files."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.addCleanup(self.assert_nothing_is_left)
        for name, text in MODULES.items():
            is_package = any(other.startswith(name + ".") for other in MODULES)
            write(os.path.join(self.folder, "site", *name.split("."), "__init__.py") if is_package else
                  os.path.join(self.folder, "site", *name.split(".")) + ".py", COUNTED + text)
        write(os.path.join(self.folder, "site/standin_server.py"), SERVER)
        write(os.path.join(self.folder, "site/torch.py"), "raise ImportError('PyTorch takes seconds and is not needed here')\n")
        write(os.path.join(self.folder, "site/sitecustomize.py"),
              "import logging, site\nlogging.basicConfig(level=logging.INFO)\n" + "".join(f"site.addsitedir({place!r})\n" for place in PLACES))
        self.vllm = os.path.join(self.folder, "bin/vllm")
        write(self.vllm, f"#!{sys.executable}\nimport sys\nfrom vllm.entrypoints.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
        os.chmod(self.vllm, 0o755)
        self.imports = os.path.join(self.folder, "imports")
        open(self.imports, "w", encoding="utf-8").close()
        self.environment = {**os.environ, "PYTHONPATH": os.path.join(self.folder, "site"), "PYTHONDONTWRITEBYTECODE": "1",
                            "PYTHONUNBUFFERED": "1", "IMPORTS": self.imports, "MEDUSA_LOG": "info",
                            "PATH": os.path.dirname(self.vllm) + ":" + os.path.join(BUILD, "bin") + ":" + os.environ["PATH"]}
        self.environment.pop("VLLM_WORKER_MULTIPROC_METHOD", None)

    def assert_nothing_is_left(self):
        """The processes of a test have this variable from their start, also those that are forked."""
        mark = f"IMPORTS={self.imports}".encode()
        wait_until(lambda: not processes_with(mark), lambda: f"without processes: {processes_with(mark)}", 15)

    def counted(self, name="vllm.many.m0"):
        """Processes that have imported a module."""
        with open(self.imports, encoding="utf-8") as file:
            return len({line.split()[0] for line in file if line.split()[1] == name})

    def serve(self, *orders, before=(), preload=True, environment=None, **options):
        """A finished run: exit code, and what its lines of JSON say, put together; .text, .said: all of it."""
        given = {**self.environment, **({"LD_PRELOAD": LIBRARY} if preload else {}), **(environment or {})}
        done = subprocess.run([*before, "vllm", "serve", "model", *orders], env=given, capture_output=True, text=True, timeout=60, **options)
        return Run(done.returncode, done.stdout, done.stderr)


def objects(line):
    """The JSON objects of a line. Two processes that print at once may leave no line feed between theirs."""
    decoder, at = json.JSONDecoder(), 0
    while line.startswith("{", at):
        found, at = decoder.raw_decode(line, at)
        yield found


class Run:
    def __init__(self, code, text, said):
        self.code, self.text, self.said = code, text, said
        self.graphs, self.found = [], {}
        for line in text.splitlines():
            for found in objects(line):
                if "batch" in found:
                    self.graphs.append(found)
                else:
                    self.found.update(found)

    def __repr__(self):
        return f"exit {self.code}\n{self.text[-1500:]}\n{self.said[-3000:]}"


def wait_until(true, what, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s: not {what if isinstance(what, str) else what()}")
        time.sleep(0.01)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes_with(variable):
    """Process ids and command lines."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and variable in _read(f"/proc/{name}/environ").split(b"\0")]
    return {pid: _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")[:120] for pid in found if alive(pid)}


def have_ended(*pids):
    wait_until(lambda: not any(map(alive, pids)), f"ended: {pids}")
