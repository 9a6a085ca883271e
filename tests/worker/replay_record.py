# SPDX-License-Identifier: Apache-2.0
"""Requests that medusa-worker has recorded, replayed by medusa-simulate: replay_record.py FOLDER [adapters]. Swaps, order and latencies agree.

With `adapters`, the models of the day are adapters on one engine, which has places for two of them.

Bounds: as many requests served; loads within a fifth, or two; of the models of a burst, none overtakes another in one of the two where
both are half a second apart; median and 90th percentile of the time to the first token within half of the measured one, and 0.25 s. A machine
that is busy with something else serves later than the simulation knows, so what is measured may agree at the second or third recording.
"""
import contextlib
import csv
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time

from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports

SEED, REQUESTS, BURST, RECORDINGS = 11, 60, 6, 3
SERVED = 0 # MD_LEDGER_SERVED
FIRST, TOKEN = 0.15, 0.01 # seconds that an engine takes
NAMES = [f"day{i}" for i in range(3)] + [f"burst{i}" for i in range(BURST)]


ADAPTERS = sys.argv[2:] == ["adapters"]


def backbone(folder):
    os.makedirs(folder, exist_ok=True)
    for name in NAMES[:3]:
        with open(f"{folder}/{name}.json", "w", encoding="utf-8") as file:
            json.dump({"text": name}, file)
    adapters = ", ".join(f"{name}: {{path: {folder}/{name}.json, bytes: 1MiB}}" for name in NAMES[:3])
    return f"""
  day: {{cmd: "{ENGINE} --name day --device-mb 4 --lora-slots 2", medusa: {{memory: 4MiB, adapter_slots: 2, adapters: {{{adapters}}}}}}}"""


def start(folder):
    models = backbone(folder) if ADAPTERS else ""
    models += "".join(f"""
  {name}: {{cmd: "{ENGINE} --name {name} --device-mb 4", medusa: {{memory: 4MiB}}}}""" for name in NAMES[3 if ADAPTERS else 0:])
    return Daemon(f"{folder}/record", f"""
startPort: {free_ports(16)}
medusa:
  state: {folder}/usage.sqlite
  gpus: [{{memory: 10MiB}}]
  policies: {{preloading: none}}
  tenants: [{{name: shop, keys: [s], weight: 2}}, {{name: lab, keys: [l]}}]
models:{models}
""")


