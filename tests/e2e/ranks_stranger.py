#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Comes to the socket at which ranks meet, or sits there, as somebody who is no rank. argv: the socket, how."""
import os
import socket
import sys
import time

PATH, HOW = sys.argv[1:]


def connect():
    made = socket.socket(socket.AF_UNIX)
    made.connect(PATH)
    return made


def stay(connection):
    """In a child, which has the connection until the rank there ends."""
    if os.fork() == 0:
        connection.settimeout(20)
        connection.recv(1)
        os._exit(0)


def sit():
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(PATH + ".new")
    listening.listen(8)
    os.rename(PATH + ".new", PATH)  # whoever sees it can connect
    if HOW == "listen-gone":  # the socket is left behind by somebody who did not close it in time
        os._exit(0)
    kept = []
    while True:
        connection = listening.accept()[0]
        kept.append(connection)
        if HOW == "listen-wrong":
            connection.sendall(b"\x00\xff" * 500)
        if HOW == "listen-closes":
            kept.pop().close()


if HOW.startswith("listen"):
    sit()
elif HOW == "garbage":
    connect().sendall(os.urandom(64))
elif HOW == "half":
    guest = connect()
    guest.sendall(b"MDRANK?\0" + b"\x01")
    stay(guest)
elif HOW == "nothing":
    stay(connect())
elif HOW == "closed":
    for _ in range(100):
        connect().close()
elif HOW == "flood":
    guest = connect()
    try:
        for _ in range(1000):
            guest.sendall(b"MDRANK?\0" * 1000)
    except OSError:
        pass
elif HOW == "pieces":
    guest = connect()
    try:
        for _ in range(64):
            guest.sendall(b"\x01")
            time.sleep(0.001)
    except OSError:
        pass
time.sleep(0.1)
