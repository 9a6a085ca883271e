# SPDX-License-Identifier: Apache-2.0
"""Answers that engines break off, and counters of requests that add up: broken_answers.py FOLDER."""
import collections
import http.client
import json
import os
import re
import signal
import socket
import sys

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
d = Daemon(f"{folder}/broken", f"""
startPort: {free_ports(5)}
healthCheckTimeout: 60
models:
  a: {{cmd: "{ENGINE} --name a", concurrencyLimit: 3}}
  b: {{cmd: "{ENGINE} --name b"}}
  dies: {{cmd: "{ENGINE} --name dies --die-at-start"}}
  front: {{cmd: "sh -c '{ENGINE} --name front; exec sleep 600'", unloadTimeout: 1}}
  late: {{cmd: "sh -c '{ENGINE} --name late; exec sleep 1'"}}
""")
LIVES, DIES = ("bad_gateway", "the message was cut off"), ("engine_failed", "its engine was killed by SIGKILL")


def count(model):
    """What /metrics says of the model's requests, which is nothing before the first one."""
    found = collections.defaultdict(int)
    for line in d.get("/metrics").body.decode().splitlines():
        name, _, rest = line.partition("{")
        if rest.startswith(f'model="{model}"}} '):
            found[name.removeprefix("medusa_worker_")] = rest.split()[1]
    names = ("total", "served_total", "failed_total", "refused_total", "limited_total", "left_waiting_total", "left_running_total")
    return {"requests": int(found["requests"]), "retries": int(found["retries_total"]), **{n.removesuffix("_total") if n != "total" else n: int(found[f"requests_{n}"]) for n in names}}


def adds_up(model):
    c = count(model)
    return c["total"] == sum(c[k] for k in ("requests", "served", "failed", "refused", "limited", "left_waiting", "left_running"))


class Cut:
    """The answer to a request that its engine breaks off. An engine that is to die does so when `least` bytes have come here."""
    number = 0

    def __init__(self, kind, dies, least=0, **more):
        Cut.number += 1
        file = f"{folder}/die{Cut.number}"
        connection = d.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "cut": kind, "dies": file if dies else "", **more}))
        if not least:
            open(file, "w", encoding="utf-8").close()
        response = connection.getresponse()
        self.status, self.whole = response.status, True
        self.body = response.read(least)
        open(file, "w", encoding="utf-8").close()
        try:
            self.body += response.read()
        except http.client.IncompleteRead as cut:
            self.body += cut.partial
            self.whole = False
        connection.close()

    def error(self, text=None):
        try:
            error = json.loads(text or self.body)["error"]
            return error["code"], error["message"]
        except (ValueError, KeyError):
            return None, self.body.decode()


check("an answer", "a", d.chat("a").json.get("name"))
for dies, (code, why) in ((False, LIVES), (True, DIES)):
    r = Cut("event", dies, 10, stream=True)
    lines = [event for event in r.body.decode().split("\n\n") if event]
    check("what came whole, and then one event that says why", (200, True, 2, True), (r.status, r.whole, len(lines), '"whole"' in lines[0]))
    check("why", (code, True), (lambda c, m: (c, why in m))(*r.error(lines[1].removeprefix("data: "))))
    for kind in ("length", "chunk"):
        r = Cut(kind, dies)
        check(f"JSON cut within its {kind}", (502, True, code, True), (r.status, r.whole, *(lambda c, m: (c, why in m))(*r.error())))
        r = Cut(kind, dies, 5, stream=True)
        check(f"JSON in the place of a stream, cut within its {kind}", (200, False), (r.status, r.whole))
        r = Cut(kind, dies, 70000, size=200000)
        check("a large answer that is cut", (200, False, True), (r.status, r.whole, len(r.body) >= 70000))
c = count("a")
check("failed requests are counted", (15, 1, 14), (c["total"], c["served"], c["failed"]))

# Answers of which nothing but the end of the connection says where they end: they are whole if the engine lives on.
JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"


def ends(model):
    """How often the model's engine has ended."""
    return next(m["failures"] for m in d.get("/api/status").json["models"] if m["model"] == model)


