#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One medusa-worker with several GPUs: engines on the GPU that the scheduler has chosen, draining, names of GPUs.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'several GPUs'
run several python3 tests/worker/several_gpus.py "$work"
assert_exit several 0
grep -A3 FAIL "$work/several.out"
section 'what is in use in truth'
run truth python3 tests/worker/gpu_memory.py "$work"
assert_exit truth 0
grep -A3 FAIL "$work/truth.out"
[ "$code" = 0 ] || tail -5 "$work/truth.err"
finish
