# SPDX-License-Identifier: Apache-2.0
"""The bill of a cluster is what its clients were told, whoever is asked; what lacks is named: cluster_bill.py FOLDER."""
import csv
import hashlib
import http.server
import io
import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time

from content_world import NODE_KEY, World, started
from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, until

folder = sys.argv[1]
world = World(folder, 40)
etcd = world.etcd
TEAM, PLAIN = "key-of-the-team", "plain"
NAMES = {TEAM: "team", PLAIN: "key-" + hashlib.blake2b(PLAIN.encode(), digest_size=16).hexdigest()[:16]}
KINDS = ("requests", "untold", "prompt_tokens", "completion_tokens", "answer_bytes")
PROVES = {"X-Medusa-Node": "t", "X-Medusa-Node-Key": NODE_KEY, "Authorization": None}
MODELS = {"a": ["x", "both"], "b": ["y", "both"], "c": ["z"]}


class Node(Daemon):
    def __init__(self, name, models=None, where=None, state="usage.sqlite"):
        self.name, self.at = name, f"{folder}/{where or name}"
        models = MODELS.get(name, []) if models is None else models
        lines = "".join(f'  {m}: {{cmd: "{ENGINE} --name {name}-{m}"}}\n' for m in models)
        keeps = f"state: {state if '/' in state else f'{self.at}/{state}'}, " if state else ""
        super().__init__(self.at, f"startPort: {world.port()}\napiKeys: [{PLAIN}]\nmodels:\n{lines}groups: {{all: {{swap: false, members: [{', '.join(models)}]}}}}\n"
                         f"medusa: {{{keeps}tenants: [{{name: team, keys: [{TEAM}]}}], cluster: {{key_file: {folder}/key, lease_grace: 1s}}}}\n",
                         "--cluster", etcd.urls, "--node", name)
        started.append(self)

    def ask(self, method, path, body=None, headers=None):
        given = {"Authorization": f"Bearer {PLAIN}", **(headers or {})}
        return super().ask(method, path, body, {k: v for k, v in given.items() if v})

    def nodes(self):
        return {n["node"]: n["state"] for n in self.tell("cluster", "nodes")["nodes"]}

    def bill(self, *more, since="1h"):
        """(exit code, what is printed as JSON, stderr)"""
        done = self.ctl("cluster", "bill", "--since", since, "--json", *more)
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def page(self, path, **headers):
        return self.ask("GET", path, None, {**PROVES, **headers})


def sums(bill, kinds=KINDS):
    return {tuple(row[k] for k in ("node", "model", "key") if k in row): [row[kind] for kind in kinds] for row in bill["usage"]}


def missing(bill):
    return {one["node"]: one["why"] for one in bill["missing"]}


def ledgers():
    """{ID: value} as etcd has it."""
    lines = etcd.run("get", "--prefix", "/medusa/ledgers/").stdout.splitlines()
    return {key.rsplit("/", 1)[1]: json.loads(value) for key, value in zip(lines[::2], lines[1::2])}


def names(said):
    return sorted(value["node"] for value in said.values())


a, b, c = (Node(name) for name in "abc")
ALL = {"a": "ready", "b": "ready", "c": "ready"}
for node in (a, b, c):
    until(f"{node.name} knows all nodes", lambda n=node: n.nodes() == ALL)
check("whoever says that it listens has the key of its ledger in etcd", ["a", "b", "c"], names(ledgers()))
check("without a lease", False, any(kv.get("lease") for kv in json.loads(etcd.run("get", "-w", "json", "--prefix", "/medusa/ledgers/").stdout)["kvs"]))
check("a bill of nothing", (0, True, []), (lambda r: (r[0], r[1]["complete"], r[1]["usage"]))(a.bill()))

# ---- what clients are told is what is billed ----
random.seed(11)
told, lock, wrong = {}, threading.Lock(), []
left = [(random.choice((a, b, c)), random.choice(list(NAMES)), random.choice(["x", "y", "z", "both"]), random.random() < 0.5, [random.randrange(5000), random.randrange(900)]) for _ in range(90)]


