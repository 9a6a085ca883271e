#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a verify run found reaches whoever asked, whatever labels are made of; what it did not compare is not published.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/outputs_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")

# An engine that is another one in the verification run: sh -c '...' sees MEDUSA_VERIFY there alone.
when_verified() { # shell commands
	engine_then=(sh -c "[ -z \"\${MEDUSA_VERIFY:-}\" ] || { $1; }; exec \"\$@\"" engine "${subject[@]}")
}

assert_harmless() { # file: of what Medusa says in it, nothing acts upon a terminal
	assert_equal "lines of ${1##*/} that a terminal acts upon" 0 \
		"$(grep -a "${2:-}" "$1" | LC_ALL=C grep -ac $'[\001-\b\v-\037\177]\|\xc2[\x80-\x9f]')"
}

labels=("$(printf 'x%.0s' {1..300})" $'two\nlines' $'tab\tand more' $'\e[31mred\a' 'say "it" \ or not' $'no UTF-8 \xff\xfe' ']]> & <x>' 'a/1' $'c1 \xc2\x9b31m'
	"$(printf 'long\n%.0s' {1..800})")
names=(long newline tab escape quotes bytes xml slash control longest)

for i in "${!labels[@]}"; do
	export SUBJECT_LABEL=${labels[i]}
	name=${names[i]}
	section "label $name: captured, shown, verified, restored"
	run live "${subject[@]}"
	artifact=$work/$name.medusa
	run "$name" medusa-capture -o "$artifact" -- "${subject[@]}"
	assert_exit "$name" 0
	assert_contains "$work/$name.err" "verification: 3 passed, 0 failed, 0 not compared"
	for view in "" --text --json "--diff $artifact"; do
		run shown medusa-inspect $view "$artifact"
		assert_exit shown 0
		assert_harmless "$work/shown.out"
	done
	run node medusa-inspect --graph "$SUBJECT_LABEL/2" "$artifact"
	assert_exit node 0
	assert_harmless "$work/node.out"
	run twin medusa-inspect --text "$artifact"
	run again medusa-inspect --from-text "$work/twin.out" -o "$work/again.medusa"
	assert_same_file "$artifact" "$work/again.medusa"
	run json medusa-inspect --json "$artifact"
	run same python3 -c 'import json, os, sys
graph = json.load(open(sys.argv[1]))["graphs"][1]
label = bytes.fromhex(graph["label_hex"]) if "label_hex" in graph else graph["label"].encode()
sys.exit(label != os.environb[b"SUBJECT_LABEL"] or graph["batch"] != 2)' "$work/json.out"
	assert_exit same 0
	run verify medusa-verify "$artifact" --junit "$work/junit.xml" -- "${subject[@]}"
	assert_exit verify 0
	assert_harmless "$work/verify.out"
	assert_harmless "$work/junit.xml"
	run restored env MEDUSA_LOG=info medusa-restore "$artifact" -- "${subject[@]}"
	assert_same_file "$work/live.out" "$work/restored.out"
	assert_count "$work/restored.err" " restored 0" 3
	assert_harmless "$work/restored.err" "^medusa"

	section "label $name: a wrong graph is found, and not published"
	when_verified 'export SUBJECT_SHORT=1'
	run wrong medusa-capture -o "$work/wrong.medusa" -- "${engine_then[@]}"
	assert_exit wrong 1
	assert_contains "$work/wrong.err" "verification: 0 passed, 3 failed, 0 not compared"
	assert_harmless "$work/wrong.err" "^medusa" # the engine says the rest
	run left medusa-inspect "$work/wrong.medusa"
	assert_contains "$work/left.out" ": 0 graphs, 0 nodes, 3 left out"
	run failed medusa-verify "$artifact" --json --junit "$work/junit.xml" -- "${engine_then[@]}"
	assert_exit failed 1
	run parsed python3 -c 'import json, sys, xml.dom.minidom
cases = xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("testcase")
graphs = json.load(open(sys.argv[2]))["graphs"]
names = {case.getAttribute("name") for case in cases if case.getElementsByTagName("failure")}
sys.exit(len(names) != 3 or [graph["outcome"] for graph in graphs] != ["failed"] * 3)' "$work/junit.xml" "$work/failed.out"
	assert_exit parsed 0
done
unset SUBJECT_LABEL
run good medusa-capture -o "$work/good.medusa" -- "${subject[@]}"
assert_exit good 0
run good_shown medusa-inspect "$work/good.medusa"
assert_contains "$work/good_shown.out" "verified every graph was compared"

section "other words of an engine and of files"
esc=$'\e[2J\xc2\x9b\nnext'
run odd env SUBJECT_ENGINE="$esc" SUBJECT_REFUSE="$esc" MEDUSA_LOG=info medusa-capture -o "$work/odd.medusa" --keep-traces -- "${subject[@]}"
assert_exit odd 1
assert_harmless "$work/odd.err" "^medusa"
ln -s odd.medusa "$work/$esc.medusa"
for view in "" --text --json "--diff $work/good.medusa"; do
	run shown medusa-inspect $view "$work/$esc.medusa"
	assert_harmless "$work/shown.out"
