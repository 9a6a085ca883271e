# SPDX-License-Identifier: Apache-2.0
"""Calls of medusa-worker that fail, one in each run: injected.py FOLDER [--sample N] [--seed N] [--kind KIND --point N].

Allocations and threads, uses of files, and connections, pipes and processes (tests/faults/inject.c), of the daemon and of libevent
for it, during a small scenario. The daemon may refuse to start, with a reason; else each request ends within a bound, with the right
answer, a refusal or a closed connection, the daemon lives, serves afterwards, and ends with its engines when it is told to.
"""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys

import daemon
from daemon import ENGINE, PATIENCE, Daemon, check, finish, free_ports
from soak import client
from soak.client import Broken, Wrong, ask
from soak.faults import processes

client.BOUND = 45 # seconds: less than the daemon has for a connection that sends nothing
OBJECTS = {"memory": "medusa-worker,libjansson.so.4", "file": "medusa-worker", "net": "medusa-worker,libevent_core-2.1.so.7,libevent-2.1.so.7"}


def request(number, **more):
    return {"kind": "whole", "name": f"{number}", "key": "k", "model": "a", "tokens": 3, "token": 0, "prompt": 50, "wait": 0, "at": 0, "stream": False, "page": "/metrics", "until_close": False,
            **more}


class Run:
    """The scenario with one call that fails; point 0: none, and the calls are counted."""

    def __init__(self, folder, kind, point):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.wrong, self.mark = [], f"INJECTED={folder} {os.getpid()}"
        port = free_ports(4)
        text = f"startPort: {port}\nhealthCheckTimeout: 15\nmedusa: {{state: {folder}/usage.sqlite, gpus: [{{memory: 10MB}}]}}\nmodels:\n" + "".join(
            f'  {m}: {{cmd: "{ENGINE} --name {m}", medusa: {{memory: 6MB, swap: off, deadline: 30s}}}}\n' for m in "ab")
        env = {"LD_PRELOAD": f"{os.environ['MEDUSA_BUILD']}/tests/faults/inject.so", "INJECT": f"{kind}:{point}", "INJECT_FROM": OBJECTS[kind],
               "INJECT_PROGRAM": "medusa-worker", "INJECTED": self.mark.split("=", 1)[1]}
        self.daemon = Daemon(folder, text, env=env)
        if self.daemon.port:
            self.serve(port)
        self.end(started=self.daemon.port != 0)
        self.said = self.daemon.stderr()
        fired = re.search(r"^inject: call \d+ is (.*)$", self.said, re.M)
        self.fired, self.calls = fired and fired.group(1), int((re.search(r"^inject: (\d+) calls$", self.said, re.M) or [0, 0])[1])

    def one(self, what):
        try:
            outcome, said = ask(self.daemon.port, what)
            if outcome in ("refused: deadline", "refused: waited_too_long") or re.search(r" within \d+ s", said):
                self.wrong.append(f"{what['kind']} {what['model']} has waited for a deadline: {outcome}, {said}")
            return outcome
        except Broken:
            return "closed"
        except Wrong as wrong:
            if not re.search("refused with 50[03]|out of memory", str(wrong)):
                self.wrong.append(f"{what['kind']} {what['model']}: {wrong}")
            return "wrong"

    def serve(self, port):
        for number, more in enumerate(({}, {"kind": "stream"}, {"kind": "page"}, {"model": "b"}, {"kind": "long prompt", "prompt": 90000}, {"model": "a", "kind": "stream"})):
            self.one(request(number, **more))
        for words in (("reload",), ("status",), ("bill", "--since", "1h"), ("unload", "a")):
            try:
                self.daemon.ctl(*words)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"medusa-workerctl {' '.join(words)} has no answer")
                return
        last = [self.one(request(10 + i, model="ab"[i % 2])) for i in range(3)]
        if self.daemon.process.poll() is None and last[2] != "served" and last[1] != "served":
            self.wrong.append(f"not served afterwards: {last}")

    def end(self, started):
        code = self.daemon.process.poll()
        if started and code is not None:
            self.wrong.append(f"it has ended by itself with {code}")
        elif started:
            self.daemon.process.send_signal(signal.SIGTERM)
        try:
            code = self.daemon.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.wrong.append("it does not end")
            self.daemon.process.kill()
            code = self.daemon.process.wait()
        if code not in ((0,) if started else (2, 3, 4)):
            self.wrong.append(f"exit code {code}")
        daemon.until("no process is left", lambda: not processes(self.mark))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    arguments.add_argument("--sample", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments.add_argument("--kind", choices=OBJECTS)
    arguments.add_argument("--point", type=int)
    options = arguments.parse_args()
    print(f"  seed {options.seed}")
    for kind in [options.kind] if options.kind else OBJECTS:
        calls = Run(f"{options.folder}/injected", kind, 0)
        check(f"{kind}: without a failure", [], calls.wrong)
        chosen = [options.point] if options.point else sorted(random.Random(f"{options.seed} {kind}").sample(range(1, calls.calls + 1), min(options.sample, calls.calls)))
        for point in chosen:
            run = Run(f"{options.folder}/injected", kind, point)
            if run.wrong:
                print(run.said[-1500:])
            check(f"--kind {kind} --point {point} ({run.fired})", [], run.wrong)
        print(f"  {kind}: {len(chosen)} of {calls.calls} calls", flush=True)
    finish()


if __name__ == "__main__":
    main()
