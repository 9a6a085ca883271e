#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Killed processes, full disks, failing driver calls, too little memory: right output or a clean error, never a crash.
. "$(dirname "$0")/lib.sh"

# No crash, no hang: the engine says the right thing, or why it cannot.
assert_right_or_clean_error() { # expected run, run
	checks=$((checks + 1))
	case $code in
	0) assert_same_output "$1" "$2" ;;
	1) grep -q '^llama-engine: ..*' "$work/$2.err" || fail "the engine's own error message" "$(excerpt "$work/$2.err")" ;;
	124 | 137) fail "an end within $run_limit s" "none: it hangs" ;;
	*) fail "right output or a clean error (exit code 0 or 1)" "exit code $code; $(excerpt "$work/$2.err")" ;;
	esac
}

section "the artifact"
run_live live
capture whole
assert_exit whole 0

# ---- killed ----------------------------------------------------------------------------------------------------------
start_victim() { # an engine that records for minutes
	rm -f "$work"/killed.mtrace*
	env "$(preload capture)" MEDUSA_TRACE="$work/killed.mtrace" "${engine[@]}" --repeat 100000 >"$work/killed.out" 2>"$work/killed.err" &
	victim=$!
}

# Waits until the engine's trace holds something, if $1 is "begun".
wait_for_victim() {
	[ "$1" = begun ] || { sleep "0.$1"; return; }
	for _ in $(seq 3000); do
		[ -s "$work/killed.mtrace.part" ] && break
		sleep 0.1
	done
}

readable=0
for ms in 001 002 004 006 008 010 013 016 020 030 045 070 200 begun begun; do
	section "capture killed after $ms ms"
	start_victim
	wait_for_victim $ms
	kill -KILL $victim
	wait $victim 2>/dev/null
	assert_equal "exit code of the killed engine" 137 $?
	assert_no_file "$work/killed.mtrace"
	[ -s "$work/killed.mtrace.part" ] || continue # not begun yet
	run part medusa-inspect "$work/killed.mtrace.part"
	assert_exit part 0
	assert_contains "$work/part.out" incomplete
	readable=$((readable + 1))
	run part_json medusa-inspect --json "$work/killed.mtrace.part"
	run part_parsed python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["complete"])' "$work/part_json.out"
	assert_equal "complete in the JSON" False "$(cat "$work/part_parsed.out" "$work/part_parsed.err")"
done
assert_at_least "readable traces of killed engines" 2 $readable

section "capture killed once its graphs have been recorded"
start_victim
for _ in $(seq 3000); do
	run part medusa-inspect "$work/killed.mtrace.part"
	grep -q decode- "$work/part.out" && break
	sleep 0.1
done
kill -KILL $victim
wait $victim 2>/dev/null
run part medusa-inspect "$work/killed.mtrace.part"
assert_exit part 0
assert_contains "$work/part.out" incomplete
assert_contains "$work/part.out" "decode-"
run analyzed medusa-analyze --single -o "$work/analyzed.medusa" "$work/killed.mtrace.part"
assert_exit analyzed 3 # what refuses a graph comes behind the graph
assert_contains "$work/analyzed.err" "first trace is incomplete: what it lacks may be what refuses a graph; capture again"
assert_no_file "$work/analyzed.medusa"

section "an engine ends while its trace is being written to the file"
run ending env "$(preload capture):$MEDUSA_BUILD/tests/faults/inject.so" INJECT=join:1 INJECT_FROM=libmedusa-capture.so \
	MEDUSA_TRACE="$work/ending.mtrace" "${engine[@]}" --repeat 20 --report "$work/ending.json"
assert_exit ending 0
assert_same_output live ending
assert_count "$work/ending.err" "inject: call 1 is pthread_mutex_unlock" 1
run ending_trace medusa-inspect "$work/ending.mtrace"
assert_exit ending_trace 0

