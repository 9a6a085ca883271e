#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines outlive medusa-worker: the next daemon goes on with them, or they end.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'engines outlive the daemon'
run adopt python3 tests/worker/adopt_engines.py "$work"
assert_exit adopt 0
grep -A3 FAIL "$work/adopt.out"
finish
