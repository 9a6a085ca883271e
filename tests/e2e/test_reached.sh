#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Graphs that reach memory by addresses which lie in bound memory: what these lead to is bound, or the graph is refused.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/reached_subject
export IMAGE=$MEDUSA_BUILD/tests/images/memory_kernels.host.so
reason="goes to unbound memory (allocation 2, 4096 bytes) by an address that lies in memory, as in a table of pointers that is bound: the engine's copy is there, and a restored graph has another; bind the memory that it leads to"

captured() { # name, exit code; the engine's settings are exported
	run "$1.captured" medusa-capture -o "$work/$1.medusa" -- "$subject"
	assert_exit "$1.captured" "$2"
}

# The outputs of a cold start are right, and that many graphs were restored.
cold() { # name, graphs
	START=100 run "$1.cold" medusa-restore "$work/$1.medusa" -- "$subject"
	assert_exit "$1.cold" 0
	assert_equal "graphs restored in '$1'" "$2" "$(grep -c '^[a-z]* restored$' "$work/$1.cold.err")"
	checks=$((checks + 1))
	[ -s "$work/$1.cold.out" ] && ! grep -v '^out \([0-9]*\), wanted \1$' "$work/$1.cold.out" >/dev/null ||
		fail "right outputs of '$1'" "$(excerpt "$work/$1.cold.out")"
}

section "a list that is bound leads to scratch memory that is not"
for list in state constant input host arena; do
	export LIST=$list
	captured "$list" 1
	assert_contains "$work/$list.captured.err" "refused: (both, 1): verification failed: ${reason/allocation 2, 4096/$([ $list = arena ] && echo allocation 0, 32768 || echo allocation 2, 4096)}"
	cold "$list" 0
done

section "the same, with copies on the host, and none"
LIST=state
MEDUSA_PROBE_DEVICE_LIMIT=1 captured on_host 1
assert_contains "$work/on_host.captured.err" "refused: (both, 1): verification failed: $reason"
SCRATCH=bound captured plain 0
run verified env SCRATCH=bound MEDUSA_PROBE_DEVICE_LIMIT=1 medusa-verify "$work/plain.medusa" -- "$subject"
assert_exit verified 0

section "the list's graph does not have the scratch memory, another one does"
LIST=apart
captured apart 1
assert_contains "$work/apart.captured.err" "refused: (reads, 1): verification failed: $reason"
assert_contains "$work/apart.captured.err" "refused: (writes, 1): verification failed: graph reads/1, which is launched with it: $reason"
cold apart 0

section "all that the list leads to is bound"
for list in state constant host arena apart; do
	export LIST=$list SCRATCH=bound
	captured "bound_$list" 0
	cold "bound_$list" $([ $list = apart ] && echo 2 || echo 1)
done
unset SCRATCH

section "a list that nobody binds is contents, and its addresses are relocated"
LIST=private
captured private 0
cold private 1
SMALLER=1 captured smaller 0

section "the same, and the engine uses what the list leads to"
LIST=filled
captured filled 1
assert_contains "$work/filled.captured.err" "refused: (both, 1): cuMemsetD32_v2 writes 4096 bytes of unbound memory that the graph reads: bind it"
FILL=5 cold filled 0
SCRATCH=bound captured bound_filled 0
FILL=5 SCRATCH=bound cold bound_filled 1
LIST=result
captured result 1
assert_contains "$work/result.captured.err" "refused: (both, 1): cuMemcpyDtoH_v2 reads 4 bytes of unbound memory that the graph writes: bind it, or declare it with medusa_graph_output"
cold result 0
SCRATCH=bound captured bound_result 0
SCRATCH=bound cold bound_result 1
finish
