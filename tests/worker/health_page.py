# SPDX-License-Identifier: Apache-2.0
"""What /health says of the daemon, and with ?model= of a model's engine, which is asked: health_page.py FOLDER."""
import os
import signal
import socket
import sys
import threading
import time

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
first = free_ports(4)
KEY = {"Authorization": "Bearer key"}
d = Daemon(f"{folder}/health", f"""
startPort: {first}
apiKeys: [key]
unloadTimeout: 1
models:
  a: {{cmd: "{ENGINE} --name a", aliases: [alias], concurrencyLimit: 100}}
  touched: {{cmd: "{ENGINE} --name touched", checkEndpoint: none}}
  broken: {{cmd: "sh -c 'exit 3' ${{PORT}}"}}
groups: {{all: {{swap: false, members: [a, touched, broken]}}}}
""")


def health(query="", headers=KEY, path="/health"):
    r = d.ask("GET", path + query, headers=headers)
    return r.status, r.body.decode()


def ask(model):
    return health(f"?model={model}")


def chat(model):
    return d.ask("POST", "/v1/chat/completions", {"model": model, "messages": []}, KEY).status


def loads():
    return {m["model"]: m["loads"] for m in d.tell("models")["models"]}


check("the daemon, without a key", [(200, "OK")] * 4, [health(query, {}, path) for path in ("/health", "/wol-health") for query in ("", "?x=1")])
check("which models there are is nobody's business", 401, health("?model=a", {})[0])
check("with a wrong key", 401, health("?model=a", {"Authorization": "Bearer other"})[0])
check("one that is not there", 404, ask("nobody")[0])
check("names that are none", [404] * 4, [ask(name)[0] for name in ("", "%00", "a%", "%zz")])
check("and nobody's business, either", 401, health("?model=%zz", {})[0])
check("one that is not loaded", (200, "stopped"), ask("a"))
check("and is not loaded for it", 0, loads()["a"])
check("serving", (200, 200), (chat("a"), chat("touched")))
check("its engine answers", [(200, "OK")] * 3, [ask("a"), ask("alias"), ask("touched")])
check("HEAD", 200, d.ask("HEAD", "/health?model=a", headers=KEY).status)
pid = d.ask("POST", "/v1/chat/completions", {"model": "a", "messages": []}, KEY).json["pid"]
os.kill(pid, signal.SIGSTOP)
began = time.monotonic()
check("an engine that hangs", (503, "model a: its engine is not healthy: the engine did not send anything within 5 s"), ask("a"))
check("is waited for, but not for ever", True, 5 < time.monotonic() - began < PATIENCE)
check("the daemon serves all the same", (200, "OK"), health())
# clients that do not wait for it
for _ in range(20):
    with socket.create_connection(("127.0.0.1", d.port)) as client:
        client.sendall(b"GET /health?model=a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key\r\n\r\n")
        time.sleep(0.01)
os.kill(pid, signal.SIGCONT)
check("it goes on", (200, "OK"), ask("a"))
for _ in range(2):
    check("one that ends before it is ready", 502, chat("broken"))
status, text = ask("broken")
check("is not well", (503, True), (status, text.startswith("model broken: its engine ended with exit code 3 before it was ready; a request starts it again in ")))
os.kill(pid, signal.SIGSTOP)
answers = []
asking = threading.Thread(target=lambda: answers.append(ask("a")))
asking.start()
check("unload", 0, d.ctl("unload", "a").returncode)
asking.join()
check("one that is unloaded meanwhile, or before the question comes", lambda got: got in ([(200, "stopped")], [(200, "stopping")]), answers)
check("drain", 0, d.ctl("drain").returncode)
check("is no health", (503, "draining"), health())
check("the exit code", 0, d.stop())
finish()
