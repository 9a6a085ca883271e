# SPDX-License-Identifier: Apache-2.0
"""Prints the benchmark's table from the rounds' JSON files and records it: table.py WORK RESULTS NAME ROUNDS."""
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys

work, results, name, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def load(kind):
    return [json.load(open(f"{work}/{kind}.{i}.json", encoding="utf-8")) for i in range(1, rounds + 1)]


live, captured, probed, restored, floor, analysis = map(load, ("live", "captured", "probed", "restored", "floor", "analysis"))
walls = {kind: [w["seconds"] for w in load(kind)] for kind in ("live_wall", "captured_wall", "probed_wall")}
median = lambda values: statistics.median(list(values))
stage = lambda reports, names: median(sum(r["stages_ms"][n] for n in names) for r in reports)
stat = lambda key: median(r["medusa"][key] for r in restored)
warm = ("warmup", "capture", "instantiate")
nodes = floor[0]["nodes"]
restore_ms, floor_ms = stat("total_ns") / 1e6, median(f["total_ms"] for f in floor)
# Pairs of one round are compared, so that a slow moment of the machine meets both.
ready_ratio = lambda runs: median(c["stages_ms"]["ready"] / l["stages_ms"]["ready"] for l, c in zip(live, runs))
wall_ratio = lambda kind: median(c / l for l, c in zip(walls["live_wall"], walls[kind]))
capture_ratio = ready_ratio(captured)
floor_ratio = median((r["medusa"]["total_ns"] / 1e6) / f["total_ms"] for r, f in zip(restored, floor))
# Host memory is brought in while the restore waits for buffers. What that takes is the machine's affair (docs/results.md).
rest_ratio = median((r["medusa"]["total_ns"] - r["medusa"]["heap_ns"]) / 1e6 / f["total_ms"] for r, f in zip(restored, floor))

rows = [
    ("device", restored[0]["device"], ""),
    ("graphs / nodes", f"{restored[0]['graphs_restored']} / {nodes}", ""),
    ("graphs bit-equal to eager", f"{restored[0]['check']['equal']} of {restored[0]['check']['of']}", "all"),
    ("live: warm-up + capture + instantiate", f"{stage(live, ('warmup',)):.1f} + {stage(live, ('capture',)):.1f} + "
                                              f"{stage(live, ('instantiate',)):.1f} ms", ""),
    ("restore, all graphs", f"{restore_ms:.1f} ms", ""),
    ("  images / functions / host memory ahead of the driver", f"{stat('images_ns') / 1e6:.2f} / {stat('functions_ns') / 1e6:.2f} / "
                                              f"{stat('heap_ns') / 1e6:.2f} ms", ""),
    ("  patch / build / instantiate / upload", f"{stat('patch_ns') / 1e6:.2f} / {stat('build_ns') / 1e6:.2f} / "
                                              f"{stat('instantiate_ns') / 1e6:.2f} / {stat('upload_ns') / 1e6:.2f} ms", ""),
    ("floor of the same run", f"{floor_ms:.1f} ms", ""),
    ("restore / floor", f"{floor_ratio:.2f} x", "<= 1.4 (H200)"),
    ("  the restore without host memory ahead of the driver / floor", f"{rest_ratio:.2f} x", ""),
    ("live / restore", f"{stage(live, warm) / restore_ms:.1f} x", ""),
    ("own work a node, driver calls excluded", f"{stat('own_ns') / nodes / 1e3:.3f} us", "< 2 us (MEDUSA 9.3)"),
    ("artifact: open, check, read graphs", f"{stat('open_ns') / 1e6:.2f} ms", "<= 10 ms"),
    ("first graph after functions and bindings", f"{stat('first_ready_ns') / 1e6:.2f} ms", "<= 20 ms (H200)"),
    ("analysis of two traces: read + analyze + write", f"{median(a['read_ms'] for a in analysis):.0f} + "
     f"{median(a['analyze_ms'] for a in analysis):.0f} + {median(a['write_ms'] for a in analysis):.0f} ms", "< 1000 ms"),
    ("graph and pointer sections", f"{analysis[0]['bytes_per_node']:.2f} bytes a node", "<= 20 (MEDUSA 387)"),
    ("warm start (process start to ready) under capture / without", f"{capture_ratio:.2f} x", "<= 1.3"),
    ("the same, poison test on", f"{ready_ratio(probed):.2f} x", ""),
    ("whole run under capture / without, poison test off, on", f"{wall_ratio('captured_wall'):.2f}, {wall_ratio('probed_wall'):.2f} x", ""),
]
if "replay_ms" in restored[0]["graphs"][0]:
    ratios = [median(run["graphs"][i]["replay_ms"] / run["graphs"][i]["replay_live_ms"] for run in restored)
              for i in range(len(restored[0]["graphs"]))]
    rows.append(("replay restored / live in one process, median (min, max)", f"{median(ratios):.4f} ({min(ratios):.3f}, {max(ratios):.3f})",
                 "within 2 %"))



