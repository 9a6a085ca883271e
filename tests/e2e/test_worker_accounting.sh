#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What medusa-worker keeps for whoever pays is what was served; a file that can't be written costs no request.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'accounting'
run accounting python3 tests/worker/accounting.py "$work"
assert_exit accounting 0
grep -A3 FAIL "$work/accounting.out"
section 'the clock jumps'
run clock python3 tests/worker/clock_jumps.py "$work"
assert_exit clock 0
grep -A3 FAIL "$work/clock.out"
section 'how requests end'
run counts python3 tests/worker/counts.py "$work"
assert_exit counts 0
grep -A3 FAIL "$work/counts.out"
section 'a recorded day, replayed'
run replay python3 tests/worker/replay_record.py "$work"
assert_exit replay 0
cat "$work/replay.out"
section 'the same with adapters'
run adapters python3 tests/worker/replay_record.py "$work/adapters" adapters
assert_exit adapters 0
cat "$work/adapters.out"
finish
