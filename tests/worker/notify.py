# SPDX-License-Identifier: Apache-2.0
"""What medusa-worker tells a service manager: notify.py FOLDER."""
import os
import socket
import sys

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports

folder = sys.argv[1]
config = f"startPort: {free_ports(2)}\nmodels:\n  a: {{cmd: \"{ENGINE} --name a\"}}\n"


def hear(listener, what):
    """The next message that is not the watchdog's."""
    while True:
        message = listener.recv(4096).decode()
        if message != "WATCHDOG=1":
            check(what, what, message.split("\n")[0])
            return message


for name in (f"{folder}/notify", "\0medusa-test-" + str(os.getpid())):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(PATIENCE)
    listener.bind(name)
    d = Daemon(f"{folder}/notified{len(name)}", config, env={"NOTIFY_SOCKET": name.replace("\0", "@"), "WATCHDOG_USEC": "200000"})
    hear(listener, "READY=1")
    check("engines are not told where it is", None, d.chat("a").json.get("notify"))
    for _ in range(3):
        check("the loop lives", b"WATCHDOG=1", listener.recv(4096))
    check("a reload", 0, d.ctl("reload").returncode)
    check("since when", True, hear(listener, "RELOADING=1").split("\n")[1].startswith("MONOTONIC_USEC="))
    hear(listener, "READY=1")
    check("the exit code", 0, d.stop())
    hear(listener, "STOPPING=1")
    listener.close()
# Nobody there: it serves all the same.
d = Daemon(f"{folder}/unheard", config, env={"NOTIFY_SOCKET": f"{folder}/nobody", "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"})
check("it serves", 200, d.chat("a").status)
check("and says so", True, "NOTIFY_SOCKET" in d.stderr())
check("the exit code", 0, d.stop())
finish()
