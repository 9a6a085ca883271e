# SPDX-License-Identifier: Apache-2.0
"""Several GPUs in one medusa-worker: several_gpus.py FOLDER. hostcuda has two, of which each has room for one engine."""
import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.request

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
first = free_ports(10)
DEVICES = {"HOSTCUDA_DEVICES": "2", "HOSTCUDA_MEM": "100M", "HOSTCUDA_SHARED": f"{folder}/devices"}
SECOND = "GPU-686f7374-6375-6461-0000-000000000001"


def config(names, gpus="[{memory: 80MB}, {memory: 80MB}]", megabytes=60):
    return f"startPort: {first}\nmedusa: {{gpus: {gpus}, policies: {{preloading: none}}}}\nmodels:\n" + "".join(
        f'  {name}: {{cmd: "{ENGINE} --name {name} --device-mb {megabytes}", medusa: {{memory: {megabytes}MB}}}}\n' for name in names)


def of(daemon, model):
    return next(m for m in daemon.tell("models")["models"] if m["model"] == model)


def counts(daemon, model):
    """As its engine says, which is asked without the daemon."""
    proxy = next(r["proxy"] for r in daemon.get("/running").json["running"] if r["model"] == model)
    with urllib.request.urlopen(f"{proxy}/counts", timeout=PATIENCE) as answer:
        return json.load(answer)


def ask(daemon, model):
    """Answers with the pid and the GPU of the engine, whose memory must be what it was."""
    r = daemon.chat(model)
    check(f"{model}: status, and whether its memory is right", (200, True), (r.status, r.json.get("memory")))
    return r.json.get("pid"), r.json.get("gpu")


d = Daemon(f"{folder}/two", config("abc"), env=DEVICES)

# Two models on two GPUs, at the same time.
places = {model: ask(d, model) for model in "ab"}
check("each has a GPU", [0, 1], sorted(gpu for _, gpu in places.values()))
check("the daemon knows which", {m: gpu for m, (_, gpu) in places.items()}, {m: of(d, m)["gpu"] for m in "ab"})
held = {model: Held(d, model) for model in "ab"}
until("both run", lambda: [of(d, m)["running"] for m in "ab"] == [1, 1])
check("both GPUs have 60 MB", [60000000] * 2, [gpu["used_bytes"] for gpu in d.tell("status")["gpus"]])
for one in held.values():
    one.let_go()
check("both are served", [200, 200], [r.status for one in held.values() for r in one.wait()])

# The third one takes the place of one of them. A model is the process that it was as long as it comes back to its GPU.
last = dict(places)
for model in random.sample("abc" * 5, 15):
    pid, gpu = ask(d, model)
    check(f"{model} is where the daemon says", gpu, of(d, model)["gpu"])
    if model in last:
        check(f"{model}: a process has its GPU for life", last[model][1] == gpu, last[model][0] == pid)
    last[model] = pid, gpu
check("no engine is on two GPUs", set("abc"), set(last))

# Draining: what runs ends, what comes goes to the other GPU.
gpu = ask(d, "a")[1]
held = Held(d, "a")
until("it runs", lambda: of(d, "a")["running"] == 1)
drains = []
drain = threading.Thread(target=lambda: drains.append(d.ctl("drain", "--gpu", str(gpu))))
drain.start()
until("it is being drained", lambda: d.tell("status")["gpus"][gpu]["draining"])
check("the other one is not", False, d.tell("status")["gpus"][1 - gpu]["draining"])
check("the page and the command say so", True, f"GPU {gpu}: " in d.ctl("status").stdout and "; drained" in d.ctl("status").stdout)
later = Held(d, "a").let_go()
until("it waits for what runs", lambda: (of(d, "a")["running"], of(d, "a")["waiting"]) == (1, 1))
check("another model is served meanwhile", 1 - gpu, ask(d, "b")[1])
check("what is drained gets no more", 1, counts(d, "a")["running"])
held.let_go()
check("what ran there", [(200, gpu)], [(r.status, r.json.get("gpu")) for r in held.wait()])
check("what came later", [(200, 1 - gpu)], [(r.status, r.json.get("gpu")) for r in later.wait()])
drain.join(PATIENCE)
check("it is empty", [0], [done.returncode for done in drains])
check("nobody is there", (0, []), (d.tell("status")["gpus"][gpu]["used_bytes"],
                                   [m["model"] for m in d.tell("models")["models"] if m["gpu"] == gpu]))
