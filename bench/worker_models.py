#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many models behind one medusa-worker, on a GPU that holds a few of them: what the same requests wait for, by how models come and go.

worker_models.py FOLDER VARIANT... [options]. Each variant is a worker of its own that gets the same requests at the same times: arrivals, prompts
and answers as long as a trace says (CSV: TIMESTAMP,ContextTokens,GeneratedTokens), models by Zipf's law. Prints a table, and writes
FOLDER/results.json; h200-worker.sh runs it on a GPU. Engines are the reference engine; the device is that of the environment
(tests/e2e/device.sh), or the GPU with MEDUSA_DEVICE=gpu.
"""
import argparse
import csv
import datetime
import http.client
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("MEDUSA_BUILD", f"{ROOT}/build")
PATIENCE = 180 # seconds for an answer
FIRST = [5, 6, 7], 2 # a prompt, and how many tokens are wanted
VARIANTS = {
    "fits": ("all fit: an engine for two names", {"swap": "off"}, {}),
    "ours": ("ours", {"swap": "on", "artifact": True}, {}),
    "cold": ("cold starts without Medusa", {"swap": "off"}, {}),
    "artifact": ("cold starts with artifacts", {"swap": "off", "artifact": True}, {}),
    "checkpoint": ("swapped by the driver's checkpoints", {"swap": "checkpoint"}, {}),
    "lru": ("swapped, FIFO and LRU", {"swap": "on", "artifact": True},
            {"queueing": "fifo", "placement": "first", "eviction": "lru", "batching": "medusa", "preloading": "none"}),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("variants", nargs="+", choices=VARIANTS)
    parser.add_argument("--recipe", default="models/recipes/tiny.yaml")
    parser.add_argument("--trace", required=True)
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--weights", type=int, default=0, help="different weights among them; 0: all differ")
    parser.add_argument("--files", action="store_true", help="engines read their weights from files, instead of making them on the device")
    parser.add_argument("--memory", required=True, help="device memory of a model, such as 14.8GB")
    parser.add_argument("--budget", required=True, help="device memory for all of them")
    parser.add_argument("--pool", help="host memory for all that is swapped; without it each engine has its own, twice its size")
    parser.add_argument("--engine", default="", help="further options of llama-engine")
    parser.add_argument("--max-context", type=int, default=2048)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2, help="requests a second")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--zipf", type=float, default=1)
    parser.add_argument("--slo", type=float, default=1, help="seconds to the first token")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def draw(options):
    """The requests, as (seconds from the beginning, model, prompt, tokens)."""
    rows = []
    with open(options.trace, newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            when = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            rows.append((when, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
    rng = random.Random(options.seed)
    count = min(len(rows), int(options.rate * options.seconds))
    rows = rows[:count]
    spread = options.seconds / max(rows[-1][0] - rows[0][0], 1e-9)
    weights = [1 / (i + 1) ** options.zipf for i in range(options.models)]
    requests = []
    for when, context, generated in rows:
        tokens = max(1, min(generated, options.max_tokens))
        context = max(1, min(context, options.max_context - tokens))
        prompt = [rng.randrange(3, options.vocabulary) for _ in range(context)]
        requests.append(((when - rows[0][0]) * spread, rng.choices(range(options.models), weights)[0], prompt, tokens))
    return requests


def engines_of(options, variant):
    return options.models if variant != "fits" else (options.models + 1) // 2


def seed_of(options, variant, model):
    """Of the model's weights."""
    return 1 + model % engines_of(options, variant) % (options.weights or options.models)


def engine(options, seed):
    weights = f"--model {options.folder}/weights{seed}.gguf" if options.files else f"--recipe {ROOT}/{options.recipe} --seed {seed}"
    return f"{BUILD}/models/llama/llama-engine {weights} --served-name reference --quiet {options.engine}"


