# SPDX-License-Identifier: Apache-2.0
"""medusa/medusa.h by ctypes: the functions of whatever library is preloaded, and harmless answers where none is."""
from __future__ import annotations

import ctypes
import logging
import os
from typing import Callable, Dict, Optional, Sequence, Tuple

OK, INVALID, NO_MEMORY, NOT_FOUND, UNSUPPORTED, TIMEOUT, DRIVER, MISMATCH = 0, 1, 2, 4, 5, 6, 40, 60
CONSTANT, STATE, INPUT, OUTPUT = 1, 2, 3, 4
FOREVER = 2**64 - 1
NOTE_MAX = 65536

_MODES = {0: "none", 1: "capture", 2: "restore", 3: "verify"}
_NOT_PRELOADED = "no Medusa library is preloaded"

log = logging.getLogger("medusa")


class Error(Exception):
    """A function of the C interface said no; str() is medusa_reason()."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class KvRequest(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_char_p),
        ("block_bytes", ctypes.c_uint64),
        ("utilization", ctypes.c_double),
        ("profile", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("most", ctypes.POINTER(ctypes.c_uint64)),
    ]


class Kv(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("bytes", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("from_profile", ctypes.c_int),
        ("ns", ctypes.c_uint64),
    ]


class Stats(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_uint32) for name in ("graphs_total", "graphs_restored", "graphs_refused")),
        *((name, ctypes.c_uint64) for name in ("nodes", "pointers")),
        *((name, ctypes.c_uint32) for name in ("kernels_loaded_image", "kernels_stored_image", "kernels_triggered")),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "open_ns",
                "images_ns",
                "functions_ns",
                "arena_ns",
                "patch_ns",
                "build_ns",
                "instantiate_ns",
                "upload_ns",
                "own_ns",
                "first_ready_ns",
                "total_ns",
                "private_bytes",
                "image_bytes",
                "heap_ns",
                "constants_ns",
            )
        ),
    ]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

_STRING, _POINTER, _U64, _UNSIGNED, _SIZE = (
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_uint,
    ctypes.c_size_t,
)
_PROTOTYPES = {
    "medusa_mode": (ctypes.c_int, []),
    "medusa_reason": (_STRING, []),
    "medusa_bind": (ctypes.c_int, [_STRING, _U64, _SIZE, ctypes.c_int]),
    "medusa_fingerprint_add": (ctypes.c_int, [_STRING, _STRING]),
    "medusa_graph_get": (ctypes.c_int, [_STRING, _UNSIGNED, _U64, ctypes.POINTER(_POINTER)]),
    "medusa_graph_ready": (ctypes.c_int, [_STRING, _UNSIGNED]),
    "medusa_graph_want": (ctypes.c_int, [_STRING, ctypes.POINTER(_UNSIGNED), _SIZE]),
    "medusa_graph_label": (ctypes.c_int, [_POINTER, _STRING, _UNSIGNED]),
    "medusa_graph_output": (ctypes.c_int, [_POINTER, _UNSIGNED, _U64, _SIZE]),
    "medusa_graph_note": (ctypes.c_int, [_POINTER, _STRING, _SIZE]),
    "medusa_graph_refuse": (ctypes.c_int, [_POINTER, _STRING]),
    "medusa_graph_scratch": (ctypes.c_int, [_U64, _SIZE]),
    "medusa_swap_discardable": (ctypes.c_int, [_U64, _SIZE]),
    "medusa_swap_needed": (ctypes.c_int, [_U64, _SIZE]),
    "medusa_graph_output_get": (
        ctypes.c_int,
        [_STRING, _UNSIGNED, _UNSIGNED, ctypes.POINTER(_U64), ctypes.POINTER(_SIZE)],
    ),
    "medusa_graph_note_get": (ctypes.c_int, [_STRING, _UNSIGNED, ctypes.POINTER(_POINTER), ctypes.POINTER(_SIZE)]),
    "medusa_trigger": (ctypes.c_int, [_STRING, CALLBACK, _POINTER]),
    "medusa_mark": (ctypes.c_int, [_STRING]),
    "medusa_stage": (ctypes.c_int, [_STRING, _U64]),
    "medusa_kv_capacity": (ctypes.c_int, [ctypes.POINTER(KvRequest), ctypes.POINTER(Kv)]),
    "medusa_stats_read": (ctypes.c_int, [ctypes.POINTER(Stats)]),
    "medusa_release": (None, []),
}


def _load() -> Tuple[Optional[ctypes.CDLL], str]:
    """The library, and why there is none."""
    library = ctypes.CDLL(None)
    if not any(hasattr(library, name) for name in _PROTOTYPES):
        return None, _NOT_PRELOADED
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name, None)
        if function is None:
            return None, f"the Medusa library that is loaded has no {name}: it is older than this package, and is not used"
        function.restype = result
        function.argtypes = arguments
    return library, ""


_library, _why_none = _load()
if _why_none not in ("", _NOT_PRELOADED):
    log.warning("medusa: %s", _why_none)
_kept: list = []  # callbacks that C may still call


def present() -> bool:
    """Whether a library answers at all; the null library does, with mode "none"."""
    return _library is not None


def why_none() -> str:
    """Why no library answers; "" if one does."""
    return _why_none


def mode() -> str:
    """What the preloaded library does in this process; "none" in an engine that is swapped and has no artifact."""
    now = _MODES.get(_library.medusa_mode(), "none") if _library else "none"
    swapped_alone = os.environ.get("MEDUSA_SWAP_CONTROL") and not os.environ.get("MEDUSA_ARTIFACT")
    return "none" if now == "restore" and swapped_alone else now


def _reason() -> str:
    return (_library.medusa_reason() or b"").decode(errors="replace")


def _check(code: int) -> None:
    if code != OK:
        raise Error(code, _reason() or f"error {code}")


def _text(text: str) -> bytes:
    return text.replace("\0", "?").encode(errors="replace")


def bind(name: str, address: int, size: int, role: int) -> None:
    if _library:
        _check(_library.medusa_bind(_text(name), address, size, role))


def fingerprint_add(name: str, value: str) -> None:
    if _library:
        _check(_library.medusa_fingerprint_add(_text(name), _text(value)))


def graph_get(label: str, batch: int, timeout_ns: int = FOREVER) -> int:
    """The restored graph's CUgraphExec."""
    if not _library:
        raise Error(NOT_FOUND, _why_none)
    taken = ctypes.c_void_p()
    _check(_library.medusa_graph_get(_text(label), batch, timeout_ns, ctypes.byref(taken)))
    return taken.value or 0


