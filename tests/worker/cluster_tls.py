# SPDX-License-Identifier: Apache-2.0
"""Nodes that prove to each other who they are, and an etcd with TLS and users: cluster_tls.py FOLDER."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

from certificates import Authority
from daemon import ENGINE, PATIENCE, Daemon, Held, Reply, check, finish, free_ports, until
from etcd import Etcd, Wire, end_with_test

folder = sys.argv[1]
first = free_ports(30)
ROOT, PASSWORD, READER = "root-secret-0f7a", "worker-secret-91c2", "reader-secret-55d0"
KEY = "client-secret-77aa"
SECRETS = [ROOT, PASSWORD, READER, KEY]
os.mkdir(f"{folder}/certificates")
authority, stranger = Authority(f"{folder}/certificates", "authority"), Authority(f"{folder}/certificates", "stranger")
etcd_files = authority.issue("etcd", ["IP:127.0.0.1", "DNS:localhost"])
FILES = {name: authority.issue(name, [f"DNS:{name}"]) for name in "abcd"}


def private(name, text):
    path = f"{folder}/{name}"
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    return path


etcd = Etcd(folder, first, tls=(authority.pem, *etcd_files))
etcd.guard(ROOT, {"worker": (PASSWORD, "readwrite", "/medusa/"), "reader": (READER, "read", "/medusa/")})
password = private("password", PASSWORD + "\n")
started, wires = [], []
end_with_test(started, etcd)


ETCD_TLS = f"{{ca: {authority.pem}, certificate: {etcd_files[0]}, key: {etcd_files[1]}}}"
USER = f"etcd_user: worker, etcd_password_file: {password}"
PORTS = {name: first + 4 + 4 * i for i, name in enumerate("abcd")}


def tls_of(name, files=None):
    certificate, key = files or FILES[name]
    return f"listen: 127.0.0.1:0, tls: {{ca: {authority.pem}, certificate: {certificate}, key: {key}}}"


class Node(Daemon):
    def __init__(self, name, models, user=USER, tls=None, etcd_tls=ETCD_TLS, urls=None, where=None, more="", env=None):
        self.name = name
        lines = "".join(f'  {m}: {{cmd: "{ENGINE} --name {name}-{m}"}}\n' for m in models)
        super().__init__(f"{folder}/{where or name}", f"startPort: {PORTS.get(name, PORTS['d'])}\nmodels:\n{lines}"
                         f"groups: {{all: {{swap: false, members: [{', '.join(models)}]}}}}\n"
                         f"medusa: {{tenants: [{{name: team, keys: [{KEY}]}}], state: {folder}/{where or name}/usage.sqlite{more}, "
                         f"cluster: {{lease_grace: 300s, endpoints: [{urls or etcd.urls}], etcd_tls: {etcd_tls}, {tls or tls_of(name)}{', ' + user if user else ''}}}}}\n",
                         "--node", name, env={"MEDUSA_LOG": "debug", **(env or {})})
        started.append(self)

    def ask(self, method, path, body=None, headers=None):
        return super().ask(method, path, body, {"Authorization": f"Bearer {KEY}", **(headers or {})})

    def nodes(self):
        return {n["node"]: n["state"] for n in self.tell("cluster", "nodes")["nodes"]}

    def cluster(self):
        return self.get("/api/status").json["cluster"]

    def tls_port(self):
        return int(self.cluster()["url"].rsplit(":", 1)[1])

    def health(self):
        return self.get("/health").body.decode()

    def metric(self, name):
        found = re.search(rf"^medusa_worker_{name} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return found and float(found[1])


def context(files=None, trusted=None):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.load_verify_locations(trusted or authority.pem)
    if files:
        made.load_cert_chain(*files)
    return made


def ask_node(node, files, path="/v1/models", headers=None, method="GET", body=None):
    """What the listener of nodes says; a text: why nothing was said."""
    connection = http.client.HTTPSConnection("127.0.0.1", node.tls_port(), timeout=PATIENCE, context=context(files))
    try:
        connection.request(method, path, body, headers or {})
        return Reply(connection.getresponse())
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def who(reply):
    return reply.status, reply.json.get("name") or reply.body


def comes(what, wanted, ask):
    """In the end: on a slow machine a lease may end, and what the node alone has is refused until it is back."""
    end, got = time.monotonic() + PATIENCE, None
    while got != wanted and time.monotonic() < end:
        got = ask()
    check(what, wanted, got)


def order(wish, name, node=None):
    comes(f"{wish} {name}", 0, lambda: (node or a).ctl("cluster", wish, name).returncode)


def record_of(name):
    return json.loads(until(f"the record of {name}", lambda: etcd.get(f"/medusa/nodes/{name}")))


def passes(what, wanted):
    return lambda got: wanted in got or print(f"  {what}: {got}")


# ---- etcd with TLS and users ----
a, b = Node("a", ["x", "both"]), Node("b", ["y", "both"], user="etcd_user: worker, etcd_password_env: ETCD_PASSWORD", env={"ETCD_PASSWORD": PASSWORD})
for node in (a, b):
    until(f"{node.name} is in the cluster with the least rights", lambda n=node: n.nodes() == {"a": "ready", "b": "ready"})
until("one of them leads", lambda: a.cluster()["leader"] in ("a", "b"))
check("nothing is outside of the prefix", [], [key for key in etcd.run("get", "--prefix", "--keys-only", "").stdout.split() if not key.startswith("/medusa/")])
order("cordon", "b")
until("and obeyed", lambda: a.nodes()["b"] == "cordoned")
order("uncordon", "b")
with open(f"/proc/{b.process.pid}/environ", "rb") as file:
    check("the environment has the password no longer", False, PASSWORD.encode() in file.read())
check("nor has an engine's", (200, False), (b.chat("y").status, any(PASSWORD.encode() in open(f"/proc/{r['pid']}/environ", "rb").read() for r in b.get("/running").json["running"] if "pid" in r)))


def alone(what, wanted, **how):
    """A node that is not let into etcd says why, and serves what it has."""
    where = what.replace(" ", "-").replace("'", "").replace(",", "")
    node = Node("d", ["m"], where=where, **how)
    check(f"{what}: it serves", 200, node.chat("m").status)
    until(f"{what}: it says why", lambda: all(part in node.health() for part in wanted) or None)
    health = node.health()
    check(f"{what}: the endpoint is named", True, "etcd at https://" in health)
    check(f"{what}: etcd does not have it", ("", 0.0), (etcd.get("/medusa/nodes/d"), node.metric("cluster_etcd_reached")))
    check(f"{what}: it is said once", lambda count: 1 <= count <= 2, len(re.findall("etcd (?:refuses this node|cannot be reached), so", node.stderr())))
    check(f"{what}: it ends", 0, node.stop())
    return health


alone("a wrong password", ["user worker", "invalid user ID or password", "medusa.cluster.etcd_user"],
      user=f"etcd_user: worker, etcd_password_file: {private('wrong', 'wrong-secret-13')}")
alone("a user who may only read", ["permission denied", "role of user reader", "readwrite on all keys below medusa.cluster.prefix"],
      user=f"etcd_user: reader, etcd_password_file: {private('reader', READER)}")
alone("another prefix", ["permission denied", "role of user worker"], user=f"{USER}, prefix: /other")
alone("no user", ["permission denied", "say medusa.cluster.etcd_user"], user="")
named = authority.issue("named", ["DNS:worker"], subject="/CN=worker")
for what, user in (("a certificate with the user's name", ""), ("a certificate with a name, and a user", USER)):
    alone(what, ["takes no certificate with a CN"], user=user, etcd_tls=f"{{ca: {authority.pem}, certificate: {named[0]}, key: {named[1]}}}")
SECRETS.append("wrong-secret-13")
alone("an authority that is not trusted", ["its certificate", "none that is trusted here"], etcd_tls=f"{{ca: {stranger.pem}, certificate: {etcd_files[0]}, key: {etcd_files[1]}}}")
alone("no certificate of its own", ["another certificate of this node", "medusa.cluster.etcd_tls"], etcd_tls=f"{{ca: {authority.pem}}}")
other = stranger.issue("client", ["DNS:client"])
alone("a certificate of strangers", ["another certificate of this node", "medusa.cluster.etcd_tls"], etcd_tls=f"{{ca: {authority.pem}, certificate: {other[0]}, key: {other[1]}}}")


class TlsEnd:
    """A server with a certificate of its own where etcd is looked for."""

    def __init__(self, files):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*files)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            wire, _ = self.listener.accept()
            wire.settimeout(1)
            try:
                self.context.wrap_socket(wire, server_side=True).close()
            except OSError:
                wire.close()


alone("etcd's certificate has expired", ["its certificate", "expired", "renewed"], urls=TlsEnd(authority.issue("old", ["IP:127.0.0.1"], days=-1)).url)
alone("etcd's certificate is for another host", ["its certificate", "mismatch", "for others"], urls=TlsEnd(authority.issue("elsewhere", ["DNS:elsewhere"])).url)
silent = socket.create_server(("127.0.0.1", 0))
alone("an etcd that says nothing", ["did not take the connection"], urls=f"https://127.0.0.1:{silent.getsockname()[1]}")
silent.close()

# ---- tokens end ----
etcd.members[0].kill()  # a simple token is etcd's memory
etcd.start()
for node in (a, b):
    until(f"etcd was started anew: {node.name} is given another token", lambda n=node: n.metric("cluster_etcd_reached") == 1 and n.nodes() == {"a": "ready", "b": "ready"})
before = a.metric("cluster_writes_total")
a.chat("x")
until("and writes", lambda: a.metric("cluster_writes_total") > before)
CHANGED = "changed-secret-4e"
SECRETS.append(CHANGED)
etcd.must("user", "grant-role", "reader", "worker")  # of which tokens know nothing
order("cordon", "b")
until("users have changed: the token is another one", lambda: a.nodes().get("b") == "cordoned")
order("uncordon", "b")


def passwd(new):
    done = subprocess.run(["etcdctl", "--endpoints", etcd.urls, "--command-timeout", "30s", "--dial-timeout", "30s", *etcd.tls, *etcd.user, "user", "passwd", "worker", "--interactive=false"], input=new + "\n", capture_output=True,
                          text=True, timeout=PATIENCE, env={**os.environ, "ETCDCTL_API": "3"})
    check("etcdctl user passwd", 0, done.returncode)


passwd(CHANGED)
until("another password: a is refused at its next call", lambda: a.ctl("cluster", "cordon", "b").returncode)
until("and says so", lambda: "etcd" in a.health() and "user worker" in a.health())
comes("a serves", 200, lambda: a.chat("x").status)
private("password", CHANGED + "\n")
a.process.send_signal(signal.SIGHUP)
until("the file was read anew", lambda: a.health() == "OK")
order("uncordon", "b")
until("a is in the cluster", lambda: a.nodes().get("a") == "ready")
passwd(PASSWORD)
private("password", PASSWORD + "\n")
a.process.send_signal(signal.SIGHUP)
for node in (a, b):
    until(f"the first password again: {node.name}", lambda n=node: n.health() == "OK" and n.nodes() == {"a": "ready", "b": "ready"})
etcd.must("auth", "disable")
etcd.user = []
d = Node("d", ["m"])
until("without users a node joins", lambda: a.nodes().get("d") == "ready" and d.health() == "OK")
check("and says that anybody could", True, "asks for no users, although medusa.cluster.etcd_user is set" in d.stderr())
comes("a goes on", "OK", a.health)
etcd.must("auth", "enable")
etcd.user = ["--user", f"root:{ROOT}"]
order("cordon", "d")
until("with users again, too", lambda: all(node.health() == "OK" and node.nodes().get("d") == "cordoned" for node in (a, b, d)))
order("uncordon", "d", d)
for node in (d, b):
    check(f"{node.name} ends", 0, node.stop())

# ---- between nodes ----
b, c = Node("b", ["y", "both"]), Node("c", ["z"])
ALL = {"a": "ready", "b": "ready", "c": "ready"}
for node in (a, b, c):
    until(f"{node.name} knows all nodes", lambda n=node: n.nodes() == ALL)
check("the record says where", True, record_of("b")["url"] == f"https://127.0.0.1:{b.tls_port()}")
for node in (a, b, c):
    for owner, model in (("a", "x"), ("b", "y"), ("c", "z")):
        comes(f"{model}, asked at {node.name}", (200, f"{owner}-{model}"), lambda n=node, m=model: who(n.chat(m)))
comes("y is there", (200, "b-y"), lambda: who(a.chat("y")))
r = a.chat("y", max_tokens=3)
seen = {k.lower(): v for k, v in r.json.get("headers", {}).items()}
check("no header of the cluster, and no key, reaches an engine", [], [k for k in seen if k.startswith("x-medusa") or k in ("authorization", "x-api-key")])
r = a.chat("y", stream=True, max_tokens=50)
check("a stream", (200, 50), (r.status, len([e for e in r.events if "choices" in e])))
big = "a" * (3 << 20)
r = a.chat("y", text=big)
check("a large body, both ways", (200, big), (r.status, r.json.get("asked", {}).get("text")))
check("the client pays at the node that computes, by name", {"team"}, {row["key"] for row in b.tell("bill", "--since", "1h")["usage"] if row["model"] == "y"})
status = a.ctl("cluster", "status").stdout
check("status says that it is TLS", passes("status", "TLS: between nodes: yes; to etcd: yes, as user worker"), status)
check("nobody is unreachable", [], a.cluster()["tls"]["unreachable"])
check("nothing expires soon", [False] * 4, [one["soon"] for one in a.cluster()["tls"]["certificates"]])

# ---- who is not a node gets nothing ----
def received(wire):
    """All until the end of the connection."""
    got = b""
    try:
        while more := wire.recv(65536):
            got += more
    except OSError:
        pass
    return got


NAMED = {"X-Medusa-Node": "a"}
expired = authority.issue("expired", ["DNS:a"], days=-1)
for what, files in (("no certificate", None), ("one of strangers", stranger.issue("a-of-strangers", ["DNS:a"])), ("one that has expired", expired)):
    r = ask_node(b, files, headers=NAMED)
    check(f"with {what}, nothing", lambda got: isinstance(got, str) and any(word in got for word in ("alert", "Disconnected", "reset", "EOF")), r)
for what, headers in (("as another node", {"X-Medusa-Node": "b"}), ("as nobody", {}), ("as many", {"X-Medusa-Node": "a, c"}), ("in other letters", {"X-Medusa-Node": "A"})):
    r = ask_node(b, FILES["a"], headers=headers)
    check(f"a, {what}: refused", (403, "forbidden"), (r.status, r.json["error"]["code"]))
    check(f"a, {what}: no model", 403, ask_node(b, FILES["a"], "/v1/chat/completions", headers, "POST", json.dumps({"model": "y", "messages": []})).status)
    check(f"a, {what}: not even health", 403, ask_node(b, FILES["a"], "/health", headers).status)
r = ask_node(b, FILES["a"], headers=NAMED)
check("as itself, without a key of a client", (200, True), (r.status, "y" in r.body.decode()))
r = ask_node(b, FILES["a"], "/v1/chat/completions", {**NAMED, "X-Medusa-Client": "team"}, "POST", json.dumps({"model": "z", "messages": []}))
check("what a node passes on goes no further", 404, r.status)
asked = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{b.tls_port()}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], input="", capture_output=True, text=True, timeout=PATIENCE)
check("TLS 1.1 is too old", passes("openssl", "alert protocol version"), asked.stderr)
with socket.create_connection(("127.0.0.1", b.tls_port()), PATIENCE) as wire:
    wire.sendall(b"GET /v1/models HTTP/1.1\r\nHost: b\r\nX-Medusa-Node: a\r\n\r\n")
    check("without TLS, no word of HTTP", False, b"HTTP" in received(wire))
bare = Daemon.ask(b, "POST", "/v1/chat/completions", {"model": "y", "messages": []}, {"X-Medusa-Node": "a", "X-Medusa-Client": "team"})
check("where clients are served, saying that one is a node means nothing", 401, bare.status)
comes("with a key, either", (200, "c-z"), lambda: who(b.ask("POST", "/v1/chat/completions", {"model": "z", "messages": []}, {"X-Medusa-Node": "a", "X-Medusa-Client": "other"})))
check("they were counted", lambda got: got >= 4, b.metric("cluster_unproven_total"))
check("and named", True, "has not proved to be a node" in b.stderr())

# ---- clients that begin TLS and stay ----
idle = [socket.create_connection(("127.0.0.1", b.tls_port()), PATIENCE) for _ in range(200)]
for i, wire in enumerate(idle[:100]):
    wire.sendall(b"\x16\x03\x01\x02\x00\x01"[:1 + i % 6])
comes("half-open connections hinder nobody", (200, "b-y"), lambda: who(a.chat("y")))
dripping = context(FILES["a"]).wrap_socket(socket.create_connection(("127.0.0.1", b.tls_port()), PATIENCE))
dripping.sendall(b"GET /v1/models HTTP/1.1\r\nX-Medusa-")


def is_closed(wire):
    wire.settimeout(PATIENCE)
    try:
        return not wire.recv(1)
    except OSError as error:
        return not isinstance(error, TimeoutError)


check("they are closed", True, all(is_closed(wire) for wire in idle))
check("a head that drips is answered in time", True, received(dripping).startswith(b"HTTP/1.1 408 "))
dripping.close()

# ---- cancellation and back-pressure ----
def open_at_b():
    return re.search(r'^medusa_worker_cluster_requests_open\{node="b"\} (\S+)$', a.get("/metrics").body.decode(), re.M)[1]


def busy(node):
    return sum(m["running"] for m in node.get("/api/status").json["models"] if isinstance(m.get("running"), int))


connection = a.connect()
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "y", "stream": True, "max_tokens": 100000, "messages": []}),
                   {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
stream = connection.getresponse()
check("a long stream begins", True, stream.readline().startswith(b"data: "))
until("b computes it", lambda: (open_at_b(), busy(b)) == ("1", 1))
connection.sock.shutdown(socket.SHUT_RDWR)
connection.close()
stream.close()


until("its client leaves: a forgets it", lambda: open_at_b() == "0")
until("and so does b", lambda: busy(b) == 0)
SIZE = 64 << 20


def memory(node):
    with open(f"/proc/{node.process.pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) << 10


before = memory(a), memory(b)
slow = a.connect()
slow.request("POST", "/v1/chat/completions", json.dumps({"model": "y", "raw": {"status": 200, "headers": {"Content-Type": "application/octet-stream"}, "pieces": ["x" * (1 << 18)], "times": SIZE >> 18}}),
             {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})


until("nobody reads: it stands at b", lambda: open_at_b() == "1")
time.sleep(1)
check("neither takes it all into memory", lambda more: max(more) < (48 if os.environ.get("SAN") or os.environ.get("TSAN") else 16) << 20, [memory(node) - was for node, was in zip((a, b), before)])
got = slow.getresponse().read()
check("and all of it comes", (SIZE, {ord("x")}), (len(got), set(got)))
slow.close()

# ---- certificates are exchanged under load ----
stop, answers, lock = threading.Event(), {}, threading.Lock()


def load(node, model):
    while not stop.is_set():
        reply = node.chat(model, stream=True, max_tokens=5)
        said = (reply.status, len([e for e in reply.events if "choices" in e]) if reply.status == 200 else reply.body)
        with lock:
            answers[said] = answers.get(said, 0) + 1


threads = [threading.Thread(target=load, args=pair) for pair in ((a, "y"), (c, "y"), (b, "x"), (a, "z"))]
for thread in threads:
    thread.start()
held = Held(a, "y")
for round_ in range(4):
    serials = []
    for name in "abc":
        authority.issue(name, [f"DNS:{name}"])
    for node in (a, b, c):
        lines = node.stderr().count("the configuration was read anew")
        node.process.send_signal(signal.SIGHUP)
        until(f"{node.name} has read its files anew", lambda n=node, l=lines: n.stderr().count("the configuration was read anew") > l)
stop.set()
for thread in threads:
    thread.join()
LEASE = b"lease"  # of a node that was too slow for etcd
check("no request was lost", [(200, 5)], [one for one in answers if not (one[0] == 503 and LEASE in one[1])])
check("one that ran all the time, neither", lambda got: got == (200, "b-y") or LEASE in got[1], who(held.let_go().wait()[0]))
shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
shown.check_hostname = False
shown.load_verify_locations(authority.pem)
shown.load_cert_chain(*FILES["a"])
with shown.wrap_socket(socket.create_connection(("127.0.0.1", b.tls_port()), PATIENCE)) as wire:
    with open(FILES["b"][0], encoding="ascii") as file:
        check("the new one is shown", ssl.PEM_cert_to_DER_cert(file.read()), wire.getpeercert(True))
os.chmod(FILES["c"][1], 0o644)
c.process.send_signal(signal.SIGHUP)
until("a key that others may read is refused", lambda: "others may read or change" in c.stderr())
comes("and the one before counts", (200, "c-z"), lambda: who(a.chat("z")))
os.chmod(FILES["c"][1], 0o600)

# ---- who can't be reached is named ----
authority.issue("b", ["DNS:b"], days=-1)
b.process.send_signal(signal.SIGHUP)
until("b says that its certificate has expired", lambda: f"the certificate {FILES['b'][0]} (nodes) has expired" in b.stderr())
until("a says why b is not reached", lambda: [one["node"] for one in a.cluster()["tls"]["unreachable"]] == ["b"])
check("in words", passes("status", "node b cannot be reached: "), a.ctl("cluster", "status").stdout)
check("the reason", passes("why", "expired"), a.cluster()["tls"]["unreachable"][0]["why"])
check("b says so of itself", passes("status", "has expired at"), b.ctl("cluster", "status").stdout)
r = a.chat("y")
check("a model that it alone has", lambda got: got in ((502, "peer_failed"), (503, "node_unreachable")), (r.status, r.json["error"]["code"]))
comes("one that others have", 200, lambda: c.chat("both").status)
authority.issue("b", ["DNS:b"], days=5)
b.process.send_signal(signal.SIGHUP)
until("a new one: it is reached", lambda: not a.cluster()["tls"]["unreachable"] and a.chat("y").status == 200)
check("it expires soon", lambda got: got in ((True, 4), (True, 5)), [(one["soon"], one["days"]) for one in b.cluster()["tls"]["certificates"] if one["file"] == FILES["b"][0]][0])
check("in words, too", passes("status", f"{FILES['b'][0]} (nodes) expires at"), b.ctl("cluster", "status").stdout)
check("and in the log", True, re.search(f"the certificate {FILES['b'][0]} .nodes. expires in [45] days", b.stderr()) is not None)

# ---- a node that says in etcd that it is another one ----
record = record_of("c")
record.update(identity="0" * 32, models=[{"id": "lure", "first_token_s": [0.1, 0.1, 0.1]}])
etcd.must("put", "/medusa/nodes/ghost", json.dumps(record))
until("a knows it", lambda: "ghost" in a.nodes())
r = a.chat("lure")
check("it gets no request", (502, True), (r.status, "for others" in r.body.decode()))
until("and is named", lambda: [one["node"] for one in a.cluster()["tls"]["unreachable"]] == ["ghost"])
record["url"] = f"http://127.0.0.1:{c.port}"
etcd.must("put", "/medusa/nodes/ghost", json.dumps(record))
until("without TLS it is none", lambda: a.nodes()["ghost"] == "unreadable")
check("why", passes("nodes", "its url has no https"), a.ctl("cluster", "nodes").stdout)
check("it gets no request at all", lambda status: status in (404, 502), a.chat("lure").status)
etcd.must("del", "/medusa/nodes/ghost")

# ---- what one node tells another ----
heads, spy = [], ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
spy.load_cert_chain(*authority.issue("spy", ["DNS:spy"]))
listener = socket.create_server(("127.0.0.1", 0))


def listen():
    while True:
        wire, _ = listener.accept()
        wire.settimeout(PATIENCE)
        try:
            with spy.wrap_socket(wire, server_side=True) as one:
                heads.append(one.recv(65536))
        except OSError:
            wire.close()


threading.Thread(target=listen, daemon=True).start()
record.update(url=f"https://127.0.0.1:{listener.getsockname()[1]}", models=[{"id": "caught", "first_token_s": [0.1, 0.1, 0.1]}])
etcd.must("put", "/medusa/nodes/spy", json.dumps(record))
until("a knows a node that tells what it hears", lambda: "spy" in a.nodes())
until("and asks it", lambda: a.chat("caught").status == 502 and any(b"POST /v1/chat" in head for head in heads))
head = [head for head in heads if b"POST /v1/chat" in head][0].decode().lower()
check("it is told who asks, and who pays, but not the client's key", (True, True, False),
      ("x-medusa-node: a\r\n" in head, "x-medusa-client: team\r\n" in head, KEY in head or "authorization" in head or "x-api-key" in head))
etcd.must("del", "/medusa/nodes/spy")


# ---- what can't be ----
def refused(what, wanted, **how):
    node = Node("d", ["m"], where=what.replace(" ", "-"), **how)
    check(f"{what}: the daemon ends", True, node.process.wait(PATIENCE) != 0)
    check(f"{what}: it says why", passes("stderr", wanted), node.stderr())


def readable(paths):
    """The last of these files is everybody's."""
    os.chmod(paths[-1], 0o644)
    return paths


