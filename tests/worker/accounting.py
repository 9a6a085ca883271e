# SPDX-License-Identifier: Apache-2.0
"""What medusa-worker keeps for whoever pays: accounting.py FOLDER. The sums are what was served."""
import csv
import hashlib
import io
import json
import os
import random
import resource
import sqlite3
import sys
import threading
import time

from daemon import ENGINE, Daemon, check, finish, free_ports, until

folder = sys.argv[1]
TEAM_KEYS = ["key-one-of-the-team", "key-two-of-the-team"]  # long, because a file of SQLite has random bytes, too


def config(state, more=""):
    return f"""
startPort: {free_ports(4)}
medusa:
  state: {state}
  gpus: [{{memory: 8GB}}]
  tenants: [{{name: "team, \\"one\\"", keys: [{", ".join(TEAM_KEYS)}]}}]
apiKeys: [plain]
{more}
models:
  a: {{cmd: "{ENGINE} --name a", medusa: {{memory: 1GB, swap: off}}}}
  b: {{cmd: "{ENGINE} --name b", medusa: {{memory: 2GB, swap: off}}}}
  slow: {{cmd: "{ENGINE} --name slow --start 0.3", sendLoadingState: true, medusa: {{memory: 1GB, swap: off}}}}
"""


TEAM, PLAIN = 'team, "one"', "key-" + hashlib.blake2b(b"plain", digest_size=16).hexdigest()[:16]
NAMES = {**dict.fromkeys(TEAM_KEYS, TEAM), "plain": PLAIN}


def ask(daemon, key, model, **more):
    return daemon.ask("POST", "/v1/chat/completions", {"model": model, **more}, {"X-Api-Key": key})


def bill(daemon, since="1h"):
    return {(row["model"], row["key"]): row for row in daemon.tell("bill", "--since", since)["usage"]}


def metric(daemon, name):
    lines = daemon.ask("GET", "/metrics", headers={"X-Api-Key": "plain"}).body.decode().splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)), None)


ledger = f"{folder}/usage.sqlite"
d = Daemon(f"{folder}/accounting", config(ledger))
check("nothing yet", {}, bill(d))

# Random requests of several keys, streamed and whole, some without counts, some refused by the engine, at once.
random.seed(7)
expected, lock, began = {}, threading.Lock(), time.monotonic()
left = [(random.choice(list(NAMES)), random.choice("ab"), random.random() < 0.5, random.choice([None, [random.randrange(5000), random.randrange(900)]]))
        for _ in range(120)]
wrong = []


def work():
    while True:
        with lock:
            if not left:
                return
            key, model, stream, tokens = left.pop()
        text = {"content": 'a text with "usage": {"prompt_tokens": 77777, "completion_tokens": 77777} in it'}
        r = ask(d, key, model, stream=stream, wait=0.002, note=text, max_tokens=3, **({"tokens": tokens} if tokens else {}))
        with lock:
            wrong.extend([] if r.status == 200 else [r.body])
            row = expected.setdefault((model, NAMES[key]), [0, 0, 0, 0, 0])
            for i, value in enumerate((1, not tokens, tokens[0] if tokens else 0, tokens[1] if tokens else 0, len(r.body))):
                row[i] += value


threads = [threading.Thread(target=work) for _ in range(5)]
for t in threads:
    t.start()
for t in threads:
    t.join()
took = time.monotonic() - began
check("all were served", [], wrong)
rows = bill(d)
kinds = ("requests", "untold", "prompt_tokens", "completion_tokens", "answer_bytes")
check("the sums", expected, {k: [row[kind] for kind in kinds] for k, row in rows.items()})
for model, memory in (("a", 1e9), ("b", 2e9)):
    mine = [row for (m, _), row in rows.items() if m == model]
    check(f"{model}: loads, and bytes", (1, memory), (sum(r["loads"] for r in mine), sum(r["loaded_bytes"] for r in mine)))
    seconds = sum(r["gpu_ns"] for r in mine) / 1e9
    check(f"{model}: no more seconds than there were", lambda s: 0 < s <= took, seconds)
    check(f"{model}: the metrics say the same time", lambda s: abs(s - seconds) < 1e-6, metric(d, f'medusa_worker_gpu_seconds_total{{model="{model}"}}'))
    for name, label in (("medusa_worker_prompt_tokens_total", "model"), ("vllm:prompt_tokens_total", "model_name")):
        check(f"{model}: and tokens: {name}", sum(r["prompt_tokens"] for r in mine), metric(d, f'{name}{{{label}="{model}"}}'))
    check(f"{model}: and those of answers", sum(r["completion_tokens"] for r in mine), metric(d, f'vllm:generation_tokens_total{{model_name="{model}"}}'))
