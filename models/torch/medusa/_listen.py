# SPDX-License-Identifier: Apache-2.0
"""A template's Unix socket: who may use its folder, what lies at its path, and that only one process listens there."""
from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import sys
from typing import Container

PATH_MOST = 107  # bytes of a socket's path: the kernel has room for 108 with the final zero
ANSWER_S = 1.0  # a process that listens takes a connection at once
OTHER = "end it, or name another path"


class Failed(Exception):
    """Why nothing can listen at a path, and what to do."""


def fill_standard() -> None:
    """Opens /dev/null where a standard descriptor is closed. Else a socket would have its number, and be replaced by what an engine is given."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def streams_of(given: Container[int]) -> None:
    """Python's standard streams as a new process would have them, for the standard descriptors that it is given."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number not in given:
            setattr(sys, name, None)
        elif getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", errors="backslashreplace" if number == 2 else None, closefd=False)  # pylint: disable=consider-using-with
            setattr(sys, name, stream)


def check(path: str, private: bool) -> None:
    """Whether a socket may lie at this path. private: its folder has to be this user's alone; a missing one is made.

    Otherwise nobody else may write to the folder: whoever may, could put a socket of his own at the path, and gets what clients hand over.
    """
    size = len(os.fsencode(path))
    if size > PATH_MOST:
        raise Failed(f"{path}: its name has {size} bytes, and a socket's at most {PATH_MOST}: name a shorter one")
    folder = os.path.dirname(os.path.abspath(path))
    try:
        if private:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        info = os.stat(folder)
    except OSError as error:
        raise Failed(f"{folder}: {error.strerror}: name a socket in a folder that this user has or can make") from None
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid not in ((os.geteuid(),) if private else (os.geteuid(), 0)) or mode & (0o077 if private else 0o022):
        what = "use" if private else "write to"
        raise Failed(f"{folder}: others may {what} this folder (mode {mode:o} of user {info.st_uid}); "
                     f"make it mode 700 of user {os.geteuid()}, or name another folder")


def listen(path: str, private: bool, backlog: int) -> socket.socket:
    """The socket; when it is at its path, it listens. Raises Failed, which names the path."""
    check(path, private)
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # of two that start at once, one finds the other
        _remove_dead(path)
        return _put(path, backlog)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror or error}") from None
    finally:
        os.close(folder)


def _put(path: str, backlog: int) -> socket.socket:
    """Binds under another name, so that a client that finds the socket is not refused because nobody listens yet."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    aside = os.path.join(os.path.dirname(path), f".{os.getpid()}")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        before = os.umask(0o177)
        try:
            listening.bind(aside if len(os.fsencode(aside)) <= PATH_MOST else path)
        finally:
            os.umask(before)
        listening.listen(backlog)
        if os.path.lexists(aside):
            os.rename(aside, path)
        return listening
    except BaseException:
        listening.close()
        raise


def _remove_dead(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Failed(f"{path}: this file exists and is not a socket; remove it, or name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(ANSWER_S)
        try:
            asked.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except (TimeoutError, BlockingIOError):  # the latter at once, if the queue of connections is full
            raise Failed(f"{path}: a process listens there and takes no connection; {OTHER}") from None
    raise Failed(f"{path}: another template listens there; {OTHER}")
