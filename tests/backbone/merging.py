# SPDX-License-Identifier: Apache-2.0
"""Engines under medusa-swap run --share-constant, whose equal constant memory is one; and who is killed meanwhile. On hostcuda."""
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from checks import check, finish

BUILD = os.environ["MEDUSA_BUILD"]
MB = 1 << 20
SIZE = 24 * MB


def until(what, wanted, look):
    for _ in range(3000):
        if look() == wanted:
            break
        time.sleep(0.02)
    check(what, wanted, look())


class Broker:
    def __init__(self, folder, *options):
        self.path, self.said = f"{folder}/backbone.sock", f"{folder}/backbone.err"
        with open(self.said, "w", encoding="utf-8") as said:
            self.process = subprocess.Popen([f"{BUILD}/bin/medusa-backbone", "run", "--device", "host", "--socket", self.path, *options], stderr=said)
        until("the broker", True, self.is_ready)

    def is_ready(self):
        with open(self.said, encoding="utf-8") as said:
            return "ready:" in said.read()

    def states(self):
        said = subprocess.run([f"{BUILD}/bin/medusa-backbone", "status", "--json", "--socket", self.path], capture_output=True, check=True)
        rows = [json.loads(line) for line in said.stdout.splitlines()]
        return sorted((one["name"], one["state"], one["readers"]) for one in rows)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(60)


