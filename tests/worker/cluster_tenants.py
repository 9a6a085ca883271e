# SPDX-License-Identifier: Apache-2.0
"""Quotas and shares of tenants over the nodes of a cluster, by a real etcd, as engines see them: cluster_tenants.py FOLDER."""
import json
import os
import signal
import sys
import threading
import time

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until
from etcd import Etcd, Wire, end_with_test

folder = sys.argv[1]
first = free_ports(24)
etcd = Etcd(folder, first)
wire = Wire(etcd.urls)  # between c and etcd
spans = f"{folder}/spans"
PORTS = {"a": first + 4, "b": first + 8, "c": first + 12, "d": first + 16, "e": first + 20}
QUOTA, HOLD = 6, 4
with open(f"{folder}/key", "w", encoding="utf-8") as file:
    file.write("0123456789abcdef-of-the-nodes\n")
os.chmod(f"{folder}/key", 0o600)
started = []
end_with_test(started, etcd)


class Node(Daemon):
    """Each has a model of its own, so a request is computed where it is asked."""

    def __init__(self, name, url=etcd.urls, where=None, hold=HOLD, gold=f"cluster_max_running: {QUOTA}, cluster_max_waiting: 60"):
        self.name = name
        super().__init__(f"{folder}/{where or name}", f"""
startPort: {PORTS[where or name]}
apiKeys: [common]
medusa: {{gpus: [{{memory: 100MB}}], adopt_time: 1s, cluster: {{key_file: {folder}/key, quota_hold: {hold}s, lease_grace: 2s}},
  tenants: [{{name: gold, keys: [g], {gold}}}, {{name: red, keys: [r]}}, {{name: blue, keys: [b]}}]}}
models:
  m-{name}: {{cmd: "{ENGINE} --name {name} --spans {spans}", concurrencyLimit: 200, medusa: {{memory: 10MB, swap: off}}}}
  one-{name}: {{cmd: "{ENGINE} --name one --spans {spans}", concurrencyLimit: 200, medusa: {{memory: 10MB, swap: off, max_batch: 1}}}}
groups: {{all: {{swap: false, members: [m-{name}, one-{name}]}}}}
""", "--cluster", url, "--node", name)
        started.append(self)

    def gold(self, key="g", model=None, **more):
        return self.ask("POST", "/v1/chat/completions", {"model": model or f"m-{self.name}", "messages": [], "id": "gold", **more}, {"Authorization": f"Bearer {key}"})

    def tenants(self):
        return {t["tenant"]: t for t in self.tell("cluster", "tenants").get("tenants", [])}

    def shares(self):
        """What each node may run of gold, as etcd has it."""
        return {n["node"]: n["share_running"] or 0 for n in self.tenants().get("gold", {"nodes": []})["nodes"]}


class Load:
    """So many clients that ask one after the other, until stop()."""

    def __init__(self, node, count, key="g", **more):
        self.node, self.going, self.statuses, self.more, self.key = node, True, [], more, key
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while self.going:
            try:
                status = self.node.gold(self.key, wait=0.03, **self.more).status
            except OSError:  # its daemon was killed
                status = 0
            self.statuses.append(status)
            if status != 200:
                time.sleep(0.05)

    def served(self):
        return self.statuses.count(200)

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join(PATIENCE)
        return self


def read_spans():
    """(time, +1 or -1) of all requests of gold at all engines, by time."""
    with open(spans, encoding="utf-8") as lines:
        found = [line.split() for line in lines]
    return sorted((int(at), 1 if what == "+" else -1) for at, what, name in found if name == "gold")


def most_at_once(since=0):
    """Of all engines together, at any moment since then."""
    running = most = 0
    for at, step in read_spans():
        running += step
        most = max(most, running) if at >= since else most
    return most


def now():
    return time.monotonic_ns()


def uses_all(since):
    """Engines have run the whole quota at once since then."""
    return most_at_once(since=since) >= QUOTA


