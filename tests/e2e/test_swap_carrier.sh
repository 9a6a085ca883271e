#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The process that carries memory over links of other devices is killed, stopped, fails or lies; so do others meanwhile. The
# engine's memory is right, whoever has copied it.
. tests/e2e/lib.sh
. tests/e2e/swap_lib.sh
export HOSTCUDA_SHARED=$work/devices HOSTCUDA_CONTEXT=16M HOSTCUDA_MEM=1G HOSTCUDA_DEVICES=3 CUDA_VISIBLE_DEVICES=0
export HOSTCUDA_H2D_GBPS=${LINK:-0.2} # bytes a nanosecond; all of the memory takes about 0.2 s over one link

section 'the carrier is killed at any moment'
begin_large hurt --gpu-neighbours -- 1
until_carrier 2
for round in $(seq "${NEIGHBOUR_DEATHS:-24}"); do
	done_swap out out
	victim=$(carrier)
	(
		sleep "0.0$((RANDOM % 9))"
		[ -z "$victim" ] || kill -KILL $victim
	) 2>/dev/null &
	done_swap in in --gpu-neighbours
	assert_sum
	wait $! 2>/dev/null
	done_swap out out # the next in starts another one, which may be ready in time
	done_swap in in --gpu-neighbours
	assert_sum
	until_carrier 2
done
close_engine

section 'the carrier is stopped, and goes on when nobody waits for it any more'
HOSTCUDA_H2D_GBPS=0.1 begin_large stopped --gpu-neighbours -- 0
for delay in 0.05 0.2; do
	until_carrier 2
	done_swap out out
	victim=$(carrier)
	swap in in --gpu-neighbours &
	sleep "$delay"
	kill -STOP "$victim"
	wait $!
	assert_equal 'it is' in "$(state state)"
	kill -CONT "$victim" 2>/dev/null
	assert_sum
	grep -q 'the carrier does not go on' "$work/in.json" || continue # it was stopped before it had begun
	for _ in $(seq 1200); do [ -d "/proc/$victim" ] || break; sleep 0.05; done
	assert_equal 'the stopped carrier' '' "$(ls -d "/proc/$victim" 2>/dev/null)"
	done_swap out out
	done_swap in in --gpu-neighbours # starts another one
	assert_sum
done
done_swap out out
done_swap in in --gpu-neighbours # the last one may have been killed when all was copied already
until_carrier 2
done_swap out out
victim=$(carrier) manager=$(state pid)
swap in in --gpu-neighbours &
for _ in $(seq 1200); do [ "$(state state)" = out ] || break; done
kill -STOP "$victim" "$manager" # nobody can kill it
asked sum
assert_equal 'what the memory holds, while the carrier may still write' "$wanted" "$answered"
kill -CONT "$victim"
sleep 0.3
assert_sum
kill -CONT "$manager"
wait $!
assert_sum
close_engine

section 'whoever asked is killed: what has begun is completed'
HOSTCUDA_H2D_GBPS=0.1 begin_large asker --gpu-neighbours -- 0
until_carrier 2
for delay in 0 0.02 0.05 0.1; do
	done_swap out out
	medusa-swap in asker --gpu-neighbours >/dev/null 2>&1 &
	victim=$!
	sleep "$delay"
	kill -KILL "$victim"
	wait "$victim" 2>/dev/null
	for _ in $(seq 1200); do [ "$(state state)" != 'coming in' ] && break; sleep 0.05; done
	done_swap in in --gpu-neighbours # nothing to do, if the command had begun
	assert_sum
done
close_engine

section 'each call of the driver in the carrier fails once'
megabytes=8
for call in ${NEIGHBOUR_CALLS:-$(seq 72)}; do
	HOSTCUDA_FAULT="@medusa-swap/swap-carrier:$call:UNKNOWN" begin_large "each$call" --gpu-neighbours -- 0
	for round in 1 2; do
		done_swap out out
		done_swap in in --gpu-neighbours
		assert_sum
	done
	close_engine
done
megabytes=30

section 'the neighbours have no room for a context, or for staging memory'
for fault in cuDevicePrimaryCtxRetain:*:OUT_OF_MEMORY cuMemAlloc_v2/swap-carrier:2:OUT_OF_MEMORY cuMemHostRegister_v2/swap-carrier:*:UNKNOWN; do
	HOSTCUDA_FAULT=${fault/Retain:/Retain/swap-carrier:} begin_large room --gpu-neighbours -- 0
	for round in 1 2; do
		done_swap out out
		done_swap in in --gpu-neighbours
		assert_sum
	done
	close_engine
done

section 'an engine that says what makes no sense hurts only itself'
begin_large hostile --gpu-neighbours -- 0
pool=$(find "/proc/$(state pid)/fd" -lname '*memfd:medusa*' | head -1)
LD_LIBRARY_PATH=$MEDUSA_BUILD/lib/hostcuda python3 - "$bin/medusa-swap" "$pool" >"$work/hostile.out" 2>"$work/hostile.log" <<'END'
import fcntl, os, socket, struct, subprocess, sys
BEGIN, PART, CHUNK, END, READY, DONE, FAILED = range(1, 8)
MAGIC, SIZE, BLOCK = 0x79727243, 32 + 256, 2 << 20
GPU = b"GPU-686f7374-6375-6461-0000-000000000000"
pool = fcntl.fcntl(os.open(sys.argv[2], os.O_RDWR), fcntl.F_DUPFD_CLOEXEC, 50)

