# SPDX-License-Identifier: Apache-2.0
"""What lies in a store after a daemon was killed at a bad moment, and after somebody has changed it: content_store.py FOLDER."""
import os
import sys

from content_world import BLOCK, NODE_KEY, Node, World, make_file, read
from daemon import ENGINE, Daemon, check, finish, until

folder = sys.argv[1]
world = World(folder)
SIZE = 3 * BLOCK + 5
FILE = make_file(f"{folder}/src/files/first.bin", SIZE, 21)
make_file(f"{folder}/src/files/empty", 0, 22)
a = Node(world, "a", {"m": f"files: [{folder}/src/files]"})
until("a knows what it has", lambda: a.files("m")[0] == "here")
HASH = a.files("m")[1]
b = Node(world, "b", {"m": f"content: {HASH}"})
WHOLE, PART = f"{b.store}/{HASH}", f"{b.store}/partial-{HASH}"


def loads(what, fetched):
    """`fetched` bytes come for it, and the files are right."""
    until(f"{what}: b knows that a has them", lambda: b.contents("m").get("a") == HASH)
    r = b.ctl("load", "m")
    check(f"{what}: it is loaded", (0, ""), (r.returncode, r.stderr))
    check(f"{what}: so much has come", fetched, b.metric("fetched_bytes_total"))
    check(f"{what}: equal", True, read(f"{b.store}/models/m/files/first.bin") == read(FILE))
    check(f"{what}: nothing else is there", ["files", "manifest"], sorted(os.listdir(WHOLE)))


def again(change):
    """What was fetched is in parts once more, as `change` leaves it for the next daemon."""
    global b
    b.stop()
    os.rename(WHOLE, PART)
    with open(f"{PART}/bits", "wb") as file:
        file.write(b"\1" * 4)
    change()
    b = Node(world, "b", {"m": f"content: {HASH}"}, port=b.ports)


loads("at first", SIZE)
again(lambda: None)
loads("killed when all was there", 0)
again(lambda: os.remove(f"{PART}/bits"))
loads("nobody knows which blocks are there", SIZE)
again(lambda: os.remove(f"{PART}/files/files/first.bin"))
loads("killed while it was removed, with a file that is gone", SIZE)
again(lambda: (os.remove(f"{PART}/files/files/first.bin"), os.remove(f"{PART}/files/files/empty"), os.rmdir(f"{PART}/files/files"), os.rmdir(f"{PART}/files")))
loads("with all files gone", SIZE)
again(lambda: os.truncate(f"{PART}/files/files/first.bin", BLOCK + 7))
loads("a file that was cut off", SIZE - BLOCK)
again(lambda: os.truncate(f"{PART}/manifest", 50))
loads("half a manifest", SIZE)

# ---- files that were changed in the store ----
def spoil():
    with open(f"{WHOLE}/files/files/first.bin", "r+b") as file:
        file.write(bytes([read(FILE)[0] ^ 1]))


def begin():
    global b
    b = Node(world, "b", {"m": f"content: {HASH}"}, port=b.ports)


b.stop()
begin()
until("what nobody has touched is here at once", lambda: b.files("m")[0] == "here")
loads("not touched", 0)
b.stop()
os.utime(f"{WHOLE}/files/files/first.bin")
begin()
until("what is as it was is here again", lambda: b.files("m")[0] == "here")
loads("touched, and as it was", 0)
b.stop()
spoil()
begin()
until("a file that was changed is found", lambda: b.files("m")[0] == "missing")
check("the log says so", True, f"model m: content {HASH} is fetched again: {WHOLE}: its files were changed" in b.stderr())
loads("changed while no daemon was there", SIZE)
check("unload", 0, b.ctl("unload", "m").returncode)
spoil()
check("others don't get it", 409, b.page(f"/medusa/content/{HASH}").status)
until("it is found", lambda: b.files("m")[0] == "missing")
loads("changed while a daemon was there", 2 * SIZE)

# ---- another store, which counts when the daemon starts anew ----
check("only its owner may look into it", 0o700, os.stat(b.store).st_mode & 0o777)
config = read(f"{b.folder}/config.yaml").decode()
b.write_config(config.replace(b.store, f"{folder}/other"))
r = b.ctl("reload")
check("it takes effect later", (0, True), (r.returncode, "only when the daemon starts anew: medusa.cluster" in r.stdout))
r = b.ask("POST", "/v1/chat/completions", {"model": "m", "messages": []}, {"X-Medusa-Node": "t", "X-Medusa-Node-Key": NODE_KEY})
check("until then the model serves as before", (200, f"b-m-{b.store}/models/m"), (r.status, r.json.get("name")))
check("unload", 0, b.ctl("unload", "m").returncode)
check("reload", 0, b.ctl("reload").returncode)
loads("a new engine, too", 2 * SIZE)
check("nobody has made it", False, os.path.exists(f"{folder}/other"))
c = Daemon(f"{folder}/c", f'models: {{m: {{cmd: "{ENGINE}"}}}}\n')
c.write_config(f'models: {{m: {{cmd: "{ENGINE}", medusa: {{content: {HASH}}}}}}}\nmedusa: {{cluster: {{store: {folder}/other}}}}\n')
r = c.ctl("reload")
check("a daemon that has begun without a store gets none", (True, True), (r.returncode != 0, "which this daemon learns when it starts anew" in r.stderr))
check("c ends", 0, c.stop())
world.close()
finish()