nodes = {name: Node(name, wire.url if name == "c" else etcd.urls) for name in "abc"}
a, b, c = nodes.values()
until("the quota is divided", lambda: sorted(a.shares().values()) == [2, 2, 2])
for node in nodes.values():
    check(f"{node.name} serves", [200, 200], [node.gold().status, node.gold("common", f"one-{node.name}", id="none").status])

# ---- load at three nodes at once, then at one ----
loads = [Load(node, 8) for node in nodes.values()]
began = now()
until("all of it is used", lambda: uses_all(began))
time.sleep(2)
check("every node serves", True, all(load.served() > 10 for load in loads))
until("waiting for quota is to be seen", lambda: a.tenants()["gold"]["held"] > 0)
text = a.ctl("cluster", "tenants").stdout
check(f"in words: {text}", True, f" of {QUOTA}" in text and "gold" in text and " of 60" in text)
check("metrics", lambda value: value in (1, 2, 3), int(next(line for line in a.ask("GET", "/metrics", headers={"Authorization": "Bearer common"}).body.decode().splitlines()
                                               if line.startswith('medusa_worker_cluster_tenant_share_running{tenant="gold"}')).rsplit(" ", 1)[1]))
# ---- somebody removes the quota's key, or writes nonsense into it ----
etcd.must("put", "/medusa/quotas/gold", '{"format": 1, "limits": {"running": "many"}}')
until("it is said", lambda: "the quota is not divided: remove the key" in b.stderr())
check("shares stay as they are", [200] * 3, [node.gold().status for node in nodes.values()])
etcd.must("put", "/medusa/quotas/gold", '{"format": 1, "limits": {"running": 0}, "nodes": {}}')
until("nor is a limit of 0 one, of which the configuration knows nothing", lambda: "limits: integers from 1 to 1000000000 in running and waiting are wanted" in c.stderr())
check("nobody is stopped by it", [200] * 3, [node.gold().status for node in nodes.values()])
etcd.must("del", "/medusa/quotas/gold")
until("it is divided again", lambda: sum(b.shares().values()) == QUOTA)

# ---- a record that no configuration can have made ----
FORGED = {"format": 1, "identity": "f" * 32, "url": "http://127.0.0.1:9", "models": [], "gpus": []}


def forge(tenant, **more):
    etcd.must("put", "/medusa/nodes/forged", json.dumps({**FORGED, "tenants": {"gold": tenant}, **more}))


forge({"max_running": 0, "weight": 1})
until("it is known", lambda: any(n["node"] == "forged" for n in a.tell("cluster", "nodes")["nodes"]))
time.sleep(1)
check("0 is no limit, as in the configuration", (QUOTA, [200] * 3), (a.tenants()["gold"]["max_running"], [node.gold().status for node in nodes.values()]))
for tenant, more, why in (({"max_running": -1}, {}, "tenants.gold.max_running: an integer from 0 to 1000000000 is wanted"), ({"max_waiting": 1.5}, {}, "tenants.gold.max_waiting: an integer"),
                          ({"max_running": 1000000001}, {}, "tenants.gold.max_running: an integer"), ({"weight": 0}, {}, "tenants.gold.weight: a number from 0.000001 to 1000000"), (3, {}, "tenants.gold.weight"),
                          ({}, {"gpus": [{"bytes": -1}]}, "gpus[0].bytes: an integer"), ({}, {"models": [{"id": "m", "first_token_s": [1, 1, 1], "min_nodes": 100001}]}, "models[0].min_nodes: an integer from 0 to 100000 is wanted"),
                          ({}, {"tenants": []}, "tenants: an object is wanted")):
    forge(tenant, **more)
    until(f"refused: {why}", lambda w=why: w in next(n["why"] or "" for n in a.tell("cluster", "nodes")["nodes"] if n["node"] == "forged"))