for model in "abcabc":
    check(f"{model} on the GPU that is left", 1 - gpu, ask(d, model)[1])
check("resume", 0, d.ctl("resume", "--gpu", str(gpu)).returncode)
places = {ask(d, model)[1] for model in "abc"}
check("both GPUs are used again", {0, 1}, places)
check("what is no GPU", [3, 2, 2], [d.ctl("drain", "--gpu", "2").returncode, d.ctl("drain", "--gpu", "x").returncode,
                                    d.ctl("drain", "--gpu", "0", "--exit").returncode])
check("resume of none", 3, d.ctl("resume", "--gpu", "2").returncode)

# The next daemon finds each engine on its GPU.
places = {m["model"]: m["gpu"] for m in d.tell("models")["models"] if m["state"] == "ready"}
pids = {model: ask(d, model) for model in places}
d.stop(signal.SIGKILL)
d = Daemon(d.folder, config("abc"), env=DEVICES)
until("both are there", lambda: {m["model"]: m["gpu"] for m in d.tell("models")["models"] if m["state"] == "ready"} == places)
check("the same engines", pids, {model: ask(d, model) for model in places})

# An engine that dies while its model moves away: what waits is served by the next one.
model = sorted(places)[0]
gpu = places[model]
held = Held(d, model)
until("it runs", lambda: of(d, model)["running"] == 1)
drain = subprocess.Popen(["medusa-workerctl", "drain", "--gpu", str(gpu), "--socket", d.control])
until("it is being drained", lambda: d.tell("status")["gpus"][gpu]["draining"])
later = Held(d, model, 3).let_go()
until("others wait", lambda: of(d, model)["waiting"] == 3)
os.kill(pids[model][0], signal.SIGKILL)
held.let_go()
check("all are served by the other GPU", [(200, 1 - gpu)] * 4, [(r.status, r.json.get("gpu")) for r in held.wait() + later.wait()])
check("it is empty", 0, drain.wait(PATIENCE))
check("the exit code", 0, d.stop())

# A GPU by its UUID, and the daemon's own list.
d = Daemon(f"{folder}/uuid", config("a", f"[{{uuid: {SECOND}, memory: 80MB}}]"), env=DEVICES)
check("the GPU with this UUID", 1, ask(d, "a")[1])
check("the exit code", 0, d.stop())
d = Daemon(f"{folder}/list", config("a"), env={**DEVICES, "CUDA_VISIBLE_DEVICES": "1,0"})
check("the first one of the list is number 0", (1, 0), (ask(d, "a")[1], of(d, "a")["gpu"]))
check("the exit code", 0, d.stop())
d = Daemon(f"{folder}/short", config("a"), env={**DEVICES, "CUDA_VISIBLE_DEVICES": "1"})
check("a list that is too short", (3, True), (d.process.wait(PATIENCE), 'CUDA_VISIBLE_DEVICES of the daemon, "1", names fewer than 2' in d.stderr()))

# slots: engines that run at one time, although the memory has room for more.
d = Daemon(f"{folder}/slots", config("ab", "[{memory: 80MB, slots: 1}]", 20), env=DEVICES)
check("both fit", {"a": "ready", "b": "ready"}, (ask(d, "a"), ask(d, "b"), d.running())[2])
held = Held(d, "a")
until("one runs", lambda: of(d, "a")["running"] == 1)
other = Held(d, "b").let_go()
until("the other one waits", lambda: of(d, "b")["waiting"] == 1)
check("it does not run", 0, of(d, "b")["running"])
held.let_go()
check("both are served", [200, 200], [r.status for r in held.wait() + other.wait()])
check("the exit code", 0, d.stop())
finish()
