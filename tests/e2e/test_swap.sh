#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap in whole processes: an engine whose memory goes and comes computes what it computes without, whatever is
# asked of it meanwhile; refusals leave it as it was; whoever dies leaves nothing behind.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh

section 'what goes comes back, at the same addresses, and the engine computes what it computes without'
expected 'work 3' 'work 2' 'work 1' 'alloc 32' 'work 4'
begin plain -- 3
asked work 3
assert_equal 'first work' "${live[1]}" "$answered"
done_swap first out
assert_equal state out "$(state state)"
assert_at_least 'bytes that went' 10000000 "$(number first bytes)"
assert_at_least 'bytes copied' 8000000 "$(number first copied)"
assert_equal 'bytes that are out' "$(number first bytes)" "$(state out)"
done_swap back in --verify
assert_equal 'bytes that came' "$(number first bytes)" "$(number back bytes)"
asked work 2
assert_equal 'work after the first round' "${live[2]}" "$answered"
done_swap again out
assert_at_least 'bytes that had not changed' 4000000 "$(number again hashed_equal)"
say work 1
done_swap late in
answer
assert_equal 'work that was asked for while the memory was out' "${live[3]}" "$answered"
asked alloc 32
assert_equal 'memory that came later' "${live[4]}" "$answered"
done_swap third out
assert_at_least 'it goes, too' 40000000 "$(number third bytes)"
done_swap in3 in --verify
asked work 4
assert_equal 'last work' "${live[5]}" "$answered"
asked fork
assert_equal 'a child that forks off' 'child 7' "$answered"
end_engine
answer
# shellcheck disable=SC2013 # keys are words
for key in $(sed -n 's/^  "\([a-z_]*\)":.*/\1/p' "$work/third.json" "$work/in3.json" | sort -u); do
	checks=$((checks + 1))
	sed -n '/^\.SH JSON/,/^\.SH WHEN/p' docs/man/medusa-swap.1 | grep -qw "$key" || fail "the key $key in medusa-swap(1)" 'no such word in its section JSON'
done
assert_at_least 'keys that are looked for' 40 "$checks"
run status medusa-swap status plain
assert_exit status 3
assert_contains "$work/status.err" 'no engine called plain runs'

section 'many rounds, with threads that launch all the time: every output is the same, and nothing grows'
rounds=${SWAP_ROUNDS:-40}
counted() { # process: descriptors and threads, when it has seen the end of the last command
	local last=
	for _ in $(seq 1200); do
		set -- "$1" "$(ls "/proc/$1/fd" | wc -l) $(ls "/proc/$1/task" | wc -l)"
		[ "$2" = "$last" ] && break
		last=$2
		sleep 0.1
	done
	echo "$2"
}
rss() { awk '/RssAnon/ { print $2 }' "/proc/$1/status"; }
mapfile -t works < <(for _ in $(seq "$rounds"); do echo 'work 1'; done)
expected "${works[@]}"
export HOSTCUDA_SHARED=$work/devices # so that bytes on the device are known from here
engine_limit=$((engine_limit + rounds)) begin many -- 3
pid=$(engine_pid) supervisor=$(state pid)
for round in $(seq "$rounds"); do
	done_swap out out
	away=$(on_device)
	case $((round % 5)) in
	0) done_swap in in --verify ;;
	1) done_swap in in --overlap ;;
	*) done_swap in in ;;
	esac
	asked work 1
	assert_equal "what the engine computes after round $round" "${live[round]}" "$answered"
	if [ "$round" = 20 ]; then
		before=$(counted "$pid") beside=$(counted "$supervisor") room=$(rss "$pid") room_beside=$(rss "$supervisor")
		there=$(on_device) gone=$away
	fi
