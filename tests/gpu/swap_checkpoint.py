# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the driver on a real GPU: an engine that is fully out (--full) leaves nothing on the GPU, comes back on this GPU
or another one, and answers as before; so does a process that medusa-swap has not started (--method checkpoint).

    python3 tests/gpu/swap_checkpoint.py [--gb 2] [--out FILE.json] [--logs FOLDER]
"""
import argparse
import os
import signal
import subprocess
import sys
import threading
import time

import swap_bench
from swap_bench import Engine, Table, check, run_parts, swap

NAME = "full"
# What the driver says of processes that have nothing on the GPU: it decides which processes of a tree go.
OTHERS = {"no_driver": "", "loaded": "d = ctypes.CDLL('libcuda.so.1')", "initialized": "d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0)"}
ASK = """
import ctypes, sys
driver, state = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
assert driver.cuInit(0) == 0
print(driver.cuCheckpointProcessGetState(int(sys.argv[1]), ctypes.byref(state)), state.value)
"""
RESIDUE_MIB = 8  # what nvidia-smi may count besides; a context alone has 500


def used():
    """MiB on each GPU, by its UUID, in the driver's order."""
    text = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, check=True).stdout
    return {line.split(",")[0].strip(): int(line.split(",")[1]) for line in text.splitlines() if line.strip()}


class Watch:
    """What has come to the GPUs since the beginning."""

    def __init__(self):
        self.before = used()
        self.gpus = list(self.before)

    def mib(self):
        """Memory that was released may be counted for a moment."""
        now = used()
        for _ in range(20):
            time.sleep(0.1)
            now, last = used(), now
            if now == last:
                break
        return [now[gpu] - self.before[gpu] for gpu in self.gpus]


def ask_later(engine, line):
    said = []
    thread = threading.Thread(target=lambda: said.append(engine.ask(line)))
    thread.start()
    time.sleep(0.3)
    return said, thread


def round_trip(engine, wanted, watch, table, what, *options):
    """Out and in, with a request that waits meanwhile."""
    table[f"out_{what}"] = swap("out", "--full", name=NAME)
    table[f"residue_mib_{what}"] = watch.mib()
    check(f"{what}: nothing stays on a GPU: {watch.mib()} MiB", max(watch.mib()) <= RESIDUE_MIB)
    said, thread = ask_later(engine, "answer 5")
    check(f"{what}: a request waits", not said)
    try:
        table[f"in_{what}"] = swap("in", *options, name=NAME)
    except RuntimeError as error:
        check(f"{what}: {error}", False)
        table[f"in_{what}_again"] = swap("in", name=NAME)
    thread.join(60)
    check(f"{what}: the answer is as before", said and said[0]["answer"] == wanted)
    check(f"{what}: the next answer, too", engine.ask("answer 5")["answer"] == wanted)
    table[f"used_mib_{what}"] = watch.mib()


