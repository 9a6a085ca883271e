#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test that needs no GPU: unit tests and whole processes. Prints one line a suite, with the seconds it took and those of
# processors that it used (without what daemons used that nobody waited for), and a closing count.
# JOBS=N: so many suites at once.
# ONLY="test_stop test_capture*" picks suites by name; a name that no suite has is a failure.
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build}
export MEDUSA_BUILD=$PWD/$build LD_LIBRARY_PATH=$PWD/$build/lib/hostcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export HOSTCUDA_THREADS=${HOSTCUDA_THREADS:-16} # blocks that race do so on small machines, too
if [ -n "${SAN:-}" ]; then
	export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=1:handle_segv=1:allow_user_segv_handler=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
fi
logs=$PWD/$build/tests/logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0
read -ra only <<<"${ONLY:-}"
unused=("${only[@]}")
# A python3 that is a script and looks for the interpreter takes several times as long as the interpreter to start.
python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null)
[ -x "$python" ] && [ -x "${python%/*}/python3" ] && export PATH=${python%/*}:$PATH

wanted() { # name; takes the patterns that fit it out of those that none has fitted
	local pattern found=1
	[ ${#only[@]} -gt 0 ] || return 0
	for pattern in "${!only[@]}"; do
		[[ $1 == ${only[pattern]} ]] && found=0 && unset "unused[pattern]"
	done
	return $found
}

# A script that ends early with 0 has not tested what stands below: the sum that finish() or torture.py prints last decides.
finished() { # log
	tail -n 1 "$1" | grep -qE '^[1-9][0-9]* (checks, 0 failures|points, 0 wrong)'
}

# Whether the thread sanitizer cannot run the suite; the log says why (tests/tsan.skip).
unfit() { # name, what it is
	[ -n "${TSAN:-}" ] || return 1
	rm -f "$logs/$1".tsan.*
	local suite reason
	while IFS=: read -r suite reason; do
		[ "$suite" = "$1" ] || [ "$suite" = "$2" ] || continue
		echo "${reason# }" >"$logs/$1.log"
		return 0
	done <tests/tsan.skip
	return 1
}

# Called when the suite is run, not before: reports of all its processes are in files of its name.
watch_threads() { # name
	[ -n "${TSAN:-}" ] || return
	rm -f "$logs/$1".tsan.*
	export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp:die_after_fork=0:log_path=$logs/$1.tsan
}

# A sanitizer's finding in a test's own process leaves the suite's exit code at 0, so the log decides. Those of the thread
# sanitizer are in files, whichever process of the suite they are about.
report() { # name, exit code, log, seconds, seconds of processors
	if [ -n "${TSAN:-}" ] && cat "$logs/$1".tsan.* >>"$3" 2>/dev/null; then
		set -- "$1" "$2, but the thread sanitizer reported" "${@:3}"
	fi
	if [ "$2" = 0 ] && [ -n "${SAN:-}" ] && grep -qE 'ERROR: (Leak|Address)Sanitizer|runtime error: ' "$3"; then
		set -- "$1" "0, but a sanitizer reported" "${@:3}"
	fi
	case $2 in
	0) passed=$((passed + 1)); printf '  pass  %s (%d s, %d s of processors)\n' "$1" "$4" "$5" ;;
	77) skipped=$((skipped + 1)); printf '  skip  %s: %s\n' "$1" "$(tail -n 1 "$3")" ;;
	*) failed=$((failed + 1)); printf '  FAIL  %s (exit %s, %d s), its output:\n' "$1" "$2" "$4"; tail -n 60 "$3" | sed 's/^/        /' ;;
	esac
}

# As many run at once as there are cores, and one more, as scripts wait, too (JOBS=1: one after the other). These build in
# the tree, or want it unchanged, and run alone in the end.
alone=" test_install test_lint test_packages test_wheel "
jobs=${JOBS:-$(($(nproc) + 1))}
# These do little but wait, for deadlines above all; beside all others, two at once, from the beginning on, the longest first.
# No program has one of these names.
patient=" test_worker test_swap_peers test_swap_carrier test_swap_silent test_ranks_lockstep test_swap_overlap test_worker_accounting test_worker_injected "
# Of the others these take longest, and come first: one that began last would run alone for long.
long=" test_torture test_bundle test_vllm_plugin test_swap_neighbours test_faults test_order test_worker_adapters test_worker_control test_ranks_agree "

# Engines and daemons that a script did not end, because it was ended itself: they have its mark in their environment.
end_left() { # mark, file that gets a line for each
	local file pid
	for file in $(grep -lsxz "MEDUSA_SUITE=$1" /proc/[0-9]*/environ); do
		pid=${file#/proc/} pid=${pid%/environ}
		printf '%s %s\n' "$pid" "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c1-120)" >>"$2"
		kill -KILL "$pid" 2>/dev/null
	done
}

