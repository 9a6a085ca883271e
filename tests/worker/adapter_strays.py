# SPDX-License-Identifier: Apache-2.0
"""Adapters in engines that nobody meant to be there: they give their places back: adapter_strays.py FOLDER."""
import os
import signal
import socket
import sys
import threading

from adapter_world import World, ask, errors, states
from daemon import check, finish, until

folder = sys.argv[1]


def load_by_hand(daemon, name, path):
    return daemon.ask("POST", "/upstream/base/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}).status


# ---- the next daemon has another configuration, and its engine what the last one has loaded ----

w = World(f"{folder}/next", "abc", slots=2, engine="--device-mb 5")
w.names = ["a", "b"]
d = w.start()
check("a and b are loaded", ["text of a", "text of b"], [ask(d, n)[2] for n in "ab"])
d.stop(signal.SIGKILL)
w.names, w.hooks = ["a", "c"], "{}"
d = w.start()
check("the engine is adopted", w.pid, d.chat("base").json.get("pid"))
check("a and c are served", [(200, "base", "text of a"), (200, "base", "text of c")], [ask(d, n) for n in "ac"])
check("b has left, and nothing else", ["load a", "load b", "unload b", "load c"], w.journal())
d.stop(signal.SIGKILL)
w.names = ["a", "b"]
d = w.start()
check("and once more", [(200, "base", "text of b"), (200, "base", "text of a")], [ask(d, n) for n in "ba"])
check("with c", ["unload c", "load b"], w.journal()[4:])
check("its end", 0, d.stop())

# ---- what clients have loaded by themselves stays until a configured adapter has no place: then the one that was used longest ago leaves ----


def use(daemon, name, **more):
    """A client asks the engine itself."""
    return daemon.ask("POST", "/upstream/base/v1/chat/completions", {"model": name, "messages": [], **more})


def there(daemon):
    return sorted(m["id"] for m in daemon.get("/upstream/base/v1/models").json["data"] if m["parent"])


w = World(f"{folder}/foreign", "abcxyz", slots=4, engine="--device-mb 5")
w.names = ["a", "b", "c"]
d = w.start()
check("clients load adapters by hand", [200] * 3, [load_by_hand(d, n, w.path(n)) for n in "xyz"])
check("and use them", ["text of y", "text of x"], [use(d, n).json.get("adapter") for n in "yx"])
check("a has the place that is free", (200, "base", "text of a"), ask(d, "a"))
check("for which nobody has left", ["a", "x", "y", "z"], there(d))
check("z was not used since it was loaded, and leaves for b", ((200, "base", "text of b"), ["a", "b", "x", "y"]), (ask(d, "b"), there(d)))
check("y was used before x, and leaves for c", ((200, "base", "text of c"), ["a", "b", "c", "x"]), (ask(d, "c"), there(d)))
check("x is used as before", "text of x", use(d, "x").json.get("adapter"))
check("it is loaded and unloaded once", ["load x", "load y", "load z", "load a", "load b", "unload z", "load b", "load c", "unload y", "load c"], w.journal())
check("the log says whose it was", True, "adapter y that a client has loaded, which was unloaded" in d.stderr())
d.stop(signal.SIGKILL)
w.hooks = "{}"
d = w.start()
check("it stays for the next daemon, too", ((200, "base", "text of a"), ["a", "b", "c", "x"]), (ask(d, "a"), there(d)))
check("its end", 0, d.stop())

# One that a request uses does not leave, and neither does what a command names.
w = World(f"{folder}/busy", "abxy", slots=2, engine="--device-mb 5")
w.names = ["a", "b"]
d = w.start()
check("a client loads adapters by hand", [200] * 2, [load_by_hand(d, n, w.path(n)) for n in "xy"])
stop = f"{folder}/busy/go"
running = []
threads = [threading.Thread(target=lambda n=n: running.append(use(d, n, until=stop))) for n in "xy"]
for thread in threads:
    thread.start()
until("both run", lambda: w.of(d, "base")["running"] == 2)
check("there is no place for a", (502, "engine_failed", "model a: its engine did not load the adapter: 500: no place is left for the lora adapter 'a'"), errors(d.chat("a")))
check("after few tries", True, w.journal().count("load a") <= 4 and "unload x" not in w.journal() and "unload y" not in w.journal())
with open(stop, "w", encoding="utf-8"):
    pass
for thread in threads:
    thread.join()
check("both are served", ["text of x", "text of y"], sorted(r.json.get("adapter") for r in running))
check("a has a place when one has ended", (200, "base", "text of a"), ask(d, "a"))
check("one of them has left", 1, len([line for line in w.journal() if line in ("unload x", "unload y")]))
for number in range(300):  # more names than are remembered
    use(d, f"name{number}")
check("b has the other place", ((200, "base", "text of b"), ["a", "b"]), (ask(d, "b"), there(d)))
check("its end", 0, d.stop())

# An adapter that can't be loaded for another reason takes no place from anybody.
w = World(f"{folder}/faulty", "abx", slots=3, engine="--device-mb 5")
w.names = ["a", "b"]
w.write("a", status=400)
d = w.start()
check("a client loads an adapter by hand", 200, load_by_hand(d, "x", w.path("x")))
check("a does not load", 502, d.chat("a").status)
check("x stays", ["x"], there(d))
check("its end", 0, d.stop())

# ---- unloads that fail ----

w = World(f"{folder}/stuck", "abc", slots=2, engine="--device-mb 5")
w.write("a", stuck=1)
d = w.start()
check("a and b are loaded", ["text of a", "text of b"], [ask(d, n)[2] for n in "ab"])
check("a's place is c's, although its unload failed at first", (200, "base", "text of c"), ask(d, "c"))
check("which was tried again", ["load a", "load b", "unload a", "unload a", "load c"], w.journal())
check("its end", 0, d.stop())

w = World(f"{folder}/for-ever", "abc", slots=2, engine="--device-mb 5")
w.write("a", stuck=1000)
d = w.start()
check("a and b are loaded", ["text of a", "text of b"], [ask(d, n)[2] for n in "ab"])
reply = d.chat("c")
check("c gets a place or an error with a reason", True, (reply.status, reply.json.get("adapter")) == (200, "text of c") or "no place is left" in errors(reply)[2])
check("after a limited number of tries", True, w.journal().count("unload a") <= 16)
tries = w.journal().count("unload a")
check("the others are served", [(200, "base", None), (200, "base", "text of b")], [ask(d, n) for n in ("base", "b")])
check("a is served, which is there", (200, "base", "text of a"), ask(d, "a"))
check("which is known", True, states(d)["a"] == "ready")
check("its end", 0, d.stop())

# ---- loads that end after the daemon has given them up ----

w = World(f"{folder}/late", "abc", slots=2, slow="a", engine="--device-mb 5")
w.write("a", until=w.gate("a"), hangs_up=True)
d = w.start()
check("the engine breaks off while it loads a", 502, d.chat("a").status)
check("b is loaded", (200, "base", "text of b"), ask(d, "b"))
w.let_load("a")
until("a is there after all", lambda: any(m["id"] == "a" for m in d.get("/upstream/base/v1/models").json["data"]))
check("c has its place", (200, "base", "text of c"), ask(d, "c"))
check("a has left for it", True, "unload a" in w.journal())
check("its end", 0, d.stop())

# ---- the daemon is killed while its engine loads ----

w = World(f"{folder}/killed", "abc", slots=2, slow="a", engine="--device-mb 5")
d = w.start()
client = socket.create_connection(("127.0.0.1", d.port))
client.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"model": "a"}')
until("the load has begun", lambda: w.journal() == ["load a"])
d.stop(signal.SIGKILL)
w.names, w.hooks = ["b", "c"], "{}"
d = w.start()
check("b is served", (200, "base", "text of b"), ask(d, "b"))
w.let_load("a")
until("a is there", lambda: any(m["id"] == "a" for m in d.get("/upstream/base/v1/models").json["data"]))
check("c is served in its place", (200, "base", "text of c"), ask(d, "c"))
check("a has left for it", "unload a", w.journal()[-2])
check("both stay", [(200, "base", "text of b"), (200, "base", "text of c")], [ask(d, n) for n in "bc"])
check("its end", 0, d.stop())
# ---- what the engine's command loads stays ----

