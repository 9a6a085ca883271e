# SPDX-License-Identifier: Apache-2.0
"""A process that was forked from a template becomes the Python command that it is to run."""
from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import multiprocessing.process
import os
import re
import signal
import socket
import sys
import types
from typing import Any, Dict, List, NamedTuple

from . import _listen

# Threads that a fork can do without: libraries start them again (jemalloc), or have one for each process (the driver).
DISPENSABLE = re.compile(r"jemalloc_bg_thd|cuda[0-9]+")


def threads() -> List[str]:
    """Names of threads that a fork would lack, those of C libraries, too."""
    found = []
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{number}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
            if int(number) != os.getpid() and not DISPENSABLE.fullmatch(name):
                found.append(name or "without a name")
    return sorted(found)


def has_device() -> bool:
    """Whether this process has called cuInit, after which its forks could not use a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != 3)  # CUDA_ERROR_NOT_INITIALIZED


# ---- which command it is ----


class Start(NamedTuple):
    argv: List[str]
    script: str  # "": a module
    module: str
    rest: List[str]
    unbuffered: bool


def find(program: str, environment: Dict[str, str], folder: str) -> str:
    """As execvp(3) does."""
    if "/" in program:
        return os.path.join(folder, program)
    for place in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, place, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise ValueError(f"{program}: no such command")


def is_this_python(path: str) -> bool:
    """In a virtual environment, the folder tells which packages there are; names in one folder are links to one file."""
    own = os.path.abspath(sys.executable)
    same_folder = os.path.realpath(os.path.dirname(path)) == os.path.realpath(os.path.dirname(own))
    return same_folder and os.path.exists(path) and os.path.samefile(path, own)


def interpreter_of(path: str, environment: Dict[str, str], folder: str) -> str:
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise ValueError(f"{path} is no file")
    with open(path, "rb") as file:
        first = file.readline(4096)
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if len(words) == 2 and os.path.basename(words[0]) == "env":
        return find(words[1], environment, folder)
    return words[0] if len(words) == 1 else ""


def start_of(argv: List[str], environment: Dict[str, str], folder: str) -> Start:
    """Raises ValueError for what is no script or module of this Python."""
    path, rest, unbuffered = find(argv[0], environment, folder), argv[1:], bool(environment.get("PYTHONUNBUFFERED"))
    if not is_this_python(path):
        interpreter = interpreter_of(path, environment, folder)
        if not is_this_python(interpreter):
            raise ValueError(f"{path} is neither {sys.executable}, which the template is, nor a script of it")
        return Start([interpreter, path, *rest], path, "", rest, unbuffered)
    while rest[:1] == ["-u"]:
        rest, unbuffered = rest[1:], True
    if rest[:1] == ["-m"] and len(rest) > 1:
        return Start(argv, "", rest[1], rest[2:], unbuffered)
    if rest and not rest[0].startswith("-"):
        return Start(argv, rest[0], "", rest[1:], unbuffered)
    raise ValueError(f"{' '.join(argv[:2])}: a script, or -m and a module, must follow; of Python's options, only -u may stand before them")


def joined(arguments: List[str]) -> str:
    """Arguments as the restore library has them in MEDUSA_ARGUMENTS."""
    return "".join(text.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for text in arguments)


# ---- the process ----


class Engine:
    def __init__(self, start: Start, environment: Dict[str, str], folder: str) -> None:
        self._start, self._environment, self._folder = start, environment, folder

    def begin(self, connection: socket.socket, descriptors: List[int]) -> "Engine":
        """Waits for the word of whoever has asked for it, and takes over what it was given; without the word it never returns."""
        try:
            connection.settimeout(30)
            if connection.recv(16) != b"go\n":
                os._exit(1)
            connection.close()
            self._take_over(descriptors)
        except OSError as error:
            os.write(2, f"medusa.template: {error}\n".encode())
            os._exit(1)
        return self

    def _take_over(self, descriptors: List[int]) -> None:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        _listen.streams_of((0, 1, 2))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty(), write_through=self._start.unbuffered)  # type: ignore[union-attr]
        os.chdir(self._folder)
        wanted = {**self._environment, "MEDUSA_ARGUMENTS": joined(self._start.argv)}
        for name in [name for name in os.environ if name not in wanted]:
            del os.environ[name]
        os.environ.update(wanted)
        multiprocessing.process.current_process().authkey = os.urandom(32)  # the inherited key is the template's
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            numpy.random.seed()  # Python's own random numbers are drawn anew in each fork

    def run(self) -> int:
        """Runs the script or module as Python does."""
        start = self._start
        sys.orig_argv = list(start.argv)
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        code: Any
        if start.script:
            path, first = start.script, os.path.dirname(os.path.realpath(start.script))
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec")
        else:
            sys.path[0] = os.getcwd()
            spec = self._spec()
            path, first, main.__package__, main.__spec__ = spec.origin, os.getcwd(), spec.parent, spec
            code = spec.loader.get_code(spec.name)
        main.__file__ = path
        sys.argv, sys.path[0] = [path, *start.rest], first
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # pylint: disable=exec-used
        return 0

    def _spec(self) -> Any:
        """Of a package, its __main__ is run."""
        for name in (self._start.module, self._start.module + ".__main__"):
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None and spec.submodule_search_locations is None:
                return spec
        raise ImportError(f"No module named {self._start.module}, or it cannot be run")
