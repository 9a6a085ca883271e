# SPDX-License-Identifier: Apache-2.0
"""A process that has imported modules, and becomes Python commands on request, by a fork: medusa-worker asks it for engines.

    python3 -m medusa.template [--socket PATH] [--vary NAME]... MODULE...

--socket: where it listens (MEDUSA_TEMPLATE_SOCKET). --vary: a variable that may have other values in engines although a module has
read it while it was imported. medusa-template(7) has the protocol, and says which commands can be forked.
"""
from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
import warnings
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from . import _listen, template_engine
from ._listen import Failed

NAME = "medusa.template"
PROTOCOL = 1
REQUEST_MOST = 4 << 20  # bytes of a request
SECONDS = 5.0  # until a request must be whole
# What C libraries read when they are loaded, which Python does not see.
READ_IN_C = ("LD_", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "BLIS_", "TORCH", "PYTORCH_", "PYTHON")
# What is different in each engine, and read when it begins to use a device.
VARY = {"CUDA_VISIBLE_DEVICES", "MEDUSA_WORKER_ENGINE", "MEDUSA_TEMPLATE_SOCKET", "MEDUSA_ARTIFACT"}
Stamp = Tuple[int, int, int]


class Refused(Exception):
    """Why an engine cannot come from this template."""


def say(text: str) -> None:
    print(f"{NAME}: {text}", file=sys.stderr, flush=True)


# ---- imports ----


@contextlib.contextmanager
def recorded(names: Set[str]) -> Iterator[None]:
    """Adds to names each variable that Python code asks os.environ for, except in a walk over all of them."""
    kind = type(os.environ)
    walked: List[str] = []  # names that a walk will ask for next, in this order

    class Recorded(kind):  # type: ignore[valid-type, misc]
        def __iter__(self) -> Iterator[str]:
            walked[:] = list(super().__iter__())
            return iter(list(walked))

        def __getitem__(self, name: str) -> str:
            if walked[:1] == [name]:
                del walked[0]
            else:
                walked.clear()
                names.add(name)
            return str(super().__getitem__(name))

    os.environ.__class__ = Recorded  # type: ignore[assignment]
    try:
        yield
    finally:
        os.environ.__class__ = kind  # type: ignore[assignment]


def fork() -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which are counted
        return os.fork()


def why_unforkable() -> str:
    """Why a fork of this process could not become an engine; "" if it could."""
    child = fork()
    if child == 0:
        os._exit(0)
    # right after a fork, without those that a library ends before it and starts again later
    threads = template_engine.threads()
    os.waitpid(child, 0)
    if threads:
        return f"threads are running ({', '.join(threads)})"
    return "it has initialized CUDA" if template_engine.has_device() else ""


def stamp(path: str) -> Optional[Stamp]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Imports:
    """What was imported, from which files and under which environment."""

    def __init__(self, modules: List[str], vary: List[str]) -> None:
        self._vary = VARY | set(vary)
        self._before = dict(os.environ)
        self._read: Set[str] = set()
        with recorded(self._read):
            for name in modules:
                self._load(name)
        now = dict(os.environ)
        self._set = {name: now.get(name) for name in set(now) | set(self._before) if now.get(name) != self._before.get(name)}
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._stamps = {path: stamp(path) for path in files if isinstance(path, str) and os.path.isabs(path)}

    @staticmethod
    def _load(name: str) -> None:
        try:
            importlib.import_module(name)
        except Exception as error:  # pylint: disable=broad-except  # modules raise what they like
            raise Failed(f"{name}: {type(error).__name__}: {error}") from error
        why = why_unforkable()
        if why:
            raise Failed(f"{name} cannot be in a template: after its import {why}")

    @property
    def files(self) -> int:
        return len(self._stamps)

    def unfit(self, environment: Dict[str, str]) -> str:
        """Why a new process would import something else; "" if it would not."""
        for name in sorted((set(environment) | set(self._before)) - self._vary):
            if environment.get(name) != self._before.get(name) and (name in self._read or name.startswith(READ_IN_C)):
                return f"{name} has another value than in the template, which has read it (or give the template --vary {name})"
        for path, before in self._stamps.items():
            if stamp(path) != before:
                return f"{path} has changed since the template imported it"
        if environment.get("MEDUSA_ARTIFACT") and "libmedusa-restore" not in os.environ.get("LD_PRELOAD", ""):
            return "it restores an artifact, and the template was started without libmedusa-restore.so in LD_PRELOAD"
        return ""

    def environment(self, given: Dict[str, str]) -> Dict[str, str]:
        """What a new process would have after the same imports."""
        now: Dict[str, Any] = {**given, **self._set}
        return {name: value for name, value in now.items() if value is not None}


# ---- requests ----


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value)


def check(request: Any, descriptors: int) -> Dict[str, Any]:
    if not isinstance(request, dict) or request.get("version") != PROTOCOL:
        raise Refused(f"the request is no object of version {PROTOCOL}")
    env = request.get("env")
    if not is_texts(request.get("argv")) or not request["argv"]:
        raise Refused("argv is no list of texts")
    if not isinstance(env, dict) or not is_texts([*env, *env.values()]) or any(not name or "=" in name for name in env):
        raise Refused("env is no object of texts")
    if not isinstance(request.get("cwd"), str) or not os.path.isabs(request["cwd"]):
        raise Refused("cwd is no absolute path")
    if descriptors != 3:
        raise Refused(f"there are {descriptors} descriptors, and 3 are wanted: for standard input, output and error")
    return request


