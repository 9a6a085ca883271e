# SPDX-License-Identifier: Apache-2.0
"""What tests of medusa-worker share: a daemon with a configuration, requests to it, and checks that are counted."""
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# -S: packages that are installed have no part in it, and looking for them takes as long as the rest of its start.
ENGINE = f"{sys.executable} -S {HERE}/engine.py --port ${{PORT}}"
PATIENCE = 60  # seconds for what must happen; a test never waits for time to pass
failures = checks = 0


def check(what, expected, got):
    """Counts; `expected` may be a function that judges."""
    global checks, failures
    checks += 1
    if not (expected(got) if callable(expected) else expected == got):
        failures += 1
        print(f"FAIL {what}: expected {expected if not callable(expected) else 'something else'}\n     got {got}")


def finish():
    print(f"{checks} checks, {failures} failures")
    sys.exit(1 if failures or not checks else 0)


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    check(what, True, False)
    return None


claims = []  # of the ports that this process has until it ends


def claim(port):
    """A socket whose name says that the port is this process's, whose engines may listen there only later; None: another test has it."""
    import socket
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0medusa-test-port-{port}")  # abstract: no longer there than the process, and seen by whoever sees the port
    except OSError:
        name.close()
        return None
    return name


def free_ports(count):
    """The first of so many ports in a row that nobody listens on, and no other test is given, below those that connections get."""
    import random
    import socket
    for _ in range(200):
        first = random.randrange(10000, 32000)
        names = [claim(first + i) for i in range(count)]
        try:
            sockets = [socket.create_server(("127.0.0.1", first + i)) for i in range(count)] if all(names) else None
        except OSError:
            sockets = None
        for one in sockets or [name for name in names if name]:
            one.close()
        if sockets:
            claims.extend(names)
            return first
    raise RuntimeError("no free ports")


def process_stat(pid):
    """(name, fields behind it) of a process, or None. Any process may end while it is looked at, and a name may be cut within a letter."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            name, fields = stat.read().rsplit(")", 1)
            return name.split("(", 1)[1], fields.split()
    except OSError:
        return None


def process_words(pid):
    """Of its command; none of a process that has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def processes():
    """All process IDs of the machine, with those of other tests."""
    return list(map(int, filter(str.isdigit, os.listdir("/proc"))))


def lives(pid):
    """Whether the process is there, and no zombie whose parent is slow."""
    found = process_stat(pid)
    return found is not None and found[1][0] != "Z"


class Held:
    """Requests for a model that its engine answers only after let_go()."""
    number = 0

    def __init__(self, daemon, model, count=1, **more):
        Held.number += 1
        self.file = f"{daemon.folder}/held{Held.number}"
        self.replies = []
        self.threads = [threading.Thread(target=lambda: self.replies.append(daemon.chat(model, until=self.file, **more))) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def let_go(self):
        with open(self.file, "w", encoding="utf-8"):
            pass
        return self

    def wait(self):
        for thread in self.threads:
            thread.join()
        return self.replies


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def events(self):
        """The contents of a stream, one after the other."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    @property
    def text(self):
        return "".join(e["choices"][0]["delta"].get("content", "") for e in self.events if e.get("choices"))


class Daemon:
    """medusa-worker with a configuration (a text), in a folder of its own."""

    def __init__(self, folder, config, *options, env=None):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.control = f"{folder}/control"
        self.write_config(config)
        with open(f"{folder}/err", "ab") as err:
            self.process = subprocess.Popen(
                ["medusa-worker", "--config", f"{folder}/config.yaml", "--listen", "127.0.0.1:0", "--state", f"{folder}/state",
                 "--control", self.control, *options], stdout=subprocess.PIPE, stderr=err, text=True, env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1]) if line.startswith("listening on ") else 0

    def write_config(self, config):
        new = f"{self.folder}/config.{threading.get_ident()}"  # another daemon may read the old one
        with open(new, "w", encoding="utf-8") as file:
            file.write(config)
        os.rename(new, f"{self.folder}/config.yaml")

    def stderr(self):
        with open(f"{self.folder}/err", encoding="utf-8") as file:
            return file.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def chat(self, model, **more):
        return self.ask("POST", "/v1/chat/completions", {"model": model, "messages": [], **more})

    def running(self):
        return {r["model"]: r["state"] for r in self.get("/running").json["running"]}

    def engine_log(self, model):
        return self.get(f"/logs/{model}").body.decode()

    def ctl(self, *words):
        """medusa-workerctl, when it has ended."""
        return subprocess.run(["medusa-workerctl", *words, "--socket", self.control], capture_output=True, text=True, timeout=PATIENCE)

    def tell(self, *words):
        """What medusa-workerctl prints with --json."""
        done = self.ctl(*words, "--json")
        try:
            return json.loads(done.stdout)
        except ValueError:
            print(f"  medusa-workerctl {' '.join(words)}: exit code {done.returncode}: {done.stderr}; the daemon: {self.process.poll()}", file=sys.stderr)
            return {"exit": done.returncode, "stderr": done.stderr}

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)
