# SPDX-License-Identifier: Apache-2.0
"""Contents that can't be had, or must not be: content_hostile.py FOLDER SIGNED_BY_US SIGNED_BY_OTHERS UNSIGNED TRUSTED."""
import hashlib
import http.server
import json
import mmap
import os
import shutil
import signal
import struct
import sys
import threading
import time

from content_world import BLOCK, NODE_KEY, Node, Proxy, World, make_file, read
from daemon import check, finish, until

folder, OURS, THEIRS, PLAIN, TRUSTED = sys.argv[1:6]
world = World(folder, 48)
FIRST = make_file(f"{folder}/src/first.bin", 8 * BLOCK + 5, 11)
pa, pb = Proxy(), Proxy()
a = Node(world, "a", {"m": f"files: [{FIRST}]"}, advertise=pa.url)
pa.target = a.port
until("a knows what it has", lambda: a.files("m")[0] == "here")
HASH = a.files("m")[1]


def knows(node, model, content, of="a"):
    until(f"{node.name} knows that {of} has {model}", lambda: node.contents(model).get(of) == content)


def digest(data):
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def asked_here(node, model):
    """A request that is not passed on."""
    return node.ask("POST", "/v1/chat/completions", {"model": model, "messages": []}, {"X-Medusa-Node": "t", "X-Medusa-Node-Key": NODE_KEY})


# ---- requests wait without memory of a GPU, and may leave ----
pa.rate = 8 << 20
w = Node(world, "w", {"m": f"content: {HASH}, max_wait: 60s, memory: 1GB, swap: off", "hasty": f"content: {HASH}, max_wait: 300ms, memory: 1GB, swap: off"}, more=", gpus: [{memory: 10GB}]")
knows(w, "m", HASH)
check("a loads it", 200, a.chat("m").status)
until("w knows that", lambda: w.places("m").get("a") == "gpu")
r = w.chat("m")
check("a request goes where the files are", (200, f"a-m-{a.store}/models/m"), (r.status, r.json.get("name")))
replies = []
waiting = threading.Thread(target=lambda: replies.append(asked_here(w, "m")))
waiting.start()
until("it is fetched for the request", lambda: w.files("m")[0] == "fetching")
check("a model that has no files yet takes no memory", ["stopped", 0], [{m["model"]: m["state"] for m in w.tell("models")["models"]}["m"], w.tell("status")["gpus"][0]["used_bytes"]])
r = asked_here(w, "hasty")
check("a limit holds meanwhile", 504, r.status)
gone = w.connect()
gone.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": []}), {"Content-Type": "application/json", "X-Medusa-Node": "t", "X-Medusa-Node-Key": NODE_KEY})
until("two wait", lambda: w.tell("status")["waiting"] == 2)
gone.close()
until("one of them has left", lambda: w.tell("status")["waiting"] == 1)
check("the files are on their way still", "fetching", w.files("m")[0])
waiting.join()
check("it is answered when the files have come", (200, f"w-m-{w.store}/models/m"), (replies[0].status, replies[0].json.get("name")))
check("the other model of the same files has them, too", (0, True), (w.ctl("load", "hasty").returncode, read(f"{w.store}/models/hasty/first.bin") == read(FIRST)))
pa.rate = 0
v = Node(world, "v", {"m": f"content: {HASH}"}, cluster=", fetch_rate: 8MB")
knows(v, "m", HASH)
waiting = threading.Thread(target=lambda: replies.append(asked_here(v, "m")))
began = time.monotonic()
waiting.start()
until("it is fetched", lambda: v.files("m")[0] == "fetching")
waiting.join()
check("the rate holds", lambda s: s > (8 * BLOCK) / 8e6 * 0.9, time.monotonic() - began)
waiting = None
x = Node(world, "x", {"m": f"content: {HASH}"}, cluster=", fetch_rate: 100kB")
knows(x, "m", HASH)
waiting = threading.Thread(target=lambda: replies.append(asked_here(x, "m")))
waiting.start()
until("it is fetched slowly", lambda: x.files("m")[0] == "fetching")
x.process.send_signal(signal.SIGTERM)
until("it takes no more", lambda: "draining" in x.stderr() or x.tell("status").get("draining"))
check("a daemon that is told to end twice ends at once", 0, x.stop())
waiting.join()
check("and its client is told", 503, replies[-1].status)

