# SPDX-License-Identifier: Apache-2.0
"""The client of a template: hands over what the engine inherits, passes signals on to the engine, and ends as the engine does.

The client imports little, since its own start is part of the engine's. If there is no template, or if the template refuses,
the client starts the command itself, without the template, and says why.
"""
from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NoReturn, Optional

from . import inherited
from .template import FAILED, NAME, Options

PROTOCOL = 1
ANSWER_MOST = 1 << 16
WAIT = 10.0  # seconds until an engine must have been forked
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
MODULES = ("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server")


class Refused(Exception):
    """Why the template cannot provide this engine."""


def _say(text: str) -> None:
    print(f"{NAME}: {text}", file=sys.stderr, flush=True)


def _find(program: str) -> str:
    """As execvp(3) does."""
    if "/" in program:
        return os.path.abspath(program)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Refused(f"{program}: no such command")


def _interpreter(path: str) -> str:
    with open(path, "rb") as file:
        first = file.readline(4096)
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if len(words) != 1:
        raise Refused(f"{path} is not a script whose first line is #! and the path of a Python")
    return words[0]


def start_of(command: List[str]) -> Dict[str, Any]:
    """What the kernel would tell Python: its path and arguments; also the script or module that it runs."""
    path = _find(command[0])
    if os.path.basename(path) == "vllm":
        return {"python": _interpreter(path), "arguments": [_interpreter(path), path, *command[1:]], "script": path, "rest": command[1:]}
    if command[1:2] == ["-m"] and command[2:3] and command[2] in MODULES:
        return {"python": path, "arguments": command, "module": command[2], "rest": command[3:]}
    raise Refused(f"{' '.join(command[:3])}: neither vllm nor python -m {' or '.join(MODULES)}")


def request_of(command: List[str]) -> Dict[str, Any]:
    return {"version": PROTOCOL, "start": start_of(command), "environment": dict(os.environ), "settings": inherited.settings(),
            "fixed": inherited.fixed(), "standard": inherited.standard()}


class Connection:
    """Lines of JSON, one object each."""

    def __init__(self, path: str) -> None:
        self._data = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(WAIT)
            self._connect(path)
            _, uid, _ = inherited.peer(self.socket)
            if uid != os.geteuid():
                raise Refused(f"{path}: user {uid} listens there, not user {os.geteuid()}")
        except OSError as error:
            self.socket.close()
            raise Refused(f"{path}: {error.strerror or error}") from None

    def _connect(self, path: str) -> None:
        """Waits while as many clients as the template takes at a time are before this one: the kernel says so at once."""
        until = time.monotonic() + WAIT
        while True:
            try:
                return self.socket.connect(path)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def send(self, message: Dict[str, Any], descriptors: Optional[List[int]] = None) -> None:
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(self.socket, [data], descriptors) if descriptors else 0
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def receive(self) -> Optional[Dict[str, Any]]:
        """The next message; None if the other side has closed."""
        while b"\n" not in self._data:
            part = self.socket.recv(4096) if len(self._data) < ANSWER_MOST else b""
            if not part:
                return None
            self._data += part
        line, self._data = self._data.split(b"\n", 1)
        message = json.loads(line)
        return message if isinstance(message, dict) else None


def begin(options: Options) -> Connection:
    """Returns when the engine has been forked, and waits for the word to run."""
    try:
        request = request_of(options.command)
    except OSError as error:
        raise Refused(str(error)) from None
    connection = Connection(options.socket)
    try:
        connection.send(request, request["standard"])
        answer = connection.receive()
        if answer is None:
            raise Refused(f"{options.socket}: the template closed the connection without an answer")
        if "refused" in answer:
            raise Refused(str(answer["refused"]))
    except (OSError, ValueError) as error:
        raise Refused(f"{options.socket}: {error}") from None
    connection.socket.settimeout(None)
    return connection


def _pass_on(connection: Connection) -> None:
    def handler(number: int, _frame: Any) -> None:
        try:
            connection.send({"signal": number})
        except OSError:
            pass  # the engine has ended

    for number in PASSED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _end_by(number: int) -> NoReturn:
    """Ends by the signal that ended the engine, without a core file, which would show this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    sys.exit(128 + number)


def follow(connection: Connection) -> int:
    """Waits until the engine ends, and returns its exit code."""
    answer = connection.receive()
    if answer is not None and "ended_by" in answer:
        _end_by(int(answer["ended_by"]))
    if answer is None or "exit" not in answer:
        _say("the process that watches the engine was killed, so the engine is told to end")
        return FAILED
    return int(answer["exit"])


def run(options: Options) -> int:
    try:
        connection = begin(options)
    except Refused as why:
        if options.require:
            _say(f"no engine from the template: {why}")
            return FAILED
        _say(f"starts without the template: {why}")
        return _become(options.command)
    _pass_on(connection)
    try:
        connection.send({"go": True})
    except OSError:
        pass
    return follow(connection)


def _become(command: List[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return FAILED
