#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes that are stopped, silent or locked, and connections that say nothing: a command is answered soon after its deadline and names
# the process, what such a process does later is undone, and a swap that is only slow takes as long as it needs.
. "$(dirname "$0")/lib.sh"
. tests/e2e/swap_lib.sh
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=256M

until_state() { # state, silent processes
	for _ in $(seq 1200); do
		[ "$(state state) $(state engines_silent)" = "$1 $2" ] && break
		sleep 0.1
	done
	assert_equal 'it is, and so many are silent' "$1 $2" "$(state state) $(state engines_silent)"
}

until_coming() {
	for _ in $(seq 6000); do
		[ "$(state state)" = 'coming in' ] && break
		sleep 0.02
	done
}

refused_soon() { # name of a run, verb, options...: refused in the time that everything has, which is far below that of a hanging command
	local began=$SECONDS
	swap "$@"
	assert_exit "$1" 1
	assert_at_most "seconds until '$1' is refused" "${soon:-30}" $((SECONDS - began))
}

expected 'work 3' 'work 2' 'work 1'

section 'an engine that another program locks while its memory comes' # the end of it is looked at below
if [ -z "${SAN:-}${TSAN:-}" ]; then
	HOSTCUDA_H2D_GBPS=0.002 begin locked -- 0 # bytes a nanosecond: 10 MB take five seconds
	cat >"$work/lock.py" <<'END'
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
print("ready", flush=True)
sys.stdin.readline()
assert driver.cuCheckpointProcessLock(int(sys.argv[1]), None) == 0
END
	locked_pid=$(engine_pid) locked_shell=$engine_shell locked_in=$engine_in locked_out=$engine_out
	mkfifo "$work/lock"
	python3 "$work/lock.py" "$locked_pid" <"$work/lock" >"$work/lock.out" &
	locks=$!
	exec {lock}>"$work/lock"
	for _ in $(seq 1200); do
		grep -q ready "$work/lock.out" && break
		sleep 0.05
	done
	done_swap out out
	run_beside locked_in medusa-swap in locked
	until_coming
	echo now >&"$lock"
	wait $locks
	assert_equal 'exit code of the one that locks it' 0 $?
	exec {lock}>&-
fi

section 'an engine that is stopped: out names it, and takes nothing away when it goes on'
begin stopped -- 1
pid=$(engine_pid)
asked work 3
kill -STOP "$pid"
refused_soon no out --deadline 0.5
assert_contains "$work/no.err" "process $pid does not take the message: continue it if it is stopped"
assert_equal 'it is, and so many are silent' 'in 1' "$(state state) $(state engines_silent)"
run told medusa-swap status stopped
assert_contains "$work/told.out" '1 does not answer'
refused_soon again out --deadline 0
assert_contains "$work/again.err" "process $pid does not take the message"
kill -CONT "$pid"
until_state in 0
asked work 2
assert_equal 'work after that' "${live[2]}" "$answered"
kill -STOP "$pid"
refused_soon no out --deadline 0
kill -CONT "$pid"
done_swap late out
assert_equal 'it is, though the first "out" was undone meanwhile' out "$(state state)"

section 'an engine that is stopped while it is out: in names it'
kill -STOP "$pid"
refused_soon no in
assert_contains "$work/no.err" "process $pid does not take the message"
kill -CONT "$pid"
until_state out 0
done_swap in in --verify
asked work 1
assert_equal 'work after that' "${live[3]}" "$answered"
kill -STOP "$pid"
refused_soon no out --deadline 0
kill -KILL "$pid"
ended 137
engine_in=

section 'an engine that is stopped while its memory comes, and one that is only slow'
HOSTCUDA_H2D_GBPS=0.005 begin slow -- 0
pid=$(engine_pid)
asked alloc 24
done_swap out out
medusa-swap in slow >"$work/half.out" 2>"$work/half.err" &
half=$!
until_coming
sleep 0.5
kill -STOP "$pid"
wait $half
assert_equal 'exit code of an "in" whose engine was stopped' 1 $?
assert_contains "$work/half.err" "process $pid has begun and does not go on"
kill -CONT "$pid"
until_state out 0
began=$SECONDS
done_swap back in --verify
assert_at_least 'seconds that a slow one takes, more than the patience with a silent one' 6 $((SECONDS - began))
end_engine

section 'an engine that is stopped while it is fully out'
begin full -- 1
pid=$(engine_pid)
asked work 3
done_swap out out --full
kill -STOP "$pid"
refused_soon no in
assert_contains "$work/no.err" "process $pid does not take the message"
kill -CONT "$pid"
until_state out 0
done_swap in in
asked work 2
assert_equal 'work after that' "${live[2]}" "$answered"
end_engine

section 'one of two processes is stopped: the other one comes back; so it is with one that only says that it is an engine'
mkfifo "$work/one" "$work/two"
engine_name=pair
# shellcheck disable=SC2016 # the inner shell expands it
timeout --kill-after=5 "$engine_limit" medusa-swap run --name pair --pool-bytes 256M -- bash -c \
	'"${@:3}" 1 <"$1" >"$1.out" & first=$!; echo $first >"$1.pid"; "${@:3}" 1 <"$2" >"$2.out" & wait $first && wait $!' - "$work/one" "$work/two" "${subject[@]}" 2>"$work/pair.err" &
pair=$!
exec {one}>"$work/one" {two}>"$work/two"
for _ in $(seq 1200); do
	[ "$(state engines)" = 2 ] && [ "$(cat "$work/one.out" "$work/two.out" | grep -c ready)" = 2 ] && break
	sleep 0.05
