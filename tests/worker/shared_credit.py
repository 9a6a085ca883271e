# SPDX-License-Identifier: Apache-2.0
"""Memory that engines have in common when they come in (share: auto) counts once: shared_credit.py FOLDER. A third model has room only
because two others are merged; and whoever leaves, ends or takes memory of its own, no more is on the device than models may have."""
import os
import signal
import struct
import subprocess
import sys

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
MB = 1 << 20
WEIGHTS = 8 * MB
LIMIT, MEMORY = 24_500_000, 10_600_000  # an engine has 10,485,760: two fit, and three of which two have their weights once
port = free_ports(8)
env = {"HOSTCUDA_SHARED": f"{folder}/ledger"}
SEEDS = {"a": 7, "b": 7, "c": 8}
MODELS = "".join(f"  {name}:\n    cmd: \"{ENGINE} --name {name} --device-mb 2 --weights-mb {WEIGHTS // MB} --weights-seed {seed} --weights-are-constant\"\n"
                 f"    medusa: {{memory: {MEMORY}B, swap: on, share: auto}}\n" for name, seed in SEEDS.items())
CONFIG = f"startPort: {port}\nmedusa: {{gpus: [{{memory: {LIMIT}B}}], policies: {{preloading: none, eviction: lru}}, adopt_time: 60s}}\nmodels:\n{MODELS}"


def ledger(words, at=0):
    with open(env["HOSTCUDA_SHARED"], "rb") as file:
        file.seek(at)
        return struct.unpack(f"<{words}Q", file.read(words * 8))


def on_device():
    return sum(ledger(2048)[::16])


def most_on_device():
    return ledger(1, 128 * 16 * 8)[0]


def serve(*models):
    for model in models:
        r = d.chat(model)
        check(f"{model}: status, and whether its memory is what it was", (200, True), (r.status, r.json.get("memory")))
        pids[model] = r.json.get("pid")


def ready():
    return sorted(name for name, state in d.running().items() if state == "ready")


def gpu():
    return d.tell("status")["gpus"][0]


def shared():
    return gpu()["shared_bytes"]


def share():
    """a and b go out and in until they have their weights once; c is out then."""
    def turn():
        serve("c", "a", "b")
        return shared() == WEIGHTS
    until("two have their weights once", turn)


def write(model):
    """Into its weights: they become its own, at their addresses."""
    r = d.ask("GET", f"/upstream/{model}/write")
    return r.status, r.json.get("code")


pids = {}
d = Daemon(f"{folder}/worker", CONFIG, env=env)
serve("a", "b", "c")
check("two fit", 2, len(ready()))
share()
check("of which c is none", ["a", "b"], ready())
serve("c")
check("a third one fits beside them", ["a", "b", "c"], ready())
check("what is counted", (3 * MEMORY - WEIGHTS, WEIGHTS), (gpu()["used_bytes"], shared()))
check("what is there", 3 * 10 * MB - WEIGHTS, on_device())
check("metrics", True, f'medusa_worker_gpu_shared_bytes{{gpu="0"}} {WEIGHTS}\n' in d.ask("GET", "/metrics").body.decode())
check("medusa-workerctl status", True, "saved by sharing" in d.ctl("status").stdout)
check("the page's state", WEIGHTS, d.ask("GET", "/api/status").json["gpus"][0]["shared_bytes"])
serve("a", "b", "c")
check("they stay", ["a", "b", "c"], ready())

# ---- one takes memory of its own: others leave first ----
check("a write into shared memory", (200, 0), write("b"))
check("one has left for it", True, "b" in ready() and len(ready()) == 2)
check("nothing is shared", 0, shared())
check("no more was there than may be", True, most_on_device() <= LIMIT)
serve("b")

# ---- one is killed ----
os.kill(pids["b"], signal.SIGKILL)
until("its end was seen", lambda: "b" not in d.running())
share()
serve("c")
check("three again", ["a", "b", "c"], ready())
os.kill(pids["a"], signal.SIGKILL)
until("its end was seen", lambda: "a" not in d.running())
check("the rest counts in full", (0, 2 * MEMORY), (shared(), gpu()["used_bytes"]))
serve("a")
check("it comes again for another one", (True, 2), ("a" in ready(), len(ready())))
check("no more was there than may be", True, most_on_device() <= LIMIT)

# ---- who has it alone writes there, and needs no room ----
share()
os.kill(pids["a"], signal.SIGKILL)
until("its end was seen", lambda: "a" not in d.running())
before = on_device()
check("a write into memory that nobody else has", (200, 0), write("b"))
check("takes none", True, on_device() <= before)  # hostcuda counts what the broker has made as the broker's
serve("b")

# ---- the broker is killed: what is shared stays shared, and counts so ----
os.kill(pids["b"], signal.SIGKILL)
until("its end was seen", lambda: "b" not in d.running())
share()
serve("c")
broker = subprocess.run(["pgrep", "-f", "medusa-backbone run --listen-fd.*"], capture_output=True, text=True, check=False).stdout.split()
mine = [int(pid) for pid in broker if os.path.exists(f"/proc/{pid}") and f"PPid:\t{d.process.pid}" in open(f"/proc/{pid}/status", encoding="utf-8").read()]
os.kill(mine[0], signal.SIGKILL)
until("another one", lambda: "medusa_worker_backbone_starts_total 2" in d.ask("GET", "/metrics").body.decode())
serve("a", "b", "c")
check("all three stay", (["a", "b", "c"], WEIGHTS), (ready(), shared()))

# ---- the next daemon hears of it ----
check("c leaves", 0, d.ctl("unload", "c").returncode)  # in full, three are more than there may be
check("a and b share", (["a", "b"], WEIGHTS), (ready(), shared()))
d.stop(signal.SIGKILL)
d = Daemon(f"{folder}/worker", CONFIG, env=env)
until("engines are adopted, and what they share counts once", lambda: ready() == ["a", "b"] and shared() == WEIGHTS)
serve("c")
check("three again", ["a", "b", "c"], ready())
check("no more was there than may be", True, LIMIT * 0.9 < most_on_device() <= LIMIT)
check("the end", 0, d.stop())
finish()
