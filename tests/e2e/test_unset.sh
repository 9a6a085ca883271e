#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Parameters that differ from process to process: numbers refuse their graph, what nobody sets does not.
. "$(dirname "$0")/lib.sh"
subject_of unset

captured() { # parameter, exit code, options of medusa-capture...
	local what=$1 wanted=$2
	shift 2
	run "$what.captured" medusa-capture -o "$work/$what.medusa" "$@" -- "${subject[@]}" "$what" 1 2 3
	assert_exit "$what.captured" "$wanted"
	run "$what.inspected" medusa-inspect "$work/$what.medusa"
}

restored() { # parameter, restored or live: the outputs are right
	run "$1.restored" medusa-restore "$work/$1.medusa" -- "${subject[@]}" "$1" 1 2 3
	assert_exit "$1.restored" 0
	assert_contains "$work/$1.restored.err" "graph $1 is $2"
	assert_equal "outputs" "$1(1) = 2 $1(2) = 4 $1(3) = 6 " "$(tr '\n' ' ' <"$work/$1.restored.out")"
}

refused() { # parameter, the node with its kernel and parameter: what nobody has seen is right, too
	captured "$1" 1
	assert_count "$work/$1.captured.err" "refused: ($1, 1): $2 is " 1
	assert_contains "$work/$1.captured.err" " in the second: a value of the process, which would be zero at a cold start; "
	assert_contains "$work/$1.captured.err" "or accept it with --accept-process-values"
	restored "$1" live
	run "$1.unseen" medusa-restore "$work/$1.medusa" -- "${subject[@]}" "$1" 77
	assert_contains "$work/$1.unseen.out" "$1(77) = "
}

unset_in_structs="bytes of struct parameters differ from process to process and count as unset"

section "numbers of the process are refused by name"
refused number "node 0 (number4): parameter 2 (bytes 16..19)"
refused time "node 0 (number8): parameter 2 (bytes 16..23)"
refused cxx_number "node 0 (_Z10cxx_numberPfPKfm): parameter 2 (bytes 16..23)"
for what in number time cxx_number; do
	assert_lacks "$work/$what.unseen.out" "without what the process passes"
done
refused flag "node 0 (number1): parameter 2 (bytes 16..16)"
assert_contains "$work/flag.captured.err" "is 0 (0x0) in the first capture and 1 (0x1) in the second"

section "unless the user accepts them"
captured number 0 --accept-process-values
assert_contains "$work/number.captured.err" "verification: 1 passed, 0 failed, 0 not compared"
assert_contains "$work/number.inspected.out" "verified every graph was compared, on inputs that varied; values of the process were accepted as parameters"
assert_contains "$work/number.inspected.out" "1 parameters are stale addresses or values of the process that were accepted"
assert_lacks "$work/number.inspected.out" "of struct parameters"
restored number restored
captured number 0 --accept-process-values --no-verify
assert_contains "$work/number.inspected.out" "verified none; values of the process were accepted as parameters"

section "between parameters nobody sets anything"
captured gap 0
assert_lacks "$work/gap.captured.err" "$unset_in_structs"
assert_lacks "$work/gap.inspected.out" "of struct parameters"
restored gap restored

section "in structs nobody can tell: padding passes, and is counted"
captured padding 0
assert_contains "$work/padding.captured.err" "$unset_in_structs"
assert_contains "$work/padding.inspected.out" "$unset_in_structs"
restored padding restored
captured empty 0
assert_contains "$work/empty.captured.err" "1 $unset_in_structs"
restored empty restored
captured member 0
assert_contains "$work/member.captured.err" "$unset_in_structs"
run member.json medusa-inspect --json "$work/member.medusa"
bytes=$(sed -n 's/.*"unset_struct_bytes": \([0-9]*\).*/\1/p' "$work/member.json.out")
assert_at_least "bytes of the member that are counted" 1 "$bytes"
assert_contains "$work/member.captured.err" ": $bytes $unset_in_structs" # after the command's name
assert_contains "$work/member.inspected.out" "  $bytes $unset_in_structs"
restored member restored

section "a user who knows of none refuses them"
for what in padding member; do
	captured $what 1 --refuse-unset
	assert_contains "$work/$what.captured.err" "refused: ($what, 1): node 0 (object): parameter bytes "
	assert_contains "$work/$what.captured.err" ", of a struct, differ between the captures, and --refuse-unset was given"
	run $what.unseen medusa-restore "$work/$what.medusa" -- "${subject[@]}" $what 77
done
assert_lacks "$work/member.unseen.out" "without what the process passes"
captured gap 0 --refuse-unset

section "addresses of memory that is gone are noise"
captured stale 0
assert_contains "$work/stale.captured.err" "verification: 1 passed, 0 failed, 0 not compared"
restored stale restored

section "nothing is compared"
for option in --accept-process-values --refuse-unset; do
	run usage medusa-capture -o "$work/usage.medusa" --single $option -- "${subject[@]}" gap 1
	assert_exit usage 2
	assert_contains "$work/usage.err" "$option: with --single nothing is compared"
done
finish
