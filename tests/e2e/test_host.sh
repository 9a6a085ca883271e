#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The host engine comes first: whatever it does to its process, our libraries do it no harm and say what came of it.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/host_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")
captured=("$(preload capture)" "${subject[@]}")
restored=("$(preload restore)" "${subject[@]}")
# LeakSanitizer ends a process in which it cannot read /proc or trace threads; the other sanitizers stay.
no_leak_check=${SAN:+ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0}

# An engine in whose stderr nobody reads any more.
run_unread() { # name, command...
	local name=$1
	shift
	mkfifo "$work/$name.pipe"
	exec 8<>"$work/$name.pipe" 9>"$work/$name.pipe" 8<&-
	code=0
	timeout --kill-after=5 "$run_limit" "$@" >"$work/$name.out" 2>&9 || code=$?
	exec 9>&-
}

traced() { # name of a trace: it is complete and holds both graphs
	run "$1.inspected" medusa-inspect "$work/$1.mtrace"
	assert_exit "$1.inspected" 0
	assert_contains "$work/$1.inspected.out" "2 graphs"
	assert_lacks "$work/$1.inspected.out" "incomplete"
	assert_no_file "$work/$1.mtrace.part"
}

# What the engine does at that time changes nothing of what it prints, under any of our libraries.
run_doing() { # name, captured|restored|verified, when, what the engine does, for env...
	local name=$1 what=$2 when=$3 habit=$4 library=restore verify=
	shift 4
	section "$what: $habit, $when"
	rm -f "$work/$name".mtrace*
	[ "$what" != captured ] || library=capture
	[ "$what" != verified ] || verify=1
	MEDUSA_TRACE=$work/$name.mtrace MEDUSA_ARTIFACT=$work/host.medusa MEDUSA_VERIFY=$verify \
		run "$name" env "$@" "HOST_$when=$habit" "$(preload $library)" "${subject[@]}"
	assert_exit "$name" 0
	assert_same_file "$work/alone.out" "$work/$name.out"
}

section "the engine alone"
run alone "${subject[@]}"
assert_exit alone 0
assert_file "$work/alone.out"
{ cat "$work/alone.out"; echo "handled 0"; } >"$work/unharmed.out"
{ cat "$work/unharmed.out"; echo "pending 13"; } >"$work/pending.out"
run artifact medusa-capture -o "$work/host.medusa" -- "${subject[@]}"
assert_exit artifact 0
run again medusa-restore "$work/host.medusa" -- "${subject[@]}"
assert_count "$work/again.err" " restored" 2

section "an engine that brings code for a GPU is told why hostcuda refuses it"
cat >"$work/images.py" <<'END'
import ctypes, struct, sys
cuda, context, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
images = {"fatbin": struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0) + bytes(64),
          "cubin": b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 190, 1) + bytes(200),
          "text": b"no image at all" + bytes(200)}
open(sys.argv[2], "wb").write(images[sys.argv[1]])
print(cuda.cuModuleLoadData(ctypes.byref(module), images[sys.argv[1]]),
      cuda.cuModuleLoad(ctypes.byref(module), sys.argv[2].encode()))
END
images="fatbin cubin text"
[ -z "${TSAN:-}" ] || { images=; echo "skipped with the thread sanitizer, with which Python does not start: code for a GPU"; }
for image in $images; do
	run "$image" env ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" python3 "$work/images.py" $image "$work/image"
	assert_equal "what hostcuda answers to a $image" "200 200" "$(cat "$work/$image.out")"
	assert_count "$work/$image.err" "hostcuda: an image with code for a GPU cannot run on the host" $([ $image = text ] && echo 0 || echo 1)
done

