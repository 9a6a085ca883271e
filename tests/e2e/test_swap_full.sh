#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap out --full: an engine of medusa-swap run goes with all that it has on the device, comes back on this device or
# another one, and computes what it computes without; what fails leaves it as it was, or says how to go on.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=128M HOSTCUDA_DEVICES=2

answer() { answered=; read -r -t "${1:-$patience}" answered <&"$engine_out"; }
where() { echo "$(state state) $(state full)"; }
free_bytes() { "${subject[@]}" 0 <<<free | sed -n 's/^free //p'; } # by another process, of device 0

left_over() { # processes of this test that ask the driver
	local pid
	for pid in $(pgrep -f driver-of-run); do
		tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" && echo "$pid"
	done
}

close_engine() { # when its input ends, the engine says what its threads found
	exec {engine_in}>&-
	engine_in=
	answer
	assert_equal 'what the threads found' 'wrong 0' "$answered"
	end_engine
}

expected 'work 3' 'work 2' 'work 1' 'work 4'
empty=$(free_bytes)

section 'all that it has goes and comes, with a request that waits'
begin all -- 0
asked work 3
done_swap plain out
assert_at_most 'free while only its memory is out' $((empty - (16 << 20))) "$(free_bytes)"
done_swap plain in
done_swap out out --full
assert_equal 'it is' 'out true' "$(where)"
assert_equal 'free while it is fully out' "$empty" "$(free_bytes)"
assert_equal 'bytes that stay' 0 "$(number out stays)"
assert_at_least 'bytes that went the fast way' 8000000 "$(number out bytes)"
assert_at_least 'time of the checkpoint' 1 "$(number out ns_checkpoint)"
run twice medusa-swap out all
assert_exit twice 0
assert_contains "$work/twice.out" "all: the engine's memory is out already"
say work 2
answer 0.3
assert_equal 'an answer while it is out' '' "$answered"
done_swap in in --verify
assert_at_least 'time of the restore' 1 "$(number in ns_restore)"
assert_equal 'it is' 'in false' "$(where)"
answer
assert_equal 'work that was asked for while it was out' "${live[2]}" "$answered"
done_swap fast out
done_swap rest out --full
assert_equal 'free after what was out already has gone fully' "$empty" "$(free_bytes)"
done_swap overlapped in --overlap
asked work 1
assert_equal 'work after an overlapped in' "${live[3]}" "$answered"
run told medusa-swap out --full all
run told medusa-swap status all
assert_contains "$work/told.out" 'all: out (full); 1 process'
done_swap released release
asked work 4
assert_equal 'work of an engine that was released' "${live[4]}" "$answered"
close_engine

section 'it comes back on another device, and goes on from there'
begin late -- 1
asked work 3
done_swap out out --full
done_swap in in --gpu 1
assert_equal 'free on the first device' "$empty" "$(free_bytes)"
asked work 2
assert_equal 'work on the other device' "${live[2]}" "$answered"
done_swap out out
done_swap in in --verify
done_swap out out --full
swap wrong in --gpu 5
assert_exit wrong 3
assert_contains "$work/wrong.err" 'no GPU here is called "5"'
assert_equal 'it is' 'out true' "$(where)"
done_swap in in --gpu 0
assert_at_most 'free on the first device' $((empty - (16 << 20))) "$(free_bytes)"
asked work 1
assert_equal 'work on the first device again' "${live[3]}" "$answered"
done_swap out out
swap cannot in --gpu 1
assert_exit cannot 1
assert_contains "$work/cannot.err" 'only an engine that is out with --full can come back on another GPU'
done_swap in in
close_engine

section 'again and again, with requests in flight'
begin many -- 3
for round in $(seq "${FULL_ROUNDS:-12}"); do
	done_swap out out --full
	done_swap in in --gpu $((round % 2))
done
close_engine

