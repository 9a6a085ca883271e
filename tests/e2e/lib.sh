# SPDX-License-Identifier: Apache-2.0
# Sourced by test_*.sh: the tiny engine on hostcuda, and assertions that say what was expected and go on.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
MEDUSA_DEVICE=host
. tests/e2e/device.sh
unset MEDUSA_LOG MEDUSA_LOG_FILE MEDUSA_RESOLVE MEDUSA_ARTIFACT MEDUSA_REQUIRE_PROOF MEDUSA_PROBE HOSTCUDA_FAULT HOSTCUDA_MEM
bin=$MEDUSA_BUILD/bin
export PATH=$bin:$PATH
export SOURCE_DATE_EPOCH=1700000000 # artifacts made in two seconds are equal
work=$(mktemp -d "${TMPDIR:-/tmp}/medusa-e2e.XXXXXX") || exit 1
mounted="" # a file system that the script has mounted, if any
# A child of bash that is told to end before it has become another program runs the trap, too: what it finds is the script's, which goes on.
leave() {
	[ "$BASHPID" = $$ ] || return
	[ -z "$mounted" ] || umount "$mounted"
	[ -n "${KEEP:-}" ] || rm -rf "$work" ${rooted:+"$rooted"}
}
trap leave EXIT
checks=0 failures=0 section="(start)"

engine_binary=$MEDUSA_BUILD/models/llama/llama-engine
engine=("$engine_binary" --recipe models/recipes/tiny.yaml --batches 1,2,4 --max-kv-bytes 1000000 --tokens 6 --quiet)
graphs=3

section() { section=$*; }

fail() { # what was expected, what was there
	failures=$((failures + 1))
	printf 'FAIL %s: expected %s\n     got %s\n' "$section" "$1" "$2"
}

# A misspelt assertion is a failure. Bash runs this in a process of its own.
command_not_found_handle() {
	echo "no command $1" | tee -a "$work/unknown_commands" >&2
	return 127
}

finish() {
	[ ! -e "$work/unknown_commands" ] || failures=$((failures + 1))
	printf '%d checks, %d failures%s\n' $checks $failures "${KEEP:+; files in $work}"
	[ $failures = 0 ] && [ $checks -gt 0 ]
	exit $?
}

# ---- running: output in $work/NAME.out and .err, exit code in $code; only what hangs reaches run_limit ----------------
run_limit=600
engine_limit=1800 # of an engine that a script talks with all along
patience=120      # seconds, for an engine's answer
run() { # name, command...
	local name=$1
	shift
	code=0
	timeout --kill-after=5 "$run_limit" "$@" >"$work/$name.out" 2>"$work/$name.err" || code=$?
}

# A command beside the script whose exit code is wanted much later: bash forgets the status of a child when another one is given its process id.
run_beside() { # name, command...
	(
		run "$@"
		printf '%s\n' "$code" >"$work/$1.part" && mv "$work/$1.part" "$work/$1.exit"
	) &
}

await_beside() { # name; sets code
	for _ in $(seq $((run_limit * 10))); do
		[ -f "$work/$1.exit" ] && break
		sleep 0.1
	done
	code=$(cat "$work/$1.exit") || fail "$1 to end" "it runs on after $run_limit s"
}

# A process that the script talks with, over named pipes: sets NAME_in, NAME_out, which are descriptors, and NAME_shell, its process id.
# Bash's coprocesses are no choice where one follows another: the end of an earlier one closes descriptors of the next.
conversations=()
converse() { # name, command...
	local -n in_=$1_in out_=$1_out shell_=$1_shell
	local fd pipe=$work/converse.$1
	rm -f "$pipe.in" "$pipe.out"
	mkfifo "$pipe.in" "$pipe.out"
	(
		for fd in "${conversations[@]}"; do exec {fd}>&-; done # else no other process sees the end of its input before this one ends
		exec "${@:2}"
	) <"$pipe.in" >"$pipe.out" &
	shell_=$!
	exec {in_}>"$pipe.in" {out_}<"$pipe.out"
	conversations+=("$in_" "$out_")
}

