# SPDX-License-Identifier: Apache-2.0
"""Swapping of a PyTorch engine on a real GPU: answers before and after, times, what stays; beside torch_memory_saver, if it is there.

    python3 tests/gpu/swap_bench.py [--gb 14] [--cycles 20] [--out FILE.json]
    python3 tests/gpu/swap_bench.py --neighbours [--gb 14] [--turns 5] [--out FILE.json]    two GPUs: in over one link and over two
    python3 tests/gpu/swap_bench.py --peers [--sees-both] [--gb 14] [--turns 5] [--out FILE.json]    two GPUs: in from an engine on the other one
"""
import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT = 2048  # tokens
GROWTH_KIB = 32 << 10  # the C library's and Python's heaps are not exact
failures = []


def check(what, fine):
    print(f"  {'pass' if fine else 'FAIL'}  {what}", flush=True)
    if not fine:
        failures.append(what)


class Engine:
    def __init__(self, prefix, arguments, log):
        self.log = open(log, "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [*prefix, sys.executable, os.path.join(HERE, "swap_engine.py"), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.said = self.read()

    def read(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"the engine ended with {self.process.wait()}: {self.log.name}")
            if line.startswith("{"):
                return json.loads(line)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.read()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(120)
        self.log.close()
        return code


def used():
    """MiB on the GPU."""
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, check=True).stdout
    return int(re.search(r"\d+", text).group())


def swap(what, *options, name="bench"):
    """What medusa-swap reports, and the seconds that the command took."""
    start = time.perf_counter()
    done = subprocess.run(["medusa-swap", what, name, "--json", *options], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"medusa-swap {what}: exit {done.returncode}: {done.stderr.strip()}")
    return {**json.loads(done.stdout), "command_ms": seconds * 1e3}


def rate(engine, seconds=5):
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        engine.ask("answer 7")
        count += 1
    return count / (time.perf_counter() - start)


def held(engine):
    return {**engine.ask("held"), "device_mib": used()}


