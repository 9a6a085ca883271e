#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Scripts that end early are not green: neither for tests/run.sh nor, on a GPU, for what sources tests/gpu/cases.sh.
. "$(dirname "$0")/lib.sh"
tree=$work/tree
mkdir -p "$tree/tests/e2e" "$tree/tests/gpu"
cp tests/run.sh "$tree/tests"
cp tests/e2e/lib.sh tests/e2e/device.sh "$tree/tests/e2e"
cp tests/gpu/cases.sh "$tree/tests/gpu"

script() { # name, lines after lib.sh...
	printf '%s\n' '. "$(dirname "$0")/lib.sh"' "${@:2}" >"$tree/tests/e2e/test_$1.sh"
}

verdict() { # name, its line begins with, exit code of tests/run.sh
	run "$1" env -u MEDUSA_BUILD BUILD=build ONLY="test_$1" bash "$tree/tests/run.sh"
	assert_exit "$1" "$3"
	assert_contains "$work/$1.out" "$2"
}

section "tests/run.sh"
script whole 'assert_equal one 1 1' finish
verdict whole "  pass  test_whole" 0
run named bash "$tree/tests/run.sh" test_whole
assert_exit named 2
assert_contains "$work/named.err" "unknown argument 'test_whole'"
script wrong 'assert_equal one 1 2' finish
verdict wrong "  FAIL  test_wrong (exit 1" 1
script early 'assert_equal one 1 1'
verdict early "  FAIL  test_early (exit 0, but it ended without its count of checks" 1
script left 'assert_equal one 1 1' 'exit 0' finish
verdict left "  FAIL  test_left (exit 0, but it ended without its count of checks" 1
script counted 'echo "1 checks, 0 failures"' 'echo and more'
verdict counted "  FAIL  test_counted (exit 0, but it ended without its count of checks" 1
script silent
verdict silent "  FAIL  test_silent (exit 0, but it ended without its count of checks" 1
script skipped 'echo "nothing to test here"' 'exit 77'
verdict skipped "  skip  test_skipped: nothing to test here" 0
script strays 'setsid sleep 4321 >/dev/null 2>&1 &' 'echo $! >"'"$work/stray"'"' 'assert_equal one 1 2' finish
verdict strays "  FAIL  test_strays (exit 1" 1
assert_contains "$work/strays.out" "        left running, and ended: "
checks=$((checks + 1))
for _ in $(seq 1200); do
	[ -e "/proc/$(cat "$work/stray")" ] && grep -q . "/proc/$(cat "$work/stray")/cmdline" 2>/dev/null || break
	sleep 0.05
done
! grep -qs sleep "/proc/$(cat "$work/stray")/cmdline" || fail "process $(cat "$work/stray") ended with its script" "it runs"
script long 'for at in $(seq 200); do echo "line $at"; done' 'assert_equal one 1 2' finish
verdict long "  FAIL  test_long (exit 1" 1
for line in "line 1" "line 30" "line 200" "the rest is in"; do assert_contains "$work/long.out" "        ${line/#the/[... the}"; done
# A child that gets its signal before it is another program has the script's traps.
script told 'kept=$work/kept' 'echo kept >"$kept"' 'for _ in $(seq 300); do X=1 true & kill -TERM $!; wait $!; /bin/true & kill -TERM $!; wait $!; done 2>/dev/null' 'assert_equal "its file" kept "$(cat "$kept")"' finish
verdict told "  pass  test_told" 0
verdict unknown "  FAIL  ONLY=test_unknown: no suite has this name" 1

