# SPDX-License-Identifier: Apache-2.0
"""The template: imports, waits at a socket, and forks an engine for each request that fits.

Between the template and each engine there is a process, the watcher, which tells the client how the engine has ended. So
the template may end while its engines go on.
"""
from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any, Dict, Optional

from medusa import _listen
from medusa._listen import Failed

from . import inherited, template_engine
from .template import FAILED, NAME, Options
from .template_client import PROTOCOL
from .template_imports import Imports, Unforkable, fork

REQUEST_MOST = 4 << 20  # bytes; the kernel passes at most 2 MiB of arguments and environment to a process, and JSON escapes them
SECONDS = 5.0  # until a client's request must be whole
CLIENTS_MOST = 64  # clients at a time whose request is not whole


def say(text: str) -> None:
    print(f"{NAME}: {text}", file=sys.stderr, flush=True)


# ---- requests ----


class Refused(Exception):
    """Why this engine cannot come from this template."""


class Client:
    """A connection whose request is not whole yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.descriptors = connection, []  # type: socket.socket, List[int]
        self._data, self.until = b"", time.monotonic() + SECONDS
        connection.setblocking(False)

    def read(self) -> Optional[Dict[str, Any]]:
        """The request if it is whole, else None."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.connection, 1 << 18, 16)
        except BlockingIOError:
            return None
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.descriptors += descriptors
        self._data += data
        if not data:
            raise ConnectionError("the client has closed")
        if len(self._data) > REQUEST_MOST or len(self.descriptors) > 3:
            raise Refused(f"the request is too large: at most {REQUEST_MOST} bytes and 3 descriptors are read")
        if b"\n" not in self._data:
            return None
        try:
            request = json.loads(self._data.split(b"\n", 1)[0])
        except (ValueError, RecursionError) as error:
            raise Refused(f"the request is not JSON: {error}") from None
        return check(request, len(self.descriptors))

    def close(self) -> None:
        self.connection.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value)


def _is_environment(value: Any) -> bool:
    return isinstance(value, dict) and _is_texts(list(value.values())) and _is_texts(list(value)) and not any(
        not name or "=" in name for name in value)


def _is_settings(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("folder"), str) and isinstance(value.get("limits"), dict) and all(
        isinstance(value.get(name), int) for name in ("umask", "nice")) and all(
        isinstance(value.get(name), list) and all(isinstance(item, int) for item in value[name])
        for name in ("processors", "ignored", "blocked"))


def _is_start(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("python"), str) and _is_texts(value.get("arguments")) and _is_texts(
        value.get("rest")) and isinstance(value.get("script", value.get("module")), str)


FIELDS = {"start": _is_start, "environment": _is_environment, "settings": _is_settings, "fixed": lambda value: isinstance(value, dict),
          "standard": lambda value: value in ([], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2])}


def check(request: Any, descriptors: int) -> Dict[str, Any]:
    """Raises Refused unless the request has the fields that template_client.py sends."""
    if not isinstance(request, dict) or request.get("version") != PROTOCOL:
        raise Refused(f"the request's version is not {PROTOCOL}: start the template anew after an update of the plug-in")
    for name, fits in FIELDS.items():
        if not fits(request.get(name)):
            raise Refused(f"the request's {name} is missing or of a wrong type")
    if len(request["standard"]) != descriptors:
        raise Refused(f"the request has {descriptors} descriptors, and its standard names {len(request['standard'])}")
    return request


def unfit(request: Dict[str, Any], imports: Imports) -> str:
    """Why an engine from this template would differ from one that the command starts; "" if it would not."""
    python = request["start"]["python"]
    if os.path.abspath(python) != os.path.abspath(sys.executable):
        return f"{python} is not the template's Python, {sys.executable}"
    name = inherited.difference(inherited.fixed(), request["fixed"])
    if name:
        return f"the client's {name} differs from the template's"
    name = imports.differs(request["environment"])
    if name:
        return (f"the environment variable {name} was read while the template imported, and had another value then; "
                f"a template with --vary {name} permits that")
    path = imports.stale()
    return f"{path} has changed since the template imported it: start the template anew" if path else ""


# ---- serving ----


