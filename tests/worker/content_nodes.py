# SPDX-License-Identifier: Apache-2.0
"""Files of models travel between nodes by their hash: content_nodes.py FOLDER. A real etcd, real daemons; engines that say where their files are."""
import os
import sys
import threading

from content_world import BLOCK, NODE_KEY, Node, Proxy, World, make_file, read
from daemon import check, finish, until

folder = sys.argv[1]
world = World(folder)
SIZE = 9 * BLOCK + 12345
WEIGHTS = make_file(f"{folder}/src/qwen/weights/part.bin", SIZE, 1)
make_file(f"{folder}/src/qwen/empty", 0, 2)
TOKENIZER = make_file(f"{folder}/src/tokenizer.json", 70000, 3)
OWN = f"files: [{folder}/src/qwen, {TOKENIZER}]"


def equal(node, model="m"):
    place = f"{node.store}/models/{model}"
    return (read(f"{place}/qwen/weights/part.bin") == read(WEIGHTS), read(f"{place}/tokenizer.json") == read(TOKENIZER), read(f"{place}/qwen/empty"))


# ---- a node has the files, and another one fetches them ----
a = Node(world, "a", {"m": OWN})
until("a knows what it has", lambda: a.files("m")[0] == "here")
HASH = a.files("m")[1]
check("a hash", True, len(HASH) == 64 and not HASH.strip("0123456789abcdef"))
r = a.chat("m")
check("its engine finds them in the store's place", (200, f"a-m-{a.store}/models/m"), (r.status, r.json.get("name")))
check("which leads to what medusa.files names", (True, True, b""), equal(a))
b = Node(world, "b", {"m": f"content: {HASH}"})
until("b knows that a has them", lambda: b.contents("m") == {"a": HASH, "b": HASH})
check("nobody wants it at b, so nothing comes", ("missing", 0.0), (b.files("m")[0], b.metric("fetched_bytes_total")))
check("load", 0, b.ctl("load", "m").returncode)
check("fetched whole, and equal", (True, True, b""), equal(b))
check("the place is a link to its hash", f"../{HASH}/files", os.readlink(f"{b.store}/models/m"))
check("nothing in parts is left", [], [n for n in os.listdir(b.store) if n.startswith("partial")])
check("counted", (SIZE + 70000, SIZE + 70000, 1.0, 0.0), (b.metric("fetched_bytes_total"), b.files("m")[2], b.metric("fetches_total"), b.metric("wrong_blocks_total")))
check("at a, too", True, a.metric("served_bytes_total") >= SIZE + 70000)
r = b.ask("POST", "/v1/chat/completions", {"model": "m", "messages": []}, {"X-Medusa-Node": "t", "X-Medusa-Node-Key": NODE_KEY})
check("its engine has them", (200, f"b-m-{b.store}/models/m"), (r.status, r.json.get("name")))
check("in words", True, f"here {HASH[:12]}" in b.ctl("cluster", "models").stdout)

# ---- who may ask ----
PATH = f"/medusa/content/{HASH}"
for what, r in (("without a key", a.get(PATH)), ("without a key, the manifest", a.get(PATH + "/manifest")), ("with a wrong one", a.get(PATH, **{"X-Medusa-Node": "b", "X-Medusa-Node-Key": NODE_KEY[:-1]})),
                ("without a key, by HEAD", a.ask("HEAD", PATH))):
    check(what, (403, True), (r.status, len(r.body) < 300 and b"part.bin" not in r.body))
check("counted", 4.0, a.metric("refused_total"))
r = a.page(PATH)
check("all of it", (200, SIZE + 70000), (r.status, len(r.body)))
whole = r.body
check("as the files are", True, whole == read(WEIGHTS) + read(TOKENIZER))
for said, first, last in (("bytes=0-0", 0, 0), ("bytes=100-4194403", 100, 4194403), (f"bytes={SIZE - 5}-{SIZE + 5}", SIZE - 5, SIZE + 5), (f"bytes={SIZE}-", SIZE, SIZE + 69999), ("bytes=5-99999999999", 5, SIZE + 69999)):
    r = a.page(PATH, Range=said)
    check(said, (206, f"bytes {first}-{last}/{SIZE + 70000}", True), (r.status, r.headers.get("content-range"), r.body == whole[first:last + 1]))
for said in ("bytes=-5", "bytes=5-4", f"bytes={SIZE + 70000}-", "bytes=0-1,3-4", "lines=1-2", "bytes=x-", "bytes=99999999999999999999999-"):
    check(said, 416, a.page(PATH, Range=said).status)
r = a.page(PATH, "HEAD")
check("HEAD", (200, str(SIZE + 70000), b""), (r.status, r.headers.get("content-length"), r.body))
r = a.page(PATH + "/manifest")
check("the manifest", ([("qwen/empty", 0), ("qwen/weights/part.bin", SIZE), ("tokenizer.json", 70000)], 10 * 64),
      ([(f["name"], f["size"]) for f in r.json["files"]], len(r.json["blocks"])))
