# SPDX-License-Identifier: Apache-2.0
"""Adapters on an engine: loaded, made room for, lost, refused, unloaded: adapter_loads.py FOLDER."""
import http.client
import json
import os
import signal
import socket
import sys
import threading

from adapter_world import World, ask, errors, states, text
from daemon import Held, check, finish, lives, until

folder = sys.argv[1]


# ---- one after the other, in two places ----

w = World(f"{folder}/turns", "abc", slots=2, more={"b": "aliases: [bb], slo: 1s", "c": "useModelName: engine-c, name: the third"})
d = w.start()
for model, expected in (("a", "text of a"), ("base", None), ("bb", "text of b"), ("c", "text of c"), ("a", "text of a")):
    check(f"{model}: who answers", (200, "base", expected), ask(d, model))
check("the one that was used longest ago makes room", ["load a", "load b", "unload a", "load engine-c", "unload b", "load a"], w.journal())
check("states", {"base": "ready", "a": "ready", "c": "ready"}, d.running())
check("/running names the base", {"a": "base", "c": "base"}, {r["model"]: r["parent"] for r in d.get("/running").json["running"] if "parent" in r})
listed = {m["id"]: (m.get("parent"), m.get("root")) for m in d.get("/v1/models").json["data"]}
check("/v1/models says parent and root", {"base": (None, None), **{n: ("base", w.path(n)) for n in "abc"}}, listed)
check("/v1/models/NAME", ("base", "the third"), tuple(d.get("/v1/models/c").json[k] for k in ("parent", "name")))
check("medusa-workerctl models: bases, served", {"a": ("base", 2), "b": ("base", 1), "base": (None, 2), "c": ("base", 1)},
      {m["model"]: (m["base"], m["served"]) for m in d.tell("models")["models"]})
rows = [line.split()[0] for line in d.ctl("models").stdout.splitlines()]
check("its table has them below the base", ["MODEL", "base", "a", "b", "c"], rows)
metrics = d.get("/metrics").body.decode()
for line in ('loads_total{model="a"} 2', 'loads_total{model="b"} 1', 'loads_total{model="base"} 1', 'requests_served_total{model="a"} 2',
             'state{model="b",state="stopped"} 1', 'state{model="c",state="ready"} 1'):
    check(f"/metrics has {line}", True, f"medusa_worker_{line}\n" in metrics)
check("what another engine would be asked", 404, d.chat("nobody").status)
check("its end", 0, d.stop())
check("its engine ended with it", False, lives(w.pid))

# ---- a request comes while its adapter is loaded: it is loaded once ----

w = World(f"{folder}/once", "ab", slots=2, slow="a")
d = w.start()
held = Held(d, "a", 5)
until("the load has begun", lambda: w.journal() == ["load a"])
check("it is being loaded", "starting", states(d)["a"])
check("another adapter and the base are served meanwhile", [(200, "base", "text of b"), (200, "base", None)], [ask(d, "b"), ask(d, "base")])
w.let_load("a")
check("all are served", [(200, "text of a")] * 5, [(r.status, r.json.get("adapter")) for r in held.let_go().wait()])
check("it was loaded once", 1, w.journal().count("load a"))

# A client that leaves meanwhile takes nothing with it.
d.ctl("unload", "a")
w.slow("a")
gone = socket.create_connection(("127.0.0.1", d.port))
body = b'{"model": "a"}'
gone.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
until("the load has begun again", lambda: w.journal().count("load a") == 2)
gone.close()
until("the client is counted as gone", lambda: 'requests_left_waiting_total{model="a"} 1\n' in d.get("/metrics").body.decode())
w.let_load("a")
check("the next one is served", (200, "base", "text of a"), ask(d, "a"))
check("by the load that was under way", 2, w.journal().count("load a"))

# ---- unloaded by a user ----

check("a user unloads one", 0, d.ctl("unload", "a").returncode)
check("the other one and the engine stay", {"base": "ready", "b": "ready", "a": "stopped"}, states(d))
check("it was told to the engine", "unload a", w.journal()[-1])
check("it comes back", (200, "base", "text of a"), ask(d, "a"))
held = Held(d, "b")
until("b runs", lambda: w.of(d, "b")["running"] == 1)
check("the base is unloaded when the requests of its adapters have ended", 0, (held.let_go(), d.ctl("unload", "base").returncode)[1])
check("they were served", [200], [r.status for r in held.wait()])
check("all have left", {"base": "stopped", "a": "stopped", "b": "stopped"}, states(d))
check("a request for an adapter starts the engine", (200, "base", "text of b"), ask(d, "b"))
check("medusa-workerctl load", 0, d.ctl("load", "a").returncode)
check("which has loaded it", "ready", states(d)["a"])
check("the page's orders do the same", [200, 200], [d.ask("POST", "/api/models/load/b").status, d.ask("POST", "/api/models/unload/b").status])
check("b has left", "stopped", states(d)["b"])
check("its end", 0, d.stop())

# ---- all places are in use ----

w = World(f"{folder}/busy", "abc", slots=2, more={"c": "max_queue: 1, concurrencyLimit: 2"})
d = w.start()
first, second = Held(d, "a"), Held(d, "b")
until("a and b are loaded", lambda: sorted(w.journal()) == ["load a", "load b"])
third = Held(d, "c").let_go()
until("c waits", lambda: w.of(d, "c")["waiting"] == 1)
check("nothing was unloaded for it", ["load a", "load b"], sorted(w.journal()))
check("the base runs meanwhile", (200, "base", None), ask(d, "base"))
fourth = d.chat("c")
check("limits are those of each function", (429, "queue_full"), (fourth.status, fourth.json["error"]["code"]))
second.let_go().wait()
check("c has the place of the first that ends", [(200, "text of c")], [(r.status, r.json.get("adapter")) for r in third.wait()])
check("in the place of b", ["unload b", "load c"], w.journal()[2:])
first.let_go().wait()
check("its end", 0, d.stop())