section 'what fails leaves the engine in, or fully out'
refused() { # name, what the message says; the engine is as before
	assert_exit "$1" 1
	assert_contains "$work/$1.err" "$2"
	assert_equal 'it is' "${3:-in false}" "$(where)"
}
older=$(driver_without cuCheckpointProcessCheckpoint)
LD_LIBRARY_PATH=${older#*=} begin without -- 1
swap no out --full
refused no 'without: this CUDA driver has no cuCheckpointProcessCheckpoint, so it cannot checkpoint processes'
asked work 3
assert_equal 'work after that' "${live[1]}" "$answered"
close_engine
HOSTCUDA_FAULT=cuCheckpointProcessCheckpoint:1:NOT_SUPPORTED,cuMemHostUnregister:1:UNKNOWN begin never -- 1
swap no out --full
refused no cuMemHostUnregister
swap no out --full
refused no 'cuCheckpointProcessCheckpoint: CUDA_ERROR_NOT_SUPPORTED (801'
done_swap out out
done_swap full out --full
done_swap in in
asked work 3
assert_equal 'work after that' "${live[1]}" "$answered"
close_engine
HOSTCUDA_FAULT=cuCheckpointProcessCheckpoint:1:UNKNOWN,cuCheckpointProcessUnlock:1:UNKNOWN begin held -- 1
asked work 3
swap no out --full
refused no 'process '"$(state engine_pid)"' stays locked' 'out true'
assert_contains "$work/no.err" '"medusa-swap in" goes on from there'
done_swap in in
asked work 2
assert_equal 'work after the driver held it' "${live[2]}" "$answered"
close_engine
begin shares -- 0
asked share
swap no out --full
refused no '--full: the process has shared device memory (cuIpcGetMemHandle), and a checkpoint would silently make a copy'
done_swap out out
swap no out --full
refused no 'has shared device memory' 'out false'
done_swap in in
asked work 3
assert_equal 'work after that' "${live[1]}" "$answered"
close_engine

section 'each call of the process that asks the driver fails once'
for call in $(seq 40); do
	HOSTCUDA_FAULT="@medusa-swap:$call:UNKNOWN" begin each -- 1
	failed=
	asked work 3
	swap out out --full
	if [ "$code" != 0 ]; then
		failed=out
		assert_equal "it is, after call $call has failed" 'in false' "$(where)"
		done_swap out out --full
	fi
	say work 2
	swap in in
	if [ "$code" != 0 ]; then
		failed=in
		assert_equal "it is, after call $call has failed" 'out true' "$(where)"
		done_swap in in
	fi
	answer
	assert_equal "work after call $call has failed" "${live[2]}" "$answered"
	close_engine
	[ -n "$failed" ] || break
done
assert_at_least 'calls that failed' 8 "$call"

section 'no room to come back'
room() { # takes megabytes of device 0 until "end_room"
	converse room "${subject[@]}" 0 2>/dev/null
	read -r -t "$patience" _ <&"$room_out"
	echo "alloc $1" >&"$room_in"
	read -r -t "$patience" _ <&"$room_out"
}
end_room() {
	exec {room_in}>&-
	wait "$room_shell" 2>/dev/null
}
begin tight -- 1
asked alloc 40
done_swap out out --full
room 88 # and 24 for itself
swap in in
refused in 'cuCheckpointProcessRestore: CUDA_ERROR_OUT_OF_MEMORY' 'out true'
end_room
room 64
swap in in
refused in 'the driver has restored the engine already: its memory is out, and its context is not' 'out false'
done_swap out out --full
assert_equal 'it is' 'out true' "$(where)"
end_room
done_swap in in --verify
asked work 3
assert_at_least 'an answer' 1 "${#answered}"
close_engine

section 'another medusa-swap has brought the processes back'
begin early -- 1
asked work 3
done_swap out out --full
run back medusa-swap in --method checkpoint "$(state engine_pid)"
assert_exit back 0
done_swap in in
asked work 2
assert_equal 'work after that' "${live[2]}" "$answered"
close_engine

section 'a program asks; the engine itself cannot'
asker=$MEDUSA_BUILD/tests/subjects/swap_asker
begin asked -- 1
asked work 3
asked full asked
assert_contains <(echo "$answered") 'full 1 medusa_swap_out: options->full is set, and name is NULL: a process cannot wait for a checkpoint of itself'
assert_contains <(echo "$answered") 'is part of the engine, and cannot wait for a checkpoint of itself: let another process ask'
assert_equal 'it is' 'in false' "$(where)"
run program "$asker" full asked
assert_exit program 0
assert_contains "$work/program.out" 'checkpoint 1 restore 0'
assert_equal 'it is' 'out true' "$(where)"
run program "$asker" status asked
assert_contains "$work/program.out" ' full 1 silent 0'
run program "$asker" full asked
assert_contains "$work/program.out" "ok: asked: the engine's memory is out already"
run program "$asker" gpu asked 7
assert_exit program 4
run program "$asker" out asked 1
assert_exit program 1
assert_contains "$work/program.out" 'medusa_swap_out: options->gpu is set, which is for medusa_swap_in'
run program "$asker" gpu asked 1
assert_exit program 0
assert_contains "$work/program.out" 'checkpoint 0 restore 1'
assert_equal 'it is' 'in false' "$(where)"
run program "$asker" gpu asked 0
assert_exit program 5
assert_contains "$work/program.out" 'only an engine that is out with --full can come back on another GPU'
asked work 2
assert_equal 'work on the other device' "${live[2]}" "$answered"
close_engine

section 'whoever dies while the engine is fully out'
begin dying -- 1
pid=$(state engine_pid)
done_swap out out --full
kill -KILL "$pid"
wait "$engine_shell"
assert_equal 'the exit code' 137 $?
begin helped -- 1
asked work 3
done_swap out out --full
assert_equal 'processes that ask the driver' 1 "$(left_over | wc -l)"
kill -KILL "$(pgrep -f -P "$(state pid)" driver-of-run)"
done_swap in in
asked work 2
assert_equal 'work after the process that asks the driver has died' "${live[2]}" "$answered"
close_engine

section 'the process that asks the driver dies, or is stopped, at any moment'
helper() { pgrep -f -P "$(state pid)" driver-of-run; }
begin helped -- 1
asked work 3
done_swap out out --full
runs=$(state pid) killed=$(helper)
kill -STOP "$runs"
kill -KILL "$killed"
medusa-swap in helped >"$work/late.out" 2>"$work/late.err" &
late=$!
kill -CONT "$runs"
wait $late
assert_equal 'exit code of an "in" that came when it was killed' 0 $?
asked work 2
assert_equal 'work after that' "${live[2]}" "$answered"
done_swap out out --full
kill -STOP "$(helper)"
done_swap in in
assert_equal 'it is, after the one that was stopped was replaced' 'in false' "$(where)"
kill -STOP "$(helper)"
done_swap out out --full --deadline 1
done_swap in in
for delay in 0 0.001 0.002 0.004 0.006 0.01 0.02 0.04; do
	for verb in 'out --full' in; do
		# shellcheck disable=SC2086
		medusa-swap $verb helped >"$work/any.out" 2>"$work/any.err" &
		any=$!
		sleep $delay
		kill -KILL "$(helper)" 2>/dev/null
		if ! wait $any; then
			assert_contains "$work/any.err" 'the process that asks the driver ended before it answered'
			assert_equal "$verb is refused; it was broken off" 'out --full' "$verb"
			case $(where) in 'in false' | 'out true') ;; *) fail 'in, or fully out' "$(where)" ;; esac
			[ "$(where)" = 'in false' ] && done_swap again out --full
		fi
	done
	assert_equal 'it is' 'in false' "$(where)"
