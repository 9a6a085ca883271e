# SPDX-License-Identifier: Apache-2.0
"""The engine core's process, forked by `vllm serve` when it has imported everything and has no threads yet.

vLLM's command line spawns the engine core, which imports all again that the server has just imported. Here the server
forks a process before it does anything, which imports what only the engine core needs and waits. When vLLM starts the
engine core, this process becomes it, with all that a spawned one is given: it is a child of the server, as that one is.
Whatever is unusual, or fails, leaves vLLM to spawn.
"""
from __future__ import annotations

import functools
import gc
import io
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from multiprocessing import context, popen_fork, popen_forkserver, resource_tracker, spawn, util
from multiprocessing.reduction import dump
from typing import Any, Dict, List, Optional

from . import _start, inherited

log = logging.getLogger("vllm.medusa")

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
CORE = ("vllm.v1.engine.core", "EngineCoreProc.run_engine_core")
SERVERS = ("vllm.entrypoints.openai.api_server",)  # main modules that serve without the word
WAIT = 20.0  # seconds for an answer: a core that has not come by then costs more than one that is spawned


def hook_command_line(module: Any) -> None:
    """Around vLLM's cli_env_setup, which its command line calls when all is imported, before it reads its arguments."""
    original = module.cli_env_setup

    @functools.wraps(original)
    def cli_env_setup(*arguments: Any, **options: Any) -> Any:
        chosen = os.environ.get(METHOD)
        answer = original(*arguments, **options)
        _start.imported()
        try:
            begin(chosen)
        except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
            log.exception("medusa: the engine core's process is spawned")
        return answer

    module.cli_env_setup = cli_env_setup


def _serves() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return sys.argv[1:2] == ["serve"] or (main is not None and main.name in SERVERS)


def begin(chosen: Optional[str] = None) -> None:
    """Forks, if this is a server that restores and nothing is unusual. chosen: the start method that the user has set."""
    from medusa import _api

    if not _serves() or os.environ.get("MEDUSA_VLLM") == "0" or not _wanted():
        return
    if _api.mode() != "restore":
        return
    why = _unusual(chosen)
    core = None if why else Core()
    if core is not None and not why:
        why = core.unusual
    if why or core is None:
        log.info("medusa: the engine core's process is spawned: %s", why)
        return
    original = context.SpawnProcess._Popen

    def popen(process_obj: Any) -> Any:
        if not _is_core(process_obj):
            return original(process_obj)
        context.SpawnProcess._Popen = staticmethod(original)
        return _start_core(core, process_obj) or original(process_obj)

    context.SpawnProcess._Popen = staticmethod(popen)


def _wanted() -> bool:
    """Not by default until it has run on a GPU. Who starts an engine from a template wants it."""
    return os.environ.get("MEDUSA_VLLM_PREFORK", "1" if "MEDUSA_TEMPLATE" in os.environ else "0") == "1"


def _unusual(chosen: Optional[str]) -> str:
    from . import fit

    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    for why, there in (
        (f"{METHOD} is set to {chosen}", chosen is not None),
        (f"this process has threads ({', '.join(others)})", bool(others)),
        ("not the main thread", threading.current_thread() is not threading.main_thread()),
        ("it runs as another program", os.fsdecode(spawn.get_executable()) != sys.executable),
    ):
        if there:
            return why
    return fit.unfit_version() or inherited.device_in_use()


def _is_core(process_obj: Any) -> bool:
    target = getattr(process_obj, "_target", None)
    return (getattr(target, "__module__", ""), getattr(target, "__qualname__", "")) == CORE


def _unfit(process_obj: Any) -> str:
    """Why this engine core is none that a single server has to itself; "" if it is."""
    parallel = process_obj._kwargs["vllm_config"].parallel_config
    for name in ("data_parallel_size", "world_size", "nnodes"):
        if getattr(parallel, name, 1) != 1:
            return f"{name} is {getattr(parallel, name)}"
    for name in ("dp_rank", "local_dp_rank"):
        if process_obj._kwargs.get(name, 0):
            return f"{name} is {process_obj._kwargs[name]}"
    return ""


def _start_core(core: "Core", process_obj: Any) -> Any:
    """The engine core's process; None: it is to be spawned."""
    try:
        why = _unfit(process_obj) or core.changed()
        if not why:
            popen = Popen(process_obj, core)
            log.info("medusa: the engine core's process was forked when the server had imported vLLM")
            return popen
    except Exception as error:  # pylint: disable=broad-except
        why = f"{type(error).__name__}: {error}"
    core.drop()
    log.info("medusa: the engine core's process is spawned: %s", why)
    return None


# ---- in the server ----


class Core:
    """The process that waits. unusual: why it cannot be used, "" if it can."""

    def __init__(self) -> None:
        self._environment, self._fixed, self._place = dict(os.environ), inherited.fixed(), inherited.place()
        self._socket, theirs = socket.socketpair()
        util._flush_std_streams()
        gc.freeze()  # what was imported stays; the collector need not copy its pages
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which are counted below
            server = os.getpid()
            self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _be_core(theirs, server)
        # A library that ends its threads before a fork, and starts them again afterwards, has none now.
        count = inherited.tasks()
        theirs.close()
        self.unusual = "" if count == 1 else f"{count - 1} threads of C libraries were running"
        if self.unusual:
            self.drop()

    def changed(self) -> str:
        """What a spawned process would have, and this one lacks; "" if nothing."""
        for what, before, now in (("the environment variable ", self._environment, dict(os.environ)),
                                  ("", self._fixed, inherited.fixed()), ("", self._place, inherited.place())):
            name = inherited.difference(before, now)
            if name:
                return f"{what}{name} has changed since it was forked"
        if os.fsdecode(spawn.get_executable()) != sys.executable:
            return "it runs as another program"
        return ""

    def ask(self, request: Dict[str, Any], descriptors: List[int]) -> None:
        """Returns when the process has taken over all of it."""
        self._socket.settimeout(WAIT)
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._socket, [data], descriptors)
        if sent < len(data):
            self._socket.sendall(data[sent:])
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(4096)
            if not part:
                raise ChildProcessError(f"process {self.pid} has ended")
            answer += part
        if answer != b"ready\n":
            raise ChildProcessError(answer.decode(errors="replace").strip())

    def close(self) -> None:
        self._socket.close()

    def drop(self) -> None:
        """Ends the process, whatever it does."""
        self._socket.close()
        try:
            os.kill(self.pid, signal.SIGKILL)
            deadline = time.monotonic() + 1
            while not os.waitpid(self.pid, os.WNOHANG)[0] and time.monotonic() < deadline:
                time.sleep(0.001)
        except (ProcessLookupError, ChildProcessError):
            pass


