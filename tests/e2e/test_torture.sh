#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sample of `make torture`, another one in each run (SEED=N chooses it): failing driver calls, allocations and files, kills,
# crowds, cycles. What goes wrong is named with its seed and point, and with the command that tries it again.
cd "$(dirname "$0")/../.." || exit 1
python3 -B tests/faults/torture_check.py || exit 1
seed=${SEED:-$RANDOM}
many=60 some=15
[ -z "${SAN:-}${TSAN:-}" ] || many=40 some=8
tests/faults/run.sh --sample $many --seed "$seed" driver memory &&
	tests/faults/run.sh --sample $some --seed "$seed" files host kill crowd cycles
