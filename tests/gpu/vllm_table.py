# SPDX-License-Identifier: Apache-2.0
"""The reports of vllm_engine.py in one folder as a table, and whether restored engines answer as the live one does."""
import json
import os
import sys

STAGES = ("import_torch", "import_vllm", "init_device", "load_model", "determine_available_memory", "capture_model",
          "compile_or_warm_up_model", "engine", "first_token", "all_answers")


def load(folder, name):
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def common(one, other):
    """Tokens that two answers begin with alike."""
    return next((at for at, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))


def main():
    folder = sys.argv[1]
    reports = {name: load(folder, name) for name in ("live", "restore", "compiled")}
    missing = [name for name, report in reports.items() if report is None]
    reports = {name: report for name, report in reports.items() if report}
    print(f"{'seconds':28}" + "".join(f"{name:>12}" for name in reports))
    for stage in STAGES:
        print(f"{stage:28}" + "".join(f"{report['seconds'].get(stage, 0):12.3f}" for report in reports.values()))
    bad = bool(missing)
    for name, report in reports.items():
        if name == "live" or "live" not in reports:
            continue
        pairs = list(zip(reports["live"]["tokens"], report["tokens"]))
        same = sum(one == other for one, other in pairs)
        stats = report.get("medusa", {})
        print(f"{name}: {stats.get('graphs_restored', 0)} of {stats.get('graphs_total', 0)} graphs restored; {same} of {len(pairs)} "
              f"answers as live, {sum(common(one, other) for one, other in pairs)} of {sum(len(one) for one, _ in pairs)} tokens before "
              "the first difference")
        # With compiled prefills the same kernels run, so the answers must be the same.
        bad |= not stats.get("graphs_restored") or (name == "compiled" and same < len(pairs))
    if missing:
        print(f"no report of: {', '.join(missing)}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