# ---- a node that sends what is wrong ----
b = Node(world, "b", {"m": f"files: [{FIRST}]"}, advertise=pb.url)
pb.target = b.port
until("b has it, too", lambda: b.files("m")[1] == HASH)


def spoil(got, first):
    return got if first else got[:-1] + bytes([got[-1] ^ 1])


pa.spoil = spoil
c = Node(world, "c", {"m": f"content: {HASH}"})
knows(c, "m", HASH)
knows(c, "m", HASH, "b")
check("what one sends is wrong, and the other one's is right", 0, c.ctl("load", "m").returncode)
check("equal", True, read(f"{c.store}/models/m/first.bin") == read(FIRST))
check("counted", True, c.metric("wrong_blocks_total") >= 1)
check("named", True, f"content {HASH}: node a ({pa.url}) is left out: block " in c.stderr() and " is wrong" in c.stderr())
check("the other one is not", False, "node b" in c.stderr())
for node in (b, c, v, w):
    node.kill()
d = Node(world, "d", {"m": f"content: {HASH}"})
knows(d, "m", HASH)
until("all others are away", lambda: [n["node"] for n in d.tell("cluster", "nodes")["nodes"] if n["state"] == "ready"] == ["a", "d"])
r = d.ctl("load", "m")
check("nobody else has it", (True, True), (r.returncode != 0, "no node that has it could be asked" in d.stderr()))
check("nothing is seen", (False, False), (os.path.exists(f"{d.store}/{HASH}"), os.path.lexists(f"{d.store}/models/m")))
pa.spoil = None
until("what is right now is fetched when it is wanted again", lambda: d.ctl("load", "m").returncode == 0)
check("equal", True, read(f"{d.store}/models/m/first.bin") == read(FIRST))

# ---- own files that come later ----
make_file(f"{folder}/src/later", 100, 14)
late = Node(world, "late", {"kept": f"files: [{folder}/src/other], min_replicas: 1"})
until("its files are missing", lambda: late.files("kept")[0] in ("missing", "waiting"))
check("it is not loaded", "stopped", {m["model"]: m["state"] for m in late.tell("models")["models"]}["kept"])
os.rename(f"{folder}/src/later", f"{folder}/src/other")
until("a model that is to stay loaded is loaded when they have come", lambda: {m["model"]: m["state"] for m in late.tell("models")["models"]}["kept"] == "ready")

# ---- a disk without room ----
around = open(f"{folder}/around", "w+b")
around.write(struct.pack("qQ", 0, 0))
around.flush()
full = mmap.mmap(around.fileno(), 16)
os.environ["LD_PRELOAD"] = " ".join(filter(None, (os.environ.get("LD_PRELOAD"), f"{os.environ['MEDUSA_BUILD']}/tests/faults/surroundings.so")))
os.environ["SURROUNDINGS"], os.environ["SURROUNDINGS_PROGRAM"] = f"{folder}/around", "medusa-worker"
pa.rate = 8 << 20
e = Node(world, "e", {"m": f"content: {HASH}"})
for name in ("LD_PRELOAD", "SURROUNDINGS", "SURROUNDINGS_PROGRAM"):
    del os.environ[name]
