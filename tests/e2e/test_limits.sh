#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Limits of the context that an engine raises: compared before a graph is handed out.
. "$(dirname "$0")/lib.sh"
subject_of limits
right="twice 1 is 2 twice 2 is 4 twice 3 is 6 "

captured() { # name, exit code, kernel, when, options of medusa-capture...
	local name=$1 wanted=$2 kernel=$3 when=$4
	shift 4
	run "$name.captured" medusa-capture -o "$work/$name.medusa" --vary early --vary warm_up --vary never --vary bound --vary lowered "$@" -- "${subject[@]}" "$kernel" "$when"
	assert_exit "$name.captured" "$wanted"
}

restored() { # name, artifact, kernel, when, restored or live
	run "$1" medusa-restore "$work/$2.medusa" -- "${subject[@]}" "$3" "$4"
	assert_contains "$work/$1.err" "graph is $5"
}

right() { # name of a run
	assert_exit "$1" 0
	assert_equal "outputs of '$1'" "$right" "$(tr '\n' ' ' <"$work/$1.out")"
}

declare -A low=(
	[deep]="the context's stack limit is 1024, the graphs were captured with 8192: call cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192) before graphs are asked for"
	[heap]="the context's heap limit is 8388608, the graphs were captured with 67108864: call cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 67108864) before graphs are asked for"
)
for kernel in deep heap; do
	section "$kernel: a limit that is set before graphs are asked for"
	captured "$kernel" 0 "$kernel" early
	assert_contains "$work/$kernel.captured.err" "verification: 1 passed, 0 failed, 0 not compared"
	restored "$kernel.same" "$kernel" "$kernel" early restored
	right "$kernel.same"

	section "$kernel: one that a cold start sets in its warm-up alone"
	restored "$kernel.late" "$kernel" "$kernel" warm_up "live ${low[$kernel]}"
	right "$kernel.late"
	assert_count "$work/$kernel.late.err" "no graph is handed out: ${low[$kernel]}" 1

	section "$kernel: one that changes after the restore has begun, in an engine that asks whether the graph is ready"
	# A heap that a loaded kernel uses stays as it is.
	for when in bound $([ $kernel = heap ] || echo lowered); do
		restored "$kernel.$when" "$kernel" "$kernel" $when restored
		assert_contains "$work/$kernel.$when.err" "made with a low limit: 0"
		assert_contains "$work/$kernel.$when.err" "graph is ready by itself"
		right "$kernel.$when"
	done

	section "$kernel: one that is set in the warm-up of the capture"
	captured "$kernel.warm_up" 1 "$kernel" warm_up
	assert_contains "$work/$kernel.warm_up.captured.err" "verification failed: a cold start would refuse it: ${low[$kernel]}"
	captured "$kernel.unverified" 0 "$kernel" warm_up --no-verify
	restored "$kernel.unverified" "$kernel.unverified" "$kernel" warm_up "live ${low[$kernel]}"
	right "$kernel.unverified"
done

section "what the artifact says"
run inspect medusa-inspect "$work/deep.medusa"
assert_contains "$work/inspect.out" "limits   stack 8192, printf buffer 7340032, heap 8388608"
run json medusa-inspect --json "$work/deep.medusa"
assert_contains "$work/json.out" '"stack_limit": 8192'
run text medusa-inspect --text "$work/deep.medusa"
assert_contains "$work/text.out" " stack_limit=8192 "
run diffed medusa-inspect --diff "$work/deep.medusa" "$work/deep.medusa"
assert_exit diffed 0

section "an artifact that says nothing of limits is as good as before"
sed 's/ stack_limit=[0-9]* printf_limit=[0-9]* heap_limit=[0-9]*//' "$work/text.out" >"$work/silent.txt"
run silent.made medusa-inspect --from-text "$work/silent.txt" -o "$work/silent.medusa"
assert_exit silent.made 0
restored silent silent deep early restored
right silent
run differ medusa-inspect --diff "$work/deep.medusa" "$work/silent.medusa"
assert_exit differ 1
assert_contains "$work/differ.out" "stack: limit: 8192 -> 0"
finish
