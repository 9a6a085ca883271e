#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap --method checkpoint: processes that it has not started go and come by the driver's checkpoints, all or none,
# compute what they compute without, and say in which state they are when something fails.
. tests/e2e/lib.sh
called=subject$$ # nobody else's processes have this name
ln -s "$MEDUSA_BUILD/tests/subjects/swap_subject" "$work/$called"
subject=("$work/$called" "$MEDUSA_BUILD/tests/images/arith.host.so")
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=128M HOSTCUDA_DEVICES=2

# ---- a process, and what it is told ----------------------------------------------------------------------------------
begin() { # threads, setting of its environment
	converse process env "${@:2}" timeout --foreground --kill-after=5 "$engine_limit" "${subject[@]}" "$1" 2>"$work/process.err"
	answer
	assert_equal "the process's first word" ready "$answered"
	pid=$(pgrep -P "$process_shell" | head -n 1)
}

say() { printf '%s\n' "$*" >&"$process_in"; }
answer() { answered=; read -r -t "${1:-$patience}" answered <&"$process_out"; }
asked() { say "$*" && answer; }

end_process() { # expected exit code
	local got=0
	exec {process_in}>&-
	wait "$process_shell" 2>/dev/null || got=$?
	assert_equal "the exit code of the process" "${1:-0}" "$got"
}

kill_process() {
	kill -KILL "$pid"
	wait "$process_shell" 2>/dev/null
}

goes() { run "$1" "${@:2}" medusa-swap out --method checkpoint --json "$pid" && cp "$work/$1.out" "$work/$1.json"; }
comes() { run "$1" "${@:2}" medusa-swap in --json "$pid" && cp "$work/$1.out" "$work/$1.json"; }
state() { medusa-swap status --json "${1:-$pid}" 2>/dev/null | sed -n 's/^  "state": "\(.*\)",/\1/p'; }
free_bytes() { "${subject[@]}" 0 <<<free | sed -n 's/^free //p'; } # by another process

printf '%s\n' 'work 3' 'work 2' 'work 1' 'work 4' | run live "${subject[@]}" 0
mapfile -t live <"$work/live.out"
empty=$(free_bytes)

section 'a process goes, and comes back; its calls wait, and its share of the device is free meanwhile'
begin 0
assert_equal state running "$(state)"
asked work 3
assert_equal 'first work' "${live[1]}" "$answered"
assert_at_most 'free beside it' $((empty - (24 << 20))) "$(free_bytes)"
goes first
assert_exit first 0
assert_equal state checkpointed "$(state)"
assert_equal 'free while it is out' "$empty" "$(free_bytes)"
assert_at_least 'time of the checkpoint' 1 "$(number first ns_checkpoint)"
say work 2
answer 0.3
assert_equal 'an answer while it is out' '' "$answered"
run twice medusa-swap out --method checkpoint "$pid"
assert_exit twice 0
assert_contains "$work/twice.out" "$pid: the memory is out already"
comes back
assert_exit back 0
answer
assert_equal 'work that was asked for while it was out' "${live[2]}" "$answered"
assert_equal state running "$(state)"
comes again
assert_exit again 0
assert_contains "$work/again.out" '"already": true'
run named medusa-swap out --method checkpoint "$called"
assert_exit named 0
assert_contains "$work/named.out" "$called: out: checkpointed, in "
run told medusa-swap status --method checkpoint "$called"
assert_contains "$work/told.out" "$called: checkpointed; 1 process"
comes named_back
asked work 1
assert_equal 'last work' "${live[3]}" "$answered"
end_process

section 'with requests in flight, again and again'
begin 3
for _ in $(seq "${CHECKPOINT_ROUNDS:-15}"); do
	goes out
	assert_exit out 0
	comes in
	assert_exit in 0
done
exec {process_in}>&-
answer
assert_equal 'what the threads found' 'wrong 0' "$answered"
wait "$process_shell" 2>/dev/null

