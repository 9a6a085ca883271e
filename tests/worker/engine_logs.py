# SPDX-License-Identifier: Apache-2.0
"""What engines print: engine_logs.py FOLDER. Each model has a file of its own, within its limit while it is written, whatever ends."""
import os
import re
import signal
import sys
import threading

from daemon import ENGINE, Daemon, check, finish, free_ports, process_stat, processes, until

folder = sys.argv[1]
MOST = 8 << 20
LONG = "long-" * 50
names = ["x/y", "x:y", "x%2Fy", "x_y", "x y", ".x", "_x", "..", "ü", LONG + "a", LONG + "b", "x.log", "x"]
models = "\n".join(f'  "{name}": {{cmd: "{ENGINE} --name n{i}"}}' for i, name in enumerate(names))
d = Daemon(f"{folder}/logs", f"""
startPort: {free_ports(len(names) + 1)}
groups: {{all: {{swap: false, members: {names}}}}}
models:
{models}
  loud: {{cmd: "{ENGINE} --name loud"}}
""")


def log_process(daemon):
    """The process that writes the logs of this daemon's engines."""
    for pid in processes():
        name, fields = process_stat(pid) or ("", [])
        if name == "medusa-logs" and int(fields[1]) == daemon.process.pid and fields[0] != "Z":
            return pid
    return None


def sizes(model):
    found = []
    for name in (f"{folder}/logs/state/{model}.log", f"{folder}/logs/state/{model}.log.1"):
        try:
            found.append(os.stat(name).st_size)
        except OSError:
            found.append(0)
    return found


# One file for each.
for i, name in enumerate(names):
    until(f"{name} says what it is", lambda: d.chat(name).status == 200 and f"n{i} listens" in d.engine_log(name.replace("%", "%25").replace("ü", "%C3%BC").replace(" ", "%20")))
files = [f for f in os.listdir(f"{folder}/logs/state") if f.endswith(".log")]
check("files", len(names) + 1, len(files))
for file in files:
    with open(f"{folder}/logs/state/{file}", encoding="utf-8") as text:
        check(f"{file} is of one engine", lambda n: n <= 1, len(set(re.findall(r"(\w+) listens", text.read()))))

# An engine that prints much more than there is room for.
most, done = [0], threading.Event()


def watch():
    while not done.is_set():
        most[0] = max(most[0], sum(sizes("loud")))
        done.wait(0.001)


watcher = threading.Thread(target=watch)
watcher.start()
check("60 MB are printed", 200, d.chat("loud", print=60000).status)
until("all of it has come", lambda: "line 59999 " in d.engine_log("loud"))
done.set()
watcher.join()
check("the limit held all the time", lambda n: MOST // 2 < n <= MOST, most[0])
numbers = [int(n) for n in re.findall(r"^line (\d+) ", d.engine_log("loud"), re.M)]
check("nothing is missing at its end", True, numbers == list(range(60000 - len(numbers), 60000)))
check("100 KiB are shown", lambda n: n > 95, len(numbers))

# What comes while somebody reads is there once and in its order, also when the file begins anew meanwhile.
connection = d.connect()
connection.request("GET", "/logs/stream/loud?no-history")
response = connection.getresponse()
text = bytearray()


def read_stream():
    while b"line 8999 " not in text[-5000:]:
        text.extend(response.read1(65536))


reader = threading.Thread(target=read_stream)
reader.start()
for begin in range(0, 9000, 1000):
    check("some lines", 200, d.chat("loud", print=1000, print_from=begin).status)
    until("they have come", lambda: b"line %d " % (begin + 999) in text[-5000:])
reader.join(60)
connection.close()
seen = [int(n) for n in re.findall(rb"^line (\d+) ", text, re.M)]
check(f"the stream has all lines in their order ({len(seen)})", True, seen == list(range(9000)))

# The process that writes ends, by accident: engines go on, and so do their logs.
pid = d.chat("loud").json["pid"]
writer = log_process(d)
os.kill(writer, signal.SIGKILL)
check("the engine goes on", pid, d.chat("loud", print=200, print_from=100000).json.get("pid"))
until("its log does, too", lambda: "line 100199 " in d.engine_log("loud"))
check("it is said", True, "has ended, and another one follows" in d.stderr())
second = log_process(d)
check("another process writes", True, second and second != writer)
os.remove(f"{folder}/logs/state/loud.log")
check("a log that was removed", 200, d.chat("loud", print=1, print_from=7).status)
until("is made anew", lambda: "line 7 " in d.engine_log("loud"))
check("the exit code", 0, d.stop())
until("it ends with the daemon and its engines", lambda: not os.path.exists(f"/proc/{second}"))

# That process does not come to it, because its disk is slow or it was stopped: nobody waits for it, and what it was to know it learns later.
MANY = 700
many = "\n".join(f'  e{i}: {{cmd: "sh -c \'echo said by {i}; exit 3\' ${{PORT}}", medusa: {{memory: 1MB, swap: off}}}}' for i in range(MANY))
d = Daemon(f"{folder}/writer-stopped", f"""
startPort: {free_ports(1)}
medusa: {{gpus: [{{memory: 8GB}}], retries: 0}}
models:
{many}
""")
writer = log_process(d)
os.kill(writer, signal.SIGSTOP)
left, lock, statuses = iter(range(MANY)), threading.Lock(), []


def start_some():
    while True:
        with lock:
            number = next(left, None)
        if number is None:
            return
        statuses.append(d.chat(f"e{number}").status)


starters = [threading.Thread(target=start_some) for _ in range(8)]
for starter in starters:
    starter.start()
for starter in starters:
    starter.join()
check("each is started, and fails", [502] * MANY, statuses)
check("the daemon answers", 200, d.get("/health").status)
os.kill(writer, signal.SIGCONT)
until("all logs are written then", lambda: all(f"said by {i}" in d.engine_log(f"e{i}") for i in (0, MANY // 2, MANY - 1)))
check("what llama-swap has besides is not there", {404}, {d.get(path).status for path in ("/api/hardware", "/api/captures/1", "/api/metrics/stats")})
check("the exit code", 0, d.stop())
finish()
