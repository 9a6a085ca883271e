# SPDX-License-Identifier: Apache-2.0
"""Tells the command that started this engine that a plug-in is at work here, or why it is not (MEDUSA_TELL in medusa(7))."""
from __future__ import annotations

import os

from . import __version__

MOST = 400  # bytes of a text


def tell(plugin: str, text: str, version: str = __version__) -> None:
    """Appends a line to the file that medusa-capture or medusa-verify has made for this. Never raises, and makes no file."""
    path = os.environ.get("MEDUSA_TELL")
    if not path:
        return
    try:
        words = " ".join(text.split()).encode(errors="replace")[:MOST]
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(handle, b"%s %s %d %s\n" % (plugin.encode(), version.encode(), os.getpid(), words))
        finally:
            os.close(handle)
    except (OSError, ValueError):
        pass  # the engine may have lost its right to write there, or the command has ended
