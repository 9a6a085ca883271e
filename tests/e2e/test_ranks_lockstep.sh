#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Graphs that communicate: tested, proven, verified and restored by both ranks together, or captured live by both, whatever happens to one of them.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
bundle=$work/tp2.medusa

ranked live
assert_exit live 0

# ---- all goes well ---------------------------------------------------------------------------------------------------
for mapped in '' 1; do # memory of the library: allocations and IPC handles, or mappings and descriptors
	unset COLLECTIVE_MAPPED
	[ -z "$mapped" ] || export COLLECTIVE_MAPPED=1
	section "captured${mapped:+, mapped}"
	capture tp2
	assert_exit tp2 1 # as graphs are left out
	assert_in_time tp2
	for rank in 0 1; do
		assert_contains "$work/tp2.err" "medusa-capture: rank $rank: verification: 4 passed, 0 failed, 0 not compared"
		# ranks that have other memory do not take the same course
		assert_contains "$work/tp2.err" "rank $rank: refused: (deep, 1): the ranks of this job do not replay it together: rank $((1 - rank)) is at: replay 2 in the poison test of graph deep/1 "
		assert_contains "$work/tp2.err" "rank $rank: refused: (listed, 1): replay with changed private memory failed: its unbound memory holds an address in @mdcollective.0"
	done
	assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/tp2.out")"

	section "verified${mapped:+, mapped}"
	ranked verified medusa-verify "$bundle" --
	assert_exit verified 0
	assert_count "$work/verified.out" "4 passed, 0 failed, 0 skipped" 2

	section "restored${mapped:+, mapped}"
	for turn in 1 2 3; do
		restore restored$turn "$bundle"
		assert_exit restored$turn 0
		assert_right restored$turn
		# shellcheck disable=SC2086 # words
		assert_restored restored$turn holed local $together
	done
done
unset COLLECTIVE_MAPPED
capture tp2

section "what proves nothing together"
capture unproven MEDUSA_PROBE=0
assert_exit unproven 1
assert_contains "$work/unproven.err" "refused: (reduced, 1): node at index 2 has an address in @mdcollective.0, memory of the communication library libmdcollective.so.1: no rank restores it unless all ranks have replayed it together in a capture"
ranked single medusa-capture --single -o "$work/single.medusa" --
assert_contains "$work/single.err" "refused: (reduced, 1): node 2: byte 0 points into @mdcollective.0, memory of a communication library, which one capture alone does not prove"

section "a graph that the analysis refuses in one rank"
capture unsteady LAUNCHER_AT_1=SUBJECT_UNSTEADY=1
assert_contains "$work/unsteady.err" "rank 0: refused: (pooled, 1): it communicates, and rank 1 cannot restore it: node "
assert_count "$work/unsteady.err" "refused: (pooled, 1): " 2
assert_count "$work/unsteady.err" "verification: 3 passed, 0 failed, 0 not compared" 2
restore unsteady2 "$work/unsteady.medusa"
assert_right unsteady2
assert_restored unsteady2 holed local reduced

section "ranks that are not told where to meet"
run apart env "$(preload restore)" MEDUSA_ARTIFACT="$bundle" $launcher 2 "$subject" "${images[@]}" RANK "$work/meet.apart"
assert_exit apart 0
assert_right apart
assert_lacks "$work/apart.err" "reduced restored"
section "one artifact for each rank, and nowhere to meet"
run apart env LAUNCHER_AT_0=MEDUSA_ARTIFACT="$bundle/rank-0.medusa" LAUNCHER_AT_1=MEDUSA_ARTIFACT="$bundle/rank-1.medusa" "$(preload restore)" \
	$launcher 2 "$subject" "${images[@]}" RANK "$work/meet.apart"
assert_right apart
assert_restored apart holed local
assert_count "$work/apart.err" "reduced live: it communicates with other ranks, and this process is not told where to meet them" 2

# ---- communicators -----------------------------------------------------------------------------------------------------
section "two communicators"
capture two SUBJECT_COMMUNICATORS=two
assert_count "$work/two.err" "verification: 4 passed, 0 failed, 0 not compared" 2
restore two2 "$work/two.medusa" SUBJECT_COMMUNICATORS=two
assert_right two2
# shellcheck disable=SC2086
assert_restored two2 holed local $together
restore two1 "$work/two.medusa"
assert_right two1
assert_restored two1 holed local
assert_contains "$work/two1.err" "the communication library has not made @mdcollective.4 "

section "a communicator that is made again"
restore again "$bundle" SUBJECT_COMMUNICATORS=again
assert_right again
assert_restored again holed local
assert_contains "$work/again.err" "the engine has freed binding \"@mdcollective.0\" and not bound it again"
capture again SUBJECT_COMMUNICATORS=again
restore again2 "$work/again.medusa" SUBJECT_COMMUNICATORS=again
assert_right again2
# shellcheck disable=SC2086
assert_restored again2 holed local $together
restore again1 "$work/again.medusa"
assert_right again1
assert_restored again1 holed local

# ---- another library ---------------------------------------------------------------------------------------------------
section "other settings of the library"
restore large "$bundle" COLLECTIVE_LARGE=1
assert_right large
assert_restored large holed local
assert_contains "$work/large.err" "memory of a communication library, has 4194304 bytes, and had 2097152 in the capture: its version or settings are others"
section "one rank's library makes more"
restore extra "$bundle" LAUNCHER_AT_1=COLLECTIVE_EXTRA=1
assert_right extra
assert_restored extra holed local
assert_count "$work/extra.err" "reduced live: rank 1 cannot restore it: " 1
section "another build of the library"
sed 's/GCC: (/GCC: [/' "${images[1]}" >"$work/other.so"
cmp -s "${images[1]}" "$work/other.so" && fail "another image" "the same"
ours=${images[1]}
images[1]=$work/other.so
restore other "$bundle"
images[1]=$ours
assert_right other
assert_restored other holed local
assert_contains "$work/other.err" "reduced live: kernel collective_sum: no image loaded in this process holds it"

