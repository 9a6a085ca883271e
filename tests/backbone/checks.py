# SPDX-License-Identifier: Apache-2.0
"""What the tests of medusa-backbone check, and whether all of it was right."""
import sys

failures = checks = 0


def check(what, wanted, got):
    global failures, checks
    checks += 1
    if wanted != got:
        failures += 1
        print(f"FAIL {what}: expected {wanted!r}, got {got!r}", flush=True)


def finish():
    print(f"{checks} checks, {failures} failures")
    sys.exit(failures > 0)
