#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run that never comes to its end is ended by --timeout, and what was recorded, what was waited for and what plug-ins
# have said about themselves is named; an engine that has stopped getting on is named long before.
. "$(dirname "$0")/lib.sh"
subject_of outputs restore
ln -s "${subject[0]}" "$work/subject" && subject[0]=$work/subject # other tests that run now have engines, too
export SUBJECT_WORKER=fork SUBJECT_KILLS=9 SUBJECT_SERVES=1 # the parent never ends by itself, and its child is the engine core
run_limit=120

start() { # name, options of medusa-capture..., --, command...: beside the script
	local name=$1
	shift
	run_beside "$name" medusa-capture -o "$work/$name.medusa" "$@"
}

assert_given_up() { # name, what it waited for
	await_beside "$1"
	assert_exit "$1" 4
	assert_count "$work/$1.err" "still waiting for $2: the command is ended" 1
	assert_no_file "$work/$1.medusa"
	assert_no_file "$work/$1.medusa.lock"
	assert_equal "folders that $1 has left" "" "$(compgen -G "$work/$1.medusa.tmp-*")"
}

section "numbers of seconds"
for bad in -1 nan inf 1e3 0x10 "" " 5" 5s 1000000000000; do
	run bad medusa-capture -o "$work/bad.medusa" --timeout "$bad" -- true
	assert_exit bad 2
	assert_contains "$work/bad.err" "--timeout: \"$bad\" is not a number of seconds from 0 (no limit) to 1000000000"
	run bad medusa-verify "$work/bad.medusa" --timeout "$bad" -- true
	assert_exit bad 2
done
for good in 0 0.5 1000000000; do
	run good medusa-capture -o "$work/good.medusa" --timeout "$good" -- true
	assert_exit good 5
done

# what follows takes seconds each, so it is done at the same time
cat >"$work/says.sh" <<'END'
printf '%s\n' "medusa-vllm 9.8 $$ leaves vLLM as it is: a worker of another kind" "medusa-vllm 9.8 1$$ leaves vLLM as it is: a worker of another kind" \
	"no line of a plug-in" "medusa-torch 7.6 $$ is loaded" >>"$MEDUSA_TELL"
exec "$@"
END
cat >"$work/deaf.sh" <<'END'
trap '' TERM
"$@" &
while :; do sleep 1; done
END
cat >"$work/daemon.sh" <<'END'
setsid --fork "$@"
END
cat >"$work/small.sh" <<'END'
trap '' XFSZ # then a write fails, as on a full disk
waits=$0.waits
env -u SUBJECT_WORKER -u SUBJECT_KILLS SUBJECT_READY=1 SUBJECT_WAITS="$waits" "$@" &
until [ -e "$waits" ]; do sleep 0.05; done
sleep 3 # nothing is recorded for a while, and then comes what fails
prlimit --pid $! --fsize=4096
rm "$waits"
wait
END
cat >"$work/gone.sh" <<'END'
env -u SUBJECT_SERVES "$@"
sleep 1000
END
cat >"$work/completes.sh" <<'END'
env -u SUBJECT_WORKER -u SUBJECT_KILLS SUBJECT_READY=1 setsid --fork "$@" >"$DAEMON_OUT"
END
cat >"$work/stays.sh" <<'END'
env -u SUBJECT_WORKER -u SUBJECT_KILLS SUBJECT_READY=1 setsid --fork "$@" >"$0.out"
sleep 1000
END
cat >"$work/breeds.sh" <<'END'
hatch() { # as each of them is told to end, it starts another one, in a session of its own
	trap '[ "$1" = 0 ] || { setsid --fork bash "$0" $(($1 - 1)); sleep 0.5; }; exit' TERM
	while :; do sleep 0.1; done
}
case $1 in
	[0-9]*) hatch "$1" ;;