refused("a certificate of another node", f"medusa.cluster.tls.certificate: {FILES['a'][0]} is not for node d: its subjectAltName needs DNS:d", tls=tls_of("d", FILES["a"]))
refused("a key that all may read", "others may read or change", tls=tls_of("d", readable(authority.issue("open", ["DNS:d"]))))
refused("a password that all may read", "medusa.cluster.etcd_password_file: others may read or change", user=f"etcd_user: worker, etcd_password_file: {readable([private('open', PASSWORD)])[0]}")
refused("no password there", "the environment has no NO_SUCH", user="etcd_user: worker, etcd_password_env: NO_SUCH")
refused("a listener without TLS", "medusa.cluster.tls is needed", tls="listen: 127.0.0.1:0")
refused("TLS without a listener", "medusa.cluster.listen is needed", tls=f"tls: {{ca: {authority.pem}, certificate: {FILES['d'][0]}, key: {FILES['d'][1]}}}")
refused("etcd without TLS", "https:// is wanted of all of them", urls="http://127.0.0.1:1")

# ---- the end, and no secret anywhere ----
shown = "".join(node.ctl(*words).stdout for node in (a, b, c) for words in (("cluster", "status"), ("cluster", "nodes"), ("status",), ("cluster", "status", "--json")))
shown += "".join(node.get(path).body.decode(errors="replace") for node in (a, b, c) for path in ("/metrics", "/api/status", "/health", "/running", "/v1/models", "/logs"))
for node in (a, b, c):
    with open(f"/proc/{node.process.pid}/cmdline", "rb") as one, open(f"/proc/{node.process.pid}/environ", "rb") as other:
        shown += one.read().decode() + other.read().decode()
for node in (a, b, c):
    check(f"{node.name} ends", 0, node.stop())
shown += "".join(node.stderr() for node in started) + etcd.run("get", "--prefix", "/").stdout
tokens = re.findall(r"[A-Za-z]{16}\.\d+", shown)  # as etcd makes simple ones
check("no secret was shown", ([], []), ([one for one in SECRETS if one in shown], tokens))
for node in started:
    for where, _, names in os.walk(node.folder):
        for name in names:
            path = f"{where}/{name}"
            if not os.path.isfile(path) or name == "config.yaml":
                continue
            with open(path, "rb") as file:
                data = file.read()
            check(f"{path} has no secret", [], [one for one in SECRETS if one.encode() in data])
    check(f"{node.name}: no sanitizer has spoken", False, "Sanitizer" in node.stderr())
etcd.stop()
finish()