section "the engine is killed under medusa-capture"
cat >"$work/dies.sh" <<'END'
"$@" --repeat 100000 &
sleep 0.1
kill -KILL $!
wait $!
END
run dies medusa-capture -o "$work/dies.medusa" -- bash "$work/dies.sh" "${engine[@]}"
assert_exit dies 4
assert_contains "$work/dies.err" "the command ended with 137"
assert_no_file "$work/dies.medusa"
assert_no_file "$work/dies.1.mtrace"

for ms in 010 030 050 070 090 120; do
	section "medusa-capture is killed after $ms ms"
	rm -f "$work/gone.medusa"
	medusa-capture -o "$work/gone.medusa" -- "${engine[@]}" >"$work/gone.out" 2>"$work/gone.err" &
	victim=$!
	sleep 0.$ms
	kill -KILL $victim 2>/dev/null
	wait $victim 2>/dev/null
	checks=$((checks + 1))
	[ ! -e "$work/gone.medusa" ] || medusa-inspect "$work/gone.medusa" >/dev/null 2>&1 ||
		fail "no artifact, or a whole one" "$(medusa-inspect "$work/gone.medusa" 2>&1 | head -n 1)"
done

# ---- full disk -------------------------------------------------------------------------------------------------------
section "a trace whose name somebody has prepared"
echo precious >"$work/precious"
ln -s "$work/precious" "$work/link.mtrace.part"
run link env "$(preload capture)" MEDUSA_TRACE="$work/link.mtrace" "${engine[@]}" --report "$work/link.json"
assert_exit link 0
assert_same_output live link
assert_no_file "$work/link.mtrace"
assert_contains "$work/link.err" "nothing is recorded: $work/link.mtrace.part: Too many levels of symbolic links"
assert_equal "what the link led to" precious "$(cat "$work/precious")"
section "a trace in a folder that is not there"
run nowhere env "$(preload capture)" MEDUSA_TRACE="$work/nowhere/a.mtrace" "${engine[@]}" --report "$work/nowhere.json"
assert_exit nowhere 0
assert_same_output live nowhere
assert_contains "$work/nowhere.err" "nothing is recorded"

small_disk=$work/disk
mkdir "$small_disk"
if mount -t tmpfs -o size=64k none "$small_disk" 2>/dev/null; then
	mounted=$small_disk
	section "a trace that cannot be written"
	head -c 65536 /dev/zero >"$small_disk/ballast"
	run full env "$(preload capture)" MEDUSA_TRACE="$small_disk/full.mtrace" "${engine[@]}" --report "$work/full.json"
	assert_exit full 0
	assert_same_output live full
	assert_no_file "$small_disk/full.mtrace"
	assert_count "$work/full.err" "No space left on device" 1
	for kib in 0 4 8 12 20 24 28 30 32 36 40 48; do
		section "medusa-capture with $kib KiB taken of a disk of 64 KiB"
		rm -rf "${small_disk:?}"/*
		head -c $((kib << 10)) /dev/zero >"$small_disk/ballast"
		run disk medusa-capture -o "$small_disk/a.medusa" --store-images -- "${engine[@]}" --report "$work/disk.json"
		checks=$((checks + 1))
		case $code in
		0) medusa-inspect "$small_disk/a.medusa" >/dev/null || fail "a whole artifact after exit 0" "none" ;;
		3 | 4) [ ! -e "$small_disk/a.medusa" ] && grep -q 'No space left\|cut short' "$work/disk.err" ||
			fail "no artifact, and the reason" "$(ls "$small_disk"; excerpt "$work/disk.err")" ;;
		*) fail "exit code 0, 3 or 4" "$code; $(excerpt "$work/disk.err")" ;;
		esac
	done
else
	echo "(no tmpfs can be mounted here: a disk that fills up under medusa-capture is not tried)"
fi

# ---- failing driver calls --------------------------------------------------------------------------------------------
names=$(sed -n 's/^CU_ENTRY([^,]*\b\(cu[A-Za-z0-9_]*\), cu.*/\1/p' driver/cuda_api.def | grep -v 'GetError\|cuInit$' | sort -u)
assert_at_least "driver entry points" 150 "$(echo "$names" | wc -l)"
calls="1 2 3"
[ -z "${SAN:-}" ] || calls=1
hit=0
fired() { grep -q "^hostcuda: call $call of $name is " "$work/$1.err"; }
for name in $names; do
	for call in $calls; do # as long as there are so many of this name
		section "restore: call $call of $name fails"
		HOSTCUDA_FAULT=$name:$call:OUT_OF_MEMORY run_restored fault "$work/whole.medusa"
		assert_right_or_clean_error live fault
		[ "$code" = 0 ] && [ "$(number fault graphs_restored)" = $graphs ] || hit=$((hit + 1))
		fired fault || break
	done
	for call in $calls; do
		section "capture: call $call of $name fails"
		run traced env HOSTCUDA_FAULT=$name:$call:UNKNOWN "$(preload capture)" MEDUSA_TRACE="$work/fault.mtrace" "${engine[@]}" --report "$work/traced.json"
		assert_right_or_clean_error live traced
		fired traced || break
	done