knows(e, "m", HASH)
loads = []
thread = threading.Thread(target=lambda: loads.append(e.ctl("load", "m")))
thread.start()
until("some has come", lambda: (e.metric("fetched_blocks_total") or 0) >= 2)
full[8:16] = struct.pack("Q", 1)
thread.join()
check("the load fails", (True, True), (loads[0].returncode != 0, "No space left on device" in loads[0].stderr))
check("shown", True, "No space left on device" in (e.files("m")[4] or ""))
check("it serves", 200, e.get("/health").status)
full[8:16] = struct.pack("Q", 0)
had = e.metric("fetched_blocks_total")
until("it goes on when there is room", lambda: e.ctl("load", "m").returncode == 0)
check("where it was", 9.0, e.metric("fetched_blocks_total"))
check("equal", True, read(f"{e.store}/models/m/first.bin") == read(FIRST))
pa.rate = 0

# ---- the store's limit, and what no model needs ----
SECOND = make_file(f"{folder}/src/second.bin", 3 * BLOCK, 12)
g = Node(world, "g", {"n": f"files: [{SECOND}]"})
until("g has another one", lambda: g.files("n")[0] == "here")
OTHER = g.files("n")[1]
h = Node(world, "h", {"m": f"content: {HASH}", "n": f"content: {OTHER}"}, cluster=", store_bytes: 40MB")
knows(h, "m", HASH)
knows(h, "n", OTHER, "g")
check("the first one", 0, h.ctl("load", "m").returncode)
r = h.ctl("load", "n")
check("there is no room for both", (True, True), (r.returncode != 0, "medusa.cluster.store_bytes is 40000000" in r.stderr))
config = read(f"{h.folder}/config.yaml").decode()
h.write_config("\n".join(line for line in config.replace("[m, n]", "[n]").split("\n") if not line.startswith("  m: ")))
check("reload", 0, h.ctl("reload").returncode)
until("what no model needs makes room", lambda: h.ctl("load", "n").returncode == 0)
check("it is gone", (False, True), (os.path.exists(f"{h.store}/{HASH}"), os.path.exists(f"{h.store}/{OTHER}")))

# ---- signatures ----
artifacts = {"ours": OURS, "theirs": THEIRS, "plain": PLAIN}
i = Node(world, "i", {name: f"artifact: {path}, files: [{FIRST}], swap: off" for name, path in artifacts.items()})
until("i has artifacts", lambda: all(i.files(name)[0] == "here" for name in artifacts))
hashes = {name: i.files(name)[1] for name in artifacts}
j = Node(world, "j", {name: f"artifact: /nowhere/{os.path.basename(path)}, content: {hashes[name]}, swap: off" for name, path in artifacts.items()}, cluster=f", signed_by: {TRUSTED}")
for name in artifacts:
    knows(j, name, hashes[name], "i")
r = j.ctl("load", "plain")
check("one that is not signed", (True, True), (r.returncode != 0, "is refused (medusa.cluster.signed_by" in j.stderr()))
r = j.ctl("load", "theirs")
check("one that somebody else has signed", True, r.returncode != 0 and f"{os.path.basename(THEIRS)} of content {hashes['theirs']} is refused" in j.stderr())
check("nothing of them is left", [], [n for n in os.listdir(j.store) if hashes["plain"] in n or hashes["theirs"] in n])
j.ctl("load", "ours")  # medusa-restore may refuse its engine
until("one that we have signed comes", lambda: os.path.exists(f"{j.store}/models/ours/{os.path.basename(OURS)}"))
check("equal", True, read(f"{j.store}/models/ours/{os.path.basename(OURS)}") == read(OURS))

# ---- what is not signed is refused before anything else is asked for ----
def place(folder_of, **files):
    """A folder with these files, by their names' order: from a path, or of random bytes."""
    for at, (name, what) in enumerate(files.items()):
        path = make_file(f"{folder_of}/{name.replace('_', '.')}", what if isinstance(what, int) else 0, 30 + at)
        if not isinstance(what, int):
            shutil.copy2(what, path)
    return f"files: [{folder_of}], swap: off"


