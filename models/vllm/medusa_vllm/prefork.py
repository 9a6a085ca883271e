# SPDX-License-Identifier: Apache-2.0
"""The engine core's process, forked by `vllm serve` when the server has imported everything and has no threads yet.

vLLM's command line spawns the engine core, which repeats all imports of the server. With this module, the server forks a
process before it does anything else. That process imports the modules that only the engine core needs, and waits. When vLLM
starts the engine core, the waiting process becomes it, and is given all that a spawned one would be given. If anything is
unusual, or fails, vLLM spawns the engine core.
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

from . import _start, inherited, switches
from .guard import spared

log = logging.getLogger("vllm.medusa")

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
CORE = ("vllm.v1.engine.core", "EngineCoreProc.run_engine_core")
SERVERS = ("vllm.entrypoints.openai.api_server",)  # main modules that serve without the word "serve"
WAIT = 20.0  # seconds for an answer: waiting longer costs more than spawning


def hook_command_line(module: Any) -> None:
    """Wraps vLLM's cli_env_setup, which its command line calls after all imports and before it reads its arguments."""
    original = module.cli_env_setup

    @functools.wraps(original)
    def cli_env_setup(*arguments: Any, **options: Any) -> Any:
        chosen = os.environ.get(METHOD)
        answer = original(*arguments, **options)
        _start.imported()
        try:
            begin(chosen)
        except Exception:  # pylint: disable=broad-except  # a plug-in's failure is not the engine's
            log.exception("medusa: the engine core's process is spawned, because the plug-in failed")
        return answer

    module.cli_env_setup = cli_env_setup


def _serves() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return sys.argv[1:2] == ["serve"] or (main is not None and main.name in SERVERS)


def begin(chosen: Optional[str] = None) -> None:
    """Forks, if this is a server that restores and nothing is unusual. chosen: the start method that the user has set."""
    from medusa import _api

    if not _serves() or not switches.plugin() or not switches.prefork():
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


def _unusual(chosen: Optional[str]) -> str:
    from . import fit

    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    for why, there in (
        (f"{METHOD} is set to {chosen}", chosen is not None),
        (f"this process has threads ({', '.join(others)})", bool(others)),
        ("not the main thread", threading.current_thread() is not threading.main_thread()),
        ("multiprocessing starts another program than this one", os.fsdecode(spawn.get_executable()) != sys.executable),
    ):
        if there:
            return why
    return fit.unfit_version() or inherited.device_in_use()


def _is_core(process_obj: Any) -> bool:
    target = getattr(process_obj, "_target", None)
    return (getattr(target, "__module__", ""), getattr(target, "__qualname__", "")) == CORE


def _unfit(process_obj: Any) -> str:
    """Why this engine core is not the only one of its server; "" if it is."""
    parallel = process_obj._kwargs["vllm_config"].parallel_config
    for name in ("data_parallel_size", "world_size", "nnodes"):
        if getattr(parallel, name) != 1:  # one that is missing has another name, and vLLM spawns
            return f"{name} is {getattr(parallel, name)}"
    for name in ("dp_rank", "local_dp_rank"):
        if process_obj._kwargs.get(name, 0):
            return f"{name} is {process_obj._kwargs[name]}"
    return ""


def _start_core(core: "Core", process_obj: Any) -> Any:
    """The engine core's process, forked; None if vLLM has to spawn it."""
    try:
        why = _unfit(process_obj) or core.changed()
        if not why:
            popen = Popen(process_obj, core)
            log.info("medusa: the engine core's process was forked when the server had imported vLLM")
            return popen
    except Exception as error:  # pylint: disable=broad-except
        why = f"{type(error).__name__}: {error}"
    spared("the process that waited to be the engine core may stay", core.drop)
    log.info("medusa: the engine core's process is spawned: %s", why)
    return None


# ---- in the server ----


class Core:
    """The process that waits to become the engine core. unusual: why it cannot be used; "" if it can."""

    def __init__(self) -> None:
        self._environment, self._fixed, self._place = dict(os.environ), inherited.fixed(), inherited.place()
        self._socket, theirs = (socket.socket(fileno=inherited.above_standard(end.detach())) for end in socket.socketpair())
        util._flush_std_streams()
        gc.freeze()  # imported objects stay; a collection would write to their pages, and so copy them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of threads, which are counted below
            server = os.getpid()
            self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _be_core(theirs, server)
        # A library that ends its threads before a fork, and starts them again afterwards, has none now.
        others = inherited.threads()
        theirs.close()
        self.unusual = f"threads of C libraries were running ({', '.join(others)})" if others else ""
        if self.unusual:
            self.drop()

    def changed(self) -> str:
        """The first property in which a spawned process would differ from this one; "" if there is none."""
        for what, before, now in (("the environment variable ", self._environment, dict(os.environ)),
                                  ("", self._fixed, inherited.fixed()), ("", self._place, inherited.place())):
            name = inherited.difference(before, now)
            if name:
                return f"{what}{name} has changed since the fork"
        if os.fsdecode(spawn.get_executable()) != sys.executable:
            return "multiprocessing starts another program than this one"
        return ""

    def ask(self, request: Dict[str, Any], descriptors: List[int]) -> None:
        """Returns when the process has taken over the request and the descriptors."""
        self._socket.settimeout(WAIT)
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._socket, [data], descriptors)
        if sent < len(data):
            self._socket.sendall(data[sent:])
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(4096)
            if not part:
                raise ChildProcessError(f"the forked process {self.pid} has ended")
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
    """Like multiprocessing's own class for "spawn", but for a process that exists already."""

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
        standard = inherited.standard()
        sentinel, child_w = map(inherited.above_standard, os.pipe())
        child_r, parent_w = map(inherited.above_standard, os.pipe())
        self.finalizer = util.Finalize(self, util.close_fds, (sentinel, parent_w))
        try:
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
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends SIGINT to the server, too, which decides
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
    """Imports as vLLM does, plug-ins first. An import that fails here fails again in the engine core, which reports it."""
    import importlib

    try:
        importlib.import_module("vllm.plugins").load_general_plugins()
        for name in NEEDED:
            if _asked(server):
                return
            importlib.import_module(name)
        gc.freeze()
    except Exception:  # pylint: disable=broad-except
        log.debug("medusa: an import before the engine core starts has failed; the engine core repeats it", exc_info=True)


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
    descriptors = [inherited.above_standard(descriptor) for descriptor in descriptors]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return (json.loads(data), descriptors) if data else None


def _become(request: Dict[str, Any], descriptors: List[int]) -> int:
    """Takes over all that a spawned process would have inherited. Returns the descriptor from which the process object comes."""
    count = 3 + len(request["standard"]) + request["more"]
    if len(descriptors) != count:
        raise ValueError(f"the request has {len(descriptors)} descriptors instead of {count}")
    reader, _sentinel, tracker, *others = descriptors  # the sentinel stays open until this process ends
    given = {number: others.pop(0) for number in request["standard"]}
    inherited.set_standard(given)
    for place in given.values():
        os.close(place)
    inherited.apply(request["settings"])
    resource_tracker._resource_tracker._fd = tracker
    popen_forkserver.forkserver._forkserver._inherited_fds = others
    inherited.draw_anew()
    return int(reader)
