#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine that cuts each forward into many small graphs: what a capture and a verification do for each of them.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/wide_subject
images=$MEDUSA_BUILD/tests/images
export SUBJECT_IMAGE=$images/restore_kernels.host.so MEDUSA_PROBE_KERNEL=$images/probe_kernels.host.so
export SUBJECT_GRAPHS=${GRAPHS:-5} SUBJECT_PIECES=${PIECES:-8} SUBJECT_NODES=10 SUBJECT_LAYERS=4 SUBJECT_KV_MIB=4 SUBJECT_POOL_MIB=2
export SUBJECT_COPIES=20 HOSTCUDA_MEM=2G
graphs=$((SUBJECT_GRAPHS * SUBJECT_PIECES))

calls() { # run, entry point: how often it was called for each graph, or each comparison
	echo $(($(sed -n "s/^$2 //p" "$work/$1.calls" | grep . || echo 0) / ${3:-$graphs}))
}

section "captured, verified and restored"
run live "$subject"
run captured medusa-capture -o "$work/pieces.medusa" -- "$subject"
assert_exit captured 0
assert_contains "$work/captured.err" "verification: $graphs passed, 0 failed, 0 not compared"
run cold env HOSTCUDA_CALLS="$work/cold.calls" medusa-restore "$work/pieces.medusa" -- "$subject"
assert_exit cold 0
assert_same_file "$work/live.out" "$work/cold.out"
assert_equal "uploads of a graph" 1 "$(calls cold cuGraphUpload)"
# small graphs are waited for together; the engine itself waits twice for each forward
assert_at_most "waits for the device" $((graphs / 4 + 15)) "$(sed -n 's/^cuStreamSynchronize //p' "$work/cold.calls")"
# stack, printf buffer and heap, once for each graph that is handed out
assert_at_most "limits of the context that are read for a graph" 3 "$(calls cold cuCtxGetLimit)"

section "a large program without a build-id, which states facts, is not read"
size='import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)'
objcopy --remove-section .note.gnu.build-id "$subject" "$work/large"
truncate --size 60M "$work/large"
for program in "$subject" "$work/large"; do
	run "${program##*/}" env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib:$MEDUSA_BUILD/lib/hostcuda" \
		python3 -c "$size" medusa-restore "$work/pieces.medusa" -- "$program"
done
assert_contains "$work/large.err" "restored $graphs of $graphs graphs"
assert_at_most "memory of the large program, in KiB" $(($(cat "$work/wide_subject.out") + 20480)) "$(cat "$work/large.out")"

section "how much a capture does for each graph"
run counted env "$(preload capture)" MEDUSA_TRACE="$work/counted.mtrace" MEDUSA_LOG=debug HOSTCUDA_CALLS="$work/counted.calls" "$subject"
assert_exit counted 0
assert_same_file "$work/live.out" "$work/counted.out"
assert_count "$work/counted.err" "probe 1 after 4 replays" "$graphs"
assert_at_most "waits for the device" 45 "$(calls counted cuStreamSynchronize)"
assert_at_most "copies to the host" 30 "$(calls counted cuMemcpyDtoHAsync_v2)"
assert_at_most "copies on the device" 3 "$(calls counted cuMemcpyDtoDAsync_v2)"
assert_at_most "fills" 5 "$(calls counted cuMemsetD32Async)"
assert_at_most "kernels outside of the graph" 60 "$(calls counted cuLaunchKernel)"
moved=$(sed -n 's/.*poison tests moved \([0-9]*\) bytes.*/\1/p' "$work/counted.err" | paste -sd+ | bc)
assert_at_most "bytes that are moved for each graph" 1000000 $((moved / graphs))

section "the same where graphs hand values on in memory that nobody binds: all of them may read what any of them writes"
run unbound env SUBJECT_UNBOUND=1 SUBJECT_GRAPHS=3 "$(preload capture)" MEDUSA_TRACE="$work/unbound.mtrace" MEDUSA_LOG=debug \
	HOSTCUDA_CALLS="$work/unbound.calls" "$subject"
run unbound.live env SUBJECT_UNBOUND=1 SUBJECT_GRAPHS=3 "$subject"
assert_exit unbound 0
assert_same_file "$work/unbound.live.out" "$work/unbound.out"
handing=$((3 * SUBJECT_PIECES))
assert_at_most "replays of a graph" 125 "$(calls unbound cuGraphLaunch $handing)"
assert_at_most "waits for the device" 1000 "$(calls unbound cuStreamSynchronize $handing)"
# memory that many graphs read is looked at once: the number of places does not grow with the number of graphs
places=$(sed -n 's/.*asked for \([0-9]*\) places that others read.*/\1/p' "$work/unbound.err" | sort -n | tail -1)
assert_at_most "places that others read" 6 "$places"

section "how much a comparison does"
run verified env "$(preload restore)" MEDUSA_ARTIFACT="$work/pieces.medusa" MEDUSA_VERIFY=1 MEDUSA_VERIFY_REPORT="$work/report" \
	MEDUSA_LOG=debug HOSTCUDA_CALLS="$work/verified.calls" "$subject"
assert_exit verified 0
assert_same_file "$work/live.out" "$work/verified.out"
compared=$(grep -c '"verdict": "pass"' "$work/report")
assert_at_least "comparisons" $((3 * graphs)) "$compared"
assert_at_most "waits for the device" 20 "$(calls verified cuStreamSynchronize "$compared")"
assert_at_most "copies to the host" 12 "$(calls verified cuMemcpyDtoHAsync_v2 "$compared")"
assert_at_most "copies on the device" 3 "$(calls verified cuMemcpyDtoDAsync_v2 "$compared")"
assert_at_most "kernels outside of the graph" 40 "$(calls verified cuLaunchKernel "$compared")"
assert_at_most "questions for mapped memory" 40 "$(calls verified cuPointerGetAttribute "$compared")"
moved=$(sed -n 's/.*compared in .* s, moved \([0-9]*\) bytes.*/\1/p' "$work/verified.err" | paste -sd+ | bc)
assert_at_most "bytes that are moved for each comparison" 100000 $((moved / compared))

finish
