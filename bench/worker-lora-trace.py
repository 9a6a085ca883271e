#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scheduler's policies on a trace of LoRA functions, scaled down: medusa-worker with real processes, and medusa-simulate.

worker-lora-trace.py --trace FILE.csv [options]. Engines with adapters, of which the GPU holds some, get the same requests at the same times with
each bundle of policies; then medusa-simulate replays them with the same bundles and the times that the daemon has measured. Prints both orders, and how far
they agree. Arrivals and lengths are those of the trace (TIMESTAMP,ContextTokens,GeneratedTokens, as Azure publishes them); its requests name no
adapter, so they go to adapters by Zipf's law. Engines are tests/worker/engine.py, whose memory is on hostcuda; they compute nothing and wait instead.
Recorded in bench/results/worker-lora-trace.md (--record FILE writes it).
"""
import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("MEDUSA_BUILD", f"{ROOT}/build")
os.environ["PATH"] = f"{BUILD}/bin:{os.environ['PATH']}"
os.environ["LD_LIBRARY_PATH"] = f"{BUILD}/lib/hostcuda:" + os.environ.get("LD_LIBRARY_PATH", "")
sys.path[:0] = [f"{ROOT}/tests/worker", f"{ROOT}/bench"]
import worker_models  # noqa: E402
from daemon import ENGINE, Daemon, free_ports  # noqa: E402

KINDS = ("queueing", "placement", "eviction", "batching", "preloading")
# As simulator/run/policy_bundles.c has them, but for fixed batches: engines batch by themselves, and batching has no effect.
BUNDLES = {
    "medusa": ("medusa", "medusa", "medusa", "medusa", "medusa"),
    "torpor-shared": ("torpor", "torpor", "torpor", "none", "none"),
    "xlora": ("margin", "xlora", "density", "xlora", "xlora"),
    "swapserve": ("swapserve", "early", "swapserve", "none", "none"),
    "fifo-lru": ("fifo", "room", "lru", "none", "none"),
}
MIB = 1 << 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", required=True)
    parser.add_argument("--policies", default=",".join(BUNDLES))
    parser.add_argument("--engines", type=int, default=5)
    parser.add_argument("--adapters", type=int, default=6, help="of each engine")
    parser.add_argument("--slots", type=int, default=3, help="adapters at one time in an engine")
    parser.add_argument("--room", type=int, default=2, help="engines with all of their slots that the GPU has memory for")
    parser.add_argument("--together", type=int, default=4, help="requests at one time in an engine")
    parser.add_argument("--first", type=float, default=0.1, help="seconds to the first token")
    parser.add_argument("--token", type=float, default=0.01, help="seconds for each further one")
    parser.add_argument("--slo", type=float, default=0.6, help="seconds to the first token that are in time")
    parser.add_argument("--rate", type=float, default=5, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=1, help="of each policy, in turns; each with requests of its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--zipf", type=float, default=0.8)
    parser.add_argument("--link", type=float, help="GB/s between host and device, as hostcuda waits for it: an engine has 4 MiB; else as fast as this machine")
    parser.add_argument("--record")
    options = parser.parse_args()
    options.models, options.max_context, options.max_tokens, options.vocabulary = options.engines * options.adapters, 8, 24, 100
    return options


def name_of(options, model):
    """Zipf's ranks go round the engines, so that each has frequent and rare adapters."""
    return f"e{model % options.engines}a{model // options.engines}"


def configuration(options, folder, bundle):
    engine_mib, adapter_mib = 4, 1
    memory = options.room * (engine_mib + options.slots * adapter_mib) * MIB
    lines = [f"startPort: {free_ports(options.engines)}", "medusa:", f"  state: {folder}/usage.sqlite", f"  gpus: [{{memory: {memory}B}}]",
             f"  policies: {json.dumps(dict(zip(KINDS, BUNDLES[bundle])))}", "models:"]
    for e in range(options.engines):
        names = [f"e{e}a{a}" for a in range(options.adapters)]
        for name in names:
            with open(f"{folder}/{name}.json", "w", encoding="utf-8") as file:
                json.dump({"text": name}, file)
        goals = {"slo": f"{options.slo}s", "goal": "first_token"}
        adapters = {name: {"path": f"{folder}/{name}.json", "bytes": f"{adapter_mib}MiB"} for name in names}
        own = {"memory": f"{engine_mib}MiB", "swap": "on", "adapter_slots": options.slots, "adapters": adapters, **goals}
        command = f"{ENGINE} --name e{e} --device-mb {engine_mib - 2} --lora-slots {options.slots}"
        lines.append(f"  e{e}: {json.dumps({'cmd': command, 'concurrencyLimit': options.together, 'medusa': own})}")
    return "\n".join(lines) + "\n"


