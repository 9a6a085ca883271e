# SPDX-License-Identifier: Apache-2.0
"""Makes things fail one at a time and looks at what is left: driver calls, allocations, files, descriptors, signals, kills, crowds, cycles.

torture.py [--sample N] [--seed N] [--row TEXT] [--point N] [PART...]: every point of injection, or N of each kind, chosen by the
seed; with --row only the kind of this name, with --point this one of its points. Called by run.sh; tests/faults/inject.c and
HOSTCUDA_FAULT do the injecting. Prints a table, what went wrong, and the commands that try it again.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

build = os.environ["MEDUSA_BUILD"]
sanitized = bool(os.environ.get("SAN") or os.environ.get("TSAN"))
RESTORE, CAPTURE = "libmedusa-restore.so", "libmedusa-capture.so"
HELPERS = "libzstd.so.1,libmsgpackc.so.2,libdw.so.1" # what they ask memory for is asked for us; libelf is hostcuda's too
# Calls that give something back. One that fails keeps it: the driver still has it, and nobody can do anything about it.
RELEASES = re.compile(r"cu(MemFree|MemRelease|MemUnmap|MemAddressFree|.*Destroy|.*Unload|CtxPopCurrent)")
SANITIZER = re.compile(r"(ERROR: (Leak|Address)|WARNING: Thread)Sanitizer|runtime error: ")


def path(name):
    return os.path.join(build, name)


# Children of a killed command become ours, so that we can wait for them.
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Run:
    """One process: its exit code, what it printed, and which call was made to fail, if it came to that."""

    def __init__(self, argv, **settings):
        preload = settings.pop("preload", [])
        limit = settings.pop("limit", 600 if sanitized else 300)
        env = dict(os.environ, **{name: str(value) for name, value in settings.items()})
        if preload:
            env["LD_PRELOAD"] = " ".join(path(name) for name in preload)
        try:
            done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr.decode(errors="replace")
        except subprocess.TimeoutExpired as late:
            self.code, self.out, self.err = "none: it hangs", b"", (late.stderr or b"").decode(errors="replace")
        fired = re.search(r"^(?:hostcuda|inject): call \d+ (?:of \S+ )?is (.*)$", self.err, re.M)
        self.fired = fired and fired.group(1)


class Row:
    """What came of one kind of injection. Its random numbers depend on the seed and its name, not on the rows before it."""

    def __init__(self, what, part, seed):
        self.what, self.part, self.points, self.outcomes = what, part, 0, collections.Counter()
        self.random = random.Random(f"{seed} {what}")
        self.wrong = [] # (point, text); the point is 0 where no number chooses it

    def note(self, outcome, wrong=None, point=0):
        self.points += 1
        self.outcomes[outcome] += 1
        if wrong:
            self.wrong.append((point, wrong))

    def text(self):
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return f"{self.what:<66} {self.points:>6}  {len(self.wrong):>5}  {outcomes}"


class Torture:
    def __init__(self, work, options):
        self.work, self.sample, self.seed, self.rows = work, options.sample, options.seed, []
        self.only, self.point, self.part = options.row, options.point, None
        self.subject = [path("tests/subjects/restore_subject"), path("tests/images/restore_kernels.host.so")]
        self.engine = [path("models/llama/llama-engine"), "--recipe", "models/recipes/tiny.yaml", "--batches", "1,2,4",
                       "--max-kv-bytes", "1000000", "--tokens", "6", "--quiet"]
        self.live = self.must(self.subject).out
        self.engine_live = self.must(self.engine).out
        self.stored, self.by_file = self.file("stored.medusa"), self.file("file.medusa")
        self.kernels = path("tests/images/probe_kernels.host.so")
        capture = path("bin/medusa-capture")
        self.must([capture, "--keep-traces", "-o", self.by_file, "--", *self.subject])
        self.must([capture, "--store-images", "-o", self.stored, "--", *self.subject])
        self.must([capture, "-o", self.file("engine.medusa"), "--", *self.engine])
        self.traces = [self.file("file.1.mtrace"), self.file("file.2.mtrace")]

    def file(self, name):
        return os.path.join(self.work, name)

    def must(self, argv, **settings):
        run = Run(argv, **settings)
        if run.code != 0 or SANITIZER.search(run.err):
            sys.exit(f"{' '.join(argv)}: exit code {run.code}\n{run.err}")
        return run

    def row(self, what):
        """None: another row is asked for."""
        if self.only and self.only != what:
            return None
        self.rows.append(Row(what, self.part, self.seed))
        return self.rows[-1]

    # ---- every call once --------------------------------------------------------------------------------------------

    def sweep(self, what, once):
        """once(n) runs with the n-th call failing and says (run, outcome, wrong). Goes on until no call is left."""
        row, quiet, n = self.row(what), 0, 0
        if not row:
            return
        if self.point:
            self.take(row, self.point, once(self.point))
            return
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            if self.sample:
                last = self.count(once)
                chosen = sorted(row.random.sample(range(1, last + 1), min(self.sample, last)))
                for point, result in zip(chosen, pool.map(once, chosen)):
                    self.take(row, point, result)
                return
            while quiet < 8: # threads make one more call or one less: the end is where several in a row find none
                for point, result in enumerate(pool.map(once, range(n + 1, n + 9)), n + 1):
                    quiet = 0 if result[0].fired else quiet + 1
                    self.take(row, point, result)
                n += 8

    def count(self, once):
        """About how many calls there are: the largest power of two at which one failed, and then by halves."""
        low, high = 0, 1
        while once(high)[0].fired:
            low, high = high, high * 2
        while high - low > max(1, low // 16):
            middle = (low + high) // 2
            low, high = (middle, high) if once(middle)[0].fired else (low, middle)
        return max(1, low)

    @staticmethod
    def take(row, point, result):
        run, outcome, wrong = result
        if wrong: # at once, for whoever sees only the first lines
            print(f"  wrong: {row.what}, point {point}: {wrong.splitlines()[0]}", flush=True)
        if run.fired:
            row.note(outcome, wrong, point)
        elif wrong: # without an injection nothing may be wrong either
            row.wrong.append((point, wrong))

    def judge_restore(self, run, live):
        """The engine's output is what it is without us, and nothing stays allocated."""
        wrong = []
        if run.code != 0:
            wrong.append(f"exit code {run.code}")
        if run.out != live:
            wrong.append("other output")
        held = re.findall(r"^held.*=(-?\d+)$", run.err, re.M)
        if any(bytes != "0" for bytes in held) and not RELEASES.match(run.fired or ""):
            wrong.append(f"device memory held: {held}")
        if SANITIZER.search(run.err):
            wrong.append("a sanitizer's finding")
        fell_back = re.search(r"^graph \d+ live", run.err, re.M)
        outcome = "wrong" if wrong else "captured live" if fell_back else "restored all the same"
        return run, outcome, self.describe(run, wrong)

    @staticmethod
    def describe(run, wrong):
        return wrong and f"{run.fired}: {'; '.join(wrong)}\n{run.err[-3000:]}"

    def restore_ways(self):
        return [("stored image", dict(MEDUSA_ARTIFACT=self.stored)),
                ("image in a file", dict(MEDUSA_ARTIFACT=self.by_file)),
                ("image loaded by the engine", dict(MEDUSA_ARTIFACT=self.by_file, MEDUSA_RESOLVE="loaded",
                                                    SUBJECT_LOADS_FIRST="1")),
                ("triggering kernels", dict(MEDUSA_ARTIFACT=self.by_file, MEDUSA_RESOLVE="trigger",
                                            SUBJECT_TRIGGER="1")),
                ("verify run", dict(MEDUSA_ARTIFACT=self.stored, MEDUSA_VERIFY="1")),
                ("verify run on the device", dict(MEDUSA_ARTIFACT=self.stored, MEDUSA_VERIFY="1",
                                                  MEDUSA_PROBE_KERNEL=self.kernels))]

    def restored(self, settings, inject=True):
        preload = (["tests/faults/inject.so"] if inject else []) + ["lib/" + RESTORE]
        return Run(self.subject, preload=preload, **settings)

    def part_driver(self):
        for name, settings in self.restore_ways():
            for error in ("OUT_OF_MEMORY", "INVALID_VALUE"):
                def once(n, settings=settings, error=error):
                    fault = dict(settings, HOSTCUDA_FAULT=f"@{RESTORE}:{n}:{error}")
                    return self.judge_restore(self.restored(fault, inject=False), self.live)
                self.sweep(f"driver calls of restore, {name}, {error}", once)
        for error in ("OUT_OF_MEMORY", "INVALID_VALUE"):
            for name, settings in (("capture", {}), ("capture on the device", dict(MEDUSA_PROBE_KERNEL=self.kernels))):
                def once(n, settings=settings, error=error):
                    return self.captured(n, HOSTCUDA_FAULT=f"@{CAPTURE}:{n}:{error}", **settings)
                self.sweep(f"driver calls of {name}, {error}", once)

    # ---- capture and analysis: the engine is right, and a file is whole or not there -----------------------------

    def captured(self, n, **settings):
        trace = self.file(f"captured-{settings.get('INJECT', 'driver')[:3]}-{n}.mtrace")
        for name in (trace, trace + ".part"):
            if os.path.exists(name):
                os.unlink(name)
        preload = (["tests/faults/inject.so"] if "INJECT" in settings else []) + ["lib/" + CAPTURE]
        run = Run(self.subject, preload=preload, MEDUSA_TRACE=trace, **settings)
        wrong = []
        if run.code != 0:
            wrong.append(f"exit code {run.code}")
        if run.out != self.live:
            wrong.append("other output")
        if SANITIZER.search(run.err):
            wrong.append("a sanitizer's finding")
        whole = os.path.exists(trace)
        wrong += self.unreadable(trace if whole else trace + ".part", complete=whole)
        outcome = "wrong" if wrong else "trace whole" if whole else "no trace, or part of one"
        return run, outcome, self.describe(run, wrong)

    def unreadable(self, name, complete):
        """Why a trace cannot be read; what has no header yet is no trace."""
        if not os.path.exists(name) or (not complete and os.path.getsize(name) < 32):
            return []
        run = Run([path("bin/medusa-inspect"), name], LD_PRELOAD="")
        if run.code != 0:
            return [f"{os.path.basename(name)} cannot be read: {run.err}"]
        if complete and b"incomplete" in run.out: # a whole one may lack its name alone
            return [f"{os.path.basename(name)} is not complete"]
        return []

    def analyzed(self, n, **settings):
        artifact = self.file(f"analyzed-{settings['INJECT'][:3]}-{n}.medusa")
        shutil.copyfile(self.stored, artifact) # an older one, which stays or is replaced by a whole one
        run = Run([path("bin/medusa-analyze"), "-o", artifact, *self.traces], preload=["tests/faults/inject.so"],
                  **settings)
        wrong = []
        if run.code not in (0, 1, 3, 4):
            wrong.append(f"exit code {run.code}")
        if run.code != 0 and len(run.err.splitlines()) < 2:
            wrong.append("no word of why")
        if SANITIZER.search(run.err):
            wrong.append("a sanitizer's finding")
        wrong += self.half_written(artifact)
        leftovers = [name for name in os.listdir(self.work) if name.startswith(os.path.basename(artifact) + ".")]
        if leftovers:
            wrong.append(f"left behind: {leftovers}")
        outcome = "wrong" if wrong else "artifact written" if run.code in (0, 1) else "refused"
        return run, outcome, self.describe(run, wrong)

    def half_written(self, artifact):
        if not os.path.exists(artifact):
            return []
        run = Run([path("bin/medusa-inspect"), artifact], LD_PRELOAD="")
        return [f"an artifact that cannot be read: {run.err}"] if run.code != 0 else []

    def inject_everywhere(self, what, name):
        for way, settings in self.restore_ways():
            def restore_once(n, settings=settings):
                injected = dict(settings, INJECT=f"{what}:{n}", INJECT_FROM=f"{RESTORE},{HELPERS}")
                if what != "memory" and "MEDUSA_VERIFY" in settings:
                    injected["MEDUSA_VERIFY_REPORT"] = self.file(f"report-{n}")
                return self.judge_restore(self.restored(injected), self.live)
            self.sweep(f"{name} of restore, {way}", restore_once)
        self.sweep(f"{name} of capture",
                   lambda n: self.captured(n, INJECT=f"{what}:{n}", INJECT_FROM=f"{CAPTURE},{HELPERS}"))
        self.sweep(f"{name} of medusa-analyze",
                   lambda n: self.analyzed(n, INJECT=f"{what}:{n}", INJECT_FROM=f"medusa-analyze,{HELPERS}"))

    def part_memory(self):
        self.inject_everywhere("memory", "allocations")

    def part_files(self):
        self.inject_everywhere("file", "file calls")
        self.inject_everywhere("short", "reads and writes that do half")

    # ---- kills ------------------------------------------------------------------------------------------------------

    @staticmethod
    def kill_at(argv, after, **settings):
        """SIGKILL to the process alone, then waits for what it has left behind. False: it had ended before."""
        victim = subprocess.Popen(argv, env=dict(os.environ, **settings), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            victim.wait(after)
        except subprocess.TimeoutExpired:
            victim.kill()
        killed = victim.wait() == -signal.SIGKILL
        try:
            while os.waitpid(-victim.pid, 0):
                pass
        except ChildProcessError:
            return killed

    def duration(self, argv, **settings):
        start = time.monotonic()
        self.must(argv, **settings)
        return time.monotonic() - start

    @staticmethod
    def note_kill(row, killed, wrong, whole):
        """What had ended before its moment came is another try, and is looked at too."""
        row.note("killed" if killed else "over before", wrong and "; ".join(wrong))
        row.outcomes["file whole" if whole else "no file"] += 1

    def part_kill(self):
        kills = self.sample or 70
        self.engine_killed(kills)
        artifact = self.file("killed.medusa")
        self.command_killed("medusa-analyze", ["-o", artifact, *self.traces], artifact, kills)
        self.command_killed("medusa-capture", ["-o", artifact, "--", *self.engine], artifact, kills * 6 // 7)
        self.sweep("SIGKILL of the engine before each file call of capture", lambda n: self.captured_killed(n))
        self.sweep("SIGKILL of medusa-analyze before each of its file calls", lambda n: self.analyzed_killed(n))

    def engine_killed(self, kills):
        row = self.row("SIGKILL of the engine under capture, random moment")
        if not row:
            return
        trace = self.file("killed.mtrace")
        preload = dict(LD_PRELOAD=path("lib/" + CAPTURE), MEDUSA_TRACE=trace)
        lasts = self.duration(self.engine, preload=["lib/" + CAPTURE], MEDUSA_TRACE=trace)
        while row.outcomes["killed"] < kills:
            self.remove(trace, trace + ".part")
            killed = self.kill_at(self.engine, row.random.uniform(0, lasts), **preload)
            whole = os.path.exists(trace)
            self.note_kill(row, killed, self.unreadable(trace if whole else trace + ".part", whole), whole)

    def command_killed(self, name, arguments, artifact, kills):
        row = self.row(f"SIGKILL of {name}, random moment")
        if not row:
            return
        argv = [path("bin/" + name), *arguments]
        lasts = self.duration(argv)
        while row.outcomes["killed"] < kills:
            self.remove(artifact)
            older = row.points % 2
            if older:
                shutil.copyfile(self.stored, artifact)
            killed = self.kill_at(argv, row.random.uniform(0, lasts))
            wrong = self.half_written(artifact)
            if older and not os.path.exists(artifact):
                wrong.append("the older artifact is gone")
            self.note_kill(row, killed, wrong, os.path.exists(artifact))

    def captured_killed(self, n):
        trace = self.file(f"dies-{n}.mtrace")
        self.remove(trace, trace + ".part")
        run = Run(self.subject, preload=["tests/faults/inject.so", "lib/" + CAPTURE], MEDUSA_TRACE=trace,
                  INJECT=f"kill:{n}", INJECT_FROM=CAPTURE)
        whole = os.path.exists(trace)
        wrong = self.unreadable(trace if whole else trace + ".part", whole)
        return run, "trace whole" if whole else "part of a trace", self.describe(run, wrong)

    def analyzed_killed(self, n):
        artifact = self.file(f"dies-{n}.medusa")
        shutil.copyfile(self.stored, artifact)
        run = Run([path("bin/medusa-analyze"), "-o", artifact, *self.traces], preload=["tests/faults/inject.so"],
                  INJECT=f"kill:{n}", INJECT_FROM="medusa-analyze")
        return run, "artifact whole", self.describe(run, self.half_written(artifact))

    @staticmethod
    def remove(*names):
        for name in names:
            if os.path.exists(name):
                os.unlink(name)

    # ---- many at once, and again and again --------------------------------------------------------------------------

    def part_crowd(self):
        crowd = 24
        for what, argv, live, artifact in (("subject", self.subject, self.live, self.stored),
                                           ("engine", self.engine, self.engine_live, self.file("engine.medusa"))):
            row = self.row(f"{crowd} processes restore one artifact at once, {what}")
            if not row:
                continue
            with concurrent.futures.ThreadPoolExecutor(crowd) as pool:
                runs = list(pool.map(lambda _: Run(argv, preload=["lib/" + RESTORE], MEDUSA_ARTIFACT=artifact),
                                     range(crowd)))
            for run in runs:
                wrong = []
                if run.code != 0 or run.out != live or SANITIZER.search(run.err):
                    wrong.append(f"exit code {run.code}, output {'as it was' if run.out == live else 'differs'}")
                if re.search(r"not restored|nothing is restored|live", run.err):
                    wrong.append("something is not restored")
                row.note("wrong" if wrong else "restored", self.describe(run, wrong))

    def part_cycles(self):
        """What the process holds more at the end than at the beginning, beyond the same without us: hostcuda keeps a
        little of every context, so that handles of dead ones are known. The least of several samples counts, as a
        thread that ends holds something for a moment; and the allocator's cache for threads, which fills for
        thousands of cycles and is counted as in use, is off. All threads share one arena: pages of several come and
        go by a megabyte."""
        cycles = 500 if self.sample else 1000
        row = self.row(f"{cycles} restores and releases in one process")
        if not row:
            return
        argv = [path("tests/subjects/cycle_subject"), str(cycles)]
        settings = dict(GLIBC_TUNABLES="glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1", limit=900)
        artifact = self.file("cycles.medusa") # for another program than the one that was captured
        self.must([path("bin/medusa-capture"), "--store-images", "--vary", "*", "-o", artifact, "--", *self.subject])
        ours = self.must(argv, preload=["lib/" + RESTORE], MEDUSA_ARTIFACT=artifact, **settings)
        alone = self.must(argv, CYCLES_ALONE="1", **settings)
        held, base = ([list(map(int, sample)) for sample in
                       re.findall(r"cycle \d*00 resident (\d+) heap (\d+) device (\d+)", run.out.decode())]
                      for run in (ours, alone))
        some = max(2, len(held) // 3)
        apart = (len(held) - some) * 100
        beyond = [(mine[0] - its[0], mine[1] - its[1]) for mine, its in zip(held, base)]
        resident, heap = (min(at[i] for at in beyond[-some:]) - min(at[i] for at in beyond[:some]) for i in (0, 1))
        device = max(sample[2] for sample in held)
        print(f"  in {apart} cycles: heap {heap:+} bytes, resident {resident:+}, device {device}")
        wrong = []
        if not sanitized and heap > 24 * apart: # one lost block in each is 32 at the least
            wrong.append(f"the heap grows by {heap} bytes in {apart} cycles")
        if not sanitized and resident > 512 * apart:
            wrong.append(f"resident memory grows by {resident} bytes in {apart} cycles")
        if device:
            wrong.append(f"{device} bytes of device memory held")
        row.note("wrong" if wrong else "no growth", "; ".join(wrong))

    # ---- what engines and their surroundings do to a process ----------------------------------------------------

    def host(self, **settings):
        """host_subject: what it prints alone, and with settings."""
        return Run([path("tests/subjects/host_subject"), path("tests/images/restore_kernels.host.so")], **settings)

    def part_host(self):
        self.host_live = self.host().out
        self.host_artifact = self.file("host.medusa")
        self.must([path("bin/medusa-capture"), "-o", self.host_artifact, "--store-images", "--",
                   path("tests/subjects/host_subject"), path("tests/images/restore_kernels.host.so")])
        for name, library in (("capture", CAPTURE), ("restore", RESTORE)):
            self.sweep(f"descriptors closed and taken before a file call of {name}",
                       lambda n, name=name, library=library: self.descriptors_taken(n, name, library))
        self.files_limited()
        self.told_to_end()

    def host_settings(self, name, n):
        trace, report = self.file(f"host-{name}-{n}.mtrace"), self.file(f"host-{name}-{n}.report")
        self.remove(trace, trace + ".part", report)
        settings = dict(MEDUSA_LOG="debug", HOST_QUIET="1")
        if name == "capture":
            return dict(settings, MEDUSA_TRACE=trace), trace
        settings["MEDUSA_ARTIFACT"] = self.host_artifact
        return (dict(settings, MEDUSA_VERIFY="1", MEDUSA_VERIFY_REPORT=report) if name == "verify" else settings), None

    def descriptors_taken(self, n, name, library):
        """Every descriptor of ours is closed, and each number is that of a file of the engine's from then on."""
        settings, trace = self.host_settings(name, n)
        own = self.file(f"own-{name}-{n}")
        run = self.host(preload=["tests/faults/inject.so", "lib/" + library], INJECT=f"close:{n}", INJECT_FROM=library,
                        INJECT_OWN=own, **settings)
        wrong = self.judge_host(run)
        if run.fired and open(own, "rb").read() != b"the engine's own\n":
            wrong.append("something was written into the engine's file")
        whole = trace and os.path.exists(trace)
        if trace:
            wrong += self.unreadable(trace if whole else trace + ".part", complete=whole)
        outcome = "wrong" if wrong else "trace whole" if whole else "engine right"
        return run, outcome, self.describe(run, wrong)

    def judge_host(self, run):
        wrong = []
        if run.code != 0:
            wrong.append(f"exit code {run.code}")
        if run.out != self.host_live:
            wrong.append("other output")
        if SANITIZER.search(run.err):
            wrong.append("a sanitizer's finding")
        return wrong

    def files_limited(self):
        """No file may grow beyond a limit from the first graph on: SIGXFSZ must not reach the engine."""
        for name, library in (("capture", CAPTURE), ("verify", RESTORE)):
            row = self.row(f"files are limited in size under {name}")
            if not row:
                continue
            limits = range(0, 1200, 40)
            for limit in row.random.sample(limits, min(self.sample, len(limits))) if self.sample else limits:
                settings, trace = self.host_settings(name, limit)
                run = self.host(preload=["lib/" + library], HOST_DURING=f"fsize={limit}", **settings)
                wrong = self.judge_host(run)
                whole = trace and os.path.exists(trace)
                if trace:
                    wrong += self.unreadable(trace if whole else trace + ".part", complete=whole)
                row.note("wrong" if wrong else "trace whole" if whole else "engine right", self.describe(run, wrong))

    def told_to_end(self):
        """SIGTERM, SIGINT or SIGHUP at a random moment: the exit code says which, and nothing is left."""
        folder = self.file("told")
        capture = [path("bin/medusa-capture"), "-o", os.path.join(folder, "x.medusa"), "--", *self.engine]
        verify = [path("bin/medusa-verify"), self.file("engine.medusa"), "--", *self.engine]
        for name, argv in (("medusa-capture", capture), ("medusa-verify", verify)):
            row = self.row(f"{name} is told to end at a random moment")
            if not row:
                continue
            os.makedirs(folder, exist_ok=True)
            lasts = self.duration(argv, TMPDIR=folder)
            for _ in range(self.sample or 60):
                shutil.rmtree(folder)
                os.makedirs(folder)
                number = row.random.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
                code, left = self.tell(argv, row.random.uniform(0.05, lasts), number, folder)
                whole = "x.medusa" in left
                left = [file for file in left if file != "x.medusa"]
                wrong = [f"left behind: {left}"] if left else []
                if code not in (0, 1, 128 + number, -number):
                    wrong.append(f"exit code {code} after signal {number}")
                if whole:
                    wrong += self.half_written(os.path.join(folder, "x.medusa"))
                row.note("wrong" if wrong else "over before" if code in (0, 1) else "ended", "; ".join(wrong))

    @staticmethod
    def tell(argv, after, number, folder):
        victim = subprocess.Popen(argv, env=dict(os.environ, TMPDIR=folder), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            victim.wait(after)
        except subprocess.TimeoutExpired:
            victim.send_signal(number)
        code = victim.wait()
        try:
            while os.waitpid(-victim.pid, 0):
                pass
        except ChildProcessError:
            pass
        return code, os.listdir(folder)

    def report(self):
        print(f"\n{'what is injected':<66} {'points':>6}  {'wrong':>5}  outcomes")
        for row in self.rows:
            print(row.text())
        for row in self.rows:
            for point, wrong in row.wrong[:20]:
                print(f"\nWRONG {row.what}{f', point {point}' if point else ''}: {wrong}")
        self.tell_again()
        points, wrong = sum(row.points for row in self.rows), sum(len(row.wrong) for row in self.rows)
        print(f"\n{points} points, {wrong} wrong")
        return 1 if wrong or not points else 0

    def tell_again(self):
        """The commands that try again what went wrong; at the end, where whoever sees only the last lines finds them."""
        settings = "".join(f"{name}=1 " for name in ("SAN", "TSAN") if os.environ.get(name))
        for row in self.rows:
            for point in sorted({point for point, _ in row.wrong})[:20]:
                sample = f" --sample {self.sample}" if self.sample and not point else ""
                print(f"again: {settings}BUILD={os.path.relpath(build)} tests/faults/run.sh --seed {self.seed}{sample}"
                      f" --row '{row.what}'{f' --point {point}' if point else ''} {row.part}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--sample", type=int, default=0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--row", help="the kind of injection, as in the table")
    arguments.add_argument("--point", type=int, default=0, help="one point of that row")
    arguments.add_argument("parts", nargs="*", default=[])
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="medusa-torture.") as work:
        torture = Torture(work, options)
        if options.sample:
            print(f"  {options.sample} points of each kind, seed {options.seed}")
        for part in options.parts or ["driver", "memory", "files", "host", "kill", "crowd", "cycles"]:
            start, torture.part = time.monotonic(), part
            getattr(torture, "part_" + part)()
            print(f"  {part}: {time.monotonic() - start:.1f} s", flush=True)
        sys.exit(torture.report())


if __name__ == "__main__":
    main()
