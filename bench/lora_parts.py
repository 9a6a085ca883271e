#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lora_parts.py PART FOLDER: one part of h200-lora.sh, which has the parts and says what each is; rows of its table on stdout.

Exit code 1: a number is not what is asked for, or could not be measured. What is compared is of one run of the same machine. Settings are variables, as
h200-lora.sh lists them.
"""
import http.client
import json
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("MEDUSA_BUILD", f"{ROOT}/build")
GPU = os.environ.get("MEDUSA_DEVICE") == "gpu"
RECIPE = f"models/recipes/{os.environ.get('RECIPE', 'qwen1.5-4b')}.yaml"
PROCESSES, STREAMS, ADAPTERS, RANK = (int(os.environ.get(name, default)) for name, default in
                                      (("PROCESSES", 8), ("STREAMS", 32), ("ADAPTERS", 64), ("RANK", 16)))
STARTS, SECONDS, PATIENCE = int(os.environ.get("STARTS", 5)), float(os.environ.get("SECONDS_EACH", 5)), 120
CONTEXT, BLOCK = int(os.environ.get("MAX_CONTEXT", 512)), 16
failures = 0


class Failed(Exception):
    pass


def row(what, measured, bar, reached):
    """reached: None if there is no bar."""
    global failures
    failures += reached is False
    print(f"| {what} | {measured} | {bar} | {'-' if reached is None else 'yes' if reached else '**no**'} |", flush=True)


def used():
    """Bytes of the device that all processes have."""
    if GPU:
        said = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
        return int(said.stdout) << 20
    if not os.path.exists(os.environ["HOSTCUDA_SHARED"]):
        return 0
    with open(os.environ["HOSTCUDA_SHARED"], "rb") as ledger:
        return sum(struct.unpack("<2048Q", ledger.read(128 * 16 * 8))[::16])


def mb(count):
    return f"{count / 1e6:,.0f} MB"


def settled():
    """What is in use once it has not changed for some looks: memory of processes that have ended goes a moment later."""
    last, same = used(), 0
    while same < 4:
        time.sleep(0.25)
        now = used()
        same, last = (same + 1 if now == last else 0), now
    return last


class Engine:
    """llama-engine that serves; `before`: a command before it."""
    engines = []

    def __init__(self, folder, *options, before=(), recipe=RECIPE):
        Engine.engines.append(self)
        self.port, self.log = random.randrange(20000, 32000), f"{folder}/engine{len(Engine.engines)}.log"
        self.began = time.monotonic()
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*before, f"{BUILD}/models/llama/llama-engine", "--recipe", recipe, "--max-context", str(CONTEXT), "--serve",
                                             f"127.0.0.1:{self.port}", "--served-name", "base", *options], stdout=log, stderr=log, cwd=ROOT)
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() - self.began > PATIENCE:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise Failed(f"an engine is not ready (exit code {self.process.poll()}): {log.read()[-300:].strip()}")
            time.sleep(0.02)

    def healthy(self):
        try:
            return self.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def marks(self):
        """When the lines of its start were printed, in ms since that."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return {name: float(ms) for ms, name in re.findall(r"^ *([0-9.]+) ms  (\w+):", log.read(), re.M)}

    def weights(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return float(re.search(r"weights: ([0-9.]+) MB", log.read())[1]) * 1e6

    def stream(self, model, tokens, times=None):
        """Asks for tokens; appends when each came. False: it was refused or broke off."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        times = [] if times is None else times
        try:
            connection.request("POST", "/v1/completions", json.dumps({"model": model, "prompt": [5, 6, 7, 8], "max_tokens": tokens, "stream": True, "ignore_eos": True,
                                                                      "temperature": 0, "return_token_ids": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                print(f"{model}: {answer.status} {answer.read(200)}", file=sys.stderr)
                return False
            for line in answer:
                if line.startswith(b"data: {"):
                    times += [time.monotonic()] * sum(len(choice.get("token_ids") or []) for choice in json.loads(line[6:]).get("choices", []))
            if len(times) < tokens:
                print(f"{model}: {len(times)} tokens instead of {tokens}", file=sys.stderr)
            return len(times) >= tokens
        except (OSError, http.client.HTTPException) as error:
            print(f"{model}: {error!r}", file=sys.stderr)
            return False
        finally:
            connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Broker:
    brokers = []

    def __init__(self, folder):
        Broker.brokers.append(self)
        os.environ["MEDUSA_BACKBONE"] = f"{folder}/backbone.sock"
        with open(f"{folder}/backbone.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([f"{BUILD}/bin/medusa-backbone", "run", "--keep"], stdout=log, stderr=log)
        began = time.monotonic()
        while not os.path.exists(os.environ["MEDUSA_BACKBONE"]):
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE:
                raise Failed("medusa-backbone is not ready")
            time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def together(engines_and_models, tokens):
    """(tokens a second of all, times between two tokens) of streams that begin at one time; each is asked again until SECONDS have passed."""
    began, gaps, counts, lost = time.monotonic(), [], [], []

    def one(engine, model):
        while time.monotonic() - began < SECONDS:
            times = []
            if not engine.stream(model, tokens, times):
                lost.append(model)
                return
            gaps.extend(b - a for a, b in zip(times, times[1:]))
            counts.append(len(times))

    threads = [threading.Thread(target=one, args=pair) for pair in engines_and_models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if lost:
        raise Failed(f"{len(lost)} streams were refused or broke off, the first one of {lost[0]}")
    return sum(counts) / (time.monotonic() - began), gaps


# ---- parts -----------------------------------------------------------------------------------------------------------


def backbone(folder):
    """Processes of functions of their own on one backbone."""
    options = ["--batches", "1,8", "--kv-blocks", str(max(64, CONTEXT // BLOCK * 2))]
    run = [f"{BUILD}/models/llama/llama-engine", "--recipe", RECIPE, "--max-context", str(CONTEXT), *options, "--share", "q", "--tokens"]
    broker = Broker(folder)
    before = settled()
    alone = Engine(folder, *options)
    weights, own = alone.weights(), settled() - before
    alone.stop()
    own -= weights
    artifact = f"{folder}/backbone.medusa"
    made = subprocess.run([f"{BUILD}/bin/medusa-capture", "-o", artifact, "--", *run, "16", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    restores = [f"{BUILD}/bin/medusa-restore", artifact, "--"] if made.returncode == 0 else []
    if not restores:
        print(f"medusa-capture: {made.returncode}: {made.stderr[-600:]}", file=sys.stderr)
    engines = [Engine(folder, *options, "--share", "q", before=restores) for _ in range(PROCESSES)]
    all_used, wanted = settled() - before, weights + PROCESSES * own
    row(f"device memory of {PROCESSES} processes on one backbone, and one backbone + {PROCESSES} x what one has besides", f"{mb(all_used)} / {mb(wanted)} = {all_used / wanted:.3f}",
        "1.05", all_used <= 1.05 * wanted)
    row("the same without sharing, from one process", f"{mb(PROCESSES * (weights + own))}: {PROCESSES * (weights + own) / all_used:.2f} x", "-", None)
    for engine in engines:
        engine.stop()
    reports, walls = [], []
    for number in range(STARTS):
        report, began = f"{folder}/start{number}.json", time.monotonic()
        done = subprocess.run([*restores, *run, "1", "--quiet", "--report", report], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        walls.append(time.monotonic() - began)
        if done.returncode:
            raise Failed(f"a process that attaches ends with {done.returncode}: {done.stderr[-200:].strip()}")
        with open(report, encoding="utf-8") as file:
            reports.append(json.load(file))
    stages = [report["stages_ms"] for report in reports]
    attach = statistics.median(s["weights"] for s in stages)
    row(f"attaching {mb(weights)} of weights, median of {STARTS} starts", f"{attach:.1f} ms", "30 ms", attach <= 30)
    parts = ", ".join(f"{name} {statistics.median(s.get(name, 0) for s in stages):.0f}" for name in ("context", "engine", "weights", "kv", "first_graph_ready", "ready", "first_token"))
    row("of such a start, ms: the device's context, the engine without its weights, them, KV memory; from the start to a first graph and to all; the token", parts, "-", None)
    restored = reports[0]["graphs_restored"]
    rest = statistics.median(s["ready"] - sum(s[k] for k in ("context", "engine", "weights", "kv") if k in s) for s in stages)
    row(f"graphs after that: {restored} restored, {reports[0]['graphs_live']} live", f"{rest:.1f} ms", "-", None if restored else False)
    row(f"a process that attaches and restores, from its start to its end after one token, median of {STARTS}", f"{statistics.median(walls):.3f} s", "0.5 s",
        statistics.median(walls) <= 0.5)
    broker.stop()


def template(folder):
    """From the start of a function's process to its first token, in Python, from a warm template."""
    import worker_models
    broker = Broker(folder)
    os.environ["PYTHONPATH"] = f"{ROOT}/models/torch:{ROOT}/bench"
    command = f"{sys.executable} {ROOT}/bench/worker_torch_engine.py ${{PORT}} {ROOT}/{RECIPE} - q"
    warmed = f"{sys.executable} -m medusa.template torch torch.nn.functional http.server gguf_weights"
    own = {"swap": "off", "template": "torch"}
    os.makedirs(f"{folder}/lib", exist_ok=True)  # only this one: the other libraries of a packed tree may be older than PyTorch's
    os.symlink(f"{BUILD}/lib/libmedusa.so.0", f"{folder}/lib/libmedusa.so.0")
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (f"{folder}/lib", os.environ.get("LD_LIBRARY_PATH"))))
    names = [f"model{i}" for i in range(STARTS + 1)]
    worker = worker_models.Worker(f"{folder}/template", f"startPort: {random.randrange(20000, 30000)}\nhealthCheckTimeout: 120\nmedusa:\n  policies: {{preloading: none}}\n"
                                  f"  templates: {{torch: {{cmd: '{warmed}'}}}}\nmodels:\n" +
                                  "".join(f"  {name}: {{cmd: '{command}', env: ['MEDUSA_BACKBONE={os.environ['MEDUSA_BACKBONE']}'], medusa: {json.dumps(own)}}}\n" for name in names))
    log, began = f"{folder}/template/state/template~torch.log", time.monotonic()
    while not os.path.exists(log) or "ready:" not in open(log, encoding="utf-8").read():
        if time.monotonic() - began > PATIENCE:
            raise Failed("the template is not ready")
        time.sleep(0.1)
    times = []
    for number in range(len(names)):
        answer = worker_models.ask(worker.port, number, [5, 6, 7], 1)
        if isinstance(answer, str):
            worker.stop()
            with open(f"{folder}/template/state/{names[number]}.log", encoding="utf-8", errors="replace") as said:
                raise Failed(f"a function from the template: {answer}; its log: {said.read()[-400:].strip()}")
        times.append(answer[0])
    worker.stop()
    broker.stop()
    row(f"first token of a new function from a warm template (PyTorch, weights of the backbone), through the worker, median of {STARTS}",
        f"{statistics.median(times[1:]):.3f} s", "0.5 s", statistics.median(times[1:]) <= 0.5)
    marks = {}
    for name in names[1:]:
        with open(f"{folder}/template/state/{name}.log", encoding="utf-8", errors="replace") as said:
            for seconds, what in re.findall(r"^([\d.]+) s: ([^\n]*)", said.read(), re.M):
                marks.setdefault(re.sub(r"[\d.]+ GB", "the weights", what), []).append(float(seconds))
    row("of that, s from the engine's first line on, medians", ", ".join(f"{what} {statistics.median(values):.2f}" for what, values in marks.items()) or "not said", "-", None)
    row("the same of the first one, which fills the backbone", f"{times[0]:.3f} s", "-", None)


