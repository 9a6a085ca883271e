#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the table of bench/h200-torch from its records, one JSON file a model: torch_table.py RECORDS RESULTS [NAME]."""
import glob
import json
import os
import statistics
import sys

ORDER = ("falcon-7b", "llama2-7b", "llama2-13b", "qwen1.5-0.5b", "qwen1.5-1.8b", "qwen1.5-4b", "qwen1.5-7b", "qwen1.5-14b",
         "yi-6b", "yi-9b")
TITLES = {"falcon-7b": "Falcon-7B", "llama2-7b": "Llama2-7B", "llama2-13b": "Llama2-13B", "qwen1.5-0.5b": "Qwen1.5-0.5B",
          "qwen1.5-1.8b": "Qwen1.5-1.8B", "qwen1.5-4b": "Qwen1.5-4B", "qwen1.5-7b": "Qwen1.5-7B", "qwen1.5-14b": "Qwen1.5-14B",
          "yi-6b": "Yi-6B", "yi-9b": "Yi-9B"}
# MEDUSA (ASPLOS 2025) on an A100: Table 1, and what section 7 says in words of Figures 7 and 8.
PAPER_NODES = {"falcon-7b": 14406, "llama2-7b": 12518, "llama2-13b": 16150, "qwen1.5-0.5b": 9118, "qwen1.5-1.8b": 9550,
               "qwen1.5-4b": 16150, "qwen1.5-7b": 12902, "qwen1.5-14b": 16350, "yi-6b": 12902, "yi-9b": 19318}
PAPER_REDUCTIONS = {"qwen1.5-4b": (-13.0, -41.4, -32.7), "average": (None, -42.5, -34.4)}  # async, restored; restored to async
PAPER_COLD_STARTS = {"llama2-13b": -42.9, "qwen1.5-0.5b": -21.1, "average": -34.9}  # the most, the least
PAPER_4B_S = {"vanilla": {"structure": 0.85, "weights": 0.39, "kv": 0.50, "graphs": 0.90, "all": 2.85},
              "restored": {"kv": 0.02, "graphs": 0.57, "all": 2.85 * (1 - 0.414)}}  # and 0.21 s for the tokenizer
NOTHING = "-"


class Missing(Exception):
    """What a row needs is not in the record."""


class Record:
    """One model's record; a step that is not there makes a row's cell empty and never the table fail."""

    def __init__(self, data):
        self.data, self.name = data, data["model"]
        self.title = TITLES.get(self.name, self.name)

    def all(self, step):
        results = self.data["steps"].get(step)
        if not results:
            raise Missing(step)
        return results

    def last(self, step):
        return self.all(step)[-1]

    def median(self, step, read):
        return statistics.median(read(result) for result in self.all(step))

    def ratio(self, upper, read_upper, lower, read_lower):
        """Of the results of the same round."""
        return statistics.median(read_upper(a) / read_lower(b) for a, b in zip(self.all(upper), self.all(lower)))


def live_ms(report, kinds=("warmup_ms", "capture_ms", "instantiate_ms")):
    return sum(graph[kind] for graph in report["graphs"] for kind in kinds)


def medusa_ms(key):
    def read(report):
        if not report.get("medusa"):
            raise Missing("a restored run")
        return report["medusa"][key] / 1e6
    return read


def after_weights(record, step, moment):
    return record.median(step, lambda report: report["after_weights_ms"][moment])


def captured_ratio(record):
    """Both captures against the live runs."""
    live = record.median("live", lambda report: report["ready_ms"]["from_context"])
    return statistics.median(report["ready_ms"]["from_context"] for report in record.last("capture")["reports"]) / live


def replay_ratios(record):
    ratios = [graph["replay_ms"] / graph["live_replay_ms"] for report in record.all("restored") for graph in report["graphs"]
              if graph.get("live_replay_ms") and graph["restored"]]
    if not ratios:
        raise Missing("replays")
    return ratios


def background(record):
    report = max((report.get("background") or {"beside_ms": {"count": 0}} for report in record.all("restored")),
                 key=lambda found: found["beside_ms"]["count"])
    if not report["beside_ms"]["count"]:
        raise Missing("replays beside")
    return report


