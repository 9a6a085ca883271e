# SPDX-License-Identifier: Apache-2.0
"""Who holds restored graphs: their memory is given back when the last engine, step and output is gone."""
from __future__ import annotations

import atexit
import os
import weakref
from typing import Optional

from .. import _api

_current: "Optional[weakref.ref[Owner]]" = None
_exiting = False


class Owner:
    """Everything that uses restored memory refers to the same one."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def __del__(self) -> None:
        if not _exiting and self._process == os.getpid():  # a forked child owns nothing on the device
            _api.release()


def take_owner() -> Owner:
    global _current
    owner = _current() if _current else None
    if owner is None:
        owner = Owner()
        _current = weakref.ref(owner)
    return owner


def _at_exit() -> None:
    """The driver takes everything back by itself, and may be gone before Python's objects are."""
    global _exiting
    _exiting = True


atexit.register(_at_exit)