def make_adapters(folder):
    """Paths of adapters of the same values, each read for itself."""
    made = subprocess.run([sys.executable, "tests/llama/make_adapter.py", "--model", RECIPE, "--rank", str(RANK), "--alpha", str(RANK), "--seed", "1", "--type", "bf16", "--peft",
                           f"{folder}/adapter"], cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        raise Failed(f"make_adapter.py: {made.stderr[-200:].strip()}")
    return f"{folder}/adapter"


def serving(folder):
    """One engine with adapters: what comes into a slot while others go on, and batches that mix adapters."""
    path = make_adapters(folder)
    size = sum(os.path.getsize(f"{path}/{name}") for name in os.listdir(path))
    given = [word for i in range(ADAPTERS) for word in ("--lora", f"a{i}={path}")]
    blocks = str(STREAMS * CONTEXT // BLOCK + 64)
    engine = Engine(folder, "--batches", "1,2,4,8,16,32" if STREAMS == 32 else f"1,{STREAMS}", "--kv-blocks", blocks, "--lora-slots", str(ADAPTERS), "--max-lora-rank", str(RANK),
                    "--lora-bytes", str(2 * ADAPTERS * size + (1 << 30)), *given)
    tokens = min(CONTEXT - 8, 128)
    engine.stream("base", 8)
    # slots are empty: a first request brings its adapter from host memory, the second one finds it
    streams = [(engine, "base")] * (STREAMS - 1)
    _, calm = together(streams, tokens)
    firsts, seconds, stop = [], [], threading.Event()

    def new_ones():
        for i in range(ADAPTERS):
            for found in (firsts, seconds):
                time.sleep(random.uniform(0, SECONDS / ADAPTERS / 2))  # else the second one would begin with a step, and wait for all of it
                times, began = [], time.monotonic()
                if (stop.is_set() and seconds) or not engine.stream(f"a{i}", 1, times):
                    return
                found.append(times[0] - began)

    asker = threading.Thread(target=new_ones)
    asker.start()
    _, busy = together(streams, tokens)
    stop.set()
    asker.join()
    came = [a - b for a, b in zip(firsts, seconds)]
    if not came:
        raise Failed("no adapter came into a slot")
    row(f"an adapter of rank {RANK} from host memory ({mb(size)}), {len(came)} times while {len(streams)} streams go on: its first token later than of one in a slot, median",
        f"{1000 * statistics.median(came):.1f} ms", "10 ms", statistics.median(came) <= 0.010)
    ratio = percentile(busy, 0.99) / percentile(calm, 0.99)
    row("times between the streams' tokens meanwhile, 99th percentile, against without", f"{1000 * percentile(busy, 0.99):.1f} / {1000 * percentile(calm, 0.99):.1f} ms = {ratio:.2f}",
        "1.2", ratio <= 1.2)
    mixed = [(engine, f"a{i % ADAPTERS}") for i in range(STREAMS)]
    together(mixed, 4)  # all are in slots
    rates, gaps = {"base": [], "mixed": []}, {"base": [], "mixed": []}
    for name in ("base", "mixed", "mixed", "base"):
        rate, between = together(mixed if name == "mixed" else [(engine, "base")] * STREAMS, tokens)
        rates[name].append(rate)
        gaps[name] += between
    rate = statistics.mean(rates["mixed"]) / statistics.mean(rates["base"])
    row(f"{ADAPTERS} adapters in one engine, {STREAMS} streams of as many adapters, against the base model: tokens a second",
        f"{statistics.mean(rates['mixed']):,.0f} / {statistics.mean(rates['base']):,.0f} = {rate:.3f}", "0.92", rate >= 0.92)
    ratio = statistics.median(gaps["mixed"]) / statistics.median(gaps["base"])
    row("the same: time for a token, median", f"{1000 * statistics.median(gaps['mixed']):.2f} / {1000 * statistics.median(gaps['base']):.2f} ms = {ratio:.3f}", "1.05", ratio <= 1.05)
    engine.stop()


def peak(folder):
    """Two functions in one budget: the most sequences at one time, and tokens a second, with weights of their own and with one backbone."""
    batches = f"1,{STREAMS}"
    before = settled()
    small = Engine(folder, "--batches", batches, "--kv-blocks", "64")
    weights, whole = small.weights(), settled() - before
    small.stop()
    larger = Engine(folder, "--batches", batches, "--kv-blocks", "1088")
    block = max(1, (settled() - before - whole) / 1024)
    larger.stop()
    own = max(0, whole - weights - 64 * block)  # context, graphs
    budget = float(os.environ.get("BUDGET", 2.6 * weights))
    sequence = -(-(4 + min(CONTEXT - 8, 128)) // BLOCK)
    found = {}
    for name in ("own", "shared"):
        for_kv = (budget - (2 if name == "own" else 1) * weights - 2 * own) / 2
        each = min(STREAMS, int(for_kv / block) // sequence)
        if each < 1:
            raise Failed(f"{mb(budget)} leave no room for a sequence ({name}): give a larger BUDGET")
        broker = Broker(folder) if name == "shared" else None
        options = ["--batches", batches, "--kv-blocks", str(each * sequence + 1), *(["--share", "q"] if broker else [])]
        engines = [Engine(folder, *options) for _ in range(2)]
        rate, _ = together([(engine, "base") for engine in engines for _ in range(each)], min(CONTEXT - 8, 128))
        found[name] = (2 * each, rate, settled() - before)
        for engine in engines:
            engine.stop()
        if broker:
            broker.stop()
    (few, slow, one), (many, fast, other) = found["own"], found["shared"]
    row(f"two functions in {mb(budget)}: sequences at one time, with one backbone and without", f"{many} / {few} = {many / few:.2f} x", "-", None)
    row("the same: tokens a second", f"{fast:,.0f} / {slow:,.0f} = {fast / slow:.2f} x", "-", None)
    row("the same: device memory, within the budget", f"{mb(other)}, {mb(one)}", mb(budget), max(one, other) <= 1.02 * budget)


PARTS = {"backbone": backbone, "template": template, "serving": serving, "peak": peak}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PARTS:
        sys.exit(f"usage: lora_parts.py {'|'.join(PARTS)} FOLDER")
    os.makedirs(sys.argv[2], exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))
    try:
        PARTS[sys.argv[1]](os.path.abspath(sys.argv[2]))
    except (Failed, subprocess.SubprocessError, OSError) as error:
        why = " ".join(str(error).split())[:300].replace("|", "/")
        row(f"{sys.argv[1]}: the rest of it", f"not measured: {why}", "-", False)
    finally:
        for one in Engine.engines + Broker.brokers:
            if one.process.poll() is None:
                one.process.kill()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
