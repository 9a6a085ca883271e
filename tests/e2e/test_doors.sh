#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every door by which a program comes to the driver, other libraries in it, and several devices, contexts and engines.
. "$(dirname "$0")/lib.sh"
images=$MEDUSA_BUILD/tests/images
subject=("$MEDUSA_BUILD/tests/subjects/doors_subject" "$images/restore_kernels.host.so")
other=$MEDUSA_BUILD/tests/doors/other.so
export SUBJECT_RUNTIME=$MEDUSA_BUILD/tests/doors/runtime.so HOSTCUDA_DEVICES=2

whole() { # name, door, word...: captured and restored, every graph
	local name=$1
	shift
	run "$name.live" "${subject[@]}" "$@"
	assert_exit "$name.live" 0
	run "$name.captured" medusa-capture --no-verify -o "$work/$name.medusa" -- "${subject[@]}" "$@"
	assert_exit "$name.captured" 0
	run "$name" medusa-restore "$work/$name.medusa" -- "${subject[@]}" "$@"
	assert_exit "$name" 0
	assert_same_file "$work/$name.live.out" "$work/$name.out"
	assert_count "$work/$name.err" " restored " 2
}

# Runtimes ask the driver by base name, version and flags; several copies of them have tables of their own.
for door in static shared both; do
	section "a runtime that is: $door"
	whole $door $door
	section "the same, with the per-thread default stream"
	whole $door.per_thread $door per-thread
done

for door in old new; do
	section "the dlsym of a C library that is: $door"
	whole $door $door
done

section "the engine on the second device"
whole second static second

section "two engines in one context"
run engines.live "${subject[@]}" static engines
run engines.captured medusa-capture -o "$work/engines.medusa" -- "${subject[@]}" static engines
assert_exit engines.captured 0
run engines medusa-restore "$work/engines.medusa" -- "${subject[@]}" static engines
assert_exit engines 0
assert_same_file "$work/engines.live.out" "$work/engines.out"
assert_count "$work/engines.err" " restored " 4

section "two engines in one context that call their graphs by the same names"
run same.live "${subject[@]}" static engines same
run same.captured medusa-capture --no-verify -o "$work/same.medusa" -- "${subject[@]}" static engines same
assert_exit same.captured 1
for batch in 1 2; do
	assert_contains "$work/same.captured.err" "refused: (same, $batch): refused by the engine: another graph of this name is launched, too: graph number "
	assert_contains "$work/same.captured.err" " nodes) are both labelled (same, $batch); give each graph that is in use a name of its own"
done
checks=$((checks + 1))
grep -q 'graph number 1 (2 nodes) and number 3 (2 nodes) are both' "$work/same.captured.err" || fail "numbers and nodes of both graphs" "$(grep refused: "$work/same.captured.err")"
run same medusa-restore "$work/same.medusa" -- "${subject[@]}" static engines same
assert_exit same 0
assert_same_file "$work/same.live.out" "$work/same.out"

for apart in contexts devices; do
	section "two engines that are apart: $apart"
	run $apart.live "${subject[@]}" static $apart
	run $apart.captured medusa-capture --no-verify -o "$work/$apart.medusa" -- "${subject[@]}" static $apart
	assert_exit $apart.captured 1
	for batch in 1 2; do
		assert_contains "$work/$apart.captured.err" "refused: (another, $batch): refused by the engine: made in another context than the one that the engine bound memory in"
	done
	run $apart medusa-restore "$work/$apart.medusa" -- "${subject[@]}" static $apart
	assert_exit $apart 0
	assert_same_file "$work/$apart.live.out" "$work/$apart.out"
	assert_contains "$work/$apart.err" "graph one/1 restored"
	assert_contains "$work/$apart.err" "graph one/2 restored"
	assert_count "$work/$apart.err" "live the current context is not the one in which bindings were made" 2
	# An artifact that has graphs of the same names, from engines in one context: the second one's stay out all the same.
	run $apart.wrong medusa-restore "$work/engines.medusa" -- "${subject[@]}" static $apart
	assert_same_file "$work/$apart.live.out" "$work/$apart.wrong.out"
	assert_count "$work/$apart.wrong.err" "live the current context is not the one in which bindings were made" 2
