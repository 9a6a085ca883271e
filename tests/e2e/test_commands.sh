#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every command's help, exit codes and manual page agree.
. "$(dirname "$0")/lib.sh"

commands=$(cd tools && ls medusa-*.c | sed 's/\.c$//')
assert_at_least "commands" 5 "$(echo "$commands" | wc -l)"

page_text() { # the manual page as a reader sees its words: no font changes, no escaped dashes
	sed 's/\\f[A-Z]//g; s/\\-/-/g; s/\\(aq/'"'"'/g' "docs/man/$1.1"
}

long_options() { # of a help text
	sed -n 's/^  \(-[a-z], \|    \)\(--[a-z-]*\).*/\2/p' "$1"
}

for command in $commands; do
	section "$command"
	run help "$command" --help
	assert_exit help 0
	assert_contains "$work/help.out" "Usage: $command "
	assert_contains "$work/help.out" "Exit codes:"
	assert_equal "words on stderr" "" "$(cat "$work/help.err")"
	run short_help "$command" -h
	assert_same_file "$work/help.out" "$work/short_help.out"
	run version "$command" --version
	assert_exit version 0
	assert_equal "the version of $command" "$command $(cat VERSION)" "$(cat "$work/version.out")"
	run nothing "$command"
	assert_exit nothing 2
	assert_contains "$work/nothing.err" "Try '$command --help'"
	run unknown "$command" --no-such-option
	assert_exit unknown 2
	assert_contains "$work/unknown.err" "--no-such-option"
	run letter "$command" -Z
	assert_exit letter 2
	assert_contains "$work/letter.err" "-Z"
	assert_equal "output of wrong usage on stdout" "" "$(cat "$work/nothing.out" "$work/unknown.out" "$work/letter.out")"

	section "manual page of $command"
	assert_file "docs/man/$command.1"
	page_text "$command" >"$work/page"
	assert_contains "$work/page" "EXIT STATUS"
	assert_contains "$work/page" ".TH ${command^^} 1"
	assert_at_least "long options in --help" 2 "$(long_options "$work/help.out" | wc -l)"
	for option in $(long_options "$work/help.out"); do
		checks=$((checks + 1))
		grep -Eq -- "(^|[^a-z-])$option([^a-z-]|$)" "$work/page" || fail "$option in docs/man/$command.1" "no such word"
	done
	for option in $(grep -oE -- '(^|[^a-z-])--[a-z][a-z-]+' "$work/page" | grep -oE -- '--.*' | sort -u); do
		section "manual page of $command: $option"
		long_options "$work/help.out" >"$work/known"
		page_is_about_another=$(for other in $commands; do "$other" --help; done | grep -oE -- '--[a-z][a-z-]+' | sort -u)
		assert_contains <(cat "$work/known"; echo "$page_is_about_another") "$option"
	done
done

section "exit codes"
missing=$work/missing
expect() { # exit code, text on stderr, command...
	local expected=$1 text=$2
	shift 2
	section "$*"
	run expect "$@"
	assert_exit expect "$expected"
	assert_contains "$work/expect.err" "$text"
}
capture whole
assert_exit whole 0
artifact=$work/whole.medusa
expect 3 "$missing" medusa-inspect "$missing"
expect 3 "$missing" medusa-inspect --from-text "$missing" -o "$work/out.medusa"
expect 3 "$missing" medusa-verify "$missing" -- true
expect 3 "$missing" medusa-restore "$missing" -- true
expect 3 "$missing" medusa-analyze --single -o "$work/out.medusa" "$missing"
expect 3 "$missing" medusa-capture -o "$missing/out.medusa" -- true
expect 3 "Makefile: line " medusa-inspect --from-text Makefile -o "$work/out.medusa"
expect 3 "Makefile" medusa-inspect Makefile
expect 3 "Makefile" medusa-verify Makefile -- true
expect 3 "Makefile" medusa-analyze --single -o "$work/out.medusa" Makefile
expect 3 "$work" medusa-inspect "$work"
assert_no_file "$work/out.medusa"