done
assert_equal 'descriptors and threads of the engine' "$before" "$(counted "$pid")"
assert_equal 'descriptors and threads of medusa-swap run' "$beside" "$(counted "$supervisor")"
assert_equal 'bytes on the device, in' "$there" "$(on_device)"
assert_equal 'bytes on the device, out' "$gone" "$away"
if [ -z "${SAN:-}${TSAN:-}" ]; then
	assert_at_most 'memory of the engine in kB' $((room + 8192)) "$(rss "$pid")"
	assert_at_most 'memory of medusa-swap run in kB' $((room_beside + 4096)) "$(rss "$supervisor")"
fi
assert_equal outs "$rounds" "$(state outs)"
exec {engine_in}>&-
engine_in=
answer
assert_equal 'what the threads found' 'wrong 0' "$answered"
end_engine
unset HOSTCUDA_SHARED

section 'the memory is free while it is out'
begin free -- 0
done_swap out out
assert_at_least 'bytes that are out' 10000000 "$(state out)"
assert_equal 'bytes that stay of those' "$(state swappable)" "$(state out)"
done_swap in in
assert_equal 'bytes that are out' 0 "$(state out)"
end_engine

section 'managed memory that the driver does not move stays, and the rest goes'
expected 'managed 8' 'work 3' 'work 2'
begin managed -- 0
asked managed 8
assert_equal 'managed memory' "${live[1]}" "$answered"
asked work 3
for _ in $(seq 1200); do # it tells of changes a little later
	could=$(state swappable)
	[ "$could" -ge 18000000 ] && break
	sleep 0.05
done
done_swap out out
assert_at_least 'bytes that go' 10000000 "$(number out bytes)"
assert_equal 'bytes that stay' $((8 << 20)) "$(number out resident)"
assert_equal 'bytes that can go and stay, by status' "$((could - (8 << 20))) $((8 << 20))" "$(state swappable) $(state stays)"
assert_equal 'all that can go is out' "$(state swappable)" "$(state out)"
done_swap in in --verify
asked work 2
assert_equal 'work after that' "${live[3]}" "$answered"
done_swap out2 out
done_swap in2 in
end_engine
expected 'work 3' 'work 2' 'work 1' 'alloc 32' 'work 4'

section 'refusals: nothing has changed'
begin tight --pool-bytes 4M -- 0
swap small out
assert_exit small 6
assert_contains "$work/small.err" 'the pool is too small: it has 4194304 bytes, and '
assert_equal state in "$(state state)"
swap twice in
assert_exit twice 0
assert_contains "$work/twice.out" '"already": true'
run twice medusa-swap in tight
assert_contains "$work/twice.out" "tight: the engine's memory is in already"
end_engine
begin slow -- 0
asked wait
swap slow out --deadline 0.3
assert_exit slow 1
assert_equal state in "$(state state)"
say flag
asked work 3
assert_equal 'work after a refusal' "${live[1]}" "$answered"
done_swap now out
swap twice out
assert_exit twice 0
assert_equal 'bytes that went' 0 "$(number twice bytes)"
run twice medusa-swap out slow
assert_contains "$work/twice.out" "slow: the engine's memory is out already"
done_swap in in
end_engine

section 'names'
for name in a/b .x 4711 "$(printf 'x%.0s' {1..60})"; do
	run name medusa-swap run --name "$name" -- true
	assert_exit name 3
	assert_contains "$work/name.err" 'is not a name for an engine'
done
begin one -- 0
run second medusa-swap run --name one -- true
assert_exit second 4
assert_contains "$work/second.err" 'an engine of this name runs'
run list medusa-swap list
assert_exit list 0
assert_count "$work/list.out" 'one: in; 1 process' 1
run list_json medusa-swap list --json
assert_contains "$work/list_json.out" '"name": "one"'
end_engine
run empty medusa-swap list
assert_exit empty 0
assert_equal 'engines that are listed' 0 "$(wc -l <"$work/empty.out")"

