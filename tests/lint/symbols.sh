#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What each library exports, with its version, equals its checked-in list; UPDATE=1 writes the lists anew. The scheduler calls no
# mathematical function whose last bit differs from C library to C library, because equal calls give equal actions everywhere.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
failed=0

for library in libmedusa.so libmedusa-capture.so libmedusa-restore.so libmedusa-swap.so libmedusa-sched.so hostcuda/libcuda.so.1; do
	name=$(basename "$library")
	list=tests/lint/exports-${name%%.so*}.txt
	if [ ! -e "$build/lib/$library" ]; then
		echo "$build/lib/$library is not built: run make libs hostcuda"
		failed=1
		continue
	fi
	exports=$(nm -D --defined-only "$build/lib/$library" | awk '$2 != "A" { print $NF }' | LC_ALL=C sort -u)
	if [ -n "${UPDATE:-}" ]; then
		printf '%s\n' "$exports" >"$list"
	elif [ ! -e "$list" ]; then
		echo "$list is missing: UPDATE=1 tests/lint/symbols.sh writes it"
		failed=1
	elif ! difference=$(diff "$list" <(printf '%s\n' "$exports")); then
		echo "$library: exports differ from $list (< listed, > exported):"
		echo "$difference"
		failed=1
	fi
done

inexact='^(a?(sin|cos|tan)h?|exp.*|log.*|pow|cbrt|hypot|erfc?|[lt]gamma)f?l?(@|$)'
if found=$(nm -D --undefined-only "$build/lib/libmedusa-sched.so" | awk '{ print $NF }' | grep -E "$inexact"); then
	echo "libmedusa-sched.so calls $found: its last bit depends on the C library; see simulator/exact_math.c"
	failed=1
fi
exit $failed
