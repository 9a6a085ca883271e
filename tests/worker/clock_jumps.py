# SPDX-License-Identifier: Apache-2.0
"""The clock of the day jumps by a day while medusa-worker runs, and nothing ends or is lost for it: clock_jumps.py FOLDER (tests/faults/jump.c)."""
import csv
import os
import shutil
import signal
import sqlite3
import sys
import threading

from daemon import ENGINE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
DAY = 86400
jump = f"{folder}/jump"
PRELOAD = f"{os.environ['MEDUSA_BUILD']}/tests/faults/jump.so"


def set_clock(seconds):
    with open(f"{jump}.new", "w", encoding="utf-8") as file:
        file.write(f"{seconds}\n")
    os.rename(f"{jump}.new", jump)


set_clock(0)
d = Daemon(f"{folder}/clocks", f"""
startPort: {free_ports(6)}
healthCheckTimeout: 60
medusa: {{gpus: [{{memory: 8GB}}], state: {folder}/clocks.sqlite}}
models:
  kept: {{cmd: "{ENGINE} --name kept", ttl: 3000, medusa: {{memory: 1GB, swap: off, max_wait: 3000s, deadline: 3000s}}}}
  slow: {{cmd: "{ENGINE} --name slow --start 1.5", medusa: {{memory: 1GB, swap: off}}}}
  brief: {{cmd: "{ENGINE} --name brief", ttl: 2, medusa: {{memory: 1GB, swap: off}}}}
  broken: {{cmd: "{ENGINE} --name broken --die-at-start", medusa: {{memory: 1MB, swap: off}}}}
""", env={"LD_PRELOAD": " ".join(filter(None, (os.environ.get("LD_PRELOAD"), PRELOAD))), "JUMP": jump, "JUMP_PROGRAM": "medusa-worker", "MEDUSA_LOG": "info"})


def recorded():
    """Single requests that are kept, when all that has ended is written."""
    to = f"{folder}/trace"
    shutil.rmtree(to, ignore_errors=True)
    done = d.ctl("trace", "--since", "30d", "--to", to)
    if done.returncode:
        return 0
    with open(f"{to}/trace.csv", encoding="utf-8") as file:
        return len(list(csv.reader(file))) - 1


def billed():
    return sum(row["requests"] for row in d.tell("bill", "--since", "30d")["usage"])


pid = d.chat("kept").json["pid"]
for _ in range(4):
    d.chat("kept")
check("requests are kept", (5, 5), (recorded(), billed()))
said = d.get("/api/version").headers.get("date")

asked = 5
for seconds in (DAY, 0, -DAY, 0):
    held = Held(d, "kept")  # runs while the clock jumps
    until("it runs", lambda: next(m["running"] for m in d.tell("models")["models"] if m["model"] == "kept") == 1)
    starting = threading.Thread(target=lambda: check("a start goes on", 200, d.chat("slow").status))
    starting.start()  # and an engine starts
    until("it starts", lambda: d.running().get("slow") == "starting")
    before = d.tell("status")["uptime_s"]
    set_clock(seconds)
    day = d.get("/api/version").headers.get("date")
    check("the daemon sees it", True, day != said)
    said = day
    after = d.tell("status")["uptime_s"]
    check("it has been up for as long as before", True, before <= after < before + 600)
    check("a request beside it", 200, d.chat("kept").status)
    starting.join()
    check("the one that ran", [200], [r.status for r in held.let_go().wait()])
    asked += 3
    check("its engine stays", pid, d.chat("kept").json.get("pid"))
    asked += 1
    check("what was kept stays", (asked, asked), (recorded(), billed()))
    d.ask("POST", "/api/models/unload/slow")

# Times that run on: ttl, and a rest after starts that failed.
for seconds in (DAY, -DAY):
    set_clock(0)
    check("one with a short ttl", 200, d.chat("brief").status)
    set_clock(seconds)
    until("it is unloaded when its time has passed", lambda: "brief" not in d.running())
    rests = until("starts that fail are followed by a rest", lambda: d.chat("broken").headers.get("retry-after"))
    check("of its usual length", True, 1 <= int(rests) <= 60)
check("its engine stays", pid, d.chat("kept").json.get("pid"))
rows = sqlite3.connect(f"{folder}/clocks.sqlite").execute("SELECT count(DISTINCT minute / 1440) FROM usage").fetchone()
check("each is billed at the time that the clock had", True, rows[0] >= 3)
set_clock(DAY)
check("the exit code", 0, d.stop(signal.SIGTERM))
finish()
