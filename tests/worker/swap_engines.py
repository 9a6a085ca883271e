# SPDX-License-Identifier: Apache-2.0
"""Engines with device memory behind medusa-worker: swap_engines.py FOLDER. Three share a GPU that has room for one."""
import os
import random
import sys
import threading

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
models = "".join(f"""
  m{i}:
    cmd: {ENGINE} --name m{i} --device-mb 40 --dies-with-device
    medusa: {{memory: 40MB}}
""" for i in range(3))
d = Daemon(f"{folder}/swap", f"""
startPort: {free_ports(8)}
medusa:
  gpus: [{{memory: 60MB}}]
models:{models}""", env={"HOSTCUDA_LOST": f"{folder}/lost"})
pids = {}
for i in (0, 1, 2, 0, 1, 2, 2, 0):
    r = d.chat(f"m{i}")
    check(f"m{i}: status, and whether its memory is what it was", (200, True), (r.status, r.json.get("memory")))
    check(f"m{i} is the process that it was", pids.setdefault(i, r.json.get("pid")), r.json.get("pid"))
states = d.running()
check("one is ready, two are swapped", ["ready", "swapped", "swapped"], sorted(states.values()))

# Many at once: each gets its answer, from memory that is right.
wrong = []


def ask(number):
    r = d.chat(f"m{number % 3}", wait=random.random() / 50)
    if r.status != 200 or r.json.get("memory") is not True:
        wrong.append((r.status, r.body))


for _ in range(4):
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
check("requests at once", [], wrong)
check("no engine was started anew", pids, {i: d.chat(f"m{i}").json.get("pid") for i in range(3)})

# The GPU is lost while a model is swapped: its process is of no use any more, and a new one serves when there is a GPU again.
with open(f"{folder}/lost", "wb"):
    pass
swapped = next(m for m, state in d.running().items() if state == "swapped")
check("without a GPU", (502, "engine_failed"), (lambda r: (r.status, r.json["error"]["code"]))(d.chat(swapped)))
os.unlink(f"{folder}/lost")
for i in range(3):
    r = d.chat(f"m{i}")
    check(f"m{i} with a GPU again", (200, True), (r.status, r.json.get("memory")))
check("the exit code", 0, d.stop())


def engines(name):
    """Processes of the model's engine; medusa-swap run has the same words behind its own."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[1:2] == [ENGINE.split()[1]] and words[words.index("--name") + 1] == name:
            found.append(int(pid))
    return found


# A swapped model that is being unloaded, slowly, is asked for: its next engine starts when the last one has ended.
name = f"slow{os.getpid()}"
d = Daemon(f"{folder}/slow", f"""
startPort: {free_ports(8)}
unloadTimeout: 2
medusa: {{gpus: [{{memory: 60MB}}]}}
models:
  {name}: {{cmd: "{ENGINE} --name {name} --device-mb 40 --ignore-term", medusa: {{memory: 40MB}}}}
  other: {{cmd: "{ENGINE} --name other --device-mb 40", medusa: {{memory: 40MB}}}}
""")
first = d.chat(name).json.get("pid")
check("another one", 200, d.chat("other").status)
check("it is swapped", "swapped", d.running().get(name))
order = threading.Thread(target=d.ctl, args=("unload", name))
order.start()
until("it is told to end", lambda: d.running().get(name) == "stopping")
r = d.chat(name)
check("a new engine", (200, True, True), (r.status, r.json.get("memory"), r.json.get("pid") not in (None, first)))
check("no engine beside it", [r.json.get("pid")], engines(name))
order.join()
check("the exit code", 0, d.stop())
finish()
