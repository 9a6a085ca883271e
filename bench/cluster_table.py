# SPDX-License-Identifier: Apache-2.0
"""Makes bench/results/cluster-simulated.md of what bench/cluster.sh has simulated: cluster_table.py FOLDER PAGE SECONDS."""
import datetime
import glob
import json
import os
import platform
import subprocess
import sys

folder, page, seconds = sys.argv[1:]
ORDER = ["expected", "locality", "least-loaded", "random"]


def tell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout.strip()


def read():
    """[(number, name, {routing: report})]"""
    found = {}
    for path in glob.glob(f"{folder}/*.json"):
        number, name, routing = os.path.basename(path)[:-len(".json")].split("~")
        with open(path, encoding="utf-8") as file:
            found.setdefault((int(number), name), {})[routing] = json.load(file)
    return [(number, name, by) for (number, name), by in sorted(found.items())]


def percent(part, whole):
    return f"{100 * part / whole:.2f} %" if whole else "-"


def seconds_of(ms):
    return f"{ms / 1000:.2f}" if ms < 10000 else f"{ms / 1000:.1f}"


def row(name, routing, report):
    r = report["routings"][0]
    q, ttft, loads = r["requests"], r["ttft_ms"], r["loads"]
    found = sum(r["found"].values())
    refused = sum(r["rejected"].values()) + q["broken"] + q["nowhere"]
    busiest = r["node_requests"]["most"] / r["node_requests"]["mean"] if r["node_requests"]["mean"] else 0
    return (f"| {name} | {routing} | {q['all']:,} | {percent(q['met'], q['all'])} | {seconds_of(ttft['p50'])} / {seconds_of(ttft['p90'])} / {seconds_of(ttft['p99'])} | {percent(r['found']['gpu'], found)} "
            f"| {loads['disk']:,} | {loads['host']:,} | {refused:,} | {busiest:.1f} | {100 * r['node_busy']['mean']:.0f} % |")


def plans(name, report):
    r = report["routings"][0]
    p, real = r["placement"], r["real"]
    return f"| {name} | {p['plans']} | {p['copies']:,} | {p['added']:,} | {r['loads']['ahead']:,} | {real['plan_ms_p50']:.0f} | {real['plan_ms_max']:.0f} | {real['wall_s']:.0f} |" if p["plans"] else None


HEAD = ("| | routing | requests | within the objective | first token, s: 50 / 90 / 99 % | model was on a GPU | loads from the disk | from host memory | refused or ended by a loss | busiest node, of the mean | GPUs busy |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|")
results = read()
processor = tell("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1")
base = results[0][2]
first = next(iter(base.values()))
models = first["functions"]["count"]
lines = ["# A cluster of 1,000 nodes, simulated", "",
         f"Made by `bench/cluster.sh`, in {int(seconds) // 60} min {int(seconds) % 60} s, of which nothing but the times of plans and simulations was measured. "
         f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {processor or platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end, "
         f"commit {os.environ.get('COMMIT') or tell('git rev-parse --short HEAD')}.", "",
         f"{first['cluster']['nodes']:,} nodes ({first['node']['name']} each, host memory {first['node']['host_bytes'] / 2**30:.0f} GiB) in failure domains of {first['cluster']['domain_nodes']}; {models:,} models of 16, 29 and 65 GB with "
         f"weights of their own (`simulator/functions/many-models.yaml`), as popular as Zipf's law says (exponent 1); {first['trace']['requests'] / first['trace']['seconds']:.0f} requests a second that come in bursts, for "
         f"{first['trace']['seconds']:.0f} s, of which those after {first['cluster']['warmup_s']:.0f} s are counted. Everything is on the nodes' disks at the beginning. Objective: a first token after 2 s. What waits for 15 s is refused. "
         "Each node schedules with libmedusa-sched, policy `medusa`; nothing is simplified for the number of nodes but memory reports, which are left out.", "",
         "## Four ways of routing", "", HEAD]
lines += [row("base", routing, base[routing]) for routing in ORDER if routing in base]
lines += ["", "## What makes it worse", "", HEAD]
for number, name, by in results[1:]:
    lines += [row(name, routing, by[routing]) for routing in ORDER if routing in by]
lines += ["", "## The leader's plans", "", "With routing `expected`. Wanted: at most 1,000 ms of one core for a plan.", "",
          "| | plans | copies in the last one | copies added by all | loads for the leader | ms of a plan, median | longest | s of the simulation |", "|---|---|---|---|---|---|---|---|"]
lines += list(filter(None, (plans(name, by["expected"]) for _, name, by in results if "expected" in by)))
with open(page, "w", encoding="utf-8") as out:
    out.write("\n".join(lines) + "\n")