def ranks_meet() -> bool:
    """Whether this process may be one of several ranks that agree on each graph (medusa(7), MEDUSA_RANKS_FOLDER)."""
    return bool(os.environ.get("MEDUSA_RANKS_FOLDER"))


def graph_ready(label: str, batch: int) -> bool:
    return bool(_library and _library.medusa_graph_ready(_text(label), batch))


def graph_want(label: str, batches: Sequence[int]) -> None:
    if _library:
        _check(_library.medusa_graph_want(_text(label), (ctypes.c_uint * len(batches))(*batches), len(batches)))


def graph_label(graph: int, label: str, batch: int) -> None:
    if _library:
        _check(_library.medusa_graph_label(graph or None, _text(label), batch))


def graph_output(graph: int, index: int, address: int, size: int) -> None:
    if _library:
        _check(_library.medusa_graph_output(graph or None, index, address, size))


def graph_note(graph: int, data: bytes) -> None:
    if _library:
        _check(_library.medusa_graph_note(graph or None, data, len(data)))


def graph_refuse(graph: int, why: str) -> None:
    if _library:
        _check(_library.medusa_graph_refuse(graph or None, _text(why)[:1000]))


def graph_scratch(address: int, size: int) -> None:
    if _library:
        _check(_library.medusa_graph_scratch(address, size))


def swap_discardable(address: int, size: int) -> None:
    if _library:
        _check(_library.medusa_swap_discardable(address, size))


def swap_needed(address: int, size: int) -> None:
    if _library:
        _check(_library.medusa_swap_needed(address, size))


def graph_output_get(label: str, batch: int, index: int) -> Tuple[int, int]:
    """Address and bytes."""
    if not _library:
        raise Error(NOT_FOUND, _why_none)
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    _check(
        _library.medusa_graph_output_get(_text(label), batch, index, ctypes.byref(address), ctypes.byref(size))
    )
    return address.value, size.value


def graph_note_get(label: str, batch: int) -> bytes:
    if not _library:
        raise Error(NOT_FOUND, _why_none)
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    _check(_library.medusa_graph_note_get(_text(label), batch, ctypes.byref(data), ctypes.byref(size)))
    return ctypes.string_at(data.value, size.value) if data.value and size.value else b""


class Callback:
    """A Python function for C to call: what it raises is kept for the Python caller, and C hears of a failure."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.raised: Optional[BaseException] = None
        self.pointer = CALLBACK(lambda user: self._run(function))

    def _run(self, function: Callable[[], object]) -> int:
        try:
            function()
        except BaseException as error:  # pylint: disable=broad-except  # C can't pass it on
            self.raised = error
            return 1
        return 0

    def take(self) -> Optional[BaseException]:
        raised, self.raised = self.raised, None
        return raised


def trigger(name: str, callback: Callback) -> None:
    if _library:
        _check(_library.medusa_trigger(_text(name), callback.pointer, None))
        _kept.append(callback)


def mark(name: str) -> None:
    if _library:
        _check(_library.medusa_mark(_text(name)))


def stage(name: str, ns: int) -> None:
    if _library:
        _check(_library.medusa_stage(_text(name), ns))


def kv_capacity(
    key: str, block_bytes: int, utilization: float, callback: Optional[Callback], most: Optional[ctypes.c_uint64] = None
) -> Tuple[Kv, str]:
    """The answer, and why it was measured although there is an artifact. The callback may set `most`."""
    if not _library:
        raise Error(UNSUPPORTED, _why_none)
    pointer = ctypes.cast(callback.pointer, ctypes.c_void_p) if callback else None
    limit = ctypes.pointer(most) if most is not None else None
    request = KvRequest(ctypes.sizeof(KvRequest), _text(key), block_bytes, utilization, pointer, None, limit)
    answer = Kv(size=ctypes.sizeof(Kv))
    _check(_library.medusa_kv_capacity(ctypes.byref(request), ctypes.byref(answer)))
    return answer, _reason()


def stats() -> Dict[str, int]:
    """struct medusa_stats by name; {} outside of a restore."""
    now = Stats(size=ctypes.sizeof(Stats))
    if not _library or _library.medusa_stats_read(ctypes.byref(now)) != OK:
        return {}
    return {name: getattr(now, name) for name, _ in Stats._fields_ if name != "size"}


def release() -> None:
    if _library:
        _library.medusa_release()
