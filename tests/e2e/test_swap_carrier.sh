#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The process that carries memory over links of other devices is killed, stopped, fails or lies; so do others meanwhile. The
# engine's memory is right, whoever has copied it.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=1G HOSTCUDA_DEVICES=3 CUDA_VISIBLE_DEVICES=0
export HOSTCUDA_H2D_GBPS=${LINK:-0.2} # bytes a nanosecond; all of the memory takes about 0.2 s over one link

# As in swap_lib.sh, but over named pipes: engines are killed here, and a coprocess that dies closes descriptors of the next one.
begin() { # name, "" or more options of run..., --, threads
	engine_name=$1
	shift
	local options=()
	while [ "$1" != -- ]; do options+=("$1") && shift; done
	rm -f "$work/pipe.in" "$work/pipe.out"
	mkfifo "$work/pipe.in" "$work/pipe.out"
	timeout --kill-after=5 "$run_limit" medusa-swap run --name "$engine_name" --pool-bytes 256M "${options[@]}" -- \
		"${subject[@]}" "$2" <"$work/pipe.in" >"$work/pipe.out" 2>"$work/$engine_name.err" &
	engine_shell=$!
	exec {engine_in}>"$work/pipe.in" {engine_out}<"$work/pipe.out"
	answer
	assert_equal "the engine's first word" ready "$answered"
	until_engine
}

section 'the carrier is killed at any moment'
begin_large hurt --gpu-neighbours -- 1
until_carrier 2
for round in $(seq "${NEIGHBOUR_DEATHS:-24}"); do
	done_swap out out
	victim=$(carrier)
	(
		sleep "0.0$((RANDOM % 9))"
		[ -z "$victim" ] || kill -KILL $victim
	) 2>/dev/null &
	done_swap in in --gpu-neighbours
	assert_sum
	wait $! 2>/dev/null
	done_swap out out # the next in starts another one, which may be ready in time
	done_swap in in --gpu-neighbours
	assert_sum
	until_carrier 2
done
close_engine

section 'the carrier is stopped, and goes on when nobody waits for it any more'
HOSTCUDA_H2D_GBPS=0.1 begin_large stopped --gpu-neighbours -- 0
for delay in 0.05 0.2; do
	until_carrier 2
	done_swap out out
	victim=$(carrier)
	swap in in --gpu-neighbours &
	sleep "$delay"
	kill -STOP "$victim"
	wait $!
	assert_equal 'it is' in "$(state state)"
	kill -CONT "$victim" 2>/dev/null
	assert_sum
	grep -q 'the carrier does not go on' "$work/in.json" || continue # it was stopped before it had begun
	for _ in $(seq 100); do [ -d "/proc/$victim" ] || break; sleep 0.05; done
	assert_equal 'the stopped carrier' '' "$(ls -d "/proc/$victim" 2>/dev/null)"
	done_swap out out
	done_swap in in --gpu-neighbours # starts another one
	assert_sum
done
until_carrier 2
done_swap out out
victim=$(carrier) manager=$(state pid)
swap in in --gpu-neighbours &
sleep 0.1
kill -STOP "$victim" "$manager" # nobody can kill it
asked sum
assert_equal 'what the memory holds, while the carrier may still write' "$wanted" "$answered"
kill -CONT "$victim"
sleep 0.3
assert_sum
kill -CONT "$manager"
wait $!
assert_sum
close_engine

section 'each call of the driver in the carrier fails once'
megabytes=8
for call in ${NEIGHBOUR_CALLS:-$(seq 72)}; do
	HOSTCUDA_FAULT="@medusa-swap/swap-carrier:$call:UNKNOWN" begin_large "each$call" --gpu-neighbours -- 0
	for round in 1 2; do
		done_swap out out
		done_swap in in --gpu-neighbours
		assert_sum
	done
	close_engine
done
megabytes=30

section 'the neighbours have no room for a context, or for staging memory'
for fault in cuDevicePrimaryCtxRetain:*:OUT_OF_MEMORY cuMemAlloc_v2/swap-carrier:2:OUT_OF_MEMORY cuMemHostRegister_v2/swap-carrier:*:UNKNOWN; do
	HOSTCUDA_FAULT=${fault/Retain:/Retain/swap-carrier:} begin_large room --gpu-neighbours -- 0
	for round in 1 2; do
		done_swap out out
		done_swap in in --gpu-neighbours
		assert_sum
	done
	close_engine
done

section 'the engine is killed while its memory comes'
for delay in 0 0.03 0.06; do
	HOSTCUDA_H2D_GBPS=0.1 begin_large dies --gpu-neighbours -- 0
	until_carrier 2
	done_swap out out
	victim=$(engine_pid)
	swap in in --gpu-neighbours &
	sleep "$delay"
	kill -KILL "$victim"
	wait $!
	end_engine 137
	for _ in $(seq 100); do [ -z "$(carrier)" ] && break; sleep 0.05; done
	assert_equal 'the carrier' '' "$(carrier)"
done

section 'medusa-swap run is killed while memory comes'
for delay in 0 0.05; do
	HOSTCUDA_H2D_GBPS=0.1 begin_large orphan --gpu-neighbours -- 0
	until_carrier 2
	done_swap out out
	victim=$(engine_pid) manager=$(state pid)
	swap in in --gpu-neighbours &
	sleep "$delay"
	kill -KILL "$manager"
	wait $!
	assert_sum
	for _ in $(seq 100); do [ -z "$(carrier)" ] && break; sleep 0.05; done
	assert_equal 'the carrier' '' "$(carrier)"
	end_orphan "$victim"
done

section 'two engines share the links'
mkfifo "$work/two.in" "$work/two.out"
begin_large first --gpu-neighbours -- 0
medusa-swap run --name second --pool-bytes 256M --gpu-neighbours -- "${subject[@]}" 0 <"$work/two.in" >"$work/two.out" 2>"$work/two.err" &
second=$!
exec {two_in}>"$work/two.in" {two_out}<"$work/two.out"
two() { printf '%s\n' "$*" >&"$two_in"; read -r -t 20 answered <&"$two_out"; }
read -r -t 20 answered <&"$two_out"
two "alloc $megabytes"
two sum
assert_equal 'the same memory' "$wanted" "$answered"
until_carrier 2
sleep 1
of_first=0 of_second=0
for round in $(seq 6); do
	done_swap out out
	run out2 medusa-swap out second
	run in2 medusa-swap in second --gpu-neighbours --json &
	done_swap in in --gpu-neighbours
	wait $!
	of_first=$((of_first + $(number in copied_by_neighbours)))
	of_second=$((of_second + $(sed -n 's/^  "copied_by_neighbours": \([0-9]*\).*/\1/p' "$work/in2.out")))
	assert_sum
	two sum
	assert_equal 'what the memory of the other engine holds' "$wanted" "$answered"
done
assert_at_least 'what neighbours brought to the first engine' 2000000 "$of_first"
assert_at_least 'what neighbours brought to the second engine' 2000000 "$of_second"
exec {two_in}>&-
wait "$second"
exec {two_out}<&-
close_engine

section 'an engine that comes back on another device has other neighbours'
begin_large moved --gpu-neighbours -- 0
until_carrier 2
for gpu in 1 0 2; do
	done_swap out out --full
	done_swap in in --gpu "$gpu" --gpu-neighbours
	assert_sum
	come_in_helped "$gpu" --verify
done
close_engine
finish
