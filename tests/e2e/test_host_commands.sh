#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Commands in odd surroundings: outputs that cannot be, two at once, signals, closed descriptors, folders with odd names.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/host_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")
chmod 755 "$work"
mkdir "$work/out" "$work/tmp"
export TMPDIR=$work/tmp
run alone "${subject[@]}"
assert_exit alone 0

left() { # what lies in the folders of outputs and temporaries
	(cd "$work" && ls -A out tmp)
}
nothing_left=$(left)

# ---- outputs ---------------------------------------------------------------------------------------------------------
section "an output that cannot be written is noticed before the engine runs"
mkfifo "$work/pipe"
ln -s "$work/nowhere/file" "$work/dangling"
long=$(printf 'x%.0s' {1..300})
refused() { # output, reason, exit code if it is not 3
	section "-o $1"
	run refused medusa-capture -o "$1" -- touch "$work/ran"
	assert_exit refused "${3:-3}"
	assert_contains "$work/refused.err" "$2"
	assert_no_file "$work/ran"
}
refused "$work" "is a folder"
refused "$work/out/" "is a folder"
refused "$work/pipe" "is a pipe"
refused /dev/null "is a device"
refused "$work/nowhere/a.medusa" "No such file or directory"
refused "$work/nowhere/" "No such file or directory"
refused "$work/dangling" "a link to a file that does not exist"
refused "$work/out/$long.medusa" "File name too long"
refused "" "No such file or directory"
refused Makefile/a.medusa "Not a directory"
for junit in "$work" "$work/nowhere/a.xml"; do
	section "--junit $junit"
	run artifact medusa-capture -o "$work/good.medusa" -- "${subject[@]}"
	run refused medusa-verify "$work/good.medusa" --junit "$junit" -- touch "$work/ran"
	assert_exit refused 4
	assert_no_file "$work/ran"
done
mkdir "$work/readonly"
if mount -t tmpfs -o size=1m,ro none "$work/readonly" 2>/dev/null; then
	refused "$work/readonly/a.medusa" "Read-only file system"
	mount -o remount,rw,size=8k "$work/readonly"
	head -c 8192 /dev/zero >"$work/readonly/ballast"
	refused "$work/readonly/a.medusa" "No space left on device" 4
	umount "$work/readonly"
fi
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	section "another user's folder"
	run refused setpriv --reuid 65534 --regid 65534 --clear-groups "$bin/medusa-capture" -o "$work/a.medusa" -- touch "$work/tmp/ran"
	assert_exit refused 3
	assert_contains "$work/refused.err" "$work: cannot write into this folder: Permission denied"
	assert_no_file "$work/tmp/ran"
fi

section "a link as output: its target is written"
touch "$work/out/target"
ln -s out/target "$work/link.medusa"
run link medusa-capture -o "$work/link.medusa" -- "${subject[@]}"
assert_exit link 0
checks=$((checks + 1))
[ -L "$work/link.medusa" ] || fail "a link" "$(ls -l "$work/link.medusa")"
assert_file "$work/out/target"
rm "$work/out/target"

section "a relative output, and an engine that goes elsewhere"
code=0
(cd "$work" && HOST_BEFORE=chdir=/ medusa-capture -o out/relative.medusa --keep-traces -- "${subject[@]}") >"$work/relative.out" 2>"$work/relative.err" || code=$?
assert_exit relative 0
assert_file "$work/out/relative.medusa"
assert_file "$work/out/relative.1.mtrace"
assert_file "$work/out/relative.2.mtrace"
rm "$work"/out/relative*
assert_equal "what is left" "$nothing_left" "$(left)"

# ---- two at once -----------------------------------------------------------------------------------------------------
wait_for_file() {
	local i
	for ((i = 0; i < 1500; i++)); do
		[ ! -e "$1" ] || return 0
		sleep 0.02
	done
	fail "a file $1" "none after 30 s"
}

section "two captures into one output"
HOST_AFTER="wait=$work/go" medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}" >"$work/first.out" 2>"$work/first.err" &
first=$!
wait_for_file "$work/go.ready"
run second medusa-capture -o "$work/out/../out/one.medusa" -- touch "$work/ran"
assert_exit second 4
assert_contains "$work/second.err" "one.medusa: process $first on "
assert_contains "$work/second.err" "is working on it (it holds $work/out/one.medusa.lock)"
assert_no_file "$work/ran"
touch "$work/go"
code=0
wait $first || code=$?
assert_exit first 0
run inspected medusa-inspect "$work/out/one.medusa"
assert_contains "$work/inspected.out" "2 graphs"
rm "$work/go" "$work/go.ready" "$work/out/one.medusa"
assert_equal "what is left" "$nothing_left" "$(left)"