def configuration(options, variant, port):
    _, model_keys, policies = VARIANTS[variant]
    engines = engines_of(options, variant)
    lines = [f"startPort: {port}", "healthCheckTimeout: 120", "medusa:"]
    if variant != "fits":
        lines += [f"  gpus: [{{memory: {options.budget}}}]"]
    if options.pool and model_keys["swap"] == "on":
        lines += [f"  pool_bytes: {options.pool}"]
    if policies:
        lines += [f"  policies: {json.dumps(policies)}"]
    lines += ["models:"]
    for i in range(engines):
        seed = seed_of(options, variant, i)
        command = f"{engine(options, seed)} --serve 127.0.0.1:${{PORT}}"
        own = {"memory": options.memory, "slo": f"{options.slo}s", "goal": "first_token", "swap": model_keys["swap"]}
        if model_keys.get("artifact"):
            own["artifact"] = f"{options.folder}/engine{seed}.medusa"
        model = {"cmd": command, "useModelName": "reference", "concurrencyLimit": 64, "medusa": own}
        if variant == "fits":
            model["aliases"] = [f"model{i + engines}"] if i + engines < options.models else []
        lines += [f"  model{i}: {json.dumps(model)}"]
    return "\n".join(lines) + "\n"


class Worker:
    def __init__(self, folder, text):
        os.makedirs(f"{folder}/run", 0o700, exist_ok=True)
        self.folder = folder
        with open(f"{folder}/config.yaml", "w", encoding="utf-8") as file:
            file.write(text)
        environment = {**os.environ, "XDG_RUNTIME_DIR": f"{folder}/run", "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
        with open(f"{folder}/err", "w", encoding="utf-8") as err:
            self.process = subprocess.Popen([f"{BUILD}/bin/medusa-worker", "--config", f"{folder}/config.yaml", "--listen", "127.0.0.1:0",
                                             "--state", f"{folder}/state", "--control", f"{folder}/control"],
                                            stdout=subprocess.PIPE, stderr=err, text=True, env=environment)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit(f"the worker does not listen: see {folder}/err")
        self.port = int(line.rsplit(":", 1)[1])

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        sums = {}
        for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? ([0-9.e+]+)$", text, re.M):
            sums[name] = sums.get(name, 0) + float(value)
        return sums

    def unloaded(self, count):
        """Models without memory on the GPU, stopped or swapped out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/running")
        ready = {r["model"] for r in json.load(connection.getresponse())["running"] if r["state"] == "ready"}
        connection.close()
        return [i for i in range(count) if f"model{i}" not in ready]

    def unload(self, model):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", f"/api/models/unload/{model}")
        connection.getresponse().read()
        connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)


def ask(port, model, prompt, tokens):
    """(seconds to the first token, seconds in all, tokens); a text instead that says what went wrong."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/completions", json.dumps({"model": f"model{model}", "prompt": prompt, "max_tokens": tokens, "stream": True,
                                                                  "ignore_eos": True, "temperature": 0, "return_token_ids": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            return f"{response.status}: {response.read(300)!r}"
        first, got = None, []
        for line in response:
            if line.startswith(b"data: [DONE]"):
                if len(got) != tokens:
                    return f"{len(got)} tokens instead of {tokens}"
                return first, time.monotonic() - began, got
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return f"in the stream: {event['error']}"
                for choice in event.get("choices", []):
                    new = choice.get("token_ids") or []
                    if new and first is None:
                        first = time.monotonic() - began
                    got += new
        return "the stream ended without [DONE]"
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()


def run(options, variant, requests):
    folder = f"{options.folder}/{variant}"
    worker = Worker(folder, configuration(options, variant, random.randrange(20000, 30000)))
    answers = [None] * len(requests)
    warmed = time.monotonic()
    for model in reversed(range(options.models)): # each engine has been there once, and the most wanted ones are there now
        answer = ask(worker.port, model, *FIRST)
        if isinstance(answer, str):
            worker.stop()
            sys.exit(f"{variant}: model{model} cannot answer: {answer}; see {folder}/err and {folder}/state")
    warmed = time.monotonic() - warmed
    before, began = worker.metrics(), time.monotonic()

    def one(i):
        when, model, prompt, tokens = requests[i]
        time.sleep(max(0, began + when - time.monotonic()))
        answers[i] = ask(worker.port, model, prompt, tokens)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    after = worker.metrics()
    alone = [ask(worker.port, model, *FIRST) for model in worker.unloaded(options.models)[:3] or range(3)]
    worker.stop()
    good = [a for a in answers if not isinstance(a, str)]
    for answer in sorted({a for a in answers if isinstance(a, str)})[:5]:
        print(f"{variant}: lost: {answer}", file=sys.stderr)
    changed = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    return {"variant": variant, "warm_s": warmed, "seconds": took, "lost": len(answers) - len(good), "alone": [a[0] for a in alone if not isinstance(a, str)], "ttft": [a[0] for a in good], "total": [a[1] for a in good],
            "tokens": [a[2] if not isinstance(a, str) else None for a in answers], "changed": changed}


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def table(options, requests, results):
    lines = [f"| | TTFT median | 90 % | 99 % | longest | within {options.slo:g} s | 99 % / all fit | lost | loads | alone | the same answers |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    base = results[0] if results[0]["variant"] == "fits" else None
    tokens = results[0]["tokens"]
    seeds = {r["variant"]: [seed_of(options, r["variant"], model) for _, model, _, _ in requests] for r in results}
    for r in results:
        count = len(r["ttft"]) + r["lost"]
        ratio = f"{percentile(r['ttft'], .99) / percentile(base['ttft'], .99):.2f}" if base and r is not base else "-"
        alike = [a == b for i, (a, b) in enumerate(zip(r["tokens"], tokens)) if seeds[r["variant"]][i] == seeds[results[0]["variant"]][i]]
        in_time = sum(t <= options.slo for t in r["ttft"])
        loads = r["changed"].get("medusa_worker_scheduler_swaps_total", 0)
        times = [percentile(r["ttft"], part) for part in (.5, .9, .99, 1)]
        lines.append(f"| {VARIANTS[r['variant']][0]} | " + " | ".join(f"{t * 1e3:.0f} ms" for t in times)
                     + f" | {100 * in_time / count:.1f} % | {ratio} | {r['lost']} | {loads:.0f} | {percentile(r['alone'], .5) * 1e3:.0f} ms | {sum(alike)} of {len(alike)} |")
    return "\n".join(lines)


def make_files(options):
    """Weights, several at once."""
    seeds = [s for s in range(1, 1 + (options.weights or options.models)) if not os.path.exists(f"{options.folder}/weights{s}.gguf")]
    began = time.monotonic()
    writers = [subprocess.Popen([sys.executable, f"{os.path.dirname(os.path.abspath(__file__))}/gguf_weights.py", f"{ROOT}/{options.recipe}", str(s),
                                 f"{options.folder}/weights{s}.gguf"]) for s in seeds]
    if any([w.wait() for w in writers]):
        sys.exit("the weights could not be written")
    print(f"weights written in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def capture(options):
    """One artifact for all weights (--second shows that its contents don't depend on them), and a name for each."""
    path, count = f"{options.folder}/engine1.medusa", options.weights or options.models
    command = [f"{BUILD}/bin/medusa-capture", "-o", path, "--second", f"{engine(options, min(2, count))} --serve 127.0.0.1:0", "--",
               *shlex.split(engine(options, 1)), "--serve", "127.0.0.1:0"]
    began = time.monotonic()
    if not os.path.exists(path):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"medusa-capture ended with {done.returncode}:\n{done.stdout[-3000:]}")
        print(f"captured in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    for seed in range(2, 1 + count):
        if not os.path.exists(f"{options.folder}/engine{seed}.medusa"):
            os.link(path, f"{options.folder}/engine{seed}.medusa")


def main():
    options = arguments()
    options.folder = os.path.abspath(options.folder)
    os.makedirs(options.folder, exist_ok=True)
    requests = draw(options)
    if options.files:
        make_files(options)
    if any(VARIANTS[v][1].get("artifact") for v in options.variants):
        capture(options)
    results = []
    for variant in options.variants:
        results.append(run(options, variant, requests))
        print(f"{variant}: warmed in {results[-1]['warm_s']:.1f} s, {results[-1]['seconds']:.1f} s, {len(results[-1]['ttft'])} answers; "
              f"{ {k: v for k, v in results[-1]['changed'].items() if 'scheduler' in k or 'engine' in k or 'swap' in k} }", file=sys.stderr, flush=True)
        with open(f"{options.folder}/results.json", "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "results": results}, file)
    made = "read from files" if options.files else "made on the device"
    print(f"{len(requests)} requests in {options.seconds:g} s, prompts of {sum(len(r[2]) for r in requests) / len(requests):.0f} tokens and answers of "
          f"{sum(r[3] for r in requests) / len(requests):.0f} in the mean; {options.models} models of {options.memory} in {options.budget}; {options.recipe}, weights {made}\n")
    print(table(options, requests, results))


if __name__ == "__main__":
    main()
