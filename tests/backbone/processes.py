# SPDX-License-Identifier: Apache-2.0
"""Processes that share backbones by a real medusa-backbone, and what happens when one of them, or it, is killed. On hostcuda."""
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time

from checks import check, finish

BUILD = os.environ["MEDUSA_BUILD"]
MB = 1 << 20


def check_in(what, wanted, got):
    check(f"{what} ({got})", True, wanted in got)


class Broker:
    def __init__(self, folder, *options, name="backbone", before=(), **environment):
        self.path, self.said = f"{folder}/{name}.sock", open(f"{folder}/{name}.err", "w+", encoding="utf-8")
        self.process = subprocess.Popen([*before, f"{BUILD}/bin/medusa-backbone", "run", "--device", "host", "--socket", self.path, *options],
                                        stderr=self.said, env={**os.environ, **environment})
        for _ in range(1200):
            if "ready:" in self.words() or self.process.poll() is not None:
                break
            time.sleep(0.05)

    def words(self):
        with open(self.said.name, encoding="utf-8") as file:
            return file.read()

    def all(self):
        said = subprocess.run([f"{BUILD}/bin/medusa-backbone", "status", "--json", "--socket", self.path], capture_output=True, check=True)
        return sorted((json.loads(line) for line in said.stdout.splitlines()), key=lambda one: (one["name"], one["layout"]))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def states(self):
        return [(one["name"], one["state"], one["readers"], one["waiting"]) for one in self.all()]

    def until(self, what, wanted):
        for _ in range(1200):
            if self.states() == wanted:
                break
            time.sleep(0.05)
        check(what, wanted, self.states())

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60)