def background_cell(record):
    found = background(record)
    beside, alone = found["beside_ms"], found["alone_ms"]
    return (f"{beside['p99'] / alone['p99']:.2f} x ({beside['p50']:.2f}, {beside['p99']:.2f} / {alone['p50']:.2f}, "
            f"{alone['p99']:.2f} ms; {beside['count']})")


def check_cell(step):
    def cell(record):
        report = record.last(step)
        return f"{report['check']['equal']} of {report['check']['of']}"
    return cell


def triggered_cell(record):
    report = record.last("triggered")
    return (f"{report['graphs_restored']} of {len(report['graphs'])}, {report['check']['equal']} equal, "
            f"{medusa_ms('total_ns')(report):.0f} ms + {report['stages_ms'].get('trigger', 0):.0f}")


def kv_cell(record):
    live = record.median("live", lambda report: report["kv"]["ms"])
    restored = record.median("restored", lambda report: report["kv"]["ms"])
    answered = all(report["kv"]["from_profile"] for report in record.all("restored"))
    return f"{live:.0f} -> {restored:.1f}" + ("" if answered else " (not answered)")


def verify_cell(record):
    found = record.last("verify")
    return f"{found['cases'] - found['failed'] - found['skipped']} of {found['cases']}"


def image_cell(record):
    found = record.last("inspect")
    return (f"{found['images']} ({found['image_bytes'] / 1e6:.0f}), {found['images_stored']} stored "
            f"({(found['sections'].get('images', 0) + found['sections'].get('image_data', 0)) / 1e6:.1f})")


def words_cell(record):
    found = record.last("inspect")
    return f"{found['pointer_words']} / {found['constant_words']} / {found['noise_words']}"


def left_out_cell(record):
    refusals = record.last("inspect")["refusals"]
    return str(len(refusals)) + (f": {refusals[0]['why'][:60]}" if refusals else "")


def analysis_cell(record):
    found = record.last("analysis")
    return f"{found['read_ms']:.0f} + {found['analyze_ms']:.0f} + {found['write_ms']:.0f} = {found['total_ms']:.0f}"


def parts(step, *keys):
    return lambda record: " / ".join(f"{record.median(step, medusa_ms(key)):.1f}" for key in keys)


def floor_cell(record):
    return " / ".join(f"{record.median('floor', lambda found: found[key + '_ms']):.1f}"
                      for key in ("images", "functions", "add", "instantiate", "upload"))


def replay_cell(record):
    ratios = replay_ratios(record)
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}, {max(ratios):.3f})"


def after_weights_cell(step):
    return lambda r: f"{after_weights(r, step, 'first_graph'):.1f}, {after_weights(r, step, 'all_graphs'):.0f}"


def restore_rows(step, title):
    """One restore in a process of its own: in total, by stage, and against live and the floor."""
    total = medusa_ms("total_ns")
    return (
        (f"{title}: all stages, ms", lambda r: f"{r.median(step, total):.0f}", ""),
        ("- open / images / functions / arena, ms", parts(step, "open_ns", "images_ns", "functions_ns", "arena_ns"), ""),
        ("- host memory ahead / patch / build, ms", parts(step, "heap_ns", "patch_ns", "build_ns"), ""),
        ("- instantiate / upload, ms", parts(step, "instantiate_ns", "upload_ns"), ""),
        ("- live / restore", lambda r: f"{r.ratio('live', live_ms, step, total):.1f} x", ">= 10 x"),
        ("- restore / floor", lambda r: f"{r.ratio(step, total, 'floor', lambda x: x['total_ms']):.2f} x", "<= 1.3 x"),
    )


