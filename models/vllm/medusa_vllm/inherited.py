# SPDX-License-Identifier: Apache-2.0
"""Reads, compares and sets what a process inherits from its parent, apart from memory, environment and descriptors."""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import signal
import socket
import struct
import sys
from typing import Any, Dict, Iterable, List

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children", "user", "uts")
STATUS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Mems_allowed")
LIMITS = tuple(sorted(name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"))
PR_SET_PDEATHSIG = 1
STANDARD = (0, 1, 2)
# Threads that a forked child can do without. jemalloc (inside libarrow) starts its thread again in the child. NVML loads the driver,
# which starts a thread that waits in poll(2); a child that calls cuInit gets such a thread of its own.
DISPENSABLE = tuple(re.compile(name).fullmatch for name in ("jemalloc_bg_thd", "cuda[0-9]+"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _status() -> Dict[str, str]:
    lines = (line.partition(":") for line in _read("/proc/self/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def fixed() -> Dict[str, str]:
    """By name: properties that another process cannot take over later, or not without privileges."""
    status = _status()
    found = {name: status.get(name, "") for name in STATUS}
    found.update({"namespace " + name: _link("/proc/self/ns/" + name) for name in NAMESPACES})
    found["root folder"] = _link("/proc/self/root")
    return found


def place() -> Dict[str, str]:
    """By name: further properties in which a child that was forked earlier may differ from one that is spawned now."""
    return {"cgroup": _read("/proc/self/cgroup"), "out-of-memory score": _read("/proc/self/oom_score_adj"),
            "process group": f"{os.getpgrp()} in session {os.getsid(0)}"}


def settings() -> Dict[str, Any]:
    """Properties that another process of the same user can set for itself, as JSON values."""
    return {"folder": os.getcwd(), "umask": int(_status().get("Umask", "022"), 8),
            "limits": {name: list(resource.getrlimit(getattr(resource, name))) for name in LIMITS},
            "processors": sorted(os.sched_getaffinity(0)), "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "ignored": ignored(), "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))}


def apply(wanted: Dict[str, Any]) -> None:
    """Sets what settings() has read in another process. Raises OSError or ValueError if a value cannot be set."""
    if os.getcwd() != wanted["folder"]:
        os.chdir(wanted["folder"])
    os.umask(wanted["umask"])
    for name, limits in wanted["limits"].items():
        if name in LIMITS and list(resource.getrlimit(getattr(resource, name))) != limits:
            resource.setrlimit(getattr(resource, name), tuple(limits))
    if set(wanted["processors"]) != os.sched_getaffinity(0):
        os.sched_setaffinity(0, wanted["processors"])
    if os.getpriority(os.PRIO_PROCESS, 0) != wanted["nice"]:
        os.setpriority(os.PRIO_PROCESS, 0, wanted["nice"])
    set_signals(wanted["ignored"])
    signal.pthread_sigmask(signal.SIG_SETMASK, wanted["blocked"])


def ignored() -> List[int]:
    return sorted(int(number) for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN)


def set_signals(to_ignore: Iterable[int]) -> None:
    """Sets signals as Python's start does: ignored ones stay ignored, SIGINT raises KeyboardInterrupt, others have their default."""
    signal.set_wakeup_fd(-1)
    to_ignore = set(to_ignore)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        wanted = signal.SIG_IGN if int(number) in to_ignore else default
        if signal.getsignal(number) not in (wanted, None):
            signal.signal(number, wanted)


def difference(before: Dict[str, Any], now: Dict[str, Any]) -> str:
    """The first name whose values differ; "" if there is none."""
    for name in sorted(set(before) | set(now)):
        if before.get(name) != now.get(name):
            return name
    return ""


def threads() -> List[str]:
    """Names of threads that a forked child would need and lack, including those of C libraries."""
    found = []
    for number in os.listdir("/proc/self/task"):
        name = _read(f"/proc/self/task/{number}/comm").strip()
        if int(number) != os.getpid() and not any(fullmatch(name) for fullmatch in DISPENSABLE):
            found.append(name or "without a name")
    return sorted(found)


def die_with_parent(number: int) -> None:
    """Sets the signal that this process gets when its parent ends; 0: none."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def device_in_use() -> str:
    """Why a fork of this process could not use CUDA; "" if it can."""
    driver = _loaded("libcuda.so.1")
    count = ctypes.c_int()
    if driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) != 3:  # CUDA_ERROR_NOT_INITIALIZED
        return "cuInit was called"
    return ""


def _loaded(name: str) -> Any:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def draw_anew() -> None:
    """Seeds NumPy's random numbers. In a forked process Python seeds its own, and NumPy does not."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed()


def peer(connection: Any) -> Any:
    """Process, user and group ids of the other side of a Unix socket."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))


def standard() -> List[int]:
    """Standard descriptors that a command gets from this process. Where one was closed, a file that was opened later may have its number."""
    return [number for number in STANDARD if _is_inheritable(number)]


def _is_inheritable(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        return False


def above_standard(descriptor: int) -> int:
    """The descriptor, or a copy in its place, with a number that standard descriptors do not take."""
    if descriptor not in STANDARD:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, len(STANDARD))
    os.close(descriptor)
    return copy


def set_standard(given: Dict[int, int]) -> None:
    """Puts descriptors, whose numbers are above these, into the places of standard ones, and closes the others."""
    for number in STANDARD:
        if number in given:
            os.dup2(given[number], number)
        else:
            with contextlib.suppress(OSError):
                os.close(number)
