#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each way to come by memory, and what may lie in it: restored as it was, or refused by name and captured live as before.
. "$(dirname "$0")/lib.sh"
image=$MEDUSA_BUILD/tests/images/memory_kernels.host.so
subject=("$MEDUSA_BUILD/tests/subjects/memory_subject" "$image")
artifact=$work/captured.medusa

assert_restored() { # case
	section "$1"
	assert_equal "said of it" "$1 restored" "$(grep "^$1 " "$work/restored.err")"
	assert_contains "$work/verified.xml" "classname=\"$1\""
}

assert_refused() { # case, why
	section "$1"
	assert_contains "$work/captured.err" "refused: ($1, 1): $2"
	assert_count "$work/restored.err" "$1 live: graph $1/1 was not materialized: $2" 1
}

section "captured"
run live "${subject[@]}"
assert_exit live 0
assert_count "$work/live.err" "given again" 0
assert_count "$work/live.err" "at one address" 0
run captured medusa-capture --vary '*' --no-verify -o "$artifact" -- "${subject[@]}"
assert_exit captured 1 # as graphs are left out
assert_lacks "$work/captured.err" "not labelled"
assert_lacks "$work/captured.err" "broke the context"
run twin medusa-inspect --text "$artifact"
run verified medusa-verify "$artifact" --junit "$work/verified.xml" -- "${subject[@]}"
assert_exit verified 0
assert_contains "$work/verified.xml" 'tests="29" failures="0" errors="0" skipped="0"'

section "restored"
run restored medusa-restore "$artifact" -- "${subject[@]}"
assert_exit restored 0
assert_same_file "$work/live.out" "$work/restored.out"

restored() { assert_restored "$@"; }
refused() { assert_refused "$@"; }
. tests/e2e/memory_cases.sh
section "refused for what happened to memory"
assert_contains "$work/captured.err" "which was freed before the graph's test; its addresses were allocation "
assert_contains "$work/captured.err" "(256 bytes), byte 0: differs between the captures"
assert_contains "$work/captured.err" ", point to host memory"
assert_contains "$work/captured.err" ", point to memory that is shared with another process"

section "each by itself" # beside others it may be found by how far it lies from them
for name in pitched async vmm pool; do
	run "alone_$name" "${subject[@]}" ${name}_table
	run "capture_$name" medusa-capture --vary '*' --no-verify -o "$work/$name.medusa" -- "${subject[@]}" ${name}_table
	run "again_$name" medusa-restore "$work/$name.medusa" -- "${subject[@]}" ${name}_table
	assert_equal "said of it" "${name}_table restored" "$(cat "$work/again_$name.err")"
	assert_same_file "$work/alone_$name.out" "$work/again_$name.out"
done

section "a binding that has memory for a part of its addresses"
run grows env MEMORY_GROWS=1 medusa-capture --vary '*' -o "$work/grows.medusa" -- "${subject[@]}" bound_then_mapped
assert_exit grows 1
assert_contains "$work/grows.err" 'refused: (bound_then_mapped, 1): replay with changed private memory failed: binding "bound_then_mapped" (4194304 bytes) has memory for its first 2097152 bytes alone: for the capture and the verification, map all of it before a graph is labelled'

section "a driver that calls itself where the hooks stand"
for nested in "" HOSTCUDA_NESTED=1; do
	run "nested$nested" env $nested "$(preload capture)" MEDUSA_TRACE="$work/nested$nested.mtrace" "${subject[@]}" pitched
	assert_exit "nested$nested" 0
	run "nested${nested}_trace" medusa-inspect "$work/nested$nested.mtrace"
done
allocations() { sed -n '/^allocations/,/^$/p' "$work/$1_trace.out"; }
assert_contains "$work/nested_trace.out" "pitch"
assert_equal "allocations recorded" "$(allocations nested)" "$(allocations nestedHOSTCUDA_NESTED=1)"