def work():
    while True:
        with lock:
            if not left:
                return
            node, key, model, stream, tokens = left.pop()
        r = node.ask("POST", "/v1/chat/completions", {"model": model, "messages": [], "stream": stream, "tokens": tokens, "max_tokens": 2}, {"Authorization": f"Bearer {key}"})
        usage = next((e["usage"] for e in r.events if "usage" in e), {}) if stream else r.json.get("usage", {})
        with lock:
            if r.status != 200 or (usage.get("prompt_tokens"), usage.get("completion_tokens")) != tuple(tokens):
                wrong.append((r.status, r.body))
            sum_ = told.setdefault((model, NAMES[key]), [0] * len(KINDS))
            for i, value in enumerate((1, 0, *tokens, len(r.body))):
                sum_[i] += value


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("all were served", [], wrong)
for node in (a, b, c):
    code, bill, err = node.bill()
    check(f"asked at {node.name}: complete, and nothing on stderr", (0, True, [], ""), (code, bill["complete"], bill["missing"], err))
    check(f"asked at {node.name}: the sum is what clients were told", told, sums(bill))
code, split, _ = b.bill("--by-node")
for model, of in (("x", "a"), ("y", "b"), ("z", "c")):
    check(f"{model} was computed at {of} alone", {of}, {row["node"] for row in split["usage"] if row["model"] == model})
    check(f"{model}, by node", {(of, *place): row for place, row in told.items() if place[0] == model}, {place: row for place, row in sums(split).items() if place[1] == model})
check("the same in all", {k: v for k, v in told.items() if k[0] == "both"},
      {(m, k): [sum(column) for column in zip(*(row for (_, m2, k2), row in sums(split).items() if (m2, k2) == (m, k)))] for m, k in told if m == "both"})
check("each node's own bill is its part", {place[1:]: row for place, row in sums(split).items() if place[0] == "c"}, sums(c.tell("bill", "--since", "1h")))
table = list(csv.DictReader(io.StringIO(a.ctl("cluster", "bill", "--since", "1h", "--csv").stdout)))
check("as CSV", {k: str(v[2]) for k, v in told.items()}, {(row["model"], row["key"]): row["prompt_tokens"] for row in table})
check("as CSV, by node", ["node", "model", "key"], a.ctl("cluster", "bill", "--since", "1h", "--csv", "--by-node").stdout.split("\n")[0].split(",")[:3])
check("as text", (0, True), (lambda r: (r.returncode, "team" in r.stdout and "GPU SECONDS" in r.stdout))(a.ctl("cluster", "bill", "--since", "1h")))
check("since later", {}, sums(a.bill(since=str(int(time.time()) + 7200))[1]))
for words in (["bill"], ["bill", "--since", "soon"], ["bill", "x", "--since", "1h"], ["bill", "--since", "1h", "--json", "--csv"], ["bill", "--since", "1h", "--deadline", "0"], ["nodes", "--since", "1h"], ["forget"]):
    check(f"no order: cluster {' '.join(words)}", 2, a.ctl("cluster", *words).returncode)

# ---- who is told ----
PATH = f"/medusa/bill/{int(time.time()) - 3600}"
r = b.page(PATH)
lines = r.body.decode().split("\n")
check("a node is answered", (200, "b", ""), (r.status, json.loads(lines[0])["node"], lines[-1]))
check("its rows", sums(b.tell("bill", "--since", "1h"), ("requests",)), {tuple(row[:2]): row[2:3] for row in map(json.loads, lines[1:-2])})
check("a client with a key is not", 403, b.get(PATH).status)
check("nor one without", 401, b.ask("GET", PATH, None, {"Authorization": None}).status)
check("nor who says that it is a node", 403, b.get(PATH, **{"X-Medusa-Node": "a"}).status)
check("nor who has another key", 401, b.page(PATH, **{"X-Medusa-Node-Key": NODE_KEY[:-1]}).status)
check("of what is refused nothing is said", False, any(name in r.body.decode() for name in ("team", "ledger") for r in (b.get(PATH), b.get(PATH, **{"X-Medusa-Node": "a"}))))
for path in ("/medusa/bill/", "/medusa/bill/-1", "/medusa/bill/1x", "/medusa/bill/9999999999999", "/medusa/bill/1/2"):
    check(f"no time: {path}", 404, b.page(path).status)

# ---- a key that somebody removes, or changes ----
of_b = next(key for key, value in ledgers().items() if value["node"] == "b")
first = ledgers()[of_b]["first"]
etcd.run("del", f"/medusa/ledgers/{of_b}")
until("it is put again", lambda: ledgers().get(of_b, {}).get("node") == "b")
was = ledgers()[of_b]
etcd.run("put", f"/medusa/ledgers/{of_b}", json.dumps({**was, "node": "x", "until": 5}))
until("as it was", lambda: ledgers()[of_b] == was)
check("since when it is there is not changed", first, was["first"])

