#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Outputs in the memory of the graphs, with notes and facts: restored bit for bit, verified, refused when a fact is wrong.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/outputs_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")
artifact=$work/captured.medusa

restored() { # name, VAR=VALUE...: the engine with the artifact and these settings
	local name=$1
	shift
	run "$name" env "$@" medusa-restore "$artifact" -- "${subject[@]}"
	assert_exit "$name" 0
	assert_same_file "$work/live.out" "$work/$name.out"
}

assert_nothing_held() { # run: by the library, neither before nor after the engine lets go
	assert_contains "$work/$1.err" "held=0 images=0"
	assert_contains "$work/$1.err" "held after release=0 images=0"
}

assert_refused_by() { # run, reason, graphs that are captured live
	assert_count "$work/$1.err" "restored: $2" 1
	assert_count "$work/$1.err" " live 60 " "$3"
	assert_count "$work/$1.err" "outputs of a live graph: 4" "$3"
	assert_contains "$work/$1.err" "output after release: 4"
}

section "captured"
run live "${subject[@]}"
assert_exit live 0
assert_count "$work/live.err" "graph 2 live 4 nothing is restored" 1
assert_count "$work/live.err" "outputs of a live graph: 4" 3
assert_lacks "$work/live.err" "not taken"
run captured medusa-capture -o "$artifact" -- "${subject[@]}"
assert_exit captured 0
cat "$work/live.out" "$work/live.out" >"$work/twice.out"
assert_same_file "$work/twice.out" "$work/captured.out"
assert_lacks "$work/captured.err" "not taken"
assert_contains "$work/captured.err" "verification: 3 passed, 0 failed, 0 not compared"

section "restored in a fresh process"
restored whole
assert_count "$work/whole.err" " restored 0" 3
assert_count "$work/whole.err" " live " 0
assert_contains "$work/whole.err" "note 2: rows 2 of 64 floats"
assert_contains "$work/whole.err" "no output 2: 4 graph step/2 has no output 3"
assert_contains "$work/whole.err" "held after release=0 images=0"
assert_contains "$work/whole.err" "output after release: 4"

section "a graph that is captured live in a restore says all the same"
restored partly MEDUSA_RESOLVE=loaded
assert_count "$work/partly.err" " live 60 " 3
assert_lacks "$work/partly.err" "not taken"

section "facts that are not the artifact's"
restored other SUBJECT_ENGINE=2
assert_refused_by other 'fingerprint: fact "engine": artifact has 1, this engine 2' 3
assert_nothing_held other
restored missing SUBJECT_CODE=
assert_refused_by missing 'fingerprint: fact "code": artifact has abc, this engine does not state it' 3
assert_nothing_held missing
restored additional SUBJECT_MORE=yes
assert_refused_by additional 'fingerprint: fact "more": the artifact does not have it, this engine states yes' 3
assert_nothing_held additional

section "a fact that is wrong once the artifact is open"
restored after_open SUBJECT_SAYS_AFTER=1 SUBJECT_CODE=abd
assert_refused_by after_open 'fingerprint: fact "code": artifact has abc, this engine abd' 3
assert_nothing_held after_open

section "a fact that changes when a graph was handed out"
restored late SUBJECT_LATE=2
assert_contains "$work/late.err" 'late: 60 fingerprint: fact "engine": artifact has 1, this engine 2'
assert_contains "$work/late.err" 'nothing more is restored: fingerprint: fact "engine": artifact has 1, this engine 2'
assert_count "$work/late.err" " restored 0" 1
assert_count "$work/late.err" "live 60 fingerprint: fact" 2
assert_contains "$work/late.err" "held after release=0 images=0"

section "verified"
verified() { # name, VAR=VALUE...; $allow: an option of medusa-verify
	local name=$1
	shift
	run "$name" env "$@" medusa-verify "$artifact" ${allow:-} --junit "$work/$name.xml" -- "${subject[@]}"
}
verified equal
assert_exit equal 0
assert_contains "$work/equal.xml" 'failures="0" errors="0" skipped="0"'
# Each when it is labelled and at its own launches, and some as others are launched with new inputs.
compared() { # name, extended regular expression of how often each graph was
	assert_count <(grep -oE "assertions=\"$2\"" "$work/$1.xml") assertions 3
}
compared equal '[4-7]'
verified more_launches MEDUSA_VERIFY_LAUNCHES=5
assert_exit more_launches 0
compared more_launches '[6-9]'
verified no_launches MEDUSA_VERIFY_LAUNCHES=0
compared no_launches '[12]'
assert_exit no_launches 1
assert_contains "$work/no_launches.xml" "its inputs held the same bytes in every comparison"
allow=--accept-unvaried verified no_launches_accepted MEDUSA_VERIFY_LAUNCHES=0
assert_exit no_launches_accepted 0
verified odd_launches MEDUSA_VERIFY_LAUNCHES=many
assert_contains "$work/odd_launches.err" "MEDUSA_VERIFY_LAUNCHES=many: a whole number from 0 to 4294967295 is wanted; 3 is used"
verified short SUBJECT_SHORT=1
assert_exit short 1
assert_contains "$work/short.xml" 'message="output 0: artifact has 256 bytes, the live graph 252"'
assert_contains "$work/short.xml" 'failures="3"'
verified few SUBJECT_FEW=1
assert_exit few 1
assert_contains "$work/few.xml" 'message="output 1: artifact has 256 bytes, the live graph has no such output"'