section 'release: the engine keeps its memory from then on'
begin kept -- 1
asked work 3
assert_equal 'work before' "${live[1]}" "$answered"
done_swap out out
done_swap released release
assert_equal state released "$(state state)"
asked work 2
assert_equal 'work after' "${live[2]}" "$answered"
swap refused out
assert_exit refused 3
assert_contains "$work/refused.err" 'kept: the engine was released'
runs=$(state pid)
pool_blocks() { # of 512 bytes, that the pool's file takes
	local fd
	for fd in "/proc/$1/fd"/*; do
		case $(readlink "$fd") in *memfd:medusa-swap-pool*) stat -L -c %b "$fd" && return ;; esac
	done
}
for _ in $(seq 1200); do
	[ "$(pool_blocks "$runs")" -lt 8192 ] && break
	sleep 0.05
done
assert_at_most 'blocks of 512 bytes that the pool of 256 MB still takes' 8192 "$(pool_blocks "$runs")"
end_engine

section 'an engine that replaces itself by another program while it is out holds nothing any more'
begin leaves -- 1
done_swap out out
assert_at_least 'bytes that are held' 8000000 "$(state pool_held)"
say exec
for _ in $(seq 1200); do
	[ "$(state pool_held)" = 0 ] && break
	sleep 0.05
done
assert_equal 'bytes that are held, and processes' '0 0' "$(state pool_held) $(state engines)"
end_engine 3
begin again -- 1
asked work 3
done_swap out out
say exec again
for _ in $(seq 1200); do
	[ "$(state engines) $(state pool_held) $(state state)" = '1 0 in' ] && break
	sleep 0.05
done
answer
assert_equal "the new program's first word" ready "$answered"
done_swap out2 out
done_swap in2 in --verify
end_engine

section 'an engine that ends while its memory is out'
begin ending -- 2
done_swap out out
say exit 5
ended 5
engine_in=
begin dying -- 2
pid=$(engine_pid)
done_swap out out
kill -KILL "$pid"
ended 137
begin asked_to -- 2
done_swap out out
kill -TERM "$(state pid)"
ended 143
[ -z "$(ls "$place")" ] || assert_equal 'what is left in the folder' '' "$(ls "$place")"

section 'medusa-swap run that is killed: the engine gets its memory back'
begin orphan -- 1
pid=$(engine_pid)
asked work 3
done_swap out out
kill -KILL "$(state pid)"
asked work 2
assert_equal 'work of an engine without it' "${live[2]}" "$answered"
end_orphan "$pid"
run stale medusa-swap status orphan
assert_exit stale 3
begin orphan -- 0
end_engine

section 'medusa-swap run --stays-out that is killed: nothing comes back'
export HOSTCUDA_SHARED=$work/stays_out
for full in '' --full; do
	begin "stays${full#--}" --stays-out -- 1
	pid=$(engine_pid)
	asked work 3
	assert_equal 'it has memory' yes "$([ "$(on_device)" -gt 8000000 ] && echo yes)"
	done_swap out out $full
	assert_equal 'it has none' 0 "$(on_device)"
	kill -KILL "$(state pid)"
	until_said "$work/$engine_name.err" 'the memory stays out'
	assert_equal 'still none' 0 "$(on_device)"
	end_orphan "$pid"
done
section 'medusa-swap run --stays-out that is told to end: nothing comes back to an engine that takes its time'
mortal=("${subject[@]}")
subject=(sh -c 'trap "" TERM HUP; exec "$@"' sh "${subject[@]}")
export HOSTCUDA_CONTEXT=8M
for how in TERM HUP; do
	for full in '' --full; do
		begin "told_$how${full#--}" --stays-out -- 0
		asked work 3
		done_swap out out $full
		stayed=$(on_device)
		most_on_device >/dev/null
		kill -$how "$(state pid)"
		until_said "$work/$engine_name.err" 'the memory stays out'
		say work 2
		say exit 5
		ended 1 # of an engine whose call has failed
		more=$(($(most_on_device) - stayed))
		[ $more -le 0 ] || assert_equal 'more memory on the device meanwhile' 0 $more
	done
done
subject=("${mortal[@]}")
unset HOSTCUDA_CONTEXT
begin stays_in --stays-out -- 1
pid=$(engine_pid)
done_swap out out
done_swap in in
kill -KILL "$(state pid)"
asked work 3
assert_equal 'an engine that is in goes on' "${live[1]}" "$answered"
end_orphan "$pid"
unset HOSTCUDA_SHARED

section 'two at once, and one that dies in mid-call'
begin two -- 2
medusa-swap out two >/dev/null 2>&1 &
killed=$!
kill -KILL $killed
wait $killed 2>/dev/null
for _ in $(seq 10); do
	medusa-swap out two >"$work/a.out" 2>"$work/a.err" &
	first=$!
	medusa-swap in two >"$work/b.out" 2>"$work/b.err" &
	second=$!
	wait $first
	wait $second
done
medusa-swap in two >/dev/null 2>&1
assert_equal state in "$(state state)"
asked work 3
assert_equal 'work after that' "${live[1]}" "$answered"
end_engine

section 'what is no message'
begin hostile -- 0
python3 - "$place/hostile.sock" <<'END' >"$work/hostile.out"
import json, os, socket, sys
def send(data, close=False):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(sys.argv[1])
    try:
        s.sendall(data)
        if close:
            s.shutdown(socket.SHUT_WR)
        print(s.recv(10000).decode().strip() or "(closed)")
    except BrokenPipeError:
        print("(closed)")
send(b"hello\n")
send(b"{}\n")
send(b'{"medusa_swap": 1, "role": "command", "do": "status"}\n')
send(b'{"medusa_swap": 2, "role": "king"}\n')
send(b'{"medusa_swap": 2, "role": "command", "do": "explode"}\n')
send(b'{"medusa_swap": 2, "role": "command", "do": {"a": 1}}\n')
for number in 1 << 32, 1 << 40, '"77"':
    send(b'{"medusa_swap": 2, "role": "command", "do": "out", "process": %s}\n' % str(number).encode())
send(b'{"medusa_swap": 2, "role": "command", "do": "out", "full": "yes"}\n')
send(b'{"medusa_swap": 2, "role": "command", "do": "in", "gpu": 1}\n')
send(b"x" * 5000)
send(b'{"medusa_swap": 2', True)
send(b"\0" * 10 + b"\n")
send(os.urandom(4000) + b"\n")
END
assert_count "$work/hostile.out" '"ok": false' 14
assert_count "$work/hostile.out" 'there is no process ' 2
assert_contains "$work/hostile.out" 'full is a text: a number or a truth is wanted'
assert_contains "$work/hostile.out" 'gpu is a number or a truth: a text is wanted'
assert_count "$work/hostile.out" '(closed)' 1
assert_contains "$work/hostile.out" 'medusa_swap is 1, but this medusa-swap speaks version 2 of the protocol'
assert_contains "$work/hostile.out" 'not out, in, status or release'
assert_contains "$work/hostile.out" 'a line of more than 4096 bytes'
done_swap out out
done_swap in in
end_engine

section 'an engine whose connection was closed before it was answered, as after a stop at that moment, connects again'
python3 - "$work/closes.sock" <<'END' >"$work/closes.out" &
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(8)
s.settimeout(60)
print("listens", flush=True)
s.accept()[0].close()
print(s.accept()[0].makefile().readline(), flush=True)
END
closes=$!
for _ in $(seq 1200); do
	grep -q listens "$work/closes.out" && break
	sleep 0.05
done
for _ in $(seq 1200); do
	grep -q role "$work/closes.out" && break
	sleep 0.05
done | run joins env "$(preload swap)" "MEDUSA_SWAP_CONTROL=$work/closes.sock" "${subject[@]}" 0
wait $closes
assert_contains "$work/closes.out" '"role": "engine"'

section 'an engine that may open no file any more'
begin limited -- 0
done_swap out out
prlimit --pid "$(engine_pid)" --nofile=0:
run_limit=120 swap refused in
assert_exit refused 1 # hostcuda opens a file for memory
assert_contains "$work/refused.err" 'device 0 has no room'
prlimit --pid "$(engine_pid)" --nofile=1000:
done_swap in in
asked work 3
assert_equal 'work after that' "${live[1]}" "$answered"
end_engine

section 'a file where the socket would be'
echo precious >"$place/file.sock"
run file medusa-swap run --name file -- true
assert_exit file 4
assert_contains "$work/file.err" "$place/file.sock is there already, and is no socket: remove it, or choose another --name"
assert_equal 'what it holds' precious "$(cat "$place/file.sock")"
rm "$place/file.sock"

section 'usage'
for wrong in '' 'out' 'out a b' 'jump a' 'run x -- true' 'run' 'out a -- true' 'run --pool-bytes x -- true' 'out a --deadline x' 'list a' \
	'status a --deadline 3' 'in a --freeze' 'in a --full' 'in a --deadline 3' 'out a --verify' 'out a --gpu 0' 'out a --name b' 'release a --overlap' 'list --verify' \
	'out a --device host' 'run --json -- true' 'run --deadline 3 -- true' 'in 1 --full' 'in 1 --deadline 3' 'in 1 --freeze' 'status 1 --gpu 0:1' 'release 1'; do
	# shellcheck disable=SC2086
	run usage medusa-swap $wrong
	assert_exit usage 2
done
run usage medusa-swap status a --deadline 3
assert_contains "$work/usage.err" 'status: --deadline has no meaning there: leave it out'
run usage medusa-swap in 1 --verify
assert_contains "$work/usage.err" 'in of a process that medusa-swap run has not started: --verify has no meaning there: leave it out'

section 'refusals as JSON'
valid() { # file, what Python says of the object
	python3 -c 'import json, sys; said = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), said' "$1" "$2"
	assert_equal "JSON in ${1##*/}" 0 $?
}
for asked in 'out none' 'in none' 'status none' 'release none' 'status 4194305'; do
	# shellcheck disable=SC2086
	run refused medusa-swap $asked --json
	assert_exit refused 3
	valid "$work/refused.out" 'said["ok"] is False and said["status"] == "not found" and "no " in said["message"] and len(said) == 3'
	assert_contains "$work/refused.err" 'medusa-swap: '