def cycles(engine, wanted, count, table):
    """Out and in again and again, while answers are asked for; nothing that the engine has grows after the first tenth."""
    turns(engine, wanted, count - count * 9 // 10)
    first = held(engine)
    start = time.perf_counter()
    turns(engine, wanted, count * 9 // 10)
    last = held(engine)
    table["cycles"] = {"cycles": count, "seconds_of_nine_tenths": time.perf_counter() - start, "after_a_tenth": first, "at_the_end": last}
    for what, room in (("descriptors", 0), ("threads", 0), ("device_mib", 0), ("anonymous_kib", GROWTH_KIB)):
        check(f"{what} after {count} cycles: {first[what]}, then {last[what]}", last[what] <= first[what] + room)


def turns(engine, wanted, count):
    answers, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            answers.append(engine.ask("answer 3")["answer"])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for at in range(count):
            time.sleep(0.02 * (at % 8))
            swap("out")
            swap("in")
    finally:
        stop.set()
        thread.join(120)
    check(f"{len(answers)} answers during {count} cycles are as before", answers and set(answers) == {wanted})


def status(name="bench"):
    done = subprocess.run(["medusa-swap", "status", name, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def first_token(engine, wanted, *options):
    """The prompt waits while the memory is out: ms from "in" to the first token, what "in" says, and what calls waited for."""
    swap("out")
    time.sleep(5)  # what is out is looked through for addresses meanwhile
    said = []
    thread = threading.Thread(target=lambda: said.append(engine.ask(f"first 9 {PROMPT}")))
    thread.start()
    time.sleep(0.5)
    start = time.perf_counter()
    done = swap("in", *options)
    thread.join(120)
    ms = (time.perf_counter() - start) * 1e3
    check(f"the first token after in {' '.join(options)} is as before", said and said[0]["answer"] == wanted)
    for _ in range(200):
        if not status()["coming"]:
            break
        time.sleep(0.05)
    now = status()
    waits = {key: now[key] for key in ("coming", "unknown", "there_at_first_launch", "launches_free", "launches_some", "launches_all", "launches_all_because")}
    return {"ms": ms, "in_ms": done["ns_total"] / 1e6, "command_ms": done["command_ms"], **waits}


def overlap(engine, table):
    """First token of a prompt after the last wait: with and without overlap, and its two parts alone."""
    engine.ask(f"first 9 {PROMPT}")
    alone = [engine.ask(f"first 9 {PROMPT}") for _ in range(3)]
    wanted = alone[0]["answer"]
    prefill = sorted(one["ms"] for one in alone)[1]
    for turn in range(3):
        plain, overlapped = first_token(engine, wanted), first_token(engine, wanted, "--overlap")
        most = max(plain["in_ms"], prefill)
        table[f"first_token_{turn}"] = {"prompt": PROMPT, "prefill_ms": prefill, "transfer_ms": plain["in_ms"], "in_ms": plain["ms"],
                                        "overlap_ms": overlapped["ms"], "of_the_larger": overlapped["ms"] / most, "overlap": overlapped}


def with_medusa(options, table):
    before = used()
    prefix = ["medusa-swap", "run", "--name", "bench", "--pool-bytes", str(int(options.gb * 2.2e9) + (4 << 30)), "--"]
    engine = Engine(prefix, options.arguments, options.logs + "/swap-engine.log")
    table["weights_bytes"] = engine.said["ready"]
    wanted, third = engine.ask("answer 5")["answer"], engine.ask("answer 3")["answer"]
    table["used_in_mib"] = used() - before
    for name in ("first", "unchanged", "unchanged_again"):
        table[f"out_{name}"] = swap("out")
        table["residue_mib"] = used() - before
        table[f"in_{name}"] = swap("in")
        answer = engine.ask("answer 5")
        table[f"first_ms_after_{name}"] = answer["first_ms"]
        check(f"the answer after out and in ({name}) is as before", answer["answer"] == wanted)
    engine.ask("change")
    changed = engine.ask("answer 5")["answer"]
    check("other weights, another answer", changed != wanted)
    table["out_changed"], table["in_changed"] = swap("out"), swap("in")
    check("the answer of changed weights is as before", engine.ask("answer 5")["answer"] == changed)
    overlap(engine, table)
    table["rate"] = rate(engine)
    cycles(engine, engine.ask("answer 3")["answer"], options.cycles, table)
    check("another seed, another answer", third != wanted)
    check("the engine ends with 0", engine.end() == 0)


def alone(options, table):
    engine = Engine([], options.arguments, options.logs + "/alone.log")
    table["rate_alone"] = rate(engine)
    engine.end()


def with_saver(options, table):
    try:
        subprocess.run([sys.executable, "-c", "import torch_memory_saver"], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        print("  torch_memory_saver is not installed")
        return
    engine = Engine([], [*options.arguments, "--saver"], options.logs + "/saver.log")
    wanted = engine.ask("answer 5")["answer"]
    for _ in range(2):
        table["saver_pause_ms"] = engine.ask("pause")["seconds"] * 1e3
        table["saver_resume_ms"] = engine.ask("resume")["seconds"] * 1e3
    check("torch_memory_saver: the answer is as before", engine.ask("answer 5")["answer"] == wanted)
    engine.end()


class Table(dict):
    """Prints each figure when it is known, and keeps the file up to date: a run that is cut off has told what it knew."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        print(f"{name:24} {json.dumps(value)}", flush=True)
        if self._path:
            with open(self._path, "w", encoding="utf-8") as file:
                json.dump(self, file, indent=1)


def run_parts(parts, options, table):
    """Whether anything failed; a part that raises does not keep the others from running."""
    for part in parts:
        try:
            part(options, table)
        except Exception as error:  # pylint: disable=broad-except
            check(f"{part.__name__}: {error!r}", False)
    return bool(failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=14)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--out")
    parser.add_argument("--logs", default=".")
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--sees-both", action="store_true", help="with --peers: the engine that lends sees both GPUs")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    options.arguments = ["--gb", str(options.gb)]
    if options.neighbours:
        import swap_neighbours  # pylint: disable=import-outside-toplevel
        return swap_neighbours.run(options)
    if options.peers:
        import swap_peers  # pylint: disable=import-outside-toplevel
        return swap_peers.run(options)
    table = Table(options.out)
    table["gb"] = options.gb
    return run_parts((with_medusa, alone, with_saver), options, table)


if __name__ == "__main__":
    sys.exit(main())
