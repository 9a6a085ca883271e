# SPDX-License-Identifier: Apache-2.0
"""What a soak does to the daemon and its engines: one function for each kind in plan.FAULTS."""
import http.client
import os
import signal
import struct
import subprocess
import threading
import time

from soak import plan
from soak.client import BOUND

CLOCKS = (3600, -3600, 86400 * 40, -86400 * 40, 86400 * 3650, -86400 * 365 * 30, 1, -1)


def processes(mark):
    """{pid: words of its command} of all that have this variable in their environment."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark.encode() not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if words := file.read().decode(errors="replace").split("\0")[:-1]:
                    found[int(entry)] = words
        except (OSError, ValueError):
            pass
    return found


def tell(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Surroundings:
    """The clock and the disk of the daemon (tests/faults/surroundings.c)."""

    def __init__(self, path):
        self.path, self.ahead, self.full = path, 0, 0
        self.write()

    def write(self, **values):
        self.__dict__.update(values)
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("qQ", self.ahead, self.full))


class Faults:
    """soak: has the daemon, and says() what happens."""

    def __init__(self, soak):
        self.soak, self.around = soak, Surroundings(f"{soak.folder}/surroundings")
        self.lost = f"{soak.folder}/lost"
        self.undone = [] # threads that end what was begun

    def engines(self, model):
        """Processes of the model's engine: itself, and medusa-swap around it."""
        base = plan.BASES.get(model, model)
        return [pid for pid, words in processes(self.soak.mark).items() if base in [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--name", "--served-name")]]

    def later(self, seconds, action, *arguments):
        def run():
            time.sleep(seconds)
            try:
                action(*arguments)
            except Exception as error:
                self.soak.violation(f"{action.__name__} {arguments}: {error!r}")
        self.undone.append(threading.Thread(target=run))
        self.undone[-1].start()

    def end(self):
        """All that lasts has ended."""
        for thread in self.undone:
            thread.join(BOUND)
            self.soak.expect(not thread.is_alive(), f"a fault or an order did not end within {BOUND} s")
        self.undone = []
        self.around.write(full=0)
        self.order((0,), "resume") # a drain may have come to the daemon after the order that was to end it

    def do(self, kind, lasts, model, number):
        getattr(self, kind.replace(" ", "_"))(lasts, model, number)

    # ---- processes ----

    def kill_an_engine(self, lasts, model, number):
        for pid in self.engines(model):
            tell(pid, signal.SIGKILL)

    def kill_any_process(self, lasts, model, number):
        """But the daemon, and who looks after its engines."""
        found = [pid for pid, words in sorted(processes(self.soak.mark).items()) if pid != self.soak.daemon.process.pid
                 and (os.path.basename(words[0]) == "medusa-swap" or "--name" in words or "--served-name" in words)]
        if found:
            tell(found[number % len(found)], signal.SIGKILL)

    def stop_an_engine(self, lasts, model, number):
        for pid in self.engines(model):
            tell(pid, signal.SIGSTOP)
            self.later(lasts, tell, pid, signal.SIGCONT)

    def stop_an_engine_for_long(self, lasts, model, number):
        self.stop_an_engine(lasts * 3, model, number)

    def pause_the_daemon(self, lasts, model, number):
        pid = self.soak.daemon.process.pid
        tell(pid, signal.SIGSTOP)
        time.sleep(lasts / 2)
        tell(pid, signal.SIGCONT)

    def end_the_daemon(self, lasts, model, number):
        self.soak.renew(signal.SIGTERM)

    def kill_the_daemon(self, lasts, model, number):
        self.soak.renew(signal.SIGKILL)

    # ---- device, disk, clock ----

    def lose_the_GPU(self, lasts, model, number):
        with open(self.lost, "wb"):
            pass
        self.later(lasts, os.unlink, self.lost)

    def fill_the_disk(self, lasts, model, number):
        self.around.write(full=1)
        self.later(lasts, lambda: self.around.write(full=0))

    def clock(self, lasts, model, number):
        self.around.write(ahead=CLOCKS[number % len(CLOCKS)])

    def clock_back(self, lasts, model, number):
        self.around.write(ahead=0)

    # ---- orders ----

    def order(self, wanted, *words):
        daemon = self.soak.daemon
        done = subprocess.run(["medusa-workerctl", *words, "--socket", daemon.control], capture_output=True, text=True, timeout=BOUND)
        self.soak.expect(done.returncode in wanted or daemon.parting, f"medusa-workerctl {' '.join(words)}: exit code {done.returncode}: {done.stderr}{done.stdout}")

    def reload(self, lasts, model, number):
        self.soak.write_config(number)
        self.order((0,), "reload")

    def reload_by_signal(self, lasts, model, number):
        self.soak.write_config(number)
        tell(self.soak.daemon.process.pid, signal.SIGHUP)

    def bad_reload(self, lasts, model, number):
        self.soak.write_config(number, "\nmodels: [")
        self.order((3,), "reload")
        self.soak.write_config(number)

    def unload(self, lasts, model, number):
        self.later(0, self.order, (0, 1, 3), "unload", model)

    def unload_all(self, lasts, model, number):
        self.later(0, self.order, (0, 1), "unload", "--all")

    def load(self, lasts, model, number):
        self.later(0, self.order, (0, 1, 3), "load", model)

    def drain(self, lasts, model, number):
        self.later(0, self.order, (0, 1), "drain", "--deadline", "1")
        time.sleep(lasts / 2)
        self.order((0,), "resume")

    # ---- adapters ----

    def lose_an_adapter(self, lasts, model, number):
        """Its file or folder is gone for a while."""
        path = plan.path_of(self.soak.folder, model)
        os.rename(path, f"{path}.away")
        self.later(lasts, os.rename, f"{path}.away", path)

    def forget_adapters(self, lasts, model, number):
        """The engine has none any more, and the daemon is not told. Nothing, if it does not run or does not hear."""
        def forget(port):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=lasts)
                connection.request("POST", "/forget", "{}")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()

        for words in processes(self.soak.mark).values():
            if "--port" in words and model in words:
                self.later(0, forget, int(words[words.index("--port") + 1]))

    def unload_an_adapter(self, lasts, model, number):
        self.unload(lasts, model, number)

    def load_an_adapter(self, lasts, model, number):
        self.load(lasts, model, number)
