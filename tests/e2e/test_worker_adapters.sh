#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker with LoRA adapters: functions on a backbone, loaded and unloaded in its engine, whatever happens meanwhile.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'adapters'
for part in adapter_loads adapter_changes adapter_strays adapter_storm; do
	run "$part" python3 "tests/worker/$part.py" "$work/$part"
	assert_exit "$part" 0
	grep -A3 FAIL "$work/$part.out"
done

section 'three adapters on the reference engine'
export MEDUSA_BUILD
mkdir "$work/reference"
run reference env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/adapter_reference.py "$work/reference"
assert_exit reference 0
grep -A3 FAIL "$work/reference.out"
[ "$code" = 0 ] || tail -5 "$work/reference.err"
finish
