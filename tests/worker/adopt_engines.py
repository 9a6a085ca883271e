# SPDX-License-Identifier: Apache-2.0
"""Engines outlive medusa-worker: adopt_engines.py FOLDER. The daemon is killed, and the next one goes on with its engines."""
import glob
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading

from adopt_parts import keeper_of, records
from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, lives, process_stat, processes, until
from soak.books import most_device_bytes

folder = sys.argv[1]
first = free_ports(8)


def config(models, more=""):
    return f"startPort: {first}\nhealthCheckTimeout: 60\nmedusa: {{gpus: [{{memory: 60MB}}]{more}}}\nmodels:\n" + "".join(
        f"  {name}: {{{text}}}\n" for name, text in models.items())


def plain(name, more=""):
    return f'cmd: "{ENGINE} --name {name} {more}", medusa: {{memory: 10MB, swap: off}}'


def lost(daemon, model, go):
    """A request whose daemon is killed; its engine answers when the file `go` is there."""
    try:
        r = daemon.chat(model, until=go)
        check("its daemon was killed", "no answer", r.status)
    except (OSError, http.client.HTTPException):
        pass


def restart(daemon, text, between=None, env=None):
    """Kills the daemon; the next one has the same folder."""
    daemon.stop(signal.SIGKILL)
    if between:
        between()
    return Daemon(daemon.folder, text, env=env)


def end(daemon, pids=()):
    check("the exit code", 0, daemon.stop())
    until("its engines have ended", lambda: not any(lives(pid) for pid in pids))
    check("no record is left", [], records(daemon))


# Two engines, one behind a shell; requests run when the daemon is killed.
behind = f'''cmd: "sh -c '{ENGINE} --name shell; true'", medusa: {{memory: 10MB, swap: off}}'''
two = config({"a": plain("a"), "shell": behind})
d = Daemon(f"{folder}/two", two)
pids = {model: d.chat(model).json.get("pid") for model in ("a", "shell")}
check("a record for each", 2, len(records(d)))
for turn in range(3):
    go = f"{d.folder}/go{turn}"
    client = threading.Thread(target=lost, args=(d, "a", go))
    client.start()
    until("the request runs", lambda: d.get("/upstream/a/counts").json.get("running") == 1)
    d.stop(signal.SIGKILL)
    with open(go, "w", encoding="utf-8"):
        pass
    client.join()
    check("engines go on", [True, True], [lives(pid) for pid in pids.values()])
    d = Daemon(d.folder, two)
    check(f"turn {turn}: the same processes answer", pids, {model: d.chat(model).json.get("pid") for model in pids})
check("nothing was started", 2, d.engine_log("a").count("listens on") + d.engine_log("shell").count("listens on"))
check("it is said", 3, d.stderr().count("model a: adopts process"))
check("logs go on", True, "a listens on" in d.engine_log("a"))
metrics = d.get("/metrics").body.decode()
check("the daemon has started none", True, 'medusa_worker_loads_total{model="a"} 0' in metrics)
# What was adopted ends as other engines do, and by itself.
check("unload", 0, d.ctl("unload", "a").returncode)
until("it has ended", lambda: not lives(pids["a"]))
fresh = d.chat("a").json.get("pid")
check("then another one is started", True, fresh and fresh != pids["a"])
d = restart(d, two)
check("the new one is adopted", fresh, d.chat("a").json.get("pid"))
os.kill(fresh, signal.SIGKILL)
until("that is seen", lambda: d.running().get("a") is None)
check("and why", True, "its exit code is not known" in d.stderr())
r = d.chat("a")
check("the next request is served", (200, True), (r.status, r.json.get("pid") not in (fresh, None)))
# One that ends while there is no daemon.
last = r.json["pid"]
d = restart(d, two, lambda: (os.kill(last, signal.SIGKILL), until("it has ended", lambda: not lives(last))))
check("it is not adopted", True, d.chat("a").json.get("pid") not in (last, None))
check("the other one is", pids["shell"], d.chat("shell").json.get("pid"))
end(d, [pids["shell"]])

# Models that are gone, or whose command has changed, lose their engines; the others keep theirs.
three = {name: plain(name) for name in ("a", "b", "c")}
d = Daemon(f"{folder}/changed", config(three))
pids = {model: d.chat(model).json.get("pid") for model in three}
changed = {"a": three["a"], "b": plain("b", "--token 0.002")}
d = restart(d, config(changed))
now = {model: d.chat(model).json.get("pid") for model in changed}
check("the one that is as it was", pids["a"], now["a"])
check("another command, another engine", True, now["b"] not in (pids["b"], None))
check("the others have ended", [False, False], [lives(pids[name]) for name in ("b", "c")])
check("it is said", (1, 1), (d.stderr().count("the configuration has no such model"), d.stderr().count("are others now")))
end(d, now.values())

