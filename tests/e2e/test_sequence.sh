#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine that binds nothing, linked with libcuda: its allocations are matched by order, size and place, or all is live.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/sequence_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")
artifact=$work/captured.medusa

restored() { # name, words of the engine...
	local name=$1
	shift
	run "$name" medusa-restore "$artifact" -- "${subject[@]}" "$@"
	assert_exit "$name" 0
	assert_same_file "$work/live.out" "$work/$name.out"
}

refused() { # name, reason, words of the engine...: outputs are right, and the first graph is told why
	local name=$1 reason=$2
	shift 2
	restored "$name" "$@"
	assert_count "$work/$name.err" " live $reason" 3
	assert_count "$work/$name.err" "medusa restore: nothing is restored: $reason" 1
}

section "captured"
run live "${subject[@]}"
assert_exit live 0
run captured medusa-capture -o "$artifact" --vary '*' -- "${subject[@]}"
assert_exit captured 0
assert_contains "$work/captured.err" "verification: 3 passed, 0 failed, 0 not compared"
run inspect medusa-inspect --text "$artifact"
for index in 0 2 3 4; do
	assert_contains "$work/inspect.out" "@allocation.$index"
done
assert_lacks "$work/inspect.out" "@allocation.1\"" # was freed
assert_lacks "$work/inspect.out" "@allocation.5\"" # the workspace: the graphs' own

section "restored in a fresh process"
restored whole
assert_count "$work/whole.err" " restored " 3
restored late late
assert_count "$work/late.err" " restored " 3

section "verified"
run verify medusa-verify "$artifact" -- "${subject[@]}"
assert_exit verify 0
assert_contains "$work/verify.out" "3 passed, 0 failed, 0 skipped"

section "sequences that part"
refused extra "allocation 0: artifact has 768 bytes, this process 2304: the allocation sequences differ from here on" extra
refused bigger "allocation 0: artifact has 768 bytes, this process 1024: the allocation sequences differ from here on" bigger
refused gone "allocation 3 (768 bytes) was freed before the engine asked for a graph here" gone

section "addresses in another order"
for seed in 1 2 3 4 5 6 7 8 9 10 11 12; do # an equal order is restored; 24 are possible
	export HOSTCUDA_SCATTER=$seed
	restored "scattered$seed"
	unset HOSTCUDA_SCATTER
	grep -qE 'allocation [0-9] lies (above|below) allocation [0-9] in the artifact, (above|below) it here' "$work/scattered$seed.err" ||
		assert_count "$work/scattered$seed.err" " restored " 3
done
assert_at_least "starts with addresses in another order" 6 "$(grep -l 'nothing is restored: allocation . lies' "$work"/scattered*.err | wc -l)"

section "a driver that lacks an entry point which everything needs"
old="libcuda.so.1 has no cuFuncLoad: a driver for CUDA 12.4 (version 550) or later is needed"
run too_old env "$(driver_without cuFuncLoad)" medusa-restore "$artifact" -- "${subject[@]}"
assert_exit too_old 0
assert_same_file "$work/live.out" "$work/too_old.out"
assert_count "$work/too_old.err" " live $old" 3
run too_old_captured env "$(driver_without cuFuncLoad)" medusa-capture -o "$work/too_old.medusa" -- "${subject[@]}"
assert_same_file "$work/live.out" "$work/too_old_captured.out"
assert_contains "$work/too_old_captured.err" "nothing is recorded: $old"
assert_no_file "$work/too_old.medusa"

section "a name that is Medusa's own"
run named "${subject[@]}" named
assert_contains "$work/named.err" "names that begin with @ are Medusa's own"
restored named_restored named
assert_contains "$work/named_restored.err" "names that begin with @ are Medusa's own"

section "an engine that binds something binds all of it"
MEDUSA_LOG=info run other medusa-capture -o "$work/other.medusa" --no-verify -- "$MEDUSA_BUILD/tests/subjects/outputs_subject" "${subject[1]}"
run other_text medusa-inspect --text "$work/other.medusa"
assert_lacks "$work/other_text.out" "@allocation"
finish
