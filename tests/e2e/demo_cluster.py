# SPDX-License-Identifier: Apache-2.0
"""The demo of a cluster: etcd, three nodes with engines on hostcuda, and one of them killed while requests go on.

demo_cluster.py FOLDER ENGINE; DEMO_RECOVERY_S: seconds from a node's death within which the others must have left it out. Exit code 1: not all was as promised.
"""
import atexit
import os
import re
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "worker"))
from daemon import PATIENCE, Daemon, free_ports  # noqa: E402
from etcd import Etcd  # noqa: E402

folder, engine = sys.argv[1:3]
LEASE_S = 3
RECOVERY_S = float(os.environ.get("DEMO_RECOVERY_S", LEASE_S + 1))
SEEDS = {"chat": 1, "code": 2, "summaries": 3, "words": 4}
MODELS = {"a": ["chat", "code"], "b": ["chat", "summaries"], "c": ["words"]}
READY = {name: "ready" for name in MODELS}
first = free_ports(14)
PORTS = {name: first + 2 + 4 * i for i, name in enumerate(MODELS)}
nodes, began = {}, time.monotonic()


def say(what):
    print(f"\n\033[1m{what}\033[0m", flush=True)


def fail(why):
    for path in sorted(f"{folder}/{name}/err" for name in nodes):
        with open(path, encoding="utf-8", errors="replace") as file:
            print(f"  {path}:", *file.readlines()[-8:], sep="\n    ", file=sys.stderr)
    sys.exit(f"\n  FAILED: {why}")


def wait(what, condition, seconds=PATIENCE):
    """Seconds that it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            fail(f"after {seconds:g} s, this was not so: {what}")
        time.sleep(0.02)
    return time.monotonic() - start


class Node(Daemon):
    def __init__(self, name):
        self.name = name
        lines = "".join(f'  {model}: {{cmd: "{engine} --recipe models/recipes/tiny.yaml --kv-blocks 5000 --seed {SEEDS[model]} --serve 127.0.0.1:${{PORT}} '
                        f'--served-name ${{MODEL_ID}}", medusa: {{memory: 50MB}}}}\n' for model in MODELS[name])
        super().__init__(f"{folder}/{name}", f"startPort: {PORTS[name]}\nmodels:\n{lines}medusa: {{gpus: [{{memory: 110MB}}]}}\n",
                         "--cluster", etcd.urls, "--node", name)
        nodes[name] = self
        if not self.port:
            fail(f"node {name} did not start")

    def states(self):
        return {node["node"]: node["state"] for node in self.tell("cluster", "nodes").get("nodes", [])}

    def answer(self, model, tokens=8):
        """(status, text); 0: the connection failed."""
        try:
            reply = self.ask("POST", "/v1/completions", {"model": model, "prompt": "Hello", "max_tokens": tokens, "temperature": 0})
        except OSError as error:
            return 0, str(error)
        text = reply.json.get("choices", [{}])[0].get("text")
        return reply.status, text if reply.status == 200 else reply.json.get("error", {}).get("code")

    def metric(self, name):
        found = re.search(rf"^medusa_worker_cluster_{re.escape(name)} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return int(float(found[1])) if found else 0

    def show(self, *words):
        done = self.ctl("cluster", *words)
        if done.returncode:
            fail(f"medusa-workerctl cluster {' '.join(words)}: {done.stderr}")
        print(f"  $ medusa-workerctl cluster {' '.join(words)} --socket {self.name}/control", *done.stdout.rstrip().split("\n"), sep="\n    ", flush=True)


class Clients:
    """Some that ask a node for a model, one request after the other; each answer must be the same."""

    def __init__(self, model, at, count):
        self.model, self.ended, self.lock = model, threading.Event(), threading.Lock()
        self.times, self.answers = [], []  # of ends of requests; what they were told
        self.threads = [threading.Thread(target=self.ask, args=(at[i % len(at)],), daemon=True) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, node):
        while not self.ended.is_set():
            answer = node.answer(self.model, 24)
            with self.lock:
                self.times.append(time.monotonic())
                self.answers.append(answer)

    def since(self, when):
        with self.lock:
            return sum(time_ > when for time_ in self.times)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


@atexit.register
def end_all():
    """Of a demo that was broken off; what a killed node's engines do without it, they end by themselves (medusa.adopt_time)."""
    for node in nodes.values():
        if node.process.poll() is None:
            node.stop()
    if etcd:
        etcd.stop()


