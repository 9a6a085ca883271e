#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The functions of medusa.h: called wrongly, they answer alike in every mode, with function, argument and what is wrong with it.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/api_subject")

section "null"
run null "${subject[@]}"
assert_exit null 0
assert_equal "calls" 62 "$(wc -l <"$work/null.out")"
section "every wrong call is refused as an argument, by function"
assert_equal "answers that are no MEDUSA_ERR_INVALID" "ready: 0
ready: 0
want: 0:
want none: 0:
trigger: 0:
scratch: 0:
discardable: 0:
needed: 0:
mark: 0:
stage: 0:" "$(grep -v '^[a-z@_ ]*: 1: medusa_[a-z_]*[(:]' "$work/null.out" | sed 's/ $//')"

section "capture"
run captured env "$(preload capture)" MEDUSA_TRACE="$work/api.mtrace" "${subject[@]}"
assert_exit captured 0
assert_same_file "$work/null.out" "$work/captured.out"
section "capture, of which nobody wants a trace"
run idle env "$(preload capture)" "${subject[@]}"
assert_exit idle 0
assert_same_file "$work/null.out" "$work/idle.out"

capture one
for verify in "" 1; do
	section "restore${verify:+, verifying}"
	run restored env "$(preload restore)" MEDUSA_ARTIFACT="$work/one.medusa" MEDUSA_VERIFY=$verify "${subject[@]}"
	assert_exit restored 0
	assert_same_file "$work/null.out" "$work/restored.out"
done
section "restore, without an artifact"
run nothing env "$(preload restore)" "${subject[@]}"
assert_exit nothing 0
assert_same_file "$work/null.out" "$work/nothing.out"
finish
