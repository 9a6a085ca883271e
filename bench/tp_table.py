#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tp_table.py FOLDER RANKS: the table of h200-tp.sh, made from what its runs left in FOLDER; exit 1 if a number is not what is asked for.

live.ROUND.RANK.json and restore.ROUND.RANK.json are reports of tp_decode.py, verify.json is that of medusa-verify, floor.ROUND.RANK.json of
bench/floor, and cycles.txt has a line for each cycle: its number, its exit code, and the seconds it took. What is not there counts as not measured.
"""
import glob
import json
import os
import statistics
import sys

LEAST_SPEEDUP, MOST_OF_FLOOR, FIRST_GRAPH_MS, REPLAY_DIFFERENCE = 10, 1.3, 30, 0.02


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


class Table:
    def __init__(self, folder, ranks):
        self.folder, self.ranks, self.failures = folder, ranks, 0

    def runs(self, kind):
        """By round, reports of all ranks; a round in which one is missing does not count."""
        rounds = sorted({os.path.basename(path).split(".")[1] for path in glob.glob(os.path.join(self.folder, f"{kind}.*.*.json"))}, key=int)
        found = [[read(os.path.join(self.folder, f"{kind}.{number}.{rank}.json")) for rank in range(self.ranks)] for number in rounds]
        return [reports for reports in found if all(reports)]

    def say(self, what, holds, number):
        """holds: None if it was not measured."""
        self.failures += holds is not True
        print(f"| {what} | {number if holds is not None else '-'} | {'not measured' if holds is None else 'yes' if holds else '**no**'} |")

    def slowest(self, runs, key):
        """A job is as fast as its slowest rank; the median of rounds counts."""
        return statistics.median(max(report[key] for report in reports) for reports in runs) if runs else None

    def judge_outputs(self, live, restored):
        if not live or not restored:
            return self.say("results of restored graphs are those of live ones", None, "")
        wanted = [{g["batch"]: (g["output"], g["kv"]) for g in report["graphs"]} for report in live[0]]
        total = same = count = 0
        for reports in restored:
            for rank, report in enumerate(reports):
                for graph in report["graphs"]:
                    total += 1
                    count += graph["restored"]
                    same += wanted[rank].get(graph["batch"]) == (graph["output"], graph["kv"])
        self.say("graphs that were restored, over all ranks and rounds", count == total > 0, f"{count} of {total}")
        return self.say("of these and the live ones beside them, results equal to a live start's, bit by bit", same == total > 0, f"{same} of {total}")

    def judge_verification(self):
        report = read(os.path.join(self.folder, "verify.json"))
        graphs = [graph for rank in (report or {}).get("ranks", []) for graph in rank["graphs"]]
        passed = sum(graph["outcome"] == "passed" for graph in graphs)
        self.say("graphs of all ranks that medusa-verify finds equal to live replays in fresh processes",
                 (passed == len(graphs)) if graphs else None, f"{passed} of {len(graphs)}")

    def judge_times(self, live, restored, floors):
        was, now = self.slowest(live, "graphs_ms"), self.slowest(restored, "graphs_ms")
        floor, first = self.slowest(floors, "total_ms"), self.slowest(restored, "first_graph_ms")
        self.say(f"restore against live warm-up, capture and instantiation (at least {LEAST_SPEEDUP} x)",
                 None if was is None or now is None else was / now >= LEAST_SPEEDUP, was and now and f"{was:.0f} ms / {now:.1f} ms = {was / now:.1f} x")
        self.say(f"restore against the driver's own calls (at most {MOST_OF_FLOOR} x)",
                 None if floor is None or now is None else now <= MOST_OF_FLOOR * floor, floor and now and f"{now:.1f} ms / {floor:.1f} ms = {now / floor:.2f} x")
        self.say(f"first graph after communicator and weights are ready (at most {FIRST_GRAPH_MS} ms)",
                 None if first is None else first <= FIRST_GRAPH_MS, first is not None and f"{first:.1f} ms")

    def judge_replays(self, live, restored):
        def times(runs):
            by_graph = {}
            for reports in runs:
                for rank, report in enumerate(reports):
                    for graph in report["graphs"]:
                        if "replay_us" in graph:
                            by_graph.setdefault((rank, graph["batch"]), []).append(graph["replay_us"])
            return {key: statistics.median(values) for key, values in by_graph.items()}
        was, now = times(live), times(restored)
        ratios = [now[key] / was[key] for key in was if key in now]
        middle = statistics.median(ratios) if ratios else 0
        self.say(f"replays of restored graphs against live ones (median within {REPLAY_DIFFERENCE:.0%}, or faster)",
                 middle - 1 <= REPLAY_DIFFERENCE if ratios else None,
                 ratios and f"{middle:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")

    def judge_cycles(self, wanted):
        try:
            with open(os.path.join(self.folder, "cycles.txt"), encoding="utf-8") as file:
                cycles = [line.split() for line in file if line.strip()]
        except OSError:
            cycles = []
        good = sum(code == "0" for _, code, _ in cycles)
        hung = sum(code in ("124", "137") for _, code, _ in cycles)
        self.say(f"{wanted} restore cycles without a hang or another result", good == len(cycles) >= wanted if cycles else None,
                 f"{good} of {len(cycles)}, {hung} hung")

    def print(self, cycles):
        live, restored, floors = self.runs("live"), self.runs("restore"), self.runs("floor")
        print("| what | measured | as asked for |\n|---|---|---|")
        self.judge_outputs(live, restored)
        self.judge_verification()
        self.judge_times(live, restored, floors)
        self.judge_replays(live, restored)
        self.judge_cycles(cycles)
        for kind, runs in (("live", live), ("restore", restored)):
            if runs:
                print(f"\n{kind}: communicator {self.slowest(runs, 'communicator_ms'):.0f} ms, weights {self.slowest(runs, 'weights_ms'):.0f} ms, "
                      f"all graphs {self.slowest(runs, 'graphs_ms'):.1f} ms; the slowest rank, median of {len(runs)}")
        for reason in sorted({g["reason"] for reports in restored for report in reports for g in report["graphs"] if g["reason"]}):
            print(f"captured live: {reason[:300]}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: tp_table.py FOLDER RANKS [CYCLES]")
    table = Table(sys.argv[1], int(sys.argv[2]))
    table.print(int(sys.argv[3]) if len(sys.argv) > 3 else 200)
    sys.exit(table.failures != 0)
