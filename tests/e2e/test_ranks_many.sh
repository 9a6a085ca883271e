#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# More than two ranks that communicate; bundles in jobs of another number of ranks; artifacts that are taken out of a bundle.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
export MEDUSA_RANKS_TIMEOUT=20

all_live() { # name, what each rank says of it
	assert_exit "$1" 0
	assert_right "$1"
	assert_restored "$1"
	assert_count "$work/$1.err" "nothing is restored: open: $2" "$ranks"
}

declare -A bundle
for ranks in 2 3 4; do
	section "$ranks ranks"
	unset COLLECTIVE_MAPPED
	[ $ranks = 3 ] || export COLLECTIVE_MAPPED=1 # memory of the library: mappings and descriptors, or allocations and IPC handles
	ranked live
	assert_exit live 0
	capture tp$ranks
	bundle[$ranks]=$work/tp$ranks.medusa
	assert_in_time tp$ranks
	assert_count "$work/tp$ranks.err" ": verification: 4 passed, 0 failed, 0 not compared" $ranks
	assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/tp$ranks.out")"
	ranked verified medusa-verify "${bundle[$ranks]}" --
	assert_exit verified 0
	assert_count "$work/verified.out" "4 passed, 0 failed, 0 skipped" $ranks
	for turn in 1 2; do
		restore restored$turn "${bundle[$ranks]}"
		assert_exit restored$turn 0
		assert_right restored$turn
		# shellcheck disable=SC2086 # words
		assert_restored restored$turn holed local $together
	done
done

section "one of four ranks has not all graphs"
capture lacks LAUNCHER_AT_2=SUBJECT_UNSTEADY=1
assert_count "$work/lacks.err" "refused: (pooled, 1): it communicates, and rank 2 cannot restore it: node " 3
restore lacks2 "$work/lacks.medusa"
assert_right lacks2
assert_restored lacks2 holed local reduced
section "one of four artifacts is damaged"
cp -r "${bundle[4]}" "$work/hurt.medusa"
truncate -s 3000 "$work/hurt.medusa/rank-3.medusa"
restore hurt "$work/hurt.medusa"
assert_exit hurt 0
assert_right hurt
assert_restored hurt
assert_count "$work/hurt.err" "reduced live: rank 3 cannot restore it: " 3
section "one of four ranks dies in mid restore"
LAUNCHER_LETS=1 restore dies "${bundle[4]}" LAUNCHER_AT_2=SUBJECT_ASK=pooled=die
assert_in_time dies
assert_count "$work/dies.err" "pooled live: the ranks of this job do not restore together: " 3
assert_lacks "$work/dies.err" "pooled restored"

# ---- another number of ranks ---------------------------------------------------------------------------------------------
for ranks in 2 3; do
	ranked live
	for of in 2 3 4; do
		[ $of != $ranks ] || continue
		section "a bundle of $of ranks in a job of $ranks"
		restore number "${bundle[$of]}"
		all_live number "${bundle[$of]} is a bundle of $of ranks, and this job has $ranks: capture it with as many"
		ranked number medusa-verify "${bundle[$of]}" --
		assert_exit number 1
		assert_contains "$work/number.out" "is a bundle of $of ranks, and this job has $ranks: capture it with as many"
	done
done

# ---- artifacts that are taken out of their bundle, which says whose they are ---------------------------------------------------
taken_out() { # name, the rank whose artifact each rank gets...
	local name=$1 rank=0 who
	local -a at=()
	shift
	for who; do
		at+=("LAUNCHER_AT_$rank=MEDUSA_ARTIFACT=${bundle[3]}/rank-$who.medusa")
		rank=$((rank + 1))
	done
	rm -rf "$work/meet"
	mkdir -m 700 "$work/meet"
	ranked "$name" MEDUSA_RANKS_FOLDER="$work/meet" "${at[@]}" env "$(preload restore)"
	assert_exit "$name" 0
	assert_right "$name"
	assert_count "$work/$name.err" "graph reduced/1 is not restored: it communicates with other ranks, and its artifact was taken out of its bundle, which says whose it is: restore the bundle" "$ranks"
	assert_restored "$name" holed local
}
section "artifacts without their bundle, in a job of two ranks"
ranks=2
ranked live
taken_out fewer 0 1
section "artifacts without their bundle, each with another rank"
ranks=3
ranked live
taken_out exchanged 1 2 0
finish
