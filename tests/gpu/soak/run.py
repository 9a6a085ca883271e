# SPDX-License-Identifier: Apache-2.0
"""The soak: random engines captured, verified, and restored three times on poisoned memory; all answers are compared."""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "../../.."))
sys.path.insert(0, HERE)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="stop taking up captures after so long (0: --captures decides)")
    parser.add_argument("--captures", type=int, default=500)
    parser.add_argument("--restores", type=int, default=3, help="fresh processes for each artifact")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="number of the first capture: to repeat one of a run")
    parser.add_argument("--numbers", help="comma-separated: these captures alone, as a run with the same seed made them")
    parser.add_argument("--families", help="comma-separated; default: all")
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--out", default=os.path.join(TOP, "build/tests/gpu/soak"))
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine; engines use them by turns")
    parser.add_argument("--limit", type=int, default=240, help="seconds for one command")
    return parser.parse_args()


class Templates:
    """A process for each way of being preloaded, from which engines are forked."""

    def __init__(self, folder, build):
        self.folder, self.processes = folder, []
        for role in ("none", "capture", "restore"):
            path = os.path.join(folder, role)
            for leftover in (path, path + ".new"):
                if os.path.exists(leftover):
                    os.unlink(leftover)
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            if role != "none":
                environment["LD_PRELOAD"] = os.path.join(os.path.realpath(build), "lib", f"libmedusa-{role}.so")
            with open(path + ".log", "w", encoding="utf-8") as log:
                self.processes.append(subprocess.Popen([sys.executable, os.path.join(HERE, "template.py"), path],
                                                       env=environment, stdout=log, stderr=log, start_new_session=True))

    def wait(self, seconds):
        until = time.monotonic() + seconds
        for role in ("none", "capture", "restore"):
            while not os.path.exists(os.path.join(self.folder, role)):
                if time.monotonic() > until or any(process.poll() is not None for process in self.processes):
                    log = open(os.path.join(self.folder, role + ".log"), encoding="utf-8").read()
                    sys.exit(f"soak: the template for {role} did not start: {log[-2000:]}")
                time.sleep(0.05)

    def stop(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Soak:
    def __init__(self, options, families):
        self.options, self.families = options, families
        self.until = time.monotonic() + options.hours * 3600 if options.hours else None
        self.lock, self.rows = threading.Lock(), []

    # ---- one command ----

    def command(self, words, log, environment):
        with open(log, "ab") as out:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                       env={**os.environ, **environment})
            try:
                return process.wait(self.options.limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return 124

    def engine(self, row, out, *more):
        program = ["engine.py"] if row.get("alone") else ["client.py", self.options.out]
        return [sys.executable, *([] if row.get("alone") else ["-S"]), os.path.join(HERE, program[0]), *program[1:],
                "--family", row["family"], "--seed", str(row["seed"]), "--out", out, *more]

    # ---- one artifact ----

    def draw(self, number):
        """The families by turns, each round in another order."""
        turn = random.Random(f"{self.options.seed}/{number // len(self.families)}")
        order = turn.sample(self.families, len(self.families))
        choose = random.Random(f"{self.options.seed}/{number}/engine")
        gpus = [(number + i) % self.options.gpus for i in range(self.options.gpus)]
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus if choose.random() < 0.5 else gpus[:1]))}
        if choose.random() < 0.02:  # a process then loads some 2,000 images
            environment["CUDA_MODULE_LOADING"] = "EAGER"
        if choose.random() < 0.15:
            environment["CUBLAS_WORKSPACE_CONFIG"] = choose.choice((":4096:8", ":16:8"))
        flags = ["--store-images"] if choose.random() < 0.15 else []
        return {"number": number, "family": order[number % len(order)], "seed": choose.randrange(1, 1 << 30),
                "environment": environment, "flags": flags}

    def one(self, number):
        row = self.draw(number)
        folder = os.path.join(self.options.out, f"{number:05d}-{row['family']}")
        os.makedirs(folder, exist_ok=True)
        start = time.monotonic()
        try:
            self.carry_out(row, folder)
        except Exception as error:  # the soak goes on, and counts it
            row["broken"] = f"{type(error).__name__}: {error}"
        row["seconds"] = round(time.monotonic() - start, 1)
        with self.lock:
            self.rows.append(row)
            with open(os.path.join(self.options.out, "rows.jsonl"), "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            self.progress()
        if not (row.get("wrong") or row.get("hurt") or row.get("broken")):
            artifact = os.path.join(folder, "a.medusa")
            if os.path.exists(artifact):
                os.unlink(artifact)

    def carry_out(self, row, folder):
        log, path = os.path.join(folder, "log"), os.path.join(folder, "a.medusa")
        live = os.path.join(folder, "live.json")
        if self.command(self.engine(row, live), log, row["environment"]):
            row["left_out"] = "by itself, this engine cannot be captured: " + last_line(log)
            return
        row["live"] = load(live)
        captured = os.path.join(folder, "captured.json")
        self.capture(row, folder, path, captured)
        if row["capture"] not in (0, 1):
            # A library that was loaded before the command has not heard what the command asks: which test to leave out.
            row["alone"] = True
            self.capture(row, folder, path, captured)
        said = os.path.join(folder, "capture.log")
        if row["capture"] not in (0, 1):
            row["lost"] = last_line(said)
        if os.path.exists(captured):
            self.compare(row, folder, "capture", load(captured))
        if os.path.exists(path):
            row["restores"] = [self.restore(row, folder, path, i) for i in range(self.options.restores)]
        row.pop("live")

    def capture(self, row, folder, path, captured):
        said, tool = os.path.join(folder, "capture.log"), os.path.join(self.options.build, "bin/medusa-capture")
        open(said, "w", encoding="utf-8").close()
        row["capture"] = self.command([tool, "-o", path, *row["flags"], "--", *self.engine(row, captured)], said,
                                      row["environment"])
        row["refused"] = refusals(said)

    def restore(self, row, folder, path, i):
        out, log = os.path.join(folder, f"restored{i}.json"), os.path.join(folder, f"restore{i}.log")
        code = self.command([os.path.join(self.options.build, "bin/medusa-restore"), path, "--",
                             *self.engine(row, out, "--artifact", path, "--poison", str(i + 1))], log, row["environment"])
        if code or not os.path.exists(out):
            row.setdefault("hurt", []).append(f"restore {i} ended with {code}: {last_line(log)}")
            return {"code": code}
        found = load(out)
        self.compare(row, folder, f"restore {i}", found)
        return {"code": code, "restored": sum(graph["restored"] for graph in found["graphs"].values()),
                "graphs": len(found["graphs"]),
                "reasons": sorted({graph["reason"] for graph in found["graphs"].values() if graph["reason"]})}

    def compare(self, row, folder, where, found):
        """Restored graphs that answer otherwise are wrong; live ones would mean that the engine was hurt."""
        different = [name for name in row["live"]["outputs"] if found["outputs"].get(name) != row["live"]["outputs"][name]]
        if not different:
            return
        again = self.live_again(row, folder)
        for name in different:
            if any(other["outputs"].get(name) != row["live"]["outputs"][name] for other in again):
                row["nondeterministic"] = row.get("nondeterministic", 0) + 1
                continue
            graph = found["graphs"].get(name.rsplit(".", 1)[0], {})
            row.setdefault("wrong" if graph.get("restored") else "hurt", []).append(f"{where}: {name} differs from live")

    def live_again(self, row, folder):
        """What differs may differ between two live runs, too: then the engine's own answers are not fixed."""
        if "again" not in row:
            row["again"] = []
            for i in range(3):
                out = os.path.join(folder, f"again{i}.json")
                if not self.command(self.engine(row, out), os.path.join(folder, "log"), row["environment"]):
                    row["again"].append(load(out))
        return row["again"]

    # ---- all ----

    def progress(self):
        done = len(self.rows)
        if done % 25 == 0:
            wrong, hurt = (sum(bool(row.get(kind)) for row in self.rows) for kind in ("wrong", "hurt"))
            print(f"soak: {done} engines, {wrong} wrong, {hurt} hurt", flush=True)

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            first, running = self.options.first, set()
            numbers = (map(int, self.options.numbers.split(",")) if self.options.numbers
                       else range(first, first + self.options.captures))
            for number in numbers:
                if self.until is not None and time.monotonic() >= self.until:
                    break
                running.add(pool.submit(self.one, number))
                if len(running) >= self.options.jobs + 2:
                    _, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            concurrent.futures.wait(running)
        with open(os.path.join(self.options.out, "kept.txt"), "w", encoding="utf-8") as kept:
            for row in self.rows:
                row.pop("again", None)
                if any(row.get(kind) for kind in ("wrong", "hurt", "broken", "lost")):
                    kept.write(f"{row['number']:05d}-{row['family']}\n")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:300] if lines else ""


