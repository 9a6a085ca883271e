#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Communicators: two in one process, in another order, made again, with other settings; and ranks on each other's devices. Right outputs, or a fallback of all ranks by name.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
bundle=$work/tp2.medusa

ranked live
assert_exit live 0
capture tp2

section "two communicators that are made in the other order"
capture two SUBJECT_COMMUNICATORS=two
for how in two exchanged; do # both join the same ranks, so either does for the other one
	restore $how "$work/two.medusa" SUBJECT_COMMUNICATORS=$how
	assert_right $how
	# shellcheck disable=SC2086 # words
	assert_restored $how holed local $together
done
section "a communicator more than in the capture, before the one that graphs use"
restore more2 "$bundle" SUBJECT_COMMUNICATORS=exchanged
assert_exit more2 0
assert_right more2
assert_restored more2 holed local
assert_count "$work/more2.err" "reduced live: the communication library of @mdcollective.0 has made 8 pieces of memory before the first graph that communicates, and in both captures at most 4" 2
section "... and one that is made when graphs have been handed out"
restore later "$bundle" SUBJECT_COMMUNICATORS=later
assert_exit later 0
assert_right later
# shellcheck disable=SC2086 # words
assert_restored later holed local $together

section "two communicators that are made in another order in the second capture"
capture shifted SUBJECT_COMMUNICATORS=two SUBJECT_SHIFTED=SUBJECT_COMMUNICATORS=exchanged
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/shifted.out")"
for rank in 0 1; do
	for graph in reduced pooled; do
		assert_contains "$work/shifted.err" "rank $rank: refused: ($graph, 1): node "
	done
done

section "a communicator that is made again in the second capture alone"
capture anew SUBJECT_SHIFTED=SUBJECT_COMMUNICATORS=again
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/anew.out")"
assert_count "$work/anew.err" "refused: (reduced, 1): node " 2
restore anew2 "$work/anew.medusa"
assert_right anew2
assert_restored anew2 holed local

section "a communicator that is made again between two graphs of a restore"
restore between "$bundle" SUBJECT_COMMUNICATORS=between
assert_exit between 0
assert_right between
assert_restored between holed local reduced
assert_count "$work/between.err" 'pooled live: the engine has freed binding "@mdcollective.0" and not bound it again' 2
section "the library has other settings in the second capture alone"
capture size SUBJECT_COMMUNICATORS=two SUBJECT_SHIFTED=COLLECTIVE_LARGE=1
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/size.out")"
# what the library made first is the same; what came after its larger memory is not known by its number; and what was made before is not told from that of another communicator
assert_count "$work/size.err" "refused: (pooled, 1): it has an address in memory of a communication library that made @mdcollective.1 before, and that memory (2097152 bytes in the first capture) is missing or of another size in the second one" 2
assert_count "$work/size.err" "verification: 3 passed, 0 failed, 0 not compared" 2
for large in '' 1; do
	restore size2 "$work/size.medusa" SUBJECT_COMMUNICATORS=two ${large:+COLLECTIVE_LARGE=1}
	assert_right size2
	assert_restored size2 holed local
	assert_count "$work/size2.err" "reduced live: the communication library of @mdcollective.0 has made 8 pieces of memory before the first graph that communicates, and in both captures at most 7" 2
done
capture more SUBJECT_SHIFTED=COLLECTIVE_EXTRA=1
assert_equal "what ranks compute in each run" "$(sort -u "$work/live.out")" "$(sort -u "$work/more.out")"
assert_count "$work/more.err" "refused: (reduced, 1): node " 2
section "one rank's settings are others"
for rank in 0 1; do
	restore large "$bundle" LAUNCHER_AT_$rank=COLLECTIVE_LARGE=1
	assert_exit large 0
	assert_right large
	assert_restored large holed local
	assert_count "$work/large.err" "reduced live: @mdcollective." 2
done

section "ranks on devices of their own, and on each other's"
export HOSTCUDA_DEVICES=2
for mapped in '' 1; do
	unset COLLECTIVE_MAPPED
	[ -z "$mapped" ] || export COLLECTIVE_MAPPED=1
	capture own SUBJECT_DEVICES=own
	assert_count "$work/own.err" "verification: 4 passed, 0 failed, 0 not compared" 2
	for devices in own other; do
		restore $devices "$work/own.medusa" SUBJECT_DEVICES=$devices
		assert_right $devices
		# shellcheck disable=SC2086
		assert_restored $devices holed local $together
	done
	restore one "$work/own.medusa" # both on the first one
	assert_right one
	# shellcheck disable=SC2086
	assert_restored one holed local $together
done
finish
