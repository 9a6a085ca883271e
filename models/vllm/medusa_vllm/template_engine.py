# SPDX-License-Identifier: Apache-2.0
"""An engine from a template: the process that watches it, and how it becomes what its command would have started."""
from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import logging
import multiprocessing
import os
import select
import signal
import socket
import sys
import types
from typing import Any, Dict, List, Optional, Set

from medusa import _listen

from . import inherited
from .template_imports import Imports

log = logging.getLogger("vllm.medusa")

GRACE = 10.0  # seconds between SIGTERM and SIGKILL for an engine whose client has ended


# ---- the watcher ----


def _write(connection: socket.socket, message: Dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def watch(connection: socket.socket, descriptors: List[int], request: Dict[str, Any], imports: Imports,
          template: int) -> Optional["Engine"]:
    """Forks the engine, and returns in the engine alone. The watcher ends here, after the engine."""
    connection.setblocking(True)
    signal.set_wakeup_fd(-1)
    os.setsid()  # signals that a terminal sends to the template's group are not for engines
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    told, tells = socket.socketpair()
    try:
        engine = os.fork()
    except OSError as error:
        _write(connection, {"refused": f"fork: {error.strerror}"})
        os._exit(1)
    if engine == 0:
        told.close()
        connection.close()
        return Engine(descriptors, request, imports, template).begin(tells)
    tells.close()
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        Watcher(connection, engine, told).run()
    finally:
        os._exit(0)


class Watcher:
    def __init__(self, connection: socket.socket, engine: int, told: socket.socket) -> None:
        self._connection, self._engine, self._told, self._data = connection, engine, told, b""
        self._ended = os.pidfd_open(engine)

    def run(self) -> None:
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._told.recv(4096)
            if not part:
                break
            answer += part
        if answer != b"ready\n":
            os.waitpid(self._engine, 0)
            why = answer.decode(errors="replace").strip() or "the process that was to become the engine has ended"
            return _write(self._connection, {"refused": why})
        _write(self._connection, {"started": self._engine})
        self._follow()
        return None

    def _follow(self) -> None:
        """Lets the engine run when the client says so, passes the client's signals on, and ends the engine with the client."""
        patience: Optional[float] = None
        watched = [self._connection, self._ended]
        while True:
            ready, _, _ = select.select(watched, [], [], patience)
            if self._ended in ready:
                break
            if not ready:
                self._kill(signal.SIGKILL)
                patience = None
            elif not self._listen():
                watched, patience = [self._ended], GRACE
                with contextlib.suppress(OSError):
                    self._told.close()
                os.kill(self._engine, signal.SIGTERM)
        status = os.waitpid(self._engine, 0)[1]
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        _write(self._connection, {"ended_by": ended_by} if ended_by else {"exit": os.waitstatus_to_exitcode(status)})

    def _kill(self, number: int) -> None:
        """Sends a signal to the engine's group. The engine has not been reaped yet, so its process id is still its own."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._engine, number)

    def _listen(self) -> bool:
        """False if the client has gone, or has sent a message that no client sends."""
        try:
            part = self._connection.recv(4096)
            self._data += part
            *lines, self._data = self._data.split(b"\n")
            for line in lines:
                self._obey(json.loads(line))
            return bool(part) and len(self._data) < 4096
        except (OSError, ValueError):
            return False

    def _obey(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ValueError("the client's message is not a JSON object")
        if message.get("go") is True:
            self._told.send(b"g")
        elif isinstance(message.get("signal"), int) and message["signal"] in set(signal.valid_signals()):
            os.kill(self._engine, message["signal"])
        else:
            raise ValueError("the client's message has neither go nor a valid signal")


# ---- the engine ----


def joined(arguments: List[str]) -> str:
    """Arguments as the restore library passes them on in MEDUSA_ARGUMENTS."""
    return "".join(text.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for text in arguments)


def say_imported(before: Set[str]) -> None:
    """Logs the modules that this engine imported, which the template might import for all engines."""
    log.debug("medusa: imported since the fork: %s", " ".join(sorted(set(sys.modules) - before)))


class Engine:
    def __init__(self, descriptors: List[int], request: Dict[str, Any], imports: Imports, template: int) -> None:
        self._descriptors, self._request, self._imports, self._template = descriptors, request, imports, template

    def begin(self, watcher: socket.socket) -> "Engine":
        """Takes over what the request holds, reports it, and waits for the client's word; without the word it never returns."""
        try:
            os.setsid()
            inherited.die_with_parent(signal.SIGTERM)
            self._take_over()
            watcher.sendall(b"ready\n")
        except Exception as error:  # pylint: disable=broad-except
            watcher.sendall(f"{type(error).__name__}: {error}".replace("\n", " ").encode(errors="replace") + b"\n")
            os._exit(1)
        if watcher.recv(1) != b"g":
            os._exit(1)
        watcher.close()
        return self

    def _take_over(self) -> None:
        request = self._request
        given = dict(zip(request["standard"], self._descriptors))
        inherited.set_standard(given)
        _listen.streams_of(given)
        for descriptor in self._descriptors:
            os.close(descriptor)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.reconfigure(line_buffering=stream.isatty() or stream is sys.stderr)
        self._set_environment()
        inherited.apply(request["settings"])
        inherited.draw_anew()
        multiprocessing.current_process().authkey = os.urandom(32)  # the inherited key is the template's

    def _set_environment(self) -> None:
        wanted = self._imports.environment(self._request["environment"])
        wanted["MEDUSA_ARGUMENTS"] = joined(self._request["start"]["arguments"])
        wanted["MEDUSA_TEMPLATE"] = str(self._template)
        for name in [name for name in os.environ if name not in wanted]:
            del os.environ[name]
        os.environ.update(wanted)

    def run(self) -> int:
        """Runs the script or module as Python does."""
        start = self._request["start"]
        sys.orig_argv = list(start["arguments"])
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        if "script" in start:
            path = start["script"]
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec")
            first = os.path.dirname(os.path.realpath(path))
        else:
            main.__spec__ = spec = importlib.util.find_spec(start["module"])
            if spec is None or spec.origin is None:
                raise ImportError(start["module"])
            path, first, main.__package__ = spec.origin, os.getcwd(), spec.parent
            code = spec.loader.get_code(start["module"])  # type: ignore[union-attr]
        main.__file__ = path
        sys.argv, sys.path[0] = [path, *start["rest"]], first
        sys.modules["__main__"] = main
        atexit.register(say_imported, set(sys.modules))
        exec(code, main.__dict__)  # pylint: disable=exec-used
        return 0