section "what a killed run has left goes with the next one; its engine records on, into nothing"
HOST_AFTER="wait=$work/go" medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}" >"$work/first.out" 2>"$work/first.err" &
first=$!
wait_for_file "$work/go.ready"
kill -KILL $first
{ wait $first; } 2>/dev/null
run next medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}"
assert_exit next 0
assert_contains "$work/next.err" "removed, left behind by process $first"
assert_equal "files" one.medusa "$(ls -A "$work/out")"
touch "$work/go"
rm "$work/go.ready"

section "a lock file that names something else is not believed"
mkdir "$work/out/precious" "$work/out/one.medusa.tmp-"
touch "$work/out/precious/file"
for named in precious one.medusa.tmp-/../precious ../out/precious "" "one.medusa.tmp-/"; do
	printf 'process 1\n%s\n' "$named" >"$work/out/one.medusa.lock"
	run next medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}"
	assert_exit next 0
	checks=$((checks + 1))
	[ -e "$work/out/precious/file" ] || fail "a file" "it is gone"
done
ln -s "$work/out/precious/file" "$work/out/one.medusa.lock"
run next medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}"
assert_exit next 4
assert_equal "a file through a link" "" "$(cat "$work/out/precious/file")"
rm -r "$work/out/precious" "$work/out/one.medusa.tmp-" "$work/out/one.medusa.lock"

section "an artifact without graphs does not replace one with graphs"
cp "$work/out/one.medusa" "$work/before.medusa"
run nothing medusa-capture -o "$work/out/one.medusa" -- true
assert_exit nothing 5
assert_same_file "$work/before.medusa" "$work/out/one.medusa"
rm "$work/out/one.medusa"
assert_equal "what is left" "$nothing_left" "$(left)"

# ---- signals ---------------------------------------------------------------------------------------------------------
cat >"$work/engine.sh" <<'END'
trap 'echo told >>"$TOLD"' TERM INT HUP
"$@" &
wait $!
wait $!
END
for command in capture verify; do
	for signal in TERM INT HUP; do
		section "SIG$signal of medusa-$command"
		rm -f "$work/go" "$work/go.ready" "$work/told"
		arguments=(-o "$work/out/one.medusa")
		[ $command = capture ] || arguments=("$work/good.medusa")
		# Background processes of a script have SIGINT ignored; env gives it back.
		TOLD=$work/told HOST_AFTER="wait=$work/go" env --default-signal=INT "$bin/medusa-$command" "${arguments[@]}" -- \
			bash "$work/engine.sh" env --default-signal=INT "${subject[@]}" >"$work/told.out" 2>"$work/told.err" &
		victim=$!
		wait_for_file "$work/go.ready"
		kill -$signal $victim
		wait_for_file "$work/told"
		touch "$work/go"
		code=0
		wait $victim || code=$?
		assert_exit told $((128 + $(kill -l $signal)))
		assert_equal "signals that the engine got" 1 "$(wc -l <"$work/told")"
		assert_equal "what is left" "$nothing_left" "$(left)"
	done
done

# Its parent ends at once; what it has started goes on and makes files of the command's, by their paths.
cat >"$work/orphan.sh" <<'END'
$APART bash -c 'echo $$ >"$PIDS"; trap "" $DEAF; while :; do : >>"$MEDUSA_NOTES"; done' &
"$@" &
until [ -s "$PIDS" ] && [ -e "$READY" ]; do sleep 0.02; done
: >"$READY.both"
wait
END
orphaned() { # how the engine's other process is started, signals that it does not hear
	rm -f "$work/go" "$work/go.ready" "$work/go.ready.both" "$work/pids"
	APART=$1 DEAF=$2 PIDS=$work/pids READY=$work/go.ready HOST_AFTER="wait=$work/go" \
		medusa-capture -o "$work/out/one.medusa" -- bash "$work/orphan.sh" "${subject[@]}" >"$work/orphan.out" 2>"$work/orphan.err" &
	victim=$!
	wait_for_file "$work/go.ready.both"
	code=0
}
for apart in "" setsid; do
	for deaf in USR1 "TERM HUP"; do
		section "an engine's other process goes on when the command is told to end (${apart:-same session}, deaf to $deaf)"
		orphaned "$apart" "$deaf"
		kill -TERM $victim
		wait $victim || code=$?
		assert_exit orphan 143
		sleep 0.1
		assert_equal "what is left" "$nothing_left" "$(left)"
		alive=$(lives "$(cat "$work/pids")" && echo yes || echo no)
		kill -KILL "$(cat "$work/pids")" 2>/dev/null
		assert_equal "whether it goes on" "$([ "$apart" ] && echo yes || echo no)" "$alive"
		touch "$work/go" # the engine itself was told by nobody if it is a daemon's child
	done
