#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# KV capacity of an engine that captures graphs while it measures: the cache that comes after it is no graph's memory.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/kv_subject

section "captured: one number in each run"
run captured medusa-capture -o "$work/kv.medusa" -- "$subject"
assert_exit captured 0
assert_contains "$work/captured.err" "verification: 1 passed, 0 failed, 0 not compared"
run inspect medusa-inspect "$work/kv.medusa"
measured=$(sed -n 's/^cache: \([0-9]*\) blocks, measured$/\1/p' "$work/captured.err" | sort -u)
assert_contains "$work/inspect.out" "in $measured blocks of 1048576 bytes"
assert_lacks "$work/inspect.out" "graphs [0-9.]* GiB"

section "a cold start is answered"
run cold medusa-restore "$work/kv.medusa" -- "$subject"
assert_exit cold 0
assert_contains "$work/cold.err" "cache: $measured blocks, answered"
assert_equal "what it computes" "through the cache: 42" "$(cat "$work/cold.out")"

section "less memory is free: within half of what was left over, the number of blocks stays"
number()
{
	medusa-inspect --json "$work/kv.medusa" | tr -d ' ,"' | sed -n "s/^$1:\([0-9]*\)$/\1/p" | head -n 1
}
left=$(($(number baseline_free) - $(number kv_bytes) - $(number peak) - $(number graph_bytes)))
assert_at_least "memory that was left over" $((8 << 20)) "$left"
KV_TAKEN=$((left * 45 / 100)) MEDUSA_LOG=info run short medusa-restore "$work/kv.medusa" -- "$subject"
assert_exit short 0
assert_contains "$work/short.err" "cache: $measured blocks, answered"
assert_contains "$work/short.err" "KV profile: $(number baseline_free) bytes were free in the capture, "
assert_contains "$work/short.err" " are free now: the stored answer holds, because $((left / 2)) fewer may be"
assert_equal "what it computes" "through the cache: 42" "$(cat "$work/short.out")"

section "far less memory is free: it is measured, and the graph, whose cache had another size, is captured live"
KV_TAKEN=$((left * 55 / 100)) run shorter medusa-restore "$work/kv.medusa" -- "$subject"
assert_exit shorter 0
assert_contains "$work/shorter.err" "KV capacity is measured live: KV profile: $(number baseline_free) bytes were free in the capture, "
assert_contains "$work/shorter.err" " blocks, measured"
assert_equal "what it computes" "through the cache: 42" "$(cat "$work/shorter.out")"
finish