section "contents"
run large medusa-capture --vary '*' --single --no-verify -o "$work/large.medusa" -- "${subject[@]}" table_in_large
run large_twin medusa-inspect --text "$work/large.medusa"
kept() { sed -n 's/^content .*offset=\([0-9]*\) size=\([0-9]*\).*/\1 \2/p' "$1"; }
assert_equal "bytes kept of 1 MiB that is not zero and has a table in its middle: from its address to the end" "524288 524288" \
	"$(kept "$work/large_twin.out" | awk '{ if (!n++ || $1 < first) first = $1; sum += $2 } END { print first, sum }')"
run pointers medusa-capture --vary '*' --no-verify -o "$work/pointers.medusa" -- "${subject[@]}" pointer_array
run pointers_twin medusa-inspect --text "$work/pointers.medusa"
assert_count "$work/pointers_twin.out" "pointer node=none" 3

section "a variable of a module that the engine writes"
run variable medusa-capture --vary '*' -o "$work/variable.medusa" -- "${subject[@]}" variable pitched
assert_exit variable 0
assert_contains "$work/variable.err" "verification: 2 passed, 0 failed, 0 not compared"
run variable_live "${subject[@]}" variable pitched
for how in stored loaded; do
	run "variable_$how" medusa-restore "$work/variable.medusa" --resolve $how -- "${subject[@]}" variable pitched
	assert_same_file "$work/variable_live.out" "$work/variable_$how.out"
	assert_contains "$work/variable_$how.err" "pitched restored"
	assert_contains "$work/variable_$how.err" "variable restored"
done
run variable_late env SUBJECT_WRITES_LATE=1 medusa-restore "$work/variable.medusa" -- "${subject[@]}" variable pitched
assert_same_file "$work/variable_live.out" "$work/variable_late.out"
assert_contains "$work/variable_late.err" "variable restored"
run variable_twin medusa-inspect --text "$work/variable.medusa"
assert_count "$work/variable_twin.out" 'value name="variable_scale" size=4' 1
assert_contains "$work/variable_twin.out" 'data hex=00004040'
run variable_again medusa-inspect --from-text "$work/variable_twin.out" -o "$work/variable_again.medusa"
assert_same_file "$work/variable.medusa" "$work/variable_again.medusa"
run variable_inspected medusa-inspect "$work/variable.medusa"
assert_contains "$work/variable_inspected.out" "with the values of 1 variables that the engine writes"
bits=$(od -An -tu8 -j16 -N8 "$work/variable.medusa" | tr -d ' ')
assert_equal "the feature bit that a reader must know: values" 256 $((bits & 256))
sed 's/^\(binding .*\) hash=[0-9a-f]*/\1/' "$work/variable_twin.out" >"$work/unhashed.txt"
run unhashed medusa-inspect --from-text "$work/unhashed.txt" -o "$work/unhashed.medusa"
assert_exit unhashed 0
run unhashed_restored medusa-restore "$work/unhashed.medusa" --resolve stored -- "${subject[@]}" variable pitched
assert_same_file "$work/variable_live.out" "$work/unhashed_restored.out"
assert_contains "$work/unhashed_restored.err" 'variable live: its contents may be made of binding "pitched", of which the artifact has no hash'
assert_contains "$work/unhashed_restored.err" "pitched restored"
sed 's/value name="variable_scale"/value name="nowhere"/' "$work/variable_twin.out" >"$work/nowhere.txt"
run nowhere medusa-inspect --from-text "$work/nowhere.txt" -o "$work/nowhere.medusa"
run nowhere_restored medusa-restore "$work/nowhere.medusa" --resolve stored -- "${subject[@]}" variable pitched
assert_same_file "$work/variable_live.out" "$work/nowhere_restored.out"
assert_contains "$work/nowhere_restored.err" "variable live: arena: variable nowhere: cuLibraryGetGlobal: CUDA_ERROR_NOT_FOUND"
sed 's/value name="variable_scale"/value name=""/' "$work/variable_twin.out" >"$work/nameless.txt"
run nameless medusa-inspect --from-text "$work/nameless.txt" -o "$work/nameless.medusa"
assert_contains "$work/nameless.err" "value 0 has no name or no bytes"