# The engine's report goes to $work/NAME.json.
run_live() { # name, more arguments of the engine...
	local name=$1
	shift
	run "$name" "${engine[@]}" --report "$work/$name.json" "$@"
}

run_restored() { # name, artifact, more arguments of the engine...
	local name=$1 artifact=$2
	shift 2
	run "$name" medusa-restore "$artifact" ${resolve:+--resolve "$resolve"} -- "${engine[@]}" --report "$work/$name.json" "$@"
}

capture() { # name, options of medusa-capture...; the artifact is $work/NAME.medusa
	local name=$1
	shift
	run "$name" medusa-capture -o "$work/$name.medusa" "$@" -- "${engine[@]}"
}

lives() { # process id: it runs, and is no zombie that nobody has waited for yet, which may be sent signals, too
	local status=
	{ read -r -d '' status <"/proc/$1/stat"; } 2>/dev/null
	[[ ${status##*) } == [!ZX]* ]]
}

# For env: an older driver, which is hostcuda with one entry point under a name that nobody asks for.
driver_without() { # entry point
	mkdir -p "$work/without_$1"
	sed "s/$1\\x00/x${1:1}\\x00/g" "$MEDUSA_BUILD/lib/hostcuda/libcuda.so.1" >"$work/without_$1/libcuda.so.1"
	printf '%s' "LD_LIBRARY_PATH=$work/without_$1:$LD_LIBRARY_PATH"
}

# For env: a library without the command that preloads it.
preload() { printf '%s' "LD_PRELOAD=$MEDUSA_BUILD/lib/libmedusa-$1.so"; }

# ---- programs in manual pages -----------------------------------------------------------------------------------------
fenced() { # page, kind, name: the lines between .EX and .EE behind that mark, as a reader sees them
	mark=".\\\" $2: $3" awk 'index($0 " ", ENVIRON["mark"] " ") == 1 { found = 1; next } found && /^\.EE/ { exit } found && !/^\.EX/' "$1" |
		sed 's/^\\&//; s/\\(aq/'"'"'/g; s/\\(ha/^/g; s/\\(ti/~/g; s/\\-/-/g; s/\\e/\\/g'
}

# ---- engines of one kind of graph: SUBJECT_subject, with the image of its kernel --------------------------------------
subject_of() { # name, name of its kernels (default: its own)
	subject=("$MEDUSA_BUILD/tests/subjects/$1_subject" "$MEDUSA_BUILD/tests/images/${2:-$1}_kernels.host.so")
	export TMPDIR=$work/tmp # where commands work, which is looked into at the end
	mkdir -p "$TMPDIR"
}

subject_live() { # name, arguments of the subject...
	local name=$1
	shift
	run "$name.live" "${subject[@]}" "$@"
	assert_exit "$name.live" 0
}

subject_restored() { # name, how many graphs are restored from $work/NAME.medusa, arguments of the subject...
	local name=$1 count=$2
	shift 2
	run "$name.restored" medusa-restore "$work/$name.medusa" -- "${subject[@]}" "$@"
	assert_exit "$name.restored" 0
	assert_same_file "$work/$name.live.out" "$work/$name.restored.out"
	assert_count "$work/$name.restored.err" " is restored" "$count"
}

# ---- reading reports -------------------------------------------------------------------------------------------------
number() { # name of a run, key: the number of that key in its report, wherever it stands
	sed -n "s/.*\"$2\": \([0-9][0-9]*\).*/\1/p" "$work/$1.json" 2>/dev/null | head -n 1
}

logits() { sed -n 's/.*"logits_xxh3": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json" 2>/dev/null; }

excerpt() { # of a file, for a message
	[ -e "$1" ] || { echo "no file $1"; return; }
	[ -s "$1" ] || { echo "(nothing in ${1##*/})"; return; }
	head -c 600 "$1" | head -n 8 | sed '2,$s/^/         /'
	[ "$(wc -l <"$1")" -le 8 ] || tail -n 4 "$1" | tail -c 1200 | sed 's/^/         /; 1s/^/         ...\n/' # commands say at the end why they fail
}

# ---- assertions ------------------------------------------------------------------------------------------------------
assert_equal() { # what, expected, got
	checks=$((checks + 1))
	[ "$2" = "$3" ] || fail "$1 to be '$2'" "'$3'"
}

assert_at_most() { # what, most, got; nothing is not little
	checks=$((checks + 1))
	[ "${3:-$(($2 + 1))}" -le "$2" ] || fail "$1 to be at most $2" "'${3:-}'"
}

assert_at_least() { # what, least, got
	checks=$((checks + 1))
	[ "${3:-0}" -ge "$2" ] || fail "$1 to be at least $2" "'$3'"
}

assert_exit() { # name of a run, expected code
	checks=$((checks + 1))
	[ "$code" = "$2" ] || fail "exit code $2 of '$1'" "$code; $(excerpt "$work/$1.err")"
}

assert_contains() { # file, fixed text
	checks=$((checks + 1))
	grep -qF -- "$2" "$1" 2>/dev/null || fail "'$2' in ${1##*/}" "$(excerpt "$1")"
}

assert_lacks() { # file, fixed text
	checks=$((checks + 1))
	! grep -qF -- "$2" "$1" 2>/dev/null || fail "no '$2' in ${1##*/}" "$(grep -F -m 3 -- "$2" "$1")"
}

assert_count() { # file, fixed text, lines that hold it
	local count
	checks=$((checks + 1))
	count=$(grep -cF -- "$2" "$1" 2>/dev/null)
	[ "$count" = "$3" ] || fail "'$2' in $3 lines of ${1##*/}" "$count; $(excerpt "$1")"
}

assert_file() {
	checks=$((checks + 1))
	[ -s "$1" ] || fail "a file $1" "$(ls -l "$1" 2>&1)"
}

assert_no_file() {
	checks=$((checks + 1))
	[ ! -e "$1" ] || fail "no file $1" "$(ls -l "$1")"
}

assert_same_file() { # two files, bit for bit
	checks=$((checks + 1))
	cmp -s "$1" "$2" || fail "${2##*/} to equal ${1##*/}" "$(cmp "$1" "$2" 2>&1)"
}

# Text and every logit; both runs must have said something.
assert_same_output() { # expected run, run
	local expected
	expected=$(logits "$1")
	checks=$((checks + 1))
	[ -n "$expected" ] && [ -s "$work/$1.out" ] || fail "output of run '$1'" "none; $(excerpt "$work/$1.err")"
	assert_same_file "$work/$1.out" "$work/$2.out"
	assert_equal "logits hash of run '$2'" "$expected" "$(logits "$2")"
}

assert_restored() { # run, graphs restored, graphs captured live
	assert_equal "graphs restored in run '$1'" "$2" "$(number "$1" graphs_restored)"
	assert_equal "graphs captured live in run '$1'" "$3" "$(number "$1" graphs_live)"
}

# The fail-closed contract: the engine runs as if nothing had been there, and the reason stands in its log and report.
assert_refused() { # expected (live) run, run, reason
	local said
	assert_exit "$2" 0
	assert_same_output "$1" "$2"
	assert_restored "$2" 0 "$(number "$1" graphs_live)"
	assert_contains "$work/$2.err" "$3"
	assert_contains "$work/$2.json" "$(printf %s "$3" | sed 's/\\/\\\\/g; s/"/\\"/g')"
	checks=$((checks + 1))
	said=$(grep -c 'is not restored\|nothing is restored' "$work/$2.err")
	{ [ "$said" -ge 1 ] && [ "$said" -le $graphs ] && [ "$(grep 'is not restored\|nothing is restored' "$work/$2.err" | sort | uniq -d)" = "" ]; } ||
		fail "a reason for each graph at most once" "$said lines; $(excerpt "$work/$2.err")"
}

# ... in one line, when nothing at all can come of the artifact.
assert_refused_whole() { # expected run, run, reason
	assert_refused "$@"
	assert_count "$work/$2.err" "nothing is restored" 1
	assert_equal "lines on stderr of run '$2'" 1 "$(wc -l <"$work/$2.err")"
}
