#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The functions of medusa/swap.h in whole processes: an engine that takes its own memory away, workers that do so one by one, and
# programs that ask by an engine's name; what they are told is what medusa-swap says.
. "$(dirname "$0")/lib.sh"
. tests/e2e/swap_lib.sh
client=$MEDUSA_BUILD/tests/subjects/swap_asker
word() { cut -d ' ' -f "$1" <<<"$answered"; } # of the last answer

section 'an engine goes to sleep by itself, and wakes'
expected 'work 3' 'work 2' 'work 1'
begin self -- 3
asked work 3
assert_equal 'work before' "${live[1]}" "$answered"
asked look
before=$(word 2)
asked sleep 5000
assert_equal 'what medusa_swap_out returns' 'sleep 0' "$(cut -d ' ' -f 1,2 <<<"$answered")"
bytes=$(word 3)
assert_at_least 'bytes that went' 10000000 "$bytes"
assert_equal 'what medusa-swap says' "out $bytes" "$(state state) $(state out)"
asked look
assert_equal 'a call that does not wait' look "$(word 1)"
assert_at_least 'bytes that are free now' $((before + bytes)) "$(word 2)"
asked status
assert_equal 'the status of itself' 'status 0 self 1 of 1' "$answered"
asked sleep 5000
assert_contains <(echo "$answered") "sleep 0 0 this process: the engine's memory is out already"
asked wake
assert_equal 'what medusa_swap_in returns' "wake 0 $bytes" "$answered"
assert_equal 'what medusa-swap says' "in 0" "$(state state) $(state out)"
asked work 2
assert_equal 'work after' "${live[2]}" "$answered"
asked wake
assert_contains <(echo "$answered") "the engine's memory is in already"
for round in $(seq "${SWAP_ROUNDS:-30}"); do
	asked sleep 5000
	asked wake
	[ "$(word 3)" = "$bytes" ] || fail "$bytes bytes in round $round" "$answered"
done
asked work 1
assert_equal 'work after many rounds' "${live[3]}" "$answered"

section 'while it sleeps, a command wakes it; while it is out by a command, it wakes itself'
asked sleep 5000
done_swap by_command in
asked wake
assert_equal 'nothing to do' 'wake 0 0' "$(cut -d ' ' -f 1-3 <<<"$answered")"
done_swap by_other out
asked wake
assert_equal 'it comes back' "wake 0 $bytes" "$(cut -d ' ' -f 1-3 <<<"$answered")"
done_swap again out
say look
sleep 0.3
done_swap back in
answer
assert_equal 'what is free is asked for after a command: the call waits until the memory is back' "look $before" "$answered"
exec {engine_in}>&-
engine_in=
answer
assert_equal 'what the threads found' 'wrong 0' "$answered"
end_engine

section 'it is refused: nothing has changed'
begin tight --pool-bytes 4M -- 0
asked sleep 5000
assert_contains <(echo "$answered") 'sleep 2 0 '
assert_contains <(echo "$answered") 'the pool is too small'
asked work 3
assert_equal 'work after it' "${live[1]}" "$answered"
end_engine
begin slow -- 0
asked wait
asked sleep 300
assert_contains <(echo "$answered") 'sleep 6 0 '
say flag
asked work 3
assert_equal 'work after it' "${live[1]}" "$answered"
end_engine

section 'medusa-swap run is killed while the engine sleeps: the memory comes back by itself'
begin orphan -- 0
pid=$(engine_pid)
asked work 3
asked sleep 5000
kill -KILL "$(state pid)"
asked wake
assert_equal 'its medusa-swap run is not found' 'wake 4 0' "$(cut -d ' ' -f 1-3 <<<"$answered")"
asked work 2
assert_equal 'work of an engine without it' "${live[2]}" "$answered"
end_orphan "$pid"

section 'a process that is no engine'
printf 'sleep 100\nwake\nstatus\nwork 3\n' | run alone "${subject[@]}" 0
assert_count "$work/alone.out" ' 4 0 this process was not started by medusa-swap run' 2
assert_contains "$work/alone.out" 'status 4'
assert_contains "$work/alone.out" "${live[1]}"

section 'two workers of one engine: each takes its own memory away'
mkfifo "$work/a" "$work/b"
# shellcheck disable=SC2016 # the inner shell expands it
timeout --kill-after=5 "$engine_limit" medusa-swap run --name pair --pool-bytes 256M -- bash -c \
	'"$@" 1 <"$0/a" >"$0/a.out" & "$@" 1 <"$0/b" >"$0/b.out"; wait' "$work" "${subject[@]}" 2>"$work/pair.err" &
