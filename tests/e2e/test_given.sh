#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Memory of graphs that nobody bound and that the engine's own kernels and copies use, too: right outputs at a cold start.
. "$(dirname "$0")/lib.sh"
engine_under_test=$MEDUSA_BUILD/tests/subjects/given_subject
export IMAGE=$MEDUSA_BUILD/tests/images/given_kernels.host.so

captured() { # name, exit code, options of medusa-capture; the engine's settings are exported
	local name=$1 wanted=$2
	shift 2
	run "$name.captured" medusa-capture -o "$work/$name.medusa" "$@" -- "$engine_under_test"
	assert_exit "$name.captured" "$wanted"
}

# The outputs of a cold start are right, and that many graphs were restored.
restored() { # name, graphs
	run "$1.cold" medusa-restore "$work/$1.medusa" -- "$engine_under_test"
	assert_exit "$1.cold" 0
	assert_equal "graphs restored in '$1'" "$2" "$(grep -c '^[a-z]* restored$' "$work/$1.cold.err")"
	checks=$((checks + 1))
	[ -s "$work/$1.cold.out" ] && ! grep -v '^out \([0-9]*\), wanted \1$' "$work/$1.cold.out" >/dev/null ||
		fail "right outputs of '$1'" "$(excerpt "$work/$1.cold.out")"
}

refused() { # name, reason
	captured "$1" 1
	assert_contains "$work/$1.captured.err" "refused: ($SUBJECT, 1): $2"
	restored "$1" 0
}

# What a refusal says, but for the kernel's name.
writes() { # parameter
	echo "used outside of graphs, is given memory that the graph writes (allocation 2, byte 0) in parameter $1: bind it, or declare it with medusa_graph_output"
}
reads() { # parameter
	echo "used outside of graphs, is given memory that the graph reads (allocation 2, byte 0) in parameter $1 and may write it: bind it (a table as constant), or accept it with --accept-unvaried if it never varies"
}
first="0 (bytes 0..7)" second="1 (bytes 8..15)"
state_it="; if nobody has set these bytes and only graphs use that memory, state so with medusa_graph_scratch"

section "a kernel of the engine's reads what a graph has left"
export SUBJECT=reads
for by in launch ex cooperative extra; do
	BY=$by refused "reads_$by" "kernel given_copy, $(writes "$second")"
done
BY=struct refused reads_struct "kernel given_packed, $(writes "1, a struct (bytes 32..39)")$state_it"
BEFORE=256 refused reads_before "kernel given_copy, used outside of graphs, is given memory that the graph writes (allocation 2, byte 4096) in parameter $second: bind it"
BIND=state captured reads_bound 0
BIND=state restored reads_bound 1
DECLARE=1 captured reads_declared 0
DECLARE=1 restored reads_declared 1

section "a kernel of the engine's writes what a graph reads"
SUBJECT=writes
refused writes "kernel given_copy, $(reads "$first")"
VALUE=8 restored writes 0
captured writes_accepted 0 --accept-unvaried
restored writes_accepted 1
VARIES=1 refused varies "kernel given_copy, $(reads "$first")"
VARIES=1 captured varies_accepted 1 --accept-unvaried
assert_contains "$work/varies_accepted.captured.err" "refused: (writes, 1): verification failed: "
VARIES=1 restored varies_accepted 0
BIND=state captured writes_bound 0
BIND=state VALUE=8 restored writes_bound 1

section "a table that both read"
SUBJECT=table
refused table "kernel given_copy, $(reads "$second")"
captured table_accepted 0 --accept-unvaried
restored table_accepted 1
BIND=constant captured table_bound 0
BIND=constant restored table_bound 1

section "two traces by hand"
for i in 1 2; do
	MEDUSA_TRACE=$work/$i.mtrace MEDUSA_SHIFT=$((i - 1)) run "traced$i" env "$(preload capture)" "$engine_under_test"
done
run analyzed medusa-analyze "$work/1.mtrace" "$work/2.mtrace" -o "$work/analyzed.medusa"
assert_contains "$work/analyzed.err" "left out: table/1: kernel given_copy, $(reads "$second")"
run analyzed medusa-analyze "$work/1.mtrace" "$work/2.mtrace" -o "$work/analyzed.medusa" --accept-unvaried
assert_exit analyzed 0

section "scratch memory that engine and graph share"
SUBJECT=scratch
refused scratch "kernel given_copy, $(writes "$first")"
BIND=state captured scratch_bound 0
BIND=state restored scratch_bound 1

