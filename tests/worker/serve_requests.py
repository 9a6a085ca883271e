# SPDX-License-Identifier: Apache-2.0
"""Requests through medusa-worker: serve_requests.py FOLDER. They start engines, are passed on, wait, and are refused."""
import json
import os
import re
import sys
import threading

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
config = f"""
startPort: {free_ports(10)}
healthCheckTimeout: 60
models:
  a:
    cmd: {ENGINE} --name a
    aliases: [first]
    capabilities: {{in: [text, image], out: [text], tools: true, context: 4096}}
    concurrencyLimit: 4
  b:
    cmd: {ENGINE} --name b
    useModelName: real-b
    filters:
      stripParams: "temperature, extra.gone"
      setParams: {{top_p: 0.5, extra.kept: [1]}}
  slow:
    cmd: {ENGINE} --name slow --start 0.5
    unlisted: true
    sendLoadingState: true
  never:
    cmd: {ENGINE} --name never --never-healthy
  endless:
    cmd: {ENGINE} --name endless --endless-health
  dies:
    cmd: {ENGINE} --name dies --die-at-start
    sendLoadingState: true
  missing:
    cmd: /nonexistent/engine --port ${{PORT}}
  none: {{proxy: "http://127.0.0.1:9"}}
  none-to-swap: {{proxy: "http://127.0.0.1:9", medusa: {{memory: 1GB}}}}
  org/model:7b: {{cmd: "{ENGINE} --name org"}}
"""
d = Daemon(f"{folder}/requests", config)
check("the daemon listens", lambda port: port > 0, d.port)

# A request starts its engine, and comes back as the engine gave it.
r = d.chat("a", temperature=1)
check("status", 200, r.status)
check("who answered", "a", r.json.get("name"))
check("the body as it was sent", {"model": "a", "messages": [], "temperature": 1}, r.json.get("asked"))
check("where the client is", "127.0.0.1", r.json["headers"].get("X-Forwarded-For"))
pid = r.json["pid"]
check("running", {"a": "ready"}, d.running())
check("an alias", pid, d.chat("first").json.get("pid"))

# Another model takes its place, and parameters are changed on the way.
r = d.chat("b", temperature=1, extra={"gone": 1, "other": 2})
check("who answered", "b", r.json.get("name"))
check("what it was asked", {"model": "real-b", "messages": [], "top_p": 0.5, "extra": {"other": 2, "kept": [1]}}, r.json.get("asked"))
check("running", {"b": "ready"}, d.running())

# Streams.
r = d.chat("b", stream=True, max_tokens=20)
check("a stream", "".join(f"b{i} " for i in range(20)), r.text)
check("its type", "text/event-stream", r.headers.get("content-type"))
check("proxies are told", "no", r.headers.get("x-accel-buffering"))
large = d.chat("b", stream=True, max_tokens=50, pad=100000)
check("a large stream", 50 * 100000, large.text.count("x"))

# The engine's errors are the client's.
check("an error of the engine", 418, d.chat("b", status=418).status)

# Names that nobody has, bodies that are none.
check("an unknown model", (404, "model_not_found"), (lambda r: (r.status, r.json["error"]["code"]))(d.chat("nobody")))
check("no model", 404, d.ask("POST", "/v1/chat/completions", {"messages": []}).status)
check("no JSON", (400, "invalid_json"), (lambda r: (r.status, r.json["error"]["code"]))(d.ask("POST", "/v1/chat/completions", "{")))
for body, why in (('{"model": "a"} {}', "byte 15: something follows the object"), ('{"model": "a", "model": "b"}', "twice: at byte 1 and at byte 15"),
                  ('{"model": "a", "x": "\udcff"}', "byte 21: this is no UTF-8"), ('{"model": 5}', "byte 10 is no text"), ("[]", "byte 0: an object is wanted"),
                  ('{"model": "a", "x": ' + "[" * 20000, "more than 10,000 levels"), ('{"model": "a", "x": [' + "0," * 10000000, "more than 10,000,000 values"), ("", "too early")):
    r = d.ask("POST", "/v1/chat/completions", body.encode("utf-8", "surrogateescape"))
    check(f"why {body[:40]} is no JSON", (400, "invalid_json", True), (r.status, r.json["error"]["code"], why in r.json["error"]["message"]))
