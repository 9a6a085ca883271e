#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap run --share-constant: equal constant memory of engines is one, at the addresses that each of them had.
. "$(dirname "$0")/lib.sh"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! python3 tests/backbone/merging.py "$work" >"$work/merging.out" 2>&1; then
	fail "tests/backbone/merging.py" "$(grep -A3 FAIL "$work/merging.out" || tail -5 "$work/merging.out")"
fi
assert_contains "$work/merging.out" " 0 failures"
finish
