#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-swap in --overlap: an engine computes while its memory is on its way, over a slow link and with pages that cannot be touched
# before they are filled; each call waits for what it may touch, and no output differs.
. tests/e2e/lib.sh
subject=("$MEDUSA_BUILD/tests/subjects/overlap_subject" "$MEDUSA_BUILD/tests/images/tables_kernels.host.so")
export XDG_RUNTIME_DIR=$work/run HOSTCUDA_REMAPPED=fault
mkdir -m 700 "$XDG_RUNTIME_DIR"
link=(env "HOSTCUDA_H2D_GBPS=${LINK:-0.15}") # bytes a nanosecond; all of the memory takes about 0.6 s

begin() { # name, threads, more variables...
	engine_name=$1
	converse engine timeout --kill-after=5 "$engine_limit" medusa-swap run --name "$1" --pool-bytes 256M -- "${link[@]}" "${@:3}" \
		"${subject[@]}" "$2" 2>"$work/$1.err"
	answer
	assert_equal "the engine's first word" ready "$answered"
	for _ in $(seq 1200); do
		[ "$(state engines)" = 1 ] && [ "$(state swappable)" -gt 80000000 ] && return
		sleep 0.05
	done
	fail "an engine in $engine_name" "$(medusa-swap status "$engine_name" 2>&1)"
}

say() { printf '%s\n' "$*" >&"$engine_in"; }
answer() { answered=; read -r -t "$patience" answered <&"$engine_out"; }
state() { medusa-swap status --json "$engine_name" 2>/dev/null | sed -n "s/^  \"$1\": \"\{0,1\}\([^\",]*\).*/\1/p"; }

end_engine() { # expected exit code
	local got=0
	[ -z "$engine_in" ] || exec {engine_in}>&-
	engine_in=
	answer
	wait "$engine_shell" 2>/dev/null || got=$?
	assert_equal "the exit code of $engine_name" "${1:-0}" "$got"
}

swap() { # name of the run, verb, options...
	run "$1" medusa-swap "$2" --json "$engine_name" "${@:3}"
	cp "$work/$1.out" "$work/$1.json"
}
done_swap() { swap "$@" && assert_exit "$1" 0; }

until_looked() { # what is out has been looked through for addresses: nothing in the engine runs, and nothing has for a while
	local pid before='' now still=0
	pid=$(state engine_pid)
	for _ in $(seq 1200); do
		now=$(sed 's/.*) //' "/proc/$pid/task/"*/stat | awk '$1 == "R" { runs = 1 } { ticks += $12 + $13 } END { print ticks "," (runs ? "runs" : "still") }')
		[[ $now == "$before" && $now == *still ]] && still=$((still + 1)) || still=0
		[ $still -lt 4 ] || return
		before=$now
		sleep 0.1
	done
	fail 'the engine to be still' "$before"
}

until_there() {
	for _ in $(seq 1200); do
		[ "$(state coming)" = 0 ] && return
		sleep 0.05
	done
	fail 'all bytes to come' "$(state coming) are missing"
}

# Words of the engine and what they give without medusa-swap.
expect() { printf '%s\n' "$@" | run live "${subject[@]}" 0; mapfile -t live <"$work/live.out"; }

# One word is said while the memory is out, so it is the first thing that happens when the gate opens.
out_and_in() { # word, what it gives
	done_swap out out
	until_looked
	say "$1"
	done_swap in in --overlap
	answer
	assert_equal "what $1 gives" "$2" "$answered"
}

counts() { echo "$(state launches_free) $(state launches_some) $(state launches_all)"; }

words=(small layers graph lists moved given made edge protect alias again join variable padding pinned read write renew layers graph sum)

section 'each way by which a call finds memory, as the first one after in'
expect "${words[@]}"
begin ways 0
for i in "${!words[@]}"; do
	out_and_in "${words[$i]}" "${live[$((i + 1))]}"
	assert_at_least "bytes that were to come when the gate opened, ${words[$i]}" 80000000 "$(number in coming_at_open)"
	case ${words[$i]} in
	small) until_there ;;
	layers)
		until_there
		assert_equal 'launches that waited for everything' 0 "$(state launches_all)"
		assert_equal 'why they did' '' "$(state launches_all_because)"
		assert_at_least 'launches that waited for some of it' 10 "$(state launches_some)"
		assert_at_most 'bytes that were there when the first one was made' 60000000 "$(state there_at_first_launch)"
		;;
	graph | lists | moved | given | edge | padding)
		until_there
		assert_equal "launches of ${words[$i]} that waited for everything" 0 "$(state launches_all)"
		;;
	pinned)
		until_there
		assert_at_least 'launches with a table that nobody has looked through, which waited for everything' 1 "$(state launches_all)"
		assert_equal 'why they did' 'it is given an address of memory that stayed and was not searched' "$(state launches_all_because)"
		;;
	esac
done
end_engine

section 'a kernel that needs little of it does not wait for the rest'
expect small
begin little 0 HOSTCUDA_H2D_GBPS=0.01
out_and_in small "${live[1]}"
assert_at_least 'bytes that are still to come after a small kernel' 40000000 "$(state coming)"
kill -KILL "$(state engine_pid)"
end_engine 137

section 'rounds, with threads that launch all the time; out comes while bytes are still on their way'
expect layers lists graph layers moved graph sum
begin threads 3
for round in 1 2 3; do
	for word in layers lists graph; do
		done_swap out out
		[ "$round" = 1 ] || until_looked
		done_swap in in --overlap
		[ "$round" != 2 ] || say "$word"
		[ "$round" != 2 ] || answer
	done
done
done_swap out out
done_swap in in --verify
exec {engine_in}>&-
engine_in=
answer
assert_equal 'what the threads found' 'wrong 0' "$answered"
end_engine

section 'a copy that fails in the background is tried again'
expect layers
begin again 0 HOSTCUDA_FAULT=cuMemcpyHtoDAsync_v2:6:UNKNOWN
done_swap out out
done_swap in in --overlap
until_there
assert_contains "$work/again.err" 'memory that is on its way in does not come'
say layers
answer
assert_equal 'what the engine computes then' "${live[1]}" "$answered"
end_engine

section 'whoever ends while bytes are on their way'
begin ending 2
done_swap out out
done_swap in in --overlap
say exit
end_engine 6
begin dying 2
pid=$(state engine_pid)
done_swap out out
done_swap in in --overlap
kill -KILL "$pid"
end_engine 137
begin orphan 0
done_swap out out
done_swap in in --overlap
kill -KILL "$(state pid)"
say layers
answer
assert_equal 'what an engine without medusa-swap run computes' "${live[1]}" "$answered"
exec {engine_in}>&-
engine_in=
wait "$engine_shell" 2>/dev/null

section 'where it stops: an address that no word holds; the device of this test notices, another would not'
begin far 0
done_swap out out
until_looked
say far
done_swap in in --overlap
end_engine 1
assert_contains "$work/far.err" 'ILLEGAL_ADDRESS'

section 'refusals'
begin refusals 0
done_swap out out
run both medusa-swap in refusals --overlap --verify
assert_exit both 2
done_swap in in --overlap
swap early out --deadline 0.01
assert_exit early 1
assert_contains "$work/early.err" 'are still on their way in'
until_there
done_swap out out
done_swap in in
assert_equal 'bytes to come' 0 "$(state coming)"
end_engine

finish
