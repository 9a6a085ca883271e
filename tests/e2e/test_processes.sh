#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workers: forked before CUDA was touched, or spawned, they are captured and restored; two at once do each other no harm.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/outputs_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")
graphs=3

assert_all() { # run, word: how every graph was come by
	assert_count "$work/$1.err" "graph 1 $2" 1
	assert_count "$work/$1.err" "graph 2 $2" 1
	assert_count "$work/$1.err" "graph 3 $2" 1
}

section "the engine in one process"
run alone "${subject[@]}"
assert_exit alone 0
assert_file "$work/alone.out"

for worker in fork spawn; do
	section "captured in a worker: $worker"
	SUBJECT_WORKER=$worker run "captured_$worker" medusa-capture -o "$work/$worker.medusa" -- "${subject[@]}"
	assert_exit "captured_$worker" 0
	assert_contains "$work/captured_$worker.err" "verification: 3 passed, 0 failed, 0 not compared"
	assert_lacks "$work/captured_$worker.err" "nothing is recorded"
	section "restored in a worker: $worker"
	SUBJECT_WORKER=$worker run "restored_$worker" medusa-restore "$work/$worker.medusa" -- "${subject[@]}"
	assert_exit "restored_$worker" 0
	assert_same_file "$work/alone.out" "$work/restored_$worker.out"
	assert_all "restored_$worker" restored
	assert_contains "$work/restored_$worker.err" "mode 2"
	SUBJECT_WORKER=$worker run "verified_$worker" medusa-verify "$work/$worker.medusa" -- "${subject[@]}"
	assert_exit "verified_$worker" 0
done

# As vLLM's server and its engine core: the command never ends by itself, and the engine is a process that it has started.
cat >"$work/server.sh" <<'END'
[ -z "${STUBBORN:-}" ] || trap '' TERM
"$@" &
echo $$ $! >>"$SERVED"
while :; do sleep 0.1; done
END
export SERVED=$work/served
none_left() { # how many servers ran
	assert_count "$SERVED" " " "$1"
	for pid in $(cat "$SERVED"); do
		! lives "$pid" || fail "process $pid is left" "$(ps -o pid,ppid,stat,args -p "$pid")"
	done
	rm -f "$SERVED"
}
# Of such an engine no input varies: it is ended when it has made its graphs, before it launches any.
section "a server is ended when all is recorded"
run stopped medusa-capture -o "$work/stopped.medusa" --until graphs=$graphs --stop --accept-unvaried -- bash "$work/server.sh" "${subject[@]}"
assert_exit stopped 0
assert_contains "$work/stopped.err" "verification: 3 passed, 0 failed, 0 not compared"
none_left 3
run stopped_verify medusa-verify "$work/stopped.medusa" --until graphs=$graphs --stop --accept-unvaried -- bash "$work/server.sh" "${subject[@]}"
assert_exit stopped_verify 0
none_left 1
run restored_stopped medusa-restore "$work/stopped.medusa" -- "${subject[@]}"
assert_same_file "$work/alone.out" "$work/restored_stopped.out"
assert_all restored_stopped restored

section "one that does not want to end"
STUBBORN=1 run stubborn medusa-capture -o "$work/stubborn.medusa" --single --no-verify --until graphs=$graphs --stop -- \
	bash "$work/server.sh" "${subject[@]}"
assert_exit stubborn 0
assert_contains "$work/stubborn.err" "the command ended with 137 after recording was complete"
none_left 1

section "one that ends by itself"
run ends medusa-capture -o "$work/ends.medusa" --until graphs=$graphs --stop --accept-unvaried -- "${subject[@]}"
assert_exit ends 0
assert_contains "$work/ends.err" "verification: 3 passed, 0 failed, 0 not compared"
for wrong in "medusa-capture -o $work/wrong.medusa --stop" "medusa-capture -o $work/wrong.medusa --until exit --stop" \
	"medusa-verify $work/stopped.medusa --stop"; do
	run wrong $wrong -- true
	assert_exit wrong 2
	assert_contains "$work/wrong.err" "--stop: --until mark=NAME or graphs=N says when the command may be ended"
done

section "two workers restore at the same time"
SUBJECT_WORKER=twins run twins medusa-restore "$work/fork.medusa" -- "${subject[@]}"
assert_exit twins 0
cat "$work/alone.out" "$work/alone.out" | sort >"$work/twice.out"
sort -o "$work/twins.out" "$work/twins.out"
assert_same_file "$work/twice.out" "$work/twins.out"
assert_count "$work/twins.err" " restored 0" 6

section "two workers under capture: one owns the trace, the other steps aside"
SUBJECT_WORKER=twins run recorded env "$(preload capture)" MEDUSA_TRACE="$work/twins.mtrace" "${subject[@]}"
assert_exit recorded 0
sort -o "$work/recorded.out" "$work/recorded.out"
assert_same_file "$work/twice.out" "$work/recorded.out"
assert_file "$work/twins.mtrace"
assert_no_file "$work/twins.mtrace.part"
run twins_trace medusa-inspect "$work/twins.mtrace"
assert_exit twins_trace 0
assert_lacks "$work/twins_trace.out" "incomplete"

# One that lives on after its trace is complete, so that the other comes surely before its end.
section "a process that was started with the same environment, while the owner runs or after it has completed"
cat >"$work/pair.sh" <<'END'
MEDUSA_UNTIL=graphs=1 SUBJECT_WAITS=$1 "${@:2}" &
while [ ! -e "$1" ]; do sleep 0.02; done
"${@:2}"
code=$?
rm "$1"
wait $! || exit
exit $code
END
run pair env "$(preload capture)" MEDUSA_TRACE="$work/pair.mtrace" bash "$work/pair.sh" "$work/waiting" "${subject[@]}"
assert_exit pair 0
assert_count "$work/pair.err" "records to $work/pair.mtrace; nothing is recorded in this one" 1
run pair_trace medusa-inspect "$work/pair.mtrace"
assert_exit pair_trace 0

section "a program that the owner starts"
SUBJECT_STARTS=1 run started env "$(preload capture)" MEDUSA_TRACE="$work/started.mtrace" "${subject[@]}"
assert_exit started 0
assert_count "$work/started.err" "which started this one, records; nothing is recorded here" 1
assert_file "$work/started.mtrace"

section "a later process that captures no graph leaves the trace as it is"
cp "$work/started.mtrace" "$work/later.mtrace"
SUBJECT_LOOKS=1 run looks env "$(preload capture)" MEDUSA_TRACE="$work/later.mtrace" "${subject[@]}"
assert_exit looks 0
assert_same_file "$work/started.mtrace" "$work/later.mtrace"
assert_contains "$work/looks.err" "no graph was captured; $work/later.mtrace stays as it was"
assert_no_file "$work/later.mtrace.part"
SUBJECT_LOOKS=1 run looks_first env "$(preload capture)" MEDUSA_TRACE="$work/first.mtrace" "${subject[@]}"
assert_file "$work/first.mtrace"
finish
