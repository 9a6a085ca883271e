#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker with LoRA adapters: functions on a backbone, loaded and unloaded in its engine, whatever happens meanwhile.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'adapters'
for part in adapter_loads adapter_changes; do
	run "$part" python3 "tests/worker/$part.py" "$work/$part"
	assert_exit "$part" 0
	grep -A3 FAIL "$work/$part.out"
done
finish
