#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine with many buffers and a cache that fills the device: restored, and captured with few waits and copies.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/wide_subject
images=$MEDUSA_BUILD/tests/images
export SUBJECT_IMAGE=$images/restore_kernels.host.so MEDUSA_PROBE_KERNEL=$images/probe_kernels.host.so
export SUBJECT_GRAPHS=6 SUBJECT_NODES=120 SUBJECT_LAYERS=6 SUBJECT_KV_MIB=4096 SUBJECT_POOL_MIB=8 SUBJECT_COPIES=40 HOSTCUDA_MEM=36G

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
assert_at_most "replays of a graph" 26 "$(calls "$device" cuGraphLaunch)"
assert_at_most "waits for the device" 150 "$(calls "$device" cuStreamSynchronize)"
assert_at_most "copies to the host" 500 "$(calls "$device" cuMemcpyDtoHAsync_v2)"
moved=$(sed -n 's/.*poison tests moved \([0-9]*\) bytes.*/\1/p' "$work/$device.err" | paste -sd+ | bc)
assert_at_most "bytes that are moved, of all graphs" 400000000 "$moved"

section "how much a comparison does"
compared() { # name, settings...
	run "$1" env "$(preload restore)" "${@:2}" MEDUSA_ARTIFACT="$work/wide.medusa" MEDUSA_VERIFY=1 MEDUSA_VERIFY_REPORT="$work/$1.report" \
		MEDUSA_LOG=debug HOSTCUDA_CALLS="$work/$1.calls" "$subject"
	assert_exit "$1" 0
	assert_same_file "$work/live.out" "$work/$1.out"
	assert_count "$work/$1.report" '"verdict": "pass"' $((4 * SUBJECT_GRAPHS))
}
of_each() { echo $(($(calls "$1" "$2") / 4)); } # each graph is compared four times
moved_by() { sed -n 's/.*compared in .* s, moved \([0-9]*\) bytes.*/\1/p' "$work/$1.err" | paste -sd+ | bc; }
compared verified
assert_at_most "waits for the device" 24 "$(of_each verified cuStreamSynchronize)"
assert_at_most "copies to the host" 16 "$(of_each verified cuMemcpyDtoHAsync_v2)"
assert_at_most "copies to the device" 30 "$(of_each verified cuMemcpyHtoDAsync_v2)"
assert_at_most "kernels outside of the graph" 120 "$(of_each verified cuLaunchKernel)"
assert_at_most "bytes that are moved, of all comparisons" 20000000 "$(moved_by verified)"
# on a device that is full, the same is compared on the host
compared full MEDUSA_PROBE_DEVICE_LIMIT=1
assert_at_least "bytes that are moved, of all comparisons" 1000000000 "$(moved_by full)"
# there is room for copies of one layer of the cache, which would be most of what a comparison does: none is copied
assert_count "$work/verified.report" "kv.0 and 5 more: 25769803776 bytes, sampled" $((4 * SUBJECT_GRAPHS))
bytes() { sed -n 's/.*"verdict": "pass".*"bytes": \([0-9]*\).*/\1/p' "$work/$1.report"; }
assert_equal "compared bytes" "$(bytes full)" "$(bytes verified)"

section "a live graph writes another value to the cache than the restored one, in a window"
export SUBJECT_GRAPHS=2 SUBJECT_NODES=60
SUBJECT_KV_VALUE=1 run windows medusa-capture -o "$work/windows.medusa" -- "$subject"
assert_exit windows 0
for limit in "" 1; do
	run "windows$limit" env SUBJECT_KV_VALUE=2 ${limit:+MEDUSA_PROBE_DEVICE_LIMIT=$limit} medusa-verify "$work/windows.medusa" -- "$subject"
	assert_exit "windows$limit" 1
	assert_contains "$work/windows$limit.err" 'graph decode/2: fail private memory 0x00, noise zero: buffer "kv.0" differs at offset 32768'
done
export SUBJECT_GRAPHS=6 SUBJECT_NODES=120

section "a graph copies one of 40 places that the engine reads to another one"
for pair in 1 13 20; do
	run hands env SUBJECT_GRAPHS=3 SUBJECT_NODES=60 SUBJECT_HANDS=$pair medusa-capture -o "$work/hands.medusa" --no-verify -- "$subject"
	assert_exit hands 1
	assert_count "$work/hands.err" "cuMemcpyDtoH_v2 reads" 2 # after the last graph the engine copies nothing
	assert_contains "$work/hands.err" "bytes of unbound memory that the graph writes"
done

finish