def refusals(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line.split("refused: ", 1)[1].strip() for line in file if line.startswith("medusa-capture: refused: ")]


def reason_of(text):
    """Reasons without what differs from graph to graph."""
    text = re.sub(r"^\(.*?, \d+\): ", "", text)
    text = re.sub(r"0x[0-9a-f]+", "X", text)
    text = re.sub(r"graph [^ :]+/\d+", "graph G", text)
    return re.sub(r"\d+", "N", text)[:150]


def summarize(rows, out):
    """A short table last."""
    captured = [row for row in rows if "capture" in row]
    restores = [restore for row in captured for restore in row.get("restores", ())]
    asked = sum(restore.get("graphs", 0) for restore in restores)
    given = sum(restore.get("restored", 0) for restore in restores)
    refused = collections.Counter(reason_of(text) for row in captured for text in row["refused"])
    live = collections.Counter(reason_of(reason) for restore in restores for reason in restore.get("reasons", ()))
    lost = collections.Counter(reason_of(row["lost"]) for row in captured if "lost" in row)
    left = collections.Counter(reason_of(row["left_out"]) for row in rows if "left_out" in row)

    def lines(title, counter):
        yield from ([f"\n{title}:"] if counter else [])
        yield from (f"  {count:5}  {text}" for text, count in counter.most_common(40))

    text = [f"engines drawn: {len(rows)}, of {len({row['family'] for row in rows})} families; left out: {sum(left.values())}",
            f"captures: {len(captured)} with two runs each; artifacts: {sum('restores' in row for row in captured)}; "
            f"whole (no graph refused): {sum(row['capture'] == 0 for row in captured)}; lost: {sum(lost.values())}",
            f"restores in fresh processes on poisoned memory: {len(restores)}; graphs asked for: {asked}, restored: {given}",
            f"wrong answers: {sum(bool(row.get('wrong')) for row in rows)}; engines hurt: {sum(bool(row.get('hurt')) for row in rows)}; "
            f"broken: {sum('broken' in row for row in rows)}; "
            f"engines whose own answers vary: {sum(bool(row.get('nondeterministic')) for row in rows)}"]
    text += lines("left out (the engine itself fails, or cannot be captured)", left)
    text += lines("graphs refused by a capture, by reason", refused)
    text += lines("captured live in a restore, by reason (one a process)", live)
    text += lines("captures that gave no artifact", lost)
    for row in rows:
        for kind in ("wrong", "hurt", "broken"):
            if row.get(kind):
                text.append(f"{kind}: {row['number']} {row['family']} seed {row['seed']} {row['environment']} {row['flags']}: "
                            f"{row[kind] if isinstance(row[kind], str) else '; '.join(row[kind][:3])}"[:400])
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(text) + "\n")
    print("\n".join(text))


def main():
    options = parse()
    import families

    os.makedirs(options.out, exist_ok=True)
    chosen = options.families.split(",") if options.families else families.names()
    templates = Templates(options.out, options.build)
    soak = Soak(options, chosen)

    def cut_short(number, _frame):
        templates.stop()
        summarize(list(soak.rows), os.path.join(options.out, "summary.txt"))
        print(f"soak: cut short by {signal.Signals(number).name}: engines under way are not counted", flush=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, cut_short)
    try:
        templates.wait(300)
        soak.run()
    finally:
        templates.stop()
        summarize(soak.rows, os.path.join(options.out, "summary.txt"))
    bad = any(row.get("wrong") or row.get("hurt") or "broken" in row for row in soak.rows)
    return 1 if bad or not soak.rows else 0


if __name__ == "__main__":
    sys.exit(main())