done
asked work 1
assert_equal 'work after all that' "${live[3]}" "$answered"
assert_at_most 'zombies that are left of ten that were killed' 3 "$(ps --ppid "$(state pid)" -o stat= | grep -c Z)"
close_engine

section 'medusa-swap run is killed while the engine is fully out'
begin orphan -- 1
asked work 3
pid=$(state engine_pid)
done_swap out out --full
kill -KILL "$(state pid)"
asked work 2
assert_equal 'work after medusa-swap run has been killed' "${live[2]}" "$answered"
end_orphan "$pid"
begin alone -- 1
asked work 3
pid=$(state engine_pid)
done_swap out out --full
killed=$(helper) runs=$(state pid)
kill -STOP "$runs" "$killed"
kill -KILL "$killed" "$runs"
say work 2
answer 1
assert_equal 'an answer while nobody brings it back' '' "$answered"
run alone medusa-swap in --method checkpoint "$pid"
assert_exit alone 0
answer
assert_equal 'work after both have been killed' "${live[2]}" "$answered"
end_orphan "$pid"
begin told -- 1
done_swap out out --full
kill -TERM "$(state pid)"
wait "$engine_shell"
assert_equal 'the exit code of one that is told to end' 143 $?
begin leaves -- 1
done_swap out out --full
say exit 5
wait "$engine_shell"
assert_equal 'the exit code of one that has ended by itself' 5 $?
for _ in $(seq 1200); do
	[ -n "$(left_over)" ] || break
	sleep 0.05
done
assert_equal 'processes that ask the driver, and are left' '' "$(left_over)"
assert_equal 'what is free at the end' "$empty" "$(free_bytes)"

section 'two processes go and come together, or stay together'
mkfifo "$work/one" "$work/two"
engine_name=pair
HOSTCUDA_FAULT=cuCheckpointProcessCheckpoint:2:UNKNOWN,cuCheckpointProcessRestore:3:UNKNOWN medusa-swap run --name pair --pool-bytes 256M -- bash -c \
	'"${@:3}" 1 <"$1" >"$1.out" & first=$!; "${@:3}" 1 <"$2" >"$2.out" & wait $first && wait $!' - "$work/one" "$work/two" "${subject[@]}" 2>"$work/pair.err" &
pair=$!
exec {one}>"$work/one" {two}>"$work/two"
for _ in $(seq 1200); do
	[ "$(state engines)" = 2 ] && [ "$(cat "$work/one.out" "$work/two.out" | grep -c ready)" = 2 ] && break
	sleep 0.05
done
swap out out --full
refused out 'cuCheckpointProcessCheckpoint'
done_swap out out --full
assert_equal 'free while both are out' "$empty" "$(free_bytes)"
swap in in
refused in 'cuCheckpointProcessRestore' 'out true'
done_swap in in
exec {one}>&- {two}>&-
wait $pair
assert_equal 'the exit code of both' 0 $?
assert_count "$work/one.out" 'wrong 0' 1
assert_count "$work/two.out" 'wrong 0' 1
finish