done

# A sanitizer's runtime must come before everything else, and asks for dlsym before it can do with another's.
others="static shared both old"
[ -z "${SAN:-}${TSAN:-}" ] || { others=; echo "skipped with sanitizers: another library is preloaded, too"; }
for door in $others; do
	section "another library is preloaded, too, and stands behind: $door"
	run $door.behind.captured env LD_PRELOAD="$other" medusa-capture --no-verify -o "$work/$door.behind.medusa" -- "${subject[@]}" $door
	assert_exit $door.behind.captured 0
	assert_lacks "$work/$door.behind.captured.err" "preloaded before this library"
	run $door.behind env LD_PRELOAD="$other" medusa-restore "$work/$door.behind.medusa" -- "${subject[@]}" $door
	assert_exit $door.behind 0
	assert_same_file "$work/$door.live.out" "$work/$door.behind.out"
	assert_count "$work/$door.behind.err" " restored " 2

	section "another library stands in front: $door"
	run $door.front env LD_PRELOAD="$other:$MEDUSA_BUILD/lib/libmedusa-restore.so" MEDUSA_ARTIFACT="$work/$door.medusa" "${subject[@]}" $door
	assert_exit $door.front 0
	assert_same_file "$work/$door.live.out" "$work/$door.front.out"
	assert_contains "$work/$door.front.err" "$other was preloaded before this library and defines dlsym"
	assert_contains "$work/$door.front.err" "other library: saw lookups 1 allocations 1"
	run $door.front.captured env LD_PRELOAD="$other:$MEDUSA_BUILD/lib/libmedusa-capture.so" MEDUSA_TRACE="$work/$door.front.mtrace" "${subject[@]}" $door
	assert_exit $door.front.captured 0
	assert_same_file "$work/$door.live.out" "$work/$door.front.captured.out"
	assert_contains "$work/$door.front.captured.err" "$other was preloaded before this library and defines dlsym"
done

section "injected by the driver, and not preloaded"
for library in capture restore swap capture:forgets restore:forgets swap:forgets; do
	habit=${library#*:}
	[ "$habit" != "$library" ] || habit=
	library=${library%:*}
	run injected.$library env CUDA_INJECTION64_PATH="$MEDUSA_BUILD/lib/libmedusa-$library.so" MEDUSA_ARTIFACT="$work/static.medusa" MEDUSA_TRACE="$work/injected.mtrace" "${subject[@]}" static $habit
	assert_exit injected.$library 0
	assert_same_file "$work/static.live.out" "$work/injected.$library.out"
	assert_count "$work/injected.$library.err" "loaded by CUDA_INJECTION64_PATH and not by LD_PRELOAD" 1
	assert_lacks "$work/injected.$library.err" " restored "
done
assert_no_file "$work/injected.mtrace"

section "injected and preloaded"
run both_ways.captured env CUDA_INJECTION64_PATH="$MEDUSA_BUILD/lib/libmedusa-capture.so" medusa-capture --no-verify -o "$work/both_ways.medusa" -- "${subject[@]}" static
assert_exit both_ways.captured 0
assert_lacks "$work/both_ways.captured.err" "loaded by CUDA_INJECTION64_PATH"
run both_ways env CUDA_INJECTION64_PATH="$MEDUSA_BUILD/lib/libmedusa-restore.so" medusa-restore "$work/both_ways.medusa" -- "${subject[@]}" static
assert_exit both_ways 0
assert_same_file "$work/static.live.out" "$work/both_ways.out"
assert_count "$work/both_ways.err" " restored " 2
assert_lacks "$work/both_ways.err" "loaded by CUDA_INJECTION64_PATH"
finish