# One that is being started.
slow = config({"a": plain("a", "--start 8")})
d = Daemon(f"{folder}/starting", slow)
threading.Thread(target=lambda: d.ctl("load", "a")).start()
until("it starts", lambda: d.running().get("a") == "starting" and "listens on" in d.engine_log("a"))
pid = int(re.search(r"pid (\d+)", d.engine_log("a"))[1])
d = restart(d, slow)
check("it goes on starting", pid, d.chat("a").json.get("pid"))
end(d, [pid])

# Nobody comes.
d = Daemon(f"{folder}/nobody", config({"a": plain("a", "--ignore-term")}, ", adopt_time: 300ms"))
pid = d.chat("a").json.get("pid")
d.stop(signal.SIGKILL)
until("after adopt_time nothing is left", lambda: not lives(pid) and keeper_of(d) is None)
d = Daemon(d.folder, config({"a": plain("a")}, ", adopt_time: 0"))
check("the record is of no use", True, "is not adopted: process" in d.stderr() and d.chat("a").json.get("pid") != pid)
pid = d.chat("a").json.get("pid")
d.stop(signal.SIGKILL)
until("adopt_time: 0", lambda: not lives(pid) and keeper_of(d) is None)

# Daemons that want the same engines, and one that cannot serve.
one = config({"a": plain("a")})
d = Daemon(f"{folder}/twins", one)
pid = d.chat("a").json.get("pid")
twin = Daemon(d.folder, one, "--state", f"{d.folder}/other")
check("the second daemon ends", (0, 4), (twin.port, twin.process.wait(PATIENCE)))
check("the first one goes on", (200, pid), (lambda r: (r.status, r.json.get("pid")))(d.chat("a")))
check("it is said", True, "another daemon has its engines there" in d.stderr())
d.stop(signal.SIGKILL)
with socket.create_server(("127.0.0.1", 0)) as taken:
    with open(f"{folder}/twins/fail", "w", encoding="utf-8") as err:
        code = subprocess.run(["medusa-worker", "--config", f"{d.folder}/config.yaml", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--state",
                               f"{d.folder}/state", "--control", d.control], stderr=err, timeout=PATIENCE, check=False).returncode
check("a daemon that cannot serve", 4, code)
check("leaves engines alone", True, lives(pid))
twins = []


def start_twin():
    twins.append(Daemon(d.folder, one))


