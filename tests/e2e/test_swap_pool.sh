#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One pool for several engines (medusa-swap run --pool-fd): equal blocks are held once, whoever is out, and an engine that
# is killed, released or refused changes nothing for the others.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh

declare -A shell ins
make_pool() { # bytes: descriptor 9 of this shell
	"$MEDUSA_BUILD/tests/subjects/pool_subject" "$1" sleep 600 &
	holder=$!
	for _ in $(seq 1200); do
		case $(readlink "/proc/$holder/fd/9") in *memfd:medusa-swap-pool*) exec 9<>"/proc/$holder/fd/9" && return ;; esac
		sleep 0.05
	done
	fail 'a pool' 'none'
}

end_pool() {
	exec 9>&-
	kill "$holder"
	wait "$holder" 2>/dev/null
}

share() { # name: an engine with descriptor 9
	local fd
	engine_name=$1
	rm -f "$work/$1.in" "$work/$1.said"
	mkfifo "$work/$1.in"
	timeout --kill-after=5 "$engine_limit" medusa-swap run --name "$1" --pool-fd 9 -- "${subject[@]}" 0 <"$work/$1.in" >"$work/$1.said" 2>"$work/$1.err" &
	shell[$1]=$!
	exec {fd}>"$work/$1.in"
	ins[$1]=$fd
	until_said "$1" 1
	until_engine
}

until_said() { # name, lines
	for _ in $(seq 6000); do
		[ "$(wc -l <"$work/$1.said")" -ge "$2" ] && return
		sleep 0.02
	done
	fail "line $2 of $1" "$(cat "$work/$1.said")"
}

tell() { # name, words...
	local name=$1 before
	shift
	engine_name=$name
	before=$(wc -l <"$work/$name.said")
	printf '%s\n' "$*" >&"${ins[$name]}"
	until_said "$name" $((before + 1))
	answered=$(tail -n 1 "$work/$name.said")
}

of() { # name, key
	engine_name=$1
	state "$2"
}

moved() { # run, name, verb, options...
	local run=$1
	engine_name=$2
	shift 2
	done_swap "$run" "$@"
}

end() { # name, expected code
	local got=0
	printf 'exit 0\n' >&"${ins[$1]}" 2>/dev/null
	await_end "${shell[$1]}" "$1"
	wait "${shell[$1]}" 2>/dev/null || got=$?
	assert_equal "the exit code of $1" "${2:-0}" "$got"
	exec {ins[$1]}>&-
}

kill_whole() { # name: the engine and its medusa-swap run at once
	local engine=$1 pids pid
	pids="$(of "$engine" engine_pid) $(of "$engine" pid)"
	# shellcheck disable=SC2086 # two words
	kill -KILL $pids
	wait "${shell[$engine]}" 2>/dev/null
	for pid in $pids; do # a process that dies still has what it held
		for _ in $(seq 1200); do lives "$pid" || break; sleep 0.05; done
	done
	exec {ins[$engine]}>&-
}

section 'two engines with equal weights: what both hold is there once, and each computes what it computes alone'
expected 'work 3' 'work 2' 'work 1'
make_pool $((256 << 20))
share one
share two
moved one_out one out
alone=$(of one pool_held)
assert_at_least 'bytes that one holds' 8000000 "$alone"
moved two_out two out
assert_at_most 'bytes that two adds, and its copies' $((4 << 20)) "$(($(of two pool_held) - alone))"
assert_at_most 'bytes that are copied for two' $((4 << 20)) "$(number two_out copied)"
assert_at_least 'bytes that were there already' 8000000 "$(number two_out hashed_equal)"
assert_equal 'both see one pool' "$(of one pool_held) 268435456 true" "$(of two pool_held) $(of two pool_bytes) $(of two pool_shared | tr -d ' ')"
moved in1 two in --verify
tell two work 3
assert_equal 'two works while one is out' "${live[1]}" "$answered"
moved in2 one in --verify
tell one work 3
assert_equal 'one after it' "${live[1]}" "$answered"
for order in 'one two two one' 'two one two one'; do
	# shellcheck disable=SC2086 # words
	set -- $order
	moved a "$1" out
	moved b "$2" out
	moved c "$3" in --verify
	moved d "$4" in --verify
