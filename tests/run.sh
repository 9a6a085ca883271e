#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test that needs no GPU: unit tests and whole processes. Prints one line a suite, with the seconds it took and those of
# processors that it used (without what daemons used that nobody waited for), and a closing count.
# JOBS=N: so many suites at once (what that counts stands below). LOGS=FOLDER: where their output goes.
# ONLY="test_stop test_capture*" picks suites by name; a name that no suite has is a failure.
set -u
[ $# = 0 ] || { echo "tests/run.sh: unknown argument '$1': it takes none; suites are picked by ONLY, as in ONLY='$*' tests/run.sh" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=${BUILD:-build}
export MEDUSA_BUILD=$PWD/$build LD_LIBRARY_PATH=$PWD/$build/lib/hostcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export HOSTCUDA_THREADS=${HOSTCUDA_THREADS:-16} # blocks that race do so on small machines, too
if [ -n "${SAN:-}" ]; then
	export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=1:handle_segv=1:allow_user_segv_handler=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
fi
logs=${LOGS:-$PWD/$build/tests/logs}
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

# What failed first is often the reason of all that follows.
excerpt_of() { # log
	if [ "$(wc -l <"$1")" -le 80 ]; then cat "$1"; else head -n 30 "$1" && echo "[... the rest is in $1; its last lines:]" && tail -n 50 "$1"; fi
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
	*) failed=$((failed + 1)); printf '  FAIL  %s (exit %s, %d s), its output:\n' "$1" "$2" "$4"; excerpt_of "$3" | sed 's/^/        /' ;;
	esac
}

# Three queues run side by side: suites that work, as many at once as there are cores, and one more; suites that do little but wait, for
# deadlines above all; and those that install or pack what is in the build folder, one after the other. JOBS=N: so many that work, and
# with JOBS=1 all suites one after the other. In each list the longest are first: one that began last would run alone for long.
jobs=${JOBS:-$(($(nproc) + 1))}
declare -A places=([work]=$jobs [wait]=6 [install]=1)
[ -z "${SAN:-}${TSAN:-}" ] || places[wait]=2 # with sanitizers they work, too
declare -A suites=(
	[work]="test_vllm_plugin test_faults test_torture test_pieces test_groups test_probe_kernel test_wide test_deps test_order test_lora_serve
		test_serve test_swap test_swap_exchange_spill test_refusals test_swap_full test_scheduler_tables test_swap_offers test_worker_soak
		test_swap_share test_swap_merge test_fuzz_corpus test_alone test_swap_engine"
	[wait]="test_worker test_swap_carrier test_swap_overlap test_swap_peers test_swap_silent test_ranks_lockstep test_ranks_stopped test_ranks_memory test_ranks_peers test_worker_accounting test_commands test_worker_peers test_worker_content test_worker_cluster test_worker_cluster_tls test_worker_bill
		test_worker_gpus test_cache test_hostile test_worker_placement test_cluster_chaos test_worker_control test_ranks_agree test_worker_adapters test_worker_backbone test_worker_adopt
		test_bundle test_swap_neighbours test_timeout test_worker_injected test_worker_cgroups test_host_commands test_worker_groups
		test_torch_table test_given test_constants test_worker_neighbours test_worker_page test_worker_http test_worker_hostile test_rounds
		test_worker_pool test_worker_template test_swap_lending test_lending_push test_swap_lenders test_steps test_tp_bench test_lora_bench test_ranks_assumed test_ranks_many"
	[install]="test_wheel test_packages test_lint test_install"
)
[ "$jobs" -gt 1 ] || suites=([work]="${suites[*]}" [wait]="" [install]="")

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

# What is to be run, as NAME:run_program or NAME:run_script.
declare -A found=()
others=()
add() { # name, run_program or run_script, what it is
	wanted "$1" || return
	if unfit "$1" "$3"; then
		report "$1" 77 "$logs/$1.log"
	elif [[ " "${suites[*]//[[:space:]]/ }" " == *" $1 "* ]]; then
		found[$1]+=" $1:$2"
	else
		others+=("$1:$2")
	fi
}
for suite in "$build"/tests/test_*; do
	[ ! -x "$suite" ] || add "$(basename "$suite")" run_program "unit tests"
done
for script in tests/e2e/test_*.sh; do
	[ ! -e "$script" ] || add "$(basename "$script" .sh)" run_script "a script"
done
queue_work=() queue_wait=() queue_install=()
for kind in "${!suites[@]}"; do
	declare -n queue=queue_$kind
	for name in ${suites[$kind]}; do
		queue+=(${found[$name]:-})
	done
done
queue_work+=("${others[@]}")

declare -A running=() runs=() used=([work]=0 [wait]=0 [install]=0) # process id -> name, kind; name -> it runs; kind -> how many
await_one() {
	local pid name kind
	wait -n -p pid "${!running[@]}"
	read -r name kind <<<"${running[$pid]}"
	report_ended "$name"
	unset "running[$pid]" "runs[$name]"
	used[$kind]=$((used[$kind] - 1))
}

# A place of a kind that has nothing more to run is one for a suite that waits.
has_place() { # kind
	local free=$((places[$1] - used[$1])) other
	for other in work install; do
		local -n others_queue=queue_$other
		[ "$1" != wait ] || [ ${#others_queue[@]} -gt 0 ] || free=$((free + places[$other] - used[$other]))
	done
	[ $free -gt 0 ]
}

start_one() { # kind
	local -n queue=queue_$1
	local at name
	for at in "${!queue[@]}"; do
		name=${queue[at]%:*}
		[ -z "${runs[$name]:-}" ] || continue # a script that has the name of a program has its log, too
		"${queue[at]#*:}" "$name" &
		running[$!]="$name $1" runs[$name]=1 used[$1]=$((used[$1] + 1))
		unset "queue[at]"
		return 0
	done
	return 1
}

while :; do
	for kind in work wait install; do
		while has_place $kind && start_one $kind; do :; done
	done
	[ ${#running[@]} -gt 0 ] || break
	await_one
done
for pattern in "${unused[@]}"; do
	echo "  FAIL  ONLY=$pattern: no suite has this name"
	failed=$((failed + 1))
done
printf '%d passed, %d failed, %d skipped, %d s\n' $passed $failed $skipped $SECONDS
[ $failed = 0 ]