big = 6 * BLOCK
pn = Proxy()
sets = {
    "named": place(f"{folder}/src/named", a_bin=big, b_medusa=PLAIN, c_bin=big),  # in block 6, with the beginning of c.bin
    "unnamed": place(f"{folder}/src/unnamed", a_bin=big, b_bin=PLAIN, c_bin=big),
    "false": place(f"{folder}/src/false", a_medusa=big, b_bin=big),  # a name that is wrong
    "signed": place(f"{folder}/src/signed", a_bin=big, b_medusa=OURS, c_bin=big),
}
n = Node(world, "n", sets, advertise=pn.url)
pn.target = n.port
until("n has them", lambda: all(n.files(name)[0] == "here" for name in sets))
hashes = {name: n.files(name)[1] for name in sets}
q = Node(world, "q", {name: f"content: {hashes[name]}, swap: off" for name in sets}, cluster=f", signed_by: {TRUSTED}, fetch_streams: 4")
for name in sets:
    knows(q, name, hashes[name], "n")


def refused(name, file, blocks):
    pn.asked.clear()
    r = q.ctl("load", name)
    check(f"{name}: refused by its name", True, r.returncode != 0 and f"{file} of content {hashes[name]} is refused (medusa.cluster.signed_by" in r.stderr or r.stderr)
    check(f"{name}: what was asked for", blocks, sorted(pn.blocks(hashes[name])))
    check(f"{name}: nothing of it is left", [], [f for f in os.listdir(q.store) if hashes[name] in f])


check("the artifact is small", lambda size: size < BLOCK, os.path.getsize(PLAIN))
refused("named", "named/b.medusa", [6])
refused("unnamed", "unnamed/b.bin", [0, 6])  # its name says nothing: the first bytes of each file come
check("a name that is none of an artifact", 0, q.ctl("load", "false").returncode)
check("each block once", list(range(12)), sorted(pn.blocks(hashes["false"])))
check("equal", True, read(f"{q.store}/models/false/false/a.medusa") == read(f"{folder}/src/false/a.medusa"))
pn.rate = 4 << 20
thread = threading.Thread(target=q.ctl, args=("load", "signed"))
thread.start()
until("some of it has come", lambda: (q.metric("fetch_done_bytes") or 0) >= 3 * BLOCK)
q.kill()
thread.join()
asked = pn.blocks(hashes["signed"])
check("the artifact was asked for first", 6, asked[0])
pn.rate = 0
pn.asked.clear()
q = Node(world, "q", {"signed": f"content: {hashes['signed']}, swap: off"}, cluster=f", signed_by: {TRUSTED}, fetch_streams: 4", port=q.ports)
knows(q, "signed", hashes["signed"], "n")
check("a daemon that was killed goes on", 0, q.ctl("load", "signed").returncode)
check("with what has not come", True, len(pn.blocks(hashes["signed"])) <= 10 and 6 not in pn.blocks(hashes["signed"]))
check("equal", True, all(read(f"{q.store}/models/signed/signed/{f}") == read(f"{folder}/src/signed/{f}") for f in ("a.bin", "b.medusa", "c.bin")))

# ---- a file that is changed after it was hashed ----
make_file(FIRST, 8 * BLOCK + 5, 13)
time.sleep(3.1)  # what is younger than two seconds when it was hashed is read again at the next start
r = a.page(f"/medusa/content/{HASH}", Range="bytes=0-100")
check("it is not given any more", (409, "content_changed"), (r.status, r.json.get("error", {}).get("code")))
until("it has another hash now", lambda: a.files("m")[1] not in (None, HASH) and a.files("m")[0] == "here")
NEW = a.files("m")[1]
check("the old one is not there", 404, a.page(f"/medusa/content/{HASH}").status)
config = read(f"{a.folder}/config.yaml").decode()
a.stop()
marks = os.listdir(f"{a.folder}/state/contents")
mine = next(n for n in marks if digest(read(f"{a.folder}/state/contents/{n}")) == NEW)
changed = read(f"{a.folder}/state/contents/{mine}")
changed = changed[:-6] + (b"0000" if changed[-6:-2] != b"0000" else b"1111") + changed[-2:]
with open(f"{a.folder}/state/contents/{mine}", "wb") as file:
    file.write(changed)