class Carrier:
    def __init__(self):
        self.run, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        high = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 50)
        def place():
            os.dup2(high, 3)
            os.dup2(pool, 4)
        self.process = subprocess.Popen([sys.argv[1], "carrier-of-run"], preexec_fn=place, pass_fds=(3, 4))
        os.close(high)
        theirs.close()

    def session(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.run, [b'{"do": "carry", "gpu": ""}\n'], [theirs.fileno()])
        theirs.close()
        ours.settimeout(20)
        return ours

def packet(kind, part=0, chunk=0, count=0, link=0, size=0, rest=b"", magic=MAGIC):
    return (struct.pack("<IIIIIIQ", magic, kind, part, chunk, count, link, size) + rest).ljust(SIZE, b"\0")

def run(*runs):
    return b"".join(struct.pack("<QII", *one) for one in runs)

def begin(session):
    session.send(packet(BEGIN, count=1, rest=GPU))
    return hear(session)

def hear(session):
    try:
        got = session.recv(4096)
    except ConnectionResetError:
        return "closed"
    if not got:
        return "closed"
    kind = struct.unpack_from("<I", got, 4)[0]
    return {READY: "ready", DONE: "done", END: "end"}.get(kind) or "failed: " + got[32:].split(b"\0")[0].decode()

def memory():
    """As hostcuda's: of device 0."""
    fd = os.memfd_create("hostcuda-memory-0")
    os.truncate(fd, 4 * BLOCK)
    return fd

def with_part(session):
    begin(session)
    socket.send_fds(session, [packet(PART, size=4 * BLOCK)], [memory()])

carrier = Carrier()
def case(what, talk):
    global carrier
    session = carrier.session()
    try:
        print(what + ":", talk(session))
    except Exception as error:
        print(what + ":", repr(error))
    session.close()
    try:
        probe = carrier.session()
        alive = begin(probe)
        probe.close()
    except Exception as error: # it has just ended
        alive = repr(error)
    print("  then:", alive)
    if alive != "ready":
        carrier.process.wait(20)
        carrier = Carrier()

def say(*packets):
    def talk(session):
        begin(session)
        for one in packets:
            session.send(one)
        return hear(session)
    return talk

def chunk(*runs, count=None, part=0):
    def talk(session):
        with_part(session)
        session.send(packet(CHUNK, part=part, count=len(runs) if count is None else count, rest=run(*runs)))
        return hear(session)
    return talk

case("a good chunk", chunk((0, 0, 2)))
case("five bytes", say(b"hello"))
case("no bytes", say(b""))
case("another magic", say(packet(END, magic=1)))
case("no kind", say(packet(99)))
case("its own kind", say(packet(READY, count=1)))
case("a chunk without a part", say(packet(CHUNK, count=1, rest=run((0, 0, 1)))))
case("a part without memory", say(packet(PART, size=BLOCK)))
case("a part of odd size", lambda s: (begin(s), socket.send_fds(s, [packet(PART, size=5)], [memory()]), hear(s))[2])
case("a part with a huge number", lambda s: (begin(s), socket.send_fds(s, [packet(PART, part=1 << 31, size=BLOCK)], [memory()]), hear(s))[2])
case("a part twice", lambda s: (with_part(s), socket.send_fds(s, [packet(PART, size=4 * BLOCK)], [memory()]), hear(s))[2])
case("a part that is larger than its memory", lambda s: (begin(s), socket.send_fds(s, [packet(PART, size=400 * BLOCK)], [memory()]), hear(s))[2])
case("a part that is no memory", lambda s: (begin(s), socket.send_fds(s, [packet(PART, size=BLOCK)], [os.open("/dev/null", os.O_RDONLY)]), hear(s))[2])
case("behind the part", chunk((3 * BLOCK, 0, 2)))
case("an offset that overflows", chunk((2 ** 64 - BLOCK, 0, 1)))
case("an odd offset", chunk((5, 0, 1)))
case("behind the pool", chunk((0, 127, 2)))
case("a block that overflows", chunk((0, 2 ** 32 - 1, 1)))
case("a count that overflows", chunk((0, 0, 2 ** 32 - 1)))
case("no runs", chunk())
case("too many runs", chunk(*[(0, 0, 1)] * 16, count=17))
case("too many blocks", chunk(*[(0, 0, 2)] * 9))
case("another GPU", lambda s: (s.send(packet(BEGIN, count=1, rest=b"GPU-none")), hear(s))[1])

def flood(session):
    """The carrier closes the connection, perhaps before all is said."""
    with_part(session)
    try:
        for i in range(60):
            session.send(packet(CHUNK, chunk=i, count=1, rest=run((0, 0, 4))))
        while hear(session) == "done":
            pass
    except (ConnectionResetError, BrokenPipeError):
        pass
    return "refused"

