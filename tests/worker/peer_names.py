# SPDX-License-Identifier: Apache-2.0
"""Names of peers that a name server is slow to tell: peer_names.py FOLDER, in a mount namespace of its own, whose /etc/resolv.conf it changes."""
import socket
import subprocess
import sys
import threading

from daemon import Daemon, check, finish, free_ports, until

folder = sys.argv[1]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
with open(f"{folder}/resolv.conf", "w", encoding="utf-8") as file:
    file.write(f"nameserver not-an-address\nnameserver 127.0.0.1:{server.getsockname()[1]}\noptions timeout:1 attempts:1\n")
subprocess.run(["mount", "--bind", f"{folder}/resolv.conf", "/etc/resolv.conf"], check=True)
A, AAAA = 1, 28
asked, answers = [], set()  # (name, kind) of each question; kinds that are answered


def serve():
    """Says that each name is 127.0.0.1, if A is among the kinds, and that it has no other address, if AAAA is."""
    while True:
        question, client = server.recvfrom(2000)
        at, words = 12, []
        while question[at]:
            words.append(question[at + 1:at + 1 + question[at]].decode())
            at += question[at] + 1
        kind = int.from_bytes(question[at + 1:at + 3], "big")
        if kind in answers:
            found = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if kind == A else b""
            server.sendto(question[:2] + b"\x81\x80\0\1" + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0" + question[12:at + 5] + found, client)
        asked.append((".".join(words).lower(), kind))


threading.Thread(target=serve, daemon=True).start()
first = free_ports(2)
listening = socket.create_server(("127.0.0.1", first))
CONFIG = f"""
peers:
  plain: {{proxy: "http://plain.example:{first}", models: [m]}}
  tls: {{proxy: "https://tls.example:{first}", models: [m]}}
  short: {{proxy: "http://short.example:{first}", models: [m], timeouts: {{connect: 1}}}}
"""


def leave(daemon, model):
    """A client asks, and goes while the name is looked up."""
    before = len(asked)
    wire = socket.create_connection(("127.0.0.1", daemon.port))
    body = b'{"model": "%s"}' % model.encode()
    wire.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    until("both kinds of addresses are asked for", lambda: len(asked) >= before + 2)
    wire.close()
    peer = model.split("/", maxsplit=1)[0]
    until("the client is known to be gone", lambda: f'medusa_worker_peer_requests_open{{peer="{peer}"}} 0' in daemon.get("/metrics").body.decode())


for kinds in ((), (A,), (AAAA,)):
    answers.clear()
    answers.update(kinds)
    d = Daemon(f"{folder}/names{len(kinds)}{sum(kinds)}", CONFIG)
    for model in ("plain/m", "tls/m"):
        leave(d, model)
        check(f"{kinds}: reload while the name of {model} is looked up for nobody", 0, d.ctl("reload").returncode)
    leave(d, "plain/m")
    r = d.chat("short/m")
    check(f"{kinds}: a name that takes longer than the connection may", (502, "peer short: the peer did not take the connection within 1 s"), (r.status, r.json["error"]["message"]))
    check(f"{kinds}: reload behind it", 0, d.ctl("reload").returncode)
    until(f"{kinds}: longer than a lookup waits for the other kind of addresses (3 s), it lives", lambda: [d.chat("short/m").status for _ in range(4)] == [502] * 4)
    leave(d, "tls/m")
    check(f"{kinds}: it ends during a lookup", 0, d.stop())
    check(f"{kinds}: no sanitizer has spoken", False, "Sanitizer" in d.stderr())

answers.update((A, AAAA))
d = Daemon(f"{folder}/names", CONFIG)
replies = []
thread = threading.Thread(target=lambda: replies.append(d.chat("plain/m")))
thread.start()
connection = listening.accept()[0]
with connection:
    while b'"m"' not in connection.recv(65536):
        pass
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
thread.join()
check("a name that is found", (200, b"{}"), (replies[0].status, replies[0].body))
check("by its name", True, ("plain.example", A) in asked)
listening.close()
r = d.chat("plain/m")
check("nobody listens there", (502, "peer plain: connecting: Connection refused"), (r.status, r.json["error"]["message"]))
check("it ends", 0, d.stop())
said = [line for kinds in ("00", "11", "128") for line in open(f"{folder}/names{kinds}/err", encoding="utf-8")]
check("libevent says in the daemon's log what it does not understand", True, "medusa-worker: libevent: Unable to parse nameserver address not-an-address\n" in said)
check("and nothing stands elsewhere", [], [line for line in said if not line.startswith("medusa-worker: ")])
finish()
