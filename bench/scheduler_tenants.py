#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What two tenants of weights 3 and 1 have of the GPUs' time while both wait, with every bundle of policies, on 1, 2, 4 and 8 GPUs.

scheduler_tenants.py [LOAD...]: writes bench/results/scheduler-tenants.md (RESULTS=FOLDER); all loads: about 10 minutes on 2 cores.
BUILD=FOLDER and JOBS=N if wanted; POLICY=NAME,NAME instead of every bundle and GPUS=1,4 instead of all, to the standard output."""
import concurrent.futures
import datetime
import json
import os
import random
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.environ.get("BUILD", "build")
SIMULATE, WORK = f"{BUILD}/bin/medusa-simulate", f"{BUILD}/bench/scheduler-tenants"
NUMBERS = [int(n) for n in os.environ.get("GPUS", "1,2,4,8").split(",")]
TENANTS = "tenants: [{name: web, weight: 3}, {name: night}]\n"

# Made up, and small enough to be checked by hand: requests of 0.1 s and up to 20 further tokens of 10 ms; a copy takes 0.1 s for 10 GB.
NODE = """name: made up
source: made up
host_speed: 100GB/s
prefill_share: 1
gpus: [{memory: %s, slots: %d, count: 8}]
"""
MODEL = """source: made up
defaults: {in_host: true, execution: 100ms, alpha: 20ms, token: 10ms, goal: first_token, slo: 2s, max_parallel: 8, sequence_share: 0.01}
models: [{name: f, weights: 10GB, count: %d, %s}]
"""
# name: node, file of functions, requests for each GPU, tokens of each, whose functions, what it is
LOADS = {
    "called by both": ((80, 1), (4, "max_batch: 1"), 1200, (1, 20), "both", "four functions, one request at a time, all in memory"),
    "batches": ((80, 1), (4, "max_batch: 8"), 1200, (1, 20), "both", "four functions, batches of up to 8, all in memory"),
    "one engine": ((80, 1), (1, "max_batch: 16, continuous: true"), 1200, (1, 20), "both", "one continuous function, up to 16 requests"),
    "room for one": ((19, 1), (4, "max_batch: 8"), 1200, (1, 20), "both", "four functions, batches of up to 8, memory for one of them"),
    "room for two": ((29, 2), (4, "max_batch: 8"), 1200, (1, 20), "both", "four functions, batches of up to 8, memory for two of them"),
    "own, in memory": ((80, 1), (4, "max_batch: 8"), 1200, (1, 20), "own", "two functions of each, batches of up to 8, all in memory"),
    "own, room for one": ((19, 1), (4, "max_batch: 8"), 1200, (1, 20), "own", "two functions of each, batches of up to 8, memory for one of them"),
    "own, room for two": ((29, 2), (16, "max_batch: 8"), 1200, (1, 20), "own", "eight functions of each, batches of up to 8, memory for two of them"),
    "own engines, a slot": ((80, 1), (2, "max_batch: 16, continuous: true"), 1200, (1, 20), "own", "one continuous function of each, one slot"),
    "own engines, room for one": ((19, 2), (16, "max_batch: 16, continuous: true"), 1200, (1, 20), "own", "eight continuous functions of each, memory for one of them"),
    "own engines, two slots": ((200, 2), (16, "max_batch: 16, continuous: true"), 1200, (1, 20), "own", "eight continuous functions of each, two slots, all in memory"),
    "images": ("h200-images", "lora-images", 150, (20, 50), "both", "the tree's lora-images, adapters that both call"),
    "images, own": ("h200-images", "lora-images", 150, (20, 50), "own", "the tree's lora-images, every second adapter of each"),
    "adapters": ("h200-x8", "azure-32", 1200, (50, 200), "both", "the tree's azure-32, adapters that both call"),
    "adapters, own": ("h200-x8", "azure-32", 1200, (50, 200), "own", "the tree's azure-32, every second adapter of each"),
    "cyclic, own": ("h200-images", "cyclic-7b", 500, (50, 50), "own", "the tree's cyclic-7b, every second model of each"),
    "engines": ("h200-x8", "engines-7b", 3000, (50, 400), "both", "the tree's engines-7b (continuous), which both call"),
    "engines, own": ("h200-x8", "engines-7b", 3000, (50, 400), "own", "the tree's engines-7b (continuous), every second one of each"),
}


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def simulate(*arguments):
    subprocess.run([SIMULATE, "--no-real", "--quiet", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def prepare(name):
    """The files of a load: node, functions, and how many functions there are."""
    node, functions, *_ = LOADS[name]
    base = f"{WORK}/{name.replace(', ', '-').replace(' ', '-')}"
    node = write(f"{base}.node.yaml", NODE % (f"{node[0]}GB", node[1]) if isinstance(node, tuple) else read(f"simulator/nodes/{node}.yaml"))
    text = MODEL % functions if isinstance(functions, tuple) else read(f"simulator/functions/{functions}.yaml")
    functions = write(f"{base}.functions.yaml", TENANTS + text)
    probe = f"{base}.probe.csv"
    write(probe, "seconds,function\n0,0\n")
    simulate("--node", node, "--functions", functions, "--trace", probe, "--policy", "medusa", "--json", f"{base}.json")
    return base, node, functions, json.loads(read(f"{base}.json"))["functions"]["count"]


def trace(name, base, gpus, functions):
    """Both tenants send as many requests, all within 20 s: more than the node can serve in that time."""
    _, _, count, (least, most), whose, _ = LOADS[name]
    draw = random.Random(1)
    count *= gpus
    rows = ["seconds,function,context,generated,tenant"]
    for i in range(count):
        tenant = i % 2
        function = draw.randrange(functions) if whose == "both" else draw.randrange(functions // 2) * 2 + tenant
        rows.append(f"{i * 20 / count:.6f},{function},500,{draw.randint(least, most)},{'web' if tenant else 'night'}")
    return write(f"{base}.{gpus}.csv", "\n".join(rows) + "\n")


def had(job):
    name, gpus, policies, (base, node, functions, count) = job
    target = f"{base}.{gpus}.json"
    simulate("--node", node, "--functions", functions, "--trace", trace(name, base, gpus, count), "--gpus", str(gpus),
             "--policy", ",".join(policies), "--json", target)
    found = {}
    for policy in json.loads(read(target))["policies"]:
        web = next(t for t in policy["tenants"] if t["name"] == "web")["contended"]
        found[policy["name"]] = 100 * web["gpu_s"] / web["all_s"] if web["s"] >= 2 else None
    return name, gpus, found


def bundles():
    lines = subprocess.run([SIMULATE, "--list"], check=True, capture_output=True, text=True).stdout.split("\n\n")[0].splitlines()
    return [line.split()[0] for line in lines if not line.startswith("native ")]


def table(found, policies):
    rows = []
    for name in found:
        rows += ["", f"{name}: {LOADS[name][5]}.", "", "| GPUs | " + " | ".join(policies) + " |", "|" + "---|" * (len(policies) + 1)]
        for gpus in NUMBERS:
            cells = [found[name][gpus][policy] for policy in policies]
            rows.append(f"| {gpus} | " + " | ".join("-" if cell is None else f"{cell:.0f}" for cell in cells) + " |")
    return rows


def main():
    names = sys.argv[1:] or list(LOADS)
    policies = os.environ["POLICY"].split(",") if "POLICY" in os.environ else bundles()
    os.makedirs(WORK, exist_ok=True)
    files = {name: prepare(name) for name in names}
    jobs = [(name, gpus, policies, files[name]) for name in names for gpus in NUMBERS]
    found = {name: {} for name in names}
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        for name, gpus, of in pool.map(had, jobs):
            found[name][gpus] = of
    rows = table(found, policies)
    if "POLICY" in os.environ or "GPUS" in os.environ or sys.argv[1:]:
        print("\n".join(rows))
        return
    head = ["# Shares of tenants", "",
            f"`bench/scheduler_tenants.py` of {datetime.date.today()}, simulated: the same on every machine. Two tenants of weights 3 and 1 send equally many",
            "requests within 20 s, more than the GPUs serve in that time. Per cent of the GPU time that the first one had while requests of both waited (`had` of a",
            "report); 75 are due to it. `-`: both waited for less than 2 s. [scheduler.md](../../docs/scheduler.md#shares-of-tenants) says what keeps a tenant from its share."]
    folder = os.environ.get("RESULTS", "bench/results")
    write(f"{folder}/scheduler-tenants.md", "\n".join(head + rows) + "\n")


main()
