# SPDX-License-Identifier: Apache-2.0
"""Nodes with engines that compute, and an etcd of three members, of which some fail, then one that wants certificates: cluster_members.py FOLDER ENGINE."""
import os
import re
import signal
import subprocess
import sys

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until
from etcd import Etcd, end_with_test

folder, binary = sys.argv[1:3]
first = free_ports(20)
etcd = Etcd(folder, first, 3)
started = []
end_with_test(started, etcd)


class Node(Daemon):
    def __init__(self, name, port, models, *options, more=""):
        self.name = name
        lines = "".join(f'  {model}: {{cmd: "{command}", medusa: {{memory: 50MB}}}}\n' for model, command in models.items())
        super().__init__(f"{folder}/{name}", f"startPort: {port}\nmodels:\n{lines}medusa: {{gpus: [{{memory: 110MB}}]{more}}}\n", "--node", name, *options,
                         env={"MEDUSA_LOG": "info"})
        started.append(self)

    def metric(self, name):
        found = re.search(rf"^medusa_worker_cluster_{name} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return found and float(found[1])

    def nodes(self):
        return {n["node"]: n["state"] for n in self.tell("cluster", "nodes")["nodes"]}

    def places(self):
        return {m["model"]: {n["node"]: n["place"] for n in m["nodes"]} for m in self.tell("cluster", "models")["models"]}

    def member(self):
        """The member of etcd that it asks."""
        url = self.tell("cluster", "status")["etcd"]
        return next(m for m in etcd.members if m.url == url)

    def text(self, model, **more):
        reply = self.ask("POST", "/v1/completions", {"model": model, "prompt": "Hello", "max_tokens": 8, "temperature": 0, **more})
        return reply.status, reply.json.get("choices", [{}])[0].get("text")


def serve(seed):
    return f"{binary} --recipe models/recipes/tiny.yaml --kv-blocks 5000 --seed {seed} --serve 127.0.0.1:${{PORT}} --served-name ${{MODEL_ID}}"


a = Node("a", first + 8, {"chat": serve(1), "code": serve(2)}, "--cluster", etcd.urls)
b = Node("b", first + 12, {"chat": serve(1), "summaries": serve(3)}, "--cluster", etcd.urls)
c = Node("c", first + 16, {}, "--cluster", etcd.urls)
ALL = {"a": "ready", "b": "ready", "c": "ready"}
for node in (a, b, c):
    until(f"{node.name} knows all", lambda n=node: n.nodes() == ALL)

# ---- engines that compute ----
for owner, model in ((a, "code"), (b, "summaries")):
    told = owner.text(model)
    check(f"{model} at its node", 200, told[0])
    for node in (a, b, c):
        check(f"{model}, asked at {node.name}: the same tokens", told, node.text(model))
chat = c.text("chat")
check("chat, which two nodes have", 200, chat[0])
check("the same tokens, whoever computes them", {chat}, {n.text("chat") for n in (a, b, c)})
r = c.ask("POST", "/v1/completions", {"model": "chat", "prompt": "Hello", "max_tokens": 8, "temperature": 0, "stream": True})
check("and in a stream", chat[1], "".join(e["choices"][0].get("text", "") for e in r.events if e.get("choices")))
until("only the node that computes counts a request", lambda: sum(
    float(line.rsplit(" ", 1)[1]) for n in (a, b, c) for line in n.get("/metrics").body.decode().split("\n")
    if line.startswith('medusa_worker_requests_total{model="code"')) == 4)


# ---- members of etcd ----
def changes(what):
    """Whether a change at a reaches b and c, which needs all of them and etcd."""
    wanted = "disk" if a.places()["code"].get("a") == "gpu" else "gpu"
    a.ask("POST", f"/api/models/{'unload' if wanted == 'disk' else 'load'}/code")
    until(f"{what}: changes reach all", lambda: all(n.places()["code"].get("a") == wanted for n in (a, b, c)))


changes("all members")
member = b.member()
member.send(signal.SIGSTOP)
until("a member hangs: its node asks another one", lambda: b.member() is not member and b.nodes() == ALL)
changes("two members")
member.send(signal.SIGCONT)
member = a.member()
member.kill()
until("a member is killed: its node asks another one", lambda: a.member() is not member and a.nodes() == ALL)
changes("two members")
until("all are ready, also who lost its lease with the member", lambda: all(n.nodes() == ALL for n in (a, b, c)))
for one in [m for m in etcd.members if m is not member][:1]:
    one.kill()
for node in (a, b, c):
    until(f"the majority is lost: {node.name} says so", lambda n=node: n.metric("etcd_reached") == 0 and n.get("/health").body.startswith(b"OK; the cluster is as"))
    known = node.nodes()
    check(f"{node.name} serves", (200, chat[1]), node.text("chat"))
    check(f"{node.name} asks others", 200, node.text("summaries")[0])
    check(f"{node.name} changes nothing", (set(ALL), known), (set(known), node.nodes()))
etcd.start()
for node in (a, b, c):
    until(f"the members are back: {node.name} reaches them", lambda n=node: n.metric("etcd_reached") == 1 and n.nodes() == ALL)
changes("all members")
for node in (a, b, c):
    check(f"{node.name} ends", 0, node.stop())
etcd.stop()


# ---- an etcd that wants certificates ----
def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem", "-subj", "/CN=ca")
openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{folder}/node.key", "-out", f"{folder}/node.csr", "-subj", "/CN=node")
with open(f"{folder}/names", "w", encoding="utf-8") as file:
    file.write("subjectAltName=IP:127.0.0.1\n")
openssl("x509", "-req", "-in", f"{folder}/node.csr", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", f"{folder}/names", "-out", f"{folder}/node.pem")
os.mkdir(f"{folder}/tls")
etcd = Etcd(f"{folder}/tls", first, 1, (f"{folder}/ca.pem", f"{folder}/node.pem", f"{folder}/node.key"))
FILES = f"endpoints: [{etcd.urls}], advertise: http://127.0.0.1:1, prefix: /other/place, ca: {folder}/ca.pem"
SHOWN = f", certificate: {folder}/node.pem, certificate_key: {folder}/node.key"
with_all = Node("shown", first + 8, {"m": f"{ENGINE} --name m"}, more=f", cluster: {{{FILES}{SHOWN}}}")
until("with a certificate, the node is in the cluster", lambda: with_all.nodes() == {"shown": "ready"})
check("at its prefix", True, "http://127.0.0.1:1" in etcd.get("/other/place/nodes/shown"))
without = Node("hidden", first + 12, {"m": f"{ENGINE} --name m"}, more=f", cluster: {{{FILES}}}")
check("without one, it is not", (0.0, {}), (without.metric("etcd_reached"), without.nodes()))
check("why", True, "TLS: " in without.get("/health").body.decode() or "broke" in without.get("/health").body.decode())
check("it serves", 200, without.chat("m").status)
r = Node("bad", first + 16, {"m": f"{ENGINE} --name m"}, more=f", cluster: {{{FILES}, certificate: {folder}/node.pem, certificate_key: {folder}/ca.key}}")
check("a key of another certificate", True, r.process.wait(PATIENCE) != 0)
check("which", True, f"the key {folder}/ca.key" in r.stderr())
for node in (with_all, without):
    check(f"{node.name} ends", 0, node.stop())
etcd.stop()
for node in started:
    check(f"{node.name}: no sanitizer has spoken", False, "Sanitizer" in node.stderr())
finish()