def receive(connection: socket.socket, descriptors: List[int]) -> Dict[str, Any]:
    data, until = b"", time.monotonic() + SECONDS
    while b"\n" not in data:
        connection.settimeout(max(0.001, until - time.monotonic()))
        part, more, _, _ = socket.recv_fds(connection, 1 << 18, 16)
        descriptors += more
        data += part
        if not part or len(data) > REQUEST_MOST or len(descriptors) > 3:
            raise Refused("the request is not whole, or too large")
    try:
        request = json.loads(data.split(b"\n", 1)[0])
    except (ValueError, RecursionError) as error:
        raise Refused(f"the request is not JSON: {error}") from None
    return check(request, len(descriptors))


# ---- the template ----


class Template:
    def __init__(self, listening: socket.socket, imports: Imports) -> None:
        self._listening, self._imports, self._stop = listening, imports, False
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)

    def serve(self) -> Optional[template_engine.Engine]:
        """None when a signal has ended the template; in a process that was forked: the engine that it is to become."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            for end in (self._listening, self._woken):
                selector.register(end, selectors.EVENT_READ)
            while not self._stop:
                if any(key.fileobj is self._listening for key, _ in selector.select()):
                    engine = self._take()
                    if engine is not None:
                        return engine
        return None

    def _end(self, _number: int, _frame: Any) -> None:
        self._stop = True

    def _take(self) -> Optional[template_engine.Engine]:
        descriptors: List[int] = []
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return None
        with connection:
            try:
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                if struct.unpack("3i", peer)[1] == os.geteuid():
                    return self._answer(connection, descriptors)
            except OSError as error:
                say(f"a client gets no engine: {error}")
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        return None

    def _answer(self, connection: socket.socket, descriptors: List[int]) -> Optional[template_engine.Engine]:
        try:
            request = receive(connection, descriptors)
            why = self._imports.unfit(request["env"])
            if why:
                raise Refused(why)
            try:
                start = template_engine.start_of(request["argv"], request["env"], request["cwd"])
            except (OSError, ValueError) as error:
                raise Refused(str(error)) from None
            pid = self._fork()
        except Refused as why:
            say(f"refused: {why}")
            connection.sendall(json.dumps({"refused": str(why)}).encode() + b"\n")
            return None
        if pid:
            connection.sendall(json.dumps({"pid": pid}).encode() + b"\n")
            return None
        for end in (self._listening, self._waker, self._woken):
            end.close()
        environment = {**self._imports.environment(request["env"]), "MEDUSA_TEMPLATE": str(self._pid)}
        return template_engine.Engine(start, environment, request["cwd"]).begin(connection, descriptors)

    def _fork(self) -> int:
        """0 in the engine. A process between the two ends at once, so that the engine is a child of whoever collects orphans."""
        self._pid = os.getpid()
        told, tells = os.pipe()
        middle = fork()
        if middle == 0:
            try:
                engine = os.fork()
            except OSError:
                os._exit(1)  # the template, which waits for a number, refuses
            if engine == 0:
                os.close(told)
                os.close(tells)
                os.setpgid(0, 0)
                return 0
            with contextlib.suppress(OSError):
                os.setpgid(engine, engine)
            os.write(tells, str(engine).encode())
            os._exit(0)
        os.close(tells)
        number = os.read(told, 32)
        os.close(told)
        os.waitpid(middle, 0)
        if not number:
            raise Refused("fork: the system has no process left")
        return int(number)


# ---- the command ----


def parse(arguments: List[str]) -> Tuple[str, List[str], List[str]]:
    """The socket, variables that may vary, and modules."""
    path, vary, modules, rest = os.environ.get("MEDUSA_TEMPLATE_SOCKET", ""), [], [], list(arguments)  # type: str, List[str], List[str], List[str]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name not in ("--socket", "--vary"):
            if word.startswith("-"):
                raise Failed(f"{word} is not an option: see python3 -m {NAME} --help")
            modules.append(word)
            continue
        if not equals:
            if not rest:
                raise Failed(f"{name} needs a value")
            value = rest.pop(0)
        if name == "--vary":
            vary.append(value)
        else:
            path = value
    if not path:
        raise Failed("--socket PATH is missing, and MEDUSA_TEMPLATE_SOCKET is not set")
    return path, vary, modules


def main(arguments: List[str]) -> int:
    if arguments[:1] in (["--help"], ["-h"]):
        print((__doc__ or "").strip())
        return 0
    began = time.monotonic()
    _listen.fill_standard()
    try:
        path, vary, modules = parse(arguments)
        _listen.check(path, private=False)  # imports take long
        imports = Imports(modules, vary)
        gc.collect()
        gc.freeze()
        listening = _listen.listen(path, private=False, backlog=64)
    except (Failed, OSError) as error:
        say(str(error))
        return 1
    own = os.stat(path).st_ino
    say(f"ready: {imports.files} files imported in {time.monotonic() - began:.1f} s")
    engine = Template(listening, imports).serve()
    if engine is not None:
        return engine.run()
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == own:
            os.unlink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
