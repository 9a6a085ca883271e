#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Equal blocks that swap places between two captures, and words that only replay can tell to be noise.
. "$(dirname "$0")/lib.sh"
subject_of doubt

section "blocks that swap places"
subject_live swap swap
MEDUSA_LOG=info run swap medusa-capture -o "$work/swap.medusa" -- "${subject[@]}" swap
assert_exit swap 0
assert_count "$work/swap.err" "as the graphs' parameters show" 1
assert_contains "$work/swap.err" "verification: 2 passed, 0 failed, 0 not compared"
subject_restored swap 2 swap
run swap_text medusa-inspect --text "$work/swap.medusa"
assert_lacks "$work/swap_text.out" "noise node="

section "the same in an engine that binds nothing: its blocks are known by their order alone"
export SUBJECT_BINDS_NOTHING=1
run nothing medusa-capture -o "$work/nothing.medusa" -- "${subject[@]}" swap
assert_exit nothing 1
assert_count "$work/nothing.err" "refused: (step, " 2
assert_contains "$work/nothing.err" "of allocation 2 in the first capture and to byte 0 of allocation 3 in the second"
cp "$work/swap.live.out" "$work/nothing.live.out"
subject_restored nothing 0 swap
unset SUBJECT_BINDS_NOTHING

section "a stale pointer is noise, once replay has shown it"
subject_live stale keep ignored
run stale medusa-capture -o "$work/stale.medusa" -- "${subject[@]}" keep ignored
assert_exit stale 0
assert_contains "$work/stale.err" "verification: 1 doubtful words, each also replayed with other values"
assert_contains "$work/stale.err" "verification: 3 passed, 0 failed, 0 not compared"
subject_restored stale 3 keep ignored
run stale_text medusa-inspect --text "$work/stale.medusa"
assert_count "$work/stale_text.out" "noise node=0 at=24 size=8" 1
assert_lacks "$work/stale_text.out" "doubtful"

section "words that are read are refused by name"
place="node 0, parameter bytes 24..31: points to byte 1024 of allocation 2 in the first capture and to byte 1024 of allocation 3 in the second"
subject_live used keep peeked ignored followed
run used medusa-capture -o "$work/used.medusa" -- "${subject[@]}" keep peeked ignored followed
assert_exit used 1
assert_contains "$work/used.err" "verification: 3 passed, 2 failed, 0 not compared"
assert_count "$work/used.err" "refused: (step, 3): verification failed: not proven to be noise: $place; replayed with zero instead: " 1
assert_count "$work/used.err" "refused: (step, 5): verification failed: not proven to be noise: $place; replayed with other memory instead: " 1
assert_count "$work/used.err" "refused: " 2
subject_restored used 3 keep peeked ignored followed
assert_contains "$work/used.restored.err" "graph 3 is live"

layers=(keep ignored+ignored+ignored ignored+peeked+ignored ignored+ignored+written ignored)
replays() { sed -n "s/.*graph step.$1: compared in .* device, \([0-9]* replays\)$/\1/p" "$work/layers.err" | sort -u; }
subject_live layers "${layers[@]}"
for image in none "$MEDUSA_BUILD/tests/images/probe_kernels.host.so"; do
	section "words of one kernel are tried together, and the one that matters is named; memory is compared by ${image##*/}"
	MEDUSA_PROBE_KERNEL=$image MEDUSA_LOG=debug run layers medusa-capture -o "$work/layers.medusa" -- "${subject[@]}" "${layers[@]}"
	assert_exit layers 1
	assert_contains "$work/layers.err" "verification: 4 passed, 2 failed, 0 not compared"
	assert_count "$work/layers.err" "refused: (step, 4): verification failed: not proven to be noise: ${place/node 0/node 1}; replayed with zero instead: " 1
	assert_count "$work/layers.err" "refused: (step, 5): verification failed: not proven to be noise: ${place/node 0/node 2}; replayed with other memory instead: the graph writes there" 1
	subject_restored layers 4 "${layers[@]}"
	assert_equal "replays for three words of one kernel" "$(replays 6)" "$(replays 3)"
done

section "of very many words, too"
many=$(printf 'ignored+%.0s' {1..69})
deep=(keep "${many}ignored" "${many}peeked")
subject_live deep "${deep[@]}"
run deep medusa-capture -o "$work/deep.medusa" -- "${subject[@]}" "${deep[@]}"
assert_exit deep 1
assert_contains "$work/deep.err" "verification: 140 doubtful words, each also replayed with other values"
assert_contains "$work/deep.err" "verification: 3 passed, 1 failed, 0 not compared"
assert_count "$work/deep.err" "refused: (step, 4): verification failed: not proven to be noise: ${place/node 0/node 69}; replayed with zero instead: " 1
subject_restored deep 3 "${deep[@]}"

section "also when that breaks the engine"
subject_live broken keep touched ignored read
run broken medusa-capture -o "$work/broken.medusa" -- "${subject[@]}" keep touched ignored read
assert_exit broken 1
assert_count "$work/broken.err" "graph step/3: the proof broke the engine: $place; replayed with zero instead: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS" 1
assert_count "$work/broken.err" "refused: (step, 3): verification failed: the proof broke the engine: $place; replayed with zero instead: " 1
assert_count "$work/broken.err" "refused: (step, 5): verification failed: not proven to be noise: $place; replayed with other memory instead: " 1
subject_restored broken 3 keep touched ignored read

section "nothing that is in doubt is published"
for option in --no-verify --single; do
	run "option$option" medusa-capture $option -o "$work/option$option.medusa" -- "${subject[@]}" keep ignored
	assert_exit "option$option" $([ $option = --single ] && echo 0 || echo 1)
	run "option$option.text" medusa-inspect --text "$work/option$option.medusa"
	assert_lacks "$work/option$option.text.out" "doubtful"
done
assert_contains "$work/option--no-verify.err" "refused: (step, 3): node 0 (doubt): parameter bytes 24..31 unprovable: points into allocation 2+1024 bound to nothing in the first capture and into allocation 3+1024 bound to nothing in the second"
run restored_option medusa-restore "$work/option--no-verify.medusa" -- "${subject[@]}" keep ignored
assert_exit restored_option 0
assert_same_file "$work/stale.live.out" "$work/restored_option.out"
assert_count "$work/restored_option.err" " is restored" 2

section "an artifact that was never verified"
run doubtful_text medusa-inspect --text "$work/stale.medusa"
sed 's/^noise node=0 at=24 size=8$/doubtful node=0 at=24 alloc=none offset=0 first_order=2 first_place=1024 second_order=3 second_place=1024/' \
	"$work/doubtful_text.out" >"$work/doubtful.txt"
run doubtful_made medusa-inspect --from-text "$work/doubtful.txt" -o "$work/doubtful.medusa"
assert_exit doubtful_made 0
run doubtful medusa-restore "$work/doubtful.medusa" -- "${subject[@]}" keep ignored
assert_exit doubtful 0
assert_same_file "$work/stale.live.out" "$work/doubtful.out"
assert_contains "$work/doubtful.err" "graph 3 is live no replay has proven which of its two meanings is right: $place"
assert_count "$work/doubtful.err" " is restored" 2
run doubtful_verify medusa-verify "$work/doubtful.medusa" -- "${subject[@]}" keep ignored
assert_exit doubtful_verify 3
assert_contains "$work/doubtful_verify.err" "doubtful words, which only medusa-capture can settle"
finish
