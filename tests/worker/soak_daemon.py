# SPDX-License-Identifier: Apache-2.0
"""A soak of medusa-worker: soak_daemon.py FOLDER [--seconds N] [--rounds N] [--seed N] [--clients N].

Clients ask at random while engines are killed, the GPU is lost, the disk is full, the clock jumps, the configuration changes and the
daemon dies. After each round of faults all rests, and is looked at. Prints the seed, and a line for each violation. The same seed is
the same plan; how things fall together differs.
"""
import argparse
import collections
import glob
import os
import random
import re
import signal
import sys
import threading
import time

from daemon import Daemon, free_ports
from soak import plan
from soak.books import Books, identity, most_device_bytes, read_metrics, size_of
from soak.client import BOUND, Broken, Wrong, ask
from soak.faults import Faults, processes

HERE = os.path.dirname(os.path.abspath(__file__))
# -S: packages that are installed have no part in it, and looking for them takes as long as the rest of its start.
ENGINE = f"{sys.executable} -S {HERE}/engine.py --port ${{PORT}}"
PARTING = 5 # seconds in which a connection to a daemon that was told to end may break
GROWTH_KB = 6144 # of a daemon's resident memory from its second rest on


class Soak:
    def __init__(self, folder, options):
        self.folder, self.options, self.books = folder, options, Books()
        self.mark = f"SOAK={folder} {os.getpid()}"
        os.environ["SOAK"] = self.mark.split("=", 1)[1]
        self.faults = Faults(self)
        os.environ.update(HOSTCUDA_SHARED=f"{folder}/devices", HOSTCUDA_LOST=self.faults.lost, SURROUNDINGS=self.faults.around.path,
                          SURROUNDINGS_PROGRAM="medusa-worker", XDG_RUNTIME_DIR=f"{folder}/run")
        os.makedirs(f"{folder}/run", 0o700)
        self.port = free_ports(2 * len(plan.MODELS))
        self.violations, self.checks, self.lock = 0, 0, threading.Lock()
        if options.seed % 2: # in some soaks the GPU has no more memory than the models may use
            os.environ["HOSTCUDA_MEM"] = f"{plan.ROOM_MB}M"
        self.daemon, self.life, self.sizes = None, 0, []
        self.engines = ENGINE, plan.prepare(folder)
        self.config = plan.configuration(folder, self.port, self.engines, 0)
        self.gate, self.over, self.busy = threading.Event(), False, 0
        self.most, self.room, self.strict = 0, plan.ROOM_MB << 20, False # bytes of the GPU; whether more are still to be said
        self.recent = [] # faults
        self.asking = {} # client -> (request, since when)

    # ---- what is said ----

    def violation(self, what):
        print(f"violation (seed {self.options.seed}, {time.monotonic() - self.began:.1f} s): {what}", flush=True)
        with self.lock:
            self.violations += 1
            if self.violations > 5 or not self.daemon or self.daemon.process.poll() is not None:
                return
        lines = [line.rstrip()[:160] for line in self.daemon.stderr().splitlines()[-12:]]
        print("".join(f"  the daemon: {line}\n" for line in lines), end="", flush=True)

    def expect(self, good, what):
        with self.lock:
            self.checks += 1
        if not good:
            self.violation(what)

    # ---- the daemon ----

    def write_config(self, variant, more=""):
        """The daemon's next one; the one that counts is only known when it has been read."""
        self.config = plan.configuration(self.folder, self.port, self.engines, variant)
        with open(f"{self.folder}/config.yaml.new", "w", encoding="utf-8") as file:
            file.write(self.config + more)
        os.replace(f"{self.folder}/config.yaml.new", f"{self.folder}/config.yaml")

    def start(self):
        self.life += 1
        self.books.start(f"{self.folder}/usage.sqlite", self.life)
        daemon = Daemon(self.folder, self.config, env={"LD_PRELOAD": f"{os.environ['MEDUSA_BUILD']}/tests/faults/surroundings.so", "MEDUSA_LOG": "info"})
        daemon.parting = None # when it was told to end
        self.sizes = []
        daemon.life = self.life
        self.daemon = daemon
        if not daemon.port:
            self.violation("the daemon does not start")
            sys.exit(1)

    def renew(self, how):
        daemon = self.daemon
        daemon.parting = time.monotonic()
        self.end_daemon(how)
        self.faults.around.write(full=0)
        self.start()

    def end_daemon(self, how):
        self.daemon.parting = self.daemon.parting or time.monotonic()
        self.daemon.process.send_signal(how)
        try:
            code = self.daemon.process.wait(BOUND)
            self.expect(code == (0 if how == signal.SIGTERM else -how), f"the daemon's exit code is {code} after signal {how}")
        except TimeoutError:
            code = None
        except Exception: # subprocess.TimeoutExpired
            self.violation(f"the daemon does not end within {BOUND} s of signal {how}")
            self.daemon.process.kill()
            self.daemon.process.wait()

    # ---- clients ----

    def one(self, who, request):
        """(outcome, what is said of it)"""
        daemon = self.daemon
        self.asking[who] = (request, time.monotonic())
        outcome, said = "", ""
        try:
            outcome, said = ask(daemon.port, request)
        except Broken as broken:
            outcome, said = "lost", str(broken)
            ended = daemon.process.poll() is not None or daemon.parting
            self.expect(ended, f"request {request['name']} ({request['kind']}, {request['model']}) lost its connection: {broken}; the daemon lives")
        except Wrong as wrong:
            outcome, said = "wrong", str(wrong)
            self.violation(f"request {request['name']} ({request['kind']}, {request['model']}): {wrong}")
        except Exception as error: # what cannot be read is no answer
            outcome, said = "wrong", repr(error)
            self.violation(f"request {request['name']} ({request['kind']}, {request['model']}): no answer that can be read: {error!r}")
        del self.asking[who]
        self.expect(True, "")
        self.books.note(request, outcome, daemon.life)
        return outcome, said

    def client(self, number):
        for request in plan.requests(self.options.seed, number):
            with self.lock:
                self.busy -= 1
            self.gate.wait()
            with self.lock:
                self.busy += 1
            if self.over:
                return
            time.sleep(request["think"])
            if self.one(number, request)[0] in ("lost", "refused: draining"):
                time.sleep(0.3) # the daemon ends, or begins

    # ---- looks ----

    def metrics(self):
        return read_metrics(self.daemon.get("/metrics", **{"X-Api-Key": "key-red"}).body.decode())

    def watch(self):
        """While clients ask: the daemon answers, and its counters add up at any time."""
        while not self.over:
            daemon = self.daemon
            try:
                wrong = identity(self.metrics())
                self.expect(not wrong, f"counters do not add up: {wrong}")
            except Exception as error:
                self.expect(daemon.parting or daemon is not self.daemon, f"/metrics: {error!r}; the daemon lives")
            self.look_at_memory()
            time.sleep(0.2)

    def look_at_memory(self):
        """Of hostcuda's account of all processes together, which keeps the most."""
        most = most_device_bytes(f"{self.folder}/devices")
        self.most = max(self.most, most)
        self.expect(most <= self.room or not self.strict, f"engines had {most} bytes of the GPU at one time, of {self.room}; after {', '.join(self.recent)}")
        self.strict = self.strict and most <= self.room # said once

    def until(self, what, condition):
        end = time.monotonic() + BOUND
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.02)
        self.violation(f"not within {BOUND} s: {what}")
        return False

    def rest(self, number):
        """All requests end; then each model answers, the counters add up, and the daemon is as large as before."""
        self.gate.clear()
        self.faults.end()
        if not self.until("clients end", lambda: self.busy <= 0):
            for request, since in list(self.asking.values()):
                print(f"  it hangs: {request['name']} ({request['kind']}, {request['model']}), since {time.monotonic() - since:.0f} s", flush=True)
        self.until("no request waits or runs", lambda: not any(counts.get("requests") for model, counts in self.metrics().items() if model))
        for model in plan.MODELS:
            if model in self.metrics():
                self.serve_again(number, model)
        wrong = identity(self.metrics())
        self.expect(not wrong, f"counters do not add up at rest: {wrong}")
        self.sizes.append(size_of(self.daemon.process.pid))
        self.look_at_memory()
        self.strict = False
        print(f"  round {number}: {sum(self.books.all.values())} requests, {self.violations} violations; daemon {self.life}: descriptors, threads, KiB {self.sizes[-1]}", flush=True)

    def serve_again(self, number, model):
        """A model whose engine has failed may say so once more, and no more; one whose starts have failed rests, and says for how long."""
        for attempt in range(3):
            rest = re.search(r"a request starts it again in (\d+) s", said) if attempt else None
            time.sleep(int(rest[1]) + 0.2 if rest else 0)
            request = {**next(plan.requests(self.options.seed, "rest")), "name": f"rest.{number}.{model}.{attempt}", "kind": "stream" if number % 2 else "whole",
                       "model": model, "prompt": 10, "stream": bool(number % 2)}
            outcome, said = self.one("rest", request)
            if outcome == "served":
                return
            print(f"  round {number}: {model}, attempt {attempt}: {outcome}: {said}", flush=True)
        self.violation(f"{model} is not served when all faults are over: {outcome}: {said}")

    def check_growth(self):
        later = self.sizes[1:] # the first rest still makes room for what is kept
        if len(later) < 2:
            return
        # the address sanitizer keeps what is freed for a while, and the thread sanitizer has shadows of all that was ever used
        for i, what in enumerate(("descriptors", "threads", "KiB")[:2 if os.environ.get("SAN") or os.environ.get("TSAN") else 3]):
            values = [size[i] for size in later]
            allowed = (6, 0, GROWTH_KB)[i]
            self.expect(values[-1] - values[0] <= allowed, f"the daemon grows: {what} at rests: {values}")

    # ---- all ----

    def run(self):
        self.began = time.monotonic()
        self.start()
        threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(self.options.clients)]
        self.busy = len(threads)
        watcher = threading.Thread(target=self.watch, daemon=True)
        for thread in [*threads, watcher]:
            thread.start()
        number = 0
        while number < self.options.rounds or time.monotonic() - self.began < self.options.seconds:
            most_device_bytes(f"{self.folder}/devices", forget=True)
            self.strict = True
            self.gate.set()
            self.round(number)
            self.rest(number)
            number += 1
        self.over = True
        watcher.join(BOUND)
        self.gate.set()
        self.finish()

    def round(self, number):
        for kind, before, lasts, model, chosen in plan.faults(self.options.seed, number):
            if kind.endswith("the daemon") and kind != "pause the daemon" and number % 8:
                continue # it lives for some rounds, so that growth can be seen
            time.sleep(before)
            self.recent = [*self.recent[-5:], f"{kind} ({model}) at {time.monotonic() - self.began:.1f} s"]
            try:
                self.faults.do(kind, lasts, model, chosen)
            except Exception as error:
                self.violation(f"{kind}: {error!r}")
            if self.daemon.process.poll() is not None:
                self.violation(f"the daemon has ended by itself: {self.daemon.process.returncode}")
                self.start()

    def check_reports(self):
        """What sanitizers have printed, into the daemon's log or those of engines."""
        found = collections.Counter()
        for path in [f"{self.folder}/err", *glob.glob(f"{self.folder}/state/*.log*")]:
            with open(path, encoding="utf-8", errors="replace") as file:
                found.update(line.strip() for line in file if re.search(r"SUMMARY: \w+Sanitizer|runtime error: ", line))
        for line, times in found.items():
            self.violation(f"{times} times: {line}")

    def finish(self):
        metrics = self.metrics()
        self.check_growth()
        self.end_daemon(signal.SIGTERM)
        for wrong in [*self.books.against_metrics(metrics), *self.books.against_ledger(f"{self.folder}/usage.sqlite", metrics),
                      *self.books.against_journal(f"{self.folder}/journal")]:
            self.violation(wrong)
        with open(f"{self.folder}/err", encoding="utf-8", errors="replace") as file:
            twice = [line.strip() for line in file if "which runs already" in line]
        self.expect(not twice, f"{len(twice)} requests were run a second time while they ran: {twice[:3]}")
        self.until("no process of the daemon is left", lambda: not processes(self.mark))
        for outcome, count in sorted(self.books.all.items()):
            if count:
                print(f"  {count:7} {outcome}")
        print(f"  engines had {self.most} bytes of the GPU at most, of {self.room}")
        self.check_reports()
        served = self.books.all["served"]
        self.expect(served > sum(self.books.all.values()) / 4, f"only {served} requests were served")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    arguments.add_argument("--seconds", type=float, default=0, help="rounds begin for so long")
    arguments.add_argument("--rounds", type=int, default=2, help="and so many at least")
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments.add_argument("--clients", type=int, default=8)
    options = arguments.parse_args()
    folder = f"{os.path.abspath(options.folder)}/soak"
    os.makedirs(folder)
    print(f"  seed {options.seed}", flush=True)
    soak = Soak(folder, options)
    soak.run()
    print(f"{soak.checks} checks, {soak.violations} failures", flush=True)
    os._exit(1 if soak.violations else 0)


if __name__ == "__main__":
    main()