esac
setsid --fork bash "$0" 6
sleep 1000
END
export DAEMON_OUT=$work/daemon.out
run_beside stays medusa-capture -o "$work/stays.medusa" --timeout 100 --single --no-verify -- bash "$work/stays.sh" "${subject[@]}"
start breeds --timeout 2 -- bash "$work/breeds.sh" "${subject[@]}"
run_beside completes medusa-capture -o "$work/completes.medusa" --timeout 100 --single --no-verify -- bash "$work/completes.sh" "${subject[@]}"
export SUBJECT_MARK=ready
start small --timeout 100 -- bash "$work/small.sh" "${subject[@]}"
unkillable=
if [ -z "${SAN:-}${TSAN:-}" ] && [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && cp "$(command -v setpriv)" "$work/as_root" && chmod 4755 "$work/as_root" &&
	chmod 755 "$work" && mkdir -m 777 "$work/open" && as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups) &&
	[ "$("${as_nobody[@]}" "$work/as_root" --reuid 0 id -ru)" = 0 ] && "${as_nobody[@]}" "$bin/medusa-capture" --version >/dev/null; then
	unkillable=$work/open/unkillable.medusa
	TMPDIR=$work/open run_beside unkillable "${as_nobody[@]}" "$bin/medusa-capture" -o "$unkillable" --timeout 1 -- "$work/as_root" --reuid 0 sleep "86371.$$"
fi
start gone --timeout 4 -- bash "$work/gone.sh" "${subject[@]}"
start mark --timeout 6 -- "${subject[@]}"
start wrong --timeout 4 --until mark=reday --stop -- "${subject[@]}"
start says --timeout 4 -- bash "$work/says.sh" "${subject[@]}"
start nothing --timeout 2 -- sleep 1000
start exits --timeout 4 --until exit -- "${subject[@]}"
start over --timeout 4 --until mark=ready --single --no-verify -- "${subject[@]}"
mkdir "$work/lost" "$work/lost_exit"
run_beside lost medusa-capture -o "$work/lost/m.medusa" --timeout 100 -- "${subject[@]}"
run_beside lost_exit medusa-capture -o "$work/lost_exit/m.medusa" --timeout 100 --until exit -- "${subject[@]}"
start deaf --timeout 4 -- bash "$work/deaf.sh" "${subject[@]}"
start daemon --timeout 4 -- bash "$work/daemon.sh" "${subject[@]}"

section "the mark never comes, and no plug-in was loaded"
assert_given_up mark 'the mark "complete"'
recorded='3 graphs are recorded in process [0-9]*, 3 of them labelled; it has set the mark "ready"'
assert_equal "lines that say what was recorded, in the hint and at the end" 2 "$(grep -c "$recorded" "$work/mark.err")"
assert_count "$work/mark.err" 'nothing new for 2 s; still waiting for the mark "complete": Ctrl-C gives up, and --timeout after 6 s' 1
assert_count "$work/mark.err" "no plug-in of Medusa's has been loaded, which would set the mark" 2
assert_contains "$work/mark.err" "the trace is kept: $work/mark.1.mtrace"

section "another mark"
assert_given_up wrong 'the mark "reday"'
assert_contains "$work/wrong.err" 'it has set the mark "ready"'
assert_lacks "$work/wrong.err" "plug-in"

section "what plug-ins say"
assert_given_up says 'the mark "complete"'
assert_contains "$work/says.err" "plug-in medusa-vllm 9.8 in process "
assert_count "$work/says.err" ": leaves vLLM as it is: a worker of another kind" 2 # in the hint and at the end, each process once
assert_contains "$work/says.err" "plug-in medusa-torch 7.6 in process "
assert_lacks "$work/says.err" "no plug-in"
assert_lacks "$work/says.err" "no line of a plug-in"

section "a command that never uses the device"
assert_given_up nothing 'the mark "complete"'
assert_contains "$work/nothing.err" "no CUDA driver call has been intercepted"

section "a command that is waited for until it ends"
assert_given_up exits "the command to end"

section "everything is recorded, and the command goes on"
await_beside over
assert_exit over 0
assert_count "$work/over.err" "everything is recorded, and the command has not ended after 4 s (--timeout): it is ended" 1
assert_file "$work/over.medusa"

