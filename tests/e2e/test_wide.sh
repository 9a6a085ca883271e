#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine with many buffers and a cache that fills the device: restored, and captured with few waits and copies.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/wide_subject
images=$MEDUSA_BUILD/tests/images
[ -e "$images/restore_kernels.host.so" ] || images=$PWD/build/tests/images
export SUBJECT_IMAGE=$images/restore_kernels.host.so MEDUSA_PROBE_KERNEL=$images/probe_kernels.host.so
export SUBJECT_GRAPHS=6 SUBJECT_NODES=120 SUBJECT_LAYERS=6 SUBJECT_KV_MIB=4096 SUBJECT_POOL_MIB=8 SUBJECT_COPIES=40 HOSTCUDA_MEM=30G

calls() { # run, entry point: how often it was called for each graph
	echo $(($(sed -n "s/^$2 //p" "$work/$1.calls") / SUBJECT_GRAPHS))
}

section "captured, verified and restored"
run live "$subject"
run captured medusa-capture -o "$work/wide.medusa" -- "$subject"
assert_exit captured 0
assert_contains "$work/captured.err" "verification: 6 passed, 0 failed, 0 not compared"
run cold medusa-restore "$work/wide.medusa" -- "$subject"
assert_exit cold 0
assert_same_file "$work/live.out" "$work/cold.out"

section "how much a capture does for each graph"
for device in "$MEDUSA_PROBE_KERNEL" none; do
	name=counted.${device##*/}
	run "$name" env "$(preload capture)" MEDUSA_PROBE_KERNEL="$device" MEDUSA_TRACE="$work/$name.mtrace" MEDUSA_LOG=debug \
		HOSTCUDA_CALLS="$work/$name.calls" "$subject"
	assert_exit "$name" 0
	assert_same_file "$work/live.out" "$work/$name.out"
	assert_count "$work/$name.err" "probe 1 after 5 replays" 6
done
host=counted.none device=counted.${MEDUSA_PROBE_KERNEL##*/}
assert_at_most "replays of a graph" 25 "$(calls "$device" cuGraphLaunch)"
assert_at_most "waits for the device" 150 "$(calls "$device" cuStreamSynchronize)"
assert_at_most "copies to the host" 500 "$(calls "$device" cuMemcpyDtoHAsync_v2)"
moved=$(sed -n 's/.*poison tests moved \([0-9]*\) bytes.*/\1/p' "$work/$device.err" | paste -sd+ | bc)
assert_at_most "bytes that are moved, of all graphs" 400000000 "$moved"

section "a graph copies one of 40 places that the engine reads to another one"
run hands env SUBJECT_HANDS=1 medusa-capture -o "$work/hands.medusa" -- "$subject"
assert_exit hands 1
assert_contains "$work/hands.err" "refused: (decode, 24): cuMemcpyDtoH_v2 reads"
assert_contains "$work/hands.err" "bytes of unbound memory that the graph writes"

finish