# ---- a node hangs ----
b.process.send_signal(signal.SIGSTOP)
began = time.monotonic()
code, bill, err = a.bill("--deadline", "1")
check("one that hangs has a deadline", True, time.monotonic() - began < 15)
check("it is named, with a code of its own", (7, False, ["b"]), (code, bill["complete"], list(missing(bill))))
check("in words", True, "the bill is incomplete: node b" in err)
check("the others are in it", {k: v for k, v in sums(split).items() if k[0] != "b"}, sums(a.bill("--deadline", "1", "--by-node")[1]))
check("nothing is printed as JSON of it but that", ["b"], [one["node"] for one in bill["missing"]])
b.process.send_signal(signal.SIGCONT)
until("it goes on", lambda: all(n.nodes() == ALL for n in (a, b, c)) and a.bill()[0] == 0)

# ---- a node is killed in the middle of a request, which is tried elsewhere ----
b.chat("both")
until("both is loaded at b", lambda: next(m["nodes"] for m in c.tell("cluster", "models")["models"] if m["model"] == "both") and
      {n["node"]: n["place"] for m in c.tell("cluster", "models")["models"] if m["model"] == "both" for n in m["nodes"]}.get("b") == "gpu")
a.ask("POST", "/api/models/unload/both")
until("and not at a", lambda: {n["node"]: n["place"] for m in c.tell("cluster", "models")["models"] if m["model"] == "both" for n in m["nodes"]} == {"a": "disk", "b": "gpu"})
before = sums(a.bill("--by-node")[1])
held = Held(c, "both", tokens=[333, 44])
until("b computes it", lambda: "medusa_worker_cluster_requests_open{node=\"b\"} 1" in c.get("/metrics").body.decode())
b.kill()
check("it is answered once", [(200, "a-both")], [(r.status, r.json.get("name")) for r in held.let_go().wait()])
code, bill, err = c.bill("--by-node", "--deadline", "2")
check("who is killed is named", (7, ["b"]), (code, list(missing(bill))))
place = ("a", "both", NAMES[PLAIN])
check("it is billed once, where it was answered", [1, 0, 333, 44], [now - then for now, then in zip(sums(bill)[place][:4], before.get(place, [0] * 5)[:4])])
until("b is forgotten", lambda: all(n.nodes() == {"a": "ready", "c": "ready"} for n in (a, c)))
code, bill, err = a.bill()
check("a node that is gone is missed all the same", (7, True), (code, missing(bill)["b"].startswith("it is not there; its ledger was first seen on ")))
check("by its ledger", of_b, bill["missing"][0]["ledger"])
b = Node("b")
until("b is back", lambda: all(n.nodes() == ALL for n in (a, b, c)))
code, bill, err = a.bill("--by-node")
check("with what it had", (0, before[("b", "y", "team")]), (code, sums(bill).get(("b", "y", "team"))))
check("and the sum has the request once", before[("a", "both", NAMES[PLAIN])][0] + 1 if place in before else 1, sums(bill)[place][0])

# ---- forgotten by a user ----
check("not while it is there", (1, True), (lambda r: (r.returncode, "node b is there" in r.stderr))(a.ctl("cluster", "forget", "b")))
check("nor by its ledger", 1, a.ctl("cluster", "forget", of_b).returncode)
check("one that never was", 3, a.ctl("cluster", "forget", "nobody").returncode)
b.kill()
until("b is gone", lambda: all("b" not in n.nodes() for n in (a, c)))
check("forget", 0, c.ctl("cluster", "forget", "b").returncode)
until("a bill misses it no longer", lambda: a.bill()[0] == 0)
check("nor has it", False, any(row["model"] == "y" for row in a.bill()[1]["usage"]))
check("forget once more", 3, c.ctl("cluster", "forget", "b").returncode)
b = Node("b")
until("who comes back is in the bill again", lambda: "b" in a.nodes() and a.bill()[0] == 0 and any(row["model"] == "y" for row in a.bill()[1]["usage"]))

# ---- the same folder under another name; an end in order ----
whole = sums(a.bill()[1])
c.kill()
d = Node("d", ["z"], where="c")
for node in (a, b):
    until(f"{node.name} knows d", lambda n=node: "d" in n.nodes())
