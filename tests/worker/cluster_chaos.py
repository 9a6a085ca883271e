# SPDX-License-Identifier: Apache-2.0
"""Three nodes of a cluster, an etcd of three members, and what can happen to them: cluster_chaos.py FOLDER ENGINE [--seconds N] [--seed N] [--clients N] [--only KIND] [--tls]

Clients ask at all nodes, streamed and not. One fault comes after the other; when it is over and all nodes know each other again, all rests, and what clients, engines' journals, metrics and SQLite say is
compared (chaos_books.py). The same seed is the same plan; how things fall together differs. With --tls, nodes and etcd speak TLS, and etcd has users; faults that look into what is sent, or at which certificates are not valid, are left out. Prints the seed, and a line for each violation.
"""
import argparse
import atexit
import os
import random
import re
import signal
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
import weakref

from certificates import Authority
from chaos_books import COMPUTED, Books, Fault, Wrong, ask, number
from daemon import ENGINE, PATIENCE, Daemon, free_ports
from etcd import Etcd, Wire, end

OWNERS = {"a": ["x", "ab", "ca", "all", COMPUTED], "b": ["y", "ab", "bc", "all", COMPUTED], "c": ["z", "bc", "ca", "all"]}
MODELS = {model: [node for node in OWNERS if model in OWNERS[node]] for node in OWNERS for model in OWNERS[node]}
CLOCKS = (3600, -3600, 86400 * 400, -86400 * 400, 7, -7)
SHORT = ("kill a node", "a node comes back with stale state", "the majority of etcd is lost", "nodes cannot reach one")  # of `make check`
NOT_TLS = ("a node comes back with stale state", "nodes cannot reach one", "clocks apart")  # what is sent is looked into, or certificates are not valid
LEASE_S = 3
LONG = 3  # clients that ask for long streams


class EtcdWire(Wire):
    """Between a node and a member of etcd; what the node has written last is kept."""

    def __init__(self, target):
        self.sent = []
        super().__init__(target)

    @property
    def write(self):
        return None

    @write.setter
    def write(self, sent):
        if sent:
            self.sent = [*self.sent[-9:], sent]


class NodeWire(Wire):
    """Before a node, for all others: who asks stands in the head. `blocked`: node -> "hangs" or "breaks"; what probes ask (which have no such head) passes."""

    def __init__(self, name):
        self.name, self.blocked, self.sources = name, {}, weakref.WeakKeyDictionary()
        super().__init__("http://127.0.0.1:1")

    def carry(self, one, other):
        source, first = None, True
        while got := one.recv(65536):
            if first and (found := re.search(rb"X-Medusa-Node: (\w+)", got)):
                source = self.sources[one] = found[1].decode()
            first = False
            while self.blocked.get(source) == "hangs":
                time.sleep(0.02)
            if self.blocked.get(source) == "breaks":
                return
            other.sendall(got)

    def block(self, sources, how):
        self.blocked = dict.fromkeys(sources, how)
        with self.lock:
            for pair in self.pairs:
                if how == "breaks" and self.sources.get(pair[0]) in sources:
                    end(pair)


class Node(Daemon):
    def __init__(self, chaos, name):
        self.name, chaos.life = name, chaos.life + 1
        folder, self.life = chaos.folder, chaos.life
        lines = "".join(f'  {m}: {{cmd: "{chaos.computes if m == COMPUTED else f"{ENGINE} --name {m} --journal {folder}/journal-{name}"}"}}\n' for m in OWNERS[name])
        super().__init__(f"{folder}/{name}", f"startPort: {chaos.ports[name]}\nmodels:\n{lines}groups: {{all: {{swap: false, members: [{', '.join(OWNERS[name])}]}}}}\n"
                         f"medusa: {{state: {folder}/usage-{name}.sqlite, cluster: {{lease_grace: 300s{chaos.security(name)}}}}}\n",
                         "--cluster", ",".join(chaos.url(wire) for wire in chaos.to_etcd[name]), "--node", name, "--advertise", chaos.url(chaos.to_node[name]),
                         env={"MEDUSA_LOG": "info", "LD_PRELOAD": " ".join(filter(None, (os.environ.get("LD_PRELOAD"), f"{os.environ['MEDUSA_BUILD']}/tests/faults/surroundings.so"))),
                              "SURROUNDINGS": chaos.clock(name, 0), "SURROUNDINGS_PROGRAM": "medusa-worker"})
        chaos.to_node[name].target = chaos.ports[name] + 5 if chaos.tls else self.port
        chaos.started.append(self)

    def stands(self):
        """As the node knows its cluster: (etcd answers, all changes are watched, nodes, those whose lease has ended); None: it does not answer."""
        try:
            known = self.get("/api/status").json["cluster"]
            return known["reached"] and known["current"], known["nodes"], known["lease_ended"]
        except (OSError, KeyError, ValueError):
            return None

    def open_at(self, name):
        found = re.search(rf'^medusa_worker_cluster_requests_open\{{node="{name}"\}} (\S+)$', self.get("/metrics").body.decode(), re.M)
        return float(found[1]) if found else 0