section "which suites run at once"
mkdir -p "$tree/build/tests"
wanted=1 # so many at once are waited for
beside() { # name: lines of a suite that notes how many run while it does
	printf '%s\n' "mkdir '$work/at_once/$1'" 'for look in $(seq 1200); do' "	count=\$(ls '$work/at_once' | wc -l) && echo \$count >>'$work/most_$1'" \
		"	[ \$count -lt $wanted ] || : >>'$work/reached'" "	[ \$look -lt 10 ] || [ ! -e '$work/reached' ] || break" '	sleep 0.05' done "rmdir '$work/at_once/$1'"
}
at_once() { # names of suites for run.sh, with JOBS; $work/most_NAME then has the most that ran beside each, itself counted
	local jobs=$1
	shift
	mkdir -p "$work/at_once"
	rm -f "$work"/most_* "$work/reached"
	for name in "$@"; do script "$name" "$(beside "$name")" 'assert_equal one 1 1' finish; done
	run at_once env -u MEDUSA_BUILD BUILD=build JOBS="$jobs" ONLY="$(printf 'test_%s ' "$@")" bash "$tree/tests/run.sh"
	assert_exit at_once 0
	for name in "$@"; do assert_contains "$work/at_once.out" "  pass  test_$name "; done
	assert_contains "$work/at_once.out" "$# passed, 0 failed, 0 skipped"
}
most() { sort -n "$work"/most_* | tail -n 1; }
at_once 1 one two worker install
assert_equal "suites at once with JOBS=1" 1 "$(most)"
wanted=2 at_once 2 one two three four
assert_equal "suites at once with JOBS=2" 2 "$(most)"
at_once 2 install packages lint wheel # the places of other kinds are for suites that wait
assert_equal "suites at once of those that install" 1 "$(most)"
wanted=3 at_once 2 worker swap_peers one
assert_equal "suites beside those that wait" 3 "$(most)"
script both "$(beside both)" 'assert_equal one 1 1' finish # its log is the program's
{ echo '#!/bin/bash' && beside program && echo 'echo the program'; } >"$tree/build/tests/test_both"
chmod +x "$tree/build/tests/test_both"
rm -f "$work"/most_*
run both env -u MEDUSA_BUILD BUILD=build ONLY="test_both" bash "$tree/tests/run.sh"
assert_exit both 0
assert_count "$work/both.out" "  pass  test_both " 2
assert_equal "a program and a script of one name at once" 1 "$(most)"
rm "$tree/build/tests/test_both"

section "what failed tests leave"
: >"$work/list"
ln "$work/list" "$work/names" # the test's program removes its list in the end
# No file may be larger than 900 KiB, so the signal SIGXFSZ ends a test that has a folder.
run crashed bash -c 'export TEST_SCRATCH=$$:$1; ulimit -f 900; exec "$2" --jobs 2' bash "$work/list" "$MEDUSA_BUILD/tests/test_lora_files"
assert_exit crashed 1
assert_contains "$work/crashed.err" "Crashing: 1"
assert_equal "it noted its folders" 0 "$([ "$(wc -l <"$work/names")" -gt 5 ]; echo $?)"
while read -r name; do
	assert_equal "$name is gone" 1 "$([ -e "$name" ]; echo $?)"
done <"$work/names"
assert_equal "the list is gone" 1 "$([ -e "$work/list" ]; echo $?)"

section "the thread sanitizer"
mkdir -p "$tree/build/tests"
printf '%s\n' '#!/bin/sh' 'exit 1' >"$tree/build/tests/test_program"
chmod +x "$tree/build/tests/test_program"
printf '%s\n' '# a list' 'unit tests: no memory for them' 'test_wrong: a reason' >"$tree/tests/tsan.skip"
script found 'echo WARNING >"${TSAN_OPTIONS##*log_path=}.1"' 'assert_equal one 1 1' finish
verdict found "  FAIL  test_found (exit 1" 1 # no path without the sanitizer, so this file cannot be written
verdict program "  FAIL  test_program (exit 1" 1
export TSAN=1
verdict whole "  pass  test_whole" 0
verdict found "  FAIL  test_found (exit 0, but the thread sanitizer reported" 1
run several env -u MEDUSA_BUILD BUILD=build ONLY="test_found test_whole" bash "$tree/tests/run.sh"
assert_exit several 1
assert_contains "$work/several.out" "  FAIL  test_found (exit 0, but the thread sanitizer reported"
assert_contains "$work/several.out" "  pass  test_whole"
verdict wrong "  skip  test_wrong: a reason" 0
verdict program "  skip  test_program: no memory for them" 0
unset TSAN

section "scripts for a GPU"
gpu() { # name, exit code, lines after begin...
	local name=$1 wanted=$2
	printf '%s\n' '. "$(dirname "$0")/cases.sh"' 'one() { [ "$1" = good ] && passes well; fails badly; }' 'begin "$@"' \
		"${@:3}" >"$tree/tests/gpu/$name.sh"
	run "$name" env -u ONLY -u OUT MEDUSA_DEVICE=host bash "$tree/tests/gpu/$name.sh"
	assert_exit "$name" "$wanted"
}
gpu gpu_whole 0 'cases good' finish
assert_contains "$work/gpu_whole.out" "tests/gpu/gpu_whole: 1 passed, 0 failed, 0 skipped"
gpu gpu_wrong 1 'cases good bad' finish
assert_contains "$work/gpu_wrong.out" "tests/gpu/gpu_wrong: 1 passed, 1 failed, 0 skipped"
gpu gpu_early 1 'cases good'
assert_contains "$work/gpu_early.out" "tests/gpu/gpu_early: ended without finish"
gpu gpu_left 1 'cases bad' 'exit 0' finish
assert_contains "$work/gpu_left.out" "tests/gpu/gpu_left: ended without finish"
gpu gpu_needs 77 'exit 77' finish
assert_lacks "$work/gpu_needs.out" "ended without finish"
finish
