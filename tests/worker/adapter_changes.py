# SPDX-License-Identifier: Apache-2.0
"""Adapters when everything around them changes: swaps, groups, GPUs, reloads, daemons, bills: adapter_changes.py FOLDER."""
import json
import os
import signal
import subprocess
import sys

from adapter_world import World, ask, states, text
from daemon import ENGINE, PATIENCE, Held, check, finish, lives, until

folder = sys.argv[1]


def other(name, own, more=""):
    return f"  {name}:\n    cmd: \"{ENGINE} --name {name} {more}\"\n    medusa: {{{own}}}\n"


# ---- the engine is swapped: adapters go and come with its process ----

w = World(f"{folder}/swaps", "ab", engine="--device-mb 20", own="{memory: 200MB, swap: on}".strip("{}").replace(", ", "\n      "),
          others=other("large", "memory: 200MB", "--device-mb 20"), more={"a": "bytes: 1MB", "b": "bytes: 2MB"})
d = w.start()
check("a and b are loaded", [(200, "base", "text of a"), (200, "base", "text of b")], [ask(d, "a"), ask(d, "b")])
check("another model takes the memory", 200, d.chat("large").status)
check("the engine was swapped, not stopped", ("swapped", True), (states(d)["base"], lives(w.pid)))
check("a comes back with it", (200, "base", "text of a"), ask(d, "a"))
check("the scheduler knows what has come along", 203000000, d.tell("status")["gpus"][0]["used_bytes"])
r = d.chat("b")
check("so does b, in the same process, whose memory is right", (200, "text of b", w.pid, True), (r.status, r.json.get("adapter"), r.json.get("pid"), r.json.get("memory")))
check("nothing was loaded or unloaded for it", ["load a", "load b"], w.journal())
check("its end", 0, d.stop())

# An adapter that is being loaded holds its engine where it is.
w = World(f"{folder}/held", "a", engine="--device-mb 20", own="memory: 200MB\n      swap: on", slow="a", others=other("large", "memory: 200MB", "--device-mb 20"))
d = w.start()
loading = Held(d, "a").let_go()
until("the load has begun", lambda: w.journal() == ["load a"])
waits = Held(d, "large").let_go()
until("the other model waits", lambda: w.of(d, "large")["waiting"] == 1)
check("the engine is not taken away meanwhile", "ready", states(d)["base"])
w.let_load("a")
check("both are served", [[(200, "text of a")], [200]], [text(loading.wait()), [r.status for r in waits.wait()]])
check("the other one has the memory", {"base": "swapped", "a": "swapped", "large": "ready"}, states(d))
check("a user unloads the adapter of an engine that is out", 0, d.ctl("unload", "a").returncode)
check("which stays out", {"base": "swapped", "a": "swapped", "large": "ready"}, states(d))
check("it comes back for a request", (200, "base"), ask(d, "base")[:2])
until("and unloads the adapter", lambda: w.journal()[-1] == "unload a")
check("until somebody asks for it", (200, "base", "text of a"), ask(d, "a"))
check("the other model once more", 200, d.chat("large").status)
check("unloaded again", 0, d.ctl("unload", "a").returncode)
check("and asked for, before the engine is back", (200, "base", "text of a"), ask(d, "a"))
check("it never left", ["load a", "unload a", "load a"], w.journal())
check("its end", 0, d.stop())

# An unload that waits for an engine on its way out ends when that is out, although somebody has asked for the adapter and gone again.
w = World(f"{folder}/leaving", "a", engine="--device-mb 20", own="memory: 200MB\n      swap: on", others=other("large", "memory: 200MB", "--device-mb 20"))
d = w.start()
check("a is loaded", (200, "base", "text of a"), ask(d, "a"))
os.kill(w.pid, signal.SIGSTOP)
waits = Held(d, "large").let_go()
until("the engine is on its way out", lambda: states(d)["base"] == "leaving")
unload = d.connect()
unload.request("POST", "/api/models/unload/a")
client = d.connect()
client.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "messages": []}), {"Content-Type": "application/json"})
until("a client waits for the adapter", lambda: w.of(d, "a")["waiting"] == 1)
client.close()
until("and is gone", lambda: w.of(d, "a")["waiting"] == 0)
os.kill(w.pid, signal.SIGCONT)
check("the unload ends", 200, unload.getresponse().status)
check("the other one is served", [200], [r.status for r in waits.wait()])
check("and the engine is still out", "swapped", states(d)["base"])
check("it comes back for another request, with the adapter, which was asked for since", (200, "base"), ask(d, "base")[:2])
until("the adapter counts as there", lambda: states(d)["a"] == "ready")
check("a user unloads it again", 0, d.ctl("unload", "a").returncode)
check("which the engine is told", ["load a", "unload a"], w.journal())
check("it is loaded anew for a request", (200, "base", "text of a"), ask(d, "a"))
check("its end", 0, d.stop())