class Template:
    def __init__(self, listening: socket.socket, imports: Imports) -> None:
        self._listening, self._imports = listening, imports
        self._clients: Dict[socket.socket, Client] = {}
        self._waker, self._woken = socket.socketpair()
        self._stop = False
        for end in (self._waker, self._woken):
            end.setblocking(False)

    def serve(self) -> Optional[template_engine.Engine]:
        """Serves until a signal ends the template. Returns None there, and the engine in a process that is to become one."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._stop:
                for key, _ in selector.select(0.5 if self._clients else None):
                    engine = self._act(key.fileobj, selector)
                    if engine is not None:
                        return engine
                self._reap()
                for client in [client for client in self._clients.values() if time.monotonic() > client.until]:
                    self._drop(client, selector)
        return None

    def _end(self, _number: int, _frame: Any) -> None:
        self._stop = True

    def _act(self, ready: Any, selector: Any) -> Optional[template_engine.Engine]:
        if ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                ready.recv(4096)
            return None
        if ready is self._listening:
            self._accept(selector)
            return None
        client = self._clients.get(ready)
        return self._read(client, selector) if client else None

    def _accept(self, selector: Any) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        if len(self._clients) >= CLIENTS_MOST or inherited.peer(connection)[1] != os.geteuid():
            connection.close()
            return
        self._clients[connection] = Client(connection)
        selector.register(connection, selectors.EVENT_READ)

    def _read(self, client: Client, selector: Any) -> Optional[template_engine.Engine]:
        engine = None
        try:
            request = client.read()
            if request is None:
                return None
            why = unfit(request, self._imports)
            if why:
                raise Refused(why)
            engine = self._fork(client, request)
        except Refused as why:
            say(f"refused: {why}")
            answer = json.dumps({"refused": str(why)}).encode() + b"\n"
            with contextlib.suppress(OSError):
                client.connection.send(answer)
        except OSError as error:
            say(f"a client gets no engine: {error}")
        if engine is None:
            self._drop(client, selector)
        return engine

    def _drop(self, client: Client, selector: Any) -> None:
        self._clients.pop(client.connection, None)
        with contextlib.suppress(KeyError, ValueError):
            selector.unregister(client.connection)
        client.close()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _fork(self, client: Client, request: Dict[str, Any]) -> Optional[template_engine.Engine]:
        template = os.getpid()
        try:
            watcher = fork()
        except OSError as error:
            raise Refused(f"fork: {error.strerror}") from None
        if watcher == 0:
            for other in (self._listening, self._waker, self._woken, *self._clients):
                if other is not client.connection:
                    other.close()
            for other in self._clients.values():
                if other is not client:
                    other.close()
            return template_engine.watch(client.connection, client.descriptors, request, self._imports, template)
        return None


def _check_start() -> None:
    from . import fit

    given = os.environ.get("MEDUSA_ARTIFACT")
    if given:
        raise Failed("MEDUSA_ARTIFACT is set: start the template without an artifact, and give one to each engine (medusa-restore)")
    why = fit.unfit_version()
    if why:
        raise Failed(why)


def _preload() -> None:
    """Starts this command anew with the restore library preloaded, if the library is installed beside medusa-restore."""
    if "libmedusa" in os.environ.get("LD_PRELOAD", ""):
        return
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        command = os.path.realpath(os.path.join(folder, "medusa-restore"))
        library = os.path.join(os.path.dirname(os.path.dirname(command)), "lib", "libmedusa-restore.so")
        if os.path.exists(command) and os.path.exists(library):
            before = os.environ.get("LD_PRELOAD")
            os.environ["LD_PRELOAD"] = os.path.realpath(library) + (":" + before if before else "")
            os.execv(sys.executable, sys.orig_argv)
    say("no libmedusa-restore.so beside a medusa-restore in PATH: engines from this template restore nothing")


def run(options: Options) -> int:
    _listen.fill_standard()
    _preload()
    try:
        listening, imports = _prepare(options)
    except Unforkable as unforkable:
        name, why = unforkable.args
        say(f"starts anew without {name}: after its import {why}")
        os.execv(sys.executable, [*sys.orig_argv, "--leave-out", name])
    except (Failed, ImportError, OSError) as error:
        say(str(error))
        return FAILED
    mine = os.stat(options.socket).st_ino
    engine = Template(listening, imports).serve()
    if engine is not None:
        return engine.run()
    with contextlib.suppress(OSError):
        if os.stat(options.socket).st_ino == mine:
            os.unlink(options.socket)
    return 0


def _prepare(options: Options) -> Any:
    began = time.monotonic()
    _listen.check(options.socket, private=True)  # imports take long
    imports = Imports(options.vary)
    gc.disable()
    imports.load(options.modules, options.leave_out)
    _check_start()
    gc.freeze()
    gc.enable()
    listening = _listen.listen(options.socket, private=True, backlog=CLIENTS_MOST)
    listening.setblocking(False)
    say(f"ready: {imports.count} files imported in {time.monotonic() - began:.1f} s" +
        (f"; not found: {', '.join(imports.missing)}" if imports.missing else ""))
    return listening, imports
