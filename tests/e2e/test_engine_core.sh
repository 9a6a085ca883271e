#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine core in a process of its own, as vLLM's: its parent uses no device, and kills it, or is killed with it.
# The core says that it is complete; whatever happens to it afterwards does not matter, and no option is needed.
. "$(dirname "$0")/lib.sh"
subject_of outputs restore

assert_restored() { # run
	assert_exit "$1" 0
	assert_same_file "$work/alone.out" "$work/$1.out"
	for batch in 1 2 3; do assert_count "$work/$1.err" "graph $batch restored" 1; done
}

section "the engine in one process"
run alone "${subject[@]}"
assert_exit alone 0

for worker in fork spawn; do
	for number in 9 15; do
		section "worker: $worker; once it is complete, its parent sends it signal $number"
		export SUBJECT_WORKER=$worker SUBJECT_KILLS=$number
		name=$worker$number
		run "$name" medusa-capture -o "$work/$name.medusa" -- "${subject[@]}"
		assert_exit "$name" 0
		assert_contains "$work/$name.err" "verification: 3 passed, 0 failed, 0 not compared"
		assert_lacks "$work/$name.err" "nothing is recorded"
		run "$name.verify" medusa-verify "$work/$name.medusa" -- "${subject[@]}"
		assert_exit "$name.verify" 0
		run "$name.restore" medusa-restore "$work/$name.medusa" -- "${subject[@]}"
		assert_restored "$name.restore"
	done
	section "worker: $worker; a server, which never ends by itself"
	SUBJECT_SERVES=1 run "$worker.serve" medusa-capture -o "$work/$worker.serve.medusa" -- "${subject[@]}"
	assert_exit "$worker.serve" 0
	assert_contains "$work/$worker.serve.err" "verification: 3 passed, 0 failed, 0 not compared"
	SUBJECT_SERVES=1 run "$worker.serve.verify" medusa-verify "$work/$worker.serve.medusa" -- "${subject[@]}"
	assert_exit "$worker.serve.verify" 0
	assert_equal "processes that are left" "" "$(pgrep -f "^${subject[0]} " || true)"
done
export SUBJECT_WORKER=fork SUBJECT_KILLS=9

section "complete before it has launched any graph: nothing is known of other inputs, and that is not forgotten when it is killed"
same="its inputs held the same bytes in every comparison"
SUBJECT_EARLY=1 run unvaried medusa-capture -o "$work/unvaried.medusa" -- "${subject[@]}"
assert_exit unvaried 1
assert_count "$work/unvaried.err" "not compared: $same" 3
SUBJECT_EARLY=1 run unvaried.verify medusa-verify "$work/fork9.medusa" -- "${subject[@]}"
assert_exit unvaried.verify 1
assert_count "$work/unvaried.verify.out" "$same" 3
assert_contains "$work/unvaried.verify.out" "0 passed, 0 failed, 3 skipped"
SUBJECT_EARLY=1 SUBJECT_MARK=ready run unvaried.exit medusa-verify "$work/fork9.medusa" --until exit -- "${subject[@]}"
assert_exit unvaried.exit 1
SUBJECT_EARLY=1 run accepted medusa-capture -o "$work/accepted.medusa" --accept-unvaried -- "${subject[@]}"
assert_exit accepted 0

section "complete, and one of its graphs could not be compared: nobody waits for it"
SUBJECT_OPEN=1 SUBJECT_EARLY=1 SUBJECT_SERVES=1 run_limit=120 run open medusa-capture -o "$work/open.medusa" --accept-unvaried -- "${subject[@]}"
assert_exit open 1
assert_contains "$work/open.err" "refused: (step, 3): not compared: a stream capture was always in progress"
assert_contains "$work/open.err" "verification: 2 passed, 0 failed, 1 not compared"

section "killed before it says that it is complete"
SUBJECT_MARK=ready run early medusa-capture -o "$work/early.medusa" -- "${subject[@]}"
assert_exit early 4
assert_contains "$work/early.err" "recording was cut short"
assert_no_file "$work/early.medusa"
SUBJECT_MARK=ready run early.verify medusa-verify "$work/fork9.medusa" -- "${subject[@]}"
assert_exit early.verify 0 # each graph was compared, on inputs that varied

section "the user says when"
SUBJECT_MARK=ready run marked medusa-capture -o "$work/marked.medusa" --until mark=ready -- "${subject[@]}"
assert_exit marked 0
run until_exit medusa-capture -o "$work/until_exit.medusa" --until exit -- "${subject[@]}"
assert_exit until_exit 4

section "an engine that says so and then works on is ended in both captures and in the verification"
unset SUBJECT_WORKER SUBJECT_KILLS
cat >"$work/works_on.sh" <<'END'
"$@" || exit
echo "worked on" >>"$WORKED"
END
export WORKED=$work/worked
run alone_on bash "$work/works_on.sh" "${subject[@]}"
run works_on medusa-capture -o "$work/works_on.medusa" -- bash "$work/works_on.sh" "${subject[@]}"
assert_exit works_on 0
assert_count "$WORKED" "worked on" 4
finish
