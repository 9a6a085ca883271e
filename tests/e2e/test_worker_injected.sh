#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Allocations, files, connections and processes of medusa-worker that fail, one in each run: a sample (SEED=N chooses it;
# POINTS=N: so many of each kind, as in make torture).
. tests/e2e/lib.sh
section 'one call fails'
run_limit=3000
run injected python3 -B tests/worker/injected.py "$work" --seed "${SEED:-1}" --sample "${POINTS:-4}"
assert_exit injected 0
cat "$work/injected.out"
finish
