# SPDX-License-Identifier: Apache-2.0
"""Clients that mean harm, or are broken, and a medusa-worker that serves others meanwhile: hostile_clients.py FOLDER."""
import json
import os
import random
import resource
import select
import socket
import struct
import sys
import threading
import time

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
KEY = {"X-Api-Key": "k"}
config = f"""
startPort: {free_ports(4)}
healthCheckTimeout: 60
apiKeys: [k]
models:
  a: {{cmd: "{ENGINE} --name a"}}
  b: {{cmd: "{ENGINE} --name b"}}
peers:
  by_address: {{proxy: "http://127.0.0.1:9", models: [far]}}
  by_name: {{proxy: "http://localhost:9", models: [further]}}
medusa: {{body_limit: 1MB, bodies_limit: 2MB, connection_limit: 60, write_timeout: 600s, write_timeout_waiting: 2s}}
"""
d = Daemon(f"{folder}/hostile", config)


class Raw:
    """A connection on which a test says what it likes."""

    def __init__(self, daemon=d):
        self.wire = socket.create_connection(("127.0.0.1", daemon.port), PATIENCE)
        self.wire.settimeout(PATIENCE)

    def say(self, data):
        self.wire.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        return self

    def hear(self):
        """All that comes until the other side ends."""
        data = b""
        try:
            while piece := self.wire.recv(65536):
                data += piece
        except ConnectionError:
            pass
        self.wire.close()
        return data.decode("latin-1")

    def hear_until(self, end):
        data = b""
        while end not in data and (piece := self.wire.recv(65536)):
            data += piece
        return data.decode("latin-1")

    def vanish(self):
        """As a machine that is switched off and asked later: the system answers with a reset."""
        self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.wire.close()


def request(path, body="", *headers, method="POST", key="k", version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: x", *headers]
    lines += [f"X-Api-Key: {key}"] if key else []
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join(lines) + "\r\n\r\n" + body


def chat(model="a", **more):
    return request("/v1/chat/completions", json.dumps({"model": model, **more}))


def status_of(text):
    return int(text.split(" ")[1]) if text.startswith("HTTP/1.1 ") else text


def code_of(text):
    try:
        return json.loads(text.split("\r\n\r\n", 1)[1])["error"]["code"]
    except (ValueError, KeyError, IndexError):
        return text


def descriptors():
    return len(os.listdir(f"/proc/{d.process.pid}/fd"))


def cpu_seconds():
    with open(f"/proc/{d.process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def others_are_served(when):
    check(f"others are served: {when}", (200, "a"), (lambda r: (r.status, r.json.get("name")))(d.ask("POST", "/v1/chat/completions", {"model": "a"}, KEY)))


others_are_served("before")
at_rest = until("a daemon at rest", descriptors)

# Who has no key is told so before anything of a body is read, and cannot make the daemon keep one.
for path in ("/v1/chat/completions", "/upstream/a/x", "/running", "/nothing"):
    text = Raw().say(request(path, "", "Expect: 100-continue", "Content-Length: 900000", key=None)).hear()
    check(f"no key for {path}", (401, "unauthorized"), (status_of(text), code_of(text)))
check("a wrong key", 401, status_of(Raw().say(request("/running", "", "Content-Length: 900000", key="z")).hear()))
for path in ("/health", "/", "/favicon.ico"):
    check(f"a body for {path}", 413, status_of(Raw().say(request(path, "", "Content-Length: 900000", key=None)).hear()))
check("a body of OPTIONS", 413, status_of(Raw().say(request("/v1/models", "", "Transfer-Encoding: chunked", method="OPTIONS", key=None)).hear()))

# What is no HTTP, or hides a second request, is refused as JSON, and the connection ends.
chunked = request("/v1/chat/completions", "", "Transfer-Encoding: chunked")
for what, text, expected in (
        ("a body that is too large", request("/v1/chat/completions", "", "Content-Length: 1000001"), (413, "request_too_large")),
        ("a chunk that is too large", chunked + "fffffffffffffff\r\n", (413, "request_too_large")),
        ("chunks that are too large together", chunked + "7a120\r\n" + "a" * 500000 + "\r\n7a121\r\n", (413, "request_too_large")),
        ("a long target", request("/" + "a" * 20000), (414, "target_too_long")),
        ("a long header", request("/running", "", "X: " + "a" * 70000), (431, "head_too_large")),
        ("many headers", request("/running", "", *[f"X{i}: 1" for i in range(200)]), (431, "head_too_large")),
        ("two lengths", request("/running", "", "Content-Length: 1", "Content-Length: 2"), (400, "bad_request")),
        ("a length and chunks", request("/running", "abc", "Transfer-Encoding: chunked"), (400, "bad_request")),
        ("no path", request("*", method="GET"), (400, "bad_request")),
        ("a bad percent", request("/%zz", method="GET"), (400, "bad_request")),
        ("no Host", "GET /health HTTP/1.1\r\n\r\n", (400, "bad_request")),
        ("another transfer encoding", request("/running", "", "Transfer-Encoding: gzip"), (501, "not_implemented")),
        ("another version", request("/running", version="3.0"), (505, "http_version")),
        ("another expectation", request("/running", "", "Expect: more"), (417, "expectation_failed")),
        ("a line without CR", "GET /health HTTP/1.1\nHost: x\n\n", (400, "bad_request")),
        ("a header that goes on", "GET /health HTTP/1.1\r\nHost: x\r\n y\r\n\r\n", (400, "bad_request")),
        ("a chunk without its end", chunked + "3\r\n{} \n0\r\n\r\n", (400, "bad_request")),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400, "bad_request"))):
    answer = Raw().say(text).hear()
    check(what, (expected, True), ((status_of(answer), code_of(answer)), "Content-Type: application/json" in answer))