until("with what to do", lambda: "(nodes/forged) is left out: tenants: an object is wanted: remove the key from etcd, and whoever writes it writes it anew" in a.stderr())
check("the quota is what it was", (QUOTA, [200] * 3), (a.tenants()["gold"]["max_running"], [node.gold().status for node in nodes.values()]))
etcd.must("del", "/medusa/nodes/forged")
for key in ("weights/a", "placements/a", "pins/m-a", "wishes/a", "states/gone", f"ledgers/{'a' * 32}"):
    etcd.must("put", f"/medusa/{key}", "x")
for key, remedy in (("weights/a", "and whoever writes it"), ("placements/a", "and whoever writes it"), ("pins/m-a", "or give the order again"), ("wishes/a", "or give the order again"),
                    ("states/gone", "and whoever writes it"), (f"ledgers/{'a' * 32}", "and whoever writes it")):
    until(f"{key}: what to do is said", lambda k=key, r=remedy: any(k in line and "remove the key from etcd" in line and r in line for line in b.stderr().splitlines()))
    etcd.must("del", f"/medusa/{key}")

for load in loads[:2]:
    load.stop()
until("all of it goes to the one that asks", lambda: c.shares()["c"] >= QUOTA - 2)
loads[2].stop()

# ---- what runs keeps its part, although the share is lower ----
ends = f"{folder}/ends"
until("c may run all of it", lambda: c.shares()["c"] >= QUOTA - 1)
running = [threading.Thread(target=c.gold, kwargs={"until": ends}, daemon=True) for _ in range(QUOTA)]
for thread in running:
    thread.start()
