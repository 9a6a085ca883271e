# SPDX-License-Identifier: Apache-2.0
# Sourced after lib.sh by tests of medusa-swap: engines (tests/subjects/swap_subject.c) that are told what to do.
subject=("$MEDUSA_BUILD/tests/subjects/swap_subject" "$MEDUSA_BUILD/tests/images/arith.host.so")
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
place=$XDG_RUNTIME_DIR/medusa/swap

# ---- an engine that is told what to do -------------------------------------------------------------------------------
begin() { # name, "" or more options of run..., --, threads
	engine_name=$1
	shift
	local options=()
	while [ "$1" != -- ]; do options+=("$1") && shift; done
	converse engine timeout --kill-after=5 "$engine_limit" medusa-swap run --name "$engine_name" --pool-bytes 256M "${options[@]}" -- \
		"${subject[@]}" "$2" 2>"$work/$engine_name.err"
	answer
	assert_equal "the engine's first word" ready "$answered"
	until_engine
}

say() { printf '%s\n' "$*" >&"$engine_in"; }
answer() { answered=; read -r -t "$patience" answered <&"$engine_out"; }
asked() { say "$*" && answer; }

until_engine() { # the process has told medusa-swap run of itself
	for _ in $(seq 1200); do
		[ "$(state engines)" = 1 ] && [ "$(state swappable)" -gt 8000000 ] && return
		sleep 0.05
	done
	fail "an engine in $engine_name" "$(medusa-swap status "$engine_name" 2>&1)"
}

state() { # key, a number or a text
	[[ $'\n'$(medusa-swap status --json "$engine_name" 2>/dev/null) =~ $'\n  "'$1'": "'?([^\",$'\n']*) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
}

swap() { # name of the run, verb, options...
	local name=$1 verb=$2
	shift 2
	run "$name" medusa-swap "$verb" --json "$engine_name" "$@"
	cp "$work/$name.out" "$work/$name.json"
}

done_swap() { swap "$@" && assert_exit "$1" 0; }

end_engine() { # expected exit code
	[ -z "$engine_in" ] || exec {engine_in}>&-
	engine_in=
	ended "${1:-0}"
}

# A process that is to end: one that waits for memory which nobody brings back is killed, and so are its engines.
await_end() { # process id of a child, the engine's name
	local pid
	for _ in $(seq 1200); do
		lives "$1" || return
		sleep 0.05
	done
	fail "$2 to end" "it runs on after a minute; $(medusa-swap status "$2" 2>&1)"
	for pid in $(pgrep -P "$1"); do # medusa-swap run, and its processes
		pkill -KILL -P "$pid"
		kill -KILL "$pid"
	done
}

ended() { # expected exit code
	local got=0
	await_end "$engine_shell" "$engine_name"
	wait "$engine_shell" 2>/dev/null || got=$?
	assert_equal "the exit code of $engine_name" "$1" "$got"
	assert_no_file "$place/$engine_name.sock"
}

end_orphan() { # process id: the engine goes on without medusa-swap run, until nobody tells it anything any more
	exec {engine_in}>&-
	engine_in=
	for _ in $(seq 1200); do
		lives "$1" || break
		sleep 0.05
	done
	lives "$1" && fail 'the engine to end' 'it runs on'
	wait "$engine_shell" 2>/dev/null
}

engine_pid() { state engine_pid; }

until_said() { # file, text
	for _ in $(seq 1200); do
		grep -q "$2" "$1" 2>/dev/null && return
		sleep 0.05
	done
	fail "$2 in $1" "$(cat "$1")"
}

shared_words() { # first, how many: 64-bit words of HOSTCUDA_SHARED, sixteen a line
	od -An -v -w128 -tu8 -j $(($1 * 8)) -N $(($2 * 8)) "$HOSTCUDA_SHARED"
}

on_device_at() { # device: bytes that all processes have now there
	shared_words 0 2048 | awk -v column=$(($1 + 1)) '{ sum += $column } END { printf "%.0f\n", sum }'
}

on_device() { # bytes that all processes of HOSTCUDA_SHARED have now on device 0
	on_device_at 0
}

# The most that all had there together since the last call, and what they have is the most from then on.
most_on_device() {
	python3 -c "
import struct
with open('$HOSTCUDA_SHARED', 'r+b') as file:
    file.seek(128 * 16 * 8)
    print(struct.unpack('<Q', file.read(8))[0])
    file.seek(128 * 16 * 8)
    file.write(bytes(8))"
}

# What the same lines give without medusa-swap.
expected() { printf '%s\n' "$@" | run live "${subject[@]}" 0; mapfile -t live <"$work/live.out"; }

# ---- an engine whose memory comes in over links of other devices ------------------------------------------------------
megabytes=30

begin_large() { # as begin; with enough memory to share out
	begin "$@"
	asked "alloc $megabytes"
	asked sum
	wanted=$answered
}

close_engine() {
	exec {engine_in}>&-
	engine_in=
	answer
	assert_equal 'what the threads found' 'wrong 0' "$answered"
	end_engine
}

carrier() { # its process id; of this test's engine alone
	local pid
	for pid in $(pgrep -f 'medusa-swap carrier-of-run'); do
		tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" && echo "$pid"
	done
}

until_carrier() { # it has this many neighbours, and nothing more to lock
	local locked=
	for _ in $(seq 1200); do
		[ "$(state neighbours)" = "$1" ] && { [ "$1" = 0 ] || [ "$(state neighbours_locked)" -gt 0 ]; } && return
		sleep 0.05
	done
	fail "$1 neighbours" "$(medusa-swap status --json "$engine_name" 2>&1 | grep neighbour)"
}

went() { # bus (0: to a device, 1: to the host, 2: between devices), device: bytes, as hostcuda has counted them
	shared_words $((128 * 16 + 16 + $1 * 16 + $2)) 1 | tr -d ' '
}

# Out and in until neighbours have carried something: on a machine with much to do the carrier may come too late.
come_in_helped() { # the engine's device, options of in...
	local device=$1
	shift
	for _ in $(seq 24); do
		[ "$(state state)" = out ] || done_swap out out
		before=($(went 0 0) $(went 0 1) $(went 0 2) $(went 2 "$device"))
		done_swap in in --gpu-neighbours "$@"
		assert_sum
		after=($(went 0 0) $(went 0 1) $(went 0 2) $(went 2 "$device"))
		carried=$(number in copied_by_neighbours)
		assert_equal 'what devices gave to it' "$carried" $((after[3] - before[3]))
		[ "$carried" -gt 0 ] && return
	done
	fail 'neighbours to carry something' "$(grep neighbour "$work/in.json")"
}

assert_sum() { asked sum; assert_equal 'what the memory holds' "$wanted" "$answered"; }