threads = [threading.Thread(target=start_twin) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
serving = [t for t in twins if t.port]
check("one of two has the engine", [pid], [t.chat("a").json.get("pid") for t in serving])
for t in twins:
    if not t.port:
        t.process.wait(PATIENCE)
# The keeper may be killed after its daemon: then records alone say what there is.
d = restart(serving[0], one, lambda: (os.kill(keeper_of(serving[0]), signal.SIGKILL), until("the keeper is gone", lambda: keeper_of(serving[0]) is None)))
check("records are enough", pid, d.chat("a").json.get("pid"))
# Killed before its daemon, it has a successor, which knows the engines that there were and those that came later.
for turn in range(2):
    last = keeper_of(d)
    os.kill(last, signal.SIGKILL)
    until("another keeper follows", lambda: keeper_of(d) not in (last, None))
    check("it is said", turn + 1, d.stderr().count("medusa-keeper, which ends engines if this daemon is killed, has ended"))
d = restart(d, one)
check("it knows the engine, and gives it to the next daemon", pid, d.chat("a").json.get("pid"))
last = keeper_of(d)
os.kill(last, signal.SIGKILL)
until("one of an earlier daemon has a successor, too", lambda: keeper_of(d) not in (last, None))
# One that is stopped is not waited for without an end, and its engines have the GPU: nobody starts others.
keeper = keeper_of(d)
os.kill(keeper, signal.SIGSTOP)
d.stop(signal.SIGKILL)
refused = Daemon(d.folder, one)
check("the next daemon does not serve", (0, 4), (refused.port, refused.process.wait(PATIENCE)))
check("it says which process it waits for", True, f"medusa-keeper, process {keeper}, which has the engines" in d.stderr())
os.kill(keeper, signal.SIGCONT)
d = Daemon(d.folder, one)
check("the engine is adopted when the keeper goes on", pid, d.chat("a").json.get("pid"))
os.kill(keeper_of(d), signal.SIGSTOP)
end(d, [pid])

d = Daemon(f"{folder}/keeper", config({"a": plain("a", "--ignore-term"), "b": plain("b", "--ignore-term")}, ", adopt_time: 300ms"))
pids = [d.chat("a").json.get("pid")]
last = keeper_of(d)
os.kill(last, signal.SIGKILL)
until("another keeper follows", lambda: keeper_of(d) not in (last, None))
pids.append(d.chat("b").json.get("pid"))
d.stop(signal.SIGKILL)
until("it ends all engines after adopt_time", lambda: not any(lives(pid) for pid in pids) and keeper_of(d) is None)

# Records that nobody should trust.
d = Daemon(f"{folder}/hostile", one)
pid = d.chat("a").json.get("pid")
with open(records(d)[0], encoding="utf-8") as file:
    good = json.load(file)
sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
with open(f"/proc/{sleeper.pid}/stat", encoding="utf-8") as file:
    began = int(file.read().rsplit(")", 1)[1].split()[19])
place = f"{d.control}.engines"
with open(f"{folder}/elsewhere.json", "w", encoding="utf-8") as file:
    json.dump({**good, "pid": 1002}, file)


def write(number, content, mode=0o600):
    path = f"{place}/engine-{number}.json"
    with open(path, "wb") as out:
        out.write(content if isinstance(content, bytes) else json.dumps(content).encode())
    os.chmod(path, mode)


def hostile():
    whole = json.dumps(good).encode()
    write(1000, b"")
    for cut in (1, len(whole) // 2, len(whole) - 1):
        write(1010 + cut, whole[:cut])
    write(1001, random.Random(1).randbytes(5000))
    os.symlink(f"{folder}/elsewhere.json", f"{place}/engine-1002.json")
    write(1003, {**good, "pid": 1003}, 0o666)
    write(1004, whole)  # another process's
    write(1005, {**good, "pid": 1005, "model": "x" * 600})
    write(1006, {**good, "pid": 1006, "more": 1})
    write(1007, {**{key: value for key, value in good.items() if key != "began"}, "pid": 1007})
    write(1008, b"{" * 20000)
    write(1009, {**good, "pid": -1})
    os.mkdir(f"{place}/engine-1100.json")
    # These name a process that is there.
    write(sleeper.pid, {**good, "pid": sleeper.pid})
    write(1, {**good, "pid": 1})


files = 16
d = restart(d, one, hostile)
check("the engine is adopted all the same", pid, d.chat("a").json.get("pid"))
ignored = re.findall(r"this record of an engine is ignored: (.*)", d.stderr())
check("what is no record is named", files - 1, len(ignored))
for file in (1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1100, 1):
    check(f"engine-{file}.json", True, any(f"engine-{file}.json" in line for line in ignored))
check("another process is not touched", True, lives(sleeper.pid) and "it is another one" in d.stderr())
write(sleeper.pid, {**good, "pid": sleeper.pid, "began": began})
d = restart(d, one)
check("nor is one that has no mark", True, lives(sleeper.pid) and f"process {sleeper.pid} has MEDUSA_WORKER_ENGINE=(none)" in d.stderr())
check("the engine is adopted again", pid, d.chat("a").json.get("pid"))
for file in glob.glob(f"{place}/engine-1*.json"):
    if int(file.rsplit("-", 1)[1][:-5]) not in (pid,):
        os.rmdir(file) if os.path.isdir(file) else os.unlink(file)
# The ID of an engine that has ended was given to another process: as far as the record says.
d = restart(d, one, lambda: write(pid, {**good, "began": good["began"] - 1}))
until("an engine without a record does not stay", lambda: not lives(pid))
r = d.chat("a")
check("a new one serves", (200, True), (r.status, r.json.get("pid") not in (pid, None)))
end(d, [pid])
sleeper.kill()

# Engines whose memory is in host memory, or on its way, when the daemon is killed.
swapped = config({f"m{i}": f'cmd: "{ENGINE} --name m{i} --device-mb 40", medusa: {{memory: 40MB}}' for i in range(2)})
d = Daemon(f"{folder}/swapped", swapped)
pids = {f"m{i}": d.chat(f"m{i}").json.get("pid") for i in range(2)}
check("states", {"m0": "swapped", "m1": "ready"}, d.running())
d = restart(d, swapped)
until("states are found again", lambda: d.running() == {"m0": "swapped", "m1": "ready"})
for model in ("m0", "m1", "m0"):
    r = d.chat(model)
    check(f"{model} is brought in as it was", (200, True, pids[model]), (r.status, r.json.get("memory"), r.json.get("pid")))
# One that is on its way out has its memory until it is there: nothing is loaded in its place before.


def leaves():
    """A daemon whose m0 cannot go on, because it was stopped on its way out; m1 is swapped."""
    d.chat("m0")
    os.kill(pids["m0"], signal.SIGSTOP)
    client = threading.Thread(target=lost, args=(d, "m1", "never"))
    client.start()
    until("m0 leaves", lambda: d.running().get("m0") == "leaving")
    after = restart(d, swapped)
    client.join()
    until("m1 is found where it was", lambda: after.running().get("m1") == "swapped")
    return after


d = leaves()
replies = []
client = threading.Thread(target=lambda: replies.append(d.chat("m1").json.get("pid")))
client.start()
until("the request waits", lambda: 'medusa_worker_requests{model="m1"} 1' in d.get("/metrics").body.decode())
check("m0 still leaves, and m1 is not loaded", {"m0": "leaving", "m1": "swapped"}, d.running())
os.kill(pids["m0"], signal.SIGCONT)
client.join()
check("then it is, and served by the process that it was", [pids["m1"]], replies)
d = leaves()
os.kill(pids["m0"], signal.SIGCONT)
until("it is out, and nobody wants anything", lambda: d.running() == {"m0": "swapped", "m1": "swapped"})
for model in ("m0", "m1"):
    r = d.chat(model)
    check(f"{model} is brought in as it was", (200, True, pids[model]), (r.status, r.json.get("memory"), r.json.get("pid")))
stop = threading.Event()


def bother():
    while not stop.is_set():
        try:
            d.chat(random.choice(["m0", "m1"]))
        except (OSError, http.client.HTTPException):
            pass


for turn in range(4):
    stop.clear()
    threads = [threading.Thread(target=bother) for _ in range(2)]
    for thread in threads:
        thread.start()
    stop.wait(random.random() / 2)  # somewhere in their swaps
    stop.set()
    d.stop(signal.SIGKILL)
    for thread in threads:
        thread.join()
    d = Daemon(d.folder, swapped)
    for model in ("m0", "m1"):
        r = d.chat(model)
        check(f"turn {turn}, {model}", (200, True, pids[model]), (r.status, r.json.get("memory"), r.json.get("pid")))
end(d, pids.values())

# All processes of an engine that is swapped are stopped when the daemon is killed. The kernel does not wake them, as it wakes
# those of a process group that has lost its last parent in its session, and nothing comes back.
account = f"{folder}/devices_stopped"
shared = {"HOSTCUDA_SHARED": account}
old = Daemon(f"{folder}/stopped", swapped, env=shared)
halted = {f"m{i}": old.chat(f"m{i}").json.get("pid") for i in range(2)}
check("states", {"m0": "swapped", "m1": "ready"}, old.running())
leader = os.getpgid(halted["m0"])
members = [pid for pid in processes() if (process_stat(pid) or ("", "TT0"))[1][2] == str(leader)]
os.killpg(leader, signal.SIGSTOP)
until("they are stopped", lambda: {process_stat(pid)[1][0] for pid in members} == {"T"})
most_device_bytes(account, forget=True)
old.stop(signal.SIGKILL)
until("their parent is another process", lambda: process_stat(leader)[1][1] != str(old.process.pid))
check("they are stopped still", ["T"] * len(members), [(process_stat(pid) or ("", "none"))[1][0] for pid in members])
os.killpg(leader, signal.SIGCONT)
old = Daemon(old.folder, swapped, env=shared)
until("states are found again", lambda: old.running() == {"m0": "swapped", "m1": "ready"})
check("never more on the GPU than it has", True, most_device_bytes(account) < 60 << 20)
check("both serve", list(halted.values()), [old.chat(model).json.get("pid") for model in halted])
end(old, halted.values())

# The disk is full, so records are those of an earlier time, in which the other one was on the GPU: nobody believes them.
with open(f"{folder}/around", "wb") as file:
    file.write(bytes(16))
full = {"LD_PRELOAD": f"{os.environ['MEDUSA_BUILD']}/tests/faults/surroundings.so", "SURROUNDINGS": f"{folder}/around",
        "SURROUNDINGS_PROGRAM": "medusa-worker", "HOSTCUDA_SHARED": f"{folder}/devices"}
old = Daemon(f"{folder}/full", swapped, env=full)
stale = {f"m{i}": old.chat(f"m{i}").json.get("pid") for i in range(2)}
check("states", {"m0": "swapped", "m1": "ready"}, old.running())
with open(f"{folder}/around", "r+b") as file:
    file.write(struct.pack("qQ", 0, 1))
check("the other way round", stale["m0"], old.chat("m0").json.get("pid"))
os.kill(stale["m0"], signal.SIGSTOP)  # it goes nowhere
most_device_bytes(f"{folder}/devices", forget=True)
old = restart(old, swapped, lambda: os.truncate(f"{folder}/around", 0) or os.truncate(f"{folder}/around", 16), env=full)
until("they do not stay", lambda: not any(lives(pid) for pid in stale.values()))
check("others serve", [200, 200], [old.chat(model).status for model in stale])
check("never more on the GPU than it has", True, most_device_bytes(f"{folder}/devices") < 60 << 20)
end(old)
finish()