expect 4 no-such-command medusa-capture -o "$work/out.medusa" -- no-such-command
expect 4 no-such-command medusa-restore "$artifact" -- no-such-command
expect 4 no-such-command medusa-verify "$artifact" -- no-such-command
expect 4 "Permission denied" medusa-restore "$artifact" -- ./Makefile
expect 4 "ended with 7" medusa-capture -o "$work/out.medusa" -- sh -c 'exit 7'
expect 5 "no CUDA driver call was intercepted" medusa-capture -o "$work/out.medusa" -- true
expect 5 "no graph was captured" medusa-capture -o "$work/out.medusa" -- "${engine[@]}" --no-graphs
assert_no_file "$work/out.medusa"
run until medusa-capture -o "$work/none.medusa" --until graphs=0 -- true
assert_exit until 2
expect 2 "-o" medusa-capture -- true
expect 2 "after --" medusa-capture -o "$work/out.medusa"
expect 2 "after -- is missing" medusa-capture -o "$work/out.medusa" --
expect 2 "needs a value" medusa-capture -o
expect 2 "exclude each other" medusa-capture -o "$work/out.medusa" --no-images --store-images -- true
expect 2 "none of loaded, stored, trigger" medusa-restore "$artifact" --resolve stored,magic -- true
expect 2 "after --" medusa-restore "$artifact"
expect 2 "after --" medusa-verify "$artifact"
expect 2 "one artifact, not 2" medusa-restore "$artifact" "$artifact" -- true
expect 2 "exclude each other" medusa-inspect --json --text "$artifact"
expect 2 "nothing may follow --" medusa-inspect "$artifact" -- true
expect 2 "two traces are needed" medusa-analyze -o "$work/out.medusa" "$artifact"
expect 2 "holds no graph" medusa-inspect --graph nothing/1 "$artifact"

section "a time that is none"
for epoch in 99999999999999999999 253402300800 -1 today 1.5; do
	expect 2 "SOURCE_DATE_EPOCH=$epoch: not seconds since 1970" env SOURCE_DATE_EPOCH=$epoch medusa-capture -o "$work/out.medusa" -- true
	expect 2 "SOURCE_DATE_EPOCH=$epoch: not seconds since 1970" env SOURCE_DATE_EPOCH=$epoch medusa-analyze --single -o "$work/out.medusa" "$artifact"
done

section "an artifact that holds no graphs"
run no_graphs medusa-capture -o "$work/keep.medusa" --keep-traces --no-verify -- "${engine[@]}"
run other medusa-capture -o "$work/other.medusa" --keep-traces --no-verify -- "${engine[@]}" --batches 3,8
run empty medusa-analyze -o "$work/empty.medusa" "$work/keep.1.mtrace" "$work/other.2.mtrace"
assert_exit empty 1
expect 5 "holds no graphs" medusa-verify "$work/empty.medusa" -- "${engine[@]}"

section "the command's own exit code"
run own medusa-restore "$artifact" -- sh -c 'exit 42'
assert_exit own 42
run own medusa-verify "$artifact" -- sh -c 'exit 42'
assert_exit own 4

section "output that cannot be written"
full() { # command...: its standard output is a full disk, or closed
	section "$* >/dev/full"
	code=0
	timeout --kill-after=5 "$run_limit" "$@" >/dev/full 2>"$work/full.err" || code=$?
	assert_exit full 4
	assert_contains "$work/full.err" "No space left"
	rm -f "$work/full.key" "$work/full.key.pub"
	section "$* >&-"
	code=0
	timeout --kill-after=5 "$run_limit" "$@" 2>"$work/full.err" >&- || code=$?
	assert_exit full 4
	assert_contains "$work/full.err" "$1: writing the output: stdout is closed"
	rm -f "$work/full.key" "$work/full.key.pub"
}
simulate=(medusa-simulate --node simulator/nodes/torpor-v100.yaml --functions simulator/functions/torpor-models.yaml
	--trace torpor --count 8 --duration 1min)
for command in $commands; do
	full "$command" --help
	full "$command" --version
	full "$command" --completion bash
done
for how in "" --json --text; do
	full medusa-inspect $how "$artifact"