smuggled = Raw().say(chunked + '3\r\nabc\rX0\r\n\r\n' + request("/unload", method="GET")).hear()
check("nothing behind a bad request is read", 1, smuggled.count("HTTP/1.1 "))
check("the engine was not unloaded", {"a": "ready"}, {r["model"]: r["state"] for r in d.get("/running", **KEY).json["running"]})

# Byte by byte, and many at once.
slow = Raw()
for byte in chat().replace("Host: x", "Host: x\r\nConnection: close"):
    slow.say(byte)
answer = slow.hear()
check("byte by byte", (200, True), (status_of(answer), '"name": "a"' in answer))
many = Raw().say((request("/health", method="GET", key=None) * 200)[:-4] + "\r\nConnection: close\r\n\r\n").hear()
check("two hundred requests at once", 200, many.count("HTTP/1.1 200 OK"))
mixed = Raw().say(chat() + chunked + '1\r\n{\r\n1a;x="y"\r\n' + '"model": "a", "messages":[]' [:26] + '\r\n1\r\n]\r\n1\r\n}\r\n0\r\nTrailer: 1\r\n\r\n' + request("/health", "", "Connection: close", method="GET")).hear()
check("a body in chunks between others", [200, 200, 200], [status_of("HTTP/1.1 " + part) for part in mixed.split("HTTP/1.1 ")[1:]])

# Clients that end their direction, and wait.
half = Raw().say(chat(wait=0.5))
half.wire.shutdown(socket.SHUT_WR)
answer = half.hear()
check("a client that sends no more gets its answer", (True, True), ("HTTP/1.1 200 OK" in answer, '"name": "a"' in answer))
half = Raw().say("GET /health HTTP/1.0\r\n\r\n")
half.wire.shutdown(socket.SHUT_WR)
check("also of HTTP/1.0, if it comes at once", 200, status_of(half.hear()))

# Slowloris: heads that never end. Others are served, and the daemon does not turn round and round.
heads = [Raw().say(f"GET /health HTTP/1.1\r\nX: {i}") for i in range(50)]
others_are_served("fifty heads that don't end")
before = cpu_seconds()
time.sleep(1)
check("no work is done for them", lambda used: used < 0.5, cpu_seconds() - before)
more = [Raw().say("GET /health HTTP/1.1\r\n") for _ in range(30)]
turned_away = [connection.hear() for connection in more[-10:]]
check("one too many", [(503, "too_many_connections")] * 10, [(status_of(t), code_of(t)) for t in turned_away])
for connection in heads + more[:-10]:
    connection.vanish()
until("their connections are gone", lambda: descriptors() <= at_rest + 2)
others_are_served("after them")

# Bodies that never end: all of them together are bounded.
bodies = [Raw().say(request("/v1/chat/completions", "", "Content-Length: 900000") + "{" * 899000) for _ in range(8)]
until("some are refused", lambda: d.get("/health").status == 200)
wires, answers = [connection.wire for connection in bodies], []
until("six have an answer", lambda: len(select.select(wires, [], [], 0)[0]) >= 6)
for wire in select.select(wires, [], [], 0.2)[0]:
    try:
        answers.append(status_of(wire.recv(4096).decode("latin-1")))
    except ConnectionError as error:
        answers.append(error)