# ---- signals ---------------------------------------------------------------------------------------------------------
section "log lines into a pipe that nobody reads"
for how in watch-signals hold-signals=thread hold-signals=process; do
	name=unread.${how//[^a-z]/-}
	expected=$work/pending.out
	[ $how != watch-signals ] || expected=$work/unharmed.out
	export HOST_QUIET=1 HOST_BEFORE=$how HOST_AT_END=tell-signals MEDUSA_LOG=debug
	run_unread "$name" env MEDUSA_TRACE="$work/$name.mtrace" "${captured[@]}"
	assert_exit "$name" 0
	assert_same_file "$expected" "$work/$name.out"
	run_unread "$name.restored" env MEDUSA_ARTIFACT="$work/host.medusa" "${restored[@]}"
	assert_exit "$name.restored" 0
	assert_same_file "$expected" "$work/$name.restored.out"
	run_unread "$name.verified" env MEDUSA_ARTIFACT="$work/host.medusa" MEDUSA_VERIFY=1 "${restored[@]}"
	assert_exit "$name.verified" 0
	assert_same_file "$expected" "$work/$name.verified.out"
	unset HOST_QUIET HOST_BEFORE HOST_AT_END MEDUSA_LOG
	traced "$name"
done

section "a signal that the engine blocks and waits for, after it has begun to use the device"
for when in BOUND DURING AFTER; do
	for what in captured restored verified; do
		run_doing signal $what $when send-itself
		[ $what != captured ] || traced signal
	done
done

section "a pipe that is full, and whose reader sleeps: lines are lost, the engine goes on"
mkfifo "$work/full.pipe"
exec 8<>"$work/full.pipe"
dd if=/dev/zero of="$work/full.pipe" bs=4096 oflag=nonblock status=none 2>/dev/null
code=0
HOST_QUIET=1 MEDUSA_LOG=debug MEDUSA_TRACE="$work/full.mtrace" \
	timeout --kill-after=5 "$run_limit" env "${captured[@]}" >"$work/full.out" 2>&8 || code=$?
exec 8<&-
assert_exit full 0
assert_same_file "$work/alone.out" "$work/full.out"
traced full

# The engine's output and its log are pipes: what grows beyond the limit is the trace alone.
section "a limit on the size of files"
mkfifo "$work/limit.pipe"
for bytes in 0 31 32 33 40 100; do
	cat "$work/limit.pipe" >"$work/limit.err" &
	reader=$!
	HOST_QUIET=1 HOST_BEFORE=watch-signals HOST_DURING="fsize=$bytes" HOST_AT_END=tell-signals MEDUSA_TRACE="$work/limit.mtrace" \
		timeout "$run_limit" env "${captured[@]}" 2>"$work/limit.pipe" | cat >"$work/limit.out"
	code=${PIPESTATUS[0]}
	wait $reader
	assert_exit limit 0
	assert_same_file "$work/unharmed.out" "$work/limit.out"
	assert_no_file "$work/limit.mtrace"
done
assert_contains "$work/limit.err" "File too large"

# ---- descriptors -----------------------------------------------------------------------------------------------------
printf "the engine's own\n" >"$work/own"

section "an engine that starts with its standard descriptors closed"
for closed in "0<&-" "1>&-" "2>&-" "0<&- 1>&- 2>&-"; do
	for what in captured restored verified; do
		rm -f "$work/mine" "$work/standard.mtrace"
		library=restore verify=
		[ $what != captured ] || library=capture
		[ $what != verified ] || verify=1
		code=0
		HOST_QUIET=1 HOST_BEFORE="fill=$work/mine" MEDUSA_LOG=debug MEDUSA_TRACE=$work/standard.mtrace \
			MEDUSA_ARTIFACT=$work/host.medusa MEDUSA_VERIFY=$verify \
			bash -c "exec env $(preload $library) ${subject[*]} $closed" >"$work/standard.out" 2>"$work/standard.err" || code=$?
		section "$what with $closed"
		assert_exit standard 0
		case $closed in
		*1*) cat "$work/own" "$work/alone.out" >"$work/expected" ;; # its own output goes there by itself
		*) cp "$work/own" "$work/expected" ;;
		esac
		assert_same_file "$work/expected" "$work/mine"
		[ $what != captured ] || traced standard
	done
done

section "an engine that closes what is not its own, and opens a file under every number"
for when in BEFORE DURING AFTER; do
	for number in 2 above; do
		habit="close=2"
		[ $number = 2 ] || habit="close-above-two"
		for what in captured restored verified logged; do
			rm -f "$work/mine" "$work/log"
			log=
			[ $what != logged ] || log=$work/log
			run_doing closed $what $when "$habit fill=$work/mine" HOST_QUIET=1 MEDUSA_LOG=debug MEDUSA_LOG_FILE="$log"
			assert_same_file "$work/own" "$work/mine"
			[ $what != captured ] || traced closed
		done
	done
done

section "the same in a folder that is out of reach by then"
mkdir "$work/jail"
# Names of functions are out of reach, too, so the sanitizer's reports about descriptors (tests/tsan.supp) are known by library alone.
unnamed=
if [ -n "${TSAN:-}" ]; then
	printf '%s\n' race:libmedusa-capture.so thread:libmedusa-capture.so >"$work/unnamed.supp"
	unnamed=TSAN_OPTIONS=${TSAN_OPTIONS:-}:suppressions=$work/unnamed.supp
