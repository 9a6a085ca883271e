#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One round of the soak of medusa-worker (make torture has an hour of it): every request ends once, whatever happens. SEED=N
# chooses the same plan again; SECONDS_OF_SOAK=N goes on for so long.
. tests/e2e/lib.sh
section 'a soak'
seed=${SEED:-$RANDOM}
run_limit=$((${SECONDS_OF_SOAK:-0} + 600))
run soak python3 -B tests/worker/soak_daemon.py "$work" --seed "$seed" --seconds "${SECONDS_OF_SOAK:-0}"
assert_exit soak 0
cat "$work/soak.out"
[ ! -s "$work/soak.err" ] || fail 'nothing on stderr' "$(tail -n 20 "$work/soak.err")"
finish