case("too many chunks", flood)
carrier.run.send(b"what is this\n")
print("nonsense from run: exit", carrier.process.wait(20))
END
cat >"$work/hostile.wanted" <<'END'
a good chunk: done
five bytes: failed: a packet of 5 bytes is no message
no bytes: closed
another magic: failed: a packet of 288 bytes is no message
no kind: failed: a packet of 288 bytes is no message
its own kind: failed: a message of kind 5 from an engine
a chunk without a part: failed: a chunk of part 0, which is not there
a part without memory: failed: a part has 2097152 bytes, or came too early
a part of odd size: failed: a part has 5 bytes, or came too early
a part with a huge number: failed: part 2147483648 is there already, or there are too many
a part twice: failed: part 0 is there already, or there are too many
a part that is larger than its memory: failed: cuMemMap: CUDA_ERROR_NOT_SUPPORTED (801, not supported)
a part that is no memory: failed: cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_VALUE (1, invalid value)
behind the part: failed: a chunk outside of its part or of the pool
an offset that overflows: failed: a chunk outside of its part or of the pool
an odd offset: failed: a chunk outside of its part or of the pool
behind the pool: failed: a chunk outside of its part or of the pool
a block that overflows: failed: a chunk outside of its part or of the pool
a count that overflows: failed: a chunk outside of its part or of the pool
no runs: failed: a chunk of part 0, which is not there
too many runs: failed: a packet of 288 bytes is no message
too many blocks: failed: a chunk of 18 blocks
another GPU: failed: no GPU here is called "GPU-none"
too many chunks: refused
nonsense from run: exit 1
END
grep -v '^  then' "$work/hostile.out" | diff "$work/hostile.wanted" - >"$work/hostile.diff"
assert_equal 'what the carrier says' '' "$(cat "$work/hostile.diff")"
done_swap out out
done_swap in in --gpu-neighbours
assert_sum
close_engine

section 'the engine is killed while its memory comes'
for delay in 0 0.03 0.06; do
	HOSTCUDA_H2D_GBPS=0.1 begin_large dies --gpu-neighbours -- 0
	until_carrier 2
	done_swap out out
	victim=$(engine_pid)
	swap in in --gpu-neighbours &
	sleep "$delay"
	kill -KILL "$victim"
	wait $!
	end_engine 137
	for _ in $(seq 1200); do [ -z "$(carrier)" ] && break; sleep 0.05; done
	assert_equal 'the carrier' '' "$(carrier)"
done

section 'medusa-swap run is killed while memory comes'
for delay in 0 0.05; do
	HOSTCUDA_H2D_GBPS=0.1 begin_large orphan --gpu-neighbours -- 0
	until_carrier 2
	done_swap out out
	victim=$(engine_pid) manager=$(state pid)
	swap in in --gpu-neighbours &
	sleep "$delay"
	kill -KILL "$manager"
	wait $!
	assert_sum
	for _ in $(seq 1200); do [ -z "$(carrier)" ] && break; sleep 0.05; done
	assert_equal 'the carrier' '' "$(carrier)"
	end_orphan "$victim"
done

section 'two engines share the links'
begin_large first --gpu-neighbours -- 0
converse two medusa-swap run --name second --pool-bytes 256M --gpu-neighbours -- "${subject[@]}" 0 2>"$work/two.err"
two() { printf '%s\n' "$*" >&"$two_in"; read -r -t "$patience" answered <&"$two_out"; }
read -r -t "$patience" answered <&"$two_out"
two "alloc $megabytes"
two sum
assert_equal 'the same memory' "$wanted" "$answered"
until_carrier 2
sleep 1
of_first=0 of_second=0
for round in $(seq 24); do
	done_swap out out
	run out2 medusa-swap out second
	run in2 medusa-swap in second --gpu-neighbours --json &
	done_swap in in --gpu-neighbours
	wait $!
	of_first=$((of_first + $(number in copied_by_neighbours)))
	of_second=$((of_second + $(sed -n 's/^  "copied_by_neighbours": \([0-9]*\).*/\1/p' "$work/in2.out")))
	assert_sum
	two sum
	assert_equal 'what the memory of the other engine holds' "$wanted" "$answered"
	[ "$round" -lt 6 ] || [ "$of_first" -lt 2000000 ] || [ "$of_second" -lt 2000000 ] || break # a carrier may come too late
done
assert_at_least 'what neighbours brought to the first engine' 2000000 "$of_first"
assert_at_least 'what neighbours brought to the second engine' 2000000 "$of_second"
exec {two_in}>&-
wait "$two_shell"
exec {two_out}<&-
close_engine

section 'an engine that comes back on another device has other neighbours'
begin_large moved --gpu-neighbours -- 0
until_carrier 2
for gpu in 1 0 2; do
	done_swap out out --full
	done_swap in in --gpu "$gpu" --gpu-neighbours
	assert_sum
	come_in_helped "$gpu" --verify
done
close_engine
finish