a = Node(world, "a", {"m": f"files: [{FIRST}]"}, port=a.ports)
until("what was hashed is not read again", lambda: a.files("m")[1] == digest(changed))
a.stop()
os.remove(f"{a.folder}/state/contents/{mine}")
a = Node(world, "a", {"m": f"files: [{FIRST}]"}, port=a.ports)
until("but for a manifest that is not there", lambda: a.files("m")[1] == NEW)

# ---- without a hash, and with own files that are others ----
k = Node(world, "k", {"m": f"content: {HASH}, files: [{SECOND}]", "n": f"files: [{folder}/nowhere]", "o": f"files: [{folder}/nowhere]"})
until("k has looked", lambda: all(k.files(n)[0] == "missing" for n in "mno"))
check("what is there is not what is demanded", True, "another content than medusa.content" in k.files("m")[4])
r = k.ctl("load", "n")
check("nothing is fetched that nobody demands", (True, True), (r.returncode != 0, "medusa.cluster.fetch is demanded" in r.stderr))
l = Node(world, "l", {"n": f"files: [{folder}/nowhere]", "o": f"files: [{folder}/nowhere]"}, cluster=", fetch: any")
knows(l, "n", OTHER, "g")
check("unless any will do", 0, l.ctl("load", "n").returncode)
check("equal", True, read(f"{l.store}/models/n/second.bin") == read(SECOND))
o = [Node(world, name, {"o": f"files: [{path}]"}) for name, path in (("o1", FIRST), ("o2", SECOND))]
until("two nodes have something else", lambda: len({v for n, v in l.contents("o").items() if v}) == 2)
r = l.ctl("load", "o")
check("which one is not known", (True, True), (r.returncode != 0, "nodes have different files for it" in r.stderr))
u = Node(world, "u", {"n": f"content: {OTHER}"}, key=False)
r = u.ctl("load", "n")
check("without the nodes' key", (True, True), (r.returncode != 0, "medusa.cluster.tls or key_file" in r.stderr))

# ---- manifests that lie ----
said = {}