code, bill, err = a.bill("--by-node")
check("at once, while the old name is still known", (0, set("abd")), (code, {row["node"] for row in bill["usage"]}))
check("nothing is counted twice", whole, sums(a.bill()[1]))
check("its key has the new name", ["a", "b", "d"], names(ledgers()))
check("d ends", 0, d.stop())
until("its key says until when", lambda: any("until" in value for value in ledgers().values()))
until("d is gone, and what was c", lambda: set(a.nodes()) == {"a", "b"})
check("a bill of that time misses it", (7, ["d"]), (lambda r: (r[0], list(missing(r[1]))))(a.bill()))
check("a bill of a later time does not", (0, []), (lambda r: (r[0], r[1]["missing"]))(a.bill(since=str(int(time.time()) + 7200))))

# ---- another ledger of the same node, and one ledger of two ----
os.rename(f"{folder}/c/usage.sqlite", f"{folder}/c/old.sqlite")
c = Node("c")
until("c is there", lambda: "c" in a.nodes())
code, bill, err = a.bill()
check("its old ledger is missed", (7, True), (code, any("has another ledger now" in one["why"] for one in bill["missing"])))
old = next(one["ledger"] for one in bill["missing"])
check("forget it by its ID", 0, a.ctl("cluster", "forget", old).returncode)
until("it is missed no longer", lambda: a.bill()[0] == 0)
c.kill()
twin = Node("twin", ["z"], state=f"{folder}/a/usage.sqlite")
until("twin is there, and c is not", lambda: set(a.nodes()) == {"a", "b", "twin"})
code, bill, err = b.bill()
check("two nodes with one ledger: counted once, and the second is named", (7, True), (code, any("has the same ledger as node" in why for why in missing(bill).values())))
check("once", whole[("x", "team")], sums(bill)[("x", "team")])
check("that is in the log, with what to do", True, "the same ledger as this one, or a copy of it" in twin.stderr() and "cluster forget a" in twin.stderr())
of_a = next(key for key, value in ledgers().items() if value["node"] == "a")
check("each has a key", ["a", "b", "c", "twin"], names(ledgers()))
check("twin ends", 0, twin.stop())
until("it is gone", lambda: "twin" not in a.nodes())
check("nobody knows whether the other one has all of it", (7, ["c", "twin"]), (lambda r: (r[0], sorted(missing(r[1]))))(a.bill()))
check("forget it", 0, a.ctl("cluster", "forget", "twin").returncode)

# ---- a copy of a ledger, which goes on by itself ----
with sqlite3.connect(f"{folder}/a/usage.sqlite") as db, sqlite3.connect(f"{folder}/copied.sqlite") as copied:
    db.backup(copied)
db.close()
copied.close()
copy = Node("copy", ["q"], state=f"{folder}/copied.sqlite")
until("the copy is there", lambda: set(a.nodes()) == {"a", "b", "copy"} and "copy" in b.nodes())
check("it has rows of its own", 200, copy.chat("q").status)
check("one of both counts", True, "has the same ledger as node" in str(missing(b.bill()[1])))
beside = next(key for key, value in ledgers().items() if value["node"] == "copy")
check("its key says so", (of_a, "a"), (ledgers()[beside]["copy_of"], ledgers()[of_a]["node"]))
copy.kill()
until("the copy is gone", lambda: "copy" not in a.nodes() and "copy" not in b.nodes())
for node in (a, b):
    code, bill, err = node.bill()
    check("a bill without its rows is not complete", (7, [beside]), (code, [one["ledger"] for one in bill["missing"] if one["node"] == "copy"]))
    check("which they are not in", False, any(row["model"] == "q" for row in bill["usage"]))
a.kill()
until("nor is a there", lambda: set(b.nodes()) == {"b"})
copy = Node("copy", ["q"], state=f"{folder}/copied.sqlite")
until("the copy is back alone", lambda: "copy" in b.nodes())
code, bill, err = b.bill()
check("its rows are there, and what a had since is missed", (7, True, "node copy shows it, or a copy of it"),
      (code, any(row["model"] == "q" for row in bill["usage"]), missing(bill).get("a")))
