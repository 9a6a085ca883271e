# SPDX-License-Identifier: Apache-2.0
"""One pool of host memory for all engines (medusa.pool_bytes): swap_pool.py FOLDER. It holds two of three models."""
import glob
import os
import re
import signal
import sys
import threading

from daemon import ENGINE, Daemon, check, finish, free_ports, process_words, processes, until

folder = sys.argv[1]
MB = 1 << 20
POOL = 32 * MB  # two engines of 12 MB of weights, and what changes in them
first = free_ports(16)


def config(weights, pool=f"pool_bytes: {POOL}", more=""):
    return f"""
startPort: {first}
medusa: {{gpus: [{{memory: 40MB}}], {pool}}}
models:""" + "".join(f"""
  {name}: {{cmd: "{ENGINE} --name {name} --device-mb 4 --weights-mb 12 --weights-seed {seed}", medusa: {{memory: 30MB}}}}
""" for name, seed in weights.items()) + more


def sizes(d):
    return d.tell("status")["pool"]


def files(pid):
    """Memory that pools of the process take, by their files."""
    found = {}
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            if "memfd:medusa-swap-pool" in os.readlink(path):
                stat = os.stat(path)
                found[stat.st_ino] = stat.st_blocks * 512
        except OSError:
            pass  # it was closed meanwhile
    return found


def pools():
    found = {}
    for pid in processes():
        words = process_words(pid)
        if any(str(first + i) in words for i in range(16)) or pid == d.process.pid:
            found.update(files(pid))
    return found


def good(d, model):
    r = d.chat(model)
    check(f"{model}: status, and whether its memory is what it was", (200, True), (r.status, r.json.get("memory")))
    check("one pool, within the budget and a little for its tables", True, len(pools()) == 1 and max(pools().values()) <= POOL + 2 * MB)
    s = sizes(d)
    check("its parts are the whole", POOL, s["held_bytes"] + s["cached_bytes"] + s["free_bytes"])
    return r.json.get("pid")


# Three models whose weights differ: two fit, and the third is stopped, and comes back.
d = Daemon(f"{folder}/three", config({"a": 1, "b": 2, "c": 3}))
check("an empty pool", {"bytes": POOL, "held_bytes": 0, "cached_bytes": 0, "free_bytes": POOL, "full": 0, "spill_bytes": 0, "spill_held_bytes": 0,
                        "spill_cached_bytes": 0, "spill_free_bytes": 0}, sizes(d))
for _ in range(4):
    for name in ("a", "b", "c"):
        good(d, name)
    check("never more than two are swapped out", True, list(d.running().values()).count("swapped") <= 2)
for _ in range(3):
    for name in ("b", "a", "a", "c", "b"):
        good(d, name)
said = re.findall(r"model (.): its engine is stopped and not swapped, because the pool is full: medusa.pool_bytes is (\d+)", d.stderr())
check("it is said that the pool was full", True, said and all(size == str(POOL) for _, size in said))
check("and counted", len(said), sizes(d)["full"])
check("it is no failure", [0, 0, 0], [m["failures"] for m in d.tell("models")["models"]])
check("nor is it said to be one", False, bool(re.search("its engine (medusa-swap|ended|was killed)", d.stderr())))
metrics = d.get("/metrics").body.decode()
values = {name: int(value) for name, value in re.findall(r"^medusa_worker_pool_(\w+) (\d+)$", metrics, re.M)}
check("metrics", True, values["bytes"] == POOL and values["held_bytes"] + values["cached_bytes"] + values["free_bytes"] == POOL and values["full_total"] >= 1)
line = d.ctl("status").stdout
check("status in words", True, "pool: " in line)
# Many at once.
wrong = []


def ask(number):
    r = d.chat("abc"[number % 3])
    if r.status != 200 or r.json.get("memory") is not True:
        wrong.append((r.status, r.body))


threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check("requests at once", [], wrong)

# The daemon is killed: the next one goes on with the pool, and what is out comes back from it.
good(d, "a")
good(d, "b")
before, pool = {m: s for m, s in d.running().items() if s == "swapped"}, set(pools())
check("one is out, or two", True, 1 <= len(before) <= 2)
d.stop(signal.SIGKILL)
d = Daemon(d.folder, config({"a": 1, "b": 2, "c": 3}))
check("it is said", True, f"the pool of an earlier daemon, of {POOL} bytes, stays in use" in d.stderr())
until("what was out is adopted", lambda: {m: s for m, s in d.running().items() if s == "swapped"} == before)
check("its room is known", True, sizes(d)["held_bytes"] >= 12 * MB)
for name in ("b", "a", "c", "a"):
    good(d, name)
