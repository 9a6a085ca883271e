# SPDX-License-Identifier: Apache-2.0
"""A real etcd for tests, of one member or several, and a wire before it that can be cut."""
import atexit
import base64
import os
import re
import signal
import socket
import subprocess
import threading
import time

from daemon import PATIENCE


def end_with_test(started, etcd):
    """When this process ends, also of a test that was broken off: daemons in the list that live still, and etcd."""
    @atexit.register
    def end_all():
        for one in started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
        etcd.stop()


class Member:
    """tls: paths of the CA, and of a certificate with its key, which clients must have, too; None: there is no TLS."""

    def __init__(self, folder, number, first, count, tls):
        self.url, self.peer = f"http{'s' if tls else ''}://127.0.0.1:{first + 2 * number}", f"http://127.0.0.1:{first + 2 * number + 1}"
        cluster = ",".join(f"m{i}=http://127.0.0.1:{first + 2 * i + 1}" for i in range(count))
        self.command = ["etcd", "--name", f"m{number}", "--data-dir", f"{folder}/etcd{number}", "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                        "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer, "--initial-cluster", cluster, "--initial-cluster-token", folder]
        if tls:
            self.command += ["--trusted-ca-file", tls[0], "--cert-file", tls[1], "--key-file", tls[2], "--client-cert-auth"]
        self.log, self.process = f"{folder}/etcd{number}.log", None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def send(self, what):
        self.process.send_signal(what)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(PATIENCE)


class Etcd:
    """Members on so many ports, two each; `first` is the first of them."""

    def __init__(self, folder, first, count=1, tls=None):
        self.members = [Member(folder, i, first, count, tls) for i in range(count)]
        self.tls = ["--cacert", tls[0], "--cert", tls[1], "--key", tls[2]] if tls else []
        self.user = []  # of etcdctl
        self.urls = ",".join(member.url for member in self.members)
        self.start()

    def start(self):
        for member in self.members:
            if not member.process or member.process.poll() is not None:
                member.start()
        end = time.monotonic() + PATIENCE
        while self.run("endpoint", "health").returncode and time.monotonic() < end:
            time.sleep(0.05)

    def run(self, *words, wait="3s"):
        return subprocess.run(["etcdctl", "--endpoints", self.urls, "--command-timeout", wait, "--dial-timeout", wait, *self.tls, *self.user, *words], capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, "ETCDCTL_API": "3"})

    def must(self, *words):
        done = self.run(*words, wait="30s")
        if done.returncode:
            raise RuntimeError(f"etcdctl {words[0]}: {done.stderr}")

    def guard(self, root, users):
        """Authentication is on. users: name -> (password, right, prefix)."""
        self.must("user", "add", f"root:{root}")
        for name, (password, right, prefix) in users.items():
            self.must("role", "add", name)
            self.must("role", "grant-permission", name, "--prefix=true", right, prefix)
            self.must("user", "add", f"{name}:{password}")
            self.must("user", "grant-role", name, name)
        self.must("user", "grant-role", "root", "root")
        self.must("auth", "enable")
        self.user = ["--user", f"root:{root}"]

    def get(self, key):
        return self.run("get", "--print-value-only", key).stdout

    def stop(self):
        for member in self.members:
            member.kill()


class Wire:
    """A port before another one. `hangs`: what is sent arrives nowhere; `cut`: connections end; `early`: the next watch begins with the first revision; `write`: the last write that was sent;
    `first`: what is done before a transaction of this key is passed on: (key, function)."""

    def __init__(self, target):
        self.target, self.hangs, self.early, self.write, self.first = int(target.rsplit(":", 1)[1]), False, False, None, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.pairs, self.lock = [], threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            pair = [near, far]
            with self.lock:
                self.pairs.append(pair)
            going = [2]  # directions
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.direct, args=(pair, going, one, other), daemon=True).start()

    def direct(self, pair, going, one, other):
        """One direction; both sockets are closed behind the second."""
        try:
            self.carry(one, other)
        except OSError:
            pass
        end(pair)
        with self.lock:
            going[0] -= 1
            if not going[0]:
                self.pairs.remove(pair)
                for socket_ in pair:
                    socket_.close()

    def carry(self, one, other):
        while got := one.recv(65536):
            while self.hangs:
                time.sleep(0.05)
            if b"POST /v3/kv/txn " in got:
                self.write = got.split(b"\r\n\r\n", 1)[1]
                if self.first and base64.b64encode(self.first[0].encode()) in got:
                    self.first[1]()
            if self.early and b'"start_revision":' in got:
                self.early = False
                got = re.sub(rb'"start_revision":(\d+)', lambda found: b'"start_revision":' + b"1".rjust(len(found[1])), got)
            other.sendall(got)

    def cut(self):
        with self.lock:
            for pair in self.pairs:
                end(pair)


def end(pair):
    for socket_ in pair:
        try:
            socket_.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