check("no key is in the file", False, any(key.encode() in open(f"{ledger}{end}", "rb").read() for key in NAMES for end in ("", "-wal")
                                          if os.path.exists(f"{ledger}{end}")))
table = list(csv.DictReader(io.StringIO(d.ctl("bill", "--since", "1h", "--csv").stdout)))
check("as CSV", {k: str(v[0]) for k, v in expected.items()}, {(row["model"], row["key"]): row["requests"] for row in table})
check("as text", True, TEAM in d.ctl("bill", "--since", "1970-01-01").stdout)
check("later than all", {}, bill(d, str(int(time.time()) + 3600)))
for bad in ("yesterday", "-1h", "2026-13-01", "", "5w"):
    check(f"no time: {bad}", 2, d.ctl("bill", f"--since={bad}").returncode)
check("no time at all", 2, d.ctl("bill").returncode)
# Only what an API says of an answer that is one is counted, and only where it says it.
N, C, J, S = {"prompt_tokens": 1000, "completion_tokens": 100}, {"input_tokens": 20, "output_tokens": 3}, "application/json", "text/event-stream"
bait, counts = {"usage": N}, {"usage": C}


def event(*texts, end="\n"):
    return "".join(f"data: {text}{end}" for text in texts) + end


for what, paid, status, kind, pieces, more in (
        ("a whole answer", True, 200, J, [json.dumps({"a": bait, **counts})], {}),
        ("201, and another JSON", True, 201, "application/x+json; a=b", [json.dumps(counts)], {}),
        ("message_start", True, 200, S, [event(json.dumps({"message": counts})), event("[DONE]")], {}),
        ("response.completed, with CR LF", True, 200, S, [event(json.dumps({"response": counts}), end="\r\n")], {}),
        ("two lines of data", True, 200, S, [event('{"usage":', json.dumps(C) + "}", end="\r")], {}),
        ("nested", False, 200, J, [json.dumps({"choices": [{"message": {"content": bait, **bait}}], "tool": bait})], {}),
        ("a list", False, 200, J, [json.dumps([bait])], {}),
        ("a page", False, 200, "text/html", [json.dumps(bait)], {}),
        ("no type", False, 200, None, [json.dumps(bait)], {}),
        ("a comment and another field", False, 200, S, [f": {json.dumps(bait)}\nid: {json.dumps(bait)}\n\n"], {}),
        ("nested in an event", False, 200, S, [event(json.dumps({"choices": [bait], "delta": {"message": bait}}))], {}),
        ("an error", False, 400, J, [json.dumps(bait)], {}),
        ("an error of the engine", False, 500, J, [json.dumps(bait)], {}),
        ("an error as a stream", False, 429, S, [event(json.dumps(bait))], {}),
        ("what is said to be encoded", False, 200, J, [json.dumps(bait)], {"Content-Encoding": "br"})):
    before = bill(d)[("a", PLAIN)]
    r = ask(d, "plain", "a", stream=kind == S, raw={"status": status, "headers": {**({"Content-Type": kind} if kind else {}), **more}, "pieces": pieces})
    row = bill(d)[("a", PLAIN)]
    check(f"{what}: the answer", (status, "".join(pieces)), (r.status, r.body.decode()))
    billed = (1, 0, 20, 3) if paid else (1, 1, 0, 0)
    check(f"{what}: what is billed", billed, tuple(row[k] - before[k] for k in kinds[:4]))
    expected[("a", PLAIN)] = [*map(sum, zip(expected[("a", PLAIN)], billed))]

# A client that goes, and an engine that dies: their time counts, they do not.
before = bill(d)[("a", PLAIN)]
check("an engine that dies", 502, ask(d, "plain", "a", die=True).status)
after = bill(d)[("a", PLAIN)]
cut = {"status": 200, "headers": {"Content-Type": J}, "pieces": [json.dumps(bait)], "whole": False}
check("an answer that is cut", 502, ask(d, "plain", "a", raw=cut).status)
check("nor the tokens that nobody got", before["prompt_tokens"], bill(d)[("a", PLAIN)]["prompt_tokens"])
check("no request, but its time", (0, True), (after["requests"] - before["requests"], after["gpu_ns"] > before["gpu_ns"]))