section 'work on the device ends before the process goes; calls that do not end refuse it'
begin 0
asked wait
medusa-swap out --method checkpoint "$pid" >"$work/late.out" 2>&1 &
late=$!
for _ in $(seq 1200); do
	[ "$(state)" = locked ] && break
	sleep 0.05
done
assert_equal 'what waits for the work' locked "$(state)"
kill -TERM $late # waits for the last step
say flag
wait $late
assert_equal 'the exit code of one that was told to end' 143 $?
assert_equal state checkpointed "$(state)"
comes in
asked work 3
assert_equal 'work after that' "${live[1]}" "$answered"
asked alloc 8
asked wait
say renew # waits in the driver
sleep 0.2
run busy medusa-swap out --method checkpoint --deadline 0.3 "$pid"
assert_exit busy 1
assert_contains "$work/busy.err" 'did not end within 300 ms: the process keeps its memory, and runs on'
assert_equal state running "$(state)"
kill_process

section 'each call of the driver fails once: the process runs on, or the message says what to do'
begin 0
asked work 3
for call in $(seq 40); do
	goes fault env HOSTCUDA_FAULT="@medusa-swap:$call:UNKNOWN"
	[ "$code" != 0 ] || break
	assert_equal "state after call $call of out has failed" running "$(state)"
done
assert_at_least 'calls of out that failed' 5 "$call"
for call in $(seq 40); do
	comes fault env HOSTCUDA_FAULT="@medusa-swap:$call:UNKNOWN"
	[ "$code" != 0 ] || break
	now=$(state)
	[ "$now" = checkpointed ] && continue
	assert_equal "state after call $call of in has failed" locked "$now"
	assert_contains "$work/fault.err" "process $pid stays locked"
	comes mended
	goes again
done
assert_at_least 'calls of in that failed' 4 "$call"
asked work 2
assert_equal 'work after all that' "${live[2]}" "$answered"
goes stuck env HOSTCUDA_FAULT=cuCheckpointProcessCheckpoint:1:UNKNOWN,cuCheckpointProcessUnlock:1:UNKNOWN
assert_exit stuck 1
assert_contains "$work/stuck.err" "process $pid stays locked"
assert_contains "$work/stuck.err" "\"medusa-swap in --method checkpoint $pid\" tries again"
comes mended
assert_exit mended 0
asked work 1
assert_equal 'work after it was locked' "${live[3]}" "$answered"

section 'what the driver cannot do is refused by name'
goes without env "$(driver_without cuCheckpointProcessLock)"
assert_exit without 1
assert_contains "$work/without.err" 'this CUDA driver has no cuCheckpointProcessLock, so it cannot checkpoint processes'
goes never env HOSTCUDA_FAULT=cuCheckpointProcessCheckpoint:1:NOT_SUPPORTED
assert_exit never 1
assert_contains "$work/never.err" "process $pid: cuCheckpointProcessCheckpoint: CUDA_ERROR_NOT_SUPPORTED (801"
assert_equal state running "$(state)"

section 'another program has locked it'
cat >"$work/lock.py" <<'END'
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
assert driver.cuCheckpointProcessLock(int(sys.argv[1]), None) == 0
END
if [ -z "${SAN:-}${TSAN:-}" ]; then
	run locked python3 "$work/lock.py" "$pid"
	assert_exit locked 0
	goes refused
	assert_exit refused 1
	assert_contains "$work/refused.err" "process $pid is locked already"
	assert_equal state locked "$(state)"
	comes unlocked
	assert_exit unlocked 0
	asked work 4
	assert_equal 'work after it was locked' "${live[4]}" "$answered"
	run locked python3 "$work/lock.py" "$pid"
fi

section 'a process that is stopped, or whose driver does not answer'
kill -STOP "$pid"
goes stopped
assert_exit stopped 1
assert_contains "$work/stopped.err" "process $pid is stopped (SIGSTOP, a debugger): continue it"
kill -CONT "$pid"
if [ -z "${SAN:-}${TSAN:-}" ]; then
	python3 - "$MEDUSA_BUILD/lib/hostcuda/libcuda.so.1" <<'END' &