section "the disk is full, or files may not grow"
await_beside small
assert_exit small 4
assert_count "$work/small.err" "recording has stopped in process " 1
assert_lacks "$work/small.err" "--timeout"
assert_no_file "$work/small.medusa"

section "the folder in which a capture works is removed"
for name in lost lost_exit; do
	until cat "$work/$name"/m.medusa.tmp-*/1-*.mtrace.part 2>/dev/null | grep -q .; do # the engine has begun
		[ ! -f "$work/$name.exit" ] || break
		sleep 0.05
	done
	rm -rf "${work:?}/$name"
	await_beside "$name"
	assert_exit "$name" 4
	assert_count "$work/$name.err" ": was removed while the command ran, with all that was recorded" 1
	assert_lacks "$work/$name.err" "--timeout"
	assert_no_file "$work/$name/m.medusa"
done

section "the recorded process is killed, and its parent goes on"
assert_given_up gone 'the mark "complete"'
assert_contains "$work/gone.err" 'and has ended without completing the trace'

section "a daemon that has said that it is complete"
await_beside completes
assert_exit completes 0
assert_file "$work/completes.medusa"
await_beside stays
assert_exit stays 0
assert_file "$work/stays.medusa"
assert_lacks "$work/stays.err" "has ended and left processes behind"
assert_lacks "$work/stays.err" "--timeout"

section "an engine that does not heed SIGTERM, and one that is a daemon"
assert_given_up deaf 'the mark "complete"'
assert_given_up daemon 'the mark "complete"'
assert_given_up breeds 'the mark "complete"'
assert_contains "$work/daemon.err" "has ended and left processes behind; waiting for them"
assert_equal "processes that are left" "" "$(pgrep -f "^(${subject[0]} |bash $work/)" || true)"

if [ -n "$unkillable" ]; then
	section "a process of another user, which cannot be killed"
	await_beside unkillable
	assert_exit unkillable 4
	assert_contains "$work/unkillable.err" "does not end, although it was told to and killed"
	assert_contains "$work/unkillable.err" "(sleep), which the command has started, does not end"
	kill -KILL $(pgrep -f "^sleep 86371.$$\$")
else
	echo "skipped: a process that cannot be killed (needs root, setpriv, set-user-ID files, and no sanitizers)"
fi

section "verification"
unset SUBJECT_MARK
run good medusa-capture -o "$work/good.medusa" -- "${subject[@]}"
assert_exit good 0
export SUBJECT_MARK=ready
run verify medusa-verify "$work/good.medusa" --timeout 4 --junit "$work/verify.xml" -- "${subject[@]}"
assert_exit verify 4
assert_count "$work/verify.err" "4 s have passed (--timeout), and not everything has been compared" 1
assert_contains "$work/verify.err" "nothing was compared for 1 s, and the command goes on: Ctrl-C gives up, and --timeout after 4 s"
assert_contains "$work/verify.xml" "<error"
mkdir "$work/temporary"
TMPDIR=$work/temporary run_beside verify_lost medusa-verify "$work/good.medusa" --timeout 100 -- "${subject[@]}"
until cat "$work/temporary"/medusa-*/report-*.jsonl 2>/dev/null | grep -q .; do
	[ ! -f "$work/verify_lost.exit" ] || break
	sleep 0.05
done
rm -rf "${work:?}/temporary"
await_beside verify_lost
assert_exit verify_lost 4
assert_contains "$work/verify_lost.err" ": was removed while the command ran"
assert_lacks "$work/verify_lost.err" "--timeout"
run verify_over medusa-verify "$work/good.medusa" --timeout 4 --until mark=ready -- "${subject[@]}"
assert_exit verify_over 0
assert_contains "$work/verify_over.err" "everything is compared, and the command has not ended after 4 s (--timeout)"
assert_equal "processes that are left" "" "$(pgrep -f "^${subject[0]} " || true)"
finish
