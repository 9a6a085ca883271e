#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets up hostcuda and the sanitizers for torture.py; what is given goes to that. "chaos" is that of a cluster alone, and "soak" the soak of
# medusa-worker alone; after all the rest, too, for CHAOS seconds (600; 0: not at all) and SOAK seconds (3600). SEED=N chooses their plan.
set -u
cd "$(dirname "$0")/../.." || exit 1
MEDUSA_DEVICE=host
. tests/e2e/device.sh
unset MEDUSA_LOG MEDUSA_LOG_FILE MEDUSA_RESOLVE MEDUSA_ARTIFACT MEDUSA_REQUIRE_PROOF MEDUSA_PROBE HOSTCUDA_FAULT HOSTCUDA_MEM
if [ -n "${SAN:-}" ]; then
	export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=1:handle_segv=1:allow_user_segv_handler=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
fi
[ -z "${TSAN:-}" ] || export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp${TSAN_OPTIONS:+:$TSAN_OPTIONS}
# Each call of medusa-worker, but for many of the same place that write a page; sanitizers' allocators are not counted.
worker_calls() { POINTS=${POINTS:-700} bash tests/e2e/test_worker_injected.sh; }
soak() { SECONDS_OF_SOAK=${SOAK:-3600} bash tests/e2e/test_worker_soak.sh; }
chaos() { SECONDS_OF_CHAOS=${CHAOS:-600} bash tests/e2e/test_cluster_chaos.sh || [ $? = 77 ]; }
if [ "$*" = soak ] || [ "$*" = chaos ]; then
	"$1"
	exit
fi
# Every call in turn would take hours there; threads meet in these.
[ -z "${TSAN:-}" ] || [ $# -gt 0 ] || set -- crowd cycles
# Files that are rewritten under their readers, many times more than make check does it.
[ $# -gt 0 ] || HOSTILE_ROUNDS=${HOSTILE_ROUNDS:-400} bash tests/e2e/test_hostile.sh || exit 1
# Cold starts in other orders of addresses.
[ $# -gt 0 ] || ORDERS=${ORDERS:-100} bash tests/e2e/test_order.sh || exit 1
# Random events for the scheduler; sanitizers take ten times as long.
if [ $# = 0 ]; then
	MEDUSA_EVENTS=${MEDUSA_EVENTS:-$([ -n "${SAN:-}" ] && echo 2000000 || echo 20000000)} "$build/tests/test_scheduler_property" || exit 1
fi
[ $# -gt 0 ] || [ -n "${SAN:-}${TSAN:-}" ] || worker_calls || exit 1
[ $# -gt 0 ] || [ "${CHAOS:-}" = 0 ] || then_chaos=1
[ $# -gt 0 ] || [ "${SOAK:-}" = 0 ] || then_soak=1
python3 tests/faults/torture.py "$@" || exit 1
[ -z "${then_chaos:-}" ] || chaos || exit 1
[ -z "${then_soak:-}" ] || soak