copy.kill()
a = Node("a")
until("a is back, and the copy is gone", lambda: all(set(n.nodes()) == {"a", "b"} for n in (a, b)))
check("the copy is forgotten by its ID", 0, a.ctl("cluster", "forget", beside).returncode)
until("only c is missed", lambda: set(missing(a.bill()[1])) == {"c"})
mute = Node("mute", ["m"], state="")
until("a node that keeps nothing is there", lambda: "mute" in a.nodes() and "twin" not in a.nodes())
check("it is named", True, "nothing is kept there: medusa.state is not set" in missing(a.bill()[1]).get("mute", ""))
mute.kill()
until("it is gone", lambda: "mute" not in a.nodes())
check("it is missed", True, "mute" in missing(a.bill()[1]))
for name in ("mute", "c"):
    check(f"forget {name}", 0, a.ctl("cluster", "forget", name).returncode)
until("all is well", lambda: a.bill()[0] == 0)

# ---- a copy is put in the place of a ledger to which its daemon still writes ----
with sqlite3.connect(f"{folder}/b/usage.sqlite") as db, sqlite3.connect(f"{folder}/earlier.sqlite") as copied:
    db.backup(copied)
db.close()
copied.close()
FILES = [f"{folder}/b/{name}" for name in os.listdir(f"{folder}/b") if name.startswith("usage.sqlite")]
for path in FILES:
    os.rename(path, path.replace("usage", "away"))
os.rename(f"{folder}/earlier.sqlite", f"{folder}/b/usage.sqlite")
check("b goes on", 200, b.chat("y").status)
for node in (a, b):
    check("the copy does not count as the ledger", (7, True), (lambda r: (r[0], "is not the file to which this daemon writes" in missing(r[1]).get("b", "")))(node.bill()))
for name in os.listdir(f"{folder}/b"):
    if name.startswith("usage.sqlite"):
        os.remove(f"{folder}/b/{name}")
for path in FILES:
    os.rename(path.replace("usage", "away"), path)
check("the ledger is back, with what was used meanwhile", (0, []), (lambda r: (r[0], r[1]["missing"]))(a.bill()))


