#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Variables of modules that hold addresses, or that others point to: set in a copy of the image that is Medusa's own.
. "$(dirname "$0")/lib.sh"
image=$MEDUSA_BUILD/tests/images/lookup_kernels.host.so
subject=("$MEDUSA_BUILD/tests/subjects/variables_subject" "$image")

take() { # case, variables...: captured so
	local name=$1
	shift
	run "captured_$name" medusa-capture --vary '*' -o "$work/$name.medusa" -- env "$@" "${subject[@]}" "$name"
}

# In a fresh process, at other addresses; the engine's variables are set before, by its first forward pass, or never.
start() { # case, how it is restored, what is said of it, variables...
	local name=$1 how=$2 said=$3
	shift 3
	run "restored_$name" env "$@" medusa-restore "$work/$name.medusa" --resolve "$how" -- "${subject[@]}" "$name"
	assert_contains "$work/restored_$name.err" "$name $said"
	assert_same_file "$work/live_$name.out" "$work/restored_$name.out"
}

for name in private_table bound_table same_module same_module_written other_module chain entries itself parameter parameter_untouched plain; do
	section "$name"
	run "live_$name" "${subject[@]}" $name
	assert_exit "live_$name" 0
	for when in SUBJECT_SETS_LATE SUBJECT_LOADS_LATE SUBJECT_IN_TIME; do
		take $name $when=1
		assert_exit "captured_$name" 0
		assert_contains "$work/captured_$name.err" "verification: 1 passed, 0 failed, 0 not compared"
		assert_lacks "$work/captured_$name.err" "not stored"
		for now in SUBJECT_SETS_LATE SUBJECT_LOADS_LATE SUBJECT_IN_TIME; do
			start $name loaded,stored,trigger restored $now=1
		done
	done
	start $name stored restored SUBJECT_SETS_LATE=1 SUBJECT_ASKS_EARLY=1
	run twin medusa-inspect --text "$work/$name.medusa"
	run again medusa-inspect --from-text "$work/twin.out" -o "$work/again.medusa"
	assert_same_file "$work/$name.medusa" "$work/again.medusa"
	bits=$(od -An -tu8 -j16 -N8 "$work/$name.medusa" | tr -d ' ')
	[ $name = plain ] && expected=0 || expected=1024
	assert_equal "the feature bit that a reader must know: addresses" $expected $((bits & 1024))
done

section "the engine's own copy"
# It will do if it holds what is to be set; where addresses are to be set, it will not.
start plain loaded restored SUBJECT_IN_TIME=1
start plain loaded "live: kernel lookup_in_own: its image's variable lookup_own is not written yet" SUBJECT_SETS_LATE=1 SUBJECT_ASKS_EARLY=1
start plain loaded,stored,trigger restored SUBJECT_SETS_LATE=1 SUBJECT_ASKS_EARLY=1
start entries loaded "live: kernel lookup_each: its image's variable lookup_tables holds addresses, or others point to it: only a copy of the image that Medusa has loaded will do" SUBJECT_IN_TIME=1

section "what a text says of it"
run twin medusa-inspect --text "$work/chain.medusa"
assert_count "$work/twin.out" 'variable="lookup_other" image=' 1
assert_count "$work/twin.out" 'value name="lookup_tables" size=64' 1
sed 's/variable="lookup_other" image=[0-9]*/variable="lookup_other" image=9/' "$work/twin.out" >"$work/far.txt"
run far medusa-inspect --from-text "$work/far.txt" -o "$work/far.medusa"
assert_contains "$work/far.err" 'variable "lookup_other" of image 9 of 2'
sed 's/variable="lookup_other"/variable="nowhere"/' "$work/twin.out" >"$work/nowhere.txt"
run nowhere medusa-inspect --from-text "$work/nowhere.txt" -o "$work/nowhere.medusa"
run nowhere_restored medusa-restore "$work/nowhere.medusa" -- "${subject[@]}" chain
assert_contains "$work/nowhere_restored.err" "chain live: arena: cuLibraryGetGlobal: CUDA_ERROR_NOT_FOUND"
assert_same_file "$work/live_chain.out" "$work/nowhere_restored.out"

