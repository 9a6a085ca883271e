#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines behind medusa-worker whose memory comes back over links of other GPUs, too.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'memory comes back over several links'
run neighbours python3 tests/worker/swap_neighbours.py "$work"
assert_exit neighbours 0
grep -A3 FAIL "$work/neighbours.out"
finish