# ---- nodes that say anything ----
class Evil(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    said = b""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200 if self.path.startswith("/medusa/bill/") and Evil.said is not None else 404)
        self.send_header("Connection", "close")
        self.end_headers()
        said = Evil.said
        try:
            if callable(said):
                said(self.wfile, int(self.path.rsplit("/", 1)[1]))
            elif said is not None:
                self.wfile.write(said.replace(b"SINCE", str(int(self.path.rsplit("/", 1)[1]) // 60 * 60).encode()))
        except OSError:
            pass
        self.close_connection = True


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
threading.Thread(target=server.serve_forever, daemon=True).start()
ID = "e" * 32
RECORD = {"format": 1, "identity": ID, "url": f"http://127.0.0.1:{server.server_address[1]}", "version": "1", "gpus": [], "host_pool_bytes": 0, "models": []}
etcd.run("put", "/medusa/nodes/evil", json.dumps(RECORD))
until("evil is known", lambda: "evil" in a.nodes())


def head(**more):
    return json.dumps({"format": 1, "node": "evil", "identity": ID, "ledger": "f" * 32, "since": 0, "now": int(time.time()), **more}).replace('"since": 0', '"since": SINCE') + "\n"


def row(model="x", key="team", numbers=(1, 0, 1, 1, 1, 1, 0, 0)):
    return json.dumps([model, key, *numbers]) + "\n"


def end(rows=1, lost=0):
    return json.dumps({"rows": rows, "lost": lost}) + "\n"


def endless(out, _):
    while True:
        out.write(b"\n" * 65536)


def endless_rows(out, since):
    out.write(head().replace("SINCE", str(since // 60 * 60)).encode())
    number = 0
    while True:
        out.write("".join(row(f"{number + i:09}{'x' * 4000}") for i in range(100)).encode())
        number += 100


def drips(out, _):
    while True:
        out.write(b"\n")
        out.flush()
        time.sleep(0.3)


GOOD = sums(a.bill("--deadline", "1")[1])
LIES = (
    ("nothing", "", "it has said nothing"),
    ("no JSON", "hello\n", "it has said something that is no line of a bill"),
    ("no text", b"\xff\xfe\x00\n", "it has said something that is no line of a bill"),
    ("a line without an end", head() + row() + end().strip(), "its end is missing"),
    ("deep", "[" * 100000 + "\n", "it has said something that is no line of a bill"),
    ("another format", head(format=2) + row() + end(), "its bill does not have format 1"),
    ("another node", head(node="a") + row() + end(), 'it says that it is node "a"'),
    ("another identity", head(identity="a" * 32) + row() + end(), "it says that its identity is"),
    ("no ledger", head(ledger="../../x") + row() + end(), "its bill does not begin with"),
    ("another time", head(since=60) + row() + end(), "its bill is of another time"),
    ("negative", head() + row(numbers=(1, 0, -1, 1, 1, 1, 0, 0)) + end(), "prompt_tokens of model x is no integer"),
    ("huge", head() + row(numbers=(1, 0, 10**19, 1, 1, 1, 0, 0)) + end(), "no line of a bill"),
    ("large", head() + row(numbers=(1, 0, 2 * 10**18, 1, 1, 1, 0, 0)) + end(), "prompt_tokens of model x is no integer"),
    ("a fraction", head() + row(numbers=(1, 0, 1.5, 1, 1, 1, 0, 0)) + end(), "prompt_tokens of model x is no integer"),
    ("a text", head() + row(numbers=(1, 0, "1", 1, 1, 1, 0, 0)) + end(), "prompt_tokens of model x is no integer"),
    ("a number too few", head() + row(numbers=(1, 0, 1, 1, 1, 1, 0)) + end(), "a row of its bill is not"),
    ("more untold than there are", head() + row(numbers=(1, 2, 1, 1, 1, 1, 0, 0)) + end(), "more requests are untold"),
    ("no model", head() + row(model="") + end(), "a row of its bill is not"),
    ("a long key", head() + row(key="k" * 72) + end(), "a row of its bill is not"),
    ("a row twice", head() + row() * 2 + end(2), "comes twice"),
    ("rows in no order", head() + row("x") + row("w") + end(2), "comes twice, or not in its order"),
    ("too few rows", head() + row() + end(2), "it says that its bill has 2 rows, and has sent 1"),
    ("no end", head() + row(), "the end of its bill is missing"),
    ("more behind it", head() + row() + end() + row("z"), "it has said more than its bill"),
    ("another word", head() + '{"what": 1}\n', "neither a row nor its end"),
    ("a reason", head() + '{"error": "the disk is broken \\u001b[2J"}\n', "the disk is broken"),
    ("the ledger of another", head(ledger=of_b) + row() + end(), "the same ledger as node"),
    ("endless", endless, "its bill "),  # has more than 64 MiB, or, on a machine that is busy, takes more than 30 s
    ("rows without an end", endless_rows, "its bill "),
    ("a drip", drips, "its bill takes more than 30 s"),
    ("another status", None, "its answer is 404, and 200 is wanted"),
)
for what, said, why in LIES:
    Evil.said = said.encode() if isinstance(said, str) else said
    code, bill, err = a.bill("--deadline", "1")
    found = missing(bill)
    # Of one ledger of two, either may have come first.
    named = next((w for w in found.values() if why in w), "") if what == "the ledger of another" else found.get("evil", "")
    check(f"{what}: refused, and named", lambda got, w=why: got[0] == 7 and w in got[1], (code, named or found))
    if what != "the ledger of another":
        check(f"{what}: nothing of it counts", GOOD, sums(bill))
    check(f"{what}: no terminal is told anything", False, "\x1b" in err)
Evil.said = (head() + row("only", "", (2, 1, 0, 0, 1, 1, 1, 9)) + "\n" + row("x", "team", (1, 0, 10, 5, 1, 1, 0, 0)) + end(2)).encode()
code, bill, err = a.bill()
check("what is right counts", (0, GOOD[("x", "team")][2] + 10, [2, 1, 0, 0, 1]), (code, sums(bill)[("x", "team")][2], sums(bill)[("only", "")]))
Evil.said = (head() + row("x", "team", (10**18, 0, 1, 1, 1, 1, 0, 0)) + end(1, 3)).encode()
code, bill, err = a.bill()
check("what it has lost is missed", (7, True), (code, "3 requests could not be written" in missing(bill)["evil"]))
etcd.run("put", f"/medusa/ledgers/{'f' * 32}", json.dumps({"format": 1, "node": "robbed", "identity": "5" * 32, "first": 1}))
Evil.said = (head() + end(0)).encode()
until("who shows the ledger of another one hides nothing", lambda: a.bill()[0] == 7 and missing(a.bill()[1]) == {"robbed": "node evil shows it, or a copy of it"})
etcd.run("del", f"/medusa/ledgers/{'f' * 32}")
Evil.said = (head(now=int(time.time()) - 500) + end(0)).encode()
check("a clock that is behind is said", True, "the clock of node evil is" in a.bill()[2] and "s behind" in a.bill()[2])

# ---- a node of an earlier version, which puts no key ----
Evil.said = None
until("it is noted by another node", lambda: ledgers().get(ID, {}).get("node") == "evil")
check("it is named as long as it is there", (7, True), (lambda r: (r[0], "404" in missing(r[1])["evil"]))(a.bill()))
etcd.run("del", "/medusa/nodes/evil")
until("it is gone", lambda: "evil" not in a.nodes())
check("and missed then", (7, ["evil"]), (lambda r: (r[0], list(missing(r[1]))))(a.bill()))
check("forget", 0, a.ctl("cluster", "forget", "evil").returncode)
etcd.run("put", f"/medusa/ledgers/{'9' * 32}", '{"format": 2}')
etcd.run("put", "/medusa/ledgers/odd", "x")
until("a key that can't be read stands for a ledger", lambda: [one["ledger"] for one in a.bill()[1]["missing"]] == ["9" * 32])
check("which can be forgotten, too", 0, a.ctl("cluster", "forget", "9" * 32).returncode)
until("all is well", lambda: a.bill()[0] == 0)

# ---- many rows ----
check("b ends", 0, b.stop())
MANY, TIMES = 20000, 4
with sqlite3.connect(f"{folder}/b/usage.sqlite") as db:
    minute = int(time.time()) // 60 * 60
    db.executemany("INSERT INTO usage VALUES (?, ?, ?, 1, 0, 10, 5, 1000, 50, 0, 0)", ((minute - 60 * t, f"model-{i // 100}", f"key-{i % 100:016}") for i in range(MANY) for t in range(TIMES)))
db.close()
b = Node("b")
until("b is there", lambda: "b" in a.nodes())
ends, slowest = threading.Event(), {"a": 0.0, "b": 0.0}


def look(node):
    while not ends.is_set():
        began_ = time.monotonic()
        node.get("/health")
        slowest[node.name] = max(slowest[node.name], time.monotonic() - began_)


lookers = [threading.Thread(target=look, args=(node,)) for node in (a, b)]
for thread in lookers:
    thread.start()
code, bill, err = a.bill()
ends.set()
for thread in lookers:
    thread.join()
rows = sums(bill)
check("all of them", (0, MANY, MANY * TIMES), (code, sum(1 for m, _ in rows if m.startswith("model-")), sum(r[0] for (m, _), r in rows.items() if m.startswith("model-"))))
check("meanwhile both serve", lambda s: max(s.values()) < 2, slowest)
print(f"  {MANY} rows; the slowest answer meanwhile: {slowest}", file=sys.stderr)

# ---- etcd is away ----
etcd.run("del", "/medusa/ledgers/odd")
etcd.run("put", f"/medusa/ledgers/{'8' * 32}", json.dumps({"format": 1, "node": "ghost", "identity": "7" * 32, "first": 1}))
until("a node that is gone is missed", lambda: missing(a.bill()[1]) == {"ghost": "it is not there; its ledger was first seen on 1970-01-01"})
etcd.stop()
until("a knows", lambda: "etcd" in a.get("/health").body.decode())
code, bill, err = a.bill()
check("what was known last is asked, and that it may not be all is said", (7, rows, True), (code, sums(bill), "the bill is incomplete: the cluster is as it was known last" in err))
check("nobody can be forgotten", (4, True), (lambda r: (r.returncode, "etcd at" in r.stderr))(a.ctl("cluster", "forget", "ghost")))
alone = Node("alone", ["w"])
code, bill, err = alone.bill()
check("a node that begins meanwhile has its own", (7, ["alone"]), (code, [one["node"] for one in bill["nodes"]]))
etcd.start()
until("the ghost can be forgotten then", lambda: a.ctl("cluster", "forget", "ghost").returncode in (0, 3))
until("it has put its key when etcd is back", lambda: "alone" in names(ledgers()) and "alone" in a.nodes())
until("and is in the bill", lambda: a.bill()[0] == 0 and "alone" in [one["node"] for one in a.bill()[1]["nodes"]])
world.close()
finish()
