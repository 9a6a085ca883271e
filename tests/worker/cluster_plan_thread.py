# SPDX-License-Identifier: Apache-2.0
"""The leader's plan is made on a thread: cluster_plan_thread.py FOLDER. Its thread is held (tests/faults/hold.c) while the leader is asked and things change."""
import os
import sys

from daemon import ENGINE, Daemon, check, finish, free_ports, until
from etcd import Etcd, end_with_test

folder = sys.argv[1]
first = free_ports(20)
etcd = Etcd(folder, first)
PORTS = {"a": first + 4, "b": first + 8}
PRELOAD = " ".join(filter(None, (os.environ.get("LD_PRELOAD"), f"{os.environ['MEDUSA_BUILD']}/tests/faults/hold.so")))
MANY = 3000  # of each node: more than are copied in one turn, and of both together as many as tests/faults/hold.c holds
hold = f"{folder}/plan"
started = []
end_with_test(started, etcd)


class Node(Daemon):
    def __init__(self, name, **env):
        self.name = name
        lines = "".join(f'  m{i}: {{cmd: "{ENGINE} --name {name}-m{i}", medusa: {{memory: 1GB}}}}\n' for i in range(MANY))
        super().__init__(f"{folder}/{name}", f"startPort: {PORTS[name]}\nmodels:\n{lines}medusa: {{gpus: [{{memory: 70GB}}]}}\n", "--cluster", etcd.urls, "--node", name,
                         env={"MEDUSA_LOG": "debug", **env})
        started.append(self)

    def status(self):
        return self.tell("cluster", "status")

    def states(self):
        return {n["node"]: n["state"] for n in self.tell("cluster", "nodes")["nodes"]}


def placed(node):
    """What is written for it: {MODEL: how}, of m1 and m2 alone."""
    text = etcd.get(f"/medusa/placements/{node}")
    return {m: how for m in ("m1", "m2") for how in ("kept", "wanted") if f'"{m}":"{how}"' in text}


def hold_plan():
    """The next plan is held on its thread, before anything is decided."""
    if os.path.exists(hold + ".held"):
        os.remove(hold + ".held")
    with open(hold, "w", encoding="utf-8"):
        pass


def is_held():
    return os.path.exists(hold + ".held")


a = Node("a", LD_PRELOAD=PRELOAD, HOLD_SORT=hold)
until("a leads", lambda: a.status()["leads"])
b = Node("b")
until("both are known", lambda: a.states() == {"a": "ready", "b": "ready"})
until("a plan was made", lambda: a.status()["rounds"] > 0)

# ---- the loop goes on while a plan is made ----
hold_plan()
check("move", 0, b.ctl("cluster", "move", "m1", "b").returncode)
until("a plan is under way", is_held)
rounds = a.status()["rounds"]
check("the leader is healthy", 200, a.get("/health").status)
check("it serves", 200, a.chat("m2").status)
check("and does what it is told", 0, a.ctl("cluster", "nodes").returncode)
check("the plan was under way all the time", rounds, a.status()["rounds"])
check("nothing of it is written", {}, placed("b"))

# ---- users move a model meanwhile: nothing is written of what was planned without knowing that ----
check("release", 0, b.ctl("cluster", "release", "m1").returncode)
check("move another one", 0, b.ctl("cluster", "move", "m2", "b").returncode)
check("a node's state comes to a by the same watch, behind that", 0, b.ctl("cluster", "cordon", "b").returncode)
until("a knows", lambda: a.states()["b"] == "cordoned")
check("uncordon", 0, b.ctl("cluster", "uncordon", "b").returncode)
until("and is uncordoned", lambda: a.states()["b"] == "ready")
os.remove(hold)
until("the plan is left out", lambda: "the plan is stale: users have moved models meanwhile" in a.stderr())
until("the next one is right", lambda: placed("b").get("m2") == "kept")
check("what was released is not kept", True, placed("b").get("m1") != "kept")

# ---- a node is closed meanwhile: it gets nothing of the plan, and others lose nothing ----
check("move", 0, a.ctl("cluster", "move", "m1", "b").returncode)
until("both are kept", lambda: placed("b").get("m1") == placed("b").get("m2") == "kept")
hold_plan()
until("a plan is under way again", is_held)
check("cordon", 0, a.ctl("cluster", "cordon", "b").returncode)
until("a knows that b is cordoned", lambda: a.states()["b"] == "cordoned")
os.remove(hold)
until("the plan is stale for b", lambda: "the plan is stale for node b, which has changed meanwhile" in a.stderr())
until("what b had is planned anew without it", lambda: not placed("b"))
check("uncordon", 0, a.ctl("cluster", "uncordon", "b").returncode)
until("b gets again what users want there", lambda: placed("b").get("m1") == placed("b").get("m2") == "kept")

# ---- a node dies: what was asked of it alone is placed elsewhere before anybody asks for it there ----
check("m7 is asked for", 200, b.chat("m7").status)
where = until("m7 is placed", lambda: [n for n in "ab" if '"m7"' in etcd.get(f"/medusa/placements/{n}")])
check("where it was asked for", ["b"], where)
b.process.kill()
b.process.wait()
until("m7 is placed at a", lambda: '"m7":"wanted"' in etcd.get("/medusa/placements/a"))
until("and loaded", lambda: any(n["node"] == "a" and n["place"] == "gpu" for m in a.tell("cluster", "models")["models"] if m["model"] == "m7" for n in m["nodes"]))
b = Node("b")
until("b is back", lambda: a.states() == {"a": "ready", "b": "ready"})

# ---- the daemon ends while a plan is made ----
hold_plan()
check("release", 0, a.ctl("cluster", "release", "m1").returncode)
until("a plan is under way once more", is_held)
os.remove(hold)
for node in (a, b):
    check(f"{node.name} ends", 0, node.stop())
finish()