def end(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def full(options, table):
    watch = Watch()
    prefix = ["medusa-swap", "run", "--name", NAME, "--pool-bytes", str(int(options.gb * 3e9) + (4 << 30)), "--"]
    engine = Engine(prefix, options.arguments, options.logs + "/checkpoint-full.log")
    now = swap_bench.status(NAME)
    try:
        ways(engine, watch, table)
    finally:
        end([now["engine_pid"], now["pid"]])
        for _ in range(40):
            if max(watch.mib()) <= RESIDUE_MIB:
                break
            time.sleep(0.25)


def ways(engine, watch, table):
    wanted = engine.ask("answer 5")["answer"]
    table["used_mib"] = watch.mib()
    table["out_plain"] = swap("out", name=NAME)
    table["residue_mib_plain"] = watch.mib()
    table["in_plain"] = swap("in", name=NAME)
    check("plain: the answer is as before", engine.ask("answer 5")["answer"] == wanted)
    round_trip(engine, wanted, watch, table, "first")
    round_trip(engine, wanted, watch, table, "again")
    round_trip(engine, wanted, watch, table, "overlap", "--overlap")
    if len(watch.gpus) > 1:
        round_trip(engine, wanted, watch, table, "moved", "--gpu", watch.gpus[1])
        check(f"moved: the other GPU has it: {table['used_mib_moved']} MiB", table["used_mib_moved"][1] > table["used_mib_moved"][0])
        round_trip(engine, wanted, watch, table, "moved_back", "--gpu", watch.gpus[0])
        check(f"moved back: {table['used_mib_moved_back']} MiB", table["used_mib_moved_back"][0] > table["used_mib_moved_back"][1])
    else:
        print("  skipped: one GPU here: --gpu", flush=True)
    swap("out", "--full", name=NAME)
    os.kill(swap_bench.status(NAME)["pid"], signal.SIGKILL)
    check("medusa-swap run is killed: the engine comes back, and answers", engine.ask("answer 5")["answer"] == wanted)


def others(_options, table):
    """Error and state; and which of them medusa-swap finds."""
    watch = Watch()
    for name, does in OTHERS.items():
        with subprocess.Popen([sys.executable, "-c", f"import ctypes, sys; {does}\nprint(flush=True); sys.stdin.read()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            said = subprocess.run([sys.executable, "-c", ASK, str(other.pid)], capture_output=True, text=True, check=False)
            code, status = command("status", str(other.pid))
            table[f"process_{name}"] = {"get_state": said.stdout.strip() or said.stderr[-200:], "exit": code, "status": status,
                                        "used_mib": watch.mib()}
            check(f"{name}: status says 0 or 3", code == 0 if name == "initialized" else code == 3)
            other.stdin.close()


def command(*arguments):
    done = subprocess.run(["medusa-swap", *arguments, "--json"], capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def foreign(options, table):
    watch = Watch()
    engine = Engine([], options.arguments, options.logs + "/checkpoint-foreign.log")
    try:
        alone(engine, watch, table)
    finally:
        end([engine.process.pid])


def alone(engine, watch, table):
    pid = str(engine.process.pid)
    wanted = engine.ask("answer 5")["answer"]
    turns = [("foreign", [], [])]
    if len(watch.gpus) > 1:
        turns.append(("foreign_moved", [], ["--gpu", f"{watch.gpus[0]}:{watch.gpus[1]}"]))
    turns.append(("foreign_frozen", ["--freeze"], []))
    for what, out, back in turns:
        start = time.perf_counter()
        code, said = command("out", "--method", "checkpoint", pid, *out)
        table[f"out_{what}"] = {"ms": (time.perf_counter() - start) * 1e3, "exit": code, "said": said}
        if code and what == "foreign_frozen":
            print(f"  no freezer here: {said}", flush=True)
            continue
        check(f"{what}: out: {said if code else 'done'}", not code)
        check(f"{what}: nothing stays on a GPU: {watch.mib()} MiB", max(watch.mib()) <= RESIDUE_MIB)
        waiting, thread = ask_later(engine, "answer 5")
        start = time.perf_counter()
        code, said = command("in", pid, *back)
        table[f"in_{what}"] = {"ms": (time.perf_counter() - start) * 1e3, "exit": code, "said": said}
        check(f"{what}: in: {said if code else 'done'}", not code)
        if code:
            table[f"in_{what}_again"] = command("in", pid)
        thread.join(60)
        check(f"{what}: the answer is as before", waiting and waiting[0]["answer"] == wanted)
        table[f"used_mib_{what}"] = watch.mib()
    check("the process ends with 0", engine.end() == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--out")
    parser.add_argument("--logs", default=".")
    options = parser.parse_args()
    options.arguments = ["--gb", str(options.gb)]
    table = Table(options.out)
    table["driver"] = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"], capture_output=True,
                                     text=True, check=True).stdout.splitlines()
    return run_parts((others, full, foreign), options, table)


if __name__ == "__main__":
    sys.exit(main())
