# SPDX-License-Identifier: Apache-2.0
"""Models of other nodes, selectors and profiles: peer_nodes.py FOLDER. Two daemons that name each other, and engines as peers."""
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.parse

from daemon import ENGINE, PATIENCE, Daemon, Reply, check, finish, free_ports, process_stat, until

folder = sys.argv[1]
first = free_ports(13)
a_port, b_first, a_first, lone_port = first, first + 1, first + 4, first + 8
tls_ports, keyed_port, bare_port = (first + 9, first + 10), first + 11, first + 12
KEY = {"Authorization": "Bearer for-a"}

B = f"""
startPort: {b_first}
apiKeys: [for-b]
models:
  qwen: {{cmd: "{ENGINE} --name b-qwen", aliases: [q]}}
  both: {{cmd: "{ENGINE} --name b-both"}}
groups: {{all: {{swap: false, members: [qwen, both]}}}}
peers:
  a: {{proxy: "http://127.0.0.1:{a_port}", apiKey: for-a, models: [round]}}
"""
b = Daemon(f"{folder}/b", B)


LONG = "k" * 8000  # some services have keys of kilobytes
LONG_NAME = "ж" * 500  # the longest that a model of a peer may have


def config_of_a(more="", peers=""):
    return f"""
startPort: {a_first}
apiKeys: [for-a]
models:
  own: {{cmd: "{ENGINE} --name own", aliases: [mine]}}
  both: {{cmd: "{ENGINE} --name a-both"}}
  fails: {{cmd: "{ENGINE} --die-at-start"}}
groups: {{all: {{swap: false, members: [own, both, fails]}}}}
peers:
  b:
    proxy: http://localhost:{b.port}/
    apiKey: for-b
    models: [qwen, both, round]
    filters: {{stripParams: secret, setParams: {{temperature: 0.5}}}}
  keyed: {{proxy: "http://127.0.0.1:{keyed_port}", models: [long], apiKey: {LONG}}}
  lone: {{proxy: "http://127.0.0.1:{lone_port}/below", models: [alone, {LONG_NAME}], timeouts: {{connect: 5, responseHeader: 2}}}}
{peers}
{more}
"""


SELECTORS = """
selectors:
  warm: {strategy: warm, targets: [fails, own, both]}
  pin: {strategy: pin, targets: [b/qwen, own]}
  alias: {strategy: pin, targets: [mine]}
  spill: {strategy: spillover, settings: {spillover: 2}, targets: [own, both, b/qwen], description: Any of three}
profiles:
  day: {description: By day, pins: {own: b/qwen, nickname: spill, qwen: null}}
  night: {pins: {qwen: own}}
"""
a = Daemon(f"{folder}/a", config_of_a(SELECTORS), "--listen", f"127.0.0.1:{a_port}")


def chat(model, daemon=a, headers=None, **more):
    return daemon.ask("POST", "/v1/chat/completions", {"model": model, "messages": [], **more}, {**KEY, **(headers or {})})


def count(peer, outcome, daemon=a):
    page = daemon.get("/metrics", **KEY).body.decode()
    return next((int(line.rsplit(" ", 1)[1]) for line in page.split("\n") if line.startswith(f'medusa_worker_peer_requests_{outcome}{{peer="{peer}"}}')), None)