import ctypes, os, socket, sys, time
driver = ctypes.CDLL(sys.argv[1])
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0hostcuda-checkpoint-%d" % os.getpid())
s.listen(8)
time.sleep(60)
END
	mute=$!
	for _ in $(seq 1200); do
		grep -q "hostcuda-checkpoint-$mute\$" /proc/net/unix && break
		sleep 0.05
	done
	for signal in INT TERM HUP; do
		began=$SECONDS
		run ended timeout --preserve-status -s $signal 0.5 medusa-swap out --method checkpoint $mute
		assert_equal "the exit code after SIG$signal" $((128 + $(kill -l $signal))) "$code"
		assert_at_most 'seconds until it ends' 20 $((SECONDS - began))
	done
	kill $mute
	wait $mute 2>/dev/null
fi

section 'hostcuda is found where there is no GPU'
driver_path=$LD_LIBRARY_PATH
unset LD_LIBRARY_PATH
run found medusa-swap status "$pid" --device host
assert_exit found 0
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/nvidia0 ]; then
	run found medusa-swap status "$pid"
	assert_exit found 0
	assert_contains "$work/found.err" 'no GPU here: processes are looked for on hostcuda'
fi
export LD_LIBRARY_PATH=$driver_path

section 'the process dies'
kill_process
comes gone
assert_exit gone 3
begin 0
goes out
kill_process
comes gone
assert_exit gone 3
assert_contains "$work/gone.err" "$pid: no process has the id $pid"
assert_equal 'free after it' "$empty" "$(free_bytes)"
begin 0 HOSTCUDA_FAULT=hostcuda_restore:1:UNKNOWN
goes out
comes failed
assert_exit failed 1
assert_equal state failed "$(state)"
comes failed
assert_contains "$work/failed.err" "process $pid is failed, as the driver calls it"
kill_process

section 'no room to come back: it stays checkpointed'
begin 0
asked alloc 32
kept=$pid kept_in=$process_in kept_out=$process_out kept_shell=$process_shell
goes out
begin 0
asked alloc 60
other=$pid other_in=$process_in other_shell=$process_shell
pid=$kept
comes refused
assert_exit refused 1
assert_contains "$work/refused.err" 'cuCheckpointProcessRestore: CUDA_ERROR_OUT_OF_MEMORY'
assert_equal state checkpointed "$(state)"

section 'it comes back on another device'
run moved medusa-swap in --gpu 0:1 "$kept"
assert_exit moved 0
process_in=$kept_in process_out=$kept_out process_shell=$kept_shell
asked work 3
assert_at_least 'an answer' 1 "${#answered}"
run wrong medusa-swap in --gpu 7:0 "$kept"
assert_exit wrong 3
assert_contains "$work/wrong.err" 'no GPU here is called "7"'
run running medusa-swap in --gpu 1:0 "$kept"
assert_exit running 1
assert_contains "$work/running.err" 'only a process that is checkpointed can come back on another GPU'
end_process
process_in=$other_in process_shell=$other_shell pid=$other
end_process

section 'a tree of processes goes as one, if they share nothing'
mkfifo "$work/one" "$work/two"
bash -c '"${@:3}" 1 <"$1" >"$1.out" & first=$!; "${@:3}" 1 <"$2" >"$2.out" & wait $first && wait $!' - "$work/one" "$work/two" "${subject[@]}" &
tree=$!
exec {one}>"$work/one" {two}>"$work/two"
for _ in $(seq 1200); do
	[ "$(cat "$work/one.out" "$work/two.out" 2>/dev/null | grep -c ready)" = 2 ] && break
	sleep 0.05
