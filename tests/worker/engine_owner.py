# SPDX-License-Identifier: Apache-2.0
"""Engines belong to one daemon: engine_owner.py FOLDER. They end with it, and nobody else answers for them."""
import http.server
import os
import resource
import signal
import socket
import subprocess
import sys
import threading

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, lives, until

folder = sys.argv[1]
first = free_ports(8)


# Without adoption: however the daemon ends, its engines end, those behind a shell included; the next daemon has engines of its own.
config = f"""
startPort: {first}
medusa: {{adopt_time: 0}}
groups: {{all: {{swap: false, members: [a, shell]}}}}
models:
  a: {{cmd: "{ENGINE} --name a"}}
  shell: {{cmd: "sh -c '{ENGINE} --name shell --ignore-term; true'"}}
"""
if "TSAN_OPTIONS" in os.environ:  # the thread sanitizer would report a SIGSEGV that comes from outside
    os.environ["TSAN_OPTIONS"] += ":handle_segv=0"
for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGQUIT, signal.SIGSEGV):
    d = Daemon(f"{folder}/ends", config)
    pids = [d.chat(model).json.get("pid") for model in ("a", "shell")]
    check(f"{how.name}: both run", True, all(pid and lives(pid) for pid in pids))
    code = d.stop(how)
    check(f"{how.name}: the exit code", -how if how in (signal.SIGKILL, signal.SIGSEGV) else 0, code if how != signal.SIGSEGV else -how)
    until(f"{how.name}: no engine is left", lambda: not any(lives(pid) for pid in pids))
# So it is where the daemon may have few files open: nothing of its keeper needs a number beyond them.
few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
d = Daemon(f"{folder}/few", config)
resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
pid = d.chat("a").json.get("pid")
check("its end", -signal.SIGKILL, d.stop(signal.SIGKILL))
until("no engine is left", lambda: pid and not lives(pid))
check("its keeper was one", False, "medusa-keeper" in d.stderr())
d = Daemon(f"{folder}/ends", config)
pids.append(d.chat("a").json.get("pid"))
check("the next daemon has an engine of its own", True, pids[2] and pids[2] not in pids[:2])
check("the exit code", 0, d.stop())


class Stranger(http.server.BaseHTTPRequestHandler):
    """Says 200 to everything, as an engine does whose daemon is not this one."""
    asked = 0

    def log_message(self, *words):
        pass

    def do_GET(self):
        Stranger.asked += 1
        self.send_response(200)
        self.send_header("Content-Length", "8")
        self.end_headers()
        self.wfile.write(b"stranger")

    do_POST = do_GET