# So does one that is being unloaded: the engine's answer would not come while its memory is away.
w = World(f"{folder}/unloading", "a", engine="--device-mb 20", own="memory: 200MB\n      swap: on", others=other("large", "memory: 200MB", "--device-mb 20"))
w.write("a", stays=w.gate("a"))
d = w.start()
check("a is loaded", (200, "base", "text of a"), ask(d, "a"))
unload = subprocess.Popen(["medusa-workerctl", "unload", "a", "--socket", d.control])
until("the unload has begun", lambda: w.journal() == ["load a", "unload a"])
waits = Held(d, "large").let_go()
until("the other model waits", lambda: w.of(d, "large")["waiting"] == 1)
check("the engine stays, and nobody has been answered", ("ready", None), (states(d)["base"], unload.poll()))
w.let_load("a")
check("the unload ends", 0, unload.wait(PATIENCE))
check("then the other one is served", [200], [r.status for r in waits.wait()])
check("by the memory of the engine, which was swapped", {"base": "swapped", "a": "stopped", "large": "ready"}, states(d))
check("the adapter is loaded anew in the same process", ((200, "base", "text of a"), True), (ask(d, "a"), lives(w.pid)))
check("and only then", ["load a", "unload a", "load a"], w.journal())
check("its end", 0, d.stop())

# ---- a user unloads it as often as it was loaded ----

w = World(f"{folder}/again", "a")
d = w.start()
for turn in range(3):
    check("a is loaded", (200, "base", "text of a"), ask(d, "a"))
    check("a user unloads it", 0, d.ctl("unload", "a").returncode)
check("each time", ["load a", "unload a"] * 3, w.journal())
check("its end", 0, d.stop())

# ---- memory: an adapter's bytes count, and with its engine it makes room ----

w = World(f"{folder}/memory", "ab", own="memory: 200MB", more={"a": "bytes: 60MB", "b": "bytes: 60MB"}, others=other("large", "memory: 250MB"))
d = w.start()
check("both do not fit beside the engine", ["text of a", "text of b", "text of a"], [ask(d, n)[2] for n in "aba"])
check("they take turns", ["load a", "unload a", "load b", "unload b", "load a"], w.journal())
check("a model that needs the memory gets it", 200, d.chat("large").status)
check("all of it", {"base": "stopped", "a": "stopped", "b": "stopped", "large": "ready"}, states(d))
check("and gives it back", (200, "base", "text of b"), ask(d, "b"))
check("its end", 0, d.stop())

# ---- ahead of requests: into places that are free ----

w = World(f"{folder}/ahead", "abc", slots=2, node="gpus: [{memory: 300MB}]", others=other("small", "memory: 10MB"))
d = w.start()
for n in "abab":
    ask(d, n)
w.kill(d)
until("its end was seen", lambda: states(d)["base"] == "stopped")
until("engine and adapters are loaded ahead, when something else has happened", lambda: d.chat("small").status == 200
      and [states(d)[n] for n in ("base", "a", "b")] == ["ready"] * 3)
before = w.journal()
check("a third one has a request", (200, "base", "text of c"), ask(d, "c"))
check("for which one leaves", ["unload", "load c"], [line if line.startswith("load") else line.split()[0] for line in w.journal()[len(before):]])
check("its end", 0, d.stop())

# ---- ttl ----

w = World(f"{folder}/ttl", "ab", base="ttl: 1")
d = w.start()
ask(d, "a")
until("adapters and engine leave when nobody has called them", lambda: set(states(d).values()) == {"stopped"})
check("they come back", (200, "base", "text of b"), ask(d, "b"))
check("its end", 0, d.stop())

# ---- groups ----

w = World(f"{folder}/groups", "ab", others=other("rival", "memory: 10MB"), hooks="{}")
w.node += "}\ngroups: {turns: {members: [base, rival]}"
d = w.start()
check("an adapter starts its engine", (200, "base", "text of a"), ask(d, "a"))
check("functions of one engine are with each other", [(200, "base", "text of b"), (200, "base", None)], [ask(d, "b"), ask(d, "base")])
check("all are there", {"base": "ready", "a": "ready", "b": "ready", "rival": "stopped"}, states(d))
check("a member of the group ends them", 200, d.chat("rival").status)
check("all of them", {"base": "stopped", "a": "stopped", "b": "stopped", "rival": "ready"}, states(d))
check("and an adapter ends that one", (200, "base", "text of b"), ask(d, "b"))
check("which has left", "stopped", states(d)["rival"])
check("its end", 0, d.stop())

# ---- several GPUs: an adapter goes where its backbone is ----

w = World(f"{folder}/gpus", "ab", engine="--device-mb 5", node="gpus: [{memory: 300MB}, {memory: 300MB}], policies: {preloading: none}")
w.env["HOSTCUDA_DEVICES"] = "2"
d = w.start()
check("they are on one GPU", 1, len({d.chat(n).json["gpu"] for n in ("base", "a", "b")}))
gpu = w.of(d, "a")["gpu"]
check("which both are said to be on", gpu, w.of(d, "base")["gpu"])
check("it is drained", 0, d.ctl("drain", "--gpu", str(gpu)).returncode)
check("nothing is left there", {"stopped"}, set(states(d).values()))
check("the other one serves", (200, "base", "text of a"), ask(d, "a"))
check("from there", 1 - gpu, w.of(d, "a")["gpu"])
check("its end", 0, d.stop())