done
# A container's first process may be in a session that began outside; its id is 0 for all who are in the container.
section "an engine's other process goes on when the command is told to end (in a container)"
cat >"$work/container.sh" <<'END'
APART=setsid DEAF=TERM PIDS=$1/pids READY=$1/go.ready HOST_AFTER="wait=$1/go" \
	medusa-capture -o "$1/out/one.medusa" -- bash "$1/orphan.sh" "${@:2}" >"$1/orphan.out" 2>"$1/orphan.err" &
until [ -e "$1/go.ready.both" ]; do sleep 0.02; done
kill -TERM $!
wait $!
code=$?
sleep 0.1
[ -e "/proc/$(<"$1/pids")" ] && lives=yes || lives=no
echo "session $(cut -d' ' -f6 /proc/self/stat), exit $code, it goes on: $lives"
END
if unshare -pf --mount-proc true 2>/dev/null; then
	rm -f "$work/go" "$work/go.ready" "$work/go.ready.both" "$work/pids"
	assert_equal "what happened" "session 0, exit 143, it goes on: yes" \
		"$(timeout --kill-after=5 "$run_limit" unshare -pf --mount-proc bash "$work/container.sh" "$work" "${subject[@]}")"
	assert_equal "what is left" "$nothing_left" "$(left)"
else
	echo "not checked here, as process namespaces cannot be made: an engine's other process in a container"
fi

section "the command is killed, and the engine goes on: the next one removes what is left"
orphaned setsid TERM
kill -KILL $victim
{ wait $victim; } 2>/dev/null
assert_file "$work/out/one.medusa.lock"
run next medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}"
assert_exit next 0
assert_contains "$work/next.err" "removed, left behind by process $victim"
assert_equal "files" one.medusa "$(ls -A "$work/out")"
kill -KILL "$(cat "$work/pids")"
touch "$work/go"
rm -f "$work/out/one.medusa"
assert_equal "what is left" "$nothing_left" "$(left)"

# In a verification the engine's output goes there, too, and a pipe without reader ends it.
section "messages into a pipe that nobody reads"
mkfifo "$work/unread"
exec 8<>"$work/unread" 9>"$work/unread" 8<&-
code=0
HOST_QUIET=1 medusa-capture -o "$work/out/one.medusa" --no-verify -- "${subject[@]}" >"$work/unread.out" 2>&9 || code=$?
exec 9>&-
assert_exit unread 0
assert_file "$work/out/one.medusa"
rm -f "$work/out/one.medusa"

section "standard descriptors closed"
for closed in "0<&-" "1>&-" "2>&-" "0<&- 1>&- 2>&-"; do
	for command in "medusa-capture -o $work/out/one.medusa" "medusa-verify $work/good.medusa"; do
		section "$command with $closed"
		code=0
		bash -c "exec $command -- ${subject[*]} $closed" >"$work/closed.out" 2>"$work/closed.err" || code=$?
		# Nobody could read what medusa-verify has found; medusa-capture prints nothing there.
		case "${command%% *} $closed" in
		"medusa-verify "*1*) assert_exit closed 4 ;;
		*) assert_exit closed 0 ;;
		esac
		rm -f "$work/out/one.medusa"
	done
done
# Python leaves out what is printed where nothing is open, and fails where nothing can be written.
cat >"$work/speaks.sh" <<'END'
[ ! -e /proc/self/fd/1 ] || echo speaks || exit 9
exec "$@"
END
run speaks bash -c "exec medusa-verify $work/good.medusa -- sh $work/speaks.sh ${subject[*]} 2>&-"
assert_exit speaks 0
assert_equal "what is left" "$nothing_left" "$(left)"