done
pid=$tree
goes both
assert_exit both 1
assert_contains "$work/both.err" '2 processes use the driver'
assert_contains "$work/both.err" 'if they share none, say so by --unshared'
run half env HOSTCUDA_FAULT=cuCheckpointProcessLock:2:UNKNOWN medusa-swap out --method checkpoint --unshared "$tree"
assert_exit half 1
assert_equal 'state after one of two was not locked' running "$(state)"
run half env HOSTCUDA_FAULT=cuCheckpointProcessCheckpoint:2:UNKNOWN medusa-swap out --method checkpoint --unshared "$tree"
assert_exit half 1
assert_equal 'state after one of two was not taken' running "$(state)"
run both medusa-swap out --method checkpoint --unshared "$tree"
assert_exit both 0
assert_equal state checkpointed "$(state)"
run half env HOSTCUDA_FAULT=cuCheckpointProcessRestore:2:UNKNOWN medusa-swap in "$tree"
assert_exit half 1
assert_equal 'state after one of two was not restored' checkpointed "$(state)"
comes both
assert_exit both 0
exec {one}>&- {two}>&-
wait $tree
assert_equal 'the exit code of both' 0 $?
assert_count "$work/one.out" 'wrong 0' 1
assert_count "$work/two.out" 'wrong 0' 1

section 'processes are frozen meanwhile, if that is wanted and possible'
begin 1
group=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)$(sed -n 's/^0:://p' "/proc/$pid/cgroup" | sed 's:^/$::')
if mkdir "$group/medusa-try" 2>/dev/null; then
	rmdir "$group/medusa-try"
	before=$(cat "/proc/$pid/cgroup")
	run frozen medusa-swap out --method checkpoint --freeze "$pid"
	assert_exit frozen 0
	run told medusa-swap status "$pid"
	assert_contains "$work/told.out" "$pid: checkpointed, frozen; 1 process"
	comes refused env HOSTCUDA_FAULT=cuCheckpointProcessRestore:1:UNKNOWN
	assert_exit refused 1
	run told medusa-swap status "$pid"
	assert_contains "$work/told.out" "$pid: checkpointed, frozen; 1 process"
	comes thawed
	assert_exit thawed 0
	assert_equal 'its cgroup' "$before" "$(cat "/proc/$pid/cgroup")"
	assert_no_file "$group/medusa-swap-$pid"
	run refused env HOSTCUDA_FAULT=cuCheckpointProcessLock:1:UNKNOWN medusa-swap out --method checkpoint --freeze "$pid"
	assert_exit refused 1
	assert_no_file "$group/medusa-swap-$pid"
else
	echo "skipped: $group cannot be written to: freezing"
	run refused medusa-swap out --method checkpoint --freeze "$pid"
	assert_exit refused 1
	assert_contains "$work/refused.err" 'the processes cannot be frozen'
	assert_equal state running "$(state)"
fi
exec {process_in}>&-
answer
assert_equal 'what the threads found' 'wrong 0' "$answered"
wait "$process_shell" 2>/dev/null

section 'who cannot be meant'
run none medusa-swap out --method checkpoint no_such_process
assert_exit none 3
assert_contains "$work/none.err" 'no process is called no_such_process'
sleep 60 &
run asleep medusa-swap out --method checkpoint $!
assert_exit asleep 3
assert_contains "$work/asleep.err" 'has initialized the CUDA driver'
kill %% 2>/dev/null
for wrong in 'out --method x 1' 'out --freeze engine' 'out --unshared engine' 'release --method checkpoint 1' 'in --verify 1' 'out --deadline x --method checkpoint 1'; do
	# shellcheck disable=SC2086
	run usage medusa-swap $wrong
	assert_exit usage 2
done
converse engine medusa-swap run --name mine --pool-bytes 64M -- "${subject[@]}" 0 2>/dev/null
read -r -t "$patience" _ <&"$engine_out"
run mine medusa-swap out --method checkpoint "$(pgrep -P "$engine_shell" | head -n 1)"
assert_exit mine 1
assert_contains "$work/mine.err" 'belongs to the engine mine of medusa-swap run: use "medusa-swap out mine --full"'
exec {engine_in}>&-
wait "$engine_shell" 2>/dev/null
finish
