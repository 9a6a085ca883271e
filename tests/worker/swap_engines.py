# SPDX-License-Identifier: Apache-2.0
"""Engines with device memory behind medusa-worker: swap_engines.py FOLDER. Three share a GPU that has room for one."""
import os
import random
import signal
import subprocess
import sys
import threading

from adopt_parts import keeper_of
from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, lives, until
from soak.books import most_device_bytes
from soak.faults import processes

folder = os.environ["SWAP_ENGINES"] = sys.argv[1]
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
    """Processes of the model's engine, of this test alone; medusa-swap run has the same words behind its own."""
    return [pid for pid, words in processes(f"SWAP_ENGINES={folder}").items() if words[1:2] == [ENGINE.split()[1]] and words[words.index("--name") + 1] == name]


# A swapped model that is being unloaded, slowly, is asked for: its next engine starts when the last one has ended. Without its
# cmdStop it would be killed at once.
name = f"slow{os.getpid()}"
d = Daemon(f"{folder}/slow", f"""
startPort: {free_ports(8)}
unloadTimeout: 6
medusa: {{gpus: [{{memory: 60MB}}]}}
models:
  {name}: {{cmd: "{ENGINE} --name {name} --device-mb 40 --ignore-term", cmdStop: "kill ${{PID}}", medusa: {{memory: 40MB}}}}
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

# ---- by the driver's checkpoints: nothing is preloaded, and nothing stays on the GPU ----
# All engines share one device that has room for one of them, and another process sees what is free there.
device = {"HOSTCUDA_SHARED": f"{folder}/device", "HOSTCUDA_MEM": "96M", "HOSTCUDA_CONTEXT": "8M"}
FREE = """
import ctypes
cuda, context, sizes = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), (ctypes.c_size_t * 2)()
calls = (("cuInit", 0), ("cuCtxCreate_v2", ctypes.byref(context), 0, 0), ("cuMemGetInfo_v2", ctypes.byref(sizes), ctypes.byref(sizes, ctypes.sizeof(ctypes.c_size_t))))
print(0 if any(getattr(cuda, name)(*words) for name, *words in calls) else sizes[0] >> 20)
"""


def free_mb():
    ran = subprocess.run([sys.executable, "-c", FREE], env={**os.environ, **device}, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
    return int(ran.stdout)


def read(pid, name):
    with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


def by_driver(count, more="", head="", way="checkpoint"):
    return f"startPort: {first_port}\n{head}\nmedusa: {{gpus: [{{memory: 60MB}}]}}\nmodels:\n" + "".join(
        f'  m{i}: {{cmd: "{ENGINE} --name m{i} --device-mb 40 {more}", medusa: {{memory: 40MB, swap: {way}}}}}\n' for i in range(count))


def served(daemon, model):
    r = daemon.chat(model)
    check(f"{model}: status, and whether its memory is what it was", (200, True), (r.status, r.json.get("memory")))
    return r.json.get("pid")


def answer(daemon, model):
    return daemon.chat(model, prove=True, max_tokens=20).json.get("choices")


first_port = free_ports(8)
empty = free_mb()
check("the device is empty", True, empty > 80)
three = by_driver(3)
d = Daemon(f"{folder}/driver", three, env=device)
pids, before = {}, {}
for i in (0, 1, 2, 0, 1, 2, 2, 0):
    pid = served(d, f"m{i}")
    check(f"m{i} is the process that it was", pids.setdefault(f"m{i}", pid), pid)
    said = answer(d, f"m{i}")
    check(f"m{i} says what it said", (True, before.setdefault(f"m{i}", said)), (bool(said), said))
check("one is ready, two are swapped", ["ready", "swapped", "swapped"], sorted(d.running().values()))
check("it alone has memory, and a context", empty - 48, free_mb())
for pid in pids.values():
    check("nothing is preloaded", (False, False), ("libmedusa" in read(pid, "maps"), "MEDUSA_SWAP_CONTROL" in read(pid, "environ")))
    check("the daemon has started it as it is", str(d.process.pid), read(pid, "stat").rsplit(")", 1)[1].split()[1])
wrong.clear()
for _ in range(4):
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
check("requests at once", [], wrong)
check("no engine was started anew", pids, {model: served(d, model) for model in pids})

# The daemon is killed: the next one finds where the memory is.
states = d.running()
d.stop(signal.SIGKILL)
d = Daemon(d.folder, three, env=device)
until("states are found again", lambda: d.running() == states)
check("memory that is away stays away", empty - 48, free_mb())
check("the same engines serve", pids, {model: served(d, model) for model in pids})
check("they say what they said", before, {model: answer(d, model) for model in pids})
# An engine that is swapped in another way is another engine.
d.stop(signal.SIGKILL)
d = Daemon(d.folder, by_driver(3, way="off"), env=device)
until("the engines have ended", lambda: not any(lives(pid) for pid in pids.values()))
check("it is said", 3, d.stderr().count("way of swapping are others now"))
check("new ones serve", [], [model for model, pid in pids.items() if served(d, model) == pid])
check("the exit code", 0, d.stop())

# medusa-swap run is killed while its engine is out: the room is another model's, so nothing comes back, however long the daemon
# and the keeper take to end that engine.
d = Daemon(f"{folder}/orphan", by_driver(2, way="on"), env=device)
pids = {f"m{i}": served(d, f"m{i}") for i in range(2)}
until("m0 is swapped", lambda: d.running().get("m0") == "swapped")
most_device_bytes(device["HOSTCUDA_SHARED"], forget=True)
enders = d.process.pid, keeper_of(d)
for pid in enders:
    os.kill(pid, signal.SIGSTOP)
os.kill(int(read(pids["m0"], "stat").rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
log = f"{d.folder}/state/m0.log"
until("its engine knows", lambda: "medusa-swap run has ended while the engine's memory is out" in open(log, encoding="utf-8").read())
check("its memory stays out", empty - 56, free_mb())
check("it lives on", True, lives(pids["m0"]))
for pid in enders:
    os.kill(pid, signal.SIGCONT)
until("it is ended", lambda: not lives(pids["m0"]))
check("another one serves", True, served(d, "m0") != pids["m0"])
check("never were both on the GPU", True, most_device_bytes(device["HOSTCUDA_SHARED"]) < 2 * (40 << 20))
check("the exit code", 0, d.stop())

# One that uses no GPU has nothing that could be away, and is adopted all the same.
bare = f'startPort: {first_port}\nmodels: {{m0: {{cmd: "{ENGINE} --name m0", medusa: {{memory: 1MB, swap: checkpoint}}}}}}\n'
d = Daemon(f"{folder}/bare", bare, env=device)
pid = d.chat("m0").json.get("pid")
d.stop(signal.SIGKILL)
d = Daemon(d.folder, bare, env=device)
check("without a GPU", pid, d.chat("m0").json.get("pid"))
check("the exit code", 0, d.stop())

# What fails: the engine is stopped, and the next request has another one. One whose memory is away waits for nothing when it
# is to end: it ignores SIGTERM here, and unloadTimeout is long.
for way in ("checkpoint", "on"):
    two = by_driver(2, "--ignore-term", "unloadTimeout: 600", way)
    d = Daemon(f"{folder}/unload-{way}", two, env=device)
    pid = served(d, "m0")
    served(d, "m1")
    check(f"{way}: unload of one that is swapped", 0, d.ctl("unload", "m0").returncode)
    until("it has ended", lambda: not lives(pid))
    check(f"{way}: the other one alone is there", empty - 48, free_mb())
    check(f"{way}: another one serves", True, served(d, "m0") != pid)
    # The next daemon has no use for it.
    check(f"{way}: m1 is swapped", "swapped", d.running().get("m1"))
    d.stop(signal.SIGKILL)
    d = Daemon(d.folder, by_driver(1, "--ignore-term", "unloadTimeout: 600", way), env=device)
    until(f"{way}: nobody wants m1", lambda: not engines("m1"))
    check(f"{way}: it is said", True, "for model m1, is killed: the configuration has no such model" in d.stderr())
    d.stop(signal.SIGKILL)
    for pid in engines("m0"):
        os.kill(pid, signal.SIGKILL)
for call, left, why in (
        ("cuCheckpointProcessRestore:*:OUT_OF_MEMORY", "--ignore-term", "medusa-swap in ended with exit code 1: "),
        ("cuCheckpointProcessCheckpoint:*:NOT_SUPPORTED", "", "cannot be swapped, because this CUDA driver cannot checkpoint it: set models.m0.medusa.swap to on or off (medusa-swap out: "),
        ("cuCheckpointProcessLock:*:NOT_READY", "", "medusa-swap out ended with exit code 1: "),
):
    name = call.split(":", maxsplit=1)[0]
    d = Daemon(f"{folder}/{name}", by_driver(2, left, "unloadTimeout: 600"), env={**device, "HOSTCUDA_FAULT": call})
    pid = served(d, "m0")
    served(d, "m1")
    check(f"{name}: another engine serves", True, served(d, "m0") != pid)
    check(f"{name}: the first one has ended", False, lives(pid))
    check(f"{name}: why", True, f"model m0: its engine {why}" in d.stderr() and name in d.stderr())
    check(f"{name}: the engine's log has it, too", True, name in d.engine_log("m0"))
    d.stop(signal.SIGKILL)
    for pid in engines("m0") + engines("m1"):
        os.kill(pid, signal.SIGKILL)
until("the device is as it was", lambda: free_mb() == empty)
finish()
