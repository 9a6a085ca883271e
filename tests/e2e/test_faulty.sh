#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Graphs whose tests fault, hang or kill the engine: the run is repeated without them, and they alone are refused.
. "$(dirname "$0")/lib.sh"
subject_of faulty
export MEDUSA_REPLAY_DEADLINE=5

section "the poison test faults"
subject_live fault plain fault plain
run fault medusa-capture -o "$work/fault.medusa" -- "${subject[@]}" plain fault plain
assert_exit fault 1
assert_count "$work/fault.err" "graph step/2: the poison test broke the engine: replay 2, units 0..0 of 1 of private memory poisoned: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700, illegal address); the run is repeated without it, and the graph is refused" 1
assert_contains "$work/fault.err" "verification: 2 passed, 0 failed, 0 not compared"
assert_count "$work/fault.err" "refused: (step, 2): replay with changed private memory failed: the poison test broke the engine" 1
assert_count "$work/fault.err" "refused: " 1
subject_restored fault 2 plain fault plain
assert_contains "$work/fault.restored.err" "graph 2 is live"

section "it hangs; a slow graph does not"
subject_live hang hang slow
run hang medusa-capture -o "$work/hang.medusa" -- "${subject[@]}" hang slow
assert_exit hang 1
assert_count "$work/hang.err" "graph step/1: the poison test hung: replay 2, units 0..0 of 1 of private memory poisoned: a replay has not ended after " 1
assert_count "$work/hang.err" "refused: " 1
subject_restored hang 1 hang slow

section "it kills the engine"
subject_live die plain die
run die medusa-capture -o "$work/die.medusa" -- "${subject[@]}" plain die
assert_exit die 1
assert_count "$work/die.err" "graph step/2: the command ended with 137 in the poison test: replay 2, units 0..0 of 1 of private memory poisoned; the run is repeated" 1
subject_restored die 1 plain die

section "several at once, and one without a label"
subject_live many fault plain hang die -fault plain
run many medusa-capture -o "$work/many.medusa" -- "${subject[@]}" fault plain hang die -fault plain
assert_exit many 1
assert_count "$work/many.err" "the run is repeated without it" 4
assert_contains "$work/many.err" "graph number 5, which has no label: the poison test broke the engine"
assert_count "$work/many.err" "refused: " 3
subject_restored many 2 fault plain hang die -fault plain

section "an engine that labels none of its graphs"
subject_live unnamed -plain -plain
run unnamed medusa-capture -o "$work/unnamed.medusa" -- "${subject[@]}" -plain -plain
assert_exit unnamed 1
assert_count "$work/unnamed.err" ", 0): not compared: it carries no label, by which a cold start asks for it: take it through medusa.torch.Graphs" 2
run unnamed_restored medusa-restore "$work/unnamed.medusa" -- "${subject[@]}" -plain -plain
assert_exit unnamed_restored 0
assert_same_file "$work/unnamed.live.out" "$work/unnamed_restored.out"

section "what one capture left out the other leaves out too"
run keep medusa-capture --keep-traces --no-verify -o "$work/keep.medusa" -- "${subject[@]}" plain fault
assert_count "$work/keep.err" "the run is repeated" 1
for n in 1 2; do
	run "keep.$n" medusa-inspect "$work/keep.$n.mtrace"
	assert_contains "$work/keep.$n.out" "the poison test broke the engine"
done

section "the proof faults, hangs and kills the engine"
export MEDUSA_PROBE=0 # nothing is known of the contents then
subject_live proof fault plain hang die
run proof medusa-capture -o "$work/proof.medusa" -- "${subject[@]}" fault plain hang die
assert_exit proof 1
assert_count "$work/proof.err" "graph step/1: the proof broke the engine: restored replay, private memory 0x00, noise zero: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700, illegal address)" 1
assert_count "$work/proof.err" "graph step/3: the proof hung: restored replay, private memory 0x00, noise zero: " 1
assert_count "$work/proof.err" "graph step/4: the command ended with 137 in the proof: restored replay, private memory 0x00, noise zero" 1
assert_contains "$work/proof.err" "verification: 1 passed, 3 failed, 0 not compared"
for batch in 1 3 4; do
	assert_count "$work/proof.err" "refused: (step, $batch): verification failed: the " 1
done
subject_restored proof 1 fault plain hang die

section "medusa-verify"
run unverified medusa-capture --no-verify -o "$work/unverified.medusa" -- "${subject[@]}" plain fault plain
assert_exit unverified 0
run verify medusa-verify "$work/unverified.medusa" -- "${subject[@]}" plain fault plain
assert_exit verify 1
assert_contains "$work/verify.err" "graph step/2: the proof broke the engine: "
assert_contains "$work/verify.out" "2 passed, 1 failed, 0 skipped"
unset MEDUSA_PROBE

section "the engine's own failure is its own"
run own medusa-capture -o "$work/own.medusa" -- env SUBJECT_OWN=always "${subject[@]}" plain
assert_exit own 4
assert_contains "$work/own.err" "the command ended with 134; no replay of Medusa's was under way, so this is the command's own failure"
assert_lacks "$work/own.err" "repeated"
assert_no_file "$work/own.medusa"
run own_verify medusa-capture -o "$work/own.medusa" -- env SUBJECT_OWN=verify "${subject[@]}" plain
assert_exit own_verify 4
assert_contains "$work/own_verify.err" "no replay of Medusa's was under way"
assert_no_file "$work/own.medusa"

section "what is released before it was compared is not published"
export SUBJECT_RELEASES=2
subject_live release plain plain
run release medusa-capture -o "$work/release.medusa" -- "${subject[@]}" plain plain
assert_exit release 1
assert_contains "$work/release.err" "verification: 1 passed, 0 failed, 1 not compared"
assert_count "$work/release.err" "refused: (step, 2): not compared: the engine has released its graphs" 1
subject_restored release 1 plain plain
assert_contains "$work/release.restored.err" "graph 2 is live the engine has released its graphs"
export SUBJECT_RELEASES=1
run release_all medusa-capture -o "$work/release_all.medusa" -- "${subject[@]}" plain plain
assert_exit release_all 1
assert_contains "$work/release_all.err" "verification: 0 passed, 0 failed, 2 not compared"
run release_verify medusa-verify "$work/release.medusa" -- "${subject[@]}" plain plain
assert_exit release_verify 1
unset SUBJECT_RELEASES

section "there is an end to it"
faults=$(printf 'fault %.0s' {1..17})
run end medusa-capture -o "$work/end.medusa" -- "${subject[@]}" $faults
assert_exit end 4
assert_count "$work/end.err" "the run is repeated" 16
assert_contains "$work/end.err" "graph step/17: the poison test broke the engine"
assert_contains "$work/end.err" "16 tests have broken the engine before, which is the most that is tried"

section "nothing stays"
assert_equal "files of the commands" "" "$(ls "$TMPDIR" | head -n 3)"
finish
