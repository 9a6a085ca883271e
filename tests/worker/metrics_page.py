# SPDX-License-Identifier: Apache-2.0
"""What /metrics has of models that were used and of others, and to whom it is sent: metrics_page.py FOLDER."""
import re
import signal
import socket
import sys
import threading

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
MANY = 600
models = "\n".join(f"  many{i}: {{cmd: \"{ENGINE} --name many{i}\"}}" for i in range(MANY))
d = Daemon(f"{folder}/metrics", f"""
startPort: {free_ports(4)}
models:
  a: {{cmd: "{ENGINE} --name a --start 0.2"}}
  'with "quotes" and \\ more': {{cmd: "{ENGINE} --name b"}}
{models}
""", env={"MEDUSA_LOG": "info"})


def lines():
    return [line for line in d.get("/metrics").body.decode().splitlines() if not line.startswith("#")]


def of(model, found):
    """{name and labels but the model: value}"""
    pattern = re.compile(r'^([\w:]+)\{model(?:_name)?="' + re.escape(model) + r'",?([^}]*)\} (\S+)$')
    return {(m[1].removeprefix("medusa_worker_"), m[2]): float(m[3]) for m in map(pattern.match, found) if m}


found = lines()
check("a model that was never used has its state alone", [{("state", 'state="stopped"'): 1}] * 3,
      [of(model, found) for model in ("a", "many7", 'with \\"quotes\\" and \\\\ more')])
check("all are there", MANY + 2, sum(line.startswith("medusa_worker_state{") for line in found))
check("the daemon's own", True, "medusa_worker_http_refused_total 0" in found)
check("a request", 200, d.chat("a").status)
found = of("a", lines())
check("a model that was used has all states", 7, sum(name == "state" for name, _ in found))
check("one of them is true", ['state="ready"'], [label for (name, label), value in found.items() if name == "state" and value])
check("and counts nothing that was not", 0, found["requests_failed_total", ""])
check("and a histogram with all its buckets", [15, 15], [sum(name == f"{of}_seconds_bucket" for name, _ in found) for of in ("time_to_first_byte", "load")])
def times(model):
    """{histogram: (count, sum)} of a model."""
    found = of(model, lines())
    names = ("request_load_seconds", "vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds", "vllm:e2e_request_latency_seconds")
    return [(found.get((f"{name}_count", ""), 0), found.get((f"{name}_sum", ""), 0)) for name in names]


load, queue, inference, whole = times("a")
check("the request has waited for a load", [1] * 4, [count for count, _ in (load, queue, inference, whole)])
check("which is most of its wait, and none of its service", True, 0.2 <= load[1] <= queue[1] and inference[1] <= whole[1] - load[1] + 0.001)
check("its times add up", True, abs(queue[1] + inference[1] - whole[1]) < 0.001)
check("a request without a load", 200, d.chat("a").status)
check("it waits for none", [1, 2, 2, 2], [count for count, _ in times("a")])
check("a load without a request", 0, d.ctl("load", 'with "quotes" and \\ more').returncode)
check("is no request", [0] * 4, [count for count, _ in times('with \\"quotes\\" and \\\\ more')])
check("drain", 0, d.ctl("drain").returncode)
check("requests that are refused", {503}, {d.chat(f"many{i}").status for i in range(MANY)})
check("resume", 0, d.ctl("resume").returncode)
found = of("many7", lines())
check("a model that was not loaded has no histogram", ({1.0}, []), ({found["requests_total", ""]}, [key for key in found if key[0].endswith("_bucket")]))

# clients at once, slow ones, and those that leave
size = len(d.get("/metrics").body)
check("it is long", True, size > 600_000)
slow = [socket.socket() for _ in range(3)]
for client in slow:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", d.port))
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
bodies = []
readers = [threading.Thread(target=lambda: bodies.append(d.get("/metrics").body)) for _ in range(8)]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
check("each of several has all of it", [True] * 8, [b"medusa_worker_backbone_starts_total" in body and body.count(b"\nmedusa_worker_state{") == 14 + 7 * MANY
                                                     for body in bodies])
slow[0].close()


def read(client, count):
    """So many whole answers of one connection."""
    file, got = client.makefile("rb"), []
    for _ in range(count):
        length = 0
        while (line := file.readline().strip()):
            length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else length
        got.append(file.read(length))
    return got


check("a slow one gets three of them", [True] * 3, [body.rstrip().splitlines()[-1].startswith(b"medusa_worker_") and len(body) > 600_000 for body in read(slow[1], 3)])
check("HEAD", 200, d.ask("HEAD", "/metrics").status)
d.process.send_signal(signal.SIGTERM)
until("it is told", lambda: "SIGTERM" in d.stderr())
check("it ends although one does not read", 0, d.stop())
finish()
