#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The status page of medusa-worker in a real browser, from a phone's width on, and the streams that feed it.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'events and logs'
run streams python3 tests/worker/page_streams.py "$work"
assert_exit streams 0
grep -A3 FAIL "$work/streams.out"

section 'in a browser'
# A browser of its own needs neither the stand-in for the driver nor other libraries of ours.
unset LD_LIBRARY_PATH LD_PRELOAD
shots=()
[ -z "${KEEP:-}" ] || { mkdir "$work/shots" && shots=("$work/shots"); }
run page python3 tests/worker/status_page.py "$work" "${shots[@]}"
if [ $code = 77 ]; then
	echo "no Chromium here (Debian: chromium-headless-shell): skipped how the status page looks in a browser"
	[ $failures = 0 ] && exit 77
	finish
fi
assert_exit page 0
grep -A3 FAIL "$work/page.out"
finish
