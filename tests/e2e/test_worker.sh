#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker: requests start engines, are passed on, wait and are refused; engines that fail are told of.
. tests/e2e/lib.sh
section 'requests'
run requests python3 tests/worker/serve_requests.py "$work"
assert_exit requests 0
grep -A3 FAIL "$work/requests.out"
section 'answers that are broken off'
run broken python3 tests/worker/broken_answers.py "$work"
assert_exit broken 0
grep -A3 FAIL "$work/broken.out"
section 'streams of events, and answers that are encoded'
run streams python3 tests/worker/event_streams.py "$work"
assert_exit streams 0
grep -A3 FAIL "$work/streams.out"
section 'every path, priorities, and public failures'
run ways python3 tests/worker/promised_ways.py "$work"
assert_exit ways 0
grep -A3 FAIL "$work/ways.out"
section 'whose engines they are'
run owner python3 tests/worker/engine_owner.py "$work"
assert_exit owner 0
grep -A3 FAIL "$work/owner.out"
section 'limits of models'
run limits python3 tests/worker/model_limits.py "$work"
assert_exit limits 0
grep -A3 FAIL "$work/limits.out"
section 'models that stay loaded'
run kept python3 tests/worker/kept_models.py "$work"
assert_exit kept 0
grep -A3 FAIL "$work/kept.out"
section 'tenants'
run tenants python3 tests/worker/tenants.py "$work"
assert_exit tenants 0
grep -A3 FAIL "$work/tenants.out"
section 'engines with device memory'
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if [ -n "${TSAN:-}" ]; then
	echo "skipped with the thread sanitizer: engines in Python that load the device, into which its library cannot be loaded"
else
	run swap python3 tests/worker/swap_engines.py "$work"
	assert_exit swap 0
	grep -A3 FAIL "$work/swap.out"
fi
section 'requests that join engines'
run join python3 tests/worker/join_engines.py "$work"
assert_exit join 0
grep -A3 FAIL "$work/join.out"

section 'what engines print'
run logs python3 tests/worker/engine_logs.py "$work"
assert_exit logs 0
grep -A3 FAIL "$work/logs.out"
section 'small pages, the end of the daemon, and what it leaves'
run pages python3 tests/worker/small_pages.py "$work"
assert_exit pages 0
grep -A3 FAIL "$work/pages.out"

section 'its command line'
run check medusa-worker --config "$work/requests/config.yaml" --check
assert_exit check 0
run none medusa-worker
assert_exit none 2
finish
