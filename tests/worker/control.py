# SPDX-License-Identifier: Apache-2.0
"""The control socket of medusa-worker, and medusa-workerctl: control.py FOLDER."""
import atexit
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading

from daemon import ENGINE, PATIENCE, Daemon, Held, check, finish, free_ports, until

folder = sys.argv[1]
config = f"""
startPort: {free_ports(4)}
models:
  a: {{cmd: "env HF_TOKEN=hf-secret SOURCE=http://me:secret@h/ {ENGINE} --name a", aliases: [first]}}
  b: {{cmd: "{ENGINE} --name b"}}
  dies: {{cmd: "{ENGINE} --name dies --die-at-start"}}
"""


class Line:
    """A connection to the socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

    def hear(self):
        line = self.file.readline()
        return json.loads(line) if line else None


def of(daemon, model):
    return next(m for m in daemon.tell("models")["models"] if m["model"] == model)


def endless_stream(daemon):
    """A client that reads the first event of a stream, and waits for the next one."""
    connection = daemon.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "stream": True, "raw": {
        "status": 200, "headers": {"Content-Type": "text/event-stream"}, "pieces": ['data: {"a": 1}\n\n', "data: 2\n\n"], "after": f"{folder}/never"}}))
    response = connection.getresponse()
    check("the first event", b'data: {"a": 1}\n', response.readline())
    return connection, response


def last_event(stream):
    connection, response = stream
    lines = [line for line in response.read().decode().split("\n") if line.startswith("data: ")]
    connection.close()
    return json.loads(lines[-1][6:]) if lines else {}


d = Daemon(f"{folder}/control", config)

# A daemon whose requests do not end is told to end now, and looked at when the rest of this is done: it gives them 30 s.
late = Daemon(f"{folder}/late", f"startPort: {free_ports(4)}\n" + config.split("\n", 2)[2])
unended = {"whole": Held(late, "a"), "stream": endless_stream(late)}
until("both run", lambda: of(late, "a")["running"] == 2)
unended["waiting"] = Held(late, "b").let_go()
until("one waits", lambda: of(late, "b")["waiting"] == 1)
waiting_load = subprocess.Popen(["medusa-workerctl", "load", "b", "--socket", late.control], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
until("a load waits", lambda: of(late, "b")["waiting"] == 2)
late.process.send_signal(signal.SIGTERM)

# What is there.
status = d.tell("status")
check("the process", d.process.pid, status.get("pid"))
check("the port, and what is loaded", (d.port, 3, 0, False), tuple(status.get(k) for k in ("port", "models", "loaded", "draining")))
check("one GPU, whose memory nobody has stated", [(None, None)], [(g["limit_bytes"], g["used_bytes"]) for g in status["gpus"]])
check("so it has no size for Prometheus", 0, len(re.findall(r"medusa_worker_gpu_(limit|used)_bytes{", d.get("/metrics").body.decode())))
check("as text", True, f"process {d.process.pid}," in d.ctl("status").stdout)
check("its memory, as text", True, "GPU 0: memory not stated (medusa.gpus); 0 batches run" in d.ctl("status").stdout)
check("models", [("a", "stopped"), ("b", "stopped"), ("dies", "stopped")], [(m["model"], m["state"]) for m in d.tell("models")["models"]])

# Loading and unloading.
check("load", (0, "", ""), (lambda r: (r.returncode, r.stdout, r.stderr))(d.ctl("load", "first")))
check("it runs", {"a": "ready"}, d.running())
shown = d.get("/running").json["running"][0]
check("its command is shown without secrets", (True, False), (shown["cmd"].startswith("env HF_TOKEN=REDACTED SOURCE=http://REDACTED@h/ "), "secret" in json.dumps(shown)))
check("its engine got no request", 0, d.get("/upstream/a/counts").json.get("requests"))
check("load what is loaded", 0, d.ctl("load", "a").returncode)
check("another one takes its place", (0, {"b": "ready"}), (d.ctl("load", "b").returncode, d.running()))
r = d.ctl("load", "dies")
check("an engine that does not start", (1, True), (r.returncode, "exit code 3" in r.stderr))
check("the same as JSON", (False, True), (lambda r: (r.get("ok"), "exit code 3" in r.get("message", "")))(d.tell("load", "dies")))
check("its failure is told", True, "exit code 3" in of(d, "dies")["last_failure"])
check("an unknown one", 3, d.ctl("load", "nobody").returncode)
with open(f"/proc/{d.chat('a').json['pid']}/environ", "rb") as environ:
    check("the engine has them", True, b"\0HF_TOKEN=hf-secret\0" in b"\0" + environ.read())
check("latencies are of two requests, and of no load", [2, 2], [of(d, "a")[which]["count"] for which in ("first_token_s", "completion_s")])
check("as text", True, any(line.startswith("a ") and " ready " in line for line in d.ctl("models").stdout.split("\n")))
check("unload", (0, {}), (d.ctl("unload", "a").returncode, d.running()))
d.chat("b")
check("unload nobody", (3, {"b": "ready"}), (d.ctl("unload", "nobody").returncode, d.running()))
line = Line(d.control)
for model in (5, None, ["a"], "nobody"):
    line.send({"version": 1, "verb": "unload", "model": model})
    line.send({"version": 1, "verb": "load", "model": model})
    line.send({"version": 1, "verb": "status"})
    check(f"unload {model}: one answer each, and the model stays", ([False, False, True], {"b": "ready"}),
          ([line.hear()["ok"] for _ in range(3)], d.running()))
check("unload all", (0, {}), (d.ctl("unload", "--all").returncode, d.running()))

# What a user has unloaded is not loaded ahead, however often it was asked for; a request loads it.
roomy = Daemon(f"{folder}/roomy", f"""
startPort: {free_ports(2)}
medusa: {{gpus: [{{memory: 4GB}}], policies: {{preloading: xlora}}}}
models:
  a: {{cmd: "{ENGINE} --name a", medusa: {{memory: 1GB, swap: off}}}}
  b: {{cmd: "{ENGINE} --name b", medusa: {{memory: 1GB, swap: off}}}}