class Ended:
    """The answer to such a request, to a client of HTTP/1.1 or HTTP/1.0, whose engine ends in this way, or lives on."""
    number = 0

    def __init__(self, kind, size, minor, end, whole=False):
        Ended.number += 1
        file, ended = f"{folder}/end{Ended.number}", ends("a")
        text = {JSON: '{"a": "' + "x" * size + ('"}' if whole or not end else ""), TEXT: "x" * size,
                EVENTS: "data: " + "x" * size + "\n\n" + ("data: [DONE]\n\n" if whole else "")}[kind]
        body = json.dumps({"model": "a", "stream": kind == EVENTS, "raw": {"status": 200, "headers": {"Content-Type": kind}, "pieces": [text], "chunks": False,
                                                                             "dies": file if end else None, "end": end or ""}})
        # what is held back until it is whole does not come before the end
        least = 0 if kind == JSON and size < 65536 else size
        self.sent, self.reset, answer = text.encode(), False, b""
        with socket.create_connection(("127.0.0.1", d.port), PATIENCE) as wire:
            wire.sendall(f"POST /v1/chat/completions HTTP/1.{minor}\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
            try:
                while True:
                    if len(answer) >= least and not os.path.exists(file):
                        open(file, "w", encoding="utf-8").close()
                    piece = wire.recv(65536)
                    if not piece:
                        break
                    answer += piece
            except ConnectionResetError:
                self.reset = True
        head, _, self.body = answer.partition(b"\r\n\r\n")
        self.status, self.whole = int(head.split()[1]) if head else None, not self.reset
        if b"chunked" in head:
            self.whole = self.body.endswith(b"\r\n0\r\n\r\n")
            rest, self.body = self.body, b""
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                self.body, rest = self.body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
        if end:
            until("the engine's end is seen", lambda: ends("a") > ended)


before, made = count("a"), {"whole": 0, "broken": 0}
for minor in (1, 0):
    for kind, size in ((JSON, 50), (JSON, 200000), (TEXT, 50), (TEXT, 200000), (EVENTS, 50)):
        what = f"{kind} of {size} bytes in HTTP/1.{minor}"
        r = Ended(kind, size, minor, None)
        made["whole"] += 1
        check(f"{what}, and the engine lives", (200, True, False, r.sent), (r.status, r.whole, r.reset, r.body))
        for end in ("SIGKILL", "exit", "late"):
            r = Ended(kind, size, minor, end)
            made["broken"] += 1
            name = f"{what}, and the engine ends ({end})"
            if kind == EVENTS:
                check(name, (200, True, True), (r.status, r.whole, r.body.startswith(r.sent + b'\n\ndata: {"error":')))
            elif kind == JSON and size < 65536:
                check(name, (502, True, "engine_failed"), (r.status, r.whole, json.loads(r.body).get("error", {}).get("code")))
            else:
                check(name, (200, False, not minor), (r.status, r.whole, r.reset))
# What says itself that it is whole needs no engine that lives on.
for minor in (1, 0):
    for kind, size in ((JSON, 50), (JSON, 200000), (EVENTS, 50), (EVENTS, 50000)):
        for end in (None, "SIGKILL", "exit", "late"):
            r = Ended(kind, size, minor, end, whole=True)
            made["whole"] += 1
            check(f"{kind} of {size} bytes in HTTP/1.{minor} that says that it is whole ({end})", (200, True, False, r.sent), (r.status, r.whole, r.reset, r.body))
after = count("a")
check("whole ones are served, others have failed", (made["whole"], made["broken"], 0), tuple(after[k] - before[k] for k in ("served", "failed", "retries")))

# JSON that is not whole is none, although its engine lives; so is an answer whose server has ended, although the first process of the engine, in
# front of it, has not.
def raw(model, kind, text, dies=False):
    file = f"{folder}/raw{model}"
    open(file, "w", encoding="utf-8").close()
    r = d.chat(model, raw={"status": 200, "headers": {"Content-Type": kind}, "pieces": [text], "chunks": False, "dies": file if dies else None})
    return r.status, r.json["error"]["code"] if r.status != 200 else None, r.body.decode()


for text in ('{"a": "x', '{"a": {"b": [1', "{", '{"a": 1'):
    check(f"{text}, and the engine lives", (502, "bad_gateway", True), (lambda s, c, b: (s, c, "ended within the JSON of its answer" in b))(*raw("a", JSON, text)))
for kind, text in ((JSON, '{"a" x'), (JSON, '{"a": 1} x'), (JSON, "[]"), (JSON, ""), (TEXT, '{"a": "x'), ("application/x-ndjson", '{"a": 1}\n{')):
    check(f"{kind}: {text}, which may be all", (200, None, text), raw("a", kind, text))
for text in ('{"a": "x', "[]"):
    status, code, text = raw("front", JSON, text, dies=True)
    check(f"an answer of a server that was killed behind a process that lives", (502, "engine_failed", True), (status, code, "its engine is ending" in text))
    check("unload", 0, d.ctl("unload", "front").returncode)

# An engine whose first process does not know yet that the one that serves has been killed ends all the same, and what it had is tried again.
held = Held(d, "late")
until("it runs", lambda: count("late")["requests"] == 1)
pid = int(re.findall(r"late listens on \d+, pid (\d+)", until("the engine says who it is", lambda: d.engine_log("late")))[-1])
until("the engine has the request", lambda: d.get("/upstream/late/counts").json.get("running") == 1)
os.kill(pid, signal.SIGKILL)
check("served by another process", [(200, True)], [(r.status, r.json.get("pid") not in (None, pid)) for r in held.let_go().wait()])
check("tried again once", 1, count("late")["retries"])
r = d.chat("late", die=True)
check("one that kills them all", (502, "engine_failed", 2), (r.status, r.json["error"]["code"], count("late")["retries"]))

# What was answered before on the same connection stays, and the connection goes on.
body = [json.dumps({"model": "a", **more}) for more in ({"cut": "chunk"}, {})]
with socket.create_connection(("127.0.0.1", d.port), PATIENCE) as wire:
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    wire.sendall(f"GET /health HTTP/1.1\r\nHost: x\r\n\r\n{head}Content-Length: {len(body[0])}\r\n\r\n{body[0]}{head}Connection: close\r\nContent-Length: {len(body[1])}\r\n\r\n{body[1]}".encode())
    text = b""
    while piece := wire.recv(65536):
        text += piece
check("three answers", [b"200", b"502", b"200"], [part[:3] for part in text.split(b"HTTP/1.1 ")[1:]])

# Clients that leave, and those that are refused.
before = count("a")
held = Held(d, "a", 3)
until("three run", lambda: count("a")["requests"] == 3)
check("one more", 429, d.chat("a").status)
held.let_go().wait()
for stream in (False, True):
    connection = d.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "wait": 0.2, "stream": stream, "max_tokens": 100000, "token": 0.01}))
    until("it runs", lambda: count("a")["requests"] == 1)
    if stream:
        connection.getresponse().read(10)
    connection.close()
    until("it has left", lambda: count("a")["requests"] == 0)