# ---- names, bodies and headers ----
r = chat("b/qwen", secret="x", max_tokens=3, headers={"X-Forwarded-For": "10.0.0.9", "X-Mine": "1"})
check("by its full name", (200, "b-qwen"), (r.status, r.json.get("name")))
check("what it was asked", {"model": "qwen", "messages": [], "max_tokens": 3, "temperature": 0.5}, r.json.get("asked"))
seen = {k.lower(): v for k, v in r.json.get("headers", {}).items()}
check("no key reaches the engine", (None, None), (seen.get("authorization"), seen.get("x-api-key")))
check("who has asked", "10.0.0.9, 127.0.0.1, 127.0.0.1", seen.get("x-forwarded-for"))
check("for whom", f"localhost:{b.port}", seen.get("host"))
check("headers of the client's own go on", "1", seen.get("x-mine"))
check("by its own name, which one peer alone has", (200, "b-qwen"), (lambda r: (r.status, r.json.get("name")))(chat("qwen")))
check("a name that is here is what is here", "a-both", chat("both").json.get("name"))
check("and the peer's by its full name", "b-both", chat("b/both").json.get("name"))
check("a model that the peer is not said to have", 404, chat("b/q").status)
check("without a key", 401, a.ask("POST", "/v1/chat/completions", {"model": "b/qwen"}).status)
check("with the peer's key", 401, a.ask("POST", "/v1/chat/completions", {"model": "b/qwen"}, {"Authorization": "Bearer for-b"}).status)
r = a.get("/v1/audio/voices?x=1&model=b%2Fqwen&y=%20", **KEY)
check("by the query", (200, "/v1/audio/voices?x=1&model=qwen&y=%20"), (r.status, r.json.get("path")))
FORM = 'multipart/form-data; boundary=edge'
form = '--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nb/qwen\r\n--edge\r\nContent-Disposition: form-data; name="file"; filename="b/qwen"\r\n\r\nb/qwen\r\n--edge--\r\n'
r = a.ask("POST", "/v1/audio/transcriptions", form, {**KEY, "Content-Type": FORM})
check("by a form", (200, form.replace("\r\n\r\nb/qwen", "\r\n\r\nqwen", 1)), (r.status, r.json.get("form")))
r = a.get("/upstream/b/qwen/running", **KEY)
check("what the peer has at a path", (200, True), (r.status, any(m["model"] == "qwen" for m in r.json.get("running", []))))
for climbing in ("../x", "a/%2e%2E/x", "..", "a%5c..%2fx"):
    check(f"a path that leaves the peer's: {climbing}", 400, a.get(f"/upstream/b/qwen/{climbing}", **KEY).status)
check("a path with dots in it", 404, a.get("/upstream/b/qwen/..x/...", **KEY).status)
check("its name alone", (301, "/upstream/b/qwen/"), (lambda r: (r.status, r.headers.get("location")))(a.get("/upstream/b/qwen", **KEY)))


def ask_with(*headers):
    """The same header may come twice."""
    connection, body = a.connect(), b'{"model": "b/qwen"}'
    connection.putrequest("POST", "/v1/chat/completions")
    for name, value in (*KEY.items(), *headers, ("Content-Length", str(len(body)))):
        connection.putheader(name, value)
    connection.endheaders(body)
    reply = Reply(connection.getresponse())
    connection.close()
    return reply


r = ask_with(("X-Forwarded-For", "10.0.0.9"), ("X-Forwarded-For", "10.0.0.8"))
check("who has asked, in two lines", "10.0.0.9, 10.0.0.8, 127.0.0.1, 127.0.0.1", {k.lower(): v for k, v in r.json.get("headers", {}).items()}.get("x-forwarded-for"))

# ---- streams ----
r = chat("b/qwen", stream=True, max_tokens=7)
check("a stream", (200, 7, "no"), (r.status, len([e for e in r.events if "choices" in e]), r.headers.get("x-accel-buffering")))
go = f"{folder}/go"
c = a.connect()
c.request("POST", "/v1/chat/completions", json.dumps({"model": "b/qwen", "stream": True, "raw": {
    "status": 200, "headers": {"Content-Type": "text/event-stream"}, "pieces": ["data: 1\n\n", "data: 2\n\n"], "after": go}}), {"Content-Type": "application/json", **KEY})
