# SPDX-License-Identifier: Apache-2.0
"""A torture that finds something says which point of which seed it was, and tries that point alone when it is asked to."""
import contextlib
import io
import os
import re
import types

os.environ.setdefault("MEDUSA_BUILD", os.path.join(os.getcwd(), "build"))
import torture

CALLS, BROKEN = 40, 23 # so many calls, and the engine goes wrong when this one fails


def once(n):
    run = types.SimpleNamespace(fired="cuSomething" if n <= CALLS else None)
    return run, "wrong" if n == BROKEN else "captured live", "other output" if n == BROKEN else None


def tortured(**options):
    """(exit code, what was printed, the row) of a torture whose only part makes these calls fail."""
    one = torture.Torture.__new__(torture.Torture)
    one.work, one.rows, one.part = None, [], "driver"
    one.sample, one.seed = options.get("sample", 0), options.get("seed", 5)
    one.only, one.point = options.get("row"), options.get("point", 0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        one.sweep("calls of nobody", once)
        one.sweep("driver calls", once)
        code = one.report()
    return code, printed.getvalue(), {row.what: row for row in one.rows}


def same(what, wanted, got):
    if wanted != got:
        raise SystemExit(f"torture_check: {what}: expected {wanted!r}, got {got!r}")


def again(text):
    return re.findall(r"^again: .*run\.sh (.*)$", text, re.M)


def text_at_once(text):
    return [line for line in text.splitlines() if line.startswith("  wrong: ")]


code, text, rows = tortured()
same("every point: exit code", 1, code)
same("every point: points", CALLS, rows["driver calls"].points)
same("every point: the last line", f"{2 * CALLS} points, 2 wrong", text.splitlines()[-1])
same("every point: what is wrong", [f"WRONG calls of nobody, point {BROKEN}: other output",
                                    f"WRONG driver calls, point {BROKEN}: other output"], re.findall("^WRONG.*$", text, re.M))
same("every point: at once", f"  wrong: calls of nobody, point {BROKEN}: other output", text_at_once(text)[0])
same("every point: how to try again", f"--seed 5 --row 'driver calls' --point {BROKEN} driver", again(text)[1])

code, text, rows = tortured(row="driver calls", point=BROKEN)
same("the point again", (1, ["driver calls"], 1), (code, list(rows), rows["driver calls"].points))
code, text, rows = tortured(row="driver calls", point=BROKEN + 1)
same("another point", (0, [], 1), (code, again(text), rows["driver calls"].points))

# A sample of a seed is the same again, alone or behind others; every point is in the sample of some seed.
found = set()
for seed in range(40):
    code, text, rows = tortured(sample=4, seed=seed)
    same("a sample: points", 4, rows["driver calls"].points)
    alone = tortured(sample=4, seed=seed, row="driver calls")
    same("a sample alone: again", again(text)[-1:] if rows["driver calls"].wrong else [], again(alone[1]))
    found.add(bool(rows["driver calls"].wrong))
same("samples with and without the broken point", {True, False}, found)
