# SPDX-License-Identifier: Apache-2.0
"""What users of llama-swap look for, how the daemon ends, and what it leaves behind: small_pages.py FOLDER."""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
first = free_ports(4)
config = f"""
startPort: {first}
apiKeys: [sesame]
models:
  a: {{cmd: "{ENGINE} --name a", aliases: [other], name: Alpha, description: The first}}
  b/c: {{cmd: "{ENGINE} --name b"}}
  hidden: {{cmd: "{ENGINE} --name hidden", unlisted: true}}
"""
d = Daemon(f"{folder}/pages", config)
KEY = {"Authorization": "Bearer sesame"}


def get(path, **headers):
    r = d.get(path, **headers)
    return r.status, r.headers.get("location")


# The page, and what leads to it; a browser that asks for a list gets the page, which asks for the key.
check("/", (200, None), get("/"))
check("/ui", (200, None), get("/ui"))
check("/ui/", (302, "../ui"), get("/ui/"))
check("/ui/models/x", (302, "../../ui"), get("/ui/models/x"))
for path in ("/upstream", "/logs"):
    check(f"{path} in a browser", (302, "ui"), get(path, Accept="text/html,application/xhtml+xml,*/*"))
    check(f"{path} without a key", 401, d.get(path).status)
check("the list", (200, [{"model": "a", "state": "stopped"}, {"model": "b/c", "state": "stopped"}]), (lambda r: (r.status, r.json.get("models")))(d.get("/upstream", **KEY)))

r = d.get("/v1/models/a", **KEY)
check("a model", (200, "a", "model", "Alpha", "The first", {"value": "unloaded"}), (r.status, *(r.json.get(k) for k in ("id", "object", "name", "description", "status"))))
listed = d.get("/v1/models", **KEY).json["data"]
check("as it is in the list", listed[0], r.json)
check("a name with a slash", "b/c", d.get("/v1/models/b/c", **KEY).json.get("id"))
r = d.get("/v1/models/other", **KEY)
check("an alias", ("other", "alias", "a"), (r.json.get("id"), r.json["meta"]["llamaswap"]["type"], r.json["meta"]["llamaswap"]["modelID"]))
check("one that is not listed", 200, d.get("/v1/models/hidden", **KEY).status)
r = d.get("/v1/models/nobody", **KEY)
check("nobody", (404, "model_not_found"), (r.status, r.json["error"]["code"]))
check("without a key", 401, d.get("/v1/models/a").status)
version = subprocess.run(["medusa-worker", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
r = d.get("/api/version", **KEY)
check("the version", (200, version, ["build_date", "commit", "version"]), (r.status, r.json.get("version"), sorted(r.json)))
check("the exit code", 0, d.stop())


# How the command ends.
def ends(*words, text=config, stdout=subprocess.PIPE):
    with open(f"{folder}/ends.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run(["medusa-worker", "--config", f"{folder}/ends.yaml", "--state", f"{folder}/ends", *words], stdout=stdout,
                          stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr


with socket.create_server(("127.0.0.1", 0)) as taken:
    code, text = ends("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
check("a port that is taken", (4, True), (code, "Address already in use" in text))
for listen in ("nonsense", "127.0.0.1", "127.0.0.1:99999", "unix:"):
    code, text = ends("--listen", listen)
    check(f"--listen {listen}", (2, True), (code, "--listen" in text))
check("the same in the configuration", 3, ends(text="medusa: {listen: nonsense}")[0])
with open(f"{folder}/file", "w", encoding="utf-8"):
    pass
check("a file in the place of a socket", 4, ends("--listen", f"unix:{folder}/file")[0])
check("a folder that can't be made", 4, ends("--state", f"{folder}/file/state")[0])
check("no configuration", 3, ends("--config", f"{folder}/nothing.yaml")[0])
text = subprocess.run(["medusa-worker", "--help"], capture_output=True, text=True, check=True).stdout
check("codes in the help", ["0", "2", "3", "4"], [line.split()[0] for line in text.split("Exit codes:\n")[1].splitlines()])

# What can't be printed is said with its reason; it serves all the same.
with open("/dev/full", "w", encoding="utf-8") as full, open(f"{folder}/full.err", "w", encoding="utf-8") as err:
    daemon = subprocess.Popen(["medusa-worker", "--config", f"{folder}/ends.yaml", "--state", f"{folder}/ends", "--listen", f"unix:{folder}/full"], stdout=full, stderr=err)
until("it serves", lambda: os.path.exists(f"{folder}/full"))
with open(f"{folder}/full.err", encoding="utf-8") as err:
    until("it says why", lambda: "standard output, which says where the daemon listens: No space left on device" in err.read() or err.seek(0))
daemon.terminate()
check("the exit code", 0, daemon.wait(PATIENCE))

# Sockets of medusa-swap: however an engine ends, and the daemon, none is left after the next start.
swap = f"{os.environ['XDG_RUNTIME_DIR']}/medusa/swap"


def sockets():
    return [name for name in os.listdir(swap) if name.startswith("worker-")] if os.path.isdir(swap) else []


config = f"""
startPort: {first}
medusa: {{gpus: [{{memory: 60MB}}], adopt_time: 0s}}
models:
  m: {{cmd: "{ENGINE} --name m --device-mb 20", medusa: {{memory: 20MB}}}}
"""
d = Daemon(f"{folder}/sockets", config)
pid = d.chat("m").json.get("pid")
check("one while it runs", 1, len(sockets()))
os.kill(pid, signal.SIGKILL)
until("none when it was killed", lambda: not sockets())
check("it is started again", True, d.chat("m").json.get("pid") not in (pid, None))
check("unload", 200, d.get("/unload").status)
until("none when it has ended", lambda: not sockets())
check("once more", 200, d.chat("m").status)
d.stop(signal.SIGKILL)
check("one is left by a daemon that is killed", 1, len(sockets()))
d = Daemon(f"{folder}/sockets", config)
until("the next one removes it", lambda: not sockets())
check("the exit code", 0, d.stop())
check("none when all is over", [], sockets())
finish()