held = Held(d, "a")
until("it runs", lambda: count("a")["requests"] == 1)
connection = d.connect()
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "b"}))
until("it waits", lambda: count("b")["requests"] == 1)
connection.close()
until("it has left", lambda: count("b")["left_waiting"] == 1)
held.let_go().wait()
after = count("a")
check("those who left while it ran", 2, after["left_running"] - before["left_running"])
check("429", 1, after["limited"] - before["limited"])
check("an engine that kills itself", 502, d.chat("a", die=True).status)
check("is tried again once", 1, count("a")["retries"])
check("an engine that does not start", (502, 1), (d.chat("dies").status, count("dies")["failed"]))
check("a load is no request", (502, 1), (d.ask("POST", "/api/models/load/dies").status, count("dies")["total"]))
# An engine that ends when it has sent its whole answer has served it, whatever of that is seen first.
before = count("b")
for size in (0, 100000, 2000000):
    for i in range(8):
        ended = ends("b")
        r = d.chat("b", die_after=True, pad=size)
        until("its end is seen", lambda: ends("b") > ended)
        check(f"an answer of {size} bytes, and then the engine's end", (200, "b", size), (r.status, r.json.get("name"), len(r.json.get("pad", ""))))
        ended = ends("b")
        r = d.chat("b", die_after=True, pad=size // 10, stream=True, max_tokens=10, token=0)
        until("its end is seen", lambda: ends("b") > ended)
        check(f"a stream of {size} bytes, and then the engine's end", (200, 10, True), (r.status, len(r.events), r.body.endswith(b"data: [DONE]\n\n")))
after = count("b")
check("all are served, none is tried again", (48, 0, 0), tuple(after[k] - before[k] for k in ("served", "failed", "retries")))
check("a drain", 0, d.ctl("drain").returncode)
check("refuses", (503, 1), (d.chat("b").status, count("b")["refused"]))
for model in ("a", "b", "dies"):
    check(f"requests of {model} add up: {count(model)}", True, adds_up(model))
check("the exit code", 0, d.stop())

# A daemon that is killed within an answer: who speaks HTTP/1.0 sees that, too.
d = Daemon(f"{folder}/killed", f"startPort: {free_ports(4)}\nmodels:\n  a: {{cmd: \"{ENGINE} --name a\"}}\n")
body = json.dumps({"model": "a", "stream": True, "max_tokens": 100000, "token": 0.01})
with socket.create_connection(("127.0.0.1", d.port), PATIENCE) as wire:
    wire.sendall(f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    text = b""
    while b"a0 " not in text:
        text += wire.recv(65536)
    d.process.kill()
    try:
        while wire.recv(65536):
            pass
        check("a daemon that is killed within an answer", "a reset", "the end of the connection")
    except ConnectionResetError:
        check("a daemon that is killed within an answer", True, True)
finish()
