#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine cannot tell the swap library's memory from the driver's: the device's own tests pass with it preloaded, and
# an engine that is restored below it computes what it computed.
. "$(dirname "$0")/lib.sh"

# What the tests of a device expect of an exact end of each allocation, and of faults at a call's number.
unlike=("hostcuda_memory/copies_past_the_end_are_refused" # 2 MB are shared by small allocations
	"hostcuda_memory/a_kernel_on_freed_memory_fails_the_context"
	"hostcuda_memory/a_kernel_past_the_end_fails_the_context"
	"hostcuda_graph/a_fault_in_a_graph_fails_the_context"
	"hostcuda_stream_capture/unsafe_calls_break_it" # a free of memory that no node has allocated
	"hostcuda_entry/named_faults_come_when_due")    # other calls reach the driver

for suite in memory vmm stream graph stream_capture entry ipc module; do
	section "test_hostcuda_$suite below the swap library"
	names=$(printf '%s\n' "${unlike[@]}" | sed -n "s|^hostcuda_$suite/||p" | paste -sd '|')
	run "$suite" env "$(preload swap)" "$MEDUSA_BUILD/tests/test_hostcuda_$suite" --filter "*/!(${names:-none})"
	assert_exit "$suite" 0
	tested=$(sed -n 's/.*Tested: \([0-9]*\) |.*/\1/p' "$work/$suite.err" "$work/$suite.out")
	assert_at_least "tests of $suite that ran" 5 "${tested:-0}"
done

section "an engine that is not restored"
run_live plain
run_live_swap() { run "$1" env "$(preload swap)" ${2:+MEDUSA_ARTIFACT="$2"} "${engine[@]}" --check --report "$work/$1.json"; }
run_live_swap below
assert_exit below 0
assert_equal "tokens below the swap library" "$(cat "$work/plain.out")" "$(grep -v '^check' "$work/below.out")"
assert_equal "what restore says" "" "$(cat "$work/below.err")"

section "an engine that is restored"
capture tiny
run_live_swap restored "$work/tiny.medusa"
assert_exit restored 0
assert_equal "tokens of the restored engine" "$(cat "$work/plain.out")" "$(grep -v '^check' "$work/restored.out")"
assert_contains "$work/restored.out" "check: $graphs of $graphs graphs bit-equal to eager"

section "two processes that share memory"
run alone "$MEDUSA_BUILD/tests/subjects/swap_ipc_subject"
assert_exit alone 0
run shared env "$(preload swap)" "$MEDUSA_BUILD/tests/subjects/swap_ipc_subject"
assert_exit shared 0
assert_same_file "$work/alone.out" "$work/shared.out"
assert_count "$work/shared.out" " shared, 0 wrong" 2

section "copies between two devices, of which none has been allowed to reach the other"
between=$MEDUSA_BUILD/tests/subjects/between_subject
for nvlink in none 100; do
	export HOSTCUDA_DEVICES=2 HOSTCUDA_NVLINK=$nvlink XDG_RUNTIME_DIR=$work
	run alone "$between"
	assert_exit alone 0
	assert_count "$work/alone.out" ": CUDA_SUCCESS, right" 28
	run swapped medusa-swap run --name between --pool-bytes 64M -- "$between" swap
	assert_exit swapped 0
	assert_same_file "$work/alone.out" "$work/swapped.out"
	assert_contains "$work/swapped.err" "out 0 of 8388608 bytes, in 0" # pieces of 2 MiB
	run alone "$between" graphs
	assert_exit alone 0
	assert_count "$work/alone.out" ": CUDA_SUCCESS, right" 12
	run swapped medusa-swap run --name between --pool-bytes 64M -- "$between" swap graphs
	assert_exit swapped 0
	if [ "$nvlink" = none ]; then
		assert_count "$work/swapped.out" "CUDA_ERROR_NOT_SUPPORTED" 6
		assert_contains "$work/swapped.err" "for copies in graphs device 0 must reach both, which it does not"
	else
		assert_same_file "$work/alone.out" "$work/swapped.out"
	fi
	assert_contains "$work/swapped.err" "out 0 of"
	unset HOSTCUDA_DEVICES HOSTCUDA_NVLINK XDG_RUNTIME_DIR
done
finish