done
begin said --pool-bytes 4M -- 0
run refused medusa-swap out said --json
assert_exit refused 6
valid "$work/refused.out" 'said["ok"] is False and said["status"] == "out of memory" and "the pool is too small" in said["message"]'
run right medusa-swap status said --json
valid "$work/right.out" 'said["ok"] is True and said["status"] == "ok"'
end_engine

section 'usage, once more'
run code medusa-swap run --name code -- sh -c 'exit 6'
assert_exit code 6
run missing medusa-swap run --name code --artifact "$work/none.medusa" -- true
assert_exit missing 3

section 'what the engine does not need is not saved, until it is needed or allocated anew'
expected 'alloc 33' sum
begin drops --pool-bytes 48M -- 0
asked alloc 33
asked sum
kept=${live[2]}
assert_equal 'all that is there' "$kept" "$answered"
asked drop
assert_equal 'it may be dropped' 'said 0' "$answered"
done_swap dropped out
assert_equal 'bytes that are dropped: all blocks, the last of which the allocation has half' $((34 << 20)) "$(number dropped discarded)"
assert_at_most 'bytes that are copied' 16000000 "$(number dropped copied)"
assert_at_most 'bytes of zeros that are needed' 12000000 "$(number dropped zero)"
done_swap empty in --verify
asked sum
assert_equal 'it comes back as zeros' 'sum 0' "$answered"
asked need
assert_equal 'it is needed again' 'said 0' "$answered"
done_swap needed out
assert_equal 'bytes that are dropped' 0 "$(number needed discarded)"
done_swap full in
asked sum
assert_equal 'it comes back' "$kept" "$answered"
asked drop
asked renew
done_swap renewed out
assert_equal 'bytes of new memory that are dropped' 0 "$(number renewed discarded)"
done_swap new in
asked sum
assert_equal 'new memory comes back' "$kept" "$answered"
end_engine
finish