section "a variable whose value no two starts have in common"
run variable env SUBJECT_VARIES=1 medusa-capture --vary '*' --no-verify -o "$work/variable.medusa" -- "${subject[@]}" variable pitched
assert_exit variable 0
assert_contains "$work/variable.err" "an image is not stored: the engine writes its variable variable_scale, so only the engine's own copy can be used"
run variable_live "${subject[@]}" variable pitched
for how in stored loaded; do
	run "variable_$how" medusa-restore "$work/variable.medusa" --resolve $how -- "${subject[@]}" variable pitched
	assert_same_file "$work/variable_live.out" "$work/variable_$how.out"
	assert_contains "$work/variable_$how.err" "pitched restored"
done
assert_contains "$work/variable_stored.err" "variable live: kernel variable_scaled: its image is neither stored nor in a file"
run variable_late env SUBJECT_WRITES_LATE=1 medusa-restore "$work/variable.medusa" -- "${subject[@]}" variable pitched
assert_same_file "$work/variable_live.out" "$work/variable_late.out"
assert_contains "$work/variable_late.err" "variable live: kernel variable_scaled: its image's variable variable_scale is not written yet"
run variable_twin medusa-inspect --text "$work/variable.medusa"
assert_contains "$work/variable_twin.out" 'variable="variable_scale"'
run variable_again medusa-inspect --from-text "$work/variable_twin.out" -o "$work/variable_again.medusa"
assert_same_file "$work/variable.medusa" "$work/variable_again.medusa"
run variable_inspected medusa-inspect "$work/variable.medusa"
assert_contains "$work/variable_inspected.out" "the engine, which writes its variable variable_scale"
assert_equal "feature bits that a reader must know: constants, variables, arguments, limits, places" 12488 "$(od -An -tu8 -j16 -N8 "$work/variable.medusa" | tr -d ' ')"
sed 's/variable="variable_scale"/variable=""/' "$work/variable_twin.out" >"$work/nameless.txt"
run nameless medusa-inspect --from-text "$work/nameless.txt" -o "$work/nameless.medusa"
assert_contains "$work/nameless.err" "its variable has no name, or it is stored all the same"
assert_contains "$work/variable_loaded.err" "variable restored"

section "what a cold start would refuse does not pass verification"
# The engine's own image serves, and only its own; it has asked for the variable when it asks for the graph, or later.
run early env SUBJECT_VARIES=1 medusa-capture --vary '*' -o "$work/early.medusa" -- "${subject[@]}" variable pitched
assert_contains "$work/early.err" "an image is not stored: the engine writes its variable variable_scale"
assert_contains "$work/early.err" "verification: 2 passed, 0 failed, 0 not compared"
run too_late env SUBJECT_VARIES=1 SUBJECT_WRITES_LATE=1 medusa-capture --vary '*' -o "$work/too_late.medusa" -- "${subject[@]}" variable pitched
assert_exit too_late 1
assert_contains "$work/too_late.err" "refused: (variable, 1): verification failed: a cold start would refuse it: kernel variable_scaled: its image's variable variable_scale is not written yet"

# The first graph would be handed out, so that nobody would load the image that the second one needs.
run with_first env SUBJECT_VARIES=1 SUBJECT_LOADS_WITH_FIRST=1 medusa-capture --vary '*' -o "$work/with_first.medusa" -- "${subject[@]}" pitched variable
assert_exit with_first 1
assert_contains "$work/with_first.err" "refused: (variable, 1): verification failed: a cold start would refuse it: kernel variable_scaled: its image was loaded while a graph was captured live, which a cold start does not do"
assert_contains "$work/with_first.err" "verification: 1 passed, 1 failed, 0 not compared"
run with_first_restored env SUBJECT_LOADS_WITH_FIRST=1 medusa-restore "$work/with_first.medusa" -- "${subject[@]}" pitched variable
assert_contains "$work/with_first_restored.err" "pitched restored"
run with_first_live env SUBJECT_LOADS_WITH_FIRST=1 "${subject[@]}" pitched variable
assert_same_file "$work/with_first_live.out" "$work/with_first_restored.out"

