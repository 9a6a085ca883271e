# SPDX-License-Identifier: Apache-2.0
"""Engines whose constant memory is one when medusa-worker brings them in (share: auto): shared_constant.py FOLDER."""
import json
import os
import signal
import struct
import subprocess
import sys

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
MB = 1 << 20
WEIGHTS = 8 * MB
port = free_ports(8)
env = {"HOSTCUDA_SHARED": f"{folder}/ledger"}
# Two have room at a time. a and b have the same weights, and other's are its own.
SEEDS = {"a": 7, "b": 7, "other": 8}


def config(**share):
    models = "".join(f"  {name}:\n    cmd: \"{ENGINE} --name {name} --device-mb 2 --weights-mb {WEIGHTS // MB} --weights-seed {seed} --weights-are-constant\"\n"
                     f"    medusa: {{memory: 20MB, swap: on, share: {share.get(name, 'auto')}}}\n" for name, seed in SEEDS.items())
    return f"startPort: {port}\nmedusa: {{gpus: [{{memory: 45MB}}], policies: {{preloading: none, eviction: lru}}, adopt_time: 60s}}\nmodels:\n{models}"


pids = {}


def serve(*models):
    """Asks one after the other: the one that was asked first goes out."""
    for model in models:
        r = d.chat(model)
        check(f"{model}: status, and whether its memory is what it was", (200, True), (r.status, r.json.get("memory")))
        check(f"{model} is the process that it was", pids.setdefault(model, r.json.get("pid")), r.json.get("pid"))


def swap_status(model):
    said = subprocess.run(["medusa-swap", "list"], capture_output=True, text=True, check=True).stdout
    names = [line.split(":")[0] for line in said.splitlines() if line.split(":")[0].endswith(f"-{model}")]
    return json.loads(subprocess.run(["medusa-swap", "status", "--json", names[-1]], capture_output=True, text=True, check=True).stdout)


def shared(*models):
    return [swap_status(model)["shared"] for model in models]


def held():
    """(state, readers) of what the broker has."""
    said = subprocess.run(["medusa-backbone", "status", "--json", "--socket", f"{d.control}.engines/backbone.sock"], capture_output=True, text=True, check=True)
    return sorted((one["name"], one["state"], one["readers"]) for one in map(json.loads, said.stdout.splitlines()))


def on_device():
    with open(env["HOSTCUDA_SHARED"], "rb") as ledger:
        return sum(struct.unpack("<2048Q", ledger.read(128 * 16 * 8))[::16])


NAME = f"equal/{WEIGHTS}"


def serve_until_shared():
    """From the second in on, when the broker no longer waits for what an earlier one may have had (its first second)."""
    serve("other", "a", "b")
    return (shared("a", "b", "other"), held()) == ([WEIGHTS, WEIGHTS, 0], [(NAME, "read", 2)])


d = Daemon(f"{folder}/worker", config(), env=env)
serve("a", "b")
until("what they have declared constant", lambda: [swap_status(model)["constant"] for model in "ab"] == [WEIGHTS, WEIGHTS])
alone = on_device()
serve("other", "a", "b")
check("nobody shares after one in", [0, 0, 0], shared("a", "b", "other"))
until("two engines with equal weights share them", serve_until_shared)
check("what is on the device", alone - WEIGHTS, on_device())
serve("other")
check("one with others has its own", ([0, WEIGHTS, WEIGHTS], [(NAME, "read", 1)] * 2), (shared("a", "b", "other"), held()))

# ---- who is killed ----
serve("a")
os.kill(pids["other"], signal.SIGKILL)
until("its end was seen", lambda: "other" not in d.running())
del pids["other"]
serve("a", "b")
check("a and b share", [WEIGHTS, WEIGHTS], shared("a", "b"))
os.kill(pids.pop("a"), signal.SIGKILL)
until("its end was seen", lambda: "a" not in d.running())
serve("b")
check("b goes on", [(NAME, "read", 1)], held())

# ---- a reload ----
d.write_config(config(a="off", other="off"))
check("a reload", 0, d.ctl("reload").returncode)
serve("b", "a", "other", "b", "a", "other", "b", "a", "b")
check("a shares no more", ([0, WEIGHTS], [(NAME, "read", 1)]), (shared("a", "b"), held()))

# ---- the next daemon ----
d.stop(signal.SIGKILL)
d = Daemon(f"{folder}/worker", config(a="off", other="off"), env=env)
serve("b", "a")
until("its broker is told what b has", lambda: held() == [(NAME, "read", 1)])
check("the end", 0, d.stop())
finish()
