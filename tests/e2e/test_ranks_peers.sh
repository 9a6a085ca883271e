#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Memory that ranks share and that no communication library made, as of vLLM's custom all-reduce and PyTorch's symmetric memory; and multicast
# objects: a capture changes nothing of it and waits for nobody, and graphs that reach it are refused by name.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
export MEDUSA_COMMUNICATION_LIBRARIES= # so the library's memory is the engine's own
shared="memory that is shared with other ranks and that no communication library made: a replay of one rank alone would wait for the others, or change what they rely on"

ranked live
assert_exit live 0
for mapped in '' 1; do # allocations and IPC handles, or mappings and descriptors
	unset COLLECTIVE_MAPPED
	[ -z "$mapped" ] || export COLLECTIVE_MAPPED=1

	section "a table of other ranks' buffers in unbound memory${mapped:+, mapped}"
	capture table
	assert_unhurt table
	refused_by_both table "replay with changed private memory failed: its unbound memory holds an address in $shared" reduced pooled deep listed
	assert_count "$work/table.err" "verification: 2 passed, 0 failed, 0 not compared" 2
	for turn in 1 2; do
		restore restored$turn "$work/table.medusa"
		assert_exit restored$turn 0
		assert_right restored$turn
		assert_restored restored$turn holed local
	done
	section "... and in bound memory${mapped:+, mapped}"
	capture bound SUBJECT_BINDS=state
	assert_unhurt bound
	refused_by_both bound "replay with changed private memory failed: binding \"state\" holds (at byte 24) an address in $shared" reduced pooled deep
	section "... without the poison test${mapped:+, mapped}"
	capture unproven MEDUSA_PROBE=0
	assert_unhurt unproven
	[ ! -d "$work/unproven.medusa" ] || {
		restore unproven2 "$work/unproven.medusa"
		assert_right unproven2
	}

	section "a node with an address in such memory${mapped:+, mapped}"
	for reads in own other bound; do
		capture $reads SUBJECT_READS=$reads
		assert_unhurt $reads listed
		refused_by_both $reads "node at index 0 has an address in $shared" listed
	done

	section "a table of a library's buffers in bound memory${mapped:+, mapped}"
	capture listed MEDUSA_COMMUNICATION_LIBRARIES='libmdcollective.so*' SUBJECT_BINDS=list
	assert_unhurt listed
	refused_by_both listed 'replay with changed private memory failed: binding "list" holds (at byte 256) an address in @mdcollective.0, memory of the communication library libmdcollective.so.1: ' listed
	assert_count "$work/listed.err" "verification: 4 passed, 0 failed, 0 not compared" 2
done

section "multicast objects"
why="memory of a multicast object (cuMulticastCreate), where one write reaches several devices, which Medusa does not restore: turn multicast off (NCCL_NVLS_ENABLE=0)"
capture multicast MEDUSA_COMMUNICATION_LIBRARIES='libmdcollective.so*' COLLECTIVE_MULTICAST=1
assert_unhurt multicast
for rank in 0 1; do
	assert_contains "$work/multicast.err" "rank $rank: refused: (reduced, 1): node at index 2 has an address in @mdcollective.0, memory of the communication library libmdcollective.so.1, which may reach $why"
	assert_contains "$work/multicast.err" "rank $rank: verification: 2 passed, 0 failed, 0 not compared"
done
capture multicast SUBJECT_READS=own COLLECTIVE_MULTICAST=1
assert_unhurt multicast listed
refused_by_both multicast "node at index 0 has an address in $why" listed
finish
