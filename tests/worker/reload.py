# SPDX-License-Identifier: Apache-2.0
"""The configuration of medusa-worker is read anew while it serves: reload.py FOLDER."""
import json
import os
import signal
import sys
import threading

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
port = free_ports(12)
GPU = "medusa: {gpus: [{memory: 100GB}]}\n"
ROOM = "medusa: {memory: 1GB, swap: off}"  # all run at once


def write(daemon, text):
    with open(f"{daemon.folder}/config.yaml", "w", encoding="utf-8") as file:
        file.write(f"startPort: {port}\n" + (text if "gpus:" in text else GPU + text))


def reload(daemon, text):
    write(daemon, text)
    return daemon.tell("reload")


def numbers(answer):
    return tuple(answer.get(key) for key in ("added", "removed", "changed", "renewed"))


A = f'a: {{cmd: "{ENGINE} --name a", {ROOM}}}'
B = f'b: {{cmd: "{ENGINE} --name b", {ROOM}}}'
PAIR = "groups: {together: {swap: false, members: [a, b]}}\n"
d = Daemon(f"{folder}/reload", f"startPort: {port}\n{GPU}models:\n  {A}\n  {B}\n")
pids = {m: d.chat(m).json["pid"] for m in "ab"}
check("both run", {"a": "ready", "b": "ready"}, d.running())

# What is as it was stays; a model that sorts before the others takes none of their ports.
check("nothing new", (0, 0, 0, 0), numbers(reload(d, f"models:\n  {A}\n  {B}\n")))
limited = f'a: {{cmd: "{ENGINE} --name a", aliases: [other], concurrencyLimit: 1, ttl: 1000, {ROOM}}}'
first = f'"0": {{cmd: "{ENGINE} --name first", {ROOM}}}'
answer = reload(d, f"models:\n  {first}\n  {limited}\n  {B}\n")
check("one added, one changed", (1, 0, 1, 0), numbers(answer))
check("the same engines", pids, {m: d.chat(m).json["pid"] for m in "ab"})
check("its new alias", pids["a"], d.chat("other").json.get("pid"))
check("its ttl", 1000, next(r["ttl"] for r in d.get("/running").json["running"] if r["model"] == "a"))
held = Held(d, "a")
until("it runs", lambda: next(m["running"] for m in d.tell("models")["models"] if m["model"] == "a") == 1)
check("its new limit", 429, d.chat("a").status)
check("the one before", [200], [r.status for r in held.let_go().wait()])
check("the new one, beside those that run", "first", d.chat("0").json.get("name"))

# What is wrong changes nothing, and is told.
before = d.get("/v1/models").json
for wrong, why in (("models:\n  a: {cmd: 5, cmd: 6}\n", "config.yaml:"), ("models: [", "config.yaml:"), ("models:\n  c: {aliases: [x]}\n", ""),
                   (f"models:\n  {A}\n  big: {{cmd: 'x ${{PORT}}', medusa: {{memory: 100TB}}}}\n", "config.yaml:5: models.big.medusa.memory"),
                   (f"models:\n  {A}\n  {B}\n  c: {{cmd: x, proxy: 'https://h:1'}}\n", "models.c.proxy"),
                   (f"medusa: {{gpus: [{{memory: 900TB}}]}}\nmodels:\n  {A}\n  c: {{cmd: 'x ${{PORT}}', medusa: {{memory: 800TB}}}}\n",
                    "config.yaml:5: models.c.medusa.memory"),
                   (f"models:\n  {A}\n  {B}\n  c: {{cmd: x, proxy: 'http://no.such.host.invalid:80'}}\n", "config.yaml:6: models.c.proxy is \"http://no.such.host.invalid:80")):
    write(d, wrong)
    r = d.ctl("reload")
    check(f"refused: {wrong!r}", (3, True), (r.returncode, why in r.stderr))
    check("nothing has changed", before, d.get("/v1/models").json)
check("the engine is the same", pids["b"], d.chat("b").json.get("pid"))
said = d.stderr().count("nothing has changed")
d.process.send_signal(signal.SIGHUP)
until("SIGHUP: the log says that, too", lambda: d.stderr().count("nothing has changed") > said)

# Keys of clients count at once.
keyed = f"apiKeys: [secret]\nmodels:\n  {A}\n  {B}\n"
check("a model is gone, one has its old limits", (0, 1, 1, 0), numbers(reload(d, keyed)))
check("without a key, and with one", (401, 200), (d.chat("a").status, d.ask("POST", "/v1/chat/completions", {"model": "a"}, {"X-Api-Key": "secret"}).status))
check("no key is wanted", (0, 0, 0, 0), numbers(reload(d, f"models:\n  {A}\n  {B}\n")))
check("the one that is gone", 404, d.chat("0").status)
until("its engine ends", lambda: "0" not in d.running())

# What needs a start of the daemon is named.
check("later", "medusa.gpus, medusa.body_limit", reload(d, f"medusa: {{gpus: [{{memory: 10GB}}], body_limit: 1MB}}\nmodels:\n  {A}\n  {B}\n").get("later"))