""", env={"MEDUSA_LOG": "debug"})
for _ in range(30):
    roomy.chat("a")
pid = roomy.chat("a").json["pid"]
check("unload", 0, roomy.ctl("unload", "a").returncode)
until("it would be loaded ahead", lambda: (roomy.chat("b"), "preload, function 0" in roomy.stderr())[1])
check("it is not", {"b": "ready"}, roomy.running())
check("a request loads it", (200, True), (lambda r: (r.status, r.json.get("pid") not in (None, pid)))(roomy.chat("a")))
check("unload", 0, roomy.ctl("unload", "a").returncode)
check("so does an order", (0, "ready"), (roomy.ctl("load", "a").returncode, roomy.running().get("a")))
check("the exit code", 0, roomy.stop())
tops = d.ctl("top", "--json", "--count", "2", "--interval", "0.1").stdout.strip().split("\n")
check("top", [(d.process.pid, 3)] * 2, [(t["pid"], len(t["models"])) for t in map(json.loads, tops)])
for words in (("nothing",), ("load",), ("load", "a", "b"), ("status", "--exit"), ("drain", "--deadline", "soon"), ("top", "--count", "0")):
    check(f"usage: {words}", 2, d.ctl(*words).returncode)

# The protocol.
check("only for its user", 0o600, stat.S_IMODE(os.stat(d.control).st_mode))
line = Line(d.control)
line.send({"version": 1, "verb": "status"})
line.send({"version": 1, "verb": "resume"})
check("one answer after the other", [(1, True), (1, True)], [(a["version"], a["ok"]) for a in (line.hear(), line.hear())])
for question, wrong in ((b"{\n", "invalid"), (b"[1]\n", "invalid"), ({"version": 2, "verb": "status"}, "version"), ({"version": 1, "verb": "x"}, "unsupported"),
                        ({"version": 1, "verb": "load"}, "invalid"), ({"version": 1, "verb": "drain", "deadline_s": "x"}, "invalid")):
    line.send(question)
    answer = line.hear()
    check(f"refused: {question}", (False, True), (answer["ok"], wrong in answer["status"]))
line.send(b"x" * 200000)
answer = line.hear()
check("a line without an end", (False, True, "too large"), (answer["ok"], "at most 65535 bytes" in answer["message"], answer["status"]))
line.send(b"y" * 1000000 + b"\n")
line.send({"version": 1, "verb": "status"})
check("it is passed over, and the next one is heard", True, line.hear()["ok"])
line.send({"version": 1, "verb": "status", "more": "z" * 65400})
check("the longest lines are heard", True, line.hear()["ok"])
if not os.geteuid():
    # Another user who may open the socket is not answered.
    place = tempfile.mkdtemp(prefix="medusa-control.")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.chmod(place, 0o755)
    one = Daemon(f"{folder}/foreign", config, "--control", f"{place}/s")
    os.chmod(f"{place}/s", 0o666)
    child = os.fork()
    if not child:
        os.setgid(65534)
        os.setuid(65534)
        answered = 9
        try:
            line = Line(f"{place}/s")
            line.send({"version": 1, "verb": "status"})
            answered = 9 if line.hear() else 0
        except (BrokenPipeError, ConnectionResetError):
            answered = 0
        finally:
            os._exit(answered)
    check("another user", 0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    check("the daemon says so", True, "does not answer user 65534" in one.stderr())
    one.stop()

# Somebody who waits for a load and goes does no harm.
line = Line(d.control)
line.send({"version": 1, "verb": "load", "model": "a"})
until("it starts", lambda: "a" in d.running())
line.socket.close()
until("it is loaded all the same", lambda: d.running().get("a") == "ready")



def drained(*words):
    """medusa-workerctl drain, which waits, and a function that says how it has ended."""
    done = []
    thread = threading.Thread(target=lambda: done.append(d.ctl("drain", *words).returncode))
    thread.start()
    until("it drains", lambda: d.tell("status").get("draining"))
    return lambda: (thread.join(), done[0])[1]


def run_and_wait():
    """A request that runs, and one that waits for its end."""
    running = Held(d, "a")
    until("it runs", lambda: of(d, "a")["running"] == 1)
    waiting = Held(d, "b").let_go()
    until("it waits", lambda: of(d, "b")["waiting"] == 1)
    return running, waiting


# Draining: what runs ends, what waits goes on.
running, waiting = run_and_wait()
end = drained("--deadline", "1000")
r = d.chat("a")
check("a new one", (503, "draining", "5"), (r.status, r.json["error"]["code"], r.headers.get("retry-after")))
check("whoever balances sees it", 503, d.get("/health").status)
check("nothing is loaded", (1, True), (lambda r: (r.returncode, "drained" in r.stderr))(d.ctl("load", "a")))
running.let_go()
check("what ran and what waited", [200, 200], [r.status for r in running.wait() + waiting.wait()])
check("drain", 0, end())
check("resume", 0, d.ctl("resume").returncode)
check("requests are taken again", (200, 200), (d.chat("a").status, d.get("/health").status))

# After the deadline, what waits is refused, and what runs still ends.
running, waiting = run_and_wait()
end = drained("--deadline", "0")
check("what waited", [(503, "draining")], [(r.status, r.json["error"]["code"]) for r in waiting.wait()])
running.let_go()
check("what ran", [200], [r.status for r in running.wait()])
check("drain at once", 0, end())
check("resume", 0, d.ctl("resume").returncode)

# A drain that is taken back tells who waits for its end.
running = Held(d, "a")
until("it runs", lambda: of(d, "a")["running"] == 1)
end = drained()
check("resume", 0, d.ctl("resume").returncode)
check("the drain", 1, end())
running.let_go()

# ... and the daemon ends when it is told so.
end = drained("--exit")
check("drain and exit", 0, end())
check("the exit code", 0, d.process.wait(PATIENCE))
check("what ran", [200], [r.status for r in running.wait()])
check("nobody is there", 3, d.ctl("status").returncode)
check("the socket is gone", False, os.path.exists(d.control))
check("the log has one prefix", {"medusa-worker"}, {line.split(": ")[0] for line in d.stderr().splitlines()})

# SIGTERM lets a request end; the second one does not.
d = Daemon(f"{folder}/terminate", config)
running = Held(d, "a")
until("it runs", lambda: of(d, "a")["running"] == 1)
d.process.send_signal(signal.SIGTERM)
until("it drains", lambda: d.tell("status").get("draining"))
running.let_go()
check("SIGTERM", 0, d.process.wait(PATIENCE))
check("what ran", [200], [r.status for r in running.wait()])
d = Daemon(f"{folder}/terminate", config)
connection = d.connect()
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "a", "stream": True, "max_tokens": 100000, "token": 0.01}))
connection.getresponse().read(10)
d.process.send_signal(signal.SIGTERM)
until("it drains", lambda: d.tell("status").get("draining"))
check("a second one ends it at once", 0, d.stop())
connection.close()
d = Daemon(f"{folder}/terminate", config)
running, streaming = Held(d, "a"), endless_stream(d)
until("they run", lambda: of(d, "a")["running"] == 2)
waiting = Held(d, "b").let_go()
until("one waits", lambda: of(d, "b")["waiting"] == 1)
d.process.send_signal(signal.SIGTERM)
until("it drains", lambda: d.tell("status").get("draining"))
check("a second one", 0, d.stop())
check("clients are told so, whose requests run", [(503, "draining")], [(r.status, r.json["error"]["code"]) for r in running.wait()])
check("or wait", [(503, "draining")], [(r.status, r.json["error"]["code"]) for r in waiting.wait()])
check("or are a stream", "draining", last_event(streaming).get("error", {}).get("code"))

# After 30 s requests that run are ended, and their clients told so.
check("it ends with requests that don't", 0, late.process.wait(PATIENCE))
replies = {kind: unended[kind].wait()[0] for kind in ("whole", "waiting")}
check("why there is no answer", (503, "draining", "model a: the daemon ends", "application/json", "5"), (lambda r, e: (r.status, e.get("code"), e.get("message"), r.headers.get("content-type"), r.headers.get("retry-after")))(
    replies["whole"], replies["whole"].json.get("error", {})))
check("why the stream ends", "draining", last_event(unended["stream"]).get("error", {}).get("code"))
check("why a request that waited is not served", (503, "draining"), (replies["waiting"].status, replies["waiting"].json.get("error", {}).get("code")))
check("a load that waited", lambda got: got[0] == 1 and "takes no more requests" in got[1], (lambda err: (waiting_load.returncode, err))(waiting_load.communicate(timeout=PATIENCE)[1]))
check("no sanitizer has spoken", False, "Sanitizer" in late.stderr())

# Messages that are cut within a letter are told all the same.
name = "x" + "ж" * 60
d = Daemon(f"{folder}/letters", f"startPort: {free_ports(2)}\nmodels: {{{name}: {{cmd: \"{ENGINE} --name a\"}}}}\n")
r = d.chat(name, stream=True, max_tokens=3, die_at=1)
check("a stream ends with an event", (True, "engine_failed"), (lambda e: (e.get("message", "").startswith("model xж"), e.get("code")))(r.events[-1].get("error", {})))
r = d.chat(name, die=True)
check("an answer", (502, True), (r.status, r.json.get("error", {}).get("message", "").startswith("model xж")))
r = d.ctl("load", "ж" * 150)
check("an order", (3, True), (r.returncode, "ж" * 50 in r.stderr))
check("the exit code", 0, d.stop())

# Two daemons, one socket.
d = Daemon(f"{folder}/one", config)
other = Daemon(f"{folder}/two", config, "--control", d.control)
check("a socket that another daemon has", (True, True), (other.process.wait(PATIENCE) != 0, "another daemon has its engines beside it" in other.stderr()))
other = Daemon(f"{folder}/one", config, "--control", f"{folder}/elsewhere")
check("a folder that another daemon has", (4, True), (other.process.wait(PATIENCE), f"{folder}/one/state: the daemon of process {d.process.pid} has this folder" in other.stderr()))
check("which still serves", d.process.pid, d.tell("status")["pid"])
check("the lock is for its user alone", 0o600, os.stat(f"{folder}/one/state/lock").st_mode & 0o777)
env = {"XDG_RUNTIME_DIR": f"{folder}/runtime"}
os.mkdir(f"{folder}/runtime", 0o700)
daemons = [subprocess.Popen(["medusa-worker", "--config", f"{folder}/one/config.yaml", "--listen", "127.0.0.1:0", "--state", f"{folder}/default{i}"],
                            stdout=subprocess.PIPE, stderr=open(f"{folder}/default{i}.err", "w"), text=True, env={**os.environ, **env}) for i in (0,)]
check("the default", True, daemons[0].stdout.readline().startswith("listening"))
daemons.append(subprocess.Popen(["medusa-worker", "--config", f"{folder}/one/config.yaml", "--listen", "127.0.0.1:0", "--state", f"{folder}/default1"],
                                stdout=subprocess.PIPE, stderr=open(f"{folder}/default1.err", "w"), text=True, env={**os.environ, **env}))
check("the second one serves without", True, daemons[1].stdout.readline().startswith("listening"))
check("and says so", True, "no control socket" in open(f"{folder}/default1.err").read())
asked = subprocess.run(["medusa-workerctl", "status", "--json"], capture_output=True, text=True, env={**os.environ, **env}, timeout=PATIENCE)
check("the first one answers", daemons[0].pid, json.loads(asked.stdout)["pid"])
for one in daemons:
    one.terminate()
    one.wait(PATIENCE)
d.stop()
finish()