def wide_rows():
    """What a capture does for each of 35 graphs of 1,200 nodes, of an engine with 109 GiB of state: tests/subjects/wide_subject.c."""
    graphs = 35
    with open(f"{work}/wide.calls", encoding="utf-8") as file:
        calls = {name: int(count) / graphs for name, count in map(str.split, file)}
    with open(f"{work}/wide.err", encoding="utf-8") as file:
        log = file.read()
    moved = sum(map(int, re.findall(r"poison tests moved (\d+) bytes", log))) / graphs
    places = re.findall(r"asked for (\d+) places that others read in (\d+) replays", log)
    copies = sum(calls.get(name, 0) for name in ("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemcpyHtoDAsync_v2"))
    sets = calls.get("cuMemsetD32Async", 0) + calls.get("cuMemsetD8Async", 0)
    return [
        ("capture of vLLM's proportions, a graph: replays", f"{calls['cuGraphLaunch'] - 3:.0f}", ""),
        ("  of them to ask for places that others read", f"{statistics.median(int(r) for _, r in places):.0f}, for {places[0][0]} places", ""),
        ("  waits / copies / sets", f"{calls['cuStreamSynchronize'] + calls['cuCtxSynchronize']:.0f} / {copies:.0f} / {sets:.0f}", ""),
        ("  bytes between host and device", f"{moved / 1e6:.0f} MB", ""),
    ]


def pieces_rows():
    """What is done for each of 1,326 graphs of 15 nodes, which hand their results on in bound memory: tests/subjects/wide_subject.c."""
    def read(kind):
        with open(f"{work}/pieces.{kind}", encoding="utf-8") as file:
            return file.read()

    def calls(run, count):
        counts = {name: int(number) / count for name, number in map(str.split, read(f"{run}.calls").splitlines())}
        copies = sum(counts.get(f"cuMemcpy{way}Async_v2", 0) for way in ("DtoH", "DtoD", "HtoD"))
        return counts, f"{counts['cuStreamSynchronize']:.1f} / {copies:.1f} / {counts['cuLaunchKernel']:.1f}"

    graphs, of = 51 * 26, re.compile(r"restored (\d+) of (\d+) graphs, opened in ([\d.]+) ms, all in ([\d.]+) ms.*heap ([\d.]+),", re.S)
    captured, captured_calls = calls("captured", graphs)
    _, compared_calls = calls("verified", read("report").count('"verdict": "pass"'))
    restored = [of.search(read(f"cold.{i}.err")).groups() for i in range(1, rounds + 1)]
    floors = [json.loads(read(f"floor.{i}.json"))["total_ms"] for i in range(1, rounds + 1)]
    ready = re.search(r"graphs ([\d.]+) s, ready ([\d.]+) s", read("captured.err"))
    return [
        ("1,326 graphs of 15 nodes, 26 of a size: captured, tested", f"{ready[1]} + {ready[2]} s", ""),
        ("  a graph: replays; waits / copies / kernels", f"{captured['cuGraphLaunch'] - 2:.1f}; {captured_calls}", ""),
        ("  a comparison: waits / copies / kernels", compared_calls, ""),
        ("  artifact; open, check, read graphs", f"{os.path.getsize(f'{work}/pieces.medusa')} bytes; {read('open').split(' (')[0]}", "<= 10 ms"),
        ("  restored; while it opens", f"{restored[0][0]} in {median(float(r[3]) for r in restored):.1f} ms; {median(float(r[2]) for r in restored):.1f} ms", ""),
        ("  restore / floor", f"{median(float(r[3]) / f for r, f in zip(restored, floors)):.2f} x", "<= 1.5 (H200)"),
        ("    the restore without host memory ahead of the driver / floor",
         f"{median((float(r[3]) - float(r[4])) / f for r, f in zip(restored, floors)):.2f} x", ""),
    ]


if os.path.exists(f"{work}/wide.calls"):
    rows += wide_rows()
if os.path.exists(f"{work}/pieces.report"):
    rows += pieces_rows()

lines = [f"| {'what':<61} | {'measured':<34} | {'wanted':<20} |", f"|{'-' * 63}|{'-' * 36}|{'-' * 22}|"]
lines += [f"| {what:<61} | {value:<34} | {wanted:<20} |" for what, value, wanted in rows]
table = "\n".join(lines)


def tell(command):
    try:
        return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")
    except subprocess.CalledProcessError:
        return "-"


machine = [f"date {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC", f"processor {tell('lscpu | sed -n s/Model.name:.*:*//p') or platform.machine()}",
           f"cores {tell('nproc')}", f"kernel {platform.release()}",
           f"GPU and driver {tell('nvidia-smi --query-gpu=name,driver_version --format=csv,noheader')}",
           f"CUDA compiler {tell('nvcc --version | grep release | sed s/.*release.//')}",
           f"commit {os.environ.get('COMMIT') or tell('git rev-parse --short HEAD')}", f"rounds {rounds}, medians"]
print(table)
with open(f"{results}/{name}.md", "w", encoding="utf-8") as file:
    file.write(f"# {name}\n\nMade by `bench/{os.environ.get('SCRIPT', 'run.sh')}`. {'. '.join(machine)}.\n\n{table}\n")
with open(f"{results}/{name}.json", "w", encoding="utf-8") as file:
    json.dump({"machine": machine, "rows": rows, "live": live, "restored": restored, "floor": floor, "analysis": analysis}, file)
