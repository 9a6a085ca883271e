#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker obeys llama-swap's groups and matrix: which models run together, and who waits for whom.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'groups and matrix'
run groups python3 tests/worker/model_groups.py "$work"
assert_exit groups 0
grep -A3 FAIL "$work/groups.out"
finish