class Engine:
    def __init__(self, name, *options, write=7, before=(), err=None):
        self.name = name
        self.process = subprocess.Popen([f"{BUILD}/bin/medusa-swap", "run", "--name", name, "--pool-bytes", "128M", *options, "--", *before,
                                         f"{BUILD}/tests/subjects/swap_subject", f"{BUILD}/tests/images/arith.host.so", "0"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, bufsize=1)
        check(f"{name}'s first word", "ready", self.answer())
        until(f"{name} is known", True, lambda: (self.status() or {}).get("swappable", 0) > 8 * MB)
        self.ask(f"alloc {SIZE // MB}")
        self.ask(f"write {write}")
        self.ask(f"bind weights 1 0 {SIZE}")
        self.sum = self.ask("sum")
        until(f"what {name} has declared", SIZE, lambda: self.status()["constant"])

    def answer(self):
        return self.process.stdout.readline().strip() if select.select([self.process.stdout], [], [], 60)[0] else "(nothing)"

    def ask(self, words):
        self.process.stdin.write(words + "\n")
        return self.answer()

    def status(self):
        said = subprocess.run([f"{BUILD}/bin/medusa-swap", "status", "--json", self.name], capture_output=True, check=False).stdout
        return json.loads(said) if said else None

    def begin_in(self):
        return subprocess.Popen([f"{BUILD}/bin/medusa-swap", "in", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def swap(self, verb, *options, code=0):
        done = subprocess.run([f"{BUILD}/bin/medusa-swap", verb, self.name, *options], capture_output=True, check=False, text=True)
        check(f"the exit code of {verb} {self.name} ({done.stderr})", code, done.returncode)

    def out_and_in(self, *options):
        self.swap("out")
        self.swap("in", *options)

    def ready(self):
        self.out_and_in()
        check(f"{self.name} shares nothing after the first time", 0, self.status()["shared"])
        return self

    def shares(self, what, *options):
        """Out and in until it shares: it waits half a second for the broker, and takes memory of its own instead."""
        for _ in range(24):
            self.out_and_in(*options)
            if self.status()["shared"] == SIZE:
                break
        self.has(what, SIZE)

    def has(self, what, shared):
        until(f"{self.name} {what}: bytes it shares", shared, lambda: self.status()["shared"])  # the engine tells it a moment later
        check(f"{self.name} {what}: what it holds", self.sum, self.ask("sum"))

    def kill(self):
        os.kill(self.status()["engine_pid"], signal.SIGKILL)
        self.process.wait(60)

    def end(self, code=0):
        self.process.stdin.close()
        check(f"{self.name}'s last word", "wrong 0", self.answer())
        check(f"{self.name}'s exit code", code, self.process.wait(60))


def on_device():
    with open(os.environ["HOSTCUDA_SHARED"], "rb") as ledger:
        return sum(struct.unpack("<2048Q", ledger.read(128 * 16 * 8))[::16])


WITH = "--share-constant"
NAME = f"equal/{SIZE}"


def equal_memory_is_one(folder):
    broker = Broker(folder)
    one, two, other, without = (Engine("one", WITH).ready(), Engine("two", WITH).ready(), Engine("other", WITH, write=9).ready(),
                                Engine("without").ready())
    before = on_device()
    one.shares("fills", "--verify")
    check("what is on the device when one has filled", before, on_device())
    two.shares("reads", "--verify")
    check("what is on the device when two have one", before - SIZE, on_device())
    other.shares("has other weights")
    without.out_and_in()
    without.has("was not asked to share", 0)
    check("what is on the device with others", before - SIZE, on_device())
    check("what the broker has", [(NAME, "read", 1), (NAME, "read", 2)], broker.states())
    one.swap("out")
    two.has("goes on", SIZE)
    until("what the broker has, without one", [(NAME, "read", 1), (NAME, "read", 1)], broker.states)
    two.swap("out")
    until("what is on the device with both out", True, lambda: on_device() <= before - 2 * SIZE)
    two.swap("in")
    one.swap("in")
    for engine in (two, one):
        engine.shares("has it again")
    for engine in (one, two, other, without):
        engine.end()
    until("nobody has any", [], broker.states)
    broker.end()


def what_is_freed_or_changes(folder):
    broker = Broker(folder)
    one, two = (Engine(name, WITH).ready() for name in ("one", "two"))
    for engine in (one, two):
        engine.shares("shares")
    one.sum = one.ask("renew") and one.ask("write 3") and one.ask("sum")
    until("one has freed its own, and allocated anew", 0, lambda: one.status()["shared"])
    check("what is in its new memory", one.sum, one.ask("sum"))
    two.has("is not touched", SIZE)
    until("one lease is left", [(NAME, "read", 1)], broker.states)
    three = Engine("three", WITH)
    for value in (4, 5):
        three.swap("out")
        three.swap("in")
        three.ask(f"write {value}")
        three.sum = three.ask("sum")
    for _ in range(3):
        three.out_and_in()
        three.has("wrote what it had declared constant", 0)
    two.swap("release")
    check("what two holds when it is released", two.sum, two.ask("sum"))
    for engine in (one, two, three):
        engine.end()
    broker.end()


def who_writes_ends(folder):
    broker = Broker(folder)
    one, two, three = (Engine(name, WITH).ready() for name in ("one", "two", "three"))
    for engine in (one, two, three):
        engine.shares("shares")
    check("a child of one", "child 7", one.ask("fork"))
    one.has("goes on after a fork", SIZE)
    before = three.sum
    check("what one that copies and sets something there is told", "store 0 0", three.ask("store"))
    three.sum = three.ask("sum")
    check("it has written", False, three.sum == before)
    three.has("has its own behind the same addresses", 0)
    until("its lease has ended", [(NAME, "read", 2)], broker.states)
    check("the answer of one whose kernel writes", "", two.ask("add"))
    check("it has ended with an error", True, two.process.wait(60) != 0)
    until("its lease has ended as well", [(NAME, "read", 1)], broker.states)
    for engine, shares in ((one, SIZE), (three, 0)):
        engine.has("does not notice", shares)
        if shares:
            engine.shares("is in again", "--verify")
            continue
        engine.out_and_in("--verify")
        engine.has("is in again", 0)
    check("what three is told after out and in", "store 0 0", three.ask("store"))
    three.has("has its own after out and in", 0)
    for _ in range(24):
        one.swap("out", "--full")
        one.swap("in")
        if one.status()["shared"]:
            break
    one.has("was fully out", SIZE)
    check("binding it in another role", "bound", one.ask(f"bind weights 2 0 {SIZE}"))
    one.has("has its own behind the same addresses, with what it held", 0)
    check("a kernel that writes there", "added", one.ask("add"))
    until("no lease is left", [], broker.states)
    one.sum = one.ask("sum")
    one.out_and_in("--verify")
    one.has("is in again, with what the kernel wrote", 0)
    for engine in (one, three):
        engine.end()
    broker.end()


def a_call_that_fails(folder):
    broker = Broker(folder)
    keeps = Engine("keeps", WITH).ready()
    keeps.out_and_in()
    os.environ["HOSTCUDA_FAULT"] = "cuMemImportFromShareableHandle:1:UNKNOWN"
    one = Engine("one", WITH).ready()
    del os.environ["HOSTCUDA_FAULT"]
    one.out_and_in()
    one.has("cannot map what it is given", 0)
    one.shares("shares the next time")
    one.end()
    until("only one lease is left", [(NAME, "read", 1)], broker.states)
    keeps.end()
    broker.end()


def descriptors_are_left_for_the_engine(folder):
    """Each lease takes one, and all of them at most a quarter of what the process may have: what comes later stays its own, and says why."""
    broker = Broker(folder)
    most, leases, small, said = 64, 16, 4 * MB, f"{folder}/few.err"
    os.environ["MEDUSA_LOG"] = "info"
    with open(said, "w", encoding="utf-8") as err:
        few = Engine("few", WITH, before=("prlimit", f"--nofile={most}:{most}"), err=err)
    del os.environ["MEDUSA_LOG"]
    for number in range(leases + 2):
        few.ask(f"alloc {small // MB}")
        few.ask(f"write {20 + number}")
        few.ask(f"bind more{number} 1 0 {small}")
    few.sum = few.ask("sum")
    until("what it has declared", SIZE + (leases + 2) * small, lambda: few.status()["constant"])
    counts = set()
    for _ in range(24):  # where the broker is slow, fewer are shared
        few.out_and_in("--verify")
        counts.add(len(broker.states()))
        if leases in counts:
            break
    check("the most leases at one time", leases, max(counts))
    check("what it holds", few.sum, few.ask("sum"))
    with open(said, encoding="utf-8") as err:
        text = err.read()
    why = (f"shared memory takes {leases} descriptors already, a quarter of those that this process may have (ulimit -n {most})")
    check(f"why the others are its own ({text[-500:]})", True, why in text)
    few.swap("out")
    until("all leases have ended", [], broker.states)
    few.swap("in")
    few.end()
    broker.end()


def who_is_killed(folder):
    broker = Broker(folder)
    one, two, three = (Engine(name, WITH).ready() for name in ("one", "two", "three"))
    one.shares("fills")
    two.shares("reads")
    one.kill()
    two.has("goes on without the one that filled", SIZE)
    broker.end(signal.SIGKILL)
    two.has("goes on without the broker", SIZE)
    three.out_and_in()
    three.has("has its own without a broker", 0)
    broker = Broker(folder)
    until("the next broker is told", [(NAME, "read", 1)], broker.states)
    three.shares("reads what the next broker was told of", "--verify")
    check("both have one", [(NAME, "read", 2)], broker.states())
    two.kill()
    three.has("is the last one", SIZE)
    broker.end(signal.SIGKILL)
    three.out_and_in()
    three.has("went out without a broker", 0)
    three.end()
    os.unlink(broker.path)  # else the next one waits a second for what this one has given


def stop_while_filling(broker, engine):
    """Its copies are slow: it is stopped between the broker's answer and its commit."""
    pid, filling = engine.status()["engine_pid"], [(NAME, "filling", 0)]
    for _ in range(24):
        engine.swap("out")
        coming = engine.begin_in()
        while coming.poll() is None and broker.states() != filling:
            time.sleep(0.001)
        os.kill(pid, signal.SIGSTOP)
        if broker.states() == filling:
            break  # else the broker, or this test, was too slow for it
        os.kill(pid, signal.SIGCONT)
        coming.wait(60)
    check(f"{engine.name} fills still", filling, broker.states())
    return coming


def who_is_killed_while_it_fills(folder):
    broker = Broker(folder)
    two = Engine("two", WITH).ready()
    os.environ["HOSTCUDA_FAULT"] = "cuMemcpyHtoDAsync_v2:*:SLOW"
    one = Engine("one", WITH).ready()
    three = Engine("three", WITH).ready()
    del os.environ["HOSTCUDA_FAULT"]
    coming = stop_while_filling(broker, one)
    two.out_and_in()
    two.has("does not wait for the one that fills", 0)
    one.kill()
    coming.wait(60)
    until("what was not committed is gone", [], broker.states)
    two.shares("fills now", "--verify")
    two.end()
    until("nobody has any", [], broker.states)
    coming = stop_while_filling(broker, three)
    broker.end(signal.SIGKILL)
    os.kill(three.status()["engine_pid"], signal.SIGCONT)
    check("three's exit code of in", 0, coming.wait(60))
    three.has("has filled what no broker knows", SIZE)
    broker = Broker(folder)
    until("the next broker is told what three has", [(NAME, "read", 1)], broker.states)
    os.kill(broker.process.pid, signal.SIGSTOP)
    three.out_and_in("--verify")
    three.has("does not wait for a broker that says nothing", 0)
    os.kill(broker.process.pid, signal.SIGCONT)
    three.end()
    broker.end()


# Between engines and the broker; its answers about leases come late. PATH OF_THE_BROKER
LATE = """
import os, socket, sys, threading, time
def pass_on(source, target, late):
    while True:
        try:
            said, memory, _, _ = socket.recv_fds(source, 65536, 4)
        except OSError:
            said, memory = b"", []
        if not said:
            break
        if late and b'"lease"' in said:
            time.sleep(0.8)
        try:
            socket.send_fds(target, [said], memory)
        except OSError:
            pass
        for one in memory:
            os.close(one)
    for wire in (source, target):
        try:
            wire.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(64)
print("ready", flush=True)
while True:
    client, broker = listening.accept()[0], socket.socket(socket.AF_UNIX)
    broker.connect(sys.argv[2])
    threading.Thread(target=pass_on, args=(client, broker, False), daemon=True).start()
    threading.Thread(target=pass_on, args=(broker, client, True), daemon=True).start()
"""


class Watcher:
    """Is asked before an engine has memory of its own, and says `may`."""

    def __init__(self, broker, may):
        self.may, self.asked, self.wire = may, 0, socket.socket(socket.AF_UNIX)
        self.wire.connect(broker.path)
        self.wire.sendall(b'{"medusa_backbone": 1, "do": "watch"}\n')
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        for line in self.wire.makefile():
            ask = json.loads(line).get("wants")
            if ask:
                self.asked += 1
                self.wire.sendall(json.dumps({"do": "let", "ask": ask, "may": self.may}).encode() + b"\n")


def an_answer_that_comes_late(folder):
    """That a lease is kept is not that an engine may have memory of its own."""
    broker = Broker(folder, "--watched")
    watcher = Watcher(broker, 0)
    late = subprocess.Popen([sys.executable, "-c", LATE, f"{folder}/late.sock", broker.path], stdout=subprocess.PIPE, text=True)
    check("who is between", "ready", late.stdout.readline().strip())
    two = Engine("two", WITH).ready()
    two.shares("fills")
    os.environ["MEDUSA_BACKBONE"] = f"{folder}/late.sock"
    one = Engine("one", WITH).ready()
    os.environ["MEDUSA_BACKBONE"] = broker.path
    one.shares("reads what it is given late")
    check("nobody has asked yet", 0, watcher.asked)
    check("a write for which there is no room", "store 800 800", one.ask("store"))
    one.has("has not written", SIZE)
    watcher.may = 1
    check("a write for which there is room", "store 0 0", one.ask("store"))
    check("who watches was asked", True, watcher.asked >= 2)
    one.sum = one.ask("sum")
    one.has("has its own", 0)
    two.has("does not notice", SIZE)
    for engine in (one, two):
        engine.end()
    late.kill()
    late.wait()
    broker.end()


def main():
    folder = sys.argv[1]
    os.environ.update(HOSTCUDA_SHARED=f"{folder}/ledger", MEDUSA_BACKBONE=f"{folder}/backbone.sock")
    for part in (equal_memory_is_one, what_is_freed_or_changes, who_writes_ends, a_call_that_fails, descriptors_are_left_for_the_engine, who_is_killed, who_is_killed_while_it_fills,
                 an_answer_that_comes_late):
        if sys.argv[2:] and part.__name__ not in sys.argv[2:]:
            continue
        print(f"-- {part.__name__.replace('_', ' ')}", flush=True)
        part(folder)
    finish()


main()