# ---- who pays ----

w = World(f"{folder}/bill", "ab")
w.node += f", state: {w.folder}/state.sqlite, tenants: [{{name: t, keys: [key-t]}}]"
d = w.start(key="key-t")
for model, tokens in (("a", [3, 4]), ("a", [5, 6]), ("b", [7, 8]), ("base", [1, 1])):
    d.ask("POST", "/v1/chat/completions", {"model": model, "messages": [], "tokens": tokens}, {"Authorization": "Bearer key-t"})
rows = {(r["model"], r["key"]): [r[k] for k in ("requests", "prompt_tokens", "completion_tokens", "loads")] for r in d.tell("bill", "--since", "1h")["usage"]}
check("each function is paid by who has called it, loads too", {("a", "t"): [2, 8, 10, 1], ("b", "t"): [1, 7, 8, 1], ("base", "t"): [2, 1, 1, 1]}, rows)
check("its end", 0, d.stop())

# ---- reload ----

w = World(f"{folder}/reload", "ab", slots=2)
d = w.start()
old = Held(d, "a")
until("a runs", lambda: w.of(d, "a")["running"] == 1)
w.names = list("abc")
w.write("c")
check("one is added", 0, w.rewrite(d).returncode)
check("and loaded", (200, "base", "text of c"), ask(d, "c"))
check("in the same engine", w.pid, d.chat("base").json["pid"])
w.files["a"] = f"{w.folder}/a2.json"
w.write("a", text="the new a")
check("one has another path", 0, w.rewrite(d).returncode)
new = Held(d, "a").let_go()
until("the new one waits", lambda: 'requests{model="a"} 2\n' in d.get("/metrics").body.decode())
check("the old one is in use, and stays", True, "unload a" not in w.journal())
old.let_go()
check("requests that ran end with the old one", [(200, "text of a")], text(old.wait()))
check("those that come later have the new one", [(200, "the new a")], text(new.wait()))
check("the old one was unloaded before", ["unload a", "load a"], [line for line in w.journal() if line.endswith(" a")][1:])
check("the engine is the same", w.pid, d.chat("base").json["pid"])
w.write("c", text="c, in a larger file " + "x" * 500)
check("a file of another size", 0, w.rewrite(d).returncode)
check("is loaded anew", True, ask(d, "c")[2].startswith("c, in a larger file"))
held = Held(d, "c")
until("c runs", lambda: w.of(d, "c")["running"] == 1)
w.names = ["a"]
check("two are removed", 0, w.rewrite(d).returncode)
check("requests for them are refused", 404, d.chat("b").status)
check("but for those that ran", [200], [r.status for r in held.let_go().wait()])
until("it is unloaded then", lambda: w.journal()[-1] == "unload c")
w.own = "memory: 20MB"
check("the engine has to be another one", 0, w.rewrite(d).returncode)
check("adapters go with it", (200, "base", "the new a"), ask(d, "a"))
check("to the new one", True, d.chat("base").json["pid"] != w.pid)
check("limits change while they serve", 0, (w.more.update({"a": "priority: 5, max_batch: 2"}), w.rewrite(d).returncode)[1])
check("with what is loaded", ("the new a", "load a"), (ask(d, "a")[2], w.journal()[-1]))
w.names, w.more = ["a", "rival"], {"rival": "aliases: [a]"}
w.write("rival")
refused = w.rewrite(d)
check("a name that is there twice is refused", (True, True), (refused.returncode != 0, '"a" is the ID of an adapter already' in refused.stderr))
check("nothing has changed", (200, "base", "the new a"), ask(d, "a"))
check("its end", 0, d.stop())

# ---- the next daemon ----

w = World(f"{folder}/next", "abc", slots=3, engine="--device-mb 5")
d = w.start()
for n in "abc":
    ask(d, n)
d.stop(signal.SIGKILL)
w.files["b"] = f"{w.folder}/b2.json"
w.write("b", text="the new b")
w.hooks = "{}"
d = w.start()
check("the engine is adopted", w.pid, d.chat("base").json.get("pid"))
check("with what it has", [(200, "base", "text of a"), (200, "base", "text of c")], [ask(d, "a"), ask(d, "c")])
check("an adapter of another path is loaded anew", (200, "base", "the new b"), ask(d, "b"))
check("and nothing else", ["load a", "load b", "load c", "unload b", "load b"], w.journal())
d.stop(signal.SIGKILL)
w.slots = 2  # the engine's command has changed
d = w.start()
check("an engine that does not fit is another one", (200, "base", "text of a"), ask(d, "a"))
check("its end", 0, d.stop())
finish()