class Chaos:
    def __init__(self, folder, engine, options):
        self.folder, self.options, self.random = folder, options, random.Random(options.seed)
        self.computes = f"{engine} --recipe models/recipes/tiny.yaml --kv-blocks 500 --seed 1 --serve 127.0.0.1:${{PORT}} --served-name {COMPUTED}"
        self.violations, self.began, self.started, self.life = 0, time.monotonic(), [], 0
        self.books = Books(MODELS, folder, self.violation)
        first = free_ports(30)
        self.ports = {name: first + 6 + 6 * i for i, name in enumerate(OWNERS)}
        self.tls = Authority(folder, "authority") if options.tls else None
        self.etcd = Etcd(folder, first, 3, (self.tls.pem, *self.tls.issue("etcd", ["IP:127.0.0.1"])) if self.tls else None)
        if self.tls:
            self.etcd.guard("root-secret", {"worker": ("worker-secret", "readwrite", "/medusa/")})
            with open(os.open(f"{folder}/password", os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                file.write("worker-secret")
            for name in OWNERS:
                self.tls.issue(name, [f"DNS:{name}"])
        self.to_etcd = {name: [EtcdWire(member.url) for member in self.etcd.members] for name in OWNERS}
        self.to_node = {name: NodeWire(name) for name in OWNERS}
        self.nodes, self.gate, self.over, self.busy, self.lock = {}, threading.Event(), False, 0, threading.Lock()
        self.recoveries, self.retries, self.asking = [], 0.0, {}
        atexit.register(self.end_all)

    def end_all(self):
        """Of a run that was broken off."""
        for one in self.started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
        self.etcd.stop()

    def url(self, wire):
        return wire.url.replace("http:", "https:") if self.tls else wire.url

    def security(self, name):
        """Of a node's configuration."""
        files = "{{ca: {0}/authority.pem, certificate: {0}/{1}.pem, key: {0}/{1}.key}}".format
        return "" if not self.tls else (f", tls: {files(self.folder, name)}, listen: 127.0.0.1:{self.ports[name] + 5}, etcd_tls: {files(self.folder, 'etcd')}, "
                                        f"etcd_user: worker, etcd_password_file: {self.folder}/password")

    def violation(self, what):
        with self.lock:
            self.violations += 1
        if self.violations <= 30:
            print(f"violation (seed {self.options.seed}, {time.monotonic() - self.began:.1f} s): {what}", flush=True)

    def clock(self, name, ahead):
        path = f"{self.folder}/surroundings-{name}"
        with open(path, "r+b" if os.path.exists(path) else "wb") as file:
            file.write(struct.pack("qQ", ahead, 0))
        return path

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.03)
        self.violation(f"not within {PATIENCE} s: {what}; {[node.stands() for node in self.nodes.values()]}")
        return False

    def all_know(self):
        return all(node.stands() == (True, len(OWNERS), []) for node in self.nodes.values())

    # ---- clients ----

    def draw(self, chance, name):
        stream = chance.random() < 0.5
        return {"name": name, "gateway": chance.choice(list(OWNERS)), "model": chance.choice(list(MODELS)), "stream": stream, "tokens": chance.randrange(1, 25),
                "token": chance.choice((0.001, 0.02, 0.04)) if stream else 0, "wait": chance.choice((0, 0, 0.1, 0.4))}

    def draw_long(self, chance, name):
        """A stream that has begun, most of the time, at another node than the one that was asked."""
        model, gateway = chance.choice((("ab", "c"), ("bc", "a"), ("ca", "b")))
        return {"name": name, "gateway": gateway, "model": model, "stream": True, "tokens": 40, "token": 0.03, "wait": 0}

    def client(self, number_):
        chance = random.Random(f"{self.options.seed} {number_}")
        for i in range(sys.maxsize):
            request = (self.draw_long if number_ < LONG else self.draw)(chance, f"r{number_}.{i}")
            if request["model"] == COMPUTED and chance.random() < 0.7:
                request["model"] = "ab"
            self.gate.wait()
            if self.over:
                return
            with self.lock:
                self.busy += 1
            self.asking[number_] = request
            began = time.monotonic()
            try:
                outcome = ask(self.nodes[request["gateway"]].port, request, self.books.texts)
                self.books.note(request, outcome, began, time.monotonic())
            except Wrong as wrong:
                outcome = "wrong"
                self.violation(f"{request}: {wrong}; {[f.kind for f in self.books.faults if not f.ended]}")
            except Exception as error:  # the client's own
                outcome = "wrong"
                self.violation(f"{request}: {error!r}")
            with self.lock:
                self.busy -= 1
            time.sleep(0.2 if outcome != "served" else 0.01)

    # ---- faults: each returns when it is over ----

    def begin(self, kind, *words, **more):
        self.books.faults.append(Fault(kind, *words, **more))

    def busiest(self):
        """The node that has begun to answer most long streams of others' clients."""
        for _ in range(200):
            begun = {request["name"] for request in list(self.asking.values()) if request["tokens"] == 40 and 0 < request.get("got", 0) < 2000}
            counts = {name: len(begun & set(self.tail(name))) for name in OWNERS}
            if any(counts.values()):
                break
            time.sleep(0.02)
        return max(counts, key=counts.get)

    def tail(self, name):
        try:
            with open(f"{self.folder}/journal-{name}", "rb") as file:
                file.seek(max(0, os.path.getsize(file.name) - 2000))
                return file.read().decode().split()
        except FileNotFoundError:
            return []

    def others(self, name):
        return [node for node in self.nodes.values() if node.name != name]

    def wait_for_end_of_lease(self, name):
        began = time.monotonic()
        self.until(f"the others know that the lease of {name} has ended", lambda: all(name in (node.stands() or (0, 0, []))[2] for node in self.others(name)))
        return time.monotonic() - began

    def restart(self, name):
        self.nodes[name] = Node(self, name)

    def kill_a_node(self):
        name = self.busiest()
        self.begin("kill a node", [name])
        self.nodes[name].process.kill()
        self.nodes[name].process.wait(PATIENCE)
        self.recoveries.append(self.wait_for_end_of_lease(name))
        time.sleep(0.3)
        self.restart(name)

    def kill_a_node_and_restart_it(self):
        name = self.busiest()
        self.begin("kill a node and restart it", [name])
        self.nodes[name].process.kill()
        self.nodes[name].process.wait(PATIENCE)
        self.restart(name)

    def hang_a_node(self):
        name = self.busiest()
        self.begin("hang a node", [name])
        self.nodes[name].process.send_signal(signal.SIGSTOP)
        self.recoveries.append(self.wait_for_end_of_lease(name))
        time.sleep(self.random.choice((0, 2)))
        self.nodes[name].process.send_signal(signal.SIGCONT)

    def hang_a_node_for_a_moment(self):
        name = self.busiest()
        self.begin("hang a node for a moment", [name])
        self.nodes[name].process.send_signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.2, 2))
        self.nodes[name].process.send_signal(signal.SIGCONT)

    def hold_etcd(self, name, how):
        for wire in self.to_etcd[name]:
            wire.hangs = how

    def cut_a_node_off_from_etcd(self):
        """All nodes live, and whoever asks any of them is answered."""
        name = self.random.choice(list(OWNERS))
        self.begin("cut a node off from etcd")
        self.hold_etcd(name, True)
        self.wait_for_end_of_lease(name)
        self.until(f"{name} says so", lambda: self.nodes[name].get("/health").body.startswith(b"OK; the cluster is as it was known last"))
        time.sleep(1)
        self.hold_etcd(name, False)

    def a_node_comes_back_with_stale_state(self):
        name = self.random.choice(list(OWNERS))
        other = self.others(name)[0]
        self.begin("a node comes back with stale state")
        self.hold_etcd(name, True)
        self.wait_for_end_of_lease(name)
        self.books.expect(other.ctl("cluster", "cordon", name).returncode == 0, f"{name} cannot be cordoned")
        self.hold_etcd(name, False)
        self.until(f"{name} obeys what was wished meanwhile", lambda: {n["node"]: n["state"] for n in other.tell("cluster", "nodes")["nodes"]}[name] == "cordoned")
        sent = [write for wire in self.to_etcd[name] for write in wire.sent]
        late = sum(self.comes_late(write) for write in sent)
        self.books.expect(sent and not late, f"{late} of {len(sent)} writes of {name} that came late stand in the place of later ones")
        self.books.expect(other.ctl("cluster", "uncordon", name).returncode == 0, f"{name} cannot be uncordoned")
        self.until("all nodes are ready", lambda: all(n["state"] == "ready" for n in other.tell("cluster", "nodes")["nodes"]))

    def comes_late(self, write):
        """Whether etcd takes what a node has sent long ago."""
        try:
            with urllib.request.urlopen(f"{self.etcd.members[0].url}/v3/kv/txn", write, PATIENCE) as answer:
                return b'"succeeded":true' in answer.read()
        except urllib.error.HTTPError:  # its lease is no longer there
            return False

    def nodes_cannot_reach_one(self):
        name, how = self.busiest(), self.random.choice(("breaks", "hangs"))
        sources = [node.name for node in self.others(name)][:self.random.choice((1, 2, 2))]
        self.begin(f"nodes cannot reach one ({how})", (), [(source, name) for source in sources] if how == "breaks" else [(s, n) for s in sources for n in OWNERS])
        self.to_node[name].block(sources, how)
        time.sleep(self.random.uniform(2, 4))
        self.to_node[name].blocked = {}

    def lose_a_lease(self):
        """As after an etcd that hung, of a node that lives."""
        name = self.random.choice(list(OWNERS))
        self.begin("lose a lease")
        leases = self.nodes[name].tell("cluster", "status")["leases"]
        found = re.search(r'"lease":(\d+)', self.etcd.run("get", "-w", "json", f"/medusa/nodes/{name}").stdout)
        self.etcd.run("lease", "revoke", f"{int(found[1]):x}")
        self.until(f"{name} has another one", lambda: self.nodes[name].tell("cluster", "status")["leases"] > leases)

    def kill_a_member_of_etcd(self):
        member = self.random.choice(self.etcd.members)
        self.begin("kill a member of etcd")
        member.kill()
        time.sleep(self.random.uniform(1, 4))
        self.etcd.start()

    def hang_a_member_of_etcd(self):
        member = self.random.choice(self.etcd.members)
        self.begin("hang a member of etcd")
        member.send(signal.SIGSTOP)
        time.sleep(self.random.uniform(1, 5))
        member.send(signal.SIGCONT)

    def the_majority_of_etcd_is_lost(self):
        """Nodes go on by what they knew, say so, and change nothing."""
        self.begin("the majority of etcd is lost")
        for member in self.random.sample(self.etcd.members, 2):
            member.kill()
        for name, node in self.nodes.items():
            self.until(f"{name} says so", lambda n=node: number(n.get("/metrics").body.decode(), "etcd_reached") == 0
                       and n.get("/health").body.startswith(b"OK; the cluster is as it was known last"))
        time.sleep(1)
        for name, node in self.nodes.items():
            stands = node.stands()
            self.books.expect(stands and stands[1] + len(stands[2]) == len(OWNERS), f"{name} has forgotten a node: {stands}")
        self.books.expect(self.nodes["a"].ctl("cluster", "drain", "b").returncode != 0, "a wish was written without etcd")
        self.etcd.start()

    def clocks_apart(self):
        self.begin("clocks apart")
        for name in OWNERS:
            self.clock(name, self.random.choice(CLOCKS))
        time.sleep(2)
        for name in OWNERS:
            self.clock(name, 0)

    def rolling_restart(self):
        """One after the other; what two nodes have is answered all the while, and no answer breaks off."""
        for name in self.random.sample(list(OWNERS), len(OWNERS)):
            self.begin("rolling restart", [name], leaves=True)
            code = self.nodes[name].stop()
            self.books.expect(code == 0, f"{name} has ended with {code}")
            self.books.expect(all(name not in (node.stands() or (0, 0, []))[2] for node in self.others(name)), f"{name} has left, and others wait for it")
            self.restart(name)
            self.settle()

    KINDS = ("kill a node", "kill a node and restart it", "hang a node", "hang a node for a moment", "cut a node off from etcd", "a node comes back with stale state", "nodes cannot reach one",
             "lose a lease", "kill a member of etcd", "hang a member of etcd", "the majority of etcd is lost", "clocks apart", "rolling restart")

    # ---- all ----

    def settle(self):
        self.until("all nodes know each other again", self.all_know)
        time.sleep(0.2)
        for fault in self.books.faults:
            fault.ended = fault.ended or time.monotonic()

    def rest(self, kind):
        self.gate.clear()
        time.sleep(0.05)
        if not self.until("requests end", lambda: self.busy == 0):
            print(f"  these hang: {list(self.asking.values())}")
        for name, node in self.nodes.items():
            self.until(f"{name} has no open request", lambda n=node: not any(n.open_at(other) for other in OWNERS))
        requests = len(self.books.round)
        self.books.rest(self.nodes, {name: node.life for name, node in self.nodes.items()})
        retries = sum(number(node.get("/metrics").body.decode(), "retries_total") for node in self.nodes.values())
        print(f"  {time.monotonic() - self.began:6.1f} s  {kind}: {requests} requests, {retries:.0f} tried elsewhere since nodes began, {self.violations} violations", flush=True)
        self.retries = max(self.retries, retries)

    def plan(self):
        if self.options.only:
            yield self.options.only
        elif not self.options.seconds:
            yield from self.possible(SHORT)
        while not self.options.only and time.monotonic() - self.began < self.options.seconds:
            yield from self.random.sample(self.possible(self.KINDS), len(self.possible(self.KINDS)))

    def possible(self, kinds):
        return [kind for kind in kinds if not (self.tls and kind in NOT_TLS)]

    def run(self):
        for name in OWNERS:
            self.restart(name)
        self.settle()
        for model, owners in MODELS.items():
            for owner in owners:
                self.nodes[owner].ask("POST", f"/api/models/load/{model}")
        self.until("all models are loaded", lambda: all(set(node.running().values()) == {"ready"} and len(node.running()) == len(OWNERS[node.name]) for node in self.nodes.values()))
        threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(self.options.clients)]
        for thread in threads:
            thread.start()
        self.books.rest(self.nodes, {name: node.life for name, node in self.nodes.items()})
        for kind in self.plan():
            self.gate.set()
            time.sleep(0.7)
            try:
                getattr(self, kind.replace(" ", "_"))()
            except Exception as error:
                self.violation(f"{kind}: {error!r}")
            self.settle()
            time.sleep(0.3)
            self.rest(kind)
            if self.violations > 30:
                break
        self.over = True
        self.gate.set()
        self.finish()

    def finish(self):
        for name, node in self.nodes.items():
            self.books.expect(node.stop() == 0, f"{name} has not ended as it should")
        written = self.books.finish(list(OWNERS))
        for node in self.started:
            self.books.expect("Sanitizer" not in node.stderr(), f"{node.name}: a sanitizer has spoken")
        for outcome, count in sorted(self.books.all.items()):
            print(f"  {count:7} {outcome}")
        print(f"  {written} requests accounted for; leases ended {', '.join(f'{s:.1f}' for s in self.recoveries)} s after a node was killed or hung (lease {LEASE_S} s);"
              f" the slowest answer that another node could give took {self.books.slowest:.1f} s")
        self.books.expect(self.options.only or self.books.all["broken off: peer_failed"], "no answer had begun when its node was killed or hung")
        self.books.expect(self.options.only or self.retries, "no request was tried elsewhere")
        self.books.expect(self.books.all["served"] > sum(self.books.all.values()) / 2, "only the lesser part of all requests was served")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    arguments.add_argument("engine")
    arguments.add_argument("--seconds", type=float, default=0, help="rounds begin for so long; 0: a short run")
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments.add_argument("--clients", type=int, default=8 + LONG)
    arguments.add_argument("--only", choices=Chaos.KINDS)
    arguments.add_argument("--tls", action="store_true")
    options = arguments.parse_args()
    print(f"  seed {options.seed}", flush=True)
    chaos = Chaos(os.path.abspath(options.folder), options.engine, options)
    chaos.run()
    print(f"{chaos.books.checks} checks, {chaos.violations} failures", flush=True)
    chaos.end_all()
    os._exit(1 if chaos.violations else 0)


if __name__ == "__main__":
    main()