# ---- one stays ----

w = World(f"{folder}/pinned", "abc", slots=2, more={"a": "pin: true"})
d = w.start()
for model in "abcbc":
    check(f"{model} answers", (200, "base", f"text of {model}"), ask(d, model))
check("a stays, b and c take turns", ["load a", "load b", "unload b", "load c", "unload c", "load b", "unload b", "load c"], w.journal())
check("its end", 0, d.stop())

w = World(f"{folder}/kept", "ab", slots=2, more={"b": "min_replicas: 1"}, hooks="{on_startup: {preload: [a]}}")
d = w.start()
until("both are loaded without a request", lambda: {"base": "ready", "a": "ready", "b": "ready"} == states(d))
check("its end", 0, d.stop())

# ---- loads that fail ----

w = World(f"{folder}/faults", "abcde", slots=4)
d = w.start()
held = [Held(d, "base"), Held(d, "a")]
until("base and a run", lambda: [w.of(d, n)["running"] for n in ("base", "a")] == [1, 1])
os.unlink(w.path("b"))
check("an adapter that is not there", (502, "engine_failed", "model b: its engine did not load the adapter: 404: Loading lora b failed: No adapter found for " + w.path("b")), errors(d.chat("b")))
w.write("c", status=500, say="CUDA error: \x1b[31mout of memory")
check("a load that fails", (502, "engine_failed", "model c: its engine did not load the adapter: 500: CUDA error: \\x1b[31mout of memory"), errors(d.chat("c")))
check("by tries", 2, w.journal().count("load c"))
check("the other functions of the engine are not touched", [200, 200], [r.status for h in held for r in h.let_go().wait()])
check("nor are those that come later", [(200, "base", "text of a"), (200, "base", None)], [ask(d, "a"), ask(d, "base")])
w.write("c", text="mended")
check("it is tried again with the next request", (200, "base", "mended"), ask(d, "c"))
w.write("d", text="late", status=500, late=True)
check("one that is loaded although the engine has said no", (200, "base", "late"), ask(d, "d"))
check("failures are counted", {"b": 2, "c": 2, "d": 0, "a": 0, "base": 0}, {m["model"]: m["failures"] for m in d.tell("models")["models"] if m["model"] != "e"})
check("medusa-workerctl load says why", True, "404: Loading lora b failed" in d.ctl("load", "b").stderr)

# An engine that has lost an adapter says 404: it is loaded again, and the client sees nothing of it.
d.ask("POST", "/upstream/base/forget", {"names": ["a", "c"]})
before = w.journal().count("load a")
check("a lost adapter is loaded anew", (200, "base", "text of a"), ask(d, "a"))
check("once", before + 1, w.journal().count("load a"))
check("the other lost one, too", (200, "base", "mended"), ask(d, "c"))
asked = d.chat("a", status=404)
check("a 404 for another reason is the client's", (404, "text of a"), (asked.status, asked.json.get("adapter")))
check("for which nothing is loaded", before + 1, w.journal().count("load a"))

# ---- the engine ends ----

pid = d.chat("a").json["pid"]
os.kill(pid, signal.SIGKILL)
until("its end was seen", lambda: states(d)["base"] == "stopped")
check("with the engine all adapters are gone", {"stopped"}, set(states(d).values()))
check("a new one has the adapter again", (200, "base", "text of a"), ask(d, "a"))
again = d.chat("a", die=True)
check("a request that kills its engine", (502, "engine_failed"), errors(again)[:2])
w.slow("e")
held = Held(d, "e")
until("e is loaded", lambda: w.journal()[-1] == "load e")
w.kill(d)
until("another engine loads it", lambda: w.journal().count("load e") == 2)
w.let_load("e")
check("an engine that dies while it loads", [(200, "text of e")], [(r.status, r.json.get("adapter")) for r in held.let_go().wait()])
check("text of another one", (200, "base", "text of a"), ask(d, "a"))

# The engine says to two requests that it does not know the adapter. That it has lost it is known before the second answer is read.


def counts():
    connection = http.client.HTTPConnection("127.0.0.1", w.port, timeout=60)
    connection.request("GET", "/counts")
    return json.loads(connection.getresponse().read())


def begin(**more):
    replies = []
    thread = threading.Thread(target=lambda: replies.append(d.chat("a", **more)))
    thread.start()
    return thread, replies


def create(path):
    with open(path, "w", encoding="utf-8"):
        pass


def end(threads):
    for thread, _ in threads:
        thread.join()
    return [(200, "text of a")] * len(threads), [r for _, replies in threads for r in text(replies)]


for turn in range(3):
    gates = [f"{w.folder}/gate.{turn}.{i}" for i in range(2)]
    check(f"the adapter is there ({turn})", (200, "base", "text of a"), ask(d, "a"))
    d.ask("POST", "/upstream/base/forget", {"names": ["a"], "until": gates[0]})
    before = counts()
    threads = [begin(refuse_when=gates[1])]
    until("the engine has the first one", lambda before=before: counts()["running"] == 1)
    threads.append(begin())
    until("the engine is asked for its list", lambda before=before: counts()["asked"] > before["asked"])
    d.process.send_signal(signal.SIGSTOP)
    create(gates[0])
    until("its list is said", lambda before=before: counts()["lists"] > before["lists"])
    create(gates[1])
    until("the first one is refused", lambda: counts()["running"] == 0)
    d.process.send_signal(signal.SIGCONT)
    check(f"both are answered by the adapter ({turn})", *end(threads))
check("no request runs twice", 0, d.stderr().count("which runs already"))
check("its end", 0, d.stop())
finish()