section "a variable that a kernel of the engine writes"
# The engine's own copy of the image has it, which every graph of this process could be made of; a cold start's may not.
run written medusa-capture --vary '*' -o "$work/written.medusa" -- "${subject[@]}" variable_of_kernel pitched
assert_exit written 1
assert_contains "$work/written.err" "refused: (variable_of_kernel, 1): verification failed: "
run written_live "${subject[@]}" variable_of_kernel pitched
run written_restored medusa-restore "$work/written.medusa" -- "${subject[@]}" variable_of_kernel pitched
assert_same_file "$work/written_live.out" "$work/written_restored.out"
assert_contains "$work/written_restored.err" "pitched restored"

section "an input that the engine does not bind"
# Its contents matter, and are the same in both captures; the replays of the proof have others.
run forgets env SUBJECT_FORGETS_INPUT=1 medusa-capture --vary '*' -o "$work/forgets.medusa" -- "${subject[@]}" pitched vmm
assert_exit forgets 1
for name in pitched vmm; do
	assert_contains "$work/forgets.err" "refused: ($name, 1): cuMemcpyHtoD_v2 writes 256 bytes of unbound memory that the graph reads: bind it"
done
run forgotten env SUBJECT_FORGETS_INPUT=1 medusa-restore "$work/forgets.medusa" -- "${subject[@]}" pitched vmm
run remembered "${subject[@]}" pitched vmm
assert_same_file "$work/remembered.out" "$work/forgotten.out"

section "memory on the host"
run on_host_live "${subject[@]}" on_host on_host_unbound pool_on_host_unbound
run on_host medusa-capture --vary '*' -o "$work/on_host.medusa" -- "${subject[@]}" on_host on_host_unbound pool_on_host_unbound
assert_exit on_host 1
for name in on_host_unbound pool_on_host_unbound; do
	assert_contains "$work/on_host.err" "refused: ($name, 1): replay with changed private memory failed: memory that is shared with another process or device, the host or a second address ("
done
run on_host_restored medusa-restore "$work/on_host.medusa" -- "${subject[@]}" on_host on_host_unbound pool_on_host_unbound
assert_same_file "$work/on_host_live.out" "$work/on_host_restored.out"
assert_contains "$work/on_host_restored.err" "on_host restored"

section "memory that two devices of the process reach"
devices=(of_other_device for_other_device for_other_device_bound vmm_table)
export HOSTCUDA_DEVICES=2
run devices_live "${subject[@]}" "${devices[@]}"
assert_exit devices_live 0
run devices medusa-capture --vary '*' -o "$work/devices.medusa" -- "${subject[@]}" "${devices[@]}"
assert_exit devices 1
for name in of_other_device for_other_device; do
	assert_contains "$work/devices.err" "refused: ($name, 1): replay with changed private memory failed: memory that is shared with another process or device, the host or a second address ("
done
run devices_restored medusa-restore "$work/devices.medusa" -- "${subject[@]}" "${devices[@]}"
assert_same_file "$work/devices_live.out" "$work/devices_restored.out"
assert_contains "$work/devices_restored.err" "for_other_device_bound restored"
assert_contains "$work/devices_restored.err" "vmm_table restored"
unset HOSTCUDA_DEVICES

section "without the poison test"
untested=(ipc_unbound exported_after imported_pool_unbound imported_vmm_unbound aliased_unbound)
of_graphs=(graph_memory_of_another graph_memory_of_any_node)
run untested env MEDUSA_PROBE=0 medusa-capture --vary '*' --no-verify -o "$work/untested.medusa" -- "${subject[@]}" "${untested[@]}" "${of_graphs[@]}"
for name in "${untested[@]}"; do
	assert_contains "$work/untested.err" "refused: ($name, 1): node 1: byte 8 points to memory that is shared with another process"
done
for name in "${of_graphs[@]}"; do
	assert_contains "$work/untested.err" "refused: ($name, 1): node 0: byte 8 points to memory of a graph's allocation node"
done
finish
