# SPDX-License-Identifier: Apache-2.0
"""Every path that engines are asked at, priorities, and failures of peers that are public: promised_ways.py FOLDER."""
import json
import sys
import threading

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
journal = f"{folder}/ways-journal"
ROOM = "medusa: {memory: 6GB, swap: off"
d = Daemon(f"{folder}/ways", f"""
startPort: {free_ports(8)}
medusa: {{gpus: [{{memory: 10GB}}]}}
models:
  a: {{cmd: "{ENGINE} --name a --journal {journal}", {ROOM}}}}}
  b: {{cmd: "{ENGINE} --name b --journal {journal}", {ROOM}}}}}
""")


def of(model):
    return next(m for m in d.tell("models")["models"] if m["model"] == model)


# What goes to engines, each with its body and what the answer says.
for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/v1/reranking", "/rerank", "/reranking", "/v1/messages",
             "/v1/messages/count_tokens", "/v1/audio/speech", "/v1/audio/voices", "/v1/images/generations", "/infill", "/completion", "/tokenize", "/detokenize",
             "/sdapi/v1/txt2img", "/sdapi/v1/img2img"):
    body = {"model": "a", "input": [path, "é\u2028"], "extra": {"n": 1.50, "of": None}}
    r = d.ask("POST", f"{path}?x=%20y", body)
    check(f"POST {path}", (200, "a", f"{path}?x=%20y", body), (r.status, r.json.get("name"), r.json.get("path"), r.json.get("asked")))
    check(f"POST {path} for nobody", 404, d.ask("POST", path, {**body, "model": "nobody"}).status)
for path in ("/v1/audio/voices", "/sdapi/v1/loras", "/props"):
    r = d.get(f"{path}?model=a")
    check(f"GET {path}", (200, f"{path}?model=a"), (r.status, r.json.get("path")))

# Ollama's scheduler stood still where requests came for a model that was just leaving (#17408): here they are for both of two models of which one fits.
wrong, done = [], []


def ask(model, count):
    for _ in range(count):
        r = d.chat(model)
        if (r.status, r.json.get("name")) != (200, model):
            wrong.append((model, r.status, r.body[:200]))
        done.append(model)


def ask_for_both():
    threads = [threading.Thread(target=ask, args=(model, 12)) for model in ("a", "b") * 3]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if d.get("/health").status != 200:
            wrong.append("health")
        threads[0].join(0.05)
    for thread in threads:
        thread.join()


rounds = 0
while rounds < 20 and not all(of(model)["loads"] > 2 for model in ("a", "b")):  # how often they take turns depends on the machine
    ask_for_both()
    rounds += 1
check("models that are asked for while they leave", ([], 72 * rounds), (wrong, len(done)))
check("both came and went", True, all(of(model)["loads"] > 2 for model in ("a", "b")))
check("nothing is left", (0, 0), (d.tell("status")["waiting"], d.tell("status")["running"]))
check("the exit code", 0, d.stop())

# Of those that wait for a GPU that computes for one model at a time, the first one has claimed the place; then the highest priority comes first, although it came last.
d = Daemon(f"{folder}/turns", f"""
startPort: {free_ports(8)}
medusa: {{gpus: [{{memory: 40GB, slots: 1}}]}}
models:
  a: {{cmd: "{ENGINE} --name a --journal {journal}", {ROOM}}}}}
  b: {{cmd: "{ENGINE} --name b --journal {journal}", {ROOM}}}}}
  low: {{cmd: "{ENGINE} --name low --journal {journal}", {ROOM}, priority: -1}}}}
  high: {{cmd: "{ENGINE} --name high --journal {journal}", {ROOM}, priority: 5}}}}
""")
for model in ("a", "b", "low", "high"):
    check(f"{model} is loaded", 0, d.ctl("load", model).returncode)
running = Held(d, "a", id="first")
until("a runs", lambda: of("a")["running"] == 1)
replies = []
for model in ("low", "b", "high"):
    threading.Thread(target=lambda model=model: replies.append(d.chat(model, id=model).json.get("name"))).start()
    until(f"{model} waits", lambda: of(model)["waiting"] == 1)  # pylint: disable=cell-var-from-loop
running.let_go()
check("what ran", [200], [r.status for r in running.wait()])
until("all are served", lambda: len(replies) == 3)
with open(journal, encoding="utf-8") as file:
    order = file.read().split()[-3:]
check("in this order: the one that has claimed the place, then by priority", ["low", "high", "b"], order)

check("the exit code", 0, d.stop())

# One that could never fit is refused at once, and evicts nobody (Ollama's #18282 evicted for it without end).
d = Daemon(f"{folder}/fits", f"""
startPort: {free_ports(4)}
medusa: {{gpus: [{{memory: 10GB}}]}}
models:
  a: {{cmd: "{ENGINE} --name a", {ROOM}}}}}
  grows: {{cmd: "{ENGINE} --name grows", {ROOM}, kv_per_request: 5GB}}}}
""")
if d.port:
    check("one that fits", 200, d.chat("a").status)
    r = d.chat("grows")
    check("one that does not", (503, "never_fits"), (r.status, r.json["error"]["code"]))
    check("the other one stays", {"a": "ready"}, d.running())
    check("the exit code", 0, d.stop())
else:
    check("it is said at the start", True, "models.grows" in d.stderr())
d = Daemon(f"{folder}/never", f"""
startPort: {free_ports(4)}
medusa: {{gpus: [{{memory: 10GB}}]}}
models: {{big: {{cmd: "{ENGINE} --name big", medusa: {{memory: 11GB}}}}}}
""")
check("memory that no GPU has", (True, True), (d.process.wait(60) != 0, "big" in d.stderr()))
finish()