done
for name in one two; do
	tell $name work 2
	assert_equal "$name after many swaps" "${live[2]}" "$answered"
done

section 'release of one leaves the other its memory'
moved out one out
moved released two release
tell two work 1
assert_equal 'two goes on' "${live[3]}" "$answered"
moved back one in --verify
tell one work 1
assert_equal 'one is whole' "${live[3]}" "$answered"
end two
moved out one out
moved back one in --verify

section 'killed in the middle of out, whole: the other goes on, and nothing stays held'
for round in $(seq 12); do
	share victim
	tell victim alloc 40
	engine_name=victim
	medusa-swap out victim >/dev/null 2>&1 &
	command=$!
	sleep "0.0$((round * 7 % 60 + 10))"
	kill_whole victim
	wait $command
	moved out one out
	moved back one in --verify
	tell one work 0
done
share late
for _ in $(seq 1200); do
	[ "$(of one pool_held)" = 0 ] && break
	sleep 0.05
done
assert_equal 'bytes that are held after all deaths' 0 "$(of one pool_held)"
end late
end one
end_pool

section 'a pool that is too small for both: the second is refused and unharmed, until the first one is dead'
room=$((alone + (2 << 20)))
make_pool $room
share big
moved out big out
share other
tell other work 3
before=$answered
engine_name=other
swap full out
assert_exit full 6
assert_contains "$work/full.err" "the pool is too small: it has $room bytes, and "
assert_contains "$work/full.err" 'or the size of the pool that engines share'
assert_equal 'the other is in' in "$(of other state)"
tell other work 0
assert_equal 'what it computes' "${before#work 3 }" "${answered#work 0 }"
kill_whole big
moved now other out
moved back other in --verify
tell other work 0
assert_equal 'what it computes after that' "${before#work 3 }" "${answered#work 0 }"
end other

section 'the engine does not inherit the descriptor'
run inherits medusa-swap run --name lists --pool-fd 9 -- ls -l /proc/self/fd
assert_exit inherits 0
assert_lacks "$work/inherits.out" medusa-swap-pool

section 'what is no pool'
python3 - "/proc/$holder/fd/9" "$work" <<'END'
import os, sys
head = open(sys.argv[1], "rb").read(1 << 20)
size = os.stat(sys.argv[1]).st_size
def write(name, change=lambda head: head, length=size):
    with open(f"{sys.argv[2]}/{name}", "wb") as out:
        out.write(change(head))
        out.truncate(length)
write("unsealed")
write("cut", length=size - 4096)
write("version", lambda head: head[:8] + b"\x07" + head[9:])
write("many", lambda head: head[:12] + b"\xff\xff\xff\xff" + head[16:])
write("magic", lambda head: b"\x01" + head[1:])
write("short", lambda head: head[:20], 20)
END
refused() { # file, code, message
	run refused bash -c "exec medusa-swap run --name none --pool-fd 8 -- touch '$work/ran' 8<>'$1'"
	assert_exit refused "$2"
	assert_contains "$work/refused.err" "--pool-fd 8: $3"
	assert_no_file "$work/ran"
	rm -f "$work/ran"
}
refused "$work/unsealed" 3 "the pool's file is not sealed against being made smaller"
refused "$work/cut" 3 "the pool's header says $((room >> 21)) blocks, but its file has"
refused "$work/version" 3 'the pool has version 7, this Medusa knows version 4'
refused "$work/many" 3 "the pool's header says 4294967295 blocks"
refused "$work/magic" 3 'the file is not a pool of medusa-swap'
refused "$work/short" 3 'the file is not a pool of medusa-swap'
refused /dev/null 3 'the file is not a pool of medusa-swap'
run closed medusa-swap run --name none --pool-fd 77 -- true
assert_exit closed 3
assert_contains "$work/closed.err" '--pool-fd 77: no such descriptor is open'
for wrong in x -1 '' 9x 99999999999; do
	run usage medusa-swap run --pool-fd "$wrong" -- true
	assert_exit usage 2
done
run usage medusa-swap run --pool-fd 9 --pool-bytes 1G -- true
assert_exit usage 2
assert_contains "$work/usage.err" '--pool-bytes and --pool-fd: choose one'
end_pool
finish
