#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine of two ranks, which a collective library joins: a capture leaves the library's memory alone.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/ranks_subject
images=("$MEDUSA_BUILD/tests/images/nodes_kernels.host.so" "$MEDUSA_BUILD/tests/images/collective_kernels.host.so")
export MEDUSA_COMMUNICATION_LIBRARIES='libother.so*:libmdcollective.so*'

# Runs a command with the engine's ranks behind it, both at a time; RANK in a word is the rank. Output in $work/NAME.RANK.out.
ranks() { # name, command...
	local name=$1 rank pids=()
	shift
	for rank in 0 1; do
		MEDUSA_RANK=$rank MEDUSA_RANKS=2 timeout --kill-after=5 "$run_limit" "${@//RANK/$rank}" "$subject" "${images[@]}" $rank "$work/meet" \
			>"$work/$name.$rank.out" 2>"$work/$name.$rank.err" &
		pids[rank]=$!
	done
	codes=()
	for rank in 0 1; do
		wait "${pids[rank]}"
		codes[rank]=$?
	done
}

assert_both() { # what, exit codes
	assert_equal "exit codes of $1" "$2" "${codes[*]}"
}

for mapped in '' 1; do # memory of the library: allocations and IPC handles, or mappings and descriptors
	kind=${mapped:+mappings}
	kind=${kind:-allocations}
	unset COLLECTIVE_MAPPED
	[ -z "$mapped" ] || export COLLECTIVE_MAPPED=1

	section "live, $kind"
	ranks live env
	assert_both live "0 0"

	section "captured, $kind"
	ranks captured medusa-capture --vary '*' -o "$work/rankRANK.medusa" --
	assert_both captured "1 1" # as graphs are left out
	for rank in 0 1; do
		assert_equal "what rank $rank computes in each run" "$(sort "$work/live.$rank.out")" "$(sort -u "$work/captured.$rank.out")"
		assert_contains "$work/captured.$rank.err" "verification: 2 passed, 0 failed, 0 not compared"
		for graph in reduced deep; do
			node=2
			[ $graph = reduced ] || node=$((3 + rank))
			assert_contains "$work/captured.$rank.err" "refused: ($graph, 1): node at index $node has an address in @mdcollective.0, memory of the communication library libmdcollective.so.1: "
		done
		assert_contains "$work/captured.$rank.err" "refused: (listed, 1): replay with changed private memory failed: its unbound memory holds an address in @mdcollective.0, memory of the communication library libmdcollective.so.1: "
	done

	section "without the poison test, $kind"
	ranks unproven env MEDUSA_PROBE=0 medusa-capture --vary '*' -o "$work/unprovenRANK.medusa" --
	assert_both unproven "1 1"
	assert_contains "$work/unproven.0.err" "refused: (reduced, 1): node at index 2 has an address in @mdcollective.0, "

	section "restored, $kind"
	ranks restored medusa-restore "$work/rankRANK.medusa" --
	assert_both restored "0 0"
	for rank in 0 1; do
		assert_same_file "$work/live.$rank.out" "$work/restored.$rank.out"
		assert_contains "$work/restored.$rank.err" "local restored"
		assert_contains "$work/restored.$rank.err" "reduced live: graph reduced/1 was not materialized: node at index 2 has an address in @mdcollective.0"
		assert_contains "$work/restored.$rank.err" "deep live: "
	done

	section "restored, and the ranks agree, $kind"
	mkdir -p -m 700 "$work/agree"
	export MEDUSA_RANKS_FOLDER=$work/agree MEDUSA_JOB=1
	ranks agreed medusa-restore "$work/rankRANK.medusa" --
	assert_both agreed "0 0"
	for rank in 0 1; do
		assert_same_file "$work/live.$rank.out" "$work/agreed.$rank.out"
		assert_contains "$work/agreed.$rank.err" "local restored"
		assert_contains "$work/agreed.$rank.err" "reduced live: graph reduced/1 was not materialized: "
	done
	head -c 1000 "$work/rank1.medusa" >"$work/broken1.medusa"
	cp "$work/rank0.medusa" "$work/broken0.medusa"
	ranks broken medusa-restore "$work/brokenRANK.medusa" --
	unset MEDUSA_RANKS_FOLDER MEDUSA_JOB
	assert_both broken "0 0"
	for rank in 0 1; do
		assert_same_file "$work/live.$rank.out" "$work/broken.$rank.out"
		assert_lacks "$work/broken.$rank.err" "local restored"
	done
	assert_contains "$work/broken.0.err" "local live: rank 1 cannot restore it: "

	section "what the library has, by name, $kind"
	ranks named env "$(preload capture)" MEDUSA_TRACE="$work/namedRANK.mtrace"
	assert_both named "0 0"
	run named medusa-inspect --json "$work/named1.mtrace"
	grep -o '@mdcollective\.[0-9]*' "$work/named.out" | sort -u | tr '\n' ' ' >"$work/names"
	# its state, its inbox, host memory, the other rank's inbox
	assert_equal "names" "@mdcollective.0 @mdcollective.1 @mdcollective.2 @mdcollective.3 " "$(cat "$work/names")"
done

section "a word that nobody sets holds an address of the library's"
unset COLLECTIVE_MAPPED
for hole in other same first; do
	ranks "$hole" env SUBJECT_HOLE=$hole medusa-capture --vary '*' -o "$work/${hole}RANK.medusa" --
	assert_both "$hole" "1 1"
	for rank in 0 1; do
		assert_equal "what rank $rank computes in each run" "$(sort "$work/live.$rank.out")" "$(sort -u "$work/$hole.$rank.out")"
	done
done
for rank in 0 1; do
	assert_contains "$work/other.$rank.err" "verification: 2 passed, 0 failed, 0 not compared"
	assert_lacks "$work/other.$rank.err" "refused: (holed"
	assert_contains "$work/same.$rank.err" "refused: (holed, 1): node 0: byte 16 points into @mdcollective.0, memory of a communication library: "
	assert_contains "$work/first.$rank.err" "refused: (holed, 1): node at index 0 has an address in @mdcollective.0, memory of the communication library libmdcollective.so.1: "
done
ranks restored env SUBJECT_HOLE=other medusa-restore "$work/otherRANK.medusa" --
assert_both restored "0 0"
for rank in 0 1; do
	assert_same_file "$work/live.$rank.out" "$work/restored.$rank.out"
	assert_contains "$work/restored.$rank.err" "holed restored"
done
finish