# What, the cell, what is wanted.
ROWS = (
    ("weights, GB", lambda r: f"{r.last('live')['weight_bytes'] / 1e9:.1f}", ""),
    ("graphs / nodes", lambda r: f"{r.last('inspect')['graphs']} / {r.last('inspect')['nodes']}", ""),
    ("nodes in MEDUSA's Table 1 (vLLM)", lambda r: str(PAPER_NODES.get(r.name, NOTHING)), ""),
    ("restored graphs bit-equal to eager", check_cell("restored"), "all"),
    ("live: warm-up, ms", lambda r: f"{r.median('live', lambda x: live_ms(x, ('warmup_ms',))):.0f}", ""),
    ("live: capture, ms", lambda r: f"{r.median('live', lambda x: live_ms(x, ('capture_ms',))):.0f}", ""),
    ("live: instantiate, ms", lambda r: f"{r.median('live', lambda x: live_ms(x, ('instantiate_ms',))):.0f}", ""),
    *restore_rows("early", "restore while weights are made"),
    *restore_rows("restored", "restore with replays of the first graph beside it"),
    ("floor of the same run, ms", lambda r: f"{r.median('floor', lambda x: x['total_ms']):.0f}", ""),
    ("- images / functions / add / instantiate / upload, ms", floor_cell, ""),
    ("weights ready to first graph, to all, ms; buffers bound before", after_weights_cell("early"), "<= 20, -"),
    ("the same; buffers bound after the weights are there", after_weights_cell("restored"), "<= 20, -"),
    ("replay beside restoring / alone, 99th percentile (median, 99th; replays)", background_cell, "<= 1.2 x"),
    ("pointer / constant / noise words", words_cell, ""),
    ("graphs left out as unprovable", left_out_cell, "0"),
    ("graph and pointer sections, bytes a node", lambda r: f"{r.last('inspect')['bytes_per_node']:.2f}", "<= 20"),
    ("images (MB), those in the artifact (MB compressed)", image_cell, ""),
    ("artifact, MB", lambda r: f"{r.last('inspect')['file_bytes'] / 1e6:.1f}", ""),
    ("analysis: read + analyze + write, ms", analysis_cell, "<= 1000"),
    ("start until ready, under capture / without", lambda r: f"{captured_ratio(r):.2f} x", "<= 1.5 x"),
    ("replay restored / live, in turns, median (min, max)", replay_cell, "within 2 %"),
    ("KV capacity: profiling -> answer, ms", kv_cell, "<= 20"),
    ("device memory that Medusa holds for graphs, MB", lambda r: f"{r.last('restored')['medusa']['private_bytes'] / 1e6:.0f}", ""),
    ("without images: restored, restore + trigger", triggered_cell, ""),
    ("medusa-verify: graphs equal", verify_cell, "all"),
)


def cell(make, record):
    try:
        return make(record)
    except (Missing, KeyError, TypeError, ZeroDivisionError):
        return NOTHING