pair=$!
exec {a}>"$work/a" {b}>"$work/b"
engine_name=pair
for _ in $(seq 1200); do
	[ "$(state engines)" = 2 ] && [ "$(state swappable)" -gt 16000000 ] && break
	sleep 0.05
done
echo 'sleep 5000' >&"$a"
until_said "$work/a.out" 'sleep 0 '
assert_equal 'one of two is out' 'partly out' "$(state state)"
assert_equal 'processes that are out' 1 "$(state engines_out)"
echo 'work 3' >&"$b"
until_said "$work/b.out" "${live[1]}"
echo 'sleep 5000' >&"$b"
until_said "$work/b.out" 'sleep 0 '
assert_equal 'both are out' out "$(state state)"
echo 'wake' >&"$b"
echo 'work 2' >&"$b"
until_said "$work/b.out" "${live[2]}"
assert_equal 'the other one sleeps on' 'partly out' "$(state state)"
done_swap rest in
echo 'work 3' >&"$a"
until_said "$work/a.out" "${live[1]}"
exec {a}>&- {b}>&-
wait $pair
assert_equal 'what the threads of both found' 2 "$(grep -c '^wrong 0$' <(cat "$work/a.out" "$work/b.out"))"

section 'a program asks by name'
begin named -- 0
run client_out "$client" out named
assert_exit client_out 0
assert_contains "$work/client_out.out" 'out bytes 1'
assert_equal state out "$(state state)"
run client_status "$client" status named
assert_contains "$work/client_status.out" "named processes 1 out 1 bytes $(state out) of $(state swappable) stays $(state stays) held $(state pool_held)"
run client_list "$client" list
assert_count "$work/client_list.out" 'named processes 1 out 1 ' 1
run client_again "$client" out named
assert_exit client_again 0
assert_contains "$work/client_again.out" "ok: named: the engine's memory is out already"
run client_in "$client" in named
assert_exit client_in 0
assert_contains "$work/client_in.out" 'in bytes 1'
asked wait
run client_late "$client" out named
assert_exit client_late 6
assert_contains "$work/client_late.out" 'timeout: named: '
say flag
run client_release "$client" release named
assert_exit client_release 0
run client_after "$client" out named
assert_exit client_after 1
assert_contains "$work/client_after.out" 'named: the engine was released'
end_engine
run client_none "$client" out named
assert_exit client_none 4
assert_contains "$work/client_none.out" 'not found: no engine called named runs'
run client_name "$client" out a/b
assert_exit client_name 1
run client_empty "$client" list
assert_equal 'no engine' 'ok: ' "$(cat "$work/client_empty.out")"
section 'root asks an engine of another user'
theirs=(setpriv --reuid 65534 --regid 65534 --clear-groups)
if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null || ! "${theirs[@]}" test -x "$bin/medusa-swap"; then
	echo "skipped: an engine of another user (needs root, setpriv, and a build folder that others can read)"
else
	folder=$(mktemp -d /tmp/medusa-e2e-theirs.XXXXXX)
	chown 65534:65534 "$folder"
	"${theirs[@]}" env XDG_RUNTIME_DIR="$folder" medusa-swap run --name theirs --pool-bytes 4M -- sleep 60 2>"$work/theirs.err" &
	shell=$!
	for _ in $(seq 1200); do
		[ -S "$folder/medusa/swap/theirs.sock" ] && break
		sleep 0.05
	done
	run asked env XDG_RUNTIME_DIR="$folder" medusa-swap status --json theirs
	assert_exit asked 0
	assert_contains "$work/asked.out" '"state": "no GPU in use"'
	run listed env XDG_RUNTIME_DIR="$folder" medusa-swap list
	assert_count "$work/listed.out" 'theirs: ' 1
	run begun env XDG_RUNTIME_DIR="$folder" medusa-swap run --name ours --pool-bytes 4M -- true
	assert_exit begun 3
	assert_contains "$work/begun.err" 'not a folder that only user 0 can write to'
	chmod 777 "$folder/medusa"
	run open env XDG_RUNTIME_DIR="$folder" medusa-swap status theirs
	assert_exit open 3
	assert_contains "$work/open.err" "$folder/medusa: not a folder that only user 65534 can write to"
	chmod 700 "$folder/medusa"
	chown 12 "$folder/medusa/swap"
	run other env XDG_RUNTIME_DIR="$folder" medusa-swap status theirs
	assert_exit other 3
	kill "$shell"
	wait "$shell" 2>/dev/null
	rm -rf "$folder"
fi
finish