answer = c.getresponse()
check("an event comes when it is there", b"data: 1\n", answer.readline())
c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
answer.close()
c.close()
until("a client that goes is gone there, too", lambda: count("b", "cancelled_total") == 1)
open(f"{go}1", "w", encoding="utf-8").close()
r = chat("b/qwen", stream=True, die_at=2)
check("an engine that dies in the middle is told by an event", (200, True), (r.status, "error" in r.events[-1]))
check("in the words of its node", True, b"model qwen: its engine" in r.body)

# ---- a peer that fails ----
r = chat("lone/alone")
check("nobody is there", (502, "peer_failed"), (r.status, r.json.get("error", {}).get("code")))
check("who, and why", "peer lone: connecting: Connection refused", r.json["error"]["message"])
listening = socket.create_server(("127.0.0.1", lone_port))
taken = []


def serve(answer, at=listening):
    """One connection gets these bytes when its request is whole; then it ends."""
    def run():
        connection, _ = at.accept()
        got = b""
        while b"\r\n\r\n" not in got or len(got.split(b"\r\n\r\n", 1)[1]) < int(got.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]):
            got += connection.recv(65536)
        taken.append(got)
        connection.sendall(answer)
        connection.close()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


for name, answer, expected in (
        ("its answer is no HTTP", b"SSH-2.0-x\r\n\r\n", 502), ("it says nothing", b"", 502),
        ("its JSON ends too early", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{", 502),
        ("its JSON ends too early, and nothing but the connection says so", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\": [1", 502),
        ("its own error is the client's", b"HTTP/1.1 418 X\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\ntea", 418)):
    thread = serve(answer)
    r = chat("lone/alone")
    thread.join()
    check(name, expected, r.status)
    check(f"{name}: who", True, expected != 502 or r.json.get("error", {}).get("message", "").startswith("peer lone: "))
head = taken[-1].split(b"\r\n\r\n", 1)[0].decode().lower()
check("its URL's path comes first", True, head.startswith("post /below/v1/chat/completions http/1.1\r\n"))
check("a peer without a key gets no key", (False, False), ("for-a" in head, "authorization" in head))
check("the request says by whom it comes", True, "\r\nvia: 1.1 medusa-" in head)
us = taken[-1].decode().lower().split("\r\nvia: ", 1)[1].split("\r\n", 1)[0]
check("this daemon in a second line of Via", (508, "loop"), (lambda r: (r.status, r.json.get("error", {}).get("code")))(ask_with(("Via", "1.1 other"), ("Via", us))))
with socket.create_server(("127.0.0.1", keyed_port)) as keyed:
    thread = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", keyed)
    r = chat("keyed/long", headers={"Proxy-Authorization": "Basic for-a"})
    thread.join()
lines = taken[-1].decode().split("\r\n\r\n", 1)[0].split("\r\n")
check("a long key", (200, 1, 1), (r.status, lines.count(f"Authorization: Bearer {LONG}"), lines.count(f"X-Api-Key: {LONG}")))
check("for a proxy before us", [], [line for line in lines if "for-a" in line])
named = form.replace("b/qwen", f"lone/{LONG_NAME}", 1)
for way, ask, there in (
        ("a body", lambda: chat(f"lone/{LONG_NAME}"), f'"{LONG_NAME}"'),
        ("the query", lambda: a.get(f"/v1/audio/voices?model=lone/{urllib.parse.quote(LONG_NAME)}", **KEY), f"?model={urllib.parse.quote(LONG_NAME)} "),
        ("a path", lambda: a.get(f"/upstream/lone/{urllib.parse.quote(LONG_NAME)}/x", **KEY), "GET /below/x "),
        ("a form", lambda: a.ask("POST", "/v1/audio/transcriptions", named.encode(), {**KEY, "Content-Type": FORM}), f"\r\n\r\n{LONG_NAME}\r\n--edge")):
    thread = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    r = ask()
    if r.status != 200:
        socket.create_connection(("127.0.0.1", lone_port)).sendall(b"\r\n\r\ncontent-length: 0\r\n")
    thread.join()
    check(f"a long name in {way}", (200, True), (r.status, there in taken[-1].decode()))
for way, ask in (("a body", lambda: chat(f"lone/{LONG_NAME}ж")),
                 ("the query", lambda: a.get(f"/v1/audio/voices?model=lone/{urllib.parse.quote(LONG_NAME)}ж".replace("ж", "%D0%B6"), **KEY)),
                 ("a form", lambda: a.ask("POST", "/v1/audio/transcriptions", named.replace(LONG_NAME, LONG_NAME + "ж").encode(), {**KEY, "Content-Type": FORM}))):
    r = ask()
    check(f"a name in {way} that nobody has, cut within a letter", (404, True), (r.status, "no model is called \"lone/ж" in r.json["error"]["message"]))
r = a.ask("POST", "/v1/audio/transcriptions", named.replace(LONG_NAME, LONG_NAME * 10).encode(), {**KEY, "Content-Type": FORM})
check("a name in a form that is longer than any", (404, True), (r.status, "which has 10005 bytes" in r.json["error"]["message"]))
thread = serve(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\": 1}")
r = chat("lone/alone")
thread.join()
check("JSON up to the end of the connection", (200, b'{"a": 1}'), (r.status, r.body))
thread = serve(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"a\": 1}\n\nda")
r = chat("lone/alone", stream=True)
thread.join()
check("events up to the end of the connection", (200, b"data: {\"a\": 1}\n\nda"), (r.status, r.body))
thread = serve(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n10\r\ndata: {\"a\": 1}\n\n\r\n5\r\nda")
r = chat("lone/alone", stream=True)
thread.join()
check("a stream that breaks ends with an event", ({"a": 1}, "peer_failed"), (r.events[0], r.events[-1].get("error", {}).get("code")))
r = chat("lone/alone")
check("a peer that is silent", (502, "peer lone: the peer did not send anything within 2 s"), (r.status, r.json["error"]["message"]))
listening.close()
r = chat("round")
check("peers that name each other", (508, "loop"), (r.status, r.json.get("error", {}).get("code")))

for model, what in (("b/qwen", "a model of a peer"), ("spill", "a selector")):
    for how in (("POST", f"/api/models/load/{model}"), ("POST", f"/api/models/unload/{model}"), ("GET", f"/health?model={model}")):
        r = a.ask(*how, headers=KEY)
        check(f"{how}: that is none of this node's", (404, f'"{model}" is {what}, and a model of this node is wanted'), (r.status, r.json.get("error", {}).get("message")))
    r = a.ctl("load", model)
    check(f"load {model}", True, f'"{model}" is {what}' in r.stderr)

# ---- selectors ----
for engine in ("own", "both"):
    a.ask("POST", f"/api/models/unload/{engine}", headers=KEY)
check("pin: the first", "b-qwen", chat("pin").json.get("name"))
r = chat("alias")
check("a model gets the name that the selector has", ("own", "mine"), (r.json.get("name"), r.json["asked"]["model"]))
check("warm: what is loaded", "own", chat("warm").json.get("name"))
a.ask("POST", "/api/models/unload/own", headers=KEY)
check("the other one is loaded", "a-both", chat("both").json.get("name"))
check("warm: that one", "a-both", chat("warm").json.get("name"))
a.ask("POST", "/api/models/unload/both", headers=KEY)
r = chat("warm")
check("warm: none is, so the first, which can't be started", 502, r.status)
until("warm: when that rests, the next one", lambda: chat("warm").json.get("name") == "own")
hold = [f"{folder}/hold{i}" for i in range(6)]
names = []


def held(i):
    thread = threading.Thread(target=lambda: names.append((i, chat("spill", until=hold[i]).json.get("name"))))
    thread.start()
    return thread


def busy():
    page = a.get("/metrics", **KEY).body.decode().split("\n")
    local = [sum(int(line.rsplit(" ", 1)[1]) for line in page if line.startswith("vllm:num_requests_running{") and f'model_name="{m}"' in line) for m in ("own", "both")]
    return (*local, count("b", "open"))


threads = []
for i, expected in enumerate(((1, 0, 0), (1, 0, 1), (1, 0, 2), (2, 0, 2), (2, 1, 2), (2, 2, 2))):
    threads.append(held(i))
    until(f"spillover: request {i} has gone where there is room", lambda: sum(busy()) == i + 1)
    check(f"spillover: where {i + 1} requests are", sum(expected), sum(busy()))
check("spillover: no target has more than two", (2, 2, 2), busy())
for file in hold:
    open(file, "w", encoding="utf-8").close()
for thread in threads:
    thread.join()
check("spillover: all were answered", {"own": 2, "a-both": 2, "b-qwen": 2}, {n: [m for _, m in names].count(n) for n in {m for _, m in names}})

# ---- profiles ----
r = a.get("/api/profiles", **KEY)
check("profiles", (None, ["day", "night"]), (r.json.get("active"), [p["name"] for p in r.json.get("profiles", [])]))
check("their pins", {"own": "b/qwen", "nickname": "spill", "qwen": None}, r.json["profiles"][0]["pins"])
check("without a key", 401, a.get("/api/profiles").status)


def choose(name, **headers):
    return a.ask("PUT", "/api/profiles/active", {"name": name}, {**KEY, **headers})


check("nickname without a profile", 404, chat("nickname").status)
check("one that there isn't", 404, choose("evening").status)
for body in (b"", b"[]", b'{"name": 1}', b'{"name": "day"', b'{}', b'{"name": "day", "name": "night"}'):
    check(f"no name of one: {body}", 400, a.ask("PUT", "/api/profiles/active", body, KEY).status)
check("another site's page", 403, choose("day", **{"Sec-Fetch-Site": "cross-site"}).status)
check("day", (200, "day"), (lambda r: (r.status, r.json.get("active")))(choose("day")))
check("a pinned name", "b-qwen", chat("own").json.get("name"))
check("a name that is only pinned", 200, chat("nickname").status)
r = chat("qwen")
check("one that is disabled", (404, 'the name "qwen" is disabled while profile day is active'), (r.status, r.json["error"]["message"]))
check("a full name stays what it is", "b-qwen", chat("b/qwen").json.get("name"))
check("upstream of a pinned name", 200, a.get("/upstream/own/running", **KEY).status)
check("night", ("own", "own"), (choose("night").json.get("active") and chat("qwen").json.get("name"), chat("own").json.get("name")))
check("none", (None, "b-qwen"), (choose(None).json.get("active"), chat("qwen").json.get("name")))

# ---- a reload: requests end where they began ----
choose("day")
served = count("b", "served_total")
hold = f"{folder}/hold-reload"
replies = []
thread = threading.Thread(target=lambda: replies.append(chat("b/qwen", until=hold)))
thread.start()
until("it is there", lambda: count("b", "open") == 1)
a.write_config(config_of_a("").replace("  b:\n", "  c:\n"))
check("reload", 0, a.ctl("reload").returncode)
check("another peer", ("b-qwen", 404, "b-both"), (chat("c/qwen").json.get("name"), chat("b/both").status, chat("c/both").json.get("name")))
check("its counts", (2, 0, None), (count("c", "served_total"), count("c", "open"), count("b", "open")))
check("no profile is active", None, a.get("/api/profiles", **KEY).json.get("active"))
open(hold, "w", encoding="utf-8").close()
thread.join()
check("the request of the old one", (200, "b-qwen"), (replies[0].status, replies[0].json.get("name")))
a.write_config(config_of_a(""))
check("reload", 0, a.ctl("reload").returncode)
check("counts begin anew where a peer was missing", 0, count("b", "served_total"))
a.write_config(config_of_a("", "  bad: {proxy: \"http://u:p@host/\", models: [x]}"))
r = a.ctl("reload")
a.write_config(config_of_a("", f"  bad: {{proxy: \"http://host/\", models: [{'x' * 1001}]}}"))
s = a.ctl("reload")
check("a name that is longer than any", True, "peers.bad.models" in s.stderr and "at most 1000 bytes" in s.stderr)
check("a URL that can't be asked", (True, "b-qwen"), ("peers.bad.proxy" in r.stderr + r.stdout, chat("b/qwen").json.get("name")))


# ---- TLS ----
def certificate(name, subject):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem",
                    "-subj", f"/CN={subject.split(':')[1]}", "-addext", f"subjectAltName={subject}"], check=True, capture_output=True)


EARLY = b'{"error": {"message": "too long"}}'


def refuse_early(wire, half):
    """Answers while the daemon is still sending, and learns of both, the answer and the reset, at once."""
    d.process.send_signal(signal.SIGSTOP)
    until("it stands", lambda: process_stat(d.process.pid)[1][0] == "T")
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else what is not sent yet is lost when it is closed
    wire.sendall(b"HTTP/1.1 413 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(EARLY), EARLY[:5] if half else EARLY))
    wire.close()
    d.process.send_signal(signal.SIGCONT)


def server(name, port, tls=True):
    """Answers each request with how it came."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
    names = [None]
    if tls:
        context.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
        context.sni_callback = lambda _, server, __: names.append(server)
    listener = socket.create_server(("127.0.0.1", port))

    def run():
        while True:
            plain, _ = listener.accept()
            try:
                with context.wrap_socket(plain, server_side=True) if tls else plain as wire:
                    got = wire.recv(65536)
                    text = json.dumps({"name": name, "sni": names[-1], "host": got.decode().split("Host: ", 1)[1].split("\r\n", 1)[0]}).encode()
                    asked = got.split(b"\r\n\r\n", 1)[1]
                    if b"early" in asked:  # most of the request is not read, so the system resets the connection when it is closed
                        refuse_early(wire, b"half" in asked)
                    elif b"plain" in asked:  # nothing but the connection's end, which TLS is not told, says where the answer ends
                        kind = b"text/event-stream" if b"events" in asked else b"application/json"
                        wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n\r\n" % kind + json.loads(asked)["plain"].encode())
                    else:
                        wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            except OSError:
                pass
    threading.Thread(target=run, daemon=True).start()


certificate("good", "DNS:localhost")
certificate("other", "DNS:elsewhere.example")
for name, port in zip(("good", "other"), tls_ports):
    server(name, port)
server("bare", bare_port, tls=False)
TLS = f"""
apiKeys: []
peers:
  good: {{proxy: "https://localhost:{tls_ports[0]}", models: [m]}}
  address: {{proxy: "https://127.0.0.1:{tls_ports[0]}", models: [m]}}
  other: {{proxy: "https://localhost:{tls_ports[1]}", models: [m]}}
  plain: {{proxy: "https://localhost:{b.port}", models: [m]}}
  bare: {{proxy: "http://localhost:{bare_port}", models: [m]}}
  nowhere: {{proxy: "http://nowhere.invalid", models: [m], timeouts: {{connect: 8}}}}
"""
with open(f"{folder}/trusted.pem", "w", encoding="utf-8") as trusted:
    trusted.write(open(f"{folder}/good.pem", encoding="utf-8").read() + open(f"{folder}/other.pem", encoding="utf-8").read())
d = Daemon(f"{folder}/tls", TLS, env={"SSL_CERT_FILE": f"{folder}/trusted.pem"})
r = d.chat("good/m")
check("by TLS", (200, {"name": "good", "sni": "localhost", "host": f"localhost:{tls_ports[0]}"}), (r.status, r.json))
check("all of its JSON, and then the end of the connection", (200, b'{"a": 1}'), (lambda r: (r.status, r.body))(d.chat("good/m", plain='{"a": 1}')))
check("a part of it", (502, "peer_failed"), (lambda r: (r.status, r.json.get("error", {}).get("code")))(d.chat("good/m", plain='{"a": [1')))
ALL = 'data: {"events": 1}\n\ndata: [DONE]\n\n'
check("a stream with its last event", (200, ALL.encode()), (lambda r: (r.status, r.body))(d.chat("good/m", stream=True, plain=ALL)))
check("a stream without it", [{"events": 1}, "peer_failed"], (lambda e: [e[0], e[-1].get("error", {}).get("code")])(d.chat("good/m", stream=True, plain=ALL[:-14]).events))
for model in ("good/m", "bare/m") * 5:
    r = d.chat(model, early="x" * 9000000)
    check(f"{model}: an answer before all of the request was sent, and then a reset", (413, EARLY), (r.status, r.body))
r = d.chat("good/m", half=True, early="x" * 9000000)
check("a part of one", (502, True), (r.status, r.json["error"]["message"] in ("peer good: the connection to the peer broke: " + why for why in ("Connection reset by peer", "Broken pipe"))))
for model, why in (("other/m", "its certificate: "), ("address/m", "its certificate: "), ("plain/m", "TLS: "), ("nowhere/m", "nowhere.invalid: ")):
    r = d.chat(model)
    message = r.json["error"]["message"].replace("the peer did not take the connection within 8 s", f"connecting: {why}")  # no name server answers
    check(f"{model} is not asked", (502, True), (r.status, message.startswith(f"peer {model[:-2]}: connecting: {why}")))
check("it ends", 0, d.stop())
d = Daemon(f"{folder}/untrusted", TLS, env={"SSL_CERT_FILE": f"{folder}/other.pem"})
r = d.chat("good/m")
check("a certificate that nobody trusts", (502, True), (r.status, "certificate" in r.json["error"]["message"]))
check("it ends", 0, d.stop())

# ---- the end: a request at a peer may end ----
hold = f"{folder}/hold-end"
thread = threading.Thread(target=lambda: replies.append(chat("b/qwen", until=hold)))
thread.start()
until("it is there", lambda: count("b", "open") == 1)
a.process.send_signal(signal.SIGTERM)
until("no new one is taken", lambda: chat("b/both").status == 503)
open(hold, "w", encoding="utf-8").close()
thread.join()
check("the one that ran", 200, replies[-1].status)
check("it ends", 0, a.process.wait(PATIENCE))

# ---- the end: a request at a peer that takes longer than 30 s ----
a = Daemon(f"{folder}/end", f'peers: {{b: {{proxy: "http://127.0.0.1:{b.port}", apiKey: for-b, models: [qwen]}}}}')
hold, late = f"{folder}/hold-late", {}
threads = [threading.Thread(target=lambda: late.update(whole=chat("b/qwen", daemon=a, until=hold))),
           threading.Thread(target=lambda: late.update(stream=chat("b/qwen", daemon=a, stream=True, raw={
               "status": 200, "headers": {"Content-Type": "text/event-stream"}, "pieces": ['data: {"a": 1}\n\n', "data: 2\n\n"], "after": hold})))]
for thread in threads:
    thread.start()
until("both are there", lambda: count("b", "open", a) == 2)
a.process.send_signal(signal.SIGTERM)
check("it ends all the same", 0, a.process.wait(PATIENCE))
for thread in threads:
    thread.join()
check("why there is no answer", (503, "draining"), (late["whole"].status, late["whole"].json.get("error", {}).get("code")))
check("why the stream ends", ({"a": 1}, "draining"), (late["stream"].events[0], late["stream"].events[-1].get("error", {}).get("code")))
for file in (hold, f"{hold}1"):
    open(file, "w", encoding="utf-8").close()
check("the other one ends", 0, b.stop())
for daemon in (a, b):
    check("no sanitizer has spoken", False, "Sanitizer" in daemon.stderr())
finish()