done
first=$(cat "$work/one.pid")
kill -STOP "$first"
refused_soon no out --deadline 0
assert_contains "$work/no.err" "process $first does not take the message"
assert_equal 'it is' 'in 0' "$(state state) $(state engines_out)"
kill -CONT "$first"
until_state in 0
python3 - "$place/pair.sock" "$work/go" <<'END' &
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"medusa_swap": 2, "role": "engine", "pid": 1}\n')
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
END
fake=$!
for _ in $(seq 1200); do
	[ "$(state engines)" = 3 ] && break
	sleep 0.05
done
refused_soon no out --deadline 0
assert_contains "$work/no.err" "process $fake does not take the message"
assert_equal 'it is' 'in 0' "$(state state) $(state engines_out)"
touch "$work/go"
wait $fake
done_swap both out
done_swap both_in in
exec {one}>&- {two}>&-
await_end $pair pair
wait $pair
assert_equal 'the exit code of both' 0 $?
assert_equal 'what the threads of both found' 2 "$(grep -c '^wrong 0$' <(cat "$work/one.out" "$work/two.out"))"

section 'medusa-swap run is stopped'
begin halted -- 0
runs=$(state pid)
kill -STOP "$runs"
soon=60 refused_soon no status
assert_contains "$work/no.err" 'medusa-swap run has not answered for 15 seconds: continue it if it is stopped'
kill -CONT "$runs"

section 'medusa-swap run is stopped, and as many connections wait for it as can'
kill -STOP "$runs"
python3 - "$place/halted.sock" "$work/full_enough" <<'END' >"$work/full.out" &
import os, socket, sys, time
held = []
while len(held) < 5000:
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    try:
        s.connect(sys.argv[1])
    except BlockingIOError:
        break
    held.append(s)
print("full", flush=True)
for _ in range(1200):
    if os.path.exists(sys.argv[2]):
        break
    time.sleep(0.1)
END
filling=$!
until_said "$work/full.out" full
soon=60 refused_soon no status
assert_contains "$work/no.err" 'medusa-swap run takes no connections: continue it if it is stopped'
touch "$work/full_enough"
wait $filling
kill -CONT "$runs"

section 'peers that pulse for ever, that send a line bit by bit, and whose answers are none'
python3 - "$place" "$work/lied" <<'END' >"$work/liars.out" &
import os, socket, sys, threading, time
def liar(name, answer):
    s = socket.socket(socket.AF_UNIX)
    s.bind(f"{sys.argv[1]}/{name}.sock")
    s.listen(8)
    def serve():
        while True:
            c = s.accept()[0]
            c.recv(4096)
            try:
                while answer(c):
                    time.sleep(0.5)
            except OSError:
                pass
            c.close()
    threading.Thread(target=serve, daemon=True).start()
def says(text):
    return lambda c: c.sendall(text)
def drips(c):
    c.sendall(b" ")
    return True
def pulses(c):
    c.sendall(b'{"pulse": true}\n')
    return True
liar("pulses", pulses)
liar("drips", drips)
liar("empty", says(b"{}\n"))
liar("stateless", says(b'{"ok": true, "status": 0}\n'))
liar("wordless", says(b'{"ok": false, "status": 1}\n'))
print("up", flush=True)
for _ in range(3000):
    if os.path.exists(sys.argv[2]):
        break
    time.sleep(0.1)
END
liars=$!
until_said "$work/liars.out" up
for liar in pulses drips; do
	engine_name=$liar soon=60 refused_soon no status
	assert_contains "$work/no.err" "$liar: medusa-swap run has not answered for 15 seconds"
done
for liar in 'empty ok' 'stateless state' 'wordless message'; do
	engine_name=${liar% *} refused_soon no out
	assert_contains "$work/no.err" "${liar% *}: the answer has no \"${liar#* }\", so it is none of medusa-swap run"
done
touch "$work/lied"
wait $liars
rm "$place"/{pulses,drips,empty,stateless,wordless}.sock
engine_name=halted

section 'a command that is killed before its turn is not carried out'
kill -STOP "$runs"
medusa-swap out halted >/dev/null 2>&1 &
killed=$!
sleep 0.3 # until it has sent its line; if it has not, it is not carried out either
kill -KILL $killed
wait $killed 2>/dev/null
kill -CONT "$runs"
assert_equal 'it is' in "$(state state)"
assert_equal 'times that it was out' 0 "$(state outs)"

section 'connections that say nothing'
python3 - "$place/halted.sock" "$work/enough" <<'END' >"$work/idle.out" &
import os, select, socket, sys, time
held, closed = [], 0
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    held.append(s)
for _ in range(200):
    connect()
held[-1].sendall(b'{"medusa_swap": 2')
print("connected", flush=True)
while held:
    for s in select.select(held, [], [], 60)[0]:
        s.recv(100)
        held.remove(s)
        closed += 1
    if closed == 200:
        print("closed", flush=True)
END
idle=$!
for _ in $(seq 1200); do
	grep -q connected "$work/idle.out" && break
	sleep 0.05
done
done_swap through out
done_swap through_in in
wait $idle
assert_contains "$work/idle.out" closed
end_engine

if [ -z "${SAN:-}${TSAN:-}" ]; then
	section 'an engine that another program locks while its memory comes is named, and goes on when it is unlocked'
	engine_name=locked engine_in=$locked_in engine_out=$locked_out engine_shell=$locked_shell
	await_beside locked_in
	assert_exit locked_in 1
	assert_contains "$work/locked_in.err" "process $locked_pid waits in a call of the driver that does not return"
	run unlocked medusa-swap in --method checkpoint "$locked_pid"
	assert_exit unlocked 0
	until_state out 0
	done_swap in in
	asked work 3
	assert_equal 'work after that' "${live[1]}" "$answered"
	end_engine
fi
finish
