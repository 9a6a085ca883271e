# SPDX-License-Identifier: Apache-2.0
"""Limits of models, models that are loaded first, and keys without effect: model_limits.py FOLDER."""
import os
import re
import subprocess
import sys

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
first = free_ports(8)


def refused(reply):
    return reply.status, reply.json.get("error", {}).get("code")


def of(daemon, model):
    return next(m for m in daemon.tell("models")["models"] if m["model"] == model)


d = Daemon(f"{folder}/limits", f"""
startPort: {first}
healthCheckTimeout: 15
hooks: {{on_startup: {{preload: [queue]}}}}
models:
  queue: {{cmd: "{ENGINE} --name queue", medusa: {{max_batch: 1, max_queue: 2}}}}
  wait: {{cmd: "{ENGINE} --name wait", medusa: {{max_batch: 1, max_wait: 300ms}}}}
  late: {{cmd: "{ENGINE} --name late", medusa: {{deadline: 2s}}}}
""")
# Loaded at the start, without a request.
until("it is loaded first", lambda: d.running() == {"queue": "ready"})

# One runs, two wait, the next one is too many.
running = Held(d, "queue")
until("it runs", lambda: of(d, "queue")["running"] == 1)
waiting = Held(d, "queue", 2).let_go()
until("two wait", lambda: of(d, "queue")["waiting"] == 2)
r = d.chat("queue")
check("one too many", (429, "queue_full"), refused(r))
check("it says when to come again", True, "retry-after" in r.headers)
check("those that wait are still there", 2, of(d, "queue")["waiting"])
running.let_go()
check("all others are served", [200] * 3, [r.status for r in running.wait() + waiting.wait()])
check("there is room again", 200, d.chat("queue").status)

# A request waits no longer than it may; one that runs goes on.
check("an engine that is there, however long its start takes", 0, d.ctl("load", "wait").returncode)
running = Held(d, "wait")
until("it runs", lambda: of(d, "wait")["running"] == 1)
check("it has waited too long", (504, "waited_too_long"), refused(d.chat("wait")))
check("nobody waits", 0, of(d, "wait")["waiting"])
running.let_go()
check("what ran", [200], [r.status for r in running.wait()])

# A deadline ends what runs.
check("an engine that is there, however long its start takes", 0, d.ctl("load", "late").returncode)
running = Held(d, "late")
check("a deadline", [(504, "deadline")], [refused(r) for r in running.wait()])
until("the engine is free", lambda: of(d, "late")["running"] == 0)
running.let_go()
check("the model goes on", 200, d.chat("late").status)
check("the exit code", 0, d.stop())

# Without retries nothing is tried again: neither a start nor a request whose engine died.
for retries, starts, journal in ((0, 1, 1), (1, 2, 2)):
    d = Daemon(f"{folder}/retries{retries}", f"""
startPort: {first}
healthCheckTimeout: 15
medusa: {{retries: {retries}}}
models:
  a: {{cmd: "{ENGINE} --name a --journal {folder}/journal{retries}"}}
  dies: {{cmd: "{ENGINE} --name dies --die-at-start"}}
""")
    check(f"{retries}: dies at its start", (502, "engine_failed"), refused(d.chat("dies")))
    check(f"{retries}: starts", starts, of(d, "dies")["loads"])
    check(f"{retries}: dies with the request", (502, "engine_failed"), refused(d.chat("a", die=True)))
    with open(f"{folder}/journal{retries}", encoding="utf-8") as file:
        check(f"{retries}: how often the engine was asked", journal, len(file.readlines()))
    check(f"{retries}: the next request", 200, d.chat("a").status)
    check("the exit code", 0, d.stop())

# A start that takes all the time it may is not made twice.
d = Daemon(f"{folder}/never", f"startPort: {first}\nhealthCheckTimeout: 15\nmodels:\n  never: {{cmd: \"{ENGINE} --name never --never-healthy\"}}\n")
check("never ready", (502, "engine_failed"), refused(d.chat("never")))
check("started once", 1, of(d, "never")["loads"])
check("the exit code", 0, d.stop())

# An engine whose starts fail one after the other is not started for every request, and takes no memory away from others meanwhile.
there = f"{folder}/there"
d = Daemon(f"{folder}/rests", f"""
startPort: {first}
models:
  good: {{cmd: "{ENGINE} --name good"}}
  broken: {{cmd: "sh -c 'test -e {there} && exec {ENGINE} --name broken'"}}
""")