check("the same pool", pool, set(pools()))
# Another size is for the next start.
with open(f"{d.folder}/config.yaml", "w", encoding="utf-8") as file:
    file.write(config({"a": 1, "b": 2, "c": 3}, f"pool_bytes: {2 * POOL}"))
check("it is read anew", 0, d.ctl("reload").returncode)
check("the size is only for the next start", True, "only at the next start: medusa.pool_bytes" in d.stderr())
check("the size", POOL, sizes(d)["bytes"])
d.stop(signal.SIGKILL)
d = Daemon(d.folder, config({"a": 1, "b": 2, "c": 3}, f"pool_bytes: {2 * POOL}"))
check("engines keep the pool", POOL, sizes(d)["bytes"])
check("that is said", True, f"medusa.pool_bytes is {2 * POOL}, which is so once" in d.stderr())
good(d, "a")
check("the exit code", 0, d.stop())

# A file behind the pool: none of five models is stopped, and each has its memory.
SPILL = 96 * MB
disk = f"{folder}/disk"
os.mkdir(disk)
spilling = f"pool_bytes: {POOL}, spill: {disk}, spill_bytes: {SPILL}"
five = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
d = Daemon(f"{folder}/spill", config(five, spilling))
check("an empty file", (SPILL, 0, 0, SPILL), tuple(sizes(d)[f"spill_{what}bytes"] for what in ("", "held_", "cached_", "free_")))
pids = {}
for order in ("abcde", "abcde", "ecadb", "bbaec"):
    for name in order:
        pid = good(d, name)
        check(f"{name} is the process that it was", pids.setdefault(name, pid), pid)
check("four are out", 4, list(d.running().values()).count("swapped"))
check("none was stopped", 0, sizes(d)["full"])
check("some are in the file", True, sizes(d)["spill_held_bytes"] >= 12 * MB)
metrics = d.get("/metrics").body.decode()
values = {name: int(value) for name, value in re.findall(r"^medusa_worker_spill_(\w+) (\d+)$", metrics, re.M)}
check("its metrics", (SPILL, SPILL), (values["bytes"], values["held_bytes"] + values["cached_bytes"] + values["free_bytes"]))
check("its line", True, "spill file: " in d.ctl("status").stdout)
check("files with names", [], os.listdir(disk))
# The daemon is killed: the next one has the same file.
before = {m: s for m, s in d.running().items() if s == "swapped"}
d.stop(signal.SIGKILL)
d = Daemon(d.folder, config(five, spilling))
until("what was out is adopted", lambda: {m: s for m, s in d.running().items() if s == "swapped"} == before)
check("the file is known", True, sizes(d)["spill_bytes"] == SPILL and sizes(d)["spill_held_bytes"] >= 12 * MB)
for name in "cabed":
    check(f"{name} is the process that it was", pids[name], good(d, name))
check("none was stopped", 0, sizes(d)["full"])
# Without the key, engines of a pool with a file are told to end.
d.stop(signal.SIGKILL)
d = Daemon(d.folder, config(five))
check("it is said", True, "the pool of its engine has a spill file, and medusa.spill is not set" in d.stderr())
check("a new pool", (POOL, 0), (sizes(d)["bytes"], sizes(d)["spill_bytes"]))
check("a new process", True, good(d, "a") != pids["a"])
check("the exit code", 0, d.stop())
until("the pool has gone", lambda: not pools())

# Models with equal weights: they are held once, and all of them fit.
d = Daemon(f"{folder}/equal", config({"a": 7, "b": 7, "c": 7}))
pids = {name: good(d, name) for name in ("a", "b", "c")}
for name in ("a", "b", "c", "b", "a"):
    check(f"{name} is the process that it was", pids[name], good(d, name))
check("two are out", 2, list(d.running().values()).count("swapped"))
check("their weights are held once", True, 12 * MB <= sizes(d)["held_bytes"] < 24 * MB)
check("the pool was never full", 0, sizes(d)["full"])
check("the exit code", 0, d.stop())
until("the pool has gone", lambda: not pools())

# Without the key each has its own, and one that cannot fit is said.
huge = "  huge: {cmd: 'x ${PORT}', medusa: {memory: 800GB, swap: on}}\n"
d = Daemon(f"{folder}/own", config({"a": 1}, "retries: 1", huge).replace("gpus: [{memory: 40MB}]", "gpus: [{memory: 900GB}]"),
           env={"HOSTCUDA_MEM": "900G"})
check("no pool", None, sizes(d))
check("it serves", 200, d.chat("a").status)
check("what is too much is said", True, bool(re.search(r"2 models whose engines are swapped have \d+ bytes in all, and this machine has \d+", d.stderr())))
check("the exit code", 0, d.stop())
finish()