section "few descriptors: the engine comes first"
within() { # limit, name, command...: as run does, whose own files are open before the limit is there
	local limit=$1 name=$2
	shift 2
	code=0
	timeout --kill-after=5 "$run_limit" bash -c 'ulimit -n "$0" && exec "$@"' "$limit" "$@" \
		>"$work/$name.out" 2>"$work/$name.err" || code=$?
}
for limit in $(seq 3 20); do
	section "at most $limit files may be open"
	within "$limit" few "${subject[@]}"
	few=$code
	within "$limit" few_restored "$bin/medusa-restore" "$work/good.medusa" -- "${subject[@]}"
	assert_exit few_restored "$few"
	[ "$few" = 0 ] || continue
	assert_same_file "$work/few.out" "$work/few_restored.out"
	for command in "medusa-capture -o $work/out/one.medusa" "medusa-verify $work/good.medusa"; do
		within "$limit" few_tool $command -- "${subject[@]}"
		assert_exit few_tool "$([ "$limit" -lt 16 ] && echo 4 || echo 0)"
		[ "$limit" -ge 16 ] || assert_contains "$work/few_tool.err" "the limit is $limit open files (ulimit -n), and Medusa leaves them to the command: at least 16 are needed"
	done
	[ "$limit" -ge 16 ] || assert_contains "$work/few_restored.err" "nothing is restored: this process was started with a limit of $limit open files"
	assert_count "$work/few_restored.err" " restored " "$([ "$limit" -lt 16 ] && echo 0 || echo 2)"
	within "$limit" few_traced env "$(preload capture)" MEDUSA_TRACE="$work/few.mtrace" "${subject[@]}"
	assert_exit few_traced 0
	assert_same_file "$work/few.out" "$work/few_traced.out"
	[ "$limit" -ge 16 ] || assert_contains "$work/few_traced.err" "nothing is recorded: this process was started with a limit of $limit open files"
	rm -f "$work/out/one.medusa"
done
assert_equal "what is left" "$nothing_left" "$(left)"

# ---- engines that end in their own way -------------------------------------------------------------------------------
ends() { # habit at the end, options of medusa-capture...
	local habit=$1
	shift
	section "an engine that ends by $habit ($*)"
	HOST_AT_END=$habit run ends medusa-capture -o "$work/out/one.medusa" "$@" -- "${subject[@]}"
}
for habit in killed _exit=0 _exit=7; do
	ends $habit
	assert_exit ends 4
	assert_no_file "$work/out/one.medusa"
	rm -f "$work"/out/one.*
	for until in graphs=2 mark=ready; do
		export HOST_AFTER=mark=ready
		ends $habit --until $until
		assert_exit ends 0
		assert_contains "$work/ends.err" "verification: 2 passed, 0 failed, 0 not compared"
		HOST_AT_END=$habit run ends medusa-verify "$work/out/one.medusa" --until $until -- "${subject[@]}"
		assert_exit ends 0
		unset HOST_AFTER
		run ends medusa-restore "$work/out/one.medusa" -- "${subject[@]}"
		assert_count "$work/ends.err" " restored" 2
		rm -f "$work"/out/one.*
	done
done

section "an engine that becomes a daemon"
rm -f "$work/go" "$work/go.ready" # the daemon works on until it is seen that it is waited for
HOST_BEFORE="daemon=$work/tmp/daemon" HOST_AFTER="wait=$work/go" run_beside daemon medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}"
for _ in $(seq 1200); do grep -qs "waiting for them" "$work/daemon.err" && break; sleep 0.05; done
touch "$work/go"
await_beside daemon
assert_exit daemon 0
assert_contains "$work/daemon.err" "waiting for them"
assert_contains "$work/daemon.err" "verification: 2 passed, 0 failed, 0 not compared"
rm -f "$work/tmp/daemon"
HOST_BEFORE="daemon=$work/tmp/daemon" run daemon medusa-verify "$work/out/one.medusa" -- "${subject[@]}"
assert_exit daemon 0
rm -f "$work/tmp/daemon" "$work/out/one.medusa" "$work/go" "$work/go.ready"
assert_equal "what is left" "$nothing_left" "$(left)"

# ---- rights ----------------------------------------------------------------------------------------------------------
section "a umask that takes everything"
(umask 0777; exec medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}") >"$work/mask.out" 2>"$work/mask.err"
code=$?
assert_exit mask 0
HOST_BEFORE=umask=0777 run mask medusa-capture -o "$work/out/one.medusa" -- "${subject[@]}"
assert_exit mask 0
rm -f "$work/out/one.medusa"

