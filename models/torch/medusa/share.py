# SPDX-License-Identifier: Apache-2.0
"""medusa/share.h by ctypes: device memory that processes have in common, handed out by medusa-backbone."""
from __future__ import annotations

import ctypes
from typing import Tuple

from ._api import Error
from ._client import Client

_U64, _INT, _SIZE, _STRING = ctypes.c_uint64, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p


class _Options(ctypes.Structure):
    _fields_ = [("size", _SIZE), ("deadline_ns", _U64), ("verify", _INT)]


_client = Client("medusa.share", {
    "medusa_share": [_STRING, _STRING, _SIZE, ctypes.POINTER(_Options), ctypes.POINTER(_U64), ctypes.POINTER(_INT)],
    "medusa_share_commit": [_U64],
    "medusa_share_end": [_U64],
})


def attach(name: str, layout: str, size: int, deadline: float = 600.0, verify: bool = False) -> Tuple[int, bool]:
    """The address of the memory, and whether another process has filled it; else fill it and call commit(). medusa_share(3) has the codes.

    deadline: seconds to wait while another process fills it, above 0.
    """
    address, filled = _U64(), _INT()
    options = _Options(ctypes.sizeof(_Options), max(1, int(deadline * 1e9)), verify)
    _client.call("medusa_share", name.encode(), layout.encode(), size, ctypes.byref(options), ctypes.byref(address), ctypes.byref(filled))
    return address.value, bool(filled.value)


def commit(address: int) -> None:
    """The memory is filled: it becomes read-only, and the others get it."""
    _client.call("medusa_share_commit", address)


def end(address: int) -> None:
    """Unmaps the memory, which nothing may use any more."""
    _client.call("medusa_share_end", address)


__all__ = ["Error", "attach", "commit", "end"]