check("two are read on, the others refused", [503] * 6, answers)
for connection in bodies:
    connection.vanish()
until("their memory is free again", lambda: d.ask("POST", "/v1/chat/completions", {"model": "a", "x": "y" * 900000}, KEY).status == 200)

# Clients that vanish: in heads, in bodies, while they wait, in answers.
kinds = ("GET /hea", request("/v1/chat/completions", "", "Content-Length: 1000") + "{", chat(wait=1), chat("b", wait=1), chat(stream=True, max_tokens=1000, pad=1000))
for text in kinds * 5:
    connection = Raw().say(text)
    if "stream" in text:
        connection.hear_until(b"a0")
    connection.vanish()
until("all is as before", lambda: descriptors() <= at_rest + 4)
others_are_served("after those that vanished")
check("no request is left", 0, until("requests end", lambda: [1 for line in d.get("/metrics", **KEY).body.decode().splitlines() if line == 'medusa_worker_requests{model="a"} 0']) and 0)

# A client that takes nothing of its answer holds the engine only until somebody else waits.
greedy = Raw()
greedy.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
greedy.say(chat(stream=True, max_tokens=400, pad=200000, token=0))
greedy.hear_until(b"a0")
check("another model has its turn", "b", d.ask("POST", "/v1/chat/completions", {"model": "b"}, KEY).json.get("name"))
greedy.vanish()

# A page of another site has its reader's browser send orders; those of no page, of the worker's own and of neighbours are taken.
loaded = {r["model"] for r in d.get("/running", **KEY).json["running"]}
for method, path in (("GET", "/unload"), ("POST", "/api/models/unload"), ("POST", "/api/models/unload/a"), ("POST", "/api/models/load/b")):
    r = d.ask(method, path, headers={**KEY, "Sec-Fetch-Site": "cross-site"})
    check(f"{method} {path} for a page of another site", (403, "other_site"), (r.status, r.json["error"]["code"]))
check("HEAD /unload is no order", 404, d.ask("HEAD", "/unload", headers=KEY).status)
check("nothing was loaded or unloaded", loaded, {r["model"] for r in d.get("/running", **KEY).json["running"]})
for site in ("same-origin", "same-site", "none"):
    check(f"an order with Sec-Fetch-Site: {site}", 200, d.ask("POST", "/api/models/load/a", headers={**KEY, "Sec-Fetch-Site": site}).status)

# Pages of other origins may read answers of models, and no others.
origin = {**KEY, "Origin": "https://example.org"}
for path, wanted in (("/v1/models", "*"), ("/upstream/b/x", "*"), ("/running", None), ("/metrics", None), ("/logs/a", None), ("/v1/nothing", "*")):
    check(f"{path} for another origin", wanted, d.get(path, **origin).headers.get("access-control-allow-origin"))
check("an answer of an engine", "*", d.ask("POST", "/v1/chat/completions", {"model": "b"}, origin).headers.get("access-control-allow-origin"))
check("nobody's origin", None, d.ask("POST", "/v1/chat/completions", {"model": "b"}, KEY).headers.get("access-control-allow-origin"))
check("a refusal", ("*", 401), (lambda r: (r.headers.get("access-control-allow-origin"), r.status))(d.get("/v1/models", Origin="https://example.org")))

# Requests of all kinds, with bytes changed at random: each connection ends with answers, and the daemon lives.
dice = random.Random(1)
seeds = [chat(), chunked + '2\r\n{}\r\n0\r\n\r\n', request("/health", method="GET"), request("/upstream/a/x", "abc"), request("/v1/models", "", "Expect: 100-continue", method="GET")]
for i in range(300):
    text = bytearray(dice.choice(seeds).encode() * dice.choice((1, 1, 2)))
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(text))
        if dice.random() < 0.3:
            del text[at:at + dice.randrange(1, 9)]
        elif dice.random() < 0.5:
            text[at] = dice.choice(b"\r\n\0 :;,\xff0aG")
        else:
            text[at:at] = dice.choice((b"\r\n", b"\r", b"\n", b"Content-Length: 1\r\n", b"\r\n\r\n", b"0", b";"))
    connection = Raw()
    try:
        connection.say(bytes(text))
        connection.wire.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    answer = connection.hear()
    check(f"request {i}: {bytes(text)}", True, answer == "" or answer.startswith("HTTP/1.1 "))