# Both leave the suite's code, its seconds and those of processors beside its log.
TIMEFORMAT='%0U %0S'
leave_end() { # name, code, seconds
	local cpu=(0 0)
	read -ra cpu < <(tail -n 1 "$logs/$1.cpu")
	printf '%s\n%s\n%s\n' "$2" "$3" $((cpu[0] + cpu[1])) >"$logs/$1.end"
}

run_program() { # name
	local name=$1 began=$SECONDS
	watch_threads "$name"
	rm -f "$logs/$name.left"
	{ time timeout 1800 "$build/tests/$name" --jobs 1 >"$logs/$name.log" 2>&1; } 2>"$logs/$name.cpu"
	leave_end "$name" $? $((SECONDS - began))
}

run_script() { # name
	local name=$1 began=$SECONDS code
	watch_threads "$name"
	rm -f "$logs/$name.left"
	{ time MEDUSA_SUITE=$name.$BASHPID timeout 3600 bash "tests/e2e/$name.sh" >"$logs/$name.log" 2>&1; } 2>"$logs/$name.cpu"
	code=$?
	end_left "$name.$BASHPID" "$logs/$name.left"
	[ $code != 0 ] || finished "$logs/$name.log" || code="0, but it ended without its count of checks"
	leave_end "$name" "$code" $((SECONDS - began))
}

report_ended() { # name
	local lines
	mapfile -t lines <"$logs/$1.end"
	report "$1" "${lines[0]}" "$logs/$1.log" "${lines[1]}" "${lines[2]}"
	[ ! -s "$logs/$1.left" ] || sed 's/^/        left running, and ended: /' "$logs/$1.left"
}

declare -A running=() # process id -> name
await_one() {
	local pid
	wait -n -p pid "${!running[@]}"
	report_ended "${running[$pid]}"
	unset "running[$pid]"
}

run_all() { # run_program or run_script, names...
	local name
	for name in "${@:2}"; do
		[ ${#running[@]} -lt "$jobs" ] || await_one
		"$1" "$name" &
		running[$!]=$name
	done
	while [ ${#running[@]} -gt 0 ]; do
		await_one
	done
}

in_order() { # a list, names: those of the list that are among the names
	local name
	for name in $1; do
		[[ " ${*:2} " != *" $name "* ]] || printf '%s\n' "$name"
	done
}

last=() waiting=() first=() scripts=() programs=()
for script in tests/e2e/test_*.sh; do
	[ -e "$script" ] || continue
	name=$(basename "$script" .sh)
	wanted "$name" || continue
	if unfit "$name" "a script"; then
		report "$name" 77 "$logs/$name.log"
		continue
	fi
	if [[ $alone == *" $name "* ]]; then
		last+=("$name")
		continue
	fi
	if [[ $patient == *" $name "* && $jobs -gt 1 ]]; then
		waiting+=("$name")
	elif [[ $long == *" $name "* ]]; then
		first+=("$name")
	else
		scripts+=("$name")
	fi
done
mapfile -t waiting < <(in_order "$patient" "${waiting[@]}")
mapfile -t first < <(in_order "$long" "${first[@]}")
(jobs=2 && run_all run_script "${waiting[@]}" >/dev/null) & # its lines are printed below, where they are counted
lane=$!
for suite in "$build"/tests/test_*; do
	[ -x "$suite" ] || continue
	name=$(basename "$suite")
	wanted "$name" || continue
	if unfit "$name" "unit tests"; then
		report "$name" 77 "$logs/$name.log"
		continue
	fi
	programs+=("$name")
done
run_all run_program "${programs[@]}"
run_all run_script "${first[@]}" "${scripts[@]}" # some have the name of a program, and its log
wait "$lane"
for name in "${waiting[@]}"; do
	report_ended "$name"
done
for name in "${last[@]}"; do
	run_script "$name"
	report_ended "$name"
done
for pattern in "${unused[@]}"; do
	echo "  FAIL  ONLY=$pattern: no suite has this name"
	failed=$((failed + 1))
done
printf '%d passed, %d failed, %d skipped, %d s\n' $passed $failed $skipped $SECONDS
[ $failed = 0 ]
