# SPDX-License-Identifier: Apache-2.0
"""Pages that are long where there are many models hold nobody up: long_pages.py FOLDER. tests/faults/hold.c holds the threads that print them."""
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
MANY = 1200
port = free_ports(4)
hold = f"{folder}/hold"
PRELOAD = f"{os.environ['MEDUSA_BUILD']}/tests/faults/hold.so"
ROOM = "medusa: {memory: 1GB, swap: off}"


def config(name, count=MANY):
    """Models of which all but `a` have the name in theirs."""
    many = "".join(f"  {name}{i:05}: {{cmd: \"true --port ${{PORT}}\", proxy: 'http://127.0.0.1:9', {ROOM}}}\n" for i in range(count))
    return f"startPort: {port}\nperformance: {{disabled: true}}\nmedusa: {{gpus: [{{memory: 100GB}}], state: {folder}/usage.sqlite}}\nmodels:\n  a: {{cmd: \"{ENGINE} --name a\", {ROOM}}}\n{many}"


d = Daemon(f"{folder}/pages", config("one"), env={"LD_PRELOAD": " ".join(filter(None, (os.environ.get("LD_PRELOAD"), PRELOAD))), "HOLD": hold, "MEDUSA_LOG": "info"})
check("a request", 200, d.chat("a").status)

PAGES = {
    "/metrics": lambda body: body.count(b"\nmedusa_worker_state{") == MANY + 7,
    "/v1/models": lambda body: len(json.loads(body)["data"]) == MANY + 1,
    "/upstream": lambda body: len(json.loads(body)["models"]) == MANY + 1,
    "/running": lambda body: [r["model"] for r in json.loads(body)["running"]] == ["a"],
    "/logs": lambda body: b"a listens on" in body,
    "/api/status": lambda body: (lambda s: s["models"] and len(s["models"]) == s["loaded"] + MANY and s["served"] == sum(m["served"] for m in s["models"]))(json.loads(body)),
}
NAMES = {"a"} | {f"one{i:05}" for i in range(MANY)}
VERBS = {
    "models": (["--json"], lambda text: len(json.loads(text)["models"]) == MANY + 1),
    "status": (["--json"], lambda text: (lambda s: s["models"] == MANY + 1 and s["loaded"] == 1)(json.loads(text))),
    "bill": (["--since", "1h", "--json"], lambda text: {row["model"] for row in json.loads(text)["usage"]} == NAMES),
    "trace": (["--since", "1h", "--to", f"{folder}/day"], lambda text: " requests that were served" in text and planned() == NAMES),
}


def planned():
    """Models in what medusa-workerctl trace has written."""
    with open(f"{folder}/day/functions.yaml", encoding="utf-8") as file:
        return set(re.findall(r'- {name: "?(\w+)', file.read()))