if [ "$(id -u)" = 0 ]; then
	mkdir -m 700 "$work/private"
	cp "$work/good.medusa" "$work/private/good.medusa"
	chmod 600 "$work/private/good.medusa"
	for folder in out private; do
		section "an engine that gives up its rights before it uses the device: output in $folder"
		HOST_BEFORE=setuid=65534 run rights medusa-capture -o "$work/$folder/one.medusa" -- "${subject[@]}"
		assert_exit rights 0
		assert_contains "$work/rights.err" "verification: 2 passed, 0 failed, 0 not compared"
		HOST_BEFORE=setuid=65534 run rights medusa-restore "$work/$folder/one.medusa" -- "${subject[@]}"
		assert_exit rights 0
		assert_count "$work/rights.err" " restored" 2
		HOST_BEFORE=setuid=65534 run rights medusa-verify "$work/$folder/one.medusa" -- "${subject[@]}"
		assert_exit rights 0
		rm -f "$work/$folder/one.medusa"
	done
	section "an artifact that it may not read then"
	HOST_BEFORE=setuid=65534 run rights medusa-restore "$work/private/good.medusa" -- "${subject[@]}"
	assert_exit rights 0
	assert_same_file "$work/alone.out" "$work/rights.out"
	assert_contains "$work/rights.err" "nothing is restored"
	assert_contains "$work/rights.err" "Permission denied"
	assert_equal "what is left" "$nothing_left" "$(left)"
fi

section "no /proc"
if unshare -m sh -c 'mount -t tmpfs none /proc' 2>/dev/null; then
	run bare unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$bin/medusa-restore" "$work/good.medusa" -- sh -c 'echo served; exit 7'
	assert_exit bare 7 # hostcuda itself needs /proc
	assert_equal "what the engine printed" served "$(cat "$work/bare.out")"
fi

section "an output whose name holds blanks, a line break and percent signs; what a killed run has left of it"
odd=$work/out/$'a b\n%n%s.medusa'
HOST_AFTER="wait=$work/odd" medusa-capture -o "$odd" -- "${subject[@]}" >"$work/first.out" 2>"$work/first.err" &
first=$!
wait_for_file "$work/odd.ready"
kill -KILL $first
{ wait $first; } 2>/dev/null
run odd medusa-capture -o "$odd" -- "${subject[@]}"
assert_exit odd 0
assert_contains "$work/odd.err" "removed, left behind by process $first"
touch "$work/odd"
run odd medusa-restore "$odd" -- "${subject[@]}"
assert_count "$work/odd.err" " restored" 2
rm -f "$odd"
assert_equal "what is left" "$nothing_left" "$(left)"

section "no environment at all"
code=0
env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$bin/medusa-capture" -o "$work/out/one.medusa" -- "${subject[@]}" >"$work/bare.out" 2>"$work/bare.err" || code=$?
assert_exit bare 0
rm -f "$work/out/one.medusa"

# ---- folders ---------------------------------------------------------------------------------------------------------
for name in "with space" "with:colon" 'with$LIB' 'with${ORIGIN}' 'a $PLATFORM:b'; do
	section "Medusa lies in a folder \"$name\""
	rm -rf "$work/odd" "$work/plain"
	mkdir -p "$work/odd/$name"
	cp -r "$bin" "$work/odd/$name/bin"
	mkdir "$work/odd/$name/lib"
	cp "$MEDUSA_BUILD"/lib/*.so "$work/odd/$name/lib"
	odd=$work/odd/$name/bin
	run odd "$odd/medusa-capture" -o "$work/odd/$name/one.medusa" -- "${subject[@]}"
	assert_exit odd 0
	run odd "$odd/medusa-verify" "$work/odd/$name/one.medusa" -- "${subject[@]}"
	assert_exit odd 0
	assert_contains "$work/odd.out" "2 passed"
	run odd "$odd/medusa-restore" "$work/odd/$name/one.medusa" -- "${subject[@]}"
	assert_exit odd 4
	assert_contains "$work/odd.err" "cannot be preloaded; make a link"
	assert_equal "output of a command that was not started" "" "$(cat "$work/odd.out")"
	ln -s "odd/$name" "$work/plain"
	run odd "$work/plain/bin/medusa-restore" "$work/odd/$name/one.medusa" -- "${subject[@]}"
	assert_exit odd 0
	assert_count "$work/odd.err" " restored" 2
	assert_equal "what is left" "$nothing_left" "$(left)"
done

section "a small stack"
stack=64
[ -z "${SAN:-}" ] || stack=1024 # a sanitizer's frames are larger
with_stack() { ulimit -s $stack && exec "$@"; }
export -f with_stack
export stack
run small bash -c 'with_stack "$@"' with_stack medusa-capture -o "$work/small.medusa" -- "${subject[@]}"
assert_exit small 0
run small bash -c 'with_stack "$@"' with_stack medusa-verify "$work/small.medusa" -- "${subject[@]}"
assert_exit small 0
assert_contains "$work/small.out" "2 passed"
run small bash -c 'with_stack "$@"' with_stack medusa-restore "$work/small.medusa" -- "${subject[@]}"
assert_exit small 0
assert_count "$work/small.err" " restored" 2
finish