odd = '{"a": 0.1000000000000000055, "b": 1E2, "c": 123456789012345678901234567890, "d": 1e400,\n"e": "\\u0000\\ud800", "mod\\u0065l" : "a"}'
check("what is odd and yet JSON", 200, d.ask("POST", "/v1/completions", odd).status)
check("an unknown path", 404, d.get("/v2/models").status)
check("a wrong method", 405, d.get("/v1/chat/completions").status)
check("health", (200, b"OK"), (lambda r: (r.status, r.body))(d.get("/health")))
shown = d.get("/v1/models/a").json
check("what it can do", ({"input_modalities": ["text", "image"], "output_modalities": ["text"]}, ["tools", "tool_choice"], 4096, 4096),
      (shown.get("architecture"), shown.get("supported_parameters"), shown.get("context_length"), shown["meta"].get("n_ctx")))
check("nothing is said of one that states nothing", set(), {"architecture", "supported_parameters", "context_length"} & d.get("/v1/models/b").json.keys())
check("models", ["a", "b", "dies", "endless", "missing", "never", "none", "none-to-swap", "org/model:7b"], [m["id"] for m in d.get("/v1/models").json["data"]])

# Forms with files: passed on byte by byte, but for the model's name.
def form(model, boundary="b0undary"):
    sound = "".join(map(chr, range(256))) + 'name="model"\r\n\r\nnobody\r\n'
    file = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="model"\r\nContent-Type: audio/wav\r\n\r\n{sound}\r\n'
    return file + f'--{boundary}\r\ncontent-disposition: form-data; name="model"\r\n\r\n{model}\r\n--{boundary}--\r\n'


for model, sent in (("a", "a"), ("b", "real-b")):
    for quote in ("", '"'):
        kind = f"multipart/form-data; boundary={quote}b0undary{quote}"
        r = d.ask("POST", "/v1/audio/transcriptions", form(model).encode("latin-1"), {"Content-Type": kind})
        check(f"a form for {model}", (200, model, kind, form(sent)), (r.status, r.json.get("name"), r.json.get("type"), r.json.get("form")))
none = form("a").replace('name="model"\r\n\r\na', 'name="other"\r\n\r\na')
for broken, code in ((form("nobody"), (404, "model_not_found")), (none, (404, "not_found")), (form("a")[:-30], (400, "invalid_form")),
                     ("", (400, "invalid_form")), (form("a", "other"), (400, "invalid_form")), (form("a")[:-14] + form("b"), (400, "invalid_form"))):
    r = d.ask("POST", "/v1/audio/transcriptions", broken.encode("latin-1"), {"Content-Type": "multipart/form-data; boundary=b0undary"})
    check("a form that is none, or names no model", code, (r.status, r.json["error"]["code"]))
r = d.ask("POST", "/v1/images/edits?model=a", none.encode("latin-1"), {"Content-Type": "multipart/form-data; boundary=b0undary"})
check("the model in the query", 200, r.status)

# Any path of an engine.
r = d.get("/upstream/b/some%20where/x?y=1")
check("a path of the engine", ("/some%20where/x?y=1", "b"), (r.json.get("path"), r.json.get("name")))
for path, wanted in (("org/model:7b/x/y", "/x/y"), ("org%2Fmodel:7b/x/y", "/x/y"), ("org%2fmodel%3A7b/x%2Fy?z=%2F", "/x%2Fy?z=%2F"), ("org%2Fmodel:7b%2Fx/y", "/x/y"), ("org%2Fmodel:7b/", "/")):
    r = d.get(f"/upstream/{path}")
    check(f"a name with a slash: {path}", (wanted, "org"), (r.json.get("path"), r.json.get("name")))
check("also where the beginning is encoded", "/x", d.get("/%75pstream/org%2Fmodel%3A7b/x").json.get("path"))
r = d.get("/upstream/org%2Fmodel:7b?q")
check("a redirection of one with a slash", (301, "/upstream/org%2Fmodel:7b/?q"), (r.status, r.headers.get("location")))
r = d.get("/upstream/b")
check("a redirection", (301, "/upstream/b/"), (r.status, r.headers.get("location")))

# Engines that don't start: the client learns why, and others are not held up.
for name in ("none", "none-to-swap"):
    r = d.chat(name)
    check(f"a model without cmd: {name}", (502, "engine_failed", f"model {name}: its engine was not started, because the model has no cmd"), (r.status, r.json["error"]["code"], r.json["error"]["message"]))
    check("loaded by a user", True, "has no cmd" in d.ctl("load", name).stderr)
