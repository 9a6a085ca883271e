# SPDX-License-Identifier: Apache-2.0
"""medusa/swap.h by ctypes: an engine's device memory is taken away and given back, from any process or from the engine itself."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Optional, Union

from ._api import INVALID, Error
from ._client import Client

_U64, _INT, _SIZE, _STRING = ctypes.c_uint64, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p


class _Options(ctypes.Structure):
    _fields_ = [("size", _SIZE), ("deadline_ns", _U64), ("verify", _INT), ("overlap", _INT), ("full", _INT), ("gpu", _STRING),
                ("gpu_neighbours", _INT)]


class _Report(ctypes.Structure):
    _fields_ = [("size", _SIZE), *((name, _U64) for name in (
        "bytes", "copied", "hashed_equal", "zero", "discarded", "stays", "coming",
        "quiesce_ns", "hash_ns", "lock_ns", "copy_ns", "unmap_ns", "map_ns", "total_ns",
        "driver_lock_ns", "checkpoint_ns", "restore_ns", "driver_unlock_ns", "neighbour_bytes", "spilled", "spill_ns"))]


class _Engine(ctypes.Structure):
    _fields_ = [("size", _SIZE), ("name", ctypes.c_char * 64), *((name, _U64) for name in ("pid", "processes", "processes_out")),
                ("moving", _INT), ("released", _INT),
                *((name, _U64) for name in ("swappable", "out", "stays", "coming", "pool_bytes", "pool_held", "pool_cached", "outs", "ins")),
                ("processes_silent", _U64), ("full", _INT), *((name, _U64) for name in ("in_file", "spill_bytes", "spill_held"))]


_EACH = ctypes.CFUNCTYPE(_INT, ctypes.POINTER(_Engine), ctypes.c_void_p)
_PROTOTYPES = {
    "medusa_swap_out": [_STRING, ctypes.POINTER(_Options), ctypes.POINTER(_Report)],
    "medusa_swap_in": [_STRING, ctypes.POINTER(_Options), ctypes.POINTER(_Report)],
    "medusa_swap_release": [_STRING],
    "medusa_swap_status": [_STRING, ctypes.POINTER(_Engine)],
    "medusa_swap_list": [_EACH, ctypes.c_void_p],
}
_client = Client("medusa.swap", _PROTOTYPES)
_call = _client.call


def _name(name: Optional[str]) -> Optional[bytes]:
    if name is not None and "\0" in name:
        raise Error(INVALID, f"{name!r} is not a name for an engine")  # in C it would end there, and be another one's
    return None if name is None else name.encode()


def _values(made: ctypes.Structure) -> Dict[str, Any]:
    return {name: getattr(made, name) for name, *_ in made._fields_ if name != "size"}


def _swap(function: str, name: Optional[str], **options: Any) -> Dict[str, int]:
    given, report = _Options(size=ctypes.sizeof(_Options), **options), _Report(size=ctypes.sizeof(_Report))
    _call(function, _name(name), ctypes.byref(given), ctypes.byref(report))
    return _values(report)


def out(name: Optional[str] = None, deadline: float = 10.0, full: bool = False) -> Dict[str, int]:
    """Takes the memory of the engine of this name away; None: of this process alone. The fields of struct medusa_swap_report.

    None: stop other threads that call CUDA first. One that waits for the memory may hold Python's own lock, and then nothing wakes the engine.
    deadline: how many seconds the engine's work on the device may take to end. If the memory is out already, "bytes" is 0.
    full: the CUDA driver takes what is left, such as contexts; an engine cannot ask for that itself.
    Raises medusa.swap.Error, whose code is a MEDUSA_ERR_* of medusa.h; the memory is then where it was.
    """
    return _swap("medusa_swap_out", name, deadline_ns=int(deadline * 1e9), full=full)


def in_(name: Optional[str] = None, verify: bool = False, overlap: bool = False, gpu: Union[int, str, None] = None,
        gpu_neighbours: bool = False) -> Dict[str, int]:
    """Gives the memory back. verify: compares hashes; overlap: the engine goes on while its memory fills. Else as out().

    gpu: after out(full=True), the GPU on which the engine comes back, as a number or a UUID.
    gpu_neighbours: other GPUs with NVLink to this one carry a part of the bytes; not with overlap.
    """
    return _swap("medusa_swap_in", name, verify=verify, overlap=overlap, gpu=None if gpu is None else str(gpu).encode(),
                 gpu_neighbours=gpu_neighbours)


def release(name: Optional[str] = None) -> None:
    """Gives the memory back if it is out, and leaves the engine alone from then on."""
    _call("medusa_swap_release", _name(name))


def _engine(made: _Engine) -> Dict[str, Any]:
    return {**_values(made), "name": made.name.decode(), "moving": bool(made.moving), "released": bool(made.released), "full": bool(made.full)}


def status(name: Optional[str] = None) -> Dict[str, Any]:
    """The fields of struct medusa_swap_engine; None: of the engine that this process belongs to."""
    made = _Engine(size=ctypes.sizeof(_Engine))
    _call("medusa_swap_status", _name(name), ctypes.byref(made))
    return _engine(made)


def engines() -> List[Dict[str, Any]]:
    """All engines of this user."""
    found: List[Dict[str, Any]] = []

    def each(engine: Any, _: Any) -> int:
        found.append(_engine(engine.contents))
        return 0

    _call("medusa_swap_list", _EACH(each), None)
    return found


def managed() -> bool:
    """Whether medusa-swap run has started this process, answers, and has not released the engine. Never raises."""
    if not os.environ.get("MEDUSA_SWAP_CONTROL"):
        return False
    try:
        return not status()["released"]
    except (Error, AttributeError):
        return False
