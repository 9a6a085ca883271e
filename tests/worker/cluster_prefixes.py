# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster, a real etcd, and engines that keep prefixes of prompts and count what they had: cluster_prefixes.py FOLDER."""
import json
import random
import re
import sys
import threading

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until
from etcd import Etcd, end_with_test

folder = sys.argv[1]
first = free_ports(20)
etcd = Etcd(folder, first)
PREFILL_S = 0.02  # for 1,000 characters: far more than what else takes its time on a machine with much to do
PORTS = {"a": first + 4, "b": first + 8, "c": first + 12, "d": first + 16}
words = random.Random(7)
started = []
end_with_test(started, etcd)


class Node(Daemon):
    def __init__(self, name, more=""):
        self.name = name
        engine = f"{ENGINE} --prefill {PREFILL_S}"
        super().__init__(f"{folder}/{name}", f"""startPort: {PORTS[name]}
models:
  m: {{cmd: "{engine} --name {name}", concurrencyLimit: 40, medusa: {{max_batch: 2}}}}
  zero: {{cmd: "{engine} --prefixes zero --name {name}"}}
groups: {{all: {{swap: false, members: [m, zero]}}}}
medusa: {{cluster: {{{more}}}}}
""", "--cluster", etcd.urls, "--node", name, env={"MEDUSA_LOG": "info"})
        started.append(self)

    def metric(self, name):
        found = re.search(rf"^medusa_worker_cluster_prefix_{name} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return found and float(found[1])

    def ask_for(self, model, messages, here=False, **more):
        """Who has computed it. here: as another node asks, so that it is computed here."""
        reply = self.ask("POST", "/v1/chat/completions", {"model": model, "stream": True, "max_tokens": 1, "messages": messages, **more},
                         {"X-Medusa-Node": "other"} if here else None)
        return reply.text.rstrip(" ")[:-1] if reply.status == 200 else f"{reply.status}: {reply.body!r}"

    def state(self, model):
        return json.loads(etcd.get(f"/medusa/states/{self.name}") or "{}").get("models", {}).get(model, {})

    def counts(self, model):
        return self.get(f"/upstream/{model}/counts").json


def text(size):
    return "".join(words.choices("abcdefgh ", k=size))


def user(size):
    return {"role": "user", "content": text(size)}


def standing(node, of):
    """How m stands on a node, as another one knows."""
    return next(n for m in node.tell("cluster", "models")["models"] if m["model"] == "m" for n in m["nodes"] if n["node"] == of)


def at_once(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)


def learn(node, model):
    for size in words.sample(range(1, 20), 12):
        node.ask_for(model, [user(1000 * size)], here=True)


class Talk:
    """A conversation: each turn has all that was said before."""

    def __init__(self):
        self.messages = []

    def turn(self, node, size=6000):
        self.messages.append(user(size))
        said = node.ask_for("m", self.messages)
        self.messages.append({"role": "assistant", "content": "yes"})
        return said


nodes = a, b, c = Node("a"), Node("b"), Node("c")
until("all know all", lambda: all(len(n.tell("cluster", "nodes")["nodes"]) == 3 for n in nodes))
at_once([lambda n=n, m=m: n.ask("POST", f"/api/models/load/{m}") for n in nodes for m in ("m", "zero")])
for model in ("m", "zero"):
    until(f"{model} is on all GPUs", lambda m=model: all(n.state(m).get("place") == "gpu" for n in nodes))

# ---- before anything is known of prompts, they decide nothing ----
check("all are answered", True, {n.ask_for("m", [user(2000 + i)]) for i in range(3) for n in nodes} <= {"a", "b", "c"})
check("the choice was as without them", [0, 0, 0], [n.metric("requests_total") for n in nodes])
check("though they are remembered", True, sum(n.metric("blocks") for n in nodes) >= 9)

# ---- what a byte takes is learned from requests ----
at_once([lambda n=n, m=m: learn(n, m) for n in nodes for m in ("m", "zero")])
for node in nodes:
    until(f"{node.name} says what a byte takes", lambda n=node: n.state("m").get("prefill_s_per_mb"))
    check(f"as it does at {node.name}", lambda got: 0.6 * 1000 * PREFILL_S < got < 1.6 * 1000 * PREFILL_S, node.state("m")["prefill_s_per_mb"])
    check("and which engine it is", True, node.state("m")["life"] > 0)
check("engines differ", 3, len({n.state("m")["life"] for n in nodes}))

# ---- a conversation stays at its node, from wherever it goes on ----
talks = [Talk() for _ in range(6)]
places = [[talk.turn(nodes[(i + k) % 3]) for k in range(3)] for i, talk in enumerate(talks)]
check("each is at one node", [1] * 6, [len(set(p)) for p in places])
check("they are spread", True, len({p[0] for p in places}) >= 2)
check("engines had what was said before", True, sum(n.metric("told_tokens_total") for n in nodes) > 6 * (6000 + 12000) / 4 * 0.9)
check("this was expected where the node has passed it on before, or has computed it", True, sum(n.metric("followed_total") for n in nodes) >= 6)
check("bytes", True, sum(n.metric("bytes_total") for n in nodes) >= 6 * 6000)
status = a.tell("cluster", "status")["prefixes"]
check("status", (a.metric("requests_total"), a.metric("followed_total")), (status["requests"], status["followed"]))
check("in words", True, "prompts: " in a.ctl("cluster", "status").stdout)
check("no prompt and no hash of one is in etcd", True, not any(talk.messages[0]["content"][:32] in etcd.run("get", "--prefix", "/").stdout for talk in talks))

# ---- a busy node is left ----
talk = Talk()
home = talk.turn(a)
check("where it was", home, talk.turn(a))
node = next(n for n in nodes if n.name == home)
entry = next(n for n in nodes if n.name != home)
check("and from another node", home, talk.turn(entry))
file = f"{folder}/let-go"
held = [threading.Thread(target=lambda: node.ask_for("m", [], here=True, until=file)) for _ in range(34)]
for thread in held:
    thread.start()
until("requests wait there", lambda: standing(entry, home)["waiting"] == 32)
left = entry.metric("left_total")
refuge = talk.turn(entry)
check("it goes elsewhere", True, refuge in {"a", "b", "c"} - {home})
check("that was counted", left + 1, entry.metric("left_total"))
with open(file, "w", encoding="utf-8"):
    pass
for thread in held:
    thread.join(PATIENCE)
until("nobody waits there", lambda: standing(entry, home)["waiting"] == standing(entry, home)["running"] == 0)
check("it stays where most of it is", refuge, talk.turn(entry))

# ---- an engine that was started anew has nothing ----
other = next(n for n in nodes if n.name == refuge)
life, forgotten = other.state("m")["life"], entry.metric("forgotten_total")
other.ask("POST", "/api/models/unload/m")
until("it is gone", lambda: other.state("m").get("place") == "disk")
other.ask("POST", "/api/models/load/m")
until("it is there again", lambda: other.state("m").get("place") == "gpu" and other.state("m")["life"] != life)
until("the entry knows", lambda: standing(entry, refuge)["place"] == "gpu")
check("where the beginning of it still is", home, talk.turn(entry))
check("it was forgotten once", forgotten + 1, entry.metric("forgotten_total"))

# ---- an engine that keeps nothing, and says so ----
same = [user(6000)]
at_once([lambda n=n: [n.ask_for("zero", same, here=True) for _ in range(11)] for n in nodes])
for n in nodes:
    until(f"{n.name} says that its engine keeps nothing", lambda n=n: n.state("zero").get("uncached") is True)


def counted(ask):
    """By how much the nodes' counts of requests with prompts grow."""
    before = sum(n.metric("requests_total") for n in nodes)
    ask()
    return sum(n.metric("requests_total") for n in nodes) - before


until("all know", lambda: counted(lambda: [n.ask_for("zero", [user(6000)]) for n in nodes]) == 0)
check("prompts decide nothing any more", 0, counted(lambda: [n.ask_for("zero", [user(6000)]) for n in nodes * 3]))
check("those for the other model do", 3, counted(lambda: [n.ask_for("m", [user(6000)]) for n in nodes]))
check("for that model alone", True, not any(n.state("m").get("uncached") for n in nodes))

# ---- off ----
d = Node("d", "prefixes: off")
until("all know all", lambda: all(len(n.tell("cluster", "nodes")["nodes"]) == 4 for n in (*nodes, d)))
d.ask("POST", "/api/models/load/m")
until("m is there, too", lambda: d.state("m").get("place") == "gpu")
check("it answers", True, {d.ask_for("m", [user(5000)]) for _ in range(6)} <= {"a", "b", "c", "d"})
check("a prompt has no part in that", (None, None), (d.metric("requests_total"), d.tell("cluster", "status")["prefixes"]))
check("and nobody is told of one", (None, None), (d.state("m").get("life"), d.state("m").get("prefill_s_per_mb")))
for n in (*nodes, d):
    check(f"{n.name} ends", 0, n.stop())
    check(f"{n.name}: no sanitizer has spoken", False, "Sanitizer" in n.stderr())
finish()