class Popen(popen_fork.Popen):  # type: ignore[name-defined]
    """As multiprocessing's own for "spawn", but for the process, which is there already."""

    method = "spawn"
    DupFd = popen_forkserver._DupFd

    def __init__(self, process_obj: Any, core: Core) -> None:
        self._fds: List[int] = []
        self._core = core
        super().__init__(process_obj)

    def duplicate_for_child(self, fd: int) -> int:
        self._fds.append(fd)
        return len(self._fds) - 1

    def _launch(self, process_obj: Any) -> None:
        data = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            dump(spawn.get_preparation_data(process_obj._name), data)
            dump(process_obj, data)
        finally:
            context.set_spawning_popen(None)
        sentinel, child_w = os.pipe()
        child_r, parent_w = os.pipe()
        self.finalizer = util.Finalize(self, util.close_fds, (sentinel, parent_w))
        try:
            standard = [number for number in (0, 1, 2) if inherited.is_open(number)]
            request = {"settings": inherited.settings(), "standard": standard, "more": len(self._fds)}
            self._core.ask(request, [child_r, child_w, resource_tracker.getfd(), *standard, *self._fds])
            with open(parent_w, "wb", closefd=False) as file:
                file.write(data.getbuffer())
        except BaseException:
            self.finalizer()
            raise
        finally:
            os.close(child_r)
            os.close(child_w)
        self._core.close()
        self.pid, self.sentinel = self._core.pid, sentinel


# ---- in the process that waits ----

NEEDED = ("vllm.v1.engine.core", "vllm.v1.executor.uniproc_executor", "vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu.model_runner",
          "vllm.v1.attention.backends.flash_attn")
REQUEST_MOST = 1 << 20


def _be_core(server: socket.socket, parent: int) -> None:
    """Never returns."""
    code = 1
    try:
        inherited.die_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the server, too, which decides
        if os.getppid() == parent:
            _import_until_asked(server)
            code = _serve(server)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # pylint: disable=broad-except
        log.debug("medusa: the forked engine core has ended", exc_info=True)
    finally:
        util._flush_std_streams()
        os._exit(code)


def _asked(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        server.recv(1, socket.MSG_PEEK)
        return True
    except BlockingIOError:
        return False
    finally:
        server.setblocking(True)


def _import_until_asked(server: socket.socket) -> None:
    """As vLLM does: plug-ins first. What fails here fails again in the engine core, which says so."""
    import importlib

    try:
        importlib.import_module("vllm.plugins").load_general_plugins()
        for name in NEEDED:
            if _asked(server):
                return
            importlib.import_module(name)
        gc.freeze()
    except Exception:  # pylint: disable=broad-except
        log.debug("medusa: the forked engine core imports later", exc_info=True)


def _serve(server: socket.socket) -> int:
    """The engine core's exit code; 0 if the server never asked for one."""
    received = _receive(server)
    if received is None:
        return 0
    request, descriptors = received
    try:
        reader = _become(request, descriptors)
    except Exception as error:  # pylint: disable=broad-except
        server.sendall(f"{type(error).__name__}: {error}".replace("\n", " ").encode(errors="replace") + b"\n")
        return 1
    server.sendall(b"ready\n")
    server.close()
    inherited.die_with_parent(0)
    before = set(sys.modules)
    try:
        return int(spawn._main(reader, os.dup(reader)) or 0)
    finally:
        log.debug("medusa: imported since the fork: %s", " ".join(sorted(set(sys.modules) - before)))


def _receive(server: socket.socket) -> Any:
    data, descriptors, _, _ = socket.recv_fds(server, REQUEST_MOST, 250)
    while data and not data.endswith(b"\n") and len(data) < REQUEST_MOST:
        part = server.recv(REQUEST_MOST)
        if not part:
            return None
        data += part
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return (json.loads(data), descriptors) if data else None


def _become(request: Dict[str, Any], descriptors: List[int]) -> int:
    """All that a spawned process would have inherited; returns where the process object comes from."""
    count = 3 + len(request["standard"]) + request["more"]
    if len(descriptors) != count:
        raise ValueError(f"{len(descriptors)} descriptors came, not {count}")
    reader, _sentinel, tracker, *others = descriptors  # the sentinel stays open until this process ends
    for number in (0, 1, 2):
        if number in request["standard"]:
            place = others.pop(0)
            os.dup2(place, number)
            os.close(place)
        elif inherited.is_open(number):
            os.close(number)
    inherited.apply(request["settings"])
    resource_tracker._resource_tracker._fd = tracker
    popen_forkserver.forkserver._forkserver._inherited_fds = others
    inherited.draw_anew()
    return int(reader)