check("a bill", {"a"}, {row["model"] for row in d.tell("bill", "--since", "1h")["usage"]})
with sqlite3.connect(f"{folder}/usage.sqlite", timeout=PATIENCE) as usage:  # as if all models had been used
    usage.executemany("INSERT INTO usage VALUES (?, ?, 'somebody', 1, 0, 1, 1, 1, 1, 0, 0)", [(int(time.time()) // 60 * 60, name) for name in NAMES])
usage.close()


class Printing:
    """While it is there, texts are begun, and none ends."""

    def __enter__(self):
        with open(hold, "w", encoding="utf-8"):
            pass
        return self

    def begun(self, what):
        return until(f"{what} is printed", lambda: os.path.exists(f"{hold}.held"))

    def __exit__(self, *_):
        if os.path.exists(f"{hold}.held"):
            os.unlink(f"{hold}.held")
        os.unlink(hold)


def raw(path):
    client = socket.create_connection(("127.0.0.1", d.port), timeout=PATIENCE)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return client


def read(client):
    data = b""
    while piece := client.recv(1 << 16):
        data += piece
    while data.startswith(b"HTTP/1.1 100 "):  # to one that sends no more
        data = data.split(b"\r\n\r\n", 1)[1]
    return data.split(b"\r\n\r\n", 1)[1]


# Others are served while a page is printed; clients that leave meanwhile harm nobody; who asks meanwhile gets the next text.
for path, is_right in PAGES.items():
    with Printing() as printing:
        early, gone, half = raw(path), raw(path), raw(path)
        printing.begun(path)
        gone.close()
        half.shutdown(socket.SHUT_WR)
        check(f"{path}: a request beside it", 200, d.chat("a").status)
        late = raw(path)
        check(f"{path}: a short page beside it", 200, d.get("/health").status)
    check(f"{path}: it is whole", [True] * 3, [is_right(read(client)) for client in (early, half, late)])
    check(f"{path}: HEAD", (200, b""), (lambda r: (r.status, r.body))(d.ask("HEAD", path)))

for verb, (words, is_right) in VERBS.items():
    with Printing() as printing:
        with open(f"{folder}/{verb}", "w", encoding="utf-8") as out: # a pipe could hold it up
            asker = subprocess.Popen(["medusa-workerctl", verb, *words, "--socket", d.control], stdout=out)
        leaver = subprocess.Popen(["medusa-workerctl", verb, *words, "--socket", d.control], stdout=subprocess.DEVNULL)
        printing.begun(verb)
        leaver.kill()
        leaver.wait()
        check(f"{verb}: a request beside it", 200, d.chat("a").status)
        check(f"{verb}: another question beside it", 0, d.ctl("resume").returncode)
        check(f"{verb}: it is not answered before it is printed", None, asker.poll())
    check(f"{verb}: the exit code", 0, asker.wait(PATIENCE))
    with open(f"{folder}/{verb}", encoding="utf-8") as out:
        check(f"{verb}: the answer", is_right, out.read())

# Events are looked at in the same way.
with Printing() as printing:
    stream = d.connect()
    stream.request("GET", "/api/events")
    events = stream.getresponse()
    printing.begun("an event")
    check("events: a request beside them", 200, d.chat("a").status)
lines = iter(events.readline, b"")
check("events", ["modelStatus", "medusa"], [json.loads(next(line for line in lines if line.startswith(b"data:"))[5:])["type"] for _ in range(2)])
stream.close()

# A configuration stays as long as it is printed, also where two others come meanwhile.
d.write_config(config("two"))
check("a reload", 0, d.ctl("reload").returncode)
with Printing() as printing:
    asked = raw("/v1/models")
    printing.begun("the list")
    for name in ("four", "three"):
        d.write_config(config(name))
        check("a reload beside it", 0, d.ctl("reload").returncode)
    check("a request for a new model is understood", True, d.chat("three00000").status != 404)
    began = d.get("/health") and os.times().elapsed
    until("what nobody uses is freed", lambda: os.times().elapsed > began + 2.5)
check("the list is of the time when it was asked for", {"a"} | {f"two{i:05}" for i in range(MANY)}, {m["id"] for m in json.loads(read(asked))["data"]})
check("the next one is of now", {"a"} | {f"three{i:05}" for i in range(MANY)}, {m["id"] for m in d.get("/v1/models").json["data"]})

# Reloads among pages: each page is one configuration's, and no counter goes back.
stop, wrong, last = threading.Event(), [], 0
sets = {frozenset(["a"] + [f"{name}{i:05}" for i in range(MANY)]): name for name in ("three", "four")}


def look():
    global last
    while not stop.is_set():
        ids = frozenset(m["id"] for m in d.get("/v1/models").json["data"])
        if ids not in sets:
            wrong.append(("no configuration's", len(ids)))
        text = d.get("/metrics").body.decode()
        served = int(re.search(r'^medusa_worker_requests_served_total\{model="a"\} (\d+)$', text, re.M)[1])
        if served < last:
            wrong.append(("a counter went back", last, served))
        last = served


looker = threading.Thread(target=look)
looker.start()
for number in range(6):
    # `a` gets a new engine each time, so its counts go from one model to the next
    text = config("four" if number % 2 == 0 else "three").replace("--name a", f"--name a{number}")
    d.write_config(text)
    d.process.send_signal(signal.SIGHUP)
    check("two reloads at once", 0, d.ctl("reload").returncode)
    check("a request", (200, f"a{number}"), (lambda r: (r.status, r.json.get("name")))(d.chat("a")))
stop.set()
looker.join(PATIENCE)
check("pages among reloads", [], wrong)

# Models that are dropped, and a reload that the scheduler refuses, change nothing.
before = d.get("/v1/models").json
d.write_config(config("five").replace("[{memory: 100GB}]", "[{memory: 900TB}]") + f"  last: {{cmd: \"true --port ${{PORT}}\", {ROOM.replace('1GB', '800TB')}}}\n")
refused = d.ctl("reload")
check("a reload that is refused", (3, True), (refused.returncode, "memory" in refused.stderr))
check("nothing has changed", before, d.get("/v1/models").json)
check("a request", 200, d.chat("a").status)

# The daemon ends although pages are being printed.
with Printing() as printing:
    clients = [raw(path) for path in PAGES]
    printing.begun("pages")
    d.process.send_signal(signal.SIGTERM)
    until("it is told", lambda: "SIGTERM" in d.stderr())
check("the exit code", 0, d.process.wait(PATIENCE))
check("nothing is lost of it", [], [line for line in d.stderr().splitlines() if "Sanitizer" in line or "lost" in line])
finish()
