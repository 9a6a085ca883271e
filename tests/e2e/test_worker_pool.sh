#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines behind medusa-worker share one pool of host memory while they are swapped out.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'one pool for all engines'
run pool python3 tests/worker/swap_pool.py "$work"
assert_exit pool 0
grep -A3 FAIL "$work/pool.out"
finish
