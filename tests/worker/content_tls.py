# SPDX-License-Identifier: Apache-2.0
"""Files of models, and bills, between nodes that show certificates: content_tls.py FOLDER. A real etcd, real daemons, no key of the nodes."""
import http.client
import ssl
import sys

from certificates import Authority
from content_world import BLOCK, NODE_KEY, Node, World, make_file, read
from daemon import PATIENCE, check, finish, until

folder = sys.argv[1]
world = World(folder)
OURS, FOREIGN = Authority(folder, "ours"), Authority(folder, "foreign")
FILE = make_file(f"{folder}/src/part.bin", 3 * BLOCK + 77, 1)


class TlsNode(Node):
    def __init__(self, name, models):
        self.inside = world.port()
        certificate, key = OURS.issue(name, [f"DNS:{name}"])
        super().__init__(world, name, models, key=False, more=f", state: {world.folder}/{name}/usage.sqlite", cluster=f", listen: 127.0.0.1:{self.inside}, tls: {{ca: {OURS.pem}, certificate: {certificate}, key: {key}}}")


def ask(node, path, files, name):
    """The status of an answer at the nodes' listener; 0: there was none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(OURS.pem)
    if files:
        context.load_cert_chain(*files)
    connection = http.client.HTTPSConnection("127.0.0.1", node.inside, timeout=PATIENCE, context=context)
    try:
        connection.request("GET", path, headers={"X-Medusa-Node": name})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


a = TlsNode("a", {"m": f"files: [{FILE}]"})
until("a knows what it has", lambda: a.files("m")[0] == "here")
HASH = a.files("m")[1]
b = TlsNode("b", {"m": f"content: {HASH}"})
until("b knows that a has it", lambda: b.contents("m").get("a") == HASH)
check("load", 0, b.ctl("load", "m").returncode)
check("equal", True, read(f"{b.store}/models/m/part.bin") == read(FILE))
check("counted", 3 * BLOCK + 77.0, b.metric("fetched_bytes_total"))
PATH = f"/medusa/content/{HASH}"
mine = OURS.issue("t", ["DNS:t"])
check("a node is answered", 200, ask(a, PATH, mine, "t"))
check("as another one it is not", 403, ask(a, PATH, mine, "b"))
check("without a certificate", 0, ask(a, PATH, None, "t"))
check("with another authority's", 0, ask(a, PATH, FOREIGN.issue("f", ["DNS:t"]), "t"))
for headers in ({}, {"X-Medusa-Node": "b"}, {"X-Medusa-Node": "b", "X-Medusa-Node-Key": NODE_KEY}):
    check(f"where clients are served, with {sorted(headers)}", 403, a.get(PATH, **headers).status)

# ---- the bill ----
check("a node computes", 200, b.chat("m", tokens=[7, 3]).status)
# On a machine that is busy a lease may end, and etcd be late.
r = until("the bill lacks nothing", lambda: (lambda bill: bill if bill.get("complete") else None)(a.tell("cluster", "bill", "--since", "1h", "--by-node"))) or {}
check("the other one asks it for its bill", (True, ["a", "b"], {7}), (r.get("complete"), [n["node"] for n in r.get("nodes", [])], {row["prompt_tokens"] for row in r.get("usage", [])}))
BILL = "/medusa/bill/1"
check("a node is answered", 200, ask(b, BILL, mine, "t"))
check("as another one it is not", 403, ask(b, BILL, mine, "a"))
check("without a certificate", 0, ask(b, BILL, None, "t"))
for headers in ({}, {"X-Medusa-Node": "a"}, {"X-Medusa-Node": "a", "X-Medusa-Node-Key": NODE_KEY}):
    check(f"a bill where clients are served, with {sorted(headers)}", 403, b.get(BILL, **headers).status)
world.close()
finish()