done
assert_at_least "faults that made a difference to a restore" 40 $hit
for name in cuMemAlloc_v2 cuLibraryLoadData cuGraphAddKernelNode_v2 cuGraphInstantiateWithFlags cuGraphUpload cuStreamCreate \
	cuFuncLoad cuStreamSynchronize cuLibraryGetKernel cuKernelGetFunction cuMemcpyHtoDAsync_v2 cuMemsetD8Async; do
	section "restore: every call of $name fails"
	HOSTCUDA_FAULT=$name:*:UNKNOWN run_restored fault "$work/whole.medusa"
	assert_right_or_clean_error live fault
done

# Calls that restore alone makes: the engine must not notice at all.
for fault in cuGraphAddKernelNode_v2:1 cuGraphAddKernelNode_v2:40 cuGraphInstantiateWithFlags:1 cuGraphInstantiateWithFlags:2 \
	cuGraphUpload:1 cuGraphUpload:3 'cuFuncLoad:*'; do
	section "restore: $fault fails, which the engine does not call by itself"
	HOSTCUDA_FAULT=$fault:UNKNOWN run_restored fault "$work/whole.medusa"
	assert_exit fault 0
	assert_same_output live fault
	assert_contains "$work/fault.err" "is not restored"
	checks=$((checks + 1))
	[ "$(number fault graphs_live)" -ge 1 ] || fail "a graph captured live" "$(number fault graphs_live)"
done

# ---- too little memory -----------------------------------------------------------------------------------------------
engine+=(--kv-blocks 64)
ran=0 captured=0
for mem in 2M 3M 4M 5M 6M 7M 8M 9M 10M 12M 16M; do
	section "a device of $mem"
	export HOSTCUDA_MEM=$mem
	run_live small_live
	assert_right_or_clean_error small_live small_live
	[ "$code" = 0 ] || continue
	ran=$((ran + 1))
	run small_capture medusa-capture -o "$work/small.medusa" -- "${engine[@]}"
	checks=$((checks + 1))
	case $code in
	0 | 1) ;;
	4) assert_contains "$work/small_capture.err" "OUT_OF_MEMORY" ;; # shifting addresses takes some memory too
	*) fail "exit code 0, 1 or 4 of medusa-capture" "$code; $(excerpt "$work/small_capture.err")" ;;
	esac
	[ -e "$work/small.medusa" ] || continue
	captured=$((captured + 1))
	run_restored small "$work/small.medusa"
	assert_exit small 0
	assert_same_output small_live small
	rm -f "$work/small.medusa"
done
assert_at_least "sizes at which the engine ran" 3 $ran
assert_at_least "sizes at which it was captured" 3 $captured
finish