class Process:
    def __init__(self, broker, *before, **environment):
        self.process = subprocess.Popen([*before, f"{BUILD}/tests/subjects/share_subject"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1, env={**os.environ, "MEDUSA_BACKBONE": broker.path, **environment})
        check("a process's first word", "ready", self.answer())

    def say(self, words):
        self.process.stdin.write(words + "\n")

    def answer(self, seconds=60):
        return self.process.stdout.readline().strip() if select.select([self.process.stdout], [], [], seconds)[0] else "(nothing)"

    def ask(self, words):
        self.say(words)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        check("a process's exit code", 0, self.process.wait(60))


def one_fills_and_others_read(folder):
    broker = Broker(folder, HOSTCUDA_SHARED=f"{folder}/ledger")
    shares = {"HOSTCUDA_SHARED": f"{folder}/ledger", "HOSTCUDA_MEM": str(64 * MB)}
    first = Process(broker, **shares)
    check("the first one", "fill ok", first.ask(f"share q v1 {20 * MB}"))
    others = [Process(broker, **shares) for _ in range(3)]
    for one in others:
        one.say(f"share q v1 {20 * MB}")
    broker.until("the others wait", [("q", "filling", 0, 3)])
    check("filling", "set CUDA_SUCCESS", first.ask("set 21"))
    check("committing", "commit ok", first.ask("commit"))
    for one in others:
        check("another one", "read ok", one.answer())
        check("what it reads", "sum 42", one.ask("sum"))
    check("what the first one reads", "sum 42", first.ask("sum"))
    room = int(first.ask("room").split()[1])
    check("memory that is taken once: 20 MiB of 64, and contexts", True, 20 * MB < room <= 44 * MB)
    writes = others[0].ask("set 9")
    check("a write to what is shared", False, writes == "set CUDA_SUCCESS")
    check("the others do not see it", "sum 42", others[1].ask("sum"))
    check("committing twice", "commit not found", first.ask("commit").split(":")[0])
    check("another layout is other memory", "fill ok", others[2].ask(f"share q v2 {4 * MB}"))
    check("another size of the same layout", "none mismatch", others[1].ask(f"share q v1 {22 * MB}").split(":")[0])
    verifies = Process(broker, **shares)
    check("what is verified", "read ok", verifies.ask(f"share q v1 {20 * MB} 0 1"))
    first.kill()
    check("after the one that filled it was killed", "sum 42", others[1].ask("sum"))
    for one in others + [verifies]:
        one.kill()
    broker.until("nothing is held", [])
    late = Process(broker, **shares)
    check("the room is free again", True, int(late.ask("room").split()[1]) > 63 * MB)
    late.end()
    check("the broker's end", 0, broker.end())


def told_at_once(folder):
    broker = Broker(folder, name="now")

    def ask(**more):
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(60)
        wire.connect(broker.path)
        wire.sendall(json.dumps({"medusa_backbone": 1, "do": "attach", "name": "n", "layout": "v", "device": device, "bytes": 4 * MB, **more}).encode() + b"\n")
        said, passed, _, _ = socket.recv_fds(wire, 65536, 1)
        for memory in passed:
            os.close(memory)
        return wire, json.loads(said.split(b"\n")[0] if said else b"{}")

    fills = Process(broker)
    check("who fills", "fill ok", fills.ask(f"share n v {4 * MB}"))
    device = broker.all()[0]["device"]
    _, said = ask(now=1)
    check("one that does not wait", (False, True), (said.get("ok"), "is being filled by another process" in said.get("message", "")))
    broker.until("it has gone", [("n", "filling", 0, 0)])
    waits, said = ask(now=0)
    check("one that waits", {"wait": True}, said)
    waits.close()
    fills.ask("set 5")
    fills.ask("commit")
    reads, said = ask(now=1)
    check("what is filled is there at once", (True, False), (said.get("ok"), said.get("fill")))
    reads.close()
    fills.kill()
    broker.until("nobody has it", [])
    fills, said = ask(now=1)
    check("who comes first fills", (True, True), (said.get("ok"), said.get("fill")))
    fills.close()
    check("the broker's end", 0, broker.end())


def who_fills_dies(folder):
    broker = Broker(folder)
    first, second, third = (Process(broker) for _ in range(3))
    check("the first one", "fill ok", first.ask(f"share q v {4 * MB}"))
    first.ask("set 1")
    second.say(f"share q v {4 * MB}")
    broker.until("the second one waits", [("q", "filling", 0, 1)])
    third.say(f"share q v {4 * MB} 300")
    check("patience", "none timeout", third.answer().split(":")[0])
    child = int(first.ask("child").split()[1])
    first.kill()
    check("the second one fills it anew, although a child of the first one lives", "fill ok", second.answer())
    os.kill(child, signal.SIGKILL)
    check("nothing of the first one is there", "sum 0", second.ask("sum"))
    second.ask("set 3")
    check("commit", "commit ok", second.ask("commit"))
    check("the third one", "read ok", third.ask(f"share q v {4 * MB}"))
    check("its sum", "sum 6", third.ask("sum"))
    check("giving it back", "end ok", third.ask("end"))
    check("giving it back twice", "end not found", third.ask("end").split(":")[0])
    broker.until("one has it", [("q", "read", 1, 0)])
    second.end()
    broker.until("nobody", [])
    third.end()
    broker.end()


def the_broker_dies(folder):
    broker = Broker(folder)
    first, second, fills = (Process(broker) for _ in range(3))
    first.ask(f"share q v {4 * MB}")
    first.ask("set 5")
    first.ask("commit")
    second.ask(f"share q v {4 * MB}")
    check("one that fills", "fill ok", fills.ask(f"share r v {4 * MB}"))
    waits = Process(broker)
    waits.say(f"share r v {4 * MB}")
    broker.until("one waits", [("q", "read", 2, 0), ("r", "filling", 0, 1)])
    other = subprocess.run([f"{BUILD}/bin/medusa-backbone", "run", "--device", "host", "--socket", broker.path], capture_output=True, text=True)
    check("a second broker", True, other.returncode != 0 and "another medusa-backbone runs there" in other.stderr)
    broker.end(signal.SIGKILL)
    check("the one that waits", "none not found", waits.answer().split(":")[0])
    check("readers go on", ("sum 10", "sum 10"), (first.ask("sum"), second.ask("sum")))
    check("filling goes on", "set CUDA_SUCCESS", fills.ask("set 7"))
    check("a commit that nobody hears", "commit not found", fills.ask("commit").split(":")[0])
    check("it is read-only all the same", False, fills.ask("set 8") == "set CUDA_SUCCESS")
    check("without a broker", "none not found", waits.ask(f"share q v {4 * MB}").split(":")[0])
    ask_late = waits
    again = Broker(folder)
    ask_late.say(f"share q v {4 * MB}")
    check("a new broker is given what processes have", "read ok", ask_late.answer())
    check("it is the old memory", ("sum 10", "sum 10"), (ask_late.ask("sum"), second.ask("sum")))
    again.until("all three, and what was committed to nobody", [("q", "read", 3, 0), ("r", "read", 1, 0)])
    late = Process(again)
    check("what nobody heard of", "read ok", late.ask(f"share r v {4 * MB}"))
    check("its sum", "sum 14", late.ask("sum"))
    check("giving it back", "end ok", second.ask("end"))
    again.until("two have it", [("q", "read", 2, 0), ("r", "read", 2, 0)])
    check("an orderly end", 0, again.end())
    check("which leaves its place, because processes have memory of it", True, os.path.exists(again.path))
    third = Broker(folder)
    third.until("the third broker has all", [("q", "read", 2, 0), ("r", "read", 2, 0)])
    for one in (first, second, ask_late, late):
        one.end()
    fills.kill()
    third.until("nothing is held", [])
    third.end()
    check("nothing is left behind", False, os.path.exists(third.path))


class Inheriting(Broker):
    """A broker whose socket somebody else holds, so that who connects waits for the next one."""

    def __init__(self, folder, listening):
        self.path, self.said = listening.getsockname(), open(f"{folder}/inheriting.err", "w+", encoding="utf-8")
        self.process = subprocess.Popen([f"{BUILD}/bin/medusa-backbone", "run", "--device", "host", "--listen-fd", str(listening.fileno())],
                                        stderr=self.said, pass_fds=[listening.fileno()])


def who_waits_asks_the_next_broker(folder):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/held.sock")
        listening.listen(8)
        broker = Inheriting(folder, listening)
        fills, waits = Process(broker), Process(broker)
        check("one fills", "fill ok", fills.ask(f"share q v {4 * MB}"))
        waits.say(f"share q v {4 * MB}")
        broker.until("one waits", [("q", "filling", 0, 1)])
        fills.ask("set 6")
        broker.end(signal.SIGKILL)
        check("a commit that nobody hears", "commit not found", fills.ask("commit").split(":")[0])
        broker = Inheriting(folder, listening)
        check("the one that waits", "read ok", waits.answer())
        check("what it reads", "sum 12", waits.ask("sum"))
        fills.end()
        waits.end()
        broker.end()


def brokers_come_and_go(folder):
    """Readers keep one memory, and each sees what it saw, however often the broker is killed."""
    ledger = f"{folder}/often.ledger"
    environment = {"HOSTCUDA_SHARED": ledger, "HOSTCUDA_MEM": str(64 * MB)}
    broker = Broker(folder, name="often", **environment)
    all_of_them = [Process(broker, **environment) for _ in range(3)]
    check("the first one", "fill ok", all_of_them[0].ask(f"share q v {16 * MB}"))
    all_of_them[0].ask("set 6")
    all_of_them[0].ask("commit")
    for one in all_of_them[1:]:
        check("another one", "read ok", one.ask(f"share q v {16 * MB}"))
    for number in range(4):
        broker.end(signal.SIGKILL)
        broker = Broker(folder, name="often", **environment)
        late = Process(broker, **environment)
        check(f"a process that comes after kill {number}", "read ok", late.ask(f"share q v {16 * MB}"))
        check("what it sees", "sum 12", late.ask("sum"))
        all_of_them.append(late)
        all_of_them.pop(0).kill()
    broker.until("three have it", [("q", "read", 3, 0)])
    check("memory that is taken once", True, int(all_of_them[0].ask("room").split()[1]) > 40 * MB)
    for one in all_of_them:
        one.end()
    broker.until("nothing is held", [])
    last = Process(broker, **environment)
    check("the room is free again", True, int(last.ask("room").split()[1]) > 63 * MB)
    last.end()
    broker.end()


def an_engine_closes_what_is_not_its_own(folder):
    broker = Broker(folder)
    closes, other = Process(broker), Process(broker)
    check("the first one", "fill ok", closes.ask(f"share q v {4 * MB}"))
    closes.ask("set 6")
    closes.ask("commit")
    check("the other one", "read ok", other.ask(f"share q v {4 * MB}"))
    check("all descriptors are the engine's", "closed", closes.ask("close"))
    broker.end(signal.SIGKILL)
    broker = Broker(folder)
    broker.until("the other one brings it", [("q", "read", 1, 0)])
    time.sleep(0.5)
    check("what it has mapped", "sum 12", closes.ask("sum"))
    check("giving it back", "end ok", closes.ask("end"))
    check("all of its own files are open", "own 120", closes.ask("own"))
    other.end()
    closes.end()
    broker.end()


def what_is_kept(folder):
    ledger = f"{folder}/kept.ledger"
    broker = Broker(folder, "--keep", name="kept", HOSTCUDA_SHARED=ledger, HOSTCUDA_MEM=str(32 * MB))
    for name, megabytes in ("a", 8), ("b", 8):
        one = Process(broker, HOSTCUDA_SHARED=ledger, HOSTCUDA_MEM=str(32 * MB))
        check(f"{name} is filled", "fill ok", one.ask(f"share {name} v {megabytes * MB}"))
        one.ask("set 2")
        one.ask("commit")
        one.end()
    broker.until("both stay", [("a", "kept", 0, 0), ("b", "kept", 0, 0)])
    one = Process(broker, HOSTCUDA_SHARED=ledger, HOSTCUDA_MEM=str(32 * MB))
    check("a is there", "read ok", one.ask(f"share a v {8 * MB}"))
    one.ask("end")
    check("what needs the room of the one that was unused for longer", "fill ok", one.ask(f"share c v {20 * MB}"))
    broker.until("b has gone", [("a", "kept", 0, 0), ("c", "filling", 0, 0)])
    refused = one.ask(f"share d v {30 * MB}")
    check("more than there is", "none out of memory", refused.split(":")[0])
    broker.until("what nobody had has gone for it", [("c", "filling", 0, 0)])
    check("c still works", "set CUDA_SUCCESS", one.ask("set 1"))
    one.end()
    two = Process(broker, HOSTCUDA_SHARED=ledger, HOSTCUDA_MEM=str(32 * MB))
    two.ask(f"share a v {8 * MB}")
    two.ask("commit")
    two.end()
    broker.until("a is kept", [("a", "kept", 0, 0)])
    said = subprocess.run([f"{BUILD}/bin/medusa-backbone", "drop", "a", "--socket", broker.path], capture_output=True, text=True)
    check("drop", (0, "1 dropped\n"), (said.returncode, said.stdout))
    check("nothing is left", [], broker.states())
    broker.end()


def hostile(folder):
    broker = Broker(folder)
    reader = Process(broker)
    reader.ask(f"share q v {4 * MB}")
    reader.ask("set 4")
    reader.ask("commit")

    def send(data, seconds=2.0):
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(seconds)
        wire.connect(broker.path)
        got = b""
        try:
            wire.sendall(data)
            wire.shutdown(socket.SHUT_WR)
            while True:
                part = wire.recv(65536)
                if not part:
                    break
                got += part
        except OSError:
            pass
        wire.close()
        return got.decode(errors="replace")

    def letter(**values):
        return json.dumps({"medusa_backbone": 1, **values}).encode() + b"\n"

    device = broker.all()[0]["device"]
    good = {"do": "attach", "name": "x", "layout": "v", "device": device, "bytes": MB}
    held = {**good, "do": "hold", "id": "0" * 32, "hash": "0" * 32, "whole": 2 * MB}
    for data, wanted in [
            (b"\n", "ok\": false"), (b"{}\n", "of one release"), (b"x" * 5000, "4096"), (b"\xff\xfe\n", "ok\": false"),
            (b'{"medusa_backbone": 2, "do": "status"}\n', "of one release"), (letter(do="dance"), "is not known"),
            (letter(**{**good, "name": "../x y"}), "is not a name"), (letter(**{**good, "name": ""}), "is not a name"),
            (letter(**{**good, "name": 5}), "name is a number or a truth: a text is wanted"), (letter(**{**good, "name": "n" * 65}), "is not a name"),
            (letter(**{**good, "bytes": 0}), "is missing or 0"), (letter(**{**good, "bytes": "8"}), "bytes is a text: a number"),
            (letter(**{**good, "bytes": 2**64 - 1}), "more than any device"), (letter(**{**good, "bytes": 2**50}), "backbone x of"),
            (letter(**{**good, "device": "GPU-0"}), "none is GPU-0"), (letter(**{**good, "layout": "l" * 1025}), "at most 1024"),
            (letter(**{**good, "layout": 5}), "layout is a number"), (letter(do="drop", name=5), "name is a number"), (letter(do="drop", name=""), "is not a name"),
            (letter(do="commit", hash="0" * 32), "fills no backbone"), (letter(**held), "without its memory"),
            (letter(**{**held, "id": "0" * 31}), "32 hexadecimal"), (letter(**{**held, "id": "G" * 32}), "32 hexadecimal"),
            (letter(**{**held, "whole": 5}), "is less than"), (letter(**{**held, "hash": "x"}), "is no hash"), (letter(**good) + letter(**good), "is not known"),
            (letter(**good) + letter(do="commit", hash="no"), "is no hash"), (letter(do="status") + letter(do="drop"), "is not known")]:
        check_in(f"the answer to {data[:60]!r}", wanted, send(data, 60))

    def bring(fd, **values):
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(60)
            wire.connect(broker.path)
            socket.send_fds(wire, [letter(**{**held, **values})], [fd])
            return wire.recv(4096).decode(errors="replace")

    before = broker.descriptors()
    for path in "/dev/null", sys.argv[0], folder:
        fd = os.open(path, os.O_RDONLY)
        check_in(f"{path} instead of memory", "taking back backbone x", bring(fd))
        check_in(f"{path} for a device that is not there", "none is GPU-1", bring(fd, device="GPU-1"))
        os.close(fd)
    broker.until("nothing of that is there", [("q", "read", 1, 0)])
    for _ in range(1200): # it may not have seen the end of the last connection yet
        if broker.descriptors() <= before:
            break
        time.sleep(0.05)
    check("descriptors of the broker", True, broker.descriptors() <= before)
    numbers = random.Random(5)
    for _ in range(200):
        data = bytearray(letter(**numbers.choice((good, held))))
        for _ in range(numbers.randrange(1, 8)):
            data[numbers.randrange(len(data))] = numbers.randrange(256)
        send(bytes(data), 0.2 if b"\n" not in data else 2.0)
    broker.until("what strangers had is free", [("q", "read", 1, 0)])
    idle = [socket.socket(socket.AF_UNIX) for _ in range(520)]
    for wire in idle:
        try:
            wire.connect(broker.path)
        except OSError:
            pass
    time.sleep(0.5)
    check("one more than there may be", True, "no more can be" in send(letter(do="status")) or broker.process.poll() is None)
    for wire in idle:
        wire.close()
    broker.until("it answers again", [("q", "read", 1, 0)])
    check("who had it has it", "sum 8", reader.ask("sum"))
    reader.end()
    check("the broker's end", 0, broker.end())
    check("it said nothing but where it is", 1, broker.words().count("\n"))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def without_descriptors(folder):
    broker = Broker(folder, before=("prlimit", "--nofile=40:40"))
    wires = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for wire in wires:
        wire.connect(broker.path)
    told = select.select(wires, [], [], 60)[0]
    check("connections until descriptors lack", True, bool(told) and 10 < wires.index(told[0]) < 39)
    check_in("what the next one is told", "no descriptor is left", told[0].recv(4096).decode() if told else "(nothing)")
    before = cpu_seconds(broker.process.pid)
    refused = Process(broker)
    check_in("a process", "no descriptor is left", refused.ask(f"share q v {4 * MB}"))
    time.sleep(1)
    used = cpu_seconds(broker.process.pid) - before
    check(f"the broker does not run at full speed ({used} s of 1)", True, used < 0.5)
    check("what it says of it, once", 1, broker.words().count("no descriptor is left"))
    for wire in wires:
        wire.close()
    broker.until("nothing is held", [])
    check("the process, later", "fill ok", refused.ask(f"share q v {4 * MB}"))
    refused.end()
    broker.end()


def many_leases_of_a_process(folder):
    broker = Broker(folder, name="many", before=("prlimit", "--nofile=40:40"))
    has, other = Process(broker), Process(broker)
    check("the first one", "fill ok", has.ask(f"share q v {4 * MB}"))
    check("who fills has its lease on the common connection", [("q", "filling", 0, 0)], broker.states())
    has.ask("set 6")
    check("commit", "commit ok", has.ask("commit"))
    before = broker.descriptors()
    for _ in range(100):
        check("one of many leases", "read ok", has.ask(f"share q v {4 * MB}"))
    broker.until("all are counted", [("q", "read", 101, 0)])
    for _ in range(1200): # it may not have seen the end of the last connection yet
        if broker.descriptors() <= before:
            break
        time.sleep(0.05)
    check("descriptors of the broker for a hundred leases", 0, max(broker.descriptors() - before, 0))
    check("one of another process", "read ok", other.ask(f"share q v {4 * MB}"))
    check("one is given back", "end ok", has.ask("end"))
    broker.until("the others stay", [("q", "read", 101, 0)])
    check("one that is filled", "fill ok", has.ask(f"share r v {4 * MB}"))
    check("and given back", "end ok", has.ask("end"))
    broker.until("nobody has it", [("q", "read", 101, 0)])
    broker.end(signal.SIGKILL)
    broker = Broker(folder, name="many", before=("prlimit", "--nofile=40:40"))
    broker.until("the next broker is given all", [("q", "read", 101, 0)])
    check("one that is being filled", "fill ok", has.ask(f"share r v {4 * MB}"))
    child = int(has.ask("child").split()[1])
    has.kill()
    broker.until("all go with their process, although a child of it lives", [("q", "read", 1, 0)])
    os.kill(child, signal.SIGKILL)
    check("the other one sees it", "sum 12", other.ask("sum"))
    other.end()
    check("the broker's end", 0, broker.end())


ASKS = """
import json, socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
wire.sendall(sys.argv[2].encode() + b"\\n")
print(socket.recv_fds(wire, 65536, 1)[0].split(b"\\n")[0].decode(), flush=True)
sys.stdin.read()
"""


def leases_that_are_no_ones_own(folder):
    broker = Broker(folder, name="own")
    has = Process(broker)
    check("the memory", "fill ok", has.ask(f"share q v {4 * MB}"))
    has.ask("commit")
    attach = json.dumps({"medusa_backbone": 1, "do": "attach", "name": "q", "layout": "v", "device": broker.all()[0]["device"], "bytes": 4 * MB})
    owner = subprocess.Popen([sys.executable, "-c", ASKS, broker.path, attach], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    identity = json.loads(owner.stdout.readline())["id"]
    wires = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for wire in wires:
        wire.settimeout(60)
        wire.connect(broker.path)

    def ask(wire, **values):
        wire.sendall(json.dumps({"medusa_backbone": 1, **values}).encode() + b"\n")
        said, passed, _, _ = socket.recv_fds(wire, 65536, 1)
        for memory in passed:
            os.close(memory)
        return json.loads(said.split(b"\n")[0])

    common, own = wires
    said = ask(common, do="keep", id=identity, lease=7)
    check("the lease of another process", (False, 7), (said["ok"], said["lease"]))
    check_in("why", "no other connection with this backbone", said["message"])
    ask(own, **{**json.loads(attach)})
    said = ask(common, do="own", lease=99)
    check("memory of one's own in the place of what is not kept", (False, 99), (said["ok"], said["lease"]))
    check_in("why", "keeps no such lease", said["message"])
    check("one of this process's", {"ok": True, "lease": 7}, ask(common, do="keep", id=identity, lease=7))
    check_in("the same number again", "is kept already", ask(common, do="keep", id=identity, lease=7)["message"])
    check_in("what has been moved", "no other connection", ask(common, do="keep", id=identity, lease=8)["message"])
    check_in("a commit of what is read", "fills no backbone", ask(common, do="commit", lease=7, hash="0" * 32)["message"])
    broker.until("three have it", [("q", "read", 3, 0)])
    own.close()
    common.sendall(json.dumps({"do": "leave", "lease": 99}).encode() + b"\n" + json.dumps({"do": "leave", "lease": 7}).encode() + b"\n")
    broker.until("two have it", [("q", "read", 2, 0)])
    check_in("without a number", "is not known here", ask(common, do="keep", id=identity)["message"])
    common.close()
    owner.stdin.close()
    owner.wait()
    broker.until("one has it", [("q", "read", 1, 0)])
    has.end()
    check("the broker's end", 0, broker.end())


def policy(folder):
    if os.geteuid():
        return
    open_folder = f"{folder}/open"
    os.makedirs(open_folder)
    for path in (folder, open_folder):
        os.chmod(path, 0o755)
    rules = f"{folder}/policy"

    def broker_of(text):
        with open(rules, "w", encoding="utf-8") as file:
            file.write(text)
        return Broker(open_folder, "--policy", rules)

    for text, why in ("read nobody\n", "line 1: a rule is"), ("\n# ok\nread nouser q\n", "line 3: there is no user"):
        broker = broker_of(text)
        check("the exit code of a bad policy", 3, broker.process.wait(60))
        check_in("what is wrong with it", why, broker.words())
    broker = broker_of("read 65534 q*  # for tenants\nfill * free/*\n")
    other = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    root, stranger = Process(broker), Process(broker, *other)
    check("root fills", "fill ok", root.ask(f"share q1 v {MB}"))
    root.ask("set 1")
    root.ask("commit")
    check("another user reads", "read ok", stranger.ask(f"share q1 v {MB}"))
    check("and sees it", "sum 2", stranger.ask("sum"))
    reader = Process(broker, *other)
    check("and another process of it, too", "read ok", reader.ask(f"share q1 v {MB}"))
    check_in("but may not fill", "user 65534 may not fill backbone q2", stranger.ask(f"share q2 v {MB}"))
    check("except where a rule says so", "fill ok", stranger.ask(f"share free/x v {MB}"))
    root.ask(f"share secret v {MB}")
    root.ask("commit")
    check_in("nor read what is not its own", "user 65534 may not read backbone secret", stranger.ask(f"share secret v {MB}"))
    said = subprocess.run([*other, f"{BUILD}/bin/medusa-backbone", "status", "--socket", broker.path], capture_output=True, text=True)
    check_in("nor ask", "may not ask", said.stderr)
    broker.end(signal.SIGKILL)
    broker = broker_of("read 65534 q*\n")
    broker.until("what a user may not fill, it may not bring either", [("q1", "read", 1, 0), ("secret", "read", 1, 0)])
    check("the user sees it all the same", "sum 2", reader.ask("sum"))
    root.end()
    reader.end()
    stranger.end()
    broker.end()
    private = Broker(open_folder)
    stranger = Process(private, *other)
    check("without a policy", "none not found", stranger.ask(f"share q1 v {MB}").split(":")[0])
    stranger.end()
    private.end()


def killed_at_any_moment(folder):
    broker = Broker(folder)
    numbers = random.Random(int(os.environ.get("SEED", "3")))
    living = []
    end = time.monotonic() + float(os.environ.get("SECONDS_OF_KILLS", "4"))
    while time.monotonic() < end:
        one = Process(broker)
        living.append(one)
        one.say(f"share {numbers.choice('abc')} v {2 * MB}")
        if numbers.random() < 0.5:
            answered = one.answer(0.3)
            if answered == "fill ok" and numbers.random() < 0.8:
                one.ask("set 11")
                one.say("commit")
            elif answered == "read ok":
                check("what a reader sees", "sum 22", one.ask("sum"))
        while len(living) > 6 or (living and numbers.random() < 0.4):
            living.pop(numbers.randrange(len(living))).kill()
    for one in living:
        one.kill()
    broker.until("nothing is held", [])
    check("the broker's end", 0, broker.end())


def main():
    folder = sys.argv[1]
    for part in (one_fills_and_others_read, told_at_once, who_fills_dies, the_broker_dies, who_waits_asks_the_next_broker, brokers_come_and_go, an_engine_closes_what_is_not_its_own, what_is_kept, hostile, without_descriptors, many_leases_of_a_process, leases_that_are_no_ones_own, policy, killed_at_any_moment):
        if sys.argv[2:] and part.__name__ not in sys.argv[2:]:
            continue
        print(f"-- {part.__name__.replace('_', ' ')}", flush=True)
        part(folder)
    finish()


main()