def table(answers):
    """A line for each model: at which node it was asked, and what came."""
    print(f"  {'model':<11}{'on':<6}" + "".join(f"{'asked at ' + name:<16}" for name in nodes) + "text")
    texts = {}
    for model in SEEDS:
        on = ",".join(name for name in MODELS if model in MODELS[name])
        line = []
        for node in nodes.values():
            start = time.monotonic()
            status, text = node.answer(model)
            line.append(f"{status}, {(time.monotonic() - start) * 1000:.0f} ms")
            if status != 200 or texts.setdefault(model, text) != text:
                fail(f"{model}, asked at {node.name}: {status}, {text!r} instead of {texts.get(model)!r}")
        print(f"  {model:<11}{on:<6}" + "".join(f"{cell:<16}" for cell in line) + ascii(texts[model]), flush=True)
    answers.update(texts)


def kill_one(a, b, c):
    """Only b has the model loaded when it dies, so that is where the others have passed their clients' requests on."""
    wait("chat is loaded at b, and at no other node", lambda: chat_places(c) == {"a": "disk", "b": "gpu"})
    expected = a.answer("chat", 24)
    clients = Clients("chat", (a, c), 6)
    wait("24 requests have ended", lambda: clients.since(0) >= 24)
    wait("b computes requests of a's clients and of c's", lambda: all(node.metric('requests_open{node="b"}') for node in (a, c)))
    b.process.kill()
    killed = time.monotonic()
    b.process.wait(PATIENCE)
    wait("a and c have left b out", lambda: all(node.states() == {"a": "ready", "b": "lease ended", "c": "ready"} for node in (a, c)))
    gone = time.monotonic() - killed
    wait("48 requests have ended since", lambda: clients.since(killed) >= 48)
    clients.end()
    after = sorted(time_ for time_ in clients.times if time_ > killed)
    pause = max(later - earlier for earlier, later in zip([killed, *after], after))
    retries = sum(node.metric("retries_total") for node in (a, c))
    print(f"  six clients of a and c ask for chat, which only b has loaded; b gets SIGKILL while it computes their requests\n"
          f"  {len(clients.times) - len(after)} answers before, {len(after)} after; {retries} requests that b had were tried elsewhere; the longest pause was {pause * 1000:.0f} ms\n"
          f"  b was left out {gone:.1f} s after its death (its lease is {LEASE_S} s)", flush=True)
    wrong = [answer for answer in clients.answers if answer != expected]
    if expected[0] != 200 or wrong:
        fail(f"{len(wrong)} of {len(clients.answers)} answers were not {expected}: {wrong[:3]}")
    if not retries:
        fail("no request was tried elsewhere, though b died while it computed some")
    if gone > RECOVERY_S:
        fail(f"b was left out after {gone:.1f} s; {RECOVERY_S:g} were promised")
    print(f"  each of the {len(clients.times)} requests was answered once, with the same text; chat is at a now")
    status = c.answer("summaries")
    print(f"  summaries, which b alone had: {status[0]} ({status[1]})")
    if status[0] != 503:
        fail("503 was promised")


def chat_places(node):
    return {place["node"]: place["place"] for model in node.tell("cluster", "models").get("models", []) if model["model"] == "chat" for place in model["nodes"]}


def main():
    global etcd
    say("1/5  etcd, and three nodes that are one cluster by it")
    etcd = Etcd(folder, first)
    for name in MODELS:
        print(f"  $ medusa-worker --config {name}/config.yaml --cluster {etcd.urls} --node {name}   # {', '.join(MODELS[name])}", flush=True)
        Node(name)
    a, b, c = nodes.values()
    for node in (a, b, c):
        wait(f"{node.name} knows all nodes", lambda n=node: n.states() == READY)

    say("2/5  each node answers for every model")
    answers = {}
    table(answers)

    say("3/5  what the cluster is")
    a.ask("POST", "/api/models/unload/chat")
    if b.ask("POST", "/api/models/load/chat").status != 200:
        fail("chat can't be loaded at b")
    for words in ("status", "nodes", "models"):
        wait("changes have reached c", lambda: chat_places(c) == {"a": "disk", "b": "gpu"})
        c.show(words)

    say("4/5  a node is killed in the middle of requests")
    kill_one(a, b, c)

    say("5/5  it comes back")
    b = Node("b")
    took = wait("all know b again, and c is answered by it", lambda: all(n.states() == READY for n in nodes.values()) and c.answer("summaries") == (200, answers["summaries"]))
    print(f"  summaries, asked at c: {ascii(answers['summaries'])}, as before, {took:.1f} s after b listened")
    for node in nodes.values():
        if node.stop():
            fail(f"node {node.name} did not end with exit code 0")
    etcd.stop()
    print(f"\n  all was as docs/cluster.md promises; {time.monotonic() - began:.0f} s, files in {os.path.relpath(folder)}")


etcd = None
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
main()