section "all in one engine"
all=(private_table entries itself parameter)
run live_all "${subject[@]}" "${all[@]}"
run captured_all medusa-capture --vary '*' -o "$work/all.medusa" -- "${subject[@]}" "${all[@]}"
assert_exit captured_all 0
run restored_all env SUBJECT_LOADS_LATE=1 medusa-restore "$work/all.medusa" -- "${subject[@]}" "${all[@]}"
assert_count "$work/restored_all.err" " restored" ${#all[@]}
assert_same_file "$work/live_all.out" "$work/restored_all.out"

section "another value in each start"
for name in differs points_elsewhere; do
	take $name SUBJECT_SETS_LATE=1
	assert_exit "captured_$name" 1
	assert_contains "$work/captured_$name.err" "refused: ($name, 1): verification failed: a cold start would refuse it: kernel lookup_"
done
assert_contains "$work/captured_differs.err" "its variable lookup_own, so only the engine's own copy can be used (variable lookup_own of a module (256 bytes), byte 0: differs between the captures)"
assert_contains "$work/captured_points_elsewhere.err" "(variable lookup_table of a module (8 bytes), byte 0: points into allocation "

section "the same, of which the address is asked for in time, and no more"
take differs SUBJECT_SETS_LATE=1 SUBJECT_ASKS_EARLY=1
assert_exit captured_differs 1
assert_contains "$work/captured_differs.err" "refused: (differs, 1): verification failed: a cold start would refuse it: kernel lookup_"
run live_differs "${subject[@]}" differs
take differs SUBJECT_IN_TIME=1
assert_exit captured_differs 0
start differs loaded,stored,trigger restored SUBJECT_IN_TIME=1
start differs loaded,stored,trigger "live: kernel lookup_in_own: its image's variable lookup_own is not written yet" SUBJECT_SETS_LATE=1 SUBJECT_ASKS_EARLY=1

section "a variable that the engine sets before each replay, in the capture always to the same value"
run live_plain env SUBJECT_SETS_AGAIN=5 "${subject[@]}" plain
take plain SUBJECT_IN_TIME=1 SUBJECT_SETS_AGAIN=1
assert_exit captured_plain 0
assert_contains "$work/captured_plain.err" "its variable lookup_own, so only the engine's own copy can be used (its value changed, or was written again or used between replays"
start plain loaded,stored,trigger restored SUBJECT_IN_TIME=1 SUBJECT_SETS_AGAIN=5
start plain loaded,stored,trigger "live: kernel lookup_in_own: " SUBJECT_LOADS_LATE=1 SUBJECT_SETS_AGAIN=5
take plain SUBJECT_SETS_LATE=1 SUBJECT_SETS_AGAIN=1
assert_exit captured_plain 1
assert_contains "$work/captured_plain.err" "refused: (plain, 1): verification failed: a cold start would refuse it: kernel lookup_in_own"
start plain loaded,stored,trigger live: SUBJECT_LOADS_LATE=1 SUBJECT_SETS_AGAIN=5

section "the same, by a kernel that is given its address, or read between replays"
take plain SUBJECT_IN_TIME=1 SUBJECT_SETS_AGAIN=1 SUBJECT_BY_KERNEL=1
assert_contains "$work/captured_plain.err" "its variable lookup_own, so only the engine's own copy can be used (its value changed, or was written again or used between replays"
start plain loaded,stored,trigger "" SUBJECT_IN_TIME=1 SUBJECT_SETS_AGAIN=5 SUBJECT_BY_KERNEL=1
start plain loaded,stored,trigger "live: kernel lookup_in_own: " SUBJECT_LOADS_LATE=1 SUBJECT_SETS_AGAIN=5 SUBJECT_BY_KERNEL=1
run live_plain "${subject[@]}" plain
take plain SUBJECT_IN_TIME=1 SUBJECT_READS_AGAIN=1
assert_contains "$work/captured_plain.err" "its variable lookup_own, so only the engine's own copy can be used (its value changed, or was written again or used between replays"
start plain loaded,stored,trigger "live: kernel lookup_in_own: " SUBJECT_LOADS_LATE=1 SUBJECT_READS_AGAIN=1

section "a variable that a replay writes"
take kernel_writes SUBJECT_IN_TIME=1
assert_exit captured_kernel_writes 1
assert_contains "$work/captured_kernel_writes.err" "refused: (kernel_writes, 1): node 0 (lookup_counted): replays of graph kernel_writes/1 write variable lookup_count of its module, so no other copy of the module can be used"
run live_kernel_writes "${subject[@]}" kernel_writes
run traced env "$(preload capture)" MEDUSA_TRACE="$work/traced.mtrace" "${subject[@]}" kernel_writes
assert_same_file "$work/live_kernel_writes.out" "$work/traced.out" # and it goes on as if it had not been tested

section "what a live capture brings along, and a cold start does not"
take bound_table SUBJECT_BINDS_LATE=1
assert_exit captured_bound_table 1
assert_contains "$work/captured_bound_table.err" 'refused: (bound_table, 1): verification failed: a cold start would refuse it: binding "weights" (1024 bytes) was not made'
take private_table SUBJECT_SAYS_LATE=1
assert_exit captured_private_table 1
assert_contains "$work/captured_private_table.err" 'refused: (private_table, 1): verification failed: a cold start would refuse it: '
finish
