# SPDX-License-Identifier: Apache-2.0
"""What the tests of contents share: nodes with files of models, a real etcd, and a proxy before a node that counts, slows and spoils what passes."""
import atexit
import os
import random
import re
import signal
import socket
import threading
import time

from daemon import ENGINE, PATIENCE, Daemon, check, free_ports, until
from etcd import Etcd

BLOCK = 4 << 20
NODE_KEY = "0123456789abcdef-of-the-nodes"
started = []


class World:
    def __init__(self, folder, ports=24):
        self.folder, self.first = folder, free_ports(ports)
        self.etcd = Etcd(folder, self.first)
        self.next = self.first + 4
        with open(f"{folder}/key", "w", encoding="utf-8") as file:
            file.write(NODE_KEY + "\n")
        os.chmod(f"{folder}/key", 0o600)
        atexit.register(self.end)

    def end(self):
        """Of a test that was broken off."""
        for one in started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
        self.etcd.stop()

    def port(self):
        self.next += 2
        return self.next

    def close(self):
        for node in started:
            if node.process.poll() is None:
                check(f"{node.name} ends", 0, node.stop())
        self.etcd.stop()
        for node in started:
            check(f"{node.name}: no sanitizer has spoken", False, "Sanitizer" in node.stderr())


def make_file(path, size, seed):
    """Of random bytes, which no file system makes smaller."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draw = random.Random(seed)
    with open(path, "wb") as file:
        for at in range(0, size, 1 << 20):
            file.write(draw.randbytes(min(1 << 20, size - at)))
    old = time.time() - 100  # a file that is young is read again at each start
    os.utime(path, (old, old))
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Node(Daemon):
    """models: {name: what stands in its `medusa`}; the engine says which files it was given."""

    def __init__(self, world, name, models, cluster="", port=None, advertise=None, key=True, more="", node=None):
        self.name, self.world, self.store = name, world, f"{world.folder}/{name}/store"
        self.ports = port or world.port()
        lines = "".join(f'  {m}: {{cmd: "{ENGINE} --name {name}-{m}-${{content}}", medusa: {{{keys}}}}}\n' for m, keys in models.items())
        key_file = f"key_file: {world.folder}/key, " if key else ""
        options = ["--cluster", world.etcd.urls, "--node", node or name]
        if advertise:
            options += ["--advertise", advertise]
        super().__init__(f"{world.folder}/{name}", f"startPort: {self.ports}\nmodels:\n{lines}groups: {{all: {{swap: false, members: [{', '.join(models)}]}}}}\n"
                         f"medusa: {{cluster: {{{key_file}store: {self.store}{cluster}}}{more}}}\n", *options, env={"MEDUSA_LOG": "info"})
        started.append(self)

    def files(self, model):
        """What the node says of its own files: (state, hash, done, of, why)."""
        for m in self.tell("cluster", "models")["models"]:
            for n in m["nodes"]:
                if m["model"] == model and n["node"] == self.name:
                    files = n.get("files", {})
                    return files.get("state"), n.get("content"), files.get("done"), files.get("of"), files.get("why")
        return None, None, None, None, None

    def contents(self, model):
        return {n["node"]: n["content"] for m in self.tell("cluster", "models")["models"] if m["model"] == model for n in m["nodes"]}

    def places(self, model):
        return {n["node"]: n["place"] for m in self.tell("cluster", "models")["models"] if m["model"] == model for n in m["nodes"]}

    def metric(self, name):
        found = re.search(rf"^medusa_worker_content_{name} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return found and float(found[1])

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def page(self, path, method="GET", **headers):
        return self.ask(method, path, None, {"X-Medusa-Node": "t", "X-Medusa-Node-Key": NODE_KEY, **{k.replace("_", "-"): v for k, v in headers.items()}})


class Proxy:
    """Before a node: `bytes` counts what it sends, `rate` (bytes a second) slows each answer, `spoil` changes bytes of them; `cut`: they end.
    `asked`: (hash, block) of each question for a block, in their order."""

    def __init__(self, target=0):
        self.target, self.bytes, self.rate, self.spoil, self.cut, self.asked = target, 0, 0, None, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        with near:
            try:
                if self.cut:
                    return
                with socket.create_connection(("127.0.0.1", self.target)) as far:
                    threading.Thread(target=forward, args=(near, far, self.note), daemon=True).start()
                    first = True
                    while (got := far.recv(65536)) and not self.cut:
                        self.bytes += len(got)
                        if self.spoil:
                            got = self.spoil(got, first)
                        first = False
                        near.sendall(got)
                        if self.rate:
                            time.sleep(len(got) / self.rate)
                near.shutdown(socket.SHUT_RDWR)  # closing waits for the thread that reads it
            except OSError:
                pass

    def note(self, head):
        for content, first in re.findall(rb"^GET /medusa/content/([0-9a-f]{64}) .*?^range: bytes=(\d+)-", head, re.M | re.S | re.I):
            self.asked.append((content.decode(), int(first) // BLOCK))

    def blocks(self, content):
        return [block for of, block in self.asked if of == content]


def forward(one, other, note):
    try:
        while got := one.recv(65536):
            note(got)
            other.sendall(got)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