def serve(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# A port that somebody has.
server = serve(first)
d = Daemon(f"{folder}/taken", config)
r = d.chat("a")
check("nobody else answers", (True, False), (r.status >= 500, b"stranger" in r.body))
check("why", True, f"another process listens at localhost:{first}" in r.json["error"]["message"])
check("the stranger was not asked", 0, Stranger.asked)
server.shutdown()
server.server_close()
check("when it is gone", (200, "a"), (lambda r: (r.status, r.json.get("name")))(d.chat("a")))
check("the exit code", 0, d.stop())

# A port that the daemon itself has: by its own number, or by one that its command does not have in it, as of a container.
first = free_ports(8)
d = Daemon(f"{folder}/ours", f"""
startPort: {first}
models:
  a: {{cmd: "{ENGINE} --name a"}}
  b: {{cmd: "{ENGINE.replace('${PORT}', str(first + 3))}", proxy: "http://localhost:{first}"}}
  c: {{cmd: "{ENGINE} --name c"}}
""", "--listen", f"127.0.0.1:{first}")
OURS = f"was not started, because this daemon itself listens at localhost:{first}: change startPort or proxy, or the daemon's --listen"
for model, line in (("a", 4), ("b", 5)):
    r = d.chat(model)
    check(f"model {model}: why it can't start", (502, "engine_failed", True), (r.status, r.json["error"]["code"], OURS in r.json["error"]["message"]))
    check(f"model {model}: it was said at the start", True, f"config.yaml:{line}: models.{model}: its engine is to serve at http://localhost:{first}, where this daemon itself listens" in d.stderr())
check("another one", (200, "c"), (lambda r: (r.status, r.json.get("name")))(d.chat("c")))
check("nothing is said of it", False, "models.c" in d.stderr())
d.write_config(f"models: {{e: {{cmd: \"{ENGINE.replace('${PORT}', str(first))}\", proxy: 'http://localhost:{first}'}}}}\n")
check("a reload", 0, d.ctl("reload").returncode)
check("it says so, too", True, f"models.e: its engine is to serve at http://localhost:{first}," in d.stderr())
check("the exit code", 0, d.stop())

# A connection that is over has the port for a minute: no server can listen there, whatever its options.
first = free_ports(8)
with socket.create_server(("127.0.0.1", 0)) as there:
    client = socket.socket()
    client.bind(("127.0.0.1", first))
    client.connect(there.getsockname())
    at_server = there.accept()[0]
    client.close()
    at_server.close()
d = Daemon(f"{folder}/connected", f"startPort: {first}\nmodels: {{a: {{cmd: \"{ENGINE} --name a\"}}}}\n")
r = d.chat("a")
check("why it can't listen", (502, True), (r.status, f"had a minute ago, a connection from localhost:{first}" in r.json["error"]["message"]))
check("the exit code", 0, d.stop())
first = free_ports(8)

# Somebody takes the port after the engine's process has begun, and before it listens.
go = f"{folder}/go"
d = Daemon(f"{folder}/late", f"""
startPort: {first}
models:
  a: {{cmd: "sh -c 'while ! test -e {go}; do sleep 0.01; done; exec {ENGINE} --name a'"}}
""")
replies = []
client = threading.Thread(target=lambda: replies.append(d.chat("a")))
client.start()
until("it starts", lambda: d.running().get("a") == "starting")
server = serve(first)
until("the stranger was asked", lambda: Stranger.asked >= 3)
check("that is not its health", {"a": "starting"}, d.running())
with open(go, "w", encoding="utf-8"):
    pass
client.join()
check("nobody else answers", (True, False), (replies[0].status >= 500, b"stranger" in replies[0].body))
server.shutdown()
server.server_close()
check("when it is gone", (200, "a"), (lambda r: (r.status, r.json.get("name")))(d.chat("a")))
check("the exit code", 0, d.stop())

# Two daemons with one configuration.
one, two = (Daemon(f"{folder}/twin{i}", config) for i in (1, 2))
own = one.chat("a").json.get("pid")
r = two.chat("a")
check("one has the engine", (True, True), (bool(own), r.status >= 500))
check("the other one says why", True, "another process listens" in r.json["error"]["message"])
check("the first one goes on", own, one.chat("a").json.get("pid"))
check("the exit codes", (0, 0), (one.stop(), two.stop()))

# cmdStop gets the process wherever it is asked for; an engine without a check is asked when it listens.
d = Daemon(f"{folder}/words", f"""
startPort: {first}
models:
  a:
    cmd: "sh -c 'sleep 0.3; exec {ENGINE} --name a'"
    checkEndpoint: none
    cmdStop: "sh -c 'echo ${{PID}}-${{PID}} >{folder}/stopped; kill ${{PID}}'"
""")
r = d.chat("a")
check("without a check", (200, "a"), (r.status, r.json.get("name")))
check("unload", 0, d.ctl("unload", "a").returncode)
with open(f"{folder}/stopped", encoding="utf-8") as file:
    check("cmdStop", f"{r.json['pid']}-{r.json['pid']}\n", file.read())
check("the exit code", 0, d.stop())

# Two engines that want one port.
with open(f"{folder}/same.yaml", "w", encoding="utf-8") as file:
    file.write(f"models:\n  a: {{cmd: x, proxy: 'http://127.0.0.1:{first}'}}\n  b: {{cmd: x, proxy: 'http://localhost:{first}/v1'}}\n"
               f"  c: {{cmd: x, proxy: 'http://localhost:{first + 1}'}}\n")
done = subprocess.run(["medusa-worker", "--config", f"{folder}/same.yaml", "--check"], capture_output=True, text=True, timeout=PATIENCE)
check("it is noted", (0, 1), (done.returncode, done.stderr.count("has the same address")))
check("where", True, "same.yaml:3: models.b: the engine of model a has the same address" in done.stderr)
finish()