class Evil(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        name = self.path.split("/")[3] if self.path.startswith("/medusa/content/") else ""
        body = said.get(name, (b"", 0))[0] if self.path.endswith("/manifest") else b"x" * 100
        how = said.get(name, (b"", ""))[1]
        self.send_response(200 if self.path.endswith("/manifest") or how == "status" else 206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if how == "big":
            sent.set()


sent = threading.Event()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
threading.Thread(target=server.serve_forever, daemon=True).start()


def manifest(files, blocks=1, **more):
    return json.dumps({"format": 1, "block_bytes": BLOCK, "files": [{"name": n, "size": s} for n, s in files], "blocks": digest(b"x" * 100) * blocks, **more}).encode()


lies = {
    "above": (manifest([("../../../above", 100)]), "a relative path is wanted"),
    "absolute": (manifest([(f"{folder}/absolute", 100)]), "a relative path is wanted"),
    "inside": (manifest([("a/../../b", 100)]), "a relative path is wanted"),
    "dot": (manifest([("./b", 100)]), "a relative path is wanted"),
    "twice": (manifest([("a", 50), ("a", 50)]), 'is not behind "a"'),
    "order": (manifest([("b", 50), ("a", 50)]), 'is not behind "b"'),
    "below": (manifest([("a", 50), ("a-b", 0), ("a/b", 50)]), "is in a folder that is a file, too"),
    "empty": (manifest([("", 100)]), "a relative path is wanted"),
    "line": (manifest([("a\nb", 100)]), "a relative path is wanted"),
    "nul": (manifest([("a\0b", 100)]), "a relative path is wanted"),
    "long": (manifest([("a" * 300, 100)]), "a relative path is wanted"),
    "deep": (manifest([("a/" * 64 + "a", 100)]), "a relative path is wanted"),
    "none": (manifest([]), "files: a list of 1 to"),
    "huge": (manifest([("a", 1 << 60)]), "at most 4 TiB"),
    "sum": (manifest([(str(i), 1 << 41) for i in range(9)]), "at most 4 TiB"),
    "less": (manifest([("a", -1)]), "at most 4 TiB"),
    "blocks": (manifest([("a", 100)], 2), "hashes of 1 blocks are wanted"),
    "hex": (manifest([("a", 100)]).replace(digest(b"x" * 100)[:4].encode(), b"zzzz"), "hexadecimal digits are wanted"),
    "block": (manifest([("a", 100)], block_bytes=1), "block_bytes: 4194304 is wanted"),
    "format": (manifest([("a", 100)], format=2), "format: 2"),
    "json": (b"{", "it is no JSON object"),
    "list": (b"[]", "it is no JSON object"),
}
for name, (text, _) in lies.items():
    said[digest(text)] = (text, "")
right = manifest([("a", 100)])
swindle = manifest([("status", 100)])
big = manifest([("d/" * 60 + "f" * 120 + f"{i:06}", 0) for i in range(90000)], 2)  # of less than 80 MB, and not right
said[digest(big)] = (big, "big")
said["0" * 64] = (right, "")
said[digest(swindle)] = (swindle, "status")
said[digest(right)] = (right, "")
record = {"format": 1, "identity": "0" * 32, "url": f"http://127.0.0.1:{server.server_address[1]}", "version": "1", "gpus": [], "host_pool_bytes": 0, "models": []}
world.etcd.run("put", "/medusa/nodes/evil", json.dumps(record))
demands = {name: digest(text) for name, (text, _) in lies.items()} | {"wrong": "0" * 64, "status": digest(swindle), "right": digest(right), "big": digest(big)}
world.etcd.run("put", "/medusa/contents/evil", json.dumps({"format": 1, "models": {name: {"content": value, "bytes": 100} for name, value in demands.items()}}))
for key, value in (("contents/odd", "{"), ("contents/a b", "{}"), ("contents/odder", '{"format": 1, "models": {"right": {"content": "../../x", "bytes": 1}, "wrong": 5, "block": {"content": "' + "1" * 64 + '", "bytes": "x"}}}')):
    world.etcd.run("put", "/medusa/" + key, value)
z = Node(world, "z", {name: f"content: {value}" for name, value in demands.items()})
until("z knows evil", lambda: "evil" in [n["node"] for n in z.tell("cluster", "nodes")["nodes"]])
for name, (text, why) in lies.items():
    z.ctl("load", name)
    found = z.files(name)[4] or ""
    check(f"a manifest that lies: {name}", True, why in found or name == "nul" and "it is no JSON object" in found or found)
check("none of it has left the store", [], [n for n in (f"{folder}/above", f"{folder}/absolute", f"{folder}/z/above", f"{folder}/z/b", f"{z.store}/above", f"{z.store}/b") if os.path.exists(n)])
check("one that is right", True, (z.ctl("load", "right"), read(f"{z.store}/models/right/a"))[1] == b"x" * 100)
z.ctl("load", "wrong")
check("another one than was asked for", True, "node evil: the manifest that it sends has another hash" in (z.files("wrong")[4] or ""))
check("it is named", True, f"content {'0' * 64}: node evil (http://127.0.0.1:{server.server_address[1]}) is left out" in z.stderr())
z.ctl("load", "status")
check("an answer that is none", True, "its answer is 200, and 206 is wanted" in (z.files("status")[4] or ""))
thread = threading.Thread(target=z.ctl, args=("load", "big"))
thread.start()
sent.wait()
answers = 0
while thread.is_alive():
    answers += z.get("/health").status == 200
thread.join()
check("one that is big is refused", True, "hashes of 0 blocks are wanted" in (z.files("big")[4] or ""))
check("and clients are served while it is read", lambda n: n >= 100, answers)
world.close()
finish()
