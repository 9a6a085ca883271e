# SPDX-License-Identifier: Apache-2.0
"""Requests that join engines which run, behind medusa-worker: join_engines.py FOLDER."""
import http.client
import json
import re
import sys
import threading
import time

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
d = Daemon(f"{folder}/join", f"""
startPort: {free_ports(8)}
medusa:
  gpus: [{{memory: 60MB}}]
models:
  a:
    cmd: {ENGINE} --name a --device-mb 40
    concurrencyLimit: 20
    medusa: {{memory: 40MB}}
  b:
    cmd: {ENGINE} --name b --device-mb 40
    medusa: {{memory: 40MB}}
  narrow:
    cmd: {ENGINE} --name narrow
    concurrencyLimit: 20
    medusa: {{memory: 1MB, max_batch: 2}}
  roomy:
    cmd: {ENGINE} --name roomy
    concurrencyLimit: 20
    medusa: {{memory: 1MB, kv_per_request: 19MB}}
""", env={"MEDUSA_LOG": "debug"})


def metric(name):
    for line in d.get("/metrics").body.decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    return None


def learned(model, what):
    return metric(f'medusa_worker_learned_seconds{{model="{model}",of="{what}"}}')


def stream(model, **more):
    """A stream that has begun."""
    connection = d.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": model, "stream": True, **more}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read(10)
    return connection, response


def counts(model):
    return d.get(f"/upstream/{model}/counts").json


# A request joins while another one streams.
connection, response = stream("a", max_tokens=100000, token=0.01)
joined = metric("medusa_worker_scheduler_joins_total")
r = d.chat("a")
check("a request beside a stream", (200, True), (r.status, r.json.get("memory")))
check("it has joined", joined + 1, metric("medusa_worker_scheduler_joins_total"))
until("the stream goes on alone", lambda: counts("a").get("running") == 1)
check("and gives more", True, len(response.read(1000)) == 1000)
check("nobody has gone", 0, metric("medusa_worker_scheduler_cancelled_total"))
connection.close()
until("the stream ends with its client", lambda: counts("a").get("cancelled") == 1)
check("it is not counted as served", 1, metric("medusa_worker_scheduler_cancelled_total"))

# Those that come while the engine starts are given to it when it is ready, and not more than it takes.
replies = []
threads = [threading.Thread(target=lambda: replies.append(d.chat("narrow", wait=0.05))) for _ in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check("all are served", [200] * 8, [r.status for r in replies])
check("at most two at one time", 2, counts("narrow").get("most"))

# Nor more than the GPU has memory for.
replies = []
threads = [threading.Thread(target=lambda: replies.append(d.chat("roomy", wait=0.05))) for _ in range(9)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check("all are served", [200] * 9, [r.status for r in replies])
check("at most three at one time", lambda most: most <= 3, counts("roomy").get("most"))

# An engine dies with many requests in its hands: those that have sent nothing are tried again, and end once.
connection, response = stream("a", max_tokens=100000, token=0.01)
pid = d.chat("a").json.get("pid")
held = Held(d, "a", 4)
until("they run", lambda: counts("a").get("running") == 5)
killer = d.chat("a", stream=True, die_at=2)
replies = held.let_go().wait()
check("the one that killed it", (True, True), ("a0 a1 " == killer.text, any("error" in e for e in killer.events)))
check("the others", [200] * 4, [r.status for r in replies])
check("another process", True, {r.json.get("pid") for r in replies} not in ({pid}, {None}))
try:
    rest = response.read()
except http.client.IncompleteRead as cut:
    rest = cut.partial
check("the stream learns of it", True, b'"error"' in rest)
connection.close()

# One that kills each engine it is given is tried again once, and no more.
starts = d.engine_log("a").count("a listens on")
check("a request that kills its engine", 502, d.chat("a", die=True).status)
check("the engine is there again", 200, d.chat("a").status)
check("it died twice", starts + 2, d.engine_log("a").count("a listens on"))

# A second model has its turn although requests for the first one never cease.
over = threading.Event()
answered = []


def without_end():
    while not over.is_set():
        answered.append(d.chat("a", wait=0.3).status)


threads = [threading.Thread(target=without_end) for _ in range(4)]
for t in threads:
    t.start()
until("several run at one time", lambda: (counts("a").get("running") or 0) >= 3)
for _ in range(3):
    r = d.chat("b")
    check("the second model", (200, "b", True), (r.status, r.json.get("name"), r.json.get("memory")))
before = len(answered)
until("the first one goes on", lambda: len(answered) > before + 8)
over.set()
for t in threads:
    t.join()

# What was measured meanwhile. Python takes longer than 10 ms to start, and a stream says something after `wait`.
check("a start", True, (learned("a", "start") or 0) > 0.01)
check("swaps", True, bool(learned("a", "swap_in") and learned("a", "leave") and learned("b", "leave")))
check("what is not streamed tells no time to the first token", None, learned("b", "first_token"))
d.chat("b", stream=True, wait=0.4)
first = learned("b", "first_token")
check("a time to the first token", True, 0.4 <= (first or 0) < 5)
until("the scheduler is told", lambda: f"model b: the scheduler counts on {first:.3f} s to a first token" in d.stderr())
began = time.monotonic()
d.chat("b", stream=True)
most, second = time.monotonic() - began, learned("b", "first_token")
check("a quarter of the next one counts", True, 0.749 * first < second < 0.751 * first + most / 4)
check("nobody was refused", {200}, set(answered))

# Models that are both there compute first tokens in turn; an answer that is not streamed is not waited for until its end.
d.chat("narrow", stream=True, wait=1.5)
d.chat("roomy")
port = int(re.search(r"narrow listens on (\d+)", d.engine_log("narrow")).group(1))


def busy():
    """Without a request through the daemon."""
    engine = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    engine.request("GET", "/counts")
    return json.loads(engine.getresponse().read())["running"]


held = Held(d, "narrow")
until("it computes", busy)
check("another model's answer, before the long one has ended", (200, 1), (d.chat("roomy").status, busy()))
check("which ends, too", [200], [r.status for r in held.let_go().wait()])
check("the exit code", 0, d.stop())
finish()
