#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Engines in cgroups of their own: whatever their processes do, all of them end with their engine.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'engines in cgroups'
run cgroups python3 tests/worker/engine_cgroups.py "$work"
grep -A3 FAIL "$work/cgroups.out"
grep skipped "$work/cgroups.out"
if [ "$code" = 77 ]; then
	tail -n 1 "$work/cgroups.out"
	exit 77
fi
assert_exit cgroups 0
[ "$code" = 0 ] || tail -n 5 "$work/cgroups.err"
finish
