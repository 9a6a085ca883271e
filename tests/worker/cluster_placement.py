# SPDX-License-Identifier: Apache-2.0
"""A leader places models on three daemons: cluster_placement.py FOLDER. One real etcd; engines that say which they are."""
import json
import re
import signal
import sys
import time

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until
from etcd import Etcd, Wire, end_with_test

folder = sys.argv[1]
first = free_ports(20)
etcd = Etcd(folder, first)
wire = Wire(etcd.urls)  # between c and etcd
PORTS = {"a": first + 4, "b": first + 8, "c": first + 12}
DOMAINS = {"a": "rack1", "b": "rack1", "c": "rack2"}
started = []
end_with_test(started, etcd)


class Node(Daemon):
    """spread is on all nodes, two of which are to have it; hot and large are everywhere, too; own is a's alone."""

    def __init__(self, name, url=etcd.urls, placement=True):
        self.name = name
        models = [("spread", "min_nodes: 2, memory: 10GB"), ("hot", "memory: 10GB"), ("large", "memory: 60GB")] + ([("own", "memory: 10GB")] if name == "a" else [])
        lines = "".join(f'  {m}: {{cmd: "{ENGINE} --name {name}-{m}", medusa: {{{keys}}}}}\n' for m, keys in models)
        gpus = "gpus: [{memory: 70GB}]"
        super().__init__(f"{folder}/{name}", f"startPort: {PORTS[name]}\nmodels:\n{lines}groups: {{all: {{swap: false, members: [{', '.join(m for m, _ in models)}]}}}}\n"
                         f"medusa: {{{gpus}, cluster: {{domain: {DOMAINS[name]}, placement: {'true' if placement else 'false'}}}}}\n",
                         "--cluster", url, "--node", name, env={"MEDUSA_LOG": "debug"})
        started.append(self)

    def status(self):
        return self.tell("cluster", "status")

    def models(self):
        return {m["model"]: {n["node"]: n for n in m["nodes"]} for m in self.tell("cluster", "models")["models"]}

    def placed(self, model):
        return {node: place["placed"] for node, place in self.models()[model].items() if place["placed"]}

    def places(self, model):
        return {node: place["place"] for node, place in self.models()[model].items()}

    def nodes(self):
        return {n["node"]: n["state"] for n in self.tell("cluster", "nodes")["nodes"]}

    def metric(self, name):
        found = re.search(rf"^medusa_worker_cluster_{name} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return found and float(found[1])


c = Node("c", wire.url)
until("who is alone leads", lambda: c.status()["leads"])
a, b = Node("a"), Node("b")
ALL = {"a": "ready", "b": "ready", "c": "ready"}
everyone = {"a": a, "b": b, "c": c}
for node in everyone.values():
    until(f"{node.name} knows all", lambda n=node: n.nodes() == ALL)


def leader(nodes=None):
    said = {n.status()["leader"] for n in (nodes or everyone.values())}
    return said.pop() if len(said) == 1 else None


# ---- one of them leads ----
until("all know who leads", lambda: leader() in everyone)
check("one leads, and the others know that they don't", [leader()], [n.name for n in everyone.values() if n.status()["leads"]])
check("the metric", {name: float(name == leader()) for name in everyone}, {name: n.metric("leads") for name, n in everyone.items()})
check("in words", True, f"leader: {leader()}" in a.ctl("cluster", "status").stdout)

# ---- minimum copies, in different domains ----
until("spread is placed in both domains", lambda: set(a.placed("spread").values()) == {"kept"} and len(a.placed("spread")) == 2 and "c" in a.placed("spread"))
kept = [n for n in a.placed("spread") if n != "c"][0]
until("and loaded there, without any request", lambda: all(n.places("spread")[kept] == n.places("spread")["c"] == "gpu" for n in everyone.values()))
check("nowhere else", {"disk"}, {place for node, place in a.places("spread").items() if node not in (kept, "c")})
check("what nobody asks for is placed nowhere", {}, a.placed("hot"))

# ---- what is asked for is loaded ahead on the node that is to have it ----
check("hot", 200, a.chat("hot").status)
until("it is wanted where it is", lambda: list(a.placed("hot").values()) == ["wanted"] and a.places("hot")[list(a.placed("hot"))[0]] == "gpu")
where = list(a.placed("hot"))[0]
everyone[where].ask("POST", "/api/models/unload/hot")
time.sleep(2.5)
check("a user who unloads it at its node is obeyed", "disk", a.places("hot")[where])

# ---- a user moves a model ----
target = [n for n in everyone if n != where][0]
check("move", 0, a.ctl("cluster", "move", "hot", target).returncode)
until("it is kept there, and nowhere else", lambda: a.placed("hot") == {target: "kept"})
until("and loaded", lambda: a.places("hot")[target] == "gpu")
check("all say that it was moved", {True}, {n.models()["hot"][target]["moved"] for n in everyone.values()})
check("in words", True, re.search(rf"{target} .*kept, moved here", b.ctl("cluster", "models").stdout) is not None)
check("release", 0, b.ctl("cluster", "release", "hot").returncode)
until("the leader places it again", lambda: a.placed("hot").get(target) != "kept")
for words, code, said in ((("move", "hot", "nobody"), 3, 'the cluster has no node "nobody"'), (("move", "nothing", "a"), 3, 'node a has no model "nothing"'),
                          (("move", "own", "b"), 3, 'node b has no model "own"'), (("release", "own"), 3, "model own was not moved"),
                          (("move", "hot"), 2, "give a model and the name of a node"), (("release",), 2, "give one model")):
    r = c.ctl("cluster", *words)
    check(f"cluster {' '.join(words)}", (code, True), (r.returncode, said in r.stderr))

# ---- a node that takes nothing ----
check("cordon", 0, a.ctl("cluster", "cordon", "c").returncode)
until("spread leaves the node that is cordoned", lambda: sorted(a.placed("spread")) == ["a", "b"])
until("and is loaded elsewhere", lambda: a.places("spread")["a"] == a.places("spread")["b"] == "gpu")
check("uncordon", 0, a.ctl("cluster", "uncordon", "c").returncode)
until("it comes back to the other domain", lambda: "c" in a.placed("spread") and len(a.placed("spread")) == 2)

# ---- an order that comes when another one leads is not carried out ----
check("c leads still", True, c.status()["leads"])
wire.first = ("/medusa/placements/a", lambda: etcd.run("del", "--prefix", "/medusa/leader/"))
check("move", 0, b.ctl("cluster", "move", "large", "a").returncode)
until("the leader learns that it was none any more", lambda: "this node leads no longer: another node was elected meanwhile" in c.stderr())
wire.first = None
until("the new leader places it", lambda: leader() in everyone and a.placed("large") == {"a": "kept"})
check("release", 0, b.ctl("cluster", "release", "large").returncode)
until("it is placed no more", lambda: a.placed("large").get("a") != "kept")

# ---- the leader hangs, and then dies ----
old = leader()
others = [n for n in everyone.values() if n.name != old]
writes = etcd.get(f"/medusa/placements/{others[0].name}")
everyone[old].process.send_signal(signal.SIGSTOP)
until("another one leads", lambda: leader(others) in {n.name for n in others})
new = leader(others)
everyone[old].process.send_signal(signal.SIGCONT)
until("the old leader knows that it leads no longer", lambda: everyone[old].nodes() == ALL and not everyone[old].status()["leads"] and leader() == new)
everyone[new].process.kill()
everyone[new].process.wait(PATIENCE)
rest = [n for n in everyone.values() if n.name != new]
until("the next one leads", lambda: leader(rest) in {n.name for n in rest})
until("what it kept is kept by the others", lambda: sorted(rest[0].placed("spread")) == sorted(n.name for n in rest))
until("and is loaded there", lambda: all(rest[0].places("spread")[n.name] == "gpu" for n in rest))
last = everyone[leader(rest)]

# ---- an order of a leader that is none any more, and keys that are none ----
etcd.run("put", "/medusa/placements/" + rest[0].name, '{"format": 1, "models": {"large": "kept"}}')
until("what somebody else writes there is put right", lambda: '"large"' not in etcd.get("/medusa/placements/" + rest[0].name))
for key, value in (("placements/zz", '{"format": 1, "models": {"hot": "kept"}}'), ("placements/yy", "{}"), ("placements/..", "1"), ("pins/hot", '{"format": 1, "node": 5}'), ("pins/", "x"), ("leader/0", "no name!"), ("pins/spread", '{"format": 2, "node": "a"}')):
    etcd.run("put", "/medusa/" + key, value)
until("a node that is not there keeps no placement", lambda: etcd.get("/medusa/placements/zz") == "")
check("nonsense in etcd harms nobody", (200, 200), (rest[0].chat("hot").status, rest[1].chat("spread").status))

# ---- etcd is lost: nobody leads anew, and nothing changes ----
before = {n.name: n.placed("spread") for n in rest}
for member in etcd.members:
    member.kill()
for node in rest:
    until(f"{node.name} says so", lambda n=node: n.metric("etcd_reached") == 0)
check("what was placed stays", before, {n.name: n.placed("spread") for n in rest})
check("and serves", 200, rest[0].chat("spread").status)
etcd.start()
until("etcd is back, and somebody leads", lambda: leader(rest) in {n.name for n in rest} and all(n.metric("etcd_reached") == 1 for n in rest))

# ---- a node without placement ----
everyone[new] = back = Node(new, placement=False)
until("it is in the cluster", lambda: back.nodes().get(new) == "ready")
check("it takes no part", (False, False), (back.status()["placement"], back.status()["leads"]))
time.sleep(2)
check("and gets nothing", None, back.placed("spread").get(new))
r = back.ctl("cluster", "move", "hot", new)
check("not by a user, either", (1, True), (r.returncode, "takes no part in placement" in r.stderr))
for node in (*rest, back):
    check(f"{node.name} ends", 0, node.stop())
check("the lease of whoever led is gone", "", etcd.run("get", "--prefix", "--keys-only", "/medusa/leader/6").stdout.strip())
finish()
