#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-restore --require ends an engine whose graphs are not restored, and says why; --report has what was restored, in
# whatever way the engine ends. Without --require the engine goes on, whatever becomes of the artifact.
. "$(dirname "$0")/lib.sh"
subject_of outputs restore
ln -s "${subject[0]}" "$work/subject" && subject[0]=$work/subject # other tests that run now have engines, too
artifact=$work/outputs.medusa report=$work/report.json

field() { python3 -c 'import json, sys; print(eval("report" + sys.argv[2], {"report": json.load(open(sys.argv[1]))}))' "$1" "$2"; } # file, [key]...

restore() { # name, options of medusa-restore..., --, command...
	local name=$1
	shift
	rm -f "$report"
	run "$name" medusa-restore "$artifact" --report "$report" "$@"
}

run capture medusa-capture -o "$artifact" -- "${subject[@]}"
assert_exit capture 0
run live "${subject[@]}"

section "usage"
for bad in "--require some" "--require=" "--timeout 5" "--require all --timeout nan" "--report="; do
	run usage medusa-restore "$artifact" $bad -- true
	assert_exit usage 2
done
for place in /dev/null "$work" "$artifact" /nonexistent/report.json; do
	run place medusa-restore "$artifact" --report "$place" -- true
	assert_exit place 4
	assert_contains "$work/place.err" "--report: $place: "
done
assert_file "$artifact"

section "every graph is restored"
for what in all any; do
	restore "$what" --require $what -- "${subject[@]}"
	assert_exit "$what" 0
	assert_same_file "$work/live.out" "$work/$what.out"
	assert_lacks "$work/$what.err" "--require"
	assert_equal "what the report says" "True None 3 3 0 3 0 [] []" \
		"$(for key in settled reason graphs_total graphs_restored graphs_refused graphs_given graphs_not_given refused not_given; do field "$report" "['$key']"; done | paste -sd ' ')"
done
restore alone -- "${subject[@]}"
assert_exit alone 0
assert_equal "graphs in the report of an engine that medusa-restore has become" "3 3" "$(field "$report" "['graphs_total']") $(field "$report" "['graphs_given']")"
restore code --require all -- bash -c '"$@"; exit 7' - "${subject[@]}"
assert_exit code 7

section "an engine that ends before the restore has come to its next step"
late() { # which of the restore's unlocks is followed by a pause
	LD_PRELOAD=$MEDUSA_BUILD/tests/faults/inject.so INJECT=late:$1 INJECT_THREAD=medusa-restore INJECT_FROM=libmedusa-restore.so \
		INJECT_PROGRAM=outputs_subject restore "late.$1" --require all -- "${subject[@]}"
	assert_exit "late.$1" 0
}
late 0
steps=$(sed -n 's/^inject: \([0-9]*\) calls$/\1/p' "$work/late.0.err")
assert_at_least "steps of the restore" 10 "$steps"
for step in $(seq 1 2 "${steps:-0}"); do late "$step"; done

section "the artifact is refused: another fact, damage, another set of graphs"
SUBJECT_ENGINE=2 restore fact --require all -- "${subject[@]}"
assert_exit fact 1
assert_contains "$work/fact.err" "--require all: nothing is restored in process "
SUBJECT_ENGINE=2 restore fact_any --require any -- "${subject[@]}"
assert_exit fact_any 1
SUBJECT_ENGINE=2 restore fact_alone -- "${subject[@]}"
assert_exit fact_alone 0
assert_contains "$report" '"reason": "'
SUBJECT_LATE=2 restore late --require all -- "${subject[@]}"
assert_exit late 1
SUBJECT_LABEL=other restore other --require all -- "${subject[@]}"
assert_exit other 1
assert_contains "$work/other.err" "--require all: graph other/1 is not restored in process "
SUBJECT_LABEL=other restore other_any --require any -- "${subject[@]}"
assert_exit other_any 1
SUBJECT_LABEL=other restore other_alone -- "${subject[@]}"
assert_exit other_alone 0
assert_equal "graphs that the engine was not given" "3 the artifact has no graph other/1" "$(field "$report" "['graphs_not_given']") $(field "$report" "['not_given'][0]['reason']")"
head -c 2000 "$artifact" >"$work/damaged.medusa"
run damaged medusa-restore "$work/damaged.medusa" --require any -- "${subject[@]}"
assert_exit damaged 1
assert_contains "$work/damaged.err" "--require any: nothing is restored in process "

section "a graph of which the artifact itself says why it is not there"
SUBJECT_REFUSE="because" run partly medusa-capture -o "$work/partly.medusa" -- "${subject[@]}"
assert_exit partly 1
run partly.restore medusa-restore "$work/partly.medusa" --require all --report "$report" -- "${subject[@]}"
assert_exit partly.restore 0
assert_equal "the report" "2 0 because" "$(field "$report" "['graphs_given']") $(field "$report" "['graphs_not_given']") $(field "$report" "['not_in_artifact'][0]['reason']" | grep -o because)"

section "nothing was restored at all"
restore nothing --require any -- true
assert_exit nothing 1
assert_contains "$work/nothing.err" "no process of the command has bound a buffer or asked for a graph"
assert_no_file "$report"
restore never --require all --timeout 1 -- sleep 1000
assert_exit never 1
assert_contains "$work/never.err" "1 s have passed (--timeout)"
restore preload --require all -- env -u LD_PRELOAD "${subject[@]}"
assert_exit preload 1
restore tells --require all -- bash -c 'echo "medusa-vllm 9.8 $$ leaves vLLM as it is: why" >>"$MEDUSA_TELL"'
assert_exit tells 1
assert_contains "$work/tells.err" ": leaves vLLM as it is: why"

section "servers"
export SUBJECT_WORKER=spawn SUBJECT_KILLS=9 SUBJECT_SERVES=1
SUBJECT_ENGINE=2 restore server --require all -- "${subject[@]}"
assert_exit server 1
run_beside serves medusa-restore "$artifact" --require all --timeout 1 --report "$report" -- "${subject[@]}"
for _ in $(seq $((patience * 10))); do [ -e "$report" ] && break; sleep 0.1; done
sleep 2 # it goes on after the time in which it had to restore
serves=$(pgrep -f "^medusa-restore $artifact " || true)
assert_equal "commands that serve" 1 "$(wc -w <<<"$serves")"
kill -TERM $serves
await_beside serves
assert_exit serves 143
assert_lacks "$work/serves.err" "--require"
unset SUBJECT_WORKER SUBJECT_KILLS SUBJECT_SERVES

section "a process that is killed leaves its report, and a helper that looks at the device none"
rm -f "$report"
SUBJECT_STARTS=1 SUBJECT_WAITS=$work/waits run_beside killed medusa-restore "$artifact" --report "$work/%p.json" -- \
	bash -c 'echo $$ >"$0"; exec "$@"' "$work/pid" "${subject[@]}"
for _ in $(seq $((patience * 10))); do [ -e "$work/waits" ] && break; sleep 0.1; done
sleep 0.5
kill -KILL "$(cat "$work/pid")"
await_beside killed
assert_equal "reports" 1 "$(compgen -G "$work/[0-9]*.json" | wc -l)"
assert_equal "its graphs" "3 True" "$(field "$work"/[0-9]*.json "['graphs_given']") $(field "$work"/[0-9]*.json "['settled']")"
assert_equal "processes and folders that are left" "" "$(pgrep -f "^${subject[0]} " || true)$(ls "$TMPDIR")"
finish