section "live graphs that are nondeterministic themselves"
verified races SUBJECT_SCALE_RACES=3
assert_exit races 1
assert_contains "$work/races.xml" 'failures="0" errors="0" skipped="3"'
assert_count "$work/races.xml" '<skipped message="nondeterministic: ' 3
assert_contains "$work/races.out" "0 passed, 0 failed, 0 skipped, 3 nondeterministic"
assert_count "$work/races.out" "differ between live replays, the first at offset " 3
allow=--nondeterministic=64 verified allowed SUBJECT_SCALE_RACES=3
assert_exit allowed 0
assert_contains "$work/allowed.out" "3 nondeterministic"
allow=--nondeterministic=64 verified allowed_short SUBJECT_SCALE_RACES=3 SUBJECT_SHORT=1
assert_exit allowed_short 1
assert_contains "$work/allowed_short.out" "0 passed, 3 failed, 0 skipped"

section "restored graphs that differ from each other by chance, while live ones agree: no memory is accused, and nothing else fails"
verified late_races SUBJECT_LATE_RACES=1
assert_exit late_races 1
assert_contains "$work/late_races.out" "0 passed, 3 failed, 0 skipped"
assert_count "$work/late_races.xml" "restored replays either, which were made alike, while 16 live ones agree: chance decides" 3
for often in 1 2 3 5 8 13; do
	verified "late_races$often" SUBJECT_LATE_RACES=$often
	assert_lacks "$work/late_races$often.xml" "goes to unbound memory"
	assert_lacks "$work/late_races$often.xml" "which is launched with it"
done

section "an artifact that says that an output lies elsewhere"
run twin medusa-inspect --text "$artifact"
elsewhere() { # name, sed program: the artifact with its text twin edited
	local name=$1
	sed "$2" "$work/twin.out" >"$work/$name.txt"
	checks=$((checks + 1))
	! cmp -s "$work/twin.out" "$work/$name.txt" || fail "an edited text twin $name.txt" "no change by '$2'"
	run "edit_$name" medusa-inspect --from-text "$work/$name.txt" -o "$work/$name.medusa"
	assert_exit "edit_$name" 0
	artifact=$work/$name.medusa verified "$name"
	assert_exit "$name" 1
}
elsewhere moved 's/^\(output alloc=[0-9]* offset=\)4096 size=256/\14352 size=256/'
assert_contains "$work/moved.xml" 'failures="1"'
assert_contains "$work/moved.xml" 'output 1 differs at offset '
assert_contains "$work/moved.xml" 'restored 00000000'
elsewhere rebound 's/^\(output alloc=[0-9]* offset=\)0 size=256/\1256 size=256/'
assert_contains "$work/rebound.xml" 'failures="1"'
assert_contains "$work/rebound.xml" 'output 2: artifact has it in binding &quot;state&quot; at offset 256, the live graph elsewhere'

section "refused by the engine"
verified refused "SUBJECT_REFUSE=captures <RNG> state"
assert_exit refused 1
assert_contains "$work/refused.xml" 'failures="1"'
assert_contains "$work/refused.xml" 'message="refused by the engine: captures &lt;RNG&gt; state"'
assert_contains "$work/refused.out" "refused by the engine: captures <RNG> state"
verified refused_late "SUBJECT_REFUSE_LATE=eager and graph differ"
assert_exit refused_late 1
assert_contains "$work/refused_late.xml" 'message="refused by the engine: eager and graph differ"'
run left_out env "SUBJECT_REFUSE=captures RNG state" medusa-capture -o "$work/left_out.medusa" -- "${subject[@]}"
assert_exit left_out 1
assert_contains "$work/left_out.err" "captures RNG state"
artifact=$work/left_out.medusa
restored without
assert_count "$work/without.err" " restored 0" 2
assert_contains "$work/without.err" "graph step/2 was not materialized"
assert_contains "$work/without.err" "captures RNG state"

section "a helper graph is none of the engine's"
artifact=$work/helped.medusa
run helped env SUBJECT_HELPER=1 medusa-capture -o "$artifact" --keep-traces -- "${subject[@]}"
assert_exit helped 0
assert_contains "$work/helped.err" "skipped 1 unlabelled graphs"
assert_contains "$work/helped.err" "verification: 3 passed, 0 failed, 0 not compared"
assert_lacks "$work/helped.err" "refused: "
verified with_helper SUBJECT_HELPER=1
assert_exit with_helper 0
assert_contains "$work/with_helper.out" "3 passed, 0 failed, 0 skipped"
run helper_trace medusa-inspect "$work/helped.1.mtrace"
assert_count "$work/helper_trace.out" "left out: the engine labels others" 1
restored beside_helper SUBJECT_HELPER=1
assert_count "$work/beside_helper.err" " restored 0" 3
finish
