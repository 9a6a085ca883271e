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
finish