others_are_served("after the changed requests")

# No descriptors are left: connections wait, nothing is said again and again, and all goes on when there are some.
said = len(d.stderr())
soft, hard = resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)
balancer = Raw().say(request("/health", method="GET", key=None))
check("health", 200, status_of(balancer.hear_until(b"OK")))
resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (descriptors() + 3, hard))
waiting = [Raw().say(request("/api/version", method="GET")) for _ in range(20)]
until("it is said", lambda: "Too many open files" in d.stderr()[said:])
control = socket.socket(socket.AF_UNIX)
control.connect(d.control)
before = cpu_seconds()
time.sleep(2)
check("the loop rests", lambda used: used < 1, cpu_seconds() - before)
check("it is said once", lambda lines: lines < 10, d.stderr()[said:].count("\n"))
check("who balances is told", 503, status_of(balancer.say(request("/health", method="GET", key=None)).hear_until(b"no file can be opened, so no engine can be reached")))
resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (3, hard))  # a descriptor that becomes free meanwhile is of no use
for model in ("a", "far", "further"):
    said = balancer.say(chat(model)).hear_until(b"}}")
    check(f"a request for {model} is told that this daemon is short, not its engine or peer", (503, "unavailable", True), (status_of(said), code_of(said), "retry-after: 5" in said.lower() or said))
resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
check("who waited is served", [200] * 20, [status_of(c.hear_until(b"}")) for c in waiting])
control.sendall(b'{"version": 1, "verb": "status"}\n')
check("also at the control socket", True, control.recv(1000).startswith(b"{"))
control.close()
for connection in waiting:
    connection.vanish()
others_are_served("with descriptors again")

# The daemon ends: who comes meanwhile is told so, then refused; who is served is served to the end.
last = threading.Thread(target=lambda: answers.append(d.ask("POST", "/v1/chat/completions", {"model": "a", "until": f"{folder}/go"}, KEY)))
answers.clear()
last.start()
until("it runs", lambda: d.get("/upstream/a/counts", **KEY).json.get("running") == 1)
d.process.terminate()
until("it is told", lambda: d.get("/health").status == 503)
check("no more requests", (503, "draining"), (lambda r: (r.status, r.json["error"]["code"]))(d.ask("POST", "/v1/chat/completions", {"model": "a"}, KEY)))
idle = Raw()
with open(f"{folder}/go", "w", encoding="utf-8"):
    pass
last.join()
check("who was served", [200], [a.status for a in answers])
check("an idle connection is closed", "", idle.hear())
check("the exit code", 0, d.process.wait(PATIENCE))

# A daemon with few descriptors keeps some back for engines.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (250, hard))
few = Daemon(f"{folder}/few", config)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
check("it says how many it takes", True, "medusa.connection_limit is 60, and there are descriptors for " in few.stderr())
crowd = [Raw(few).say("GET / HTTP/1.1\r\n") for _ in range(200)]


def ask_few():
    try:
        return few.ask("POST", "/v1/chat/completions", {"model": "a"}, KEY).json.get("name")
    except OSError:
        return None  # turned away before its request was sent


check("an engine starts", "a", until("there is room for one", lambda: (crowd.pop(0).vanish(), ask_few())[1]))
for connection in crowd:
    connection.vanish()
check("the exit code", 0, few.stop())

# With very few, it takes as many connections as it can serve: no request fails for want of a descriptor.
resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
tiny = Daemon(f"{folder}/tiny", f"startPort: {free_ports(2)}\nmodels: {{a: {{cmd: \"{ENGINE} --name a\", concurrencyLimit: 100}}}}\n")
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
said = int(tiny.stderr().split("there are descriptors for ")[1].split()[0])
check("an engine starts", 200, tiny.chat("a").status)
held = Held(tiny, "a", said)
until("all run", lambda: next(m["running"] for m in tiny.tell("models")["models"]) == said)
one_more = Raw(tiny).hear()
check("one more is told why it can't be served", (503, "too_many_connections"), (status_of(one_more), code_of(one_more)))
check("those that it has said are served", [200] * said, [r.status for r in held.let_go().wait()])
check("nothing was short", (False, 0), ("out of" in tiny.stderr(), tiny.stderr().count("failed")))
check("the exit code", 0, tiny.stop())
finish()