section "an old address in bytes of a struct that nobody sets"
SUBJECT=stale
stale_bytes="1, a struct (bytes 16..23)"
passed_over="ignored 1 addresses that were given to kernels outside of graphs: they lie in memory of which the engine says that only graphs use it (medusa_graph_scratch)"
refused stale "kernel given_packed, $(writes "$stale_bytes")$state_it"
SCRATCH=all captured stale_all 0
assert_contains "$work/stale_all.captured.err" "$passed_over"
SCRATCH=all restored stale_all 1
run stale_inspected medusa-inspect "$work/stale_all.medusa"
assert_contains "$work/stale_inspected.out" "relies   on the engine's statement that only graphs use certain memory (medusa_graph_scratch), where 1 addresses"
run stale_json medusa-inspect --json "$work/stale_all.medusa"
assert_contains "$work/stale_json.out" '"scratch_addresses": 1'
SCRATCH=part refused stale_part "kernel given_packed, $(writes "$stale_bytes")"
SCRATCH=grows refused stale_grows "kernel given_packed, $(writes "$stale_bytes")"
SCRATCH=late refused stale_late "kernel given_packed, $(writes "$stale_bytes")$state_it"
SCRATCH=again refused stale_again "kernel given_packed, $(writes "$stale_bytes")$state_it"

section "the same memory in other uses: it is said to be scratch memory, and refused all the same"
export SCRATCH=all
BY=launch refused stale_launch "kernel given_copy, $(writes "$second"); medusa_graph_scratch does not cover an address that is a parameter of its own"
BY=2d refused stale_2d "cuMemcpy2D_v2 reads "
BY=peer_async refused stale_peer "cuMemcpyPeerAsync reads "
BIND=state captured stale_bound 0
assert_lacks "$work/stale_bound.captured.err" "addresses that were given"
BIND=state restored stale_bound 1
DECLARE=1 captured stale_declared 0
assert_lacks "$work/stale_declared.captured.err" "addresses that were given"
DECLARE=1 restored stale_declared 1
unset SCRATCH

section "memory that the graph uses only for inputs that the capture had not"
untouched="unbound memory of which the graph has the address (allocation 2, byte 0): no replay has used that memory, but for other inputs the graph may: bind it"
SUBJECT=flag
refused flag "kernel given_copy is given, outside of graphs, $untouched"
START=2000 restored flag 0
BY=2d refused flag_copied "cuMemcpy2D_v2 reads $untouched"
BIND=state captured flag_bound 0
BIND=state START=2000 restored flag_bound 1
SUBJECT=mask
refused mask "kernel given_copy is given, outside of graphs, $untouched"
VALUE=8 START=2000 restored mask 0
BY=2d refused mask_copied "cuMemcpy2D_v2 writes $untouched"
BIND=state captured mask_bound 0
BIND=state VALUE=8 START=2000 restored mask_bound 1

section "what warm-ups do between captures"
SUBJECT=warm
captured warm 0
restored warm 2

section "a matrix library's workspace: the reference engine's prefill and its graphs have one each"
sed 's/^intermediate_size: .*/intermediate_size: 1088/' models/recipes/tiny.yaml >"$work/split.yaml" # sums are split then
run split medusa-capture -o "$work/split.medusa" -- "${engine[@]/models\/recipes\/tiny.yaml/$work/split.yaml}"
assert_exit split 0
run split.json medusa-inspect --json "$work/split.medusa"
assert_contains "$work/split.json.out" "gemm_split_k"
assert_contains "$work/split.err" "3 graphs, 0 refused"

section "copies and sets of every shape"
SUBJECT=reads
while read -r by call; do
	BY=$by refused "by_$by" "$call reads "
done <<'END'
2d cuMemcpy2D_v2
2d_unaligned cuMemcpy2DUnaligned_v2
3d cuMemcpy3D_v2
peer cuMemcpyPeer
peer_async cuMemcpyPeerAsync
3d_peer cuMemcpy3DPeer
3d_peer_async cuMemcpy3DPeerAsync
batch cuMemcpyBatchAsync_v2
3d_batch cuMemcpy3DBatchAsync_v2
END
SUBJECT=writes
while read -r by call; do
	BY=$by refused "by_$by" "$call writes "
done <<'END'
2d cuMemcpy2D_v2
3d_peer cuMemcpy3DPeer
batch cuMemcpyBatchAsync_v2
set_2d8 cuMemsetD2D8_v2
set_2d16 cuMemsetD2D16_v2
set_2d16_async cuMemsetD2D16Async
set_2d32 cuMemsetD2D32_v2
word cuStreamWriteValue32_v2
words cuStreamBatchMemOp_v2
END
finish