def markdown(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(text.ljust(width) for text, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main_table(records):
    rows = [["what", *(record.title for record in records), "wanted"]]
    rows += [[what, *(cell(make, record) for record in records), wanted] for what, make, wanted in ROWS]
    return markdown(rows)


# ---- MEDUSA's Figures 7 and 8 ---------------------------------------------------------------------------------------

def loading(record):
    """Loading phase in seconds: vanilla, asynchronous weights, restored (until all graphs, until the first)."""
    read = lambda step, key: record.median(step, lambda report: report["loading_ms"][key]) / 1e3
    return {"vanilla": read("live", "all_graphs"), "async": read("async", "all_graphs"), "restored": read("early", "all_graphs"),
            "first": read("early", "first_graph"), "cold": cold_start(record, "live"), "cold_restored": cold_start(record, "early")}


def cold_start(record, step):
    """From the start of the process on, imports and CUDA context included, in seconds."""
    return record.median(step, lambda report: report["ready_ms"]["from_process_start"]) / 1e3


def percent(new, old):
    return 100 * (new / old - 1)


def signed(value):
    return NOTHING if value is None else f"{value:+.1f} %"


def loading_table(records):
    rows = [["model", "vanilla, s", "asynchronous weights", "restored, all graphs", "against asynchronous", "restored, first graph",
             "cold start", "MEDUSA: asynchronous", "MEDUSA", "MEDUSA against asynchronous", "MEDUSA: cold start"]]
    reductions = []
    paper_of = lambda name: [*PAPER_REDUCTIONS.get(name, (None, None, None)), PAPER_COLD_STARTS.get(name)]
    for record in records:
        paper = paper_of(record.name)
        try:
            found = loading(record)
        except (Missing, KeyError):
            rows.append([record.title] + [NOTHING] * 6 + [signed(value) for value in paper])
            continue
        ours = (percent(found["async"], found["vanilla"]), percent(found["restored"], found["vanilla"]),
                percent(found["restored"], found["async"]), percent(found["first"], found["vanilla"]),
                percent(found["cold_restored"], found["cold"]))
        reductions.append(ours)
        rows.append([record.title, f"{found['vanilla']:.2f}", f"{found['async']:.2f} s, {signed(ours[0])}",
                     f"{found['restored']:.2f} s, {signed(ours[1])}", signed(ours[2]), f"{found['first']:.2f} s, {signed(ours[3])}",
                     f"{found['cold']:.2f} -> {found['cold_restored']:.2f} s, {signed(ours[4])}", *(signed(value) for value in paper)])
    if reductions:
        means = [statistics.mean(column) for column in zip(*reductions)]
        rows.append(["average", "", *(signed(value) for value in means), *(signed(value) for value in paper_of("average"))])
    return markdown(rows)


def breakdown(report):
    """Seconds of each part of a loading phase; with weights loading beside the KV cache, they overlap."""
    ms = report["stages_ms"]
    return {"structure": ms["structure"] / 1e3, "weights": ms["weights"] / 1e3, "kv": ms["kv"] / 1e3,
            "graphs": (ms["bind"] + ms["first_graph"] + ms["other_graphs"]) / 1e3, "all": report["loading_ms"]["all_graphs"] / 1e3}


def breakdown_table(record):
    """Figure 8: one model's stages in the three strategies."""
    rows = [["stage, s", "vanilla", "asynchronous weights", "restored", "MEDUSA: vanilla", "MEDUSA: restored"]]
    try:
        ours = [breakdown(record.last(step)) for step in ("live", "async", "early")]
    except (Missing, KeyError):
        return ""
    titles = {"structure": "structure", "weights": "weights", "kv": "KV cache initialization",
              "graphs": "warm-up and capture, or restore", "all": "all"}
    for key, title in titles.items():
        paper = [PAPER_4B_S[which].get(key) if record.name == "qwen1.5-4b" else None for which in ("vanilla", "restored")]
        rows.append([title, *(f"{one[key]:.3f}" for one in ours), *(NOTHING if value is None else f"{value:.2f}" for value in paper)])
    return markdown(rows)


# ---- the drawing ------------------------------------------------------------------------------------------------------

COLOURS = {"structure": "#8da0cb", "weights and KV cache": "#a6d854", "graphs": "#fc8d62"}


def segments(report):
    found = breakdown(report)
    last = max(0, found["all"] - found["structure"] - found["graphs"])
    return {"structure": found["structure"], "weights and KV cache": last, "graphs": found["all"] - found["structure"] - last}


def drawing(records):
    """Loading phases as bars, three a model; "" if there are none."""
    bars = []
    for record in records:
        try:
            bars.append((record.title, [segments(record.last(step)) for step in ("live", "async", "early")]))
        except (Missing, KeyError):
            continue
    if not bars:
        return ""
    longest = max(sum(bar.values()) for _, group in bars for bar in group)
    width, left, row = 560, 210, 14
    text = lambda x, y, words, more="": f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'
    out, y = [], 40
    for i, (name, colour) in enumerate(COLOURS.items()):
        out += [f'<rect x="{left + 170 * i}" y="12" width="12" height="12" fill="{colour}"/>', text(left + 170 * i + 18, 22, name)]
    for title, group in bars:
        out.append(text(8, y + 2 * row - 3, title))
        for name, bar in zip(("vanilla", "asynchronous", "restored"), group):
            x = left
            out.append(text(left - 6, y + row - 4, name, 'text-anchor="end" fill="#555"'))
            for part, seconds in bar.items():
                size = width * seconds / longest
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{size:.1f}" height="{row - 3}" fill="{COLOURS[part]}"/>')
                x += size
            out.append(text(x + 4, y + row - 4, f"{sum(bar.values()):.2f} s", 'fill="#555"'))
            y += row
        y += 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{y + 8}" font-family="sans-serif" font-size="11">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n")


# ---- the document -----------------------------------------------------------------------------------------------------

def unique(values):
    return "; ".join(dict.fromkeys(str(value) for value in values if value))


def machine_line(records):
    """Versions and machine, every value that occurs in the records."""
    machines = [record.data.get("machine", {}) for record in records]
    versions = [record.data["steps"][step][0]["versions"] for record in records for step in ("live", "restored")
                if record.data["steps"].get(step)]
    gpus = unique(line for machine in machines for line in machine.get("gpu", []))
    seen = lambda key, source: unique(one.get(key) for one in source)
    together = unique(machine.get("models_at_a_time") for machine in machines)
    rounds = max((len(results) for record in records for results in record.data["steps"].values()), default=0)
    return ". ".join(part for part in (
        f"Date {seen('date', machines)}", f"GPU and driver {gpus}", f"processor {seen('processor', machines)}",
        f"cores {seen('cores', machines)}", f"kernel {seen('kernel', machines)}", f"PyTorch {seen('torch', versions)}",
        f"CUDA {seen('cuda', versions)}", f"cuDNN {seen('cudnn', versions)}", f"transformers {seen('transformers', versions)}",
        f"commit {seen('commit', machines)}", f"models at a time {together}",
        f"rounds {rounds}, medians") if not part.endswith(" ")) + "."


NOTES = """The models are transformers' own code in bfloat16 with a static KV cache, at vLLM's 35 batch sizes, with their real
shapes and weights drawn from a seed. "Live" is the sum over all graphs of what a start without Medusa does; restoring is the
sum of its stages, of which images and functions load behind the weights. Ratios compare runs of the same machine, minutes apart;
replays are timed in one process, in turns. Files are in the page cache. Models that are measured at a time have a GPU each and
share the host. Two restores, each in a process of its own, are shown: one while the weights are made, with the buffers bound
before; and a harder one, in which the weights are there after milliseconds, and as soon as the first graph is restored the
engine replays it without pause. "Host memory ahead" is memory that the driver will need for the graphs: it is brought in while
the restore waits for buffers, and counted here all the same."""

LOADING_NOTES = """Loading is from the CUDA context on: structure, weights, KV cache initialization, graphs. No weights can be read there:
weights made on the device stand for loading, and there is no tokenizer. That part is therefore shorter than in MEDUSA's figures,
and what restoring saves is a larger share. "Restored" asks for the KV capacity first and restores behind the weights.
A cold start begins with the process: Python's imports and the context are in it, and no container. MEDUSA's
numbers, with vLLM on an A100, are those that its text gives; what only its figures show is not here."""


def failures(records):
    lines = [f"* {record.title}, {step}: {why}" for record in records for step, why in record.data.get("errors", {}).items()]
    return "\n## What failed or was not run\n\n" + "\n".join(lines) + "\n" if lines else ""


def document(records, name, picture):
    figure_8 = next((record for record in records if record.name == "qwen1.5-4b"), records[0])
    stages = breakdown_table(figure_8)
    return (f"# {name}\n\nMade by `bench/h200-torch`. {machine_line(records)}\n\n{NOTES}\n\n{main_table(records)}\n\n"
            f"## The loading phase, as in MEDUSA's Figures 7 and 8\n\n{LOADING_NOTES}\n\n{loading_table(records)}\n"
            + (f"\n{figure_8.title}, stage by stage:\n\n{stages}\n" if stages else "")
            + (f"\n![Loading phases](./{name}.svg)\n" if picture else "") + failures(records))


def shorten(data, step=""):
    """What is kept with the table: numbers to 4 digits, and single graphs only of the runs whose graphs were timed."""
    if isinstance(data, float):
        return round(data, 4)
    if isinstance(data, list):
        return [shorten(value, step) for value in data]
    if not isinstance(data, dict):
        return data
    return {key: shorten(value, key if key in ("live", "restored", "capture", "early", "async", "triggered") else step)
            for key, value in data.items() if key != "graphs" or not isinstance(value, list) or step in ("live", "restored")}


def load(folder):
    rank = {name: i for i, name in enumerate(ORDER)}
    records = []
    for path in glob.glob(os.path.join(folder, "*.json")):
        with open(path, encoding="utf-8") as file:
            records.append(Record(json.load(file)))
    return sorted(records, key=lambda record: (rank.get(record.name, len(rank)), record.name))


def main(folder, results, name="h200-torch"):
    records = load(folder)
    if not records:
        print(f"torch_table.py: no records in {folder}", file=sys.stderr)
        return 1
    os.makedirs(results, exist_ok=True)
    picture = drawing(records)
    text = document(records, name, picture)
    files = {"md": text, "json": json.dumps({record.name: shorten(record.data) for record in records}), "svg": picture}
    for ending, contents in files.items():
        if contents:
            with open(os.path.join(results, f"{name}.{ending}"), "w", encoding="utf-8") as file:
                file.write(contents)
    print(text)
    return 1 if any(record.data.get("errors") for record in records) else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