until("c runs all of it", lambda: c.shares()["c"] == QUOTA and c.tenants()["gold"]["running"] == QUOTA)
loads.append(Load(a, 4))
until("c's share goes down", lambda: c.shares()["c"] <= QUOTA // 2 + 1)
time.sleep(1)
check("nobody else gets it before it is free", 0, loads[3].served())
with open(ends, "w", encoding="utf-8"):
    pass
until("then he does", lambda: loads[3].served() > 0)
loads[3].stop()
for thread in running:
    thread.join(PATIENCE)
check("nobody was refused", {200}, {status for load in loads for status in load.statuses})
check("never more than the quota", QUOTA, most_at_once())

# ---- the leader is killed ----
leader = nodes[a.tell("cluster", "status")["leader"]]
others = [node for node in nodes.values() if node is not leader]
loads = [Load(node, 8) for node in nodes.values()]
until("all have a share", lambda: sorted(others[0].shares().values()) == [2, 2, 2])
leader.process.kill()
leader.process.wait(PATIENCE)
killed = time.monotonic()
until("another one leads", lambda: others[0].tell("cluster", "status")["leader"] in [node.name for node in others])
held = {n["node"]: n["reserved_running"] for n in others[0].tenants()["gold"]["nodes"]}
check(f"what the dead one had is held back: {held}", True, held[leader.name] > 0 and sum(held.values()) <= QUOTA)
until("and given away at last", lambda: sum(others[0].shares().get(node.name, 0) for node in others) == QUOTA and leader.name not in others[0].shares())
check("not before it could be running by it", lambda took: took > 2 * HOLD + 2, time.monotonic() - killed)
nodes[leader.name] = Node(leader.name, wire.url if leader.name == "c" else etcd.urls)
check("it is back, and gets a share when it is asked", 200, nodes[leader.name].gold().status)
for load in loads:
    load.stop()
a, b, c = nodes.values()
check("never more than the quota, with a dead leader", QUOTA, most_at_once())

# ---- the leader hangs ----
leader = nodes[a.tell("cluster", "status")["leader"]]
others = [node for node in nodes.values() if node is not leader]
loads = [Load(node, 8) for node in nodes.values()]
until("all have a share", lambda: sorted(others[0].shares().values()) == [2, 2, 2])
leader.process.send_signal(signal.SIGSTOP)
until("another one leads", lambda: others[0].tell("cluster", "status")["leader"] in [node.name for node in others])
until("its share is given away", lambda: sum(others[0].shares().get(node.name, 0) for node in others) == QUOTA)
began = now()
until("and used", lambda: uses_all(began))
leader.process.send_signal(signal.SIGCONT)
until("it goes on, and gets a share again", lambda: others[0].shares().get(leader.name, 0) > 0)
time.sleep(1)
for load in loads:
    load.stop()
check("never more than the quota, with a leader that hung", QUOTA, most_at_once())

# ---- a node is cut off from etcd ----
loads = [Load(node, 8) for node in nodes.values()]
until("c has a share", lambda: a.shares().get("c", 0) > 0)
long = []
long_one = threading.Thread(target=lambda: long.append(c.gold(wait=3 * HOLD)))
long_one.start()
time.sleep(1)
wire.hangs = True
wire.cut()
cut, served = time.monotonic(), loads[2].served()
time.sleep(HOLD / 2)
check("c goes on with its share", True, loads[2].served() > served)
until("then it starts nothing more", lambda: c.tenants()["gold"]["lost_here"])
lost = now()
long_one.join(PATIENCE)
check("what still runs is broken off", (503, "quota_lost"), (long[0].status, long[0].json.get("error", {}).get("code")))
check("not before its time", lambda took: took > 2 * HOLD - 2, time.monotonic() - cut)
until("its share is given away", lambda: sum(a.shares().get(name, 0) for name in "ab") == QUOTA)
check("not before that", lambda took: took > 2 * HOLD, time.monotonic() - cut)
time.sleep(1)
served = loads[2].served()
time.sleep(1)
check("c serves nothing of it meanwhile", served, loads[2].served())
check("but others' requests", 200, c.gold("r", id="red").status)
wire.hangs = False
until("c has a share again", lambda: c.shares().get("c", 0) > 0 and not c.tenants()["gold"]["lost_here"])
until("and serves", lambda: loads[2].served() > served)
for load in loads:
    load.stop()
check("never more than the quota, with a node that was cut off", QUOTA, most_at_once())

# ---- nodes that say different things: the least counts ----
d = Node("d", hold=60, gold="cluster_max_running: 5, weight: 2")
until("the least counts", lambda: a.tenants()["gold"]["max_running"] == 5 and sum(a.shares().values()) == 5)
check("it gets a share when it is asked", 200, d.gold().status)
until("it has one", lambda: a.shares().get("d", 0) > 0)
check("it is said", True, "say different things of tenant gold" in a.ctl("cluster", "status").stdout)
d.process.send_signal(signal.SIGSTOP)
e = Node("d", where="e", gold="cluster_max_running: 5, weight: 2")  # another machine takes the name, and proves nothing about the one that hangs
until("it has the name", lambda: any(n["url"] and n["url"].endswith(f":{e.port}") for n in a.tell("cluster", "nodes")["nodes"]))
time.sleep(1)
check("nothing of the share is free", (True, False), (a.tenants()["gold"]["nodes"][-1]["reserved_running"] > 0, a.tenants()["gold"]["nodes"][-1]["obeyed"]))
e.stop()
time.sleep(1)
check("nor when it leaves", True, a.tenants()["gold"]["nodes"][-1]["reserved_running"] > 0)
d.process.send_signal(signal.SIGCONT)
until("the first one is back", lambda: a.tenants()["gold"]["nodes"][-1]["obeyed"])
d.stop()
left = time.monotonic()
until("it has left, and its share with it", lambda: "d" not in a.shares() and sum(a.shares().values()) == QUOTA)

check("at once", lambda took: took < 2 * HOLD, time.monotonic() - left)

# ---- shares by weight, over two nodes: red asks at a alone, blue at a and b ----
loads = [Load(a, 6, "r", model="one-a", id="red"), Load(a, 6, "b", model="one-a", id="blue"), Load(b, 6, "b", model="one-b", id="blue")]


def count_served(loads, enough):
    """What each of them was served while all together were served that much."""
    before = [load.served() for load in loads]
    until("some are served", lambda: sum(load.served() - was for load, was in zip(loads, before)) >= enough)
    return [load.served() - was for load, was in zip(loads, before)]


def served_so(loads, enough, wanted):
    """The same, again and again until it is as wanted, because means of ten seconds go before weights; the last one."""
    for _ in range(20):
        parts = count_served(loads, enough)
        if wanted(*parts):
            break
    return parts


def apart(red, blue, elsewhere):
    return red > 6 * blue > 0 and elsewhere > red / 2


def alike(red, blue):
    return 0.5 * blue < red < 2 * blue


until("the leader has said weights", lambda: {n["node"]: n["weight"] for n in a.tenants()["blue"]["nodes"]}["a"] < 0.2)
parts = served_so(loads, 150, apart)
check(f"red has a, because blue has b: {parts}", True, apart(*parts))
for load in loads[2:]:
    load.stop()
until("blue asks at a alone: both have half of it", lambda: {n["node"]: n["weight"] for n in a.tenants()["blue"]["nodes"]}["a"] > 0.9)
parts = served_so(loads[:2], 100, alike)
check(f"half each: {parts}", True, alike(*parts))
for load in loads[:2]:
    load.stop()
check("never more than the quota", QUOTA, most_at_once())


# ---- nobody states a limit any more: what was a share bounds nothing; and then there is one again ----
def restate(was, terms):
    for node in nodes.values():
        with open(f"{node.folder}/config.yaml", encoding="utf-8") as file:
            config = file.read()
        node.write_config(config.replace(was, terms))
        check(f"{node.name}: {terms}", 0, node.ctl("reload").returncode)


LIMITS = f"cluster_max_running: {QUOTA}, cluster_max_waiting: 60"
restate(LIMITS, "max_running: 100")
until("the quota's key is gone", lambda: not etcd.get("/medusa/quotas/gold"))
began = now()
loads = [Load(a, 2 * QUOTA)]
until("more runs than there was of the quota", lambda: most_at_once(since=began) > QUOTA)
loads[0].stop()
restate("max_running: 100", "cluster_max_running: 3")  # one for each node: the least that all are served with
began = now()
loads = [Load(node, 4) for node in nodes.values()]
until("they are served", lambda: all(load.served() > 2 for load in loads))
for load in loads:
    load.stop()
check("never more than the new quota, from its first moment on", 3, most_at_once(since=began))

# ---- less than one for each node: they have it by turns, and what is idle moves to where requests wait ----
was = "cluster_max_running: 3"
for quota in (2, 1):
    restate(was, f"cluster_max_running: {quota}")
    was = f"cluster_max_running: {quota}"
    until("it is divided", lambda: sum(a.shares().values()) == quota)
    began = now()
    loads = [Load(node, 3) for node in nodes.values()]
    for turn in (1, 2):
        before = [load.served() for load in loads]
        until(f"of {quota}, every node has its turn ({turn})", lambda: all(load.served() > was + 2 for load, was in zip(loads, before)))
    for load in loads[:2]:
        load.stop()
    served = loads[2].served()
    until("whoever asks alone has all of it", lambda: c.shares()["c"] == quota and loads[2].served() > served + 5)
    loads[2].stop()
    check(f"never more than {quota}, and all of it is used", quota, most_at_once(since=began))
    check("nobody was refused", {200}, {status for load in loads for status in load.statuses})
took = []
for node in (a, b, c, a, b, c):
    asked = time.monotonic()
    check(f"an idle share comes to {node.name}", 200, node.gold().status)
    took.append(round(time.monotonic() - asked, 1))
print(f"  a request has waited for a share that was idle at another node, or had just been used there, for {took} s", file=sys.stderr)
check("never more than 1", 1, most_at_once(since=began))
check("every daemon ends", [0, 0, 0], [node.stop() for node in nodes.values()])
finish()
