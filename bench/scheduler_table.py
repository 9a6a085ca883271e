# SPDX-License-Identifier: Apache-2.0
"""Makes bench/results/scheduler.md from the simulator's results: scheduler_table.py WORK FILE SECONDS."""
import datetime
import glob
import json
import os
import platform
import re
import statistics
import subprocess
import sys

work, target, seconds = sys.argv[1:4]
out = []
CAPTURE = "-capture"  # the end of a policy's name if its contexts are captured, not restored


def load(pattern):
    """{variant: [result of each seed]}, as the files are named: table.variant.seed.json."""
    found = {}
    for path in sorted(glob.glob(f"{work}/{pattern}.json")):
        with open(path, encoding="utf-8") as file:
            variant = os.path.basename(path)[:-len(".json")].split(".", 1)[1]
            found.setdefault(variant if "~" in variant else variant.rsplit(".", 1)[0], []).append(json.load(file))
    return found


def policies(results):
    """{policy: [its result for each seed]}"""
    return {first["name"]: [next(p for p in r["policies"] if p["name"] == first["name"]) for r in results]
            for first in results[0]["policies"]}


def tell(command):
    try:
        return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip().split("\n")[0]
    except subprocess.CalledProcessError:
        return "-"


def table(header, rows):
    cells = [[str(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    line = lambda row: "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |"
    out.extend([line(cells[0]), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, cells[1:]), ""])


def say(text=""):
    out.extend([text, ""] if text else [])


def about(node, functions, trace, seeds):
    say(f"Simulated. Node: [{node}](../../simulator/nodes/{node}.yaml). Functions: "
        f"[{functions}](../../simulator/functions/{functions}.yaml), which says where each number is from. Trace: {trace}. Seeds: {seeds}.")


mean_range = lambda values, form: (f"{statistics.mean(values):{form}}" if max(values) == min(values) else
                                   f"{statistics.mean(values):{form}} ({min(values):{form}} to {max(values):{form}})")
mean = lambda runs, part: statistics.mean(part(r) for r in runs)
compliant = lambda r: 100 * r["functions"]["compliant"] / r["functions"]["counted"]
in_slo = lambda r: 100 * r["requests"]["met"] / r["requests"]["all"]


# ---- Torpor's node ----
def torpor():
    found = {int(count): results for count, results in load("torpor.*").items()}
    counts = sorted(found)
    seeds = [r["seed"] for r in found[480]]
    runs = {count: policies(found[count]) for count in counts}
    names = list(runs[480])
    say("## Torpor's node: functions that meet their SLO")
    about("torpor-v100", "torpor-models", "law torpor, 5 to 30 requests a minute and function, 20 minutes", f"{seeds[0]} to {seeds[-1]}, mean and range")
    say("Per cent of the functions that meet their deadline in 98 % of the requests.")
    shown = [c for c in counts if len(runs[c]) == len(names) and c >= 480]
    table(["functions", *map(str, shown)],
          [[name, *(mean_range([compliant(r) for r in runs[c][name]], ".1f") for c in shown)] for name in names])
    of = lambda name, count: statistics.mean(r["functions"]["compliant"] for r in runs[count][name])
    fits = lambda name, least: max([c for c in counts if all(min(map(compliant, runs[d][name])) >= least for d in counts if d <= c)],
                                   default=0)
    say(f"Torpor's paper (section 7.3, figure 11) says: with the full Torpor all functions are compliant at 480, over 80 % at 560; Random is the worst of its ablations, FIFO, LRU "
        f"and Block lie between. Here, at 560: {', '.join(f'{n} {mean(runs[560][n], compliant):.0f} %' for n in names)}.")
    say(f"medusa / torpor at 560, functions compliant: {of('medusa', 560):.1f} / {of('torpor', 560):.1f} = "
        f"{of('medusa', 560) / of('torpor', 560):.3f}; at 520: {of('medusa', 520) / of('torpor', 520):.3f}. Largest count up to which it "
        "serves so many, in steps of 20, whichever the seed:")
    table(["", *names[:1], "medusa"],
          [["all functions compliant", *(fits(n, 100) for n in ("torpor", "medusa"))],
           ["95 % compliant", *(fits(n, 95) for n in ("torpor", "medusa"))]])
    say("### 160 functions on the same node")
    say("The paper (figure 10): Native runs 72 of 160, Torpor runs and meets the SLO of all 160.")
    few = runs[160]
    table(["policy", "functions that run", "functions compliant"],
          [[n, mean_range([r["functions"]["served"] for r in few[n]], ".0f"),
            mean_range([r["functions"]["compliant"] for r in few[n]], ".0f")] for n in few])


# ---- xLoRA's ablation ----
PAPER = {"xlora": (576, 2977, 7.53), "xlora-nbs": (2608, 4959, 12.55), "xlora-npl": (1345, 3747, 9.48), "xlora-ndo": (1047, 3328, 8.42),
         "xlora-nab1": (1386, 3799, 9.61), "xlora-nab2": (693, 3425, 8.66), "xlora-nab3": (721, 3526, 8.92)}


def xlora():
    results = load("xlora.*")["4h"]
    runs = policies(results)
    seeds = [r["seed"] for r in results]
    say("## xLoRA's ablation")
    about("l40s-xlora", "xlora-llama2", "law mmpp, 4 to 20 requests a minute and function, 4 hours", f"{seeds[0]} to {seeds[-1]}, mean and range")
    columns = [lambda r: r["ttft_ms"]["mean"], lambda r: r["bill"]["cost"]]
    ours = {n: [mean(runs[n + CAPTURE], c) for c in columns] for n in PAPER}
    shown = lambda n, column, form: mean_range([columns[column](r) for r in runs[n]], form)
    table(["policy", "TTFT, ms", "paper", "restored", "cost, $", "paper", "restored", "paper's E2E, ms"],
          [[n, shown(n + CAPTURE, 0, ".0f"), PAPER[n][0], shown(n, 0, ".0f"), shown(n + CAPTURE, 1, ".2f"), PAPER[n][2], shown(n, 1, ".2f"),
            PAPER[n][1]] for n in PAPER])
    say("Contexts are captured at each cold start, as in the paper; restored: the same with contexts restored from artifacts.")
    say("A request that a law draws ends with its first token, so no E2E latency is simulated. In the paper it is TTFT and 2.3 to 2.8 s in each "
        "variant: 100 tokens of 24 ms.")
    for i, what in enumerate(("TTFT", "cost")):
        here = sorted(PAPER, key=lambda n: ours[n][i])
        there = sorted(PAPER, key=lambda n: PAPER[n][2 * i])
        pairs = [(a, b) for k, a in enumerate(there) for b in there[k + 1:]]
        wrong = [f"{b} below {a}" for a, b in pairs if here.index(b) < here.index(a)]
        say(f"Order by {what}: {' < '.join(n.replace('xlora-', '') for n in here)}. {len(pairs) - len(wrong)} of {len(pairs)} pairs stand as in "
            f"the paper{'; not ' + ', '.join(wrong) if wrong else ''}.")
    say("The paper ran a cluster of four nodes; two L40S are simulated, as in its table 2, so only the order is comparable. Its knapsack "
        "(section 5.12) against ours: [scheduler-knapsack.md](scheduler-knapsack.md).")


# ---- SwapServeLLM ----
def swapserve():
    found = load("swapserve.*")
    say("## SwapServeLLM: 75 GB for a GPU of 80 on which two engines lie")
    about("h100-swapserve", "swapserve-models", "Gemma and DeepSeek-Coder at 0 s, Llama 70B at 30 s, Gemma again at 60 s", "1")
    first_token = lambda p, n: next(f["ttft_ms"] for f in p["per_function"] if f["name"].startswith(n))
    rows = []
    for name, (p,) in policies(found["scenario"]).items():
        gemma = first_token(p, "gemma")
        again, first = gemma["max"], 2 * gemma["mean"] - gemma["max"]
        rows.append([name, *(f"{v / 1e3:.1f} s" for v in (min(first, again), first_token(p, "deepseek")["max"],
                                                         first_token(p, "llama")["max"], max(first, again)))])
    table(["time to first token", "Gemma 7B", "DeepSeek-Coder", "Llama 70B FP8", "Gemma again"], rows)
    say("Swapping out takes 2.7 GB/s, so Llama waits for both to leave, and Gemma for Llama.")
    runs = policies(found["4h"])
    say(f"The same three with requests at random (law poisson, 0.1 to 0.5 a minute, 4 hours), seeds 1 to {len(found['4h'])}, mean and range:")
    table(["policy", "requests within SLO, %", "TTFT p50, s", "TTFT p98, s", "swaps", "GB moved"],
          [[n, mean_range([in_slo(p) for p in runs[n]], ".0f"), *(mean_range([p["ttft_ms"][k] / 1e3 for p in runs[n]], ".1f")
                                                                  for k in ("p50", "p98")),
            f"{mean(runs[n], lambda p: p['scheduler']['swaps_host']):.0f}",
            f"{mean(runs[n], lambda p: p['scheduler']['bytes_host'] / 1e9):.0f}"] for n in runs])


# ---- who is first ----
OTHERS = ("fifo-lru", "torpor", "torpor-shared", "swapserve", "xlora")
decisions = lambda p: [p["real"][f"decide_us_{k}"] for k in ("p50", "p99", "p999")]
BARS = (5, 50, 500)  # us
seconds_of = lambda ms: f"{ms / 1e3:.3g}"
ttft = lambda p: " / ".join(seconds_of(p["ttft_ms"][k]) for k in ("p50", "p98", "p99"))


def verdict(title, rows, capture=""):
    """rows: {name: {policy: result}}. In how many ours is first or nearly so, and each row where it is not."""
    kinds = [("requests within the SLO: first, or within 1 point of the first", in_slo, lambda mine, best: mine >= best - 1, "{:.1f} %"),
             ("functions compliant: first, or within 5 % of the first", lambda r: r["functions"]["compliant"],
              lambda mine, best: mine >= 0.95 * best, "{}")]
    both = set(rows)
    for what, part, near, form in kinds:
        behind = []
        for name, by in rows.items():
            best = max(OTHERS, key=lambda n: part(by[n + capture]))
            mine, theirs = part(by["medusa" + capture]), part(by[best + capture])
            if not near(mine, theirs):
                behind.append(f"{name}: {form.format(mine)} against {form.format(theirs)} of {best}")
                both.discard(name)
        say(f"{title}, {what} in {len(rows) - len(behind)} of {len(rows)} rows{'; not in:' if behind else '.'}")
        if behind:
            out.extend([*(f"* {b}" for b in behind), ""])
    say(f"Both in {len(both)} of {len(rows)} rows.")


def slow(rows):
    """Rows in which decisions of ours take longer than they may."""
    late = [f"{name} ({' / '.join(f'{d:.3g}' for d in decisions(by['medusa']))})" for name, by in rows.items()
            if any(d > bar for d, bar in zip(decisions(by["medusa"]), BARS))]
    say(f"Decisions of medusa take at most 5, 50 and 500 us (median, 99 %, 99.9 %) in {len(rows) - len(late)} of {len(rows)} rows"
        f"{'; not in ' + '; '.join(late) if late else ''}. They were measured while {os.environ.get('JOBS') or os.cpu_count()} simulations ran at "
        "once.")


# ---- loads made from a seed ----
LOADS = {"images": "adapters of images: 276 functions, 86 base models, bursty (CoV 2, Zipf 1)", "images-skewed": "the same, CoV 4 and Zipf 1.2",
         "adapters": "adapters of language models: 32 functions, bursty (CoV 3, Zipf 1)", "day": "a day in 20 minutes, by night 15 % of the peak",
         "burst": "six bursts: one function 100 times as often for 5 s", "huge": "one huge function and 40 small ones",
         "cycle": "functions in turn that need 1.1 times the memory", "impossible": "every fourth function has an objective that no node can meet",
         "hot": "one hot function and 12 heavy ones", "sizes": "functions of many sizes", "all-fit": "functions that all fit at one time"}


def loads():
    found = load("loads.*")
    say("## Loads made from a seed")
    say("Simulated. Laws, functions and nodes are described in medusa-simulate(1) and their files; load is GPU seconds of computing for each "
        "second of each GPU, without swaps and without what batches save, so a node may bear somewhat more than 1, or less. Seed: 1. All "
        "policies restore contexts.")
    for name, text in LOADS.items():
        out.append(f"* {name}: {text}")
    out.append("")
    keys = sorted(found, key=lambda k: (list(LOADS).index(k.split("~")[0]), int(k.split("~")[1]), float(k.split("~")[2])))
    rows = {}
    for key in keys:
        name, gpus, offered = key.split("~")
        rows[f"{name}, {gpus} GPU{'s' if gpus != '1' else ''}, {offered}"] = {p["name"]: p for p in found[key][0]["policies"]}
    shown = [*OTHERS, "medusa"]
    for what, cell in (("Requests within the SLO, %, and functions compliant", None), ("TTFT in s, p50 / p98 / p99", ttft),
                       ("Decisions in us, median / 99 % / 99.9 %", lambda p: " / ".join(f"{d:.3g}" for d in decisions(p)))):
        say(what + ":")
        table(["load", *([f"of"] if cell is None else []), *shown],
              [[name, *([by["medusa"]["functions"]["counted"]] if cell is None else []),
                *(cell(by[n]) if cell else f"{in_slo(by[n]):.1f} / {by[n]['functions']['compliant']}" for n in shown)] for name, by in rows.items()])
    verdict("Compared with " + ", ".join(OTHERS), rows)
    slow(rows)


# ---- public traces ----
TRACES = {"azure-llm-2023-conv.csv": "conv", "azure-llm-2023-code.csv": "code", "mooncake-conversation.jsonl": "mooncake"}


def traces():
    found = load("traces.*")
    say("## Public traces on H200 nodes")
    if not found:
        say("Not run: give `TRACES=DIR`.")
        return
    say("Simulated. Nodes: [h200-x2](../../simulator/nodes/h200-x2.yaml), [h200-x8](../../simulator/nodes/h200-x8.yaml). Functions: "
        "[azure-32](../../simulator/functions/azure-32.yaml), 32 over 4 backbones. Seed: 1 (the mapping's). Traces: conv and code are Azure LLM "
        "inference 2023 (Azure/AzurePublicDataset, CC-BY; 19,366 and 8,819 requests), mooncake is Mooncake's conversation "
        "(kvcache-ai/Mooncake, FAST'25, Apache-2.0; 12,031 requests); about an hour each.")
    for missing in TRACES.keys() - {key.split("~")[0] for key in found}:
        say(f"Skipped: {missing} was not there.")
    say("Requests name no function, so they are mapped by turns (round-robin) or by a Zipf law of exponent 1. Each trace is replayed at a speed "
        "at which the node is busy and not lost, the last one also at one that is too much. Each policy runs twice: with contexts restored "
        "from artifacts (0.25 s) and, in the columns captured, with contexts captured at each cold start (2.5 s); the other columns are of "
        "restored contexts. torpor runs one function at a time on a GPU and one request at a time, as its paper says; torpor-shared has the "
        "node's slots, and batches. busy: part of the time in which a GPU runs any batch; bursts, not busy GPUs, are what is hard in code. GB: "
        "from the host, peer GPUs and cold, preloads included. The length of a prompt changes the KV cache, not the time to its first token.")
    rows, lines = {}, []
    for key in sorted(found, key=lambda k: (k.split("~")[1], list(TRACES).index(k.split("~")[0]), k)):
        file, node, mapping, speed = key.split("~")
        name = f"{node}, {TRACES[file]} x {speed}, {mapping}"
        by = rows[name] = {p["name"]: p for p in found[key][0]["policies"]}
        for i, n in enumerate((*OTHERS, "medusa")):
            p, captured = by[n], by[n + CAPTURE]
            s, busy = p["scheduler"], p["load"]
            lines.append([name if i == 0 else "", n, f"{in_slo(p):.1f} %", f"{in_slo(captured):.1f} %", p["functions"]["compliant"],
                          captured["functions"]["compliant"], ttft(p), s["swaps_host"] + s["swaps_peer"] + s["swaps_cold"],
                          f"{(s['bytes_host'] + s['bytes_peer'] + s['bytes_cold']) / 1e9:.0f}", f"{p['bill']['cost']:.2f}",
                          f"{100 * statistics.mean(busy['gpu_busy_s']) / busy['seconds']:.0f} %",
                          " / ".join(f"{d:.3g}" for d in decisions(p))])
    table(["node, trace x speed, mapping", "policy", "requests within SLO", "captured", "functions compliant", "captured", "TTFT p50 / p98 / p99, s",
           "swaps", "GB", "cost, $", "busy", "decisions, us"], lines)
    verdict("Restored against restored", rows)
    verdict("Captured against captured", rows, CAPTURE)
    slow(rows)


version = tell(f"{os.path.dirname(work)}/../bin/medusa-simulate --version")
say("# Scheduling policies, simulated")
say("Made by `TRACES=DIR bench/scheduler.sh`. No GPU was used: the scheduler's library decides, a model of a worker node carries out "
    "(docs/scheduler.md says what the model knows and what not). "
    f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, commit {os.environ.get('COMMIT') or tell('git rev-parse --short HEAD')}, "
    f"{version}, {re.sub(' +', ' ', tell('lscpu | sed -n s/Model.name:.*:*//p')) or tell('sed -n s/^model.name.*:.//p /proc/cpuinfo')} "
    f"({os.cpu_count()} cores), {tell('cc --version')}, {platform.platform()}, {seconds} s in all.")
torpor()
xlora()
swapserve()
loads()
traces()
with open(target, "w", encoding="utf-8") as file:
    file.write("\n".join(out).rstrip() + "\n")
print(f"{target}: {len(out)} lines, {seconds} s")