fi
for when in DURING AFTER; do
	HOST_QUIET=1 MEDUSA_TRACE=$work/beyond.mtrace \
		run beyond env $no_leak_check $unnamed "HOST_$when=chroot=$work/jail close-above-two fill=mine" "${captured[@]}"
	assert_exit beyond 0
	assert_same_file "$work/alone.out" "$work/beyond.out"
	assert_same_file "$work/own" "$work/jail/mine"
	assert_no_file "$work/beyond.mtrace"
	assert_equal "reasons in beyond.err" 1 "$(grep -c 'nothing is recorded: \|recording stopped, the program runs on: \|the trace could not be completed: ' "$work/beyond.err")"
	assert_contains "$work/beyond.err" "the program closed its descriptor"
done

# ---- the environment and the folder ----------------------------------------------------------------------------------
in_folder() { (cd "$work" && exec "$@"); }
export -f in_folder
export work

section "settings are taken when the process starts: the engine clears its environment, changes its title or its folder"
mkdir "$work/elsewhere"
for habit in clearenv title=engine "chdir=$work/elsewhere"; do
	name=${habit%%=*}
	MEDUSA_LOG=debug MEDUSA_LOG_FILE=$name.log MEDUSA_TRACE=$name.mtrace HOST_BEFORE=$habit \
		run "$name" bash -c 'in_folder "$@"' in_folder env "${captured[@]}"
	assert_exit "$name" 0
	assert_same_file "$work/alone.out" "$work/$name.out"
	traced "$name"
	assert_contains "$work/$name.log" "trace complete: $work/$name.mtrace"
	MEDUSA_ARTIFACT=host.medusa HOST_BEFORE=$habit \
		run "$name.restored" bash -c 'in_folder "$@"' in_folder env "${restored[@]}"
	assert_exit "$name.restored" 0
	assert_same_file "$work/alone.out" "$work/$name.restored.out"
	assert_count "$work/$name.restored.err" " restored" 2
	MEDUSA_ARTIFACT=host.medusa MEDUSA_VERIFY=1 MEDUSA_VERIFY_REPORT=$name.report HOST_BEFORE=$habit \
		run "$name.verified" bash -c 'in_folder "$@"' in_folder env "${restored[@]}"
	assert_exit "$name.verified" 0
	assert_count "$work/$name.report" "end" 1
done
assert_equal "what lies in the other folder" "" "$(ls -A "$work/elsewhere")"

# ---- sandboxes and limits --------------------------------------------------------------------------------------------
section "few descriptors, no rights on new files, a sandbox that refuses what is not an engine's daily work"
for habit in nofile=12 nofile=40 umask=0777 seccomp; do
	for when in BEFORE DURING AFTER; do
		for what in captured restored verified; do
			leak_check=
			[ $habit != seccomp ] || leak_check=$no_leak_check
			run_doing odd $what $when $habit HOST_QUIET=1 $leak_check
			case $what$habit in
			capturedseccomp) assert_contains "$work/odd.err" "the trace could not be completed" ;;
			captured*) traced odd ;;
			esac
		done
	done
done

section "children of every kind, and threads that are cancelled while they wait"
# A child has none of its parent's threads, so what these hold would count as lost.
leaks=${ASAN_OPTIONS-}
[ -z "${SAN:-}" ] || export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
for habit in child child=ends child=raw child=vfork child=launches cancel; do
	[ $habit = child=launches ] && points="AFTER AT_END" || points="BOUND DURING AT_END"
	for when in $points; do
		for what in captured restored verified; do
			run_doing kin $what $when $habit
			[ $what != captured ] || traced kin
			[ $what != restored ] || assert_count "$work/kin.err" " restored" 2
		done
	done
	run kin env "HOST_AFTER=$habit" medusa-verify "$work/host.medusa" -- "${subject[@]}"
	assert_exit kin 0
done

[ -z "${SAN:-}" ] || export ASAN_OPTIONS=$leaks

section "an engine that redirects its output: log lines follow"
HOST_QUIET=1 MEDUSA_LOG=info HOST_BEFORE="redirect=$work/engine.log" MEDUSA_TRACE=$work/redirected.mtrace run redirected env "${captured[@]}"
assert_exit redirected 0
assert_contains "$work/engine.log" "medusa capture: trace complete"
traced redirected
finish
