#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MEDUSA_RANKS_MEMORY=1: graphs with memory that ranks share by themselves, as vLLM's custom all-reduce and PyTorch's symmetric memory do, are captured and
# restored by all ranks together, where each start shares the same in the same order; what cannot be shown is refused by name. Without it: test_ranks_peers.sh.
. "$(dirname "$0")/lib.sh"
. tests/e2e/ranks_lib.sh
export MEDUSA_RANKS_MEMORY=1 MEDUSA_COMMUNICATION_LIBRARIES= # so the library's memory is the engine's own
nameless="memory that is shared with other ranks and that has no name of its own, "

export COLLECTIVE_PEERS=1 HOSTCUDA_DEVICES=2
for mapped in '' 1; do # allocations and IPC handles, as vLLM's; or mappings and descriptors, as PyTorch's
	unset COLLECTIVE_MAPPED
	[ -z "$mapped" ] || export COLLECTIVE_MAPPED=1
	bundle=$work/shared$mapped.medusa
	ranked live
	assert_exit live 0

	section "shared in the same order${mapped:+, mapped}"
	capture shared$mapped SUBJECT_DEVICES=own
	assert_unhurt shared$mapped
	assert_count "$work/shared$mapped.err" "verification: 4 passed, 0 failed, 1 not compared" 2
	for devices in own other; do
		restore restored "$bundle" SUBJECT_DEVICES=$devices
		assert_exit restored 0
		assert_right restored
		assert_restored restored holed local $together
	done
	restore extra "$bundle" COLLECTIVE_EXTRA=1 # memory that nobody shares moves the rest
	assert_right extra
	assert_restored extra holed local $together

	section "another size, or more that is shared${mapped:+, mapped}"
	restore large "$bundle" COLLECTIVE_LARGE=1
	assert_right large
	assert_restored large holed local
	assert_count "$work/large.err" "medusa restore: graph reduced/1 is not restored: binding \"@peers.o" 2
	restore two "$bundle" SUBJECT_COMMUNICATORS=again
	assert_right two
	assert_restored two holed local

	section "a rank that cannot restore, dies or lags${mapped:+, mapped}"
	restore apart "$bundle" LAUNCHER_AT_1=SUBJECT_ASK=reduced=late
	assert_right apart
	assert_restored apart holed local $together
	restore cannot "$bundle" LAUNCHER_AT_1=MEDUSA_ARTIFACT="$work/none.medusa" MEDUSA_RANKS_TIMEOUT=3
	assert_right cannot
	assert_restored cannot
	restore dies "$bundle" LAUNCHER_AT_1=SUBJECT_ASK=reduced=die
	assert_in_time dies
	for at in die late; do
		capture capture-$at LAUNCHER_AT_1=SUBJECT_LAUNCH=pooled=$at MEDUSA_RANKS_TIMEOUT=20
		assert_in_time capture-$at
		[ $at = late ] || [ ! -e "$work/capture-die.medusa" ] || fail "no bundle of a rank that died" "one"
	done
	assert_count "$work/capture-late.err" "verification: 4 passed, 0 failed, 1 not compared" 2

	section "shared once graphs have been captured${mapped:+, mapped}"
	capture late SUBJECT_SHARES=pooled
	assert_unhurt late
	refused_by_both late "a node has an address in @peers.captured, memory that is shared with other ranks, and came to be shared after the first graph was captured" pooled
	restore late2 "$work/late.medusa"
	assert_right late2
	assert_restored late2 holed local reduced

	section "a bound table, or bound memory that ranks share${mapped:+, mapped}"
	capture bound SUBJECT_BINDS=state
	assert_unhurt bound
	refused_by_both bound "binding \"state\" holds (at byte 0) an address in @peers.o" reduced pooled
	capture inbox SUBJECT_READS=bound
	assert_unhurt inbox listed
	refused_by_both inbox "node at index 0 has an address in $nameless" listed

	section "without the poison test${mapped:+, mapped}"
	capture unproven MEDUSA_PROBE=0
	assert_unhurt unproven
	[ ! -d "$work/unproven.medusa" ] || {
		restore unproven2 "$work/unproven.medusa"
		assert_right unproven2
		assert_restored unproven2 holed local
	}
done

section "the order of exports"
unset COLLECTIVE_MAPPED
ranked live
restore swapped "$work/shared.medusa" COLLECTIVE_PEERS=swapped
assert_right swapped
assert_restored swapped holed local
capture swapped SUBJECT_SHIFTED=COLLECTIVE_PEERS=swapped
assert_unhurt swapped
refused_by_both swapped "node 1: its copy destination points into binding @peers.own.1+0 in the first capture and into binding @peers.own.0+0 in the second" reduced

unset COLLECTIVE_PEERS
ranked live
for mapped in '' 1; do # a state that the kernels change, and that has a table
	unset COLLECTIVE_MAPPED
	[ -z "$mapped" ] || export COLLECTIVE_MAPPED=1
	section "a table beside what kernels change${mapped:+, mapped}"
	capture table
	assert_unhurt table
	refused_by_both table "it communicates with other ranks, and may write unbound memory that other graphs read" reduced pooled
	[ ! -d "$work/table.medusa" ] || {
		restore table2 "$work/table.medusa"
		assert_right table2
	}
done

section "multicast objects"
capture multicast COLLECTIVE_PEERS=1 COLLECTIVE_MULTICAST=1
assert_unhurt multicast
for rank in 0 1; do assert_contains "$work/multicast.err" "rank $rank: refused: (reduced, 1): "; done
assert_contains "$work/multicast.err" "memory of a multicast object (cuMulticastCreate)"

section "another value"
capture odd MEDUSA_RANKS_MEMORY=yes
assert_unhurt odd
assert_contains "$work/odd.err" 'MEDUSA_RANKS_MEMORY: "yes" is neither 0 nor 1, and counts as 0'
finish