# ---- files that do not fit ---------------------------------------------------------------------------------------------
for how in missing cut changed; do
	section "a rank's artifact is $how"
	rm -rf "$work/hurt.medusa"
	cp -r "$bundle" "$work/hurt.medusa"
	case $how in
	missing) rm "$work/hurt.medusa/rank-1.medusa" ;;
	cut) truncate -s 3000 "$work/hurt.medusa/rank-1.medusa" ;;
	changed) printf xxxx | dd of="$work/hurt.medusa/rank-1.medusa" bs=1 seek=900 conv=notrunc status=none ;;
	esac
	restore hurt "$work/hurt.medusa"
	assert_exit hurt 0
	assert_right hurt
	assert_in_time hurt
	assert_equal "graphs restored" 0 "$(grep -c ' restored$' "$work/hurt.err")"
	assert_contains "$work/hurt.err" "reduced live: rank 1 cannot restore it: "
done

# ---- the KV capacity: a rank that measures it communicates ---------------------------------------------------------------
section "all ranks are told the KV capacity, or all measure it"
export SUBJECT_KV=1
capture kv
# shellcheck disable=SC2086
restore kv2 "$work/kv.medusa"
assert_right kv2
assert_count "$work/kv2.err" "capacity answered: " 2
# shellcheck disable=SC2086
assert_restored kv2 holed local $together
free=$(medusa-inspect --json "$work/kv.medusa/rank-1.medusa" | tr -d ' ,"' | sed -n 's/^baseline_free:\([0-9]*\)$/\1/p' | head -n 1)
for rank in 0 1; do # another process has taken much of one rank's memory
	restore kv3 "$work/kv.medusa" LAUNCHER_AT_$rank=SUBJECT_TAKEN=$((free * 6 / 10))
	assert_exit kv3 0
	assert_right kv3
	assert_count "$work/kv3.err" "capacity measured: " 2
	assert_contains "$work/kv3.err" "capacity measured: rank $rank cannot restore it: KV profile: cache "
done
cp -r "$work/kv.medusa" "$work/kv4.medusa"
truncate -s 3000 "$work/kv4.medusa/rank-1.medusa"
restore kv4 "$work/kv4.medusa"
assert_exit kv4 0
assert_right kv4
assert_count "$work/kv4.err" "capacity measured: " 2
assert_restored kv4
section "... in a verification, too"
ranked kvv LAUNCHER_AT_1=SUBJECT_TAKEN=$((free * 6 / 10)) medusa-verify "$work/kv.medusa" --
assert_exit kvv 0
assert_in_time kvv
assert_count "$work/kvv.err" "capacity measured: " 2
section "one rank alone asks for it"
restore kv5 "$work/kv.medusa" LAUNCHER_AT_0=SUBJECT_KV=alone LAUNCHER_AT_1=SUBJECT_KV=
assert_exit kv5 0
assert_in_time kv5
assert_right kv5
assert_restored kv5
assert_contains "$work/kv5.err" "nothing is restored: the ranks of this job do not restore together: rank "
unset SUBJECT_KV

# ---- a rank that dies or lags; the launcher lets the other one go on ------------------------------------------------------
export LAUNCHER_LETS=1
for rank in 0 1; do # one of them has the socket
	section "rank $rank dies in mid proof"
	for at in die 5; do
		capture dies LAUNCHER_AT_$rank=SUBJECT_LAUNCH=pooled=$at
		assert_in_time dies
		assert_at_least "exit code" 1 "$code"
		[ ! -e "$work/dies.medusa" ] || [ "$at" != die ] || fail "no bundle" "$(ls "$work/dies.medusa")"
		rm -rf "$work/dies.medusa"
	done
	section "rank $rank dies in mid verification"
	for at in die 5; do
		ranked dies LAUNCHER_AT_$rank=SUBJECT_LAUNCH=pooled=$at medusa-verify "$bundle" --
		assert_in_time dies
		assert_at_least "exit code" 1 "$code"
	done
	section "rank $rank dies in mid restore"
	restore dies "$bundle" LAUNCHER_AT_$rank=SUBJECT_LAUNCH=reduced=die
	assert_in_time dies
	assert_at_least "exit code" 1 "$code"
	assert_contains "$work/dies.err" "pooled live: the ranks of this job do not restore together: "
	assert_lacks "$work/dies.err" "pooled restored"
done
section "a rank lags in the proof"
capture lags MEDUSA_RANKS_TIMEOUT=2 LAUNCHER_AT_1=SUBJECT_LAUNCH=reduced=late
assert_in_time lags
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/lags.out")"
for rank in 0 1; do
	assert_contains "$work/lags.err" "rank $rank: refused: (reduced, 1): the ranks of this job do not replay it together: rank 1 has not come in 2 s to: the beginning of the poison test of graph reduced/1"
	assert_contains "$work/lags.err" "rank $rank: refused: (pooled, 1): the ranks of this job do not replay it together: "
	assert_contains "$work/lags.err" "rank $rank: verification: 2 passed, 0 failed, 0 not compared"
done
finish