# An answer that only the end of its connection ends is paid if it is whole.
whole = {"status": 200, "headers": {"Content-Type": J}, "pieces": [json.dumps(counts)], "chunks": False}
before = bill(d)[("a", PLAIN)]
check("it lives on", 200, ask(d, "plain", "a", raw=whole).status)
after = bill(d)[("a", PLAIN)]
check("and is paid", (1, 0, 20, 3), tuple(after[k] - before[k] for k in kinds[:4]))
expected[("a", PLAIN)] = [*map(sum, zip(expected[("a", PLAIN)], (1, 0, 20, 3)))]
dies = f"{folder}/dies"
open(dies, "w", encoding="utf-8").close()
check("it is killed before its last byte", 502, ask(d, "plain", "a", raw={**whole, "pieces": [json.dumps(counts)[:-1]], "dies": dies}).status)
check("and is not", (0, 0, 0, 0), (lambda now: tuple(now[k] - after[k] for k in kinds[:4]))(bill(d)[("a", PLAIN)]))
# So it is with an answer that does not go on with the stream that the worker has begun.
r = ask(d, "plain", "slow", stream=True, raw={"status": 400, "headers": {"Content-Type": J}, "pieces": [json.dumps(counts)]})
check("it does not go on", (200, True), (r.status, b"the engine answered with 400" in r.body))
check("no request, but its time", (0, 0, 0, True), (lambda row: (row["requests"], row["untold"], row["prompt_tokens"], row["gpu_ns"] > 0))(bill(d)[("slow", PLAIN)]))
check("the exit code", 0, d.stop())

# It goes on where it was.
d = Daemon(f"{folder}/again", config(ledger))
ask(d, "plain", "a", tokens=[1, 2])
check("a row more", expected[("a", PLAIN)][0] + 1, bill(d)[("a", PLAIN)]["requests"])
d.stop()
check("the file is for its user alone", 0o600, os.stat(ledger).st_mode & 0o777)
sums = sqlite3.connect(ledger).execute("SELECT sum(requests), sum(prompt_tokens) FROM usage").fetchone()
check("what is in the file", (sum(row[0] for row in expected.values()) + 1, sum(row[2] for row in expected.values()) + 1), sums)

# A file that is none: serving goes on, the loss is counted, and said once.
bad = f"{folder}/bad.sqlite"
with open(bad, "wb") as file:
    file.write(b"this is no database, " * 500)
d = Daemon(f"{folder}/bad", config(bad))
for _ in range(3):
    check("it serves", 200, ask(d, "plain", "a").status)
    until("the loss is counted", lambda: metric(d, "medusa_worker_accounting_lost_requests_total") == _ + 1)
check("said once", 1, d.stderr().count("lost until that works"))
check("the bill says why", True, d.ctl("bill", "--since", "1h").returncode in (3, 4) and "not a database" in d.ctl("bill", "--since", "1h").stderr)
os.remove(bad)
ask(d, "plain", "a")
until("it is written again", lambda: bill(d).get(("a", PLAIN), {}).get("requests") == 1)
until("and that is said", lambda: "written again" in d.stderr())
check("the exit code", 0, d.stop())

# A disk without room (here: files may not grow): the same.
old = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, old[1]))
full = Daemon(f"{folder}/full", config(f"{folder}/full.sqlite"))
resource.setrlimit(resource.RLIMIT_FSIZE, old)
for _ in range(3):
    check("it serves", 200, ask(full, "plain", "b").status)
until("the loss is counted", lambda: metric(full, "medusa_worker_accounting_lost_requests_total") == 3)
check("said once", 1, full.stderr().count("lost until that works"))
check("with the path once", 1, next(line for line in full.stderr().splitlines() if "lost until that works" in line).count("full.sqlite"))
check("the exit code", 0, full.stop())

# Another program spoils the file while it is open: said with the path, and mended by the next opening.
d = Daemon(f"{folder}/spoilt", config(f"{folder}/spoilt.sqlite"))
ask(d, "plain", "a")
until("it is written", lambda: bill(d).get(("a", PLAIN), {}).get("requests") == 1)
spoiler = sqlite3.connect(f"{folder}/spoilt.sqlite")
spoiler.execute("DROP TABLE usage")
spoiler.close()
check("it serves", 200, ask(d, "plain", "a").status)
until("the loss is counted", lambda: metric(d, "medusa_worker_accounting_lost_requests_total") == 1)
check("with the path once", 1, next(line for line in d.stderr().splitlines() if "lost until that works" in line).count("spoilt.sqlite"))
ask(d, "plain", "a")
until("it is written again", lambda: bill(d).get(("a", PLAIN), {}).get("requests") == 1)
check("the exit code", 0, d.stop())

# Without medusa.state nothing is kept.
d = Daemon(f"{folder}/none", f"models:\n  a: {{cmd: x, proxy: 'http://127.0.0.1:1'}}\n")
check("no bill", (1, True), (lambda r: (r.returncode, "medusa.state" in r.stderr))(d.ctl("bill", "--since", "1h")))
d.stop()
finish()