done
full medusa-inspect "$work/keep.1.mtrace"
full medusa-inspect --graph "$(medusa-inspect --json "$artifact" | sed -n 's/.*"label": "\(.*\)",/\1/p' | head -n 1)/2" "$artifact"
full medusa-inspect --diff "$artifact" "$artifact"
full medusa-analyze -o "$work/out.medusa" "$work/keep.1.mtrace" "$work/keep.2.mtrace"
full medusa-verify "$artifact" -- "${engine[@]}"
full medusa-verify "$artifact" --json -- "${engine[@]}"
full medusa-sign keygen -o "$work/full.key"
run keys medusa-sign keygen -o "$work/sign.key"
run signed medusa-sign sign "$artifact" --key "$work/sign.key" -o "$work/signed.medusa"
full medusa-sign check "$work/signed.medusa"
full medusa-simulate --list
full "${simulate[@]}"
section "files that are written while standard descriptors are closed"
for closed in "0<&-" "1>&-" "2>&-" "0<&- 1>&- 2>&-"; do
	rm -f "$work"/shut.*
	bash -c "exec medusa-verify $artifact --junit $work/shut.xml -- ${engine[*]} $closed" >/dev/null 2>&1
	assert_equal "report with $closed" "<?xml </testsuites>" "$(head -c 6 "$work/shut.xml")$(tail -n 1 "$work/shut.xml")"
	bash -c "exec medusa-analyze -o $work/shut.medusa $work/keep.1.mtrace $work/keep.2.mtrace $closed" >/dev/null 2>&1
	run shut medusa-inspect "$work/shut.medusa"
	assert_exit shut 0
	bash -c "exec ${simulate[*]} --json $work/shut.json --html $work/shut.html $closed" >/dev/null 2>&1
	assert_equal "simulation with $closed" "{<!" "$(head -c 1 "$work/shut.json")$(head -c 2 "$work/shut.html")"
done
run text medusa-inspect --text "$artifact"
expect 3 "Bad file descriptor" bash -c "exec medusa-inspect --from-text - -o $work/shut.medusa <&-"
# Each write, sync and rename of a command fails in turn.
no_space() { # command...
	section "no space: $*"
	local n hit=0
	for ((n = 1; n < 60 || (hit == 0 && n < 1000); n++)); do # a slow capture's trace has more frames to read before
		rm -f "$work"/space.*
		run space env LD_PRELOAD="$MEDUSA_BUILD/tests/faults/inject.so" INJECT=file:$n INJECT_FROM="$1" "$@"
		if grep -q "No space left on device" "$work/space.err"; then
			hit=$((hit + 1))
			assert_exit space 4
		fi
	done
	assert_at_least "calls that met a full disk" 1 $hit
}
run text medusa-inspect --text "$artifact"
no_space medusa-analyze -o "$work/space.medusa" "$work/keep.1.mtrace" "$work/keep.2.mtrace"
no_space medusa-inspect --from-text "$work/text.out" -o "$work/space.medusa"
no_space medusa-sign sign "$artifact" --key "$work/sign.key" -o "$work/space.medusa"
no_space medusa-sign keygen -o "$work/space.key"
# A signal that comes before any of them finds the files whole or not there.
stopped() { # files that may be there, command...
	local files=$1 n hit=0
	shift
	section "SIGTERM: $*"
	for ((n = 1; n < 60; n++)); do
		rm -f "$work"/space.*
		run space env LD_PRELOAD="$MEDUSA_BUILD/tests/faults/inject.so" INJECT=stop:$n INJECT_FROM="$1" "$@"
		grep -q '^inject: ' "$work/space.err" || continue
		hit=$((hit + 1))
		assert_exit space 143
		rm -f "$work/space.out" "$work/space.err"
		assert_contains <(printf '%s' ":$files:") ":$(cd "$work" && echo space.*):"
	done
	assert_at_least "calls that a signal came before" 1 $hit
}
stopped 'space.*:space.medusa' medusa-analyze -o "$work/space.medusa" "$work/keep.1.mtrace" "$work/keep.2.mtrace"
stopped 'space.*:space.medusa' medusa-inspect --from-text "$work/text.out" -o "$work/space.medusa"
stopped 'space.*:space.medusa' medusa-sign sign "$artifact" --key "$work/sign.key" -o "$work/space.medusa"
stopped 'space.*:space.key space.key.pub' medusa-sign keygen -o "$work/space.key"
stopped 'space.*:space.html space.json' "${simulate[@]}" --quiet --json "$work/space.json" --html "$work/space.html"
expect 4 "No space left" medusa-verify "$artifact" --junit /dev/full -- "${engine[@]}"
expect 4 "/dev/full" "${simulate[@]}" --quiet --json /dev/full
expect 4 "/dev/full" "${simulate[@]}" --quiet --html /dev/full
finish
