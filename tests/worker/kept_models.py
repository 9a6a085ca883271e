# SPDX-License-Identifier: Apache-2.0
"""Models that stay loaded (min_replicas, pin): kept_models.py FOLDER."""
import os
import signal
import sys

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
port = free_ports(10)
GPU = f"startPort: {port}\nmedusa: {{gpus: [{{memory: 90MB}}], policies: {{preloading: none}}}}\nmodels:\n"


def model(name, own, more="", engine=""):
    """One that takes 30 MB of the books, and is stopped when it leaves."""
    return f'  {name}: {{cmd: "{ENGINE} --name {name} {engine}", {more} medusa: {{memory: 30MB, swap: off, {own}}}}}\n'


def of(daemon, name):
    return next(m for m in daemon.tell("models")["models"] if m["model"] == name)


def pid_of(daemon, name):
    return daemon.chat(name).json.get("pid")


OTHERS = "".join(model(name, "start_time: 1s") for name in "abc")
KEPT = model("kept", "min_replicas: 1", "ttl: 1,")
d = Daemon(f"{folder}/kept", GPU + KEPT + model("pinned", "pin: true", "ttl: 1,") + model("brief", "pin: false", "ttl: 1,") + OTHERS)

# One is there without a request, the other from its first request on.
until("it is loaded ahead", lambda: d.running() == {"kept": "ready"})
pids = {name: pid_of(d, name) for name in ("kept", "pinned")}

# Beside the two there is room for one: the others take turns, and the two stay.
for name in "abca":
    check(f"{name} has its turn", name, d.chat(name).json.get("name"))
check("the same engines", pids, {name: pid_of(d, name) for name in pids})
d.chat("brief")
until("the idle one leaves after its ttl", lambda: set(d.running()) == set(pids))
check("those that stay have none", pids, {name: pid_of(d, name) for name in pids})

# An engine that dies is started again, without a request for min_replicas, with one for pin.
for name in pids:
    os.kill(pids[name], signal.SIGKILL)
until("it is said when it is loaded anew", lambda: "model kept: it is loaded again in 1 s" in d.stderr())
until("it is", lambda: d.running() == {"kept": "ready"})
check("the pinned one is not", False, "model pinned: it is loaded again" in d.stderr())
check("new engines", [True, True], [pid_of(d, name) not in (None, pids[name]) for name in pids])

# What a user unloads stays away, and its memory is for others, until somebody asks for it.
check("unload", 0, d.ctl("unload", "kept").returncode)
check("unload", 0, d.ctl("unload", "pinned").returncode)
for name in "abc":
    d.chat(name)
check("all others fit", {"a", "b", "c"}, set(d.running()))
pids = {"kept": pid_of(d, "kept")}
check("a load wants it, too", 0, d.ctl("load", "pinned").returncode)
pids["pinned"] = pid_of(d, "pinned")
for name in "abca":
    d.chat(name)
check("they stay again", pids, {name: pid_of(d, name) for name in pids})


# The configuration changes: one may go, another one stays.
def reload(text):
    with open(f"{d.folder}/config.yaml", "w", encoding="utf-8") as file:
        file.write(GPU + text)
    return d.tell("reload")


answer = reload(model("kept", "pin: false") + OTHERS.replace("start_time: 1s", "min_replicas: 1", 1))
check("changed, removed", (2, 2), (answer.get("changed"), answer.get("removed")))
until("the other one is loaded ahead", lambda: d.running().get("a") == "ready")
pids = {"a": pid_of(d, "a")}
for name in ("b", "c", "kept", "b"):
    d.chat(name)
check("it stays", pids["a"], pid_of(d, "a"))
check("one of the others has left", 3, len(d.running()))
check("the exit code", 0, d.stop())

# An engine that never starts is tried less and less often, and holds nobody up.
d = Daemon(f"{folder}/fails", GPU + model("fails", "min_replicas: 1", engine="--die-at-start") + model("a", "min_replicas: 1"))
until("it is tried again, and once more", lambda: "model fails: it is loaded again in 4 s" in d.stderr())
check("the one beside it", "a", d.chat("a").json.get("name"))
check("it was tried", lambda loads: loads >= 3, of(d, "fails")["loads"])
check("a request tries it at once", (502, "engine_failed"), (lambda r: (r.status, r.json["error"]["code"]))(d.chat("fails")))
check("the exit code", 0, d.stop())
finish()