done
run shown medusa-inspect "$work/odd.1.mtrace"
assert_harmless "$work/shown.out"
run refused env SUBJECT_ENGINE="$esc" medusa-restore "$work/good.medusa" -- "${subject[@]}"
assert_contains "$work/refused.err" "\x1b[2J"
assert_harmless "$work/refused.err" "^medusa"
ln -s nothing "$work/$esc"
for command in "medusa-inspect" "medusa-sign check" "medusa-restore" "medusa-verify" "medusa-analyze --single -o $work/x"; do
	run failed $command "$work/$esc" -- true
	assert_harmless "$work/failed.err"
	run failed $command "$work/$esc"
	assert_harmless "$work/failed.err"
done

section "not compared, not published, unless that is asked for"
when_verified 'export SUBJECT_ENGINE=2'
run missed medusa-capture -o "$work/missed.medusa" -- "${engine_then[@]}"
assert_exit missed 1
assert_count "$work/missed.err" 'not compared: fingerprint: fact "engine"' 3
run missed_shown medusa-inspect "$work/missed.medusa"
assert_contains "$work/missed_shown.out" ": 0 graphs, 0 nodes, 3 left out"
assert_contains "$work/missed_shown.out" 'step/2: not compared: fingerprint: fact "engine"'
run allowed medusa-capture -o "$work/allowed.medusa" --allow-uncompared -- "${engine_then[@]}"
assert_exit allowed 0
run allowed_shown medusa-inspect "$work/allowed.medusa"
assert_contains "$work/allowed_shown.out" ": 3 graphs, "
assert_contains "$work/allowed_shown.out" "verified graphs that were not compared were allowed"
run allowed_json medusa-inspect --json "$work/allowed.medusa"
assert_contains "$work/allowed_json.out" '"verification": "graphs that were not compared were allowed"'
run verify medusa-verify "$work/good.medusa" --junit "$work/junit.xml" -- "${engine_then[@]}"
assert_exit verify 1
assert_contains "$work/junit.xml" 'failures="3" errors="0" skipped="0"'
assert_count "$work/junit.xml" '<failure type="not compared" message="not compared: fingerprint' 3
run verify medusa-verify "$work/good.medusa" --allow-uncompared --junit "$work/junit.xml" -- "${engine_then[@]}"
assert_exit verify 0
assert_contains "$work/junit.xml" 'failures="0" errors="0" skipped="3"'
run usage medusa-capture -o "$work/usage.medusa" --allow-uncompared --no-verify -- true
assert_exit usage 2

section "a graph that only the verification run captures"
line() { # verdict, label, batch: a line as an adapter would write it
	printf '{"verdict": "%s", "label": "%s", "batch": %s, "bytes": 0, "reason": "said by the test"}' "$@"
}
when_verified "printf '%s\\n' '$(line skipped other 5)' >>\"\$MEDUSA_VERIFY_REPORT\""
run stranger medusa-capture -o "$work/stranger.medusa" -- "${engine_then[@]}"
assert_exit stranger 1
assert_contains "$work/stranger.err" "refused: (other, 5): not recorded: the engine captured it in the verification run only"
run stranger medusa-verify "$work/good.medusa" -- "${engine_then[@]}"
assert_exit stranger 1
assert_contains "$work/stranger.out" "said by the test"

reported() { # exit code of medusa-capture, message, what is appended to the report of the verification run
	section "the report: $3"
	when_verified "printf '%b' '$3' >>\"\$MEDUSA_VERIFY_REPORT\""
	run reported medusa-capture -o "$work/reported.medusa" -- "${engine_then[@]}"
	assert_exit reported "$1"
	assert_contains "$work/reported.err" "$2"
	[ "$1" = 1 ] || assert_no_file "$work/reported.medusa"
	rm -f "$work/reported.medusa"
	run reported medusa-verify "$work/good.medusa" --junit "$work/reported.xml" -- "${engine_then[@]}"
	assert_exit reported "$1"
	assert_contains "$work/reported.xml" "<"
	assert_lacks "$work/reported.xml" 'failures="0" errors="0"'
}
reported 4 "verify report, line 1: byte 0: expected '{'" 'step\t1\tpass\t8\t\n'
reported 4 "verify report, line 1: byte 0: expected '{'" '\n'
reported 4 "verify report, line 1: compares graph other/1, which the artifact does not hold" "$(line pass other 1)\\n"
reported 1 "the engine ended while this graph was being compared" "$(line begun step 2)\\n"
reported 1 "verification failed: said by the test" "$(line fail step 2)\\n"
reported 1 "not compared: said by the test" "$(line skipped step 2)\\n"

section "a report that is cut short"
engine_then=(sh -c '"$@" || exit; [ -z "${MEDUSA_VERIFY:-}" ] || truncate -s -5 "$MEDUSA_VERIFY_REPORT"' engine "${subject[@]}")
run cut medusa-capture -o "$work/cut.medusa" -- "${engine_then[@]}"
assert_exit cut 4
assert_contains "$work/cut.err" "the report was cut short: comparisons may be missing; nothing was written"
assert_no_file "$work/cut.medusa"
run cut medusa-verify "$work/good.medusa" --junit "$work/cut.xml" -- "${engine_then[@]}"
assert_exit cut 1
assert_contains "$work/cut.xml" 'errors="1"'
assert_contains "$work/cut.err" "the report was cut short"
finish