def send_all(d):
    """Of each model the arrival and the first byte of its last request."""
    arrivals, lock = {}, threading.Lock()

    def ask(name, key, tokens):
        began = time.monotonic()
        connection = d.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": name, "stream": True, "wait": FIRST, "token": TOKEN, "max_tokens": tokens, "tokens": [40, tokens]}),
                           {"X-Api-Key": key, "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read(1)
        with lock:
            arrivals[name] = (began, time.monotonic())
        rest = answer.read()
        with lock:
            # a stream that has failed has status 200, too, and is no row of the trace
            answers.append(200 if answer.status == 200 and rest.endswith(b"data: [DONE]\n\n") else (answer.status, name, rest[-300:]))

    answers = []
    dice, threads = random.Random(SEED), []
    for number in range(REQUESTS + BURST):
        burst = number - REQUESTS
        name = NAMES[3 + burst] if burst >= 0 else NAMES[dice.choices(range(3), (5, 3, 2))[0]]
        threads.append(threading.Thread(target=ask, args=(name, dice.choice("sl"), dice.randrange(5, 40))))
        threads[-1].start()
        time.sleep(0.1 if burst >= 0 else 3 if number == REQUESTS - 1 else dice.expovariate(1 / 0.3))
    for thread in threads:
        thread.join(PATIENCE)
    check("all are answered", [200] * (REQUESTS + BURST), answers)
    return arrivals


def compare(folder, arrivals, rows, loads, policy):
    """What does not agree: lines of text."""
    at = {r["function"]: float(r["seconds"]) for r in rows}
    swaps = sum(policy["scheduler"][f"swaps_{source}"] for source in ("host", "peer", "cold"))
    print(f"  loads: {loads}, replayed: {swaps}")
    wrong = [] if abs(swaps - loads) <= max(2, loads / 5) else [f"loads: {loads}, replayed {swaps}"]

    # When each model of the burst had its first token: really, and in the simulation.
    zero = arrivals["burst0"][0] - at["burst0"]
    real = {name: arrivals[name][1] - zero for name in NAMES[3:]}
    simulated = {f["name"]: at[f["name"]] + f["ttft_ms"]["mean"] / 1000 for f in policy["per_function"] if f["name"] in real}
    wrong += [f"the order of a burst: {a} after {b}" for a in real for b in real if real[a] - real[b] > 0.5 and simulated[b] - simulated[a] > 0.5]

    waits = sorted(row[0] / 1e6 for row in sqlite3.connect(f"{folder}/usage.sqlite").execute("SELECT first_us FROM request"))
    for part, key in ((0.5, "p50"), (0.9, "p90")):
        measured, replayed = waits[int(part * (len(waits) - 1))], policy["ttft_ms"][key] / 1000
        print(f"  {key}: measured {measured:.3f} s, replayed {replayed:.3f} s")
        if abs(replayed - measured) > 0.25 + measured / 2:
            wrong.append(f"the time to the first token, {key}: {measured:.3f} s, replayed {replayed:.3f} s")
    return wrong


def record(folder):
    """What does not agree between what was measured and its replay; all else is checked."""
    d = start(folder)
    arrivals = send_all(d)
    check("what was asked for is not there yet", 2, d.ctl("trace", "--since", "1h").returncode)
    done = d.ctl("trace", "--since", "1h", "--to", f"{folder}/day")
    check("the files are written", 0, done.returncode)
    with contextlib.closing(sqlite3.connect(f"{folder}/usage.sqlite")) as ledger:
        outcomes = dict(ledger.execute("SELECT outcome, count(*) FROM request GROUP BY outcome"))
    lost = [line for line in d.get("/metrics", **{"X-Api-Key": "s"}).body.decode().splitlines() if line.startswith("medusa_worker_accounting_lost_requests_total ")]
    check("the daemon has recorded all as served, and lost none", ({SERVED: REQUESTS + BURST}, ["medusa_worker_accounting_lost_requests_total 0"]), (outcomes, lost))
    with open(f"{folder}/day/trace.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    check("each request is in it, with its tokens and tenant", (REQUESTS + BURST, {"40"}, {"shop", "lab"}), (len(rows), {r["context"] for r in rows}, {r["tenant"] for r in rows}))
    check("in the order of arrival", sorted(float(r["seconds"]) for r in rows), [float(r["seconds"]) for r in rows])
    metrics = dict(line.rsplit(" ", 1) for line in d.get("/metrics", **{"X-Api-Key": "s"}).body.decode().splitlines() if not line.startswith("#"))
    later = d.ctl("trace", "--since", str(int(time.time()) + 3600), "--to", f"{folder}/later")
    check("nothing after that", True, ": 0 requests" in later.stdout)
    check("the exit code", 0, d.stop())

    # The command that was printed replays them.
    words = done.stdout.splitlines()[-1].split()
    check("a command", "medusa-simulate", words[0])
    run = subprocess.run([*words, "--json", f"{folder}/replay.json", "--quiet"], capture_output=True, text=True, timeout=PATIENCE)
    check("it replays", (0, ""), (run.returncode, run.stderr))
    with open(f"{folder}/replay.json", encoding="utf-8") as file:
        policy = json.load(file)["policies"][0]
    check("all are served", REQUESTS + BURST, policy["requests"]["served"])
    return compare(folder, arrivals, rows, int(metrics["medusa_worker_scheduler_swaps_total"]), policy)


for number in range(1, RECORDINGS + 1):
    wrong = record(f"{sys.argv[1]}/recording{number}")
    print(*(f"  recording {number}: {line}" for line in wrong), sep="\n", end="\n" if wrong else "")
    if not wrong:
        break
check(f"one of {RECORDINGS} recordings agrees with its replay", [], wrong)
finish()
