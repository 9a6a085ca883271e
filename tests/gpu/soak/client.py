# SPDX-License-Identifier: Apache-2.0
"""Has a template process fork this command's engine: passes on arguments, environment and descriptors, takes its exit code."""
import json
import os
import socket
import sys


def role():
    """A template is preloaded as this process is: the library that a Medusa command put in front says which one it is."""
    preload = os.environ.get("LD_PRELOAD", "")
    if "libmedusa-capture" in preload:
        return "capture"
    return "restore" if "libmedusa-restore" in preload else "none"


def main():
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(os.path.join(sys.argv[1], role()))
    words = json.dumps({"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}).encode()
    socket.send_fds(link, [len(words).to_bytes(4, "little")], [0, 1, 2])
    link.sendall(words)
    answer = b""
    while len(answer) < 4:
        part = link.recv(4 - len(answer))
        if not part:
            return 1
        answer += part
    code = int.from_bytes(answer, "little", signed=True)
    if code < 0:  # ended by a signal: end as a shell would say it
        code = 128 - code
    return code


if __name__ == "__main__":
    sys.exit(main())
