# SPDX-License-Identifier: Apache-2.0
"""Three daemons and a real etcd: cluster_nodes.py FOLDER."""
import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until
from etcd import Etcd, Wire, end_with_test

folder = sys.argv[1]
first = free_ports(20)
etcd = Etcd(folder, first)
wire = Wire(etcd.urls)  # between c and etcd
KEY, NODE_KEY = {"Authorization": "Bearer for-all"}, "0123456789abcdef-of-the-nodes"
with open(f"{folder}/key", "w", encoding="utf-8") as file:
    file.write(NODE_KEY + "\n")
os.chmod(f"{folder}/key", 0o600)
MODELS = {"a": ["x", "both"], "b": ["y", "both"], "c": ["z"]}
PORTS = {"a": first + 4, "b": first + 8, "c": first + 12, "d": first + 16}
GRACE = {"a": "120s", "b": "120s", "c": "1s", "d": "120s"}  # c alone forgets soon
MORE = {"b": ", aliases: [why], filters: {setParams: {temperature: 0.25}}"}


started = []
end_with_test(started, etcd)


class Node(Daemon):
    def __init__(self, name, url=etcd.urls, where=None, config="", models=None):
        self.name = name
        models = MODELS[name] if models is None else models
        lines = "".join(f'  {m}: {{cmd: "{ENGINE} --name {name}-{m}"{MORE.get(name, "") if m == "y" else ""}}}\n' for m in models)
        super().__init__(f"{folder}/{where or name}", f"startPort: {PORTS[name]}\napiKeys: [for-all]\nmodels:\n{lines}"
                         f"groups: {{all: {{swap: false, members: [{', '.join(models)}]}}}}\nmedusa: {{cluster: {{key_file: {folder}/key, lease_grace: {GRACE[name]}}}}}\n{config}",
                         "--cluster", url, "--node", name, env={"MEDUSA_LOG": "debug"})
        started.append(self)

    def ask(self, method, path, body=None, headers=None):
        return super().ask(method, path, body, KEY if headers is None else {**KEY, **headers} if "Authorization" not in headers else headers)

    def bare(self, model, **headers):
        """A request without a key of a client."""
        return super().ask("POST", "/v1/chat/completions", {"model": model, "messages": []}, {k.replace("_", "-"): v for k, v in headers.items()})

    def nodes(self):
        return {n["node"]: n["state"] for n in self.tell("cluster", "nodes")["nodes"]}

    def places(self):
        return {m["model"]: {n["node"]: n["place"] for n in m["nodes"]} for m in self.tell("cluster", "models")["models"]}

    def metric(self, name):
        found = re.search(rf"^medusa_worker_cluster_{name} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return found and float(found[1])


def who(reply):
    return reply.status, reply.json.get("name")


def has_node_headers(names):
    return any(name.lower().startswith("x-medusa") for name in names)


a, b, c = Node("a", config='peers: {p: {proxy: "http://127.0.0.1:1", models: [far]}}'), Node("b"), Node("c", wire.url)
ALL = {"a": "ready", "b": "ready", "c": "ready"}
for node in (a, b, c):
    until(f"{node.name} knows all nodes", lambda n=node: n.nodes() == ALL)

# ---- a request goes where its model is ----
for node in (a, b, c):
    for owner, model in (("a", "x"), ("b", "y"), ("c", "z")):
        check(f"{model}, asked at {node.name}", (200, f"{owner}-{model}"), who(node.chat(model)))
r = a.chat("y", max_tokens=3, secret="s")
check("the node that computes it filters it", {"model": "y", "messages": [], "max_tokens": 3, "secret": "s", "temperature": 0.25}, r.json.get("asked"))
seen = {k.lower(): v for k, v in r.json.get("headers", {}).items()}
check("no header of the cluster, and no key, reaches an engine", (False, None, None), (has_node_headers(seen), seen.get("authorization"), seen.get("x-api-key")))
check("by an alias of that node", (200, "b-y"), who(c.chat("why")))
r = a.chat("y", stream=True, max_tokens=7)
check("a stream", (200, 7), (r.status, len([e for e in r.events if "choices" in e])))
r = a.get("/v1/audio/voices?model=y&x=1")
check("by the query", (200, "/v1/audio/voices?model=y&x=1"), (r.status, r.json.get("path")))
r = a.get("/upstream/y/health")
check("an engine of another node by its path", 200, r.status)
check("nobody has it", 404, a.chat("nothing").status)
for node in (a, b, c):
    names = [m["id"] for m in node.get("/v1/models").json["data"]]
    check(f"{node.name} lists every model once", ["both", "x", "y", "z"], sorted(n for n in names if n != "p/far"))
    check(f"{node.name} shows one of another node", 200, node.get("/v1/models/y").status)

# ---- where the first token is expected first ----
check("both, which neither a nor b has loaded, at b", "b-both", b.chat("both").json.get("name"))
until("all know that", lambda: all(n.places().get("both") == {"a": "disk", "b": "gpu"} for n in (a, c)))
check("it is loaded at b, so a asks b", "b-both", a.chat("both").json.get("name"))
check("and c, too", "b-both", c.chat("both").json.get("name"))

# ---- who is believed ----
NODE = {"X-Medusa-Node": "b"}
check("without any key", 401, a.bare("x").status)
check("with the nodes' key", (200, "a-x"), who(a.bare("x", X_Medusa_Node="b", X_Medusa_Node_Key=NODE_KEY)))
check("with another one", 401, a.bare("x", X_Medusa_Node="b", X_Medusa_Node_Key=NODE_KEY[:-1]).status)
check("a node's request is not passed on", 404, a.bare("y", X_Medusa_Node="b", X_Medusa_Node_Key=NODE_KEY).status)
check("nor to a peer", (404, 502), (a.bare("far", X_Medusa_Node="b", X_Medusa_Node_Key=NODE_KEY).status, a.chat("far").status))
check("who only says that it is a node is a client", (200, "b-y"),
      who(a.ask("POST", "/v1/chat/completions", {"model": "y", "messages": []}, {**KEY, **NODE})))

# ---- state, not requests, goes into etcd ----
before, began = b.metric("writes_total"), time.monotonic()
for _ in range(150):
    b.chat("y")
check("writes are bounded by time, whatever is asked", lambda more: more <= (time.monotonic() - began) / 0.2 + 1, b.metric("writes_total") - before)
check("no key is in etcd", False, "for-all" in etcd.run("get", "--prefix", "/").stdout or NODE_KEY in etcd.run("get", "--prefix", "/").stdout)
check("nor in a log", False, any(NODE_KEY in n.stderr() for n in (a, b, c)))

# ---- a name that is taken ----
clash = Node("a", where="clash", models=["w"])
check("the name of a node that lives", 4, clash.process.wait(PATIENCE))
check("who has it", True, f"another node, at http://127.0.0.1:{a.port}, has the name a in the cluster: say --node NAME" in clash.stderr())
check("that node is still there", ALL, b.nodes())


# ---- a node is killed ----
def asks(node, model, count=30):
    return [who(node.chat(model)) for _ in range(count)]




def watched(port):
    """Whether the system looks after a connection to this port that carries nothing (/proc/net/tcp: timer 2)."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        return any(words[2].endswith(f":{port:04X}") and words[3] == "01" and words[5].startswith("02:") for words in map(str.split, file))


held = Held(c, "both")
until("b computes it", lambda: a.places()["both"]["b"] == "gpu" and "medusa_worker_cluster_requests_open{node=\"b\"} 1" in c.get("/metrics").body.decode())
until("a node that vanished without a word would be noticed", lambda: watched(b.port))
connection = c.connect()
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "y", "stream": True, "raw": {
    "status": 200, "headers": {"Content-Type": "text/event-stream"}, "pieces": ['data: {"a": 1}\n\n', "data: 2\n\n"], "after": f"{folder}/never"}}),
    {"Content-Type": "application/json", **KEY})
stream = connection.getresponse()
check("a stream begins", b'data: {"a": 1}\n', stream.readline())
record = etcd.get("/medusa/nodes/b")
b.process.kill()
b.process.wait(PATIENCE)
check("each request is answered meanwhile", {(200, "a-both")}, set(asks(c, "both")))
check("one that had no byte is answered once, elsewhere", [(200, "a-both")], [who(r) for r in held.let_go().wait()])
check("a stream that had begun ends with an error", True, b'"code":"peer_failed"' in stream.read())
check("it was tried again", True, c.metric("retries_total") >= 1)
r = c.chat("y")
check("a model that it alone had", lambda got: got in ((502, "peer_failed"), (503, "node_unreachable"), (404, "model_not_found")), (r.status, r.json.get("error", {}).get("code")))
etcd.run("put", "/medusa/nodes/b", record.strip())  # without a lease, so that it does not go by itself


def created():
    return json.loads(etcd.run("get", "-w", "json", "/medusa/nodes/b").stdout)["kvs"][0]["create_revision"]


before = created()
b = Node("b")
check("it begins anew in the place of its own record", (True, before), (b.port != 0, created()))
for node in (a, b, c):
    until(f"{node.name} knows that", lambda n=node: n.nodes() == ALL and n.chat("y").status == 200)
b.process.kill()
b.process.wait(PATIENCE)
until("a node that does not come back is known when its lease ends", lambda: a.nodes() == {**ALL, "b": "lease ended"})
check("all say so", (2, ["b"]), tuple(a.get("/api/status").json["cluster"][key] for key in ("nodes", "lease_ended")))
check("in words", True, "2 nodes, and 1 whose lease has ended" in a.ctl("cluster", "status").stdout)
check("in metrics", (2.0, 1.0), (a.metric("nodes"), a.metric("nodes_lease_ended")))
check("its models are listed", (True, 200), ("y" in [m["id"] for m in a.get("/v1/models").json["data"]], a.get("/v1/models/y").status))
check("another node is named for what that has, too", "a", next(m["meta"]["llamaswap"]["nodeID"] for m in c.get("/v1/models").json["data"] if m["id"] == "both"))
check("what others have is asked of them", (200, "a-both"), who(a.chat("both")))
r = a.chat("y")
check("its model is not gone, but can't be reached", (503, "node_unreachable", True),
      (r.status, r.json.get("error", {}).get("code"), r.headers.get("retry-after", "").isdigit()))
check("which", True, 'model y is on node b alone, whose lease has ended: ' in r.body.decode())
until("it is forgotten when its grace is over", lambda: c.nodes() == {"a": "ready", "c": "ready"})
check("its model is nowhere then", (404, "model_not_found"), (lambda r: (r.status, r.json["error"]["code"]))(c.chat("y")))
b = Node("b")
until("it is back", lambda: all(n.nodes() == ALL for n in (a, b, c)))

# ---- a node hangs ----
b.chat("both")
until("both is loaded at b", lambda: c.places()["both"].get("b") == "gpu")
a.ask("POST", "/api/models/unload/both")
until("and not at a", lambda: c.places()["both"].get("a") == "disk")
held = Held(c, "both")
until("b computes it", lambda: "medusa_worker_cluster_requests_open{node=\"b\"} 1" in c.get("/metrics").body.decode())
b.process.send_signal(signal.SIGSTOP)
until("its lease ends", lambda: c.nodes() == {"a": "ready", "c": "ready"} and a.nodes()["b"] == "lease ended")
r = a.chat("y")
check("what it alone has can't be reached, which takes a second to know", (503, "node_unreachable"), (r.status, r.json.get("error", {}).get("code")))
check("requests go on", {(200, "a-both")}, set(asks(c, "both", 5)))
check("the one that was there is answered elsewhere", [(200, "a-both")], [who(r) for r in held.let_go().wait()])
time.sleep(3)  # for so long a has its own doubts about b, which has just not answered
a.ask("POST", "/api/models/unload/both")
until("b had it loaded, and a has not", lambda: {k: v for k, v in a.places()["both"].items() if k != "c"} == {"a": "disk", "b": "gpu"})
retries = a.metric("retries_total")
check("a node whose lease has ended is tried last", ((200, "a-both"), retries), (who(a.chat("both")), a.metric("retries_total")))
b.process.send_signal(signal.SIGCONT)
until("it goes on with another lease", lambda: all(n.nodes() == ALL for n in (a, b, c)) and b.metric("leases_total") == 2)
check("it says so", True, "lease has ended although the node lives" in b.stderr())

# ---- a lease ends while its node lives; a key is removed ----
leases = b.metric("leases_total")
found = json.loads(etcd.run("get", "-w", "json", "/medusa/nodes/b").stdout)["kvs"][0]
etcd.run("lease", "revoke", f"{found['lease']:x}")
until("another lease", lambda: b.metric("leases_total") == leases + 1 and a.nodes() == ALL)
etcd.run("del", "/medusa/nodes/b")
until("a key that somebody has removed is put again", lambda: b"identity" in etcd.get("/medusa/nodes/b").encode() and all(n.nodes() == ALL for n in (a, b, c)))
check("requests go on", (200, "b-y"), who(a.chat("y")))

# ---- what others write ----
etcd.run("put", "/medusa/nodes/later", '{"format": 2}')
etcd.run("put", "/medusa/nodes/odd", "{")
etcd.run("put", "/medusa/states/odd", "[]")
etcd.run("put", "/medusa/states/b", '{"format": 1, "models": {"y": {"place": "moon", "first_token_s": [-1, 1e99, "x"], "waiting": -5}, "none": 3}}')
etcd.run("put", "/medusa/wishes/odd", '{"wish": 3}')
etcd.run("put", "/medusa/wishes/b", '{"format": 2, "wish": "drain"}')
for name in ("a b", "-", os.fsdecode(b"\xff"), "\x1b[2J", "b/more"):  # no node can be called so
    etcd.run("put", f"/medusa/nodes/{name}", '{"format": 2}')
etcd.run("put", "/medusa/other", "x")
until("records of another format, or of none, are left out", lambda: a.nodes() == {**ALL, "later": "unreadable", "odd": "unreadable"})
why = {n["node"]: n["why"] for n in a.tell("cluster", "nodes")["nodes"]}
check("why", "format: 2, and this version reads 1", why["later"])
until("so is a wish of another format", lambda: "what node b is wanted to do (wishes/b) is left out: format: 2, and this version reads 1: this node has to be of a later version" in b.stderr())
check("it is not obeyed", "ready", b.nodes()["b"])
check("requests go on", (200, "b-y"), who(a.chat("y")))
for key in ("nodes/later", "nodes/odd", "states/odd", "wishes/odd", "wishes/b", "other"):
    etcd.run("del", f"/medusa/{key}")
until("they are gone", lambda: a.nodes() == ALL)

def put(key, value):
    question = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()}
    urllib.request.urlopen(f"{etcd.urls}/v3/kv/put", json.dumps(question).encode(), PATIENCE).close()


# ---- wishes ----
check("cordon", 0, a.ctl("cluster", "cordon", "b").returncode)
until("b obeys", lambda: all(n.nodes() == {**ALL, "b": "cordoned"} for n in (a, b, c)))
check("others go elsewhere", "a-both", c.chat("both").json.get("name"))
check("what b alone has is asked of b", "b-y", c.chat("y").json.get("name"))
check("uncordon", 0, b.ctl("cluster", "uncordon", "b").returncode)
until("b is ready", lambda: a.nodes() == ALL)
check("drain", 0, c.ctl("cluster", "drain", "b").returncode)
until("b obeys", lambda: all(n.nodes() == {**ALL, "b": "draining"} for n in (a, b, c)))
check("its clients are served by others", "a-both", b.chat("both").json.get("name"))
for node in (a, b):
    r = node.chat("y")
    check(f"what it alone has, asked at {node.name}", (503, "draining"), (r.status, r.json.get("error", {}).get("code")))
b.process.kill()
b.process.wait(PATIENCE)
b = Node("b")
until("a wish outlives the daemon", lambda: a.nodes() == {**ALL, "b": "draining"})
check("uncordon", 0, a.ctl("cluster", "uncordon", "b").returncode)
until("b is ready", lambda: all(n.nodes() == ALL for n in (a, b, c)))
check("and serves", "b-y", a.chat("y").json.get("name"))
r = a.ctl("cluster", "drain", "nobody")
check("a node that there isn't", (3, True), (r.returncode, 'the cluster has no node "nobody"' in r.stderr))
check("a word that means nothing", 2, a.ctl("cluster", "dance").returncode)
check("a node too few", 2, a.ctl("cluster", "drain").returncode)
wire.first = ("/medusa/wishes/b", lambda: put("/medusa/wishes/b", '{"format": 1, "wish": "cordon"}'))
r = c.ctl("cluster", "drain", "b")
wire.first = None
check("somebody else wishes something meanwhile", (1, True), (r.returncode, '/medusa/wishes/b has been changed meanwhile by somebody else, to {"format": 1, "wish": "cordon"}' in r.stderr))
until("that is obeyed", lambda: a.nodes() == {**ALL, "b": "cordoned"})
wire.first = ("/medusa/wishes/b", lambda: put("/medusa/wishes/b", '{"format": 1, "wish": "drain"}'))
check("the same wish of two is no contradiction", 0, c.ctl("cluster", "drain", "b").returncode)
wire.first = ("/medusa/wishes/b", lambda: put("/medusa/wishes/b", '{"format": 1, "wish": "cordon"}'))
check("nor is one taken back that has been changed meanwhile", 1, c.ctl("cluster", "uncordon", "b").returncode)
wire.first = None
check("uncordon", [0, 0], [c.ctl("cluster", "uncordon", "b").returncode for _ in range(2)])
until("b is ready", lambda: all(n.nodes() == ALL for n in (a, b, c)))
for word in ("status", "nodes", "models"):
    check(f"cluster {word} in words", (0, True), (lambda r: (r.returncode, "a" in r.stdout.split()))(a.ctl("cluster", word)))
check("status", ("a", "joined", True, 3), tuple(a.tell("cluster", "status")[k] for k in ("node", "state", "reached", "nodes")))

# ---- the history is compacted, and a watch begins before it ----
revision = json.loads(etcd.run("get", "-w", "json", "/medusa/nodes/a").stdout)["header"]["revision"]
etcd.run("compact", str(revision))
wire.early = True
wire.cut()
until("c has read everything anew", lambda: "was compacted" in c.stderr() and c.metric("current") == 1)
a.ask("POST", "/api/models/unload/x")
until("and sees what changes", lambda: c.places().get("x") == {"a": "disk"})

# ---- what c has sent long ago comes late, as by a member of etcd that hung ----
def late(write):
    with urllib.request.urlopen(f"{etcd.urls}/v3/kv/txn", write, PATIENCE) as answer:
        return json.load(answer).get("succeeded", False)


c.ask("POST", "/api/models/unload/z")
until("z is on the disk", lambda: a.places()["z"] == {"c": "disk"})
c.ask("POST", "/api/models/load/z")
until("z is on the GPU", lambda: a.places()["z"] == {"c": "gpu"})
sent = wire.write
c.ask("POST", "/api/models/unload/z")
until("z is on the disk", lambda: a.places()["z"] == {"c": "disk"})
told = etcd.get("/medusa/states/c")
check("it does not stand in the place of what came after it", (False, told), (late(sent), etcd.get("/medusa/states/c")))
etcd.run("put", "/medusa/states/c", "{}")
c.ask("POST", "/api/models/load/z")
until("what somebody else has written there goes with the next change", lambda: a.places()["z"] == {"c": "gpu"})

# ---- a node is cut off from etcd, and not from the others ----
held = Held(a, "z")
until("c computes it", lambda: "medusa_worker_cluster_requests_open{node=\"c\"} 1" in a.get("/metrics").body.decode())
wire.hangs = True
until("c's lease ends", lambda: a.nodes() == {**ALL, "c": "lease ended"})
check("it lives, and is asked for what it alone has", (200, "c-z"), who(a.chat("z")))
until("c says so", lambda: c.get("/health").body.startswith(b"OK; the cluster is as it was known last: etcd at "))
check("c serves its own clients", (200, "c-z"), who(c.chat("z")))
check("and goes on asking others", (200, "a-x"), who(c.chat("x")))
check("a request at a node that answers may end", [(200, "c-z")], [who(r) for r in held.let_go().wait()])
wire.hangs = False
until("c is back", lambda: all(n.nodes() == ALL for n in (a, b, c)) and c.get("/health").body == b"OK")

# ---- etcd is stopped ----
a.ask("POST", "/api/models/unload/both")
b.ask("POST", "/api/models/load/both")
until("c knows that b has both loaded", lambda: c.places()["both"] == {"a": "disk", "b": "gpu"})
etcd.stop()
for node in (a, b, c):
    until(f"{node.name} knows", lambda n=node: n.metric("etcd_reached") == 0)
    check(f"{node.name} says so", (200, True), (lambda r: (r.status, r.body.startswith(b"OK; the cluster is as it was known last: ")))(node.get("/health")))
    for owner, model in (("a", "x"), ("b", "y"), ("c", "z")):
        check(f"{model}, asked at {node.name}", (200, f"{owner}-{model}"), who(node.chat(model)))
    check(f"{node.name} changes nothing", ALL, node.nodes())
retries = c.metric("retries_total")
check("b takes no requests, which c can't know", 0, b.ctl("drain").returncode)
check("b says so, and a computes it", (200, "a-both"), who(c.chat("both")))
check("it was tried again", retries + 1, c.metric("retries_total"))
check("resume", 0, b.ctl("resume").returncode)
r = a.ctl("cluster", "drain", "b")
check("a wish can't be written", (True, True), (r.returncode != 0, "etcd at" in r.stderr))
check("it was said once", 1, a.stderr().count("etcd cannot be reached"))
d = Node("d", models=["v"])
check("a node that begins meanwhile serves alone", (200, "d-v"), who(d.chat("v")))
b.process.kill()
b.process.wait(PATIENCE)
check("without etcd, too, a node that is dead is left out", (200, "a-both"), who(c.chat("both")))
b = Node("b")
etcd.start()
for node in (a, b, c, d):
    until(f"{node.name} is in the cluster", lambda n=node: n.metric("etcd_reached") == 1 and n.nodes() == {**ALL, "d": "ready"})
check("the newcomer is asked", (200, "d-v"), who(c.chat("v")))
check("it was said once that etcd is back", 1, a.stderr().count("etcd is reached again"))

# ---- reload; leaving ----
config = open(f"{folder}/d/config.yaml", encoding="utf-8").read()
d.write_config(config.replace("  v: {", "  u: {").replace("[v]", "[u]"))
check("reload", 0, d.ctl("reload").returncode)
until("all know its new model", lambda: c.chat("u").status == 200 and c.chat("v").status == 404)
stop, replies = threading.Event(), []
asking = threading.Thread(target=lambda: [replies.append(who(c.chat("both"))) for _ in iter(stop.is_set, True)])
asking.start()
check("a node ends", 0, b.stop())
until("all know at once", lambda: a.nodes() == {"a": "ready", "c": "ready", "d": "ready"})
stop.set()
asking.join()
check("no request was lost", {200}, {status for status, _ in replies})
check("its keys are gone", "", etcd.get("/medusa/nodes/b") + etcd.get("/medusa/states/b"))
for node in (a, c, d):
    check(f"{node.name} ends", 0, node.stop())
etcd.stop()
for node in (a, b, c, d):
    check(f"{node.name}: no sanitizer has spoken", False, "Sanitizer" in node.stderr())
finish()
