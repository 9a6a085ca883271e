# SPDX-License-Identifier: Apache-2.0
"""What a soak counts itself, and compares with what the daemon says: /metrics, SQLite, the engines' journal, growth."""
import collections
import os
import re
import sqlite3
import struct
import threading

from soak import plan
from soak.client import FAILED, answer_to

PARTS = ("requests", "requests_served_total", "requests_failed_total", "requests_refused_total", "requests_limited_total", "requests_left_waiting_total",
         "requests_left_running_total")
LEDGER_ROWS, LEDGER_DEVICES = 128, 16 # of hostcuda's shared file: struct ledger in hostcuda/shared_devices.c


def read_metrics(text):
    """{model: {name: number}}, and {name: number} under None."""
    found = collections.defaultdict(dict)
    for name, model, value in re.findall(r'^medusa_worker_(\w+)(?:\{model="([^"]*)"\})? ([-+.e0-9]+)$', text, re.M):
        found[model or None][name] = float(value)
    return found


def identity(metrics):
    """The models whose counters do not add up, with the counters."""
    return {model: counts for model, counts in metrics.items()
            if model and counts["requests_total"] != sum(counts[part] for part in PARTS)}


class Books:
    """Counts of one daemon's life, by outcome."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all, self.ends = collections.Counter(), {} # ends: of requests that engines may or may not have seen
        self.start(None, 0)

    def start(self, state, number):
        """A daemon begins; state: its SQLite file."""
        at_start = sums(state)
        with self.lock:
            self.number, self.at_start = number, at_start
            self.life, self.sure, self.maybe = collections.Counter(), collections.Counter(), collections.Counter()

    def note(self, request, outcome, number):
        """number: of the daemon that was asked."""
        prompt, answer = answer_to(request).tokens
        with self.lock:
            self.all[outcome] += 1
            if request["model"] not in plan.COMPUTED and (outcome == "served" or outcome.endswith("concurrency_limit")):
                self.ends[request["name"]] = outcome
            if number != self.number or outcome in ("page", "left within the body") or request["kind"] in ("without a key", "unknown model", "no JSON"):
                return
            self.life[request["model"], outcome] += 1
            tokens = self.sure if outcome == "served" else self.maybe
            who = request["model"], plan.KEYS[request["key"]]
            tokens[who + ("requests",)] += 1
            tokens[who + ("prompt_tokens",)] += prompt
            tokens[who + ("completion_tokens",)] += answer

    def count(self, model, wanted):
        return sum(n for (m, outcome), n in self.life.items() if m == model and wanted(outcome))

    # ---- comparisons at the end of a daemon's life; each yields what is wrong ----

    def against_metrics(self, metrics):
        unclear = lambda outcome: outcome in ("left", "cut off", "lost", FAILED) or outcome.endswith(("overloaded", "too_many_connections", "bad_gateway"))
        for model in plan.MODELS:
            if model in plan.SOMETIMES or model not in metrics:
                continue
            doubt, said = self.count(model, unclear), metrics[model]
            for name, sure in (("requests_total", self.count(model, lambda o: not unclear(o))), ("requests_served_total", self.count(model, "served".__eq__)),
                               ("requests_limited_total", self.count(model, lambda o: o.endswith(("concurrency_limit", "queue_full"))))):
                if not sure <= said[name] <= sure + doubt:
                    yield f"{name} of {model} is {said[name]:.0f}; the clients know of {sure}, and {doubt} more are in doubt"

    def against_ledger(self, state, metrics):
        now, lost = sums(state), metrics[None].get("accounting_lost_requests_total", 0)
        grown = {key: value - self.at_start.get(key, 0) for key, value in now.items()}
        for model in plan.MODELS:
            if model not in plan.SOMETIMES and model in metrics:
                written = sum(value for (m, _, kind), value in grown.items() if m == model and kind == "requests")
                served = metrics[model]["requests_served_total"]
                if not served - lost <= written <= served:
                    yield f"{written} requests of {model} are in SQLite, {served:.0f} in the metrics, and {lost:.0f} lost"
        for key in set(self.sure) | set(grown):
            low, high = self.sure[key], self.sure[key] + self.maybe[key]
            if key[2] in ("requests", "prompt_tokens", "completion_tokens") and key[1] and not (lost or low <= grown.get(key, 0)):
                yield f"{key}: {grown.get(key, 0)} in SQLite, at least {low} were used"
            if key[2] in ("requests", "prompt_tokens", "completion_tokens") and key[1] and grown.get(key, 0) > high:
                yield f"{key}: {grown.get(key, 0)} in SQLite, at most {high} were used"

    def against_journal(self, path):
        """An engine is given each request at most twice (medusa.retries), those that were served at least once, those that were refused never."""
        with open(path, encoding="utf-8") as file:
            seen = collections.Counter(line.strip() for line in file)
        for name, outcome in self.ends.items():
            if (outcome == "served") != bool(seen[name]):
                yield f"request {name} was {outcome}, and engines have seen it {seen[name]} times"
        for name, times in seen.items():
            if times > 2:
                yield f"engines have seen request {name} {times} times"


def sums(state):
    if not state or not os.path.exists(state):
        return {}
    base = sqlite3.connect(f"file:{state}?mode=ro", uri=True, timeout=30)
    try:
        kinds = ("requests", "prompt_tokens", "completion_tokens")
        rows = base.execute("SELECT model, key, sum(requests), sum(prompt_tokens), sum(completion_tokens) FROM usage GROUP BY model, key").fetchall()
        return {(model, key, kind): row[i] for model, key, *row in rows for i, kind in enumerate(kinds)}
    except sqlite3.OperationalError: # made, and empty
        return {}
    finally:
        base.close()


def most_device_bytes(path, forget=False):
    """That all processes had together at one time, by hostcuda's account."""
    if not os.path.exists(path):
        return 0
    with open(path, "r+b") as file:
        file.seek(LEDGER_ROWS * LEDGER_DEVICES * 8)
        most = struct.unpack("Q", file.read(8))[0]
        if forget:
            file.seek(LEDGER_ROWS * LEDGER_DEVICES * 8)
            file.write(bytes(8))
        return most


def size_of(pid):
    """(descriptors, threads, resident KiB) of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0])