w = World(f"{folder}/command", "abc", slots=2, engine="--device-mb 5")
w.engine += f" --lora-modules a={w.path('a')}"
d = w.start()
until("the daemon knows of a", lambda: states(d)["a"] == "ready")
for name in "bcb":
    check(f"{name} has the other place", (200, "base", f"text of {name}"), ask(d, name))
check("a is served", (200, "base", "text of a"), ask(d, "a"))
check("and has not been touched", ["load b", "unload b", "load c", "unload c", "load b"], w.journal())
w.names = ["b"]
check("a is not in the configuration any more", 0, w.rewrite(d).returncode)
check("b is served", (200, "base", "text of b"), ask(d, "b"))
w.names = ["a", "b", "c"]
check("a is there again", 0, w.rewrite(d).returncode)
check("it is served", (200, "base", "text of a"), ask(d, "a"))
check("c has b's place", (200, "base", "text of c"), ask(d, "c"))
check("a has stayed all the time", 0, w.journal().count("unload a"))
check("a user may unload it", (0, 1), (d.ctl("unload", "a").returncode, w.journal().count("unload a")))
check("and it comes back", (200, "base", "text of a"), ask(d, "a"))
d.stop(signal.SIGKILL)
w.names, w.hooks = ["c"], "{}"
d = w.start()
check("the next daemon leaves it alone", (200, "base", "text of c"), ask(d, "c"))
check("as well", 1, w.journal().count("unload a"))
check("its end", 0, d.stop())

# ---- what was unloaded, and loaded by somebody else then, is his ----

w = World(f"{folder}/his", "abc", slots=2, engine="--device-mb 5")
w.names = ["a", "b"]
d = w.start()
check("a is loaded", (200, "base", "text of a"), ask(d, "a"))
check("and unloaded", 0, d.ctl("unload", "a").returncode)
check("nothing is written of it", [], [name for name in os.listdir(f"{folder}/his/control.engines") if name.endswith(".adapters")])
check("somebody loads it by hand", 200, load_by_hand(d, "a", w.path("a")))
d.stop(signal.SIGKILL)
w.names, w.hooks = ["b"], "{}"
d = w.start()
check("b has the other place", (200, "base", "text of b"), ask(d, "b"))
check("a has stayed", 1, w.journal().count("unload a"))
check("its end", 0, d.stop())
finish()
