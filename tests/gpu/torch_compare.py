# SPDX-License-Identifier: Apache-2.0
"""Compares two runs of one PyTorch program by what they wrote with --out: bit-equal results, graphs restored."""
import argparse
import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def differences(before, after):
    for name in sorted(before["outputs"].keys() | after["outputs"].keys()):
        if before["outputs"].get(name) != after["outputs"].get(name):
            yield f"{name}: not the same in both runs"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--restored", choices=("all", "none", "any"), default="all", help="in the second run")
    parser.add_argument("--memory", type=int, metavar="MiB", help="most that the second run may hold more at its end")
    arguments = parser.parse_args()
    before, after = load(arguments.before), load(arguments.after)
    failures = list(differences(before, after))
    done = sum(step["restored"] for step in after["steps"])
    if not after["outputs"] or (arguments.restored == "all" and done != len(after["steps"])) or \
            (arguments.restored == "none" and done):
        failures.append(f"{done} of {len(after['steps'])} graphs were restored, expected: {arguments.restored}")
    if arguments.memory is not None:
        more = (after["used_bytes"] - before["used_bytes"]) / 2**20
        print(f"device memory at the end: {more:+.1f} MiB")
        if more > arguments.memory:
            failures.append(f"{more:.1f} MiB stay allocated")
    for failure in failures[:10]:
        print(failure)
    for reason in sorted({step["reason"] for step in after["steps"] if step["reason"]})[:3]:
        print(f"live: {reason}")
    print(f"{len(before['outputs'])} results, " + (f"{len(failures)} failures" if failures else
          f"the same in both runs; {done} of {len(after['steps'])} graphs restored"))
    return 1 if failures else 0


sys.exit(main())