def rests(seconds):
    """The answer that says that the engine rests so long, at least."""
    r = d.chat("broken")
    check("its request", (502, "engine_failed"), refused(r))
    found = re.search(r"its engine ended with exit code 1 before it was ready; it was started (\d+) times without an answer, and a request starts it again in (\d+) s", r.json["error"]["message"])
    return found and int(found[2]) >= seconds and r


for loads in (2, 4):
    check("two requests start it twice each", (502, "engine_failed", loads), (*refused(d.chat("broken")), of(d, "broken")["loads"]))
r = until("it rests, longer each time", lambda: rests(4))
check("it says when to come again", "1", r.headers.get("retry-after"))
loads = of(d, "broken")["loads"]
check("starts until then", 8, loads)


def another_stays():
    """Another model is there, and stays, for this one still rests and is not started. Where that takes longer than a rest, the next one is longer."""
    starts = of(d, "broken")["loads"]
    seen = d.chat("good").status, d.running(), refused(d.chat("broken")), of(d, "broken")["loads"] - starts, d.running()
    return seen == (200, {"good": "ready"}, (502, "engine_failed"), 0, {"good": "ready"})


until("another model is there, and stays while it rests", another_stays)
loads = of(d, "broken")["loads"]
with open(there, "w", encoding="utf-8"):
    pass
check("a user's load does not wait", 0, d.ctl("load", "broken").returncode)
check("it serves", (200, {"broken": "ready"}), (d.chat("broken").status, d.running()))
os.unlink(there)
check("unloaded", 0, d.ctl("unload", "broken").returncode)
check("all is forgotten", (502, "engine_failed", loads + 3), (*refused(d.chat("broken")), of(d, "broken")["loads"]))
count = {name: int(value) for name, value in re.findall(r'^medusa_worker_requests(_\w+)?{model="broken"} (\d+)$', d.get("/metrics").body.decode(), re.M)}
check("each request is counted once", count["_total"], count["_served_total"] + count["_failed_total"])
check("the exit code", 0, d.stop())

# The same of one that becomes ready, and ends with whatever it is asked.
d = Daemon(f"{folder}/dies", f"startPort: {first}\nmodels:\n  dies: {{cmd: \"{ENGINE} --name dies\"}}\n")
for loads in (2, 4):
    check("two requests start it twice each", (502, "engine_failed", loads), (*refused(d.chat("dies", die=True)), of(d, "dies")["loads"]))
r = d.chat("dies")
check("then it rests", (502, "engine_failed", "1", 4), (*refused(r), r.headers.get("retry-after"), of(d, "dies")["loads"]))
check("why", True, "its engine was killed by SIGKILL" in r.json["error"]["message"] and "; it was started 4 times without an answer, and a request starts it again in 1 s" in r.json["error"]["message"])
until("it may start again", lambda: d.chat("dies").status == 200)
for loads in (6, 8, 10):
    check("with an answer all is forgotten", (502, "engine_failed", loads), (*refused(d.chat("dies", die=True)), of(d, "dies")["loads"]))
check("until it rests again", (502, 10), (d.chat("dies").status, of(d, "dies")["loads"]))
check("the exit code", 0, d.stop())

# What has no effect is said.
with open(f"{folder}/without.yaml", "w", encoding="utf-8") as file:
    file.write("""logLevel: debug
groups: {g: {persistent: true, members: [a]}}
models: {a: {cmd: "x ${PORT}"}}
medusa: {host_memory: 1GB}
peers: {p: {proxy: "https://api.example.com/v1/", models: [m]}, q: {proxy: "https://api.example.com/v1/api", models: [m]}}
""")
done = subprocess.run(["medusa-worker", "--config", f"{folder}/without.yaml", "--check"], capture_output=True, text=True, timeout=PATIENCE)
check("a configuration that is read", 0, done.returncode)
for key in ("1: logLevel", "4: medusa.host_memory"):
    check(f"it names {key}", True, f"without.yaml:{key}: medusa-worker" in done.stderr)
check("groups are obeyed, so nothing is said of them", False, "groups" in done.stderr)
check("a peer's URL that has /v1", (1, True), (done.stderr.count("/v1/v1"), "without.yaml:5: peers.p.proxy: " in done.stderr))
finish()
