# SPDX-License-Identifier: Apache-2.0
"""What a leader knows of nodes' GPUs, of engines that fail, and what nodes tell of engines that start at the same time: cluster_loads.py FOLDER."""
import json
import sys
import threading
import time

from daemon import ENGINE, Daemon, check, finish, free_ports, until
from etcd import Etcd, end_with_test

folder = sys.argv[1]
first = free_ports(20)
etcd = Etcd(folder, first)
started = []
end_with_test(started, etcd)


def slowly(name):
    """An engine that wants half a second of something before it starts, of which it gets a part while others want it, too."""
    return f"for i in 1 2 3 4 5 6 7 8 9 10; do flock {folder}/disk sleep 0.05; done; exec {ENGINE} --name {name}"


class Node(Daemon):
    def __init__(self, name, port, models, gpus):
        self.name = name
        lines = "".join(f"  {m}: {{cmd: '{cmd}', medusa: {{{keys}}}}}\n" for m, cmd, keys in models)
        members = ", ".join(m for m, _, _ in models)
        super().__init__(f"{folder}/{name}", f"startPort: {port}\nmodels:\n{lines}groups: {{all: {{swap: false, members: [{members}]}}}}\n"
                         f"medusa: {{gpus: [{', '.join('{memory: ' + g + '}' for g in gpus)}], cluster: {{domain: rack}}}}\n", "--cluster", etcd.urls, "--node", name)
        started.append(self)

    def models(self):
        return {m["model"]: {n["node"]: n for n in m["nodes"]} for m in self.tell("cluster", "models")["models"]}

    def placed(self, model):
        return {node: place["placed"] for node, place in self.models().get(model, {}).items() if place["placed"]}

    def place(self, model):
        return self.models()[model][self.name]["place"]

    def state(self):
        return json.loads(etcd.run("get", "--print-value-only", f"/medusa/states/{self.name}").stdout or "{}")


# ---- a copy must fit a GPU, and not the sum of them ----
command = f"exec {ENGINE}"
cold = [(f"cold{i}", f'sh -c "{slowly(f"cold{i}")}"', "memory: 1GB, min_nodes: 0") for i in range(3)]
p = Node("p", first + 4, [("one", f'sh -c "{command} --name one"', "memory: 30GB, min_nodes: 1"), ("two", f'sh -c "{command} --name two"', "memory: 30GB, min_nodes: 1"),
                          ("three", f'sh -c "{command} --name three"', "memory: 15GB, min_nodes: 1"), ("bad", "false ${PORT}", "memory: 5GB, min_nodes: 1")] + cold, ["40GB", "40GB"])
until("what fits is placed", lambda: p.placed("one") == p.placed("two") == {"p": "kept"})
until("and loaded", lambda: p.place("one") == p.place("two") == "gpu")
check("15 GB fit what is left of both GPUs, but not of one of them", {}, p.placed("three"))

# ---- a node where an engine fails does not get it ----
until("the engine fails", lambda: p.place("bad") == "nowhere")
until("so it is not placed there", lambda: p.placed("bad") == {})
q = Node("q", first + 14, [("bad", f'sh -c "{command} --name bad"', "memory: 5GB, min_nodes: 1"), ("three", f'sh -c "{command} --name three"', "memory: 15GB, min_nodes: 1")], ["40GB"])
until("another node gets it", lambda: q.placed("bad").get("q") == "kept" and q.place("bad") == "gpu")
until("and what has no room on the first one", lambda: q.placed("three") == {"q": "kept"} and q.place("three") == "gpu")

# ---- engines that start at the same time ----
for name in ("cold0", "cold1", "cold2"):
    check(f"{name} alone", 200, p.chat(name).status)
    p.ask("POST", f"/api/models/unload/{name}")
    until(f"{name} is away", lambda m=name: p.place(m) == "disk")
until("nothing starts", lambda: "loads" not in p.state())
cold = ("cold0", "cold1", "cold2")


def together(models):
    """Starts them at once, and ends them: (loads, load_slows, what another node expects of cold2) as often as was looked, and the seconds that took."""
    seen, began = [], time.monotonic()
    asking = [threading.Thread(target=p.chat, args=(name,)) for name in models]
    for one in asking:
        one.start()
    while any(one.is_alive() for one in asking):
        state = p.state()
        seen.append((state.get("loads", 0), state.get("load_slows", 0), q.models()["cold2"]["p"]["expected_s"]))
        time.sleep(0.02)
    took = time.monotonic() - began
    for name in models:
        p.ask("POST", f"/api/models/unload/{name}")
        until(f"{name} is away", lambda m=name: p.place(m) == "disk")
    return seen, took


rounds = [together(cold)]
check("three start at once, as others are told", 3, max(loads for loads, _, _ in rounds[0][0]))
while max(slows for _, slows, _ in rounds[-1][0]) < 0.75 and len(rounds) < 12:  # on a machine that has much to do, a start alone may have been slow
    for name in cold:
        together([name])
    rounds.append(together(cold))
quiet = p.models()["cold2"]["p"]["expected_s"]
check("what is told is the time of a start alone", True, quiet < max(took for _, took in rounds))
seen = [(slows, expected) for loads, slows, expected in together(cold[:2])[0] if loads == 2]
check("that they slow each other was learned", True, bool(seen) and max(slows for slows, _ in seen) >= 0.5)
check("so another node expects more of a third one", True, any(expected > 1.3 * quiet for _, expected in seen))
for node in started:
    check(f"{node.name} ends", 0, node.stop())
finish()
