#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker is asked and told what to do over its control socket, by medusa-workerctl.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'control socket'
run control python3 tests/worker/control.py "$work"
assert_exit control 0
grep -A3 FAIL "$work/control.out"
section 'what /health says'
run health python3 tests/worker/health_page.py "$work"
assert_exit health 0
grep -A3 FAIL "$work/health.out"
section 'what /metrics says'
run metrics python3 tests/worker/metrics_page.py "$work"
assert_exit metrics 0
grep -A3 FAIL "$work/metrics.out"
section 'pages that are long'
run long python3 tests/worker/long_pages.py "$work"
assert_exit long 0
grep -A3 FAIL "$work/long.out"
section 'reload'
run reload python3 tests/worker/reload.py "$work"
assert_exit reload 0
grep -A3 FAIL "$work/reload.out"
section 'service manager'
run notify python3 tests/worker/notify.py "$work"
assert_exit notify 0
grep -A3 FAIL "$work/notify.out"
section 'engines that are killed, unloaded and renewed at once'
run storm python3 tests/worker/reload_storm.py "$work"
assert_exit storm 0
grep -A3 FAIL "$work/storm.out"
finish