def warm(options, daemon):
    """Each engine was started, and each adapter loaded, once: starts of processes are not what is compared."""
    for e in range(options.engines):
        reply = daemon.chat(f"e{e}a0", max_tokens=1)
        if reply.status != 200:
            sys.exit(f"worker-lora-trace: the engine e{e} does not serve: {reply.status} {reply.body[:300]}")


def send_all(options, daemon, requests):
    """Of each request seconds to the first byte, or None if it was not served."""
    first, threads = [None] * len(requests), []
    began = time.monotonic()

    def ask(number, name, tokens):
        sent = time.monotonic()
        connection = daemon.connect()
        try:
            connection.request("POST", "/v1/chat/completions",
                               json.dumps({"model": name, "messages": [], "stream": True, "wait": options.first, "token": options.token, "max_tokens": tokens,
                                           "tokens": [8, tokens]}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(1)
            at = time.monotonic() - sent
            if answer.status == 200 and answer.read().endswith(b"data: [DONE]\n\n"):
                first[number] = at
        except OSError:
            pass
        finally:
            connection.close()

    for number, (when, model, _, tokens) in enumerate(requests):
        time.sleep(max(0, began + when - time.monotonic()))
        threads.append(threading.Thread(target=ask, args=(number, name_of(options, model), tokens)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return first


def judge(options, first):
    """What counts first decides: the part of the requests in time, then the mean time to the first token."""
    served = sorted(t for t in first if t is not None)
    return {"met": sum(t <= options.slo for t in served) / len(first), "mean": statistics.mean(served) if served else float("inf"),
            "p99": served[int(0.99 * (len(served) - 1))] if served else float("inf"), "served": len(served) / len(first)}


def run_worker(options, folder, bundle, requests):
    """Its judgement, how often something was loaded, and the words that replay the requests."""
    os.makedirs(folder)
    daemon = Daemon(folder, configuration(options, folder, bundle))
    if not daemon.port:
        sys.exit(f"worker-lora-trace: the worker does not listen: {daemon.stderr()[-500:]}")
    warm(options, daemon)
    since, before, took = time.time(), loads(daemon), metric(daemon, "medusa_worker_load_seconds_sum")
    count = metric(daemon, "medusa_worker_load_seconds_count")
    time.sleep(0.2)
    found = judge(options, send_all(options, daemon, requests))
    found["loads"] = loads(daemon) - before
    found["load_s"] = (metric(daemon, "medusa_worker_load_seconds_sum") - took) / max(1, metric(daemon, "medusa_worker_load_seconds_count") - count)
    done = daemon.ctl("trace", "--since", str(int(since)), "--to", f"{folder}/day")
    daemon.stop()
    if done.returncode:
        sys.exit(f"worker-lora-trace: medusa-workerctl trace: {done.stderr}")
    return found, done.stdout.splitlines()[-1].split()


def metric(daemon, name):
    """The sum of all its series."""
    text = daemon.get("/metrics").body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def loads(daemon):
    return int(metric(daemon, "medusa_worker_scheduler_swaps_total"))


def simulate(options, words, bundle, path):
    """words: as medusa-workerctl has printed them; their policies are replaced."""
    kept, at = [], 1
    while at < len(words):
        if words[at] not in ["--policy"] + [f"--{kind}" for kind in KINDS]:
            kept += words[at:at + 2]
        at += 2
    policies = [word for kind, name in zip(KINDS, BUNDLES[bundle]) for word in (f"--{kind}", name)]
    done = subprocess.run([words[0], *kept, "--policy", "medusa", *policies, "--json", path, "--quiet", "--no-real"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"worker-lora-trace: {' '.join(words)}: {done.stderr}")
    with open(path, encoding="utf-8") as file:
        found = json.load(file)["policies"][0]
    swaps = sum(found["scheduler"][f"swaps_{source}"] for source in ("host", "peer", "cold"))
    return {"met": found["requests"]["met"] / found["requests"]["all"], "mean": found["ttft_ms"]["mean"] / 1000, "p99": found["ttft_ms"]["p99"] / 1000,
            "served": found["requests"]["served"] / found["requests"]["all"], "loads": swaps}


def order(rows, side):
    return sorted(rows, key=lambda name: (-rows[name][side]["met"], rows[name][side]["mean"]))


def agreement(rows, other="simulator"):
    """Of pairs of policies, those that stand in the same order in the worker and there; and pairs that stand in another one, with how far they are apart."""
    names, same, others = list(rows), 0, []
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            real, simulated = (order({n: rows[n] for n in (a, b)}, side)[0] for side in ("worker", other))
            same += real == simulated
            if real != simulated:
                others.append((a, b, *(abs(rows[a][side]["met"] - rows[b][side]["met"]) for side in ("worker", other))))
    return same, others


def mean_of(all_found):
    return {key: statistics.mean(found[key] for found in all_found) for key in all_found[0]}


def describe(options, rows, spread, count):
    same, others = agreement(rows)
    own, _ = agreement(rows, "own")
    pairs = len(rows) * (len(rows) - 1) // 2
    lines = ["| policies | worker: in time | mean TTFT | p99 | loads | a load of an engine or adapter took | simulator: in time | mean TTFT | p99 | loads | simulator, times of its own run: in time |",
             "|---|" + "---:|" * 10]
    for name in order(rows, "worker"):
        cells = []
        for side in ("worker", "simulator"):
            r = rows[name][side]
            more = f" ({100 * spread[name][0]:.0f} to {100 * spread[name][1]:.0f})" if side == "worker" and options.rounds > 1 else ""
            cells += [f"{100 * r['met']:.1f} %{more}", f"{1000 * r['mean']:.0f} ms", f"{1000 * r['p99']:.0f} ms", f"{r['loads']:.0f}"]
            cells += [f"{1000 * r['load_s']:.0f} ms"] if side == "worker" else [f"{100 * rows[name]['own']['met']:.1f} %"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", f"Order of the worker: {', '.join(order(rows, 'worker'))}.", f"Order of the simulator: {', '.join(order(rows, 'simulator'))}.",
              f"Order of the simulator, each with the times that the worker has measured in its own run: {', '.join(order(rows, 'own'))}; {own} of {pairs} pairs stand as in the worker.",
              f"{same} of {pairs} pairs stand in the same order." + "".join(f" Not {a} and {b}: {100 * real:.1f} points apart in the worker, {100 * simulated:.1f} in the simulator."
                                                                              for a, b, real, simulated in others)]
    load = f"{count} requests in {options.seconds:g} s, of {os.path.basename(options.trace)}"
    head = ["# LoRA functions behind the worker, and simulated", "",
            "Written by `bench/worker-lora-trace.py`: what each bundle of policies makes of the same requests, in medusa-worker with real processes on hostcuda, and in medusa-simulate with the",
            "times that the worker has measured with ours. In time: the first token within the objective. Requests go to adapters by Zipf's law, engines wait and compute nothing.", "",
            f"{load}; {options.engines} engines with {options.adapters} adapters each, {options.slots} slots, memory for {options.room} engines; {options.together} requests at one time in an engine; "
            f"first token after {options.first:g} s, {options.token:g} s for each further one; objective {options.slo:g} s; {f'{options.link:g} GB/s between host and device; ' if options.link else ''}Zipf {options.zipf:g}; seed {options.seed}, rounds {options.rounds}.", "",
            f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end; {datetime.datetime.now(datetime.timezone.utc):%F %H:%M} UTC; "
            f"commit {subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, capture_output=True, text=True).stdout.strip() or 'unknown'}", ""]
    return "\n".join(head + lines) + "\n"


def main():
    options = arguments()
    names = options.policies.split(",")
    unknown = [name for name in names if name not in BUNDLES]
    if unknown:
        sys.exit(f"worker-lora-trace: --policies: no bundle {unknown[0]}; there are {', '.join(BUNDLES)}")
    if options.link:
        os.environ["HOSTCUDA_H2D_GBPS"] = str(options.link)
    with tempfile.TemporaryDirectory() as work:
        os.environ["XDG_RUNTIME_DIR"] = work
        os.chmod(work, 0o700)
        found = {name: {"worker": [], "simulator": [], "own": []} for name in names}
        count = 0
        for number in range(options.rounds):
            options.seed += number > 0
            requests, words = worker_models.draw(options), {}
            count += len(requests)
            for name in names:
                real, words[name] = run_worker(options, f"{work}/{number}.{name}", name, requests)
                found[name]["worker"].append(real)
                print(f"  {name}, round {number + 1}: {100 * real['met']:.1f} % in time", file=sys.stderr, flush=True)
            measured = words.get("medusa") or words[names[0]]
            for name in names:
                found[name]["simulator"].append(simulate(options, measured, name, f"{work}/replay.json"))
                found[name]["own"].append(simulate(options, words[name], name, f"{work}/replay.json"))
        options.seed -= options.rounds - 1
        rows = {name: {side: mean_of(found[name][side]) for side in found[name]} for name in names}
        spread = {name: (min(r["met"] for r in found[name]["worker"]), max(r["met"] for r in found[name]["worker"])) for name in names}
        text = describe(options, rows, spread, count)
    print(text, end="")
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
