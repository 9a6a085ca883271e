#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker with models whose engines share their weights: it has a medusa-backbone, whoever of them is killed.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run MEDUSA_BUILD
unset MEDUSA_BACKBONE
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'engines on one backbone'
mkdir "$work/shared"
run shared env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/shared_weights.py "$work/shared"
assert_exit shared 0
grep -A3 FAIL "$work/shared.out"
[ "$code" = 0 ] || tail -5 "$work/shared.err"
section 'what engines have in common counts once'
mkdir "$work/budget"
run budget env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/shared_budget.py "$work/budget"
assert_exit budget 0
grep -A3 FAIL "$work/budget.out"
[ "$code" = 0 ] || tail -5 "$work/budget.err"
section 'engines whose constant memory is one when it comes in'
mkdir "$work/constant"
run constant env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/shared_constant.py "$work/constant"
assert_exit constant 0
grep -A3 FAIL "$work/constant.out"
[ "$code" = 0 ] || tail -5 "$work/constant.err"
section 'what is one when it comes in is counted once'
mkdir "$work/credit"
run credit env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/shared_credit.py "$work/credit"
assert_exit credit 0
grep -A3 FAIL "$work/credit.out"
[ "$code" = 0 ] || tail -5 "$work/credit.err"
finish