for path in ("/medusa/content/", "/medusa/content/" + "0" * 64, PATH + "/other", PATH + "0", PATH[:-1], "/medusa/content/../../etc/passwd", PATH + "/manifest/"):
    check(path, 404, a.page(path).status)
check("a method that is none of them", 404, a.page(PATH, "POST").status)

# ---- two sources, of which one is killed while it gives ----
pa, pb = Proxy(), Proxy()
x = Node(world, "x", {"big": f"files: [{make_file(folder + '/src/big.bin', 16 * BLOCK, 4)}]"}, advertise=pa.url)
y = Node(world, "y", {"big": f"files: [{folder}/src/big.bin]"}, advertise=pb.url)
pa.target, pb.target = x.port, y.port
until("both have it", lambda: x.files("big")[0] == y.files("big")[0] == "here" and x.files("big")[1] == y.files("big")[1])
BIG = x.files("big")[1]
pa.rate = pb.rate = 12 << 20
c = Node(world, "c", {"big": f"content: {BIG}"})
until("c knows both", lambda: set(c.contents("big").values()) == {BIG} and len(c.contents("big")) == 3)
pa.bytes = pb.bytes = 0
held = []
thread = threading.Thread(target=lambda: held.append(c.ctl("load", "big")))
thread.start()
until("blocks come from both", lambda: pa.bytes > BLOCK and pb.bytes > BLOCK)
state, _, done, of, _ = c.files("big")
check("how far it is", ("fetching", 16 * BLOCK, True), (state, of, done < of))
check("in words", True, f"fetching {BIG[:12]}" in c.ctl("cluster", "models").stdout)
check("nothing is seen under its name", False, os.path.exists(f"{c.store}/{BIG}") or os.path.lexists(f"{c.store}/models/big"))
x.kill()
pa.cut = True
thread.join()
check("it goes on with the other", 0, held[0].returncode)
check("equal", True, read(f"{c.store}/models/big/big.bin") == read(f"{folder}/src/big.bin"))
check("both gave", (True, True), (pa.bytes > BLOCK, pb.bytes > 7 * BLOCK))

# ---- the fetching node is killed in the middle, and goes on where it was ----
pb.rate = 8 << 20
pb.bytes = 0
d = Node(world, "d", {"big": f"content: {BIG}"})
until("d knows y", lambda: d.contents("big").get("y") == BIG)
threading.Thread(target=lambda: d.ctl("load", "big")).start()
until("some blocks are there", lambda: (d.metric("fetched_blocks_total") or 0) >= 6)
d.kill()
there = sum(read(f"{d.store}/partial-{BIG}/bits"))
check("what is there is noted", True, there >= 6)
pb.rate, pb.bytes = 0, 0
spoiled = next(i for i, bit in enumerate(read(f"{d.store}/partial-{BIG}/bits")) if bit)
with open(f"{d.store}/partial-{BIG}/files/big.bin", "r+b") as file:  # as when power was lost before the block was on the disk
    file.seek(spoiled * BLOCK + 77)
    file.write(b"?????")
d = Node(world, "d", {"big": f"content: {BIG}"}, port=d.ports)
until("d knows y", lambda: d.contents("big").get("y") == BIG)
check("load", 0, d.ctl("load", "big").returncode)
check("only what was missing came", (16 - there + 1) * BLOCK, d.metric("fetched_bytes_total"))
check("over the wire, too", True, pb.bytes < (16 - there + 2) * BLOCK)
check("equal", True, read(f"{d.store}/models/big/big.bin") == read(f"{folder}/src/big.bin"))
d.stop()
d = Node(world, "d", {"big": f"content: {BIG}"}, port=d.ports)
until("a content that is there is there at once", lambda: d.files("big")[0] == "here")
check("nothing comes again", 0.0, d.metric("fetched_bytes_total"))

# ---- two nodes that fetch from each other at once ----
make_file(f"{folder}/src/one.bin", 5 * BLOCK + 1, 5)
make_file(f"{folder}/src/two.bin", 5 * BLOCK + 2, 6)
p = Node(world, "p", {"one": f"files: [{folder}/src/one.bin]", "two": "content: " + "0" * 64})
until("p has one", lambda: p.files("one")[0] == "here")
ONE = p.files("one")[1]
q = Node(world, "q", {"two": f"files: [{folder}/src/two.bin]", "one": f"content: {ONE}"})
until("q has two", lambda: q.files("two")[0] == "here")
TWO = q.files("two")[1]
config = read(f"{p.folder}/config.yaml").decode()
p.write_config(config.replace("0" * 64, TWO))
check("reload", 0, p.ctl("reload").returncode)
until("they know each other's", lambda: p.contents("two").get("q") == TWO and q.contents("one").get("p") == ONE and p.files("two")[1] == TWO)
threads = [threading.Thread(target=lambda: p.ctl("load", "two")), threading.Thread(target=lambda: q.ctl("load", "one"))]
for one in threads:
    one.start()
for one in threads:
    one.join()
check("both have both", (True, True), (read(f"{p.store}/models/two/two.bin") == read(f"{folder}/src/two.bin"), read(f"{q.store}/models/one/one.bin") == read(f"{folder}/src/one.bin")))
world.close()
finish()