check("a check of health whose answer has no end is asked again", "endless", d.chat("endless").json.get("name"))
r = d.chat("dies")
check("an engine that ends at once", (502, "engine_failed"), (r.status, r.json["error"]["code"]))
check("why", lambda text: "ended with exit code 3 before it was ready" in text, r.json["error"]["message"])
r = d.chat("missing")
check("a command that is not there", lambda text: "No such file" in text, r.json["error"]["message"])
check("the next one", "a", d.chat("a").json.get("name"))

# An engine that dies with a request in its hands: one that has sent nothing is tried again, once.
r = d.chat("a", die=True)
check("a request that kills its engine", 502, r.status)
check("the engine is there again", "a", d.chat("a").json.get("name"))
r = d.chat("a", stream=True, die_at=3)
check("what was sent before", "a0 a1 a2 ", r.text)
check("and then the error", True, any("error" in e for e in r.events))
check("the engine is there again", "a", d.chat("a").json.get("name"))

# Clients that go.
connection = d.connect()
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "stream": True, "max_tokens": 100000, "token": 0.01}),
                   {"Content-Type": "application/json"})
connection.getresponse().read(10)
connection.close()
until("the engine learns that the client is gone", lambda: d.get("/upstream/a/counts").json.get("cancelled") == 1)

# More requests than the model takes.
held = Held(d, "a", 12)
until("eight are refused", lambda: len(held.replies) >= 8)
replies = held.let_go().wait()
served = [r for r in replies if r.status == 200]
refused = [r for r in replies if r.status == 429]
check("served and refused", (4, 8), (len(served), len(refused)))
check("when to come again", "1", refused[0].headers.get("retry-after") if refused else None)

# A client that wants to know why it waits.
r = d.chat("slow", stream=True, max_tokens=3)
deltas = [e["choices"][0]["delta"] for e in r.events if "choices" in e]
check("what happens meanwhile", True, deltas[0].get("reasoning_content", "").startswith("slow: "))
check("and then the answer", "slow0 slow1 slow2 ", r.text)
r = d.chat("dies", stream=True)
check("a failure in the stream", (200, True), (r.status, any("exit code 3" in e.get("error", {}).get("message", "") for e in r.events)))
check("no reasoning without a stream of a chat", None, d.chat("slow").json.get("choices"))

# A request that waits for an engine to start, whose client goes.
connection = d.connect()
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "slow"}), {"Content-Type": "application/json"})
until("it starts", lambda: "slow" in d.running())
connection.close()
check("others go on", "a", d.chat("a").json.get("name"))

# Unloading waits for requests that run, and the next request starts the engine again.
replies = []
thread = threading.Thread(target=lambda: replies.append(d.chat("a", wait=5)))
thread.start()
until("it runs", lambda: d.get("/upstream/a/counts").json.get("running"))
pid = d.chat("a").json["pid"]
check("unloading a model", (200, b"OK"), (lambda r: (r.status, r.body))(d.ask("POST", "/api/models/unload/a")))
thread.join()
check("the request that ran", [200], [r.status for r in replies])
check("it is gone", False, "a" in d.running())
check("unloading nobody", 404, d.ask("POST", "/api/models/unload/nobody").status)
check("another process", True, d.chat("a").json.get("pid") not in (None, pid))
check("unloading all", (200, {"msg": "ok"}), (lambda r: (r.status, r.json))(d.ask("POST", "/api/models/unload")))
check("all are gone", {}, d.running())
check("unloading what is gone", (200, b"OK"), (lambda r: (r.status, r.body))(d.get("/unload")))
check("and again", 200, d.chat("a").status)

metrics = dict(line.rsplit(" ", 1) for line in d.get("/metrics").body.decode().splitlines() if not line.startswith("#"))
check("requests in the metrics", True, int(metrics['medusa_worker_requests_served_total{model="a"}']) >= 10)
check("the state", "1", metrics['medusa_worker_state{model="a",state="ready"}'])
check("a histogram", metrics['medusa_worker_load_seconds_count{model="a"}'], metrics['medusa_worker_load_seconds_bucket{model="a",le="+Inf"}'])

# The dashboard asks for nothing that is not there.
with open(f"{os.path.dirname(os.path.abspath(__file__))}/../../packaging/medusa-worker-grafana.json", encoding="utf-8") as file:
    asked = {name for panel in json.load(file)["panels"] for target in panel["targets"] for name in re.findall(r"medusa_worker_[a-z_]+", target["expr"])}
check("metrics of the dashboard", [], [name for name in sorted(asked) if not any(m.startswith((name + "{", name + " ")) or m == name for m in metrics)])

log = d.engine_log("a")
check("what the engine printed", True, "a listens on" in log)
check("the exit code", 0, d.stop())
finish()
