# SPDX-License-Identifier: Apache-2.0
"""Events and logs of medusa-worker as streams: page_streams.py FOLDER."""
import json
import os
import sys

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
d = Daemon(f"{folder}/streams", f"""
startPort: {free_ports(4)}
models:
  a: {{cmd: "{ENGINE} --name a", aliases: [first], name: Alpha}}
  b: {{cmd: "{ENGINE} --name b", unlisted: true}}
""")


class Stream:
    def __init__(self, path):
        self.connection = d.connect()
        self.connection.request("GET", path)
        self.answer = self.connection.getresponse()

    def event(self, kind, wanted):
        """The contents of the next event of a type that are as wanted."""
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            if line.startswith("data:"):
                event = json.loads(line[5:])
                data = json.loads(event["data"])
                if event["type"] == kind and wanted(data):
                    return data

    def line(self, wanted):
        while True:
            line = self.answer.readline().decode()
            if not line or wanted in line:
                return line


events = Stream("/api/events")
check("their type", "text/event-stream", events.answer.getheader("Content-Type"))
first = events.event("modelStatus", lambda _: True)
check("models", [("a", "Alpha", "stopped", False, ["first"]), ("b", "", "stopped", True, [])],
      [(m["id"], m["name"], m["state"], m["unlisted"], m["aliases"]) for m in first])
check("ours", ["a", "b"], [m["model"] for m in events.event("medusa", lambda _: True)["models"]])
check("load", (200, {"msg": "ok"}), (lambda r: (r.status, r.json))(d.ask("POST", "/api/models/load/first")))
check("it is told", "ready", events.event("modelStatus", lambda e: e[0]["state"] == "ready")[0]["state"])
d.chat("a")
check("requests are told", 1, events.event("medusa", lambda e: e["models"][0]["served"] == 1)["served"])
check("the same without a stream", 1, d.get("/api/status").json["models"][0]["served"])
check("load nobody", 404, d.ask("POST", "/api/models/load/nobody").status)
check("unload nobody", 404, d.ask("POST", "/api/models/unload/nobody").status)
check("no such path", 404, d.ask("POST", "/api/models/unloads").status)

log = Stream("/logs/stream/a")
check("the history", True, "a listens on" in log.line("listens"))
fresh, every = Stream("/logs/stream/first?no-history"), Stream("/logs/stream")
check("of all", True, "a listens on" in every.line("listens"))
with open(f"{d.folder}/state/a.log", "a", encoding="utf-8") as file:
    file.write("news of a\n")
check("what comes", ["news of a\n"] * 2, [s.line("news") for s in (log, every)])
check("without history", "news of a\n", fresh.answer.readline().decode())
check("an engine that starts later", True, "b listens on" in (d.chat("b"), every.line("b listens"))[1])
check("nobody's log", 404, d.get("/logs/stream/nobody").status)

# All of it at once, as llama-swap has it: what was written last stands last.
with open(f"{d.folder}/state/a.log", "a", encoding="utf-8") as file:
    file.write("z" * 2000 + "\nthe last of a\n")
history = d.get("/logs")
check("/logs", (200, "text/plain; charset=utf-8"), (history.status, history.headers["content-type"]))
check("of all engines", [True, True, True], [history.body.endswith(b"the last of a\n"), b"a listens on" in history.body, b"b listens on" in history.body])
with open(f"{d.folder}/state/b.log.1", "w", encoding="utf-8") as file:
    file.write("long ago\n" + "y" * 99 * 1024)
with open(f"{d.folder}/state/b.log", "a", encoding="utf-8") as file:
    file.write("the last of b\n")
body = d.get("/logs").body
check("100 KiB", (102400, b"z", True, True), (len(body), body[:1], body.endswith(b"the last of b\n"), b"the last of a\nlong ago\n" in body))
check("a browser is led to the page", (302, "ui"), (lambda r: (r.status, r.headers.get("location")))(d.get("/logs", Accept="text/html")))
check("HEAD", (200, b""), (lambda r: (r.status, r.body))(d.ask("HEAD", "/logs")))
os.unlink(f"{d.folder}/state/b.log.1")

# A reader that takes nothing holds nobody up, and a reload goes on with the same readers.
slow = Stream("/api/events")
with open(f"{d.folder}/state/a.log", "a", encoding="utf-8") as file:
    for i in range(20000):
        file.write(f"{i} " + "x" * 50 + "\n")
    file.write("the end\n")
check("all that was printed", "the end\n", log.line("the end"))
check("a reload", 0, d.ctl("reload").returncode)
check("events go on", True, d.chat("a").status == 200 and events.event("medusa", lambda e: e["models"][0]["served"] == 2) is not None)
# Samples of the machine, as llama-swap has them; the first one comes after 5 s.
PERFORMANCE = {"timestamp", "cpu_util_per_core", "mem_total_mb", "mem_used_mb", "mem_free_mb", "swap_total_mb", "swap_used_mb", "load_avg_1", "load_avg_5", "load_avg_15", "net_io"}
until("a sample", lambda: d.get("/api/performance").json["sys_stats"])
performance = d.get("/api/performance").json
sample = performance["sys_stats"][0]
check("what there is", (True, None, PERFORMANCE), (performance["enabled"], performance["gpu_stats"], set(sample)))
check("each processor", (os.cpu_count(), True), (len(sample["cpu_util_per_core"]), all(0 <= part <= 100 for part in sample["cpu_util_per_core"])))
check("memory", True, 0 < sample["mem_used_mb"] < sample["mem_total_mb"] and sample["mem_used_mb"] + sample["mem_free_mb"] in (sample["mem_total_mb"], sample["mem_total_mb"] - 1))
check("the network", True, any(i["name"] == "lo" and i["bytes_recv"] > 0 and i["bytes_sent"] > 0 for i in sample["net_io"]))
check("later ones alone", None, d.get(f"/api/performance?after={performance['sys_stats'][-1]['timestamp']}").json["sys_stats"])
for after, wanted in (("2020-01-01T00:00:00Z", True), ("2020-01-01t00:00:00", None), ("2020-01-01T05:30:00.25%2B05:30", True), ("2999-01-01T00:00:00-08:00", False), ("yesterday", None)):
    reply = d.get(f"/api/performance?after={after}")
    check(f"after {after}", (400, None) if wanted is None else (200, wanted), (reply.status, bool(reply.json["sys_stats"]) if reply.status == 200 else None))
with open(f"{d.folder}/config.yaml", "a", encoding="utf-8") as file:
    file.write("performance: {disabled: true}\n")
check("a reload without samples", 0, d.ctl("reload").returncode)
check("none are shown", (503, {"enabled": False}), (lambda r: (r.status, r.json))(d.get("/api/performance")))
check("the exit code", 0, d.stop())
check("streams end with the daemon", b"", slow.answer.read()[:0])
finish()