# Another command: what runs ends in the old engine, what comes later is answered by the new one.
stream = d.connect()
stream.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "stream": True, "max_tokens": 40, "token": 0.05}))
answer = stream.getresponse()
begun = answer.read(8)
renamed = f'a: {{cmd: "{ENGINE} --name renamed", {ROOM}}}'
check("a new engine", (0, 0, 0, 1), numbers(reload(d, f"models:\n  {renamed}\n  {B}\n")))
check("the new one", "renamed", d.chat("a").json.get("name"))
whole = (begun + answer.read()).decode()
check("the stream was whole", (40, 1), (whole.count('"a'), whole.count("[DONE]")))
check("the other engine is the same", pids["b"], d.chat("b").json.get("pid"))
metrics = dict(line.rsplit(" ", 1) for line in d.get("/metrics").body.decode().splitlines() if not line.startswith("#"))
check("the counters go on", True, int(metrics['medusa_worker_requests_served_total{model="a"}']) >= 5)
check("each is there once", 1, sum(name.startswith('medusa_worker_requests{model="a"') for name in metrics))

before_held = int(metrics['medusa_worker_requests_total{model="b"}'])

# A model that is gone finishes its requests, those that wait included; it may come back meanwhile.
held = Held(d, "b", 3)
until("they are there", lambda: next(m["running"] + m["waiting"] for m in d.tell("models")["models"] if m["model"] == "b") == 3)
check("removed", (0, 1, 0, 0), numbers(reload(d, f"models:\n  {renamed}\n")))
check("no new requests", 404, d.chat("b").status)
check("and added again", (1, 0, 0, 0), numbers(reload(d, f"models:\n  {renamed}\n  {B}\n")))
later = Held(d, "b").let_go()
held.let_go()
check("its requests", [(200, pids["b"])] * 3, [(r.status, r.json.get("pid")) for r in held.wait()])
check("a new engine", True, later.wait()[0].json.get("pid") not in (None, pids["b"]))
metrics = dict(line.rsplit(" ", 1) for line in d.get("/metrics").body.decode().splitlines() if not line.startswith("#"))
check("its counters went on", (0, 4), (int(metrics['medusa_worker_requests{model="b"}']), int(metrics['medusa_worker_requests_total{model="b"}']) - before_held))

# A request whose engine ends although two configurations have come since goes to the newest one, or is told that there is none.
for then, wanted in ((f'a: {{cmd: "{ENGINE} --name third", {ROOM}}}\n  {B}', (200, "third")), (B, (404, None))):
    first = f'a: {{cmd: "{ENGINE} --name first", {ROOM}}}\n  {B}'
    reload(d, f"models:\n  {first}\n")
    pid = d.chat("a").json.get("pid")
    held = Held(d, "a")
    until("it runs", lambda: next(m["running"] for m in d.tell("models")["models"] if m["model"] == "a") == 1)
    second = f'a: {{cmd: "{ENGINE} --name second", {ROOM}}}\n  {B}'
    for text in (second, then):
        reload(d, f"models:\n  {text}\n")
    uptime = d.tell("status")["uptime_s"]
    until("what nobody uses is freed", lambda: d.tell("status")["uptime_s"] > uptime + 2)
    os.kill(pid, signal.SIGKILL)
    held.let_go()
    check("the newest one answers, or nobody", [wanted], [(r.status, r.json.get("name")) for r in held.wait()])
reload(d, f"models:\n  {renamed}\n  {B}\n")

# Many requests, many reloads: each request is answered once, by one engine.
journal = f"{folder}/journal"
REQUESTS, RELOADS = 200, 20


def variant(number):
    models = [f'a: {{cmd: "{ENGINE} --name a{number // 3} --journal {journal}", ttl: {number + 1}}}',
              f'b: {{cmd: "{ENGINE} --name b{number // 2} --journal {journal}"}}']
    if number % 2:
        models.insert(0, f'"0{number}": {{cmd: "{ENGINE} --name other"}}')
    return "models:\n  " + "\n  ".join(models) + "\n" + (PAIR if number % 4 < 2 else "")


reload(d, variant(0))
answers, lock, left = {}, threading.Lock(), iter(range(REQUESTS))


def ask():
    while True:
        with lock:
            number = next(left, None)
        if number is None:
            return
        r = d.chat("ab"[number % 2], id=number, wait=0.005 * (number % 5), stream=number % 3 == 0)
        with lock:
            answers.setdefault(number, []).append((r.status, r.json.get("asked", {}).get("id") if number % 3 else r.body.count(b"[DONE]")))


threads = [threading.Thread(target=ask) for _ in range(6)]
for t in threads:
    t.start()
for number in range(1, RELOADS + 1):
    until("some are answered", lambda: len(answers) >= min(REQUESTS, REQUESTS * (number - 1) // RELOADS))
    check("reload", (0, 0), (d.ctl("reload").returncode if not write(d, variant(number)) else -1, 0))
for t in threads:
    t.join(PATIENCE)
check("each was answered", {n: [(200, n if n % 3 else 1)] for n in range(REQUESTS)}, answers)
with open(journal, encoding="utf-8") as file:
    seen = sorted(int(line) for line in file)
check("each was asked once", list(range(REQUESTS)), seen)
until("old engines have ended", lambda: set(d.running()) <= {"a", "b"})
check("the exit code", 0, d.stop())
finish()
