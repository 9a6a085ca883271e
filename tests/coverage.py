# SPDX-License-Identifier: Apache-2.0
"""What a run of tests has covered, by gcov: coverage.py BUILD prints a table by folder and writes BUILD/coverage.json by file.

Sources that no test reached count with all their lines. Code of tests and benchmarks does not count."""

import collections
import concurrent.futures
import json
import os
import subprocess
import sys

FOLDERS = ("base", "driver", "format", "kvprofile", "capture", "analyze", "restore", "scheduler", "simulator", "tools", "hostcuda", "models")


def notes(build):
    """The notes that the compiler left for each object, in the order of the layers; not of sources that are gone."""
    for folder in FOLDERS:
        for path, _, names in sorted(os.walk(os.path.join(build, "obj", folder))):
            of = os.path.relpath(path, os.path.join(build, "obj"))
            yield from (os.path.join(path, name) for name in sorted(names)
                        if name.endswith(".gcno") and os.path.exists(os.path.join(of, name[:-4] + "c")))


def gcov(note):
    said = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", note], capture_output=True, check=False)
    if said.returncode and b"no functions found" not in said.stderr:  # a source may be data alone
        raise SystemExit(f"coverage: gcov could not read {note}: {said.stderr.decode().strip()}")
    return json.loads(said.stdout)["files"]


def merge(sources, files):
    """A header's lines are in many objects: a line is covered if it is in one of them."""
    for file in files:
        if file["file"].startswith("/") or not file["file"].startswith(tuple(f + "/" for f in FOLDERS)):
            continue
        lines, branches = sources[file["file"]]
        for line in file["lines"]:
            number = line["line_number"]
            lines[number] = lines.get(number, 0) + line["count"]
            for index, branch in enumerate(line["branches"]):
                branches[number, index] = branches.get((number, index), 0) + branch["count"]


def counts(counters):
    return [sum(1 for count in counters.values() if count > 0), len(counters)]


def share(covered, total):
    return f"{100 * covered / total:7.1f} %" if total else "        -"


def table(files):
    rows = {folder: [0, 0, 0, 0] for folder in FOLDERS}
    rows["all"] = [0, 0, 0, 0]
    for name, file in files.items():
        for row in (rows[name.split("/")[0]], rows["all"]):
            for at, value in enumerate(file["lines"] + file["branches"]):
                row[at] += value
    print(f"{'folder':<12}{'lines':>9}{'of':>8}{'':>9}{'branches':>11}{'of':>8}")
    for folder, row in rows.items():
        if row[1]:
            print(f"{folder:<12}{row[0]:>9}{row[1]:>8}{share(*row[:2])}{row[2]:>11}{row[3]:>8}{share(*row[2:])}")


def main(build):
    sources = collections.defaultdict(lambda: ({}, {}))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for files in pool.map(gcov, notes(build)):
            merge(sources, files)
    if not sources:
        raise SystemExit(f"coverage: {build}/obj holds no notes of gcov: build with COVERAGE=1")
    files = {name: {"lines": counts(lines), "branches": counts(branches),
                    "uncovered": sorted(number for number, count in lines.items() if count <= 0)}
             for name, (lines, branches) in sorted(sources.items())}
    table(files)
    report = os.path.join(build, "coverage.json")
    with open(report, "w", encoding="utf-8") as out:
        json.dump(files, out, indent=1)
    print(f"by file, with the lines that nothing reached: {report}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: coverage.py BUILD")
    main(sys.argv[1])
