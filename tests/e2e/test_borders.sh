#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Addresses that are the end of one binding and the beginning of the next one: what shows which of the two a kernel means.
. "$(dirname "$0")/lib.sh"
subject_of border

captured() { # name, exit code, how many graphs, arguments of the subject...; options of medusa-capture are in $options
	local name=$1 wanted=$2 count=$3
	shift 3
	run "$name" medusa-capture ${options:-} -o "$work/$name.medusa" -- "${subject[@]}" "$@"
	assert_exit "$name" "$wanted"
	run "$name.json" medusa-inspect --json "$work/$name.medusa"
	assert_contains "$work/$name.err" "$name.medusa: $count graphs, "
}

restored() { # name, how many graphs are restored, arguments of the subject...: all outputs are right, as they are live
	local name=$1 count=$2
	shift 2
	run "$name.cold" medusa-restore "$work/$name.medusa" -- "${subject[@]}" "$@"
	assert_exit "$name.cold" 0
	assert_count "$work/$name.cold.out" ": 0 wrong" $((3 * $#))
	assert_count "$work/$name.cold.out" " wrong" $((3 * $#))
	assert_count "$work/$name.cold.err" " is restored" "$count"
}

apart() { SUBJECT_APART=1 restored "$@"; } # in this process the buffers lie apart

demands() { # name, numbers of the graphs whose buffers must lie side by side...
	local name=$1
	shift
	assert_count "$work/$name.json.out" '"before": ' $#
	for number in "$@"; do
		assert_contains "$work/$name.json.out" "\"before\": \"first$number\""
	done
}

parameter="parameter byte 24: the trial of an address between two bindings broke the engine: graph step/"

section "replays show a beginning"
captured affine 0 1 affine
demands affine
assert_contains "$work/affine.err" "1 bindings may lie apart from those that they lay right behind"
assert_lacks "$work/affine.err" "repeated"
restored affine 1 affine
apart affine 1 affine

section "the same in many graphs of one kernel"
captured several 0 3 affine affine affine
demands several
apart several 3 affine affine affine

section "replays show no end"
captured total 0 1 total
demands total 1
assert_count "$work/total.err" "kernel total, ${parameter}1, copies at other places: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700, illegal address); the run is repeated without it" 1
assert_contains "$work/total.err" "1 bindings must lie right behind others again"
assert_lacks "$work/total.err" "graph is refused"
restored total 1 total
apart total 0 total
assert_contains "$work/total.cold.err" 'graph 1 is live binding "second1" lay right behind "first1" in the capture'

section "the end of a buffer that is read and not followed"
captured length 0 1 length
demands length 1
assert_count "$work/length.err" 'differs at offset 0: ' 1
assert_count "$work/length.err" "kernel length, ${parameter}1, copies at other places: " 1
restored length 1 length
apart length 0 length

section "a buffer that makes no difference shows nothing"
captured unread 0 1 unread
demands unread 1
assert_lacks "$work/unread.err" "repeated"
apart unread 0 unread

section "a buffer of indices"
captured lookup 0 1 lookup
demands lookup
assert_lacks "$work/lookup.err" "repeated"
apart lookup 1 lookup

section "a buffer whose bytes lead elsewhere"
captured far 0 1 far
demands far 1
assert_count "$work/far.err" "kernel far, ${parameter}1, a copy with other bytes: " 1
apart far 0 far

section "a buffer that may be written is not tried"
SUBJECT_STATE=1 captured state 0 1 affine
demands state 1
SUBJECT_STATE=1 apart state 0 affine

section "each kernel for itself"
captured each 0 4 affine total affine unread
demands each 2 4
assert_count "$work/each.err" "repeated" 1
apart each 2 affine total affine unread

section "hanging"
export MEDUSA_REPLAY_DEADLINE=5
captured endless 0 2 endless affine
demands endless 1
assert_count "$work/endless.err" "kernel endless, parameter byte 24: the trial of an address between two bindings hung: graph step/1, copies at other places: a replay has not ended after " 1
apart endless 1 endless affine
unset MEDUSA_REPLAY_DEADLINE

section "there is an end to trials"
captured end 0 7 total length total1 total2 total3 total4 affine
assert_count "$work/end.err" "repeated" 4
apart end 0 total length total1 total2 total3 total4 affine

section "another launch shows a beginning"
options=--no-verify
captured shown 0 2 affine affine:apart
demands shown
apart shown 2 affine affine:apart
captured alone 0 1 affine
demands alone 1
apart alone 0 affine
captured other_kernel 0 2 affine either:apart
demands other_kernel 1
apart other_kernel 1 affine either:apart

section "another launch shows an end"
captured end_shown 0 2 total total:apart
demands end_shown
restored end_shown 2 total total:apart
apart end_shown 2 total total:apart

section "launches that show both"
captured both 0 3 range either:apart range:apart
demands both 1
apart both 2 range either:apart range:apart
unset options

section "what other launches show is put to the test"
captured range 1 1 range either:apart
demands range
assert_count "$work/range.err" "refused: (step, 1): verification failed: kernel either, parameter byte 24: other launches show that this is a beginning, but here it is not that of binding \"second1\" behind \"first1\": " 1
apart range 1 range either:apart

section "medusa-verify"
run verify medusa-verify "$work/total.medusa" -- "${subject[@]}" total
assert_exit verify 0
finish
