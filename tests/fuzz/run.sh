#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target for TIME seconds, from its corpus on. What it finds is left in BUILD/tests/fuzz/found.
set -u
cd "$(dirname "$0")/../.."
found=$BUILD/tests/fuzz/found failed=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
mkdir -p "$found"
for source in tests/fuzz/target_*.c; do
	name=$(basename "$source" .c)
	name=${name#target_}
	[ -n "${ONLY:-}" ] && [[ $name != $ONLY ]] && continue
	corpus=$BUILD/tests/fuzz/corpus/$name log=$found/$name.log
	mkdir -p "$corpus"
	"$BUILD/tests/fuzz/$name" -max_total_time="${TIME:-60}" -max_len=65536 -timeout=10 -rss_limit_mb=1024 \
		-detect_leaks=1 -print_final_stats=1 -artifact_prefix="$found/$name-" \
		"$corpus" "tests/fuzz/corpus/$name" >"$log" 2>&1
	code=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	cover=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
	if [ $code = 0 ]; then
		printf '  pass  %s: %s runs, %s\n' "$name" "$runs" "$cover"
	else
		printf '  FAIL  %s (exit %s), see %s\n' "$name" $code "$log"
		failed=1
	fi
done
exit $failed
