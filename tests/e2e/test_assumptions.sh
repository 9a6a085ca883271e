#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What an engine's graphs depend on though nobody stated it: shown to be equal at a cold start, or refused by name.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/assumptions_subject

captured() { # name, exit code, options of medusa-capture... -- command...
	local name=$1 wanted=$2
	shift 2
	run "$name.captured" medusa-capture -o "$work/$name.medusa" "$@"
	assert_exit "$name.captured" "$wanted"
}

restored() { # run, artifact, command...: the outputs are right, however the graphs came
	local name=$1 artifact=$2
	shift 2
	run "$name" medusa-restore "$work/$artifact.medusa" -- "$@"
	assert_exit "$name" 0
	python3 - "$work/$name.out" <<'END' || fail "right outputs of run '$name'" "$(excerpt "$work/$name.out")"
import re, sys
lines = open(sys.argv[1]).read().splitlines()
wrong = [line for line in lines if not (found := re.match(r"out (\d+), wanted (\d+)$", line)) or found[1] != found[2]]
sys.exit(not lines or bool(wrong))
END
	checks=$((checks + 1))
}

refused() { # run, artifact, reason, command...
	local name=$1 artifact=$2 reason=$3
	shift 3
	restored "$name" "$artifact" "$@"
	assert_contains "$work/$name.err" " live fingerprint: $reason"
	assert_count "$work/$name.err" "medusa restore: nothing is restored: fingerprint: $reason" 1
}

section "arguments"
captured plain 0 -- "$subject" --value 5
run inspect medusa-inspect "$work/plain.medusa"
assert_contains "$work/inspect.out" "argument 2 5"
restored same plain "$subject" --value 5
assert_contains "$work/same.err" "constant restored"
refused other plain 'argument 2 is "7", the artifact was captured with "5"; capture with --vary '"'--value=*'" "$subject" --value 7
refused more plain 'argument 3 is "--port=1", the artifact was captured with none there; capture with --vary '"'--port=*'" "$subject" --value 5 --port=1
refused fewer plain 'argument 1 is missing, the artifact was captured with "--value"' "$subject"
run text medusa-inspect --text "$work/plain.medusa"
assert_contains "$work/text.out" 'argument text="--value"'
sed '/^argument /d' "$work/text.out" >"$work/silent.txt"
run silent.made medusa-inspect --from-text "$work/silent.txt" -o "$work/silent.medusa"
refused silent silent "the artifact does not say with which arguments it was captured" "$subject" --value 5
run verified medusa-verify "$work/plain.medusa" -- "$subject" --value 7
assert_exit verified 1
run diffed medusa-inspect --diff "$work/plain.medusa" "$work/silent.medusa"
assert_contains "$work/diffed.out" "argument 2"

section "the same program by another path"
ln -s "$subject" "$work/assumptions_subject"
ln -s "$subject" "$work/another"
restored path plain "$work/assumptions_subject" --value 5
assert_contains "$work/path.err" "constant restored"
refused program plain "argument 0 is \"$work/another\"" "$work/another" --value 5

section "another build of the program, or another script"
another_build="the program, or the script that it runs, is another file than the one that the artifact was captured with: capture again, or capture with --vary program if its graphs do not depend on it"
rebuilt() { # file: with another build-id
	python3 - "$subject" "$1" <<'END'
import os, sys
bytes_ = bytearray(open(sys.argv[1], "rb").read())
at = bytes_.find(b"\4\0\0\0\24\0\0\0\3\0\0\0GNU\0")
assert at >= 0, "no build-id"
bytes_[at + 16] ^= 1
open(sys.argv[2], "wb").write(bytes_)
os.chmod(sys.argv[2], 0o755)
END
}
mkdir "$work/rebuilt" && rebuilt "$work/rebuilt/assumptions_subject"
export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$MEDUSA_BUILD/lib # it lies elsewhere than its library
refused rebuilt plain "$another_build" "$work/rebuilt/assumptions_subject" --value 5
captured any_build 0 --vary program -- "$subject" --value 5
restored rebuilt.any any_build "$work/rebuilt/assumptions_subject" --value 5
assert_contains "$work/rebuilt.any.err" "constant restored"

section "arguments that may vary"
captured vary 0 --vary '--port=*' --vary '*.log' --vary -v -- "$subject" --port 8000 --value 5
run vary.text medusa-inspect --text "$work/vary.medusa"
assert_contains "$work/vary.text.out" 'may_vary text="--port=*"'
restored port vary "$subject" --port 8001 --value 5
restored equals vary "$subject" -v --value 5 --port=8001 today.log
restored without vary "$subject" --value 5
for name in port equals without; do
	assert_contains "$work/$name.err" "constant restored"
done
refused kept vary 'argument 4 is "7", the artifact was captured with "5"' "$subject" --port 8001 --value 7
refused dangling vary 'argument 3 is "--port", the artifact was captured with none there' "$subject" --value 5 --port

section "two captures with other arguments"
for value in 5 7; do
	MEDUSA_TRACE=$work/$value.mtrace run "$value.traced" env "$(preload capture)" "$subject" --value 5 --log $value.log
done
run apart medusa-analyze "$work/5.mtrace" "$work/7.mtrace" -o "$work/apart.medusa"
assert_exit apart 3
assert_contains "$work/apart.err" 'argument 4 is "7.log", the first capture has "5.log"'
run together medusa-analyze "$work/5.mtrace" "$work/7.mtrace" -o "$work/together.medusa" --vary '*.log'
assert_lacks "$work/together.err" "argument"

section "an engine that states facts"
SUBJECT_FACT=5 captured facts 0 -- "$subject" --value 5
SUBJECT_FACT=5 restored facts facts "$subject" --port 8001 --value 5
assert_contains "$work/facts.err" "constant restored"
SUBJECT_FACT=7 restored other_fact facts "$subject" --value 7
assert_contains "$work/other_fact.err" 'constant live fingerprint: fact "value": artifact has 5, this engine 7'

section "an interpreter and its script; a worker of Python's multiprocessing"
cat >"$work/worker.py" <<'END'
import ctypes, multiprocessing, sys
def engine(value):
    cuda, medusa = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
    medusa.medusa_reason.restype = ctypes.c_char_p
    context, stream, out, graph, exec_ = (ctypes.c_void_p() for _ in range(5))
    found, by = ctypes.c_uint(), ctypes.byref
    def call(name, *arguments):
        assert getattr(cuda, name)(*arguments) == 0, name
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", by(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", by(stream), 1)
    call("cuMemAlloc_v2", by(out), ctypes.c_size_t(4096))
    medusa.medusa_bind(b"out", out, ctypes.c_size_t(4096), 4)
    if medusa.medusa_graph_get(b"g", 1, ctypes.c_uint64(2**64 - 1), by(exec_)) == 0:
        print("g restored", file=sys.stderr)
    else:
        print("g live", medusa.medusa_reason().decode(), file=sys.stderr)
        call("cuStreamBeginCapture_v2", stream, 2)
        call("cuMemsetD32Async", out, value, ctypes.c_size_t(1024), stream)
        call("cuStreamEndCapture", stream, by(graph))
        call("cuGraphInstantiateWithFlags", by(exec_), graph, ctypes.c_uint64(0))
        medusa.medusa_graph_label(exec_, b"g", 1)
    call("cuGraphLaunch", exec_, stream)
    call("cuStreamSynchronize", stream)
    call("cuMemcpyDtoH_v2", by(found), out, ctypes.c_size_t(4))
    print(f"out {found.value}, wanted {value}", flush=True)
if __name__ == "__main__":
    value = int(sys.argv[1])
    if sys.argv[2] == "alone":
        engine(value)
    else:
        worker = multiprocessing.get_context("spawn").Process(target=engine, args=(value,))
        worker.start()
        worker.join()
        sys.exit(worker.exitcode)
END
mkdir "$work/elsewhere" && cp "$work/worker.py" "$work/elsewhere"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # Python never gives back all that it takes
for how in alone spawn; do
	captured $how 0 -- python3 "$work/worker.py" 5 $how
	restored $how.same $how python3 "$work/elsewhere/worker.py" 5 $how
	assert_contains "$work/$how.same.err" "g restored"
	mkdir "$work/$how.edited" && { cat "$work/worker.py" && echo '# edited'; } >"$work/$how.edited/worker.py"
	refused $how.edited $how "$another_build" python3 "$work/$how.edited/worker.py" 5 $how
	refused $how.other $how 'argument 2 is "7", the artifact was captured with "5"' python3 "$work/worker.py" 7 $how
done
section "nothing that is compared"
SUBJECT=unbound captured unbound 1 -- "$subject"
assert_contains "$work/unbound.captured.err" "refused: (first, 1): writes unbound memory, and graph second/1 reads it: the engine must bind it"
assert_contains "$work/unbound.captured.err" "refused: (second, 1): "
SUBJECT=unbound restored unbound.cold unbound "$subject"
assert_count "$work/unbound.cold.err" " live " 2

SUBJECT=nothing captured nothing 1 -- "$subject"
assert_contains "$work/nothing.captured.err" "refused: (first, 1): not compared: it writes only unbound memory"

section "graphs that hand a value on"
for how in between destroys; do
	SUBJECT=$how captured $how 0 -- "$subject"
	SUBJECT=$how restored $how.cold $how "$subject"
	assert_count "$work/$how.cold.err" " restored" 2
done
SUBJECT=relay captured relay 0 -- "$subject"
SUBJECT=relay restored relay.cold relay "$subject"
assert_count "$work/relay.cold.err" " restored" 3
SUBJECT=between run between.single medusa-capture --no-verify -o "$work/between.single.medusa" -- "$subject"
assert_exit between.single 1
assert_contains "$work/between.single.err" "refused: (first, 1): writes unbound memory, and graph second/1 reads it: the engine must bind it"
assert_contains "$work/between.single.err" "refused: (second, 1): reads unbound memory, and graph first/1 writes it: the engine must bind it"

section "graphs that share scratch memory, and nothing else"
SUBJECT=scratch captured scratch 0 -- "$subject"
assert_contains "$work/scratch.captured.err" "verification: 2 passed, 0 failed, 0 not compared"
SUBJECT=scratch restored scratch.cold scratch "$subject"
assert_count "$work/scratch.cold.err" " restored" 2

section "memory of a graph that the engine copies or sets"
for how in read write; do
	SUBJECT=touch_$how captured touch_$how 1 -- "$subject"
	SUBJECT=touch_$how restored touch_$how.cold touch_$how "$subject"
done
assert_contains "$work/touch_read.captured.err" "cuMemcpyDtoH_v2 reads 4 bytes of unbound memory that the graph writes"
assert_contains "$work/touch_write.captured.err" "cuMemcpyHtoD_v2 writes 16384 bytes of unbound memory that the graph reads"
section "an address where one binding ends and another begins"
images=$MEDUSA_BUILD/tests/images
export SUBJECT_IMAGE=$images/restore_kernels.host.so
SUBJECT=span captured span 0 -- "$subject"
SUBJECT=span restored span.same span "$subject"
assert_contains "$work/span.same.err" "span restored"
SUBJECT=span SUBJECT_APART=1 restored span.apart span "$subject"
assert_contains "$work/span.apart.err" "span live binding \"behind\" lay right behind \"in\" in the capture, and a kernel has the address between the two; in this process it does not lie there"
run span.json medusa-inspect --json "$work/span.medusa"
assert_contains "$work/span.json.out" '"before": "in"'

section "two names of one memory"
SUBJECT=shared captured shared 0 -- "$subject"
SUBJECT=shared restored shared.same shared "$subject"
assert_contains "$work/shared.same.err" "shared restored"
SUBJECT=shared SUBJECT_APART=1 restored shared.apart shared "$subject"
assert_contains "$work/shared.apart.err" 'shared live binding "second" lay 0 bytes behind the beginning of "first" in the capture, in memory that both share; in this process it does not lie there'
run shared.json medusa-inspect --json "$work/shared.medusa"
assert_contains "$work/shared.json.out" '"within": "first"'
SUBJECT=shared SUBJECT_APART=1 captured apart 0 -- "$subject"
SUBJECT=shared restored apart.shared apart "$subject"
assert_contains "$work/apart.shared.err" "shared restored"
SUBJECT=shared captured one_apart 1 --second "SUBJECT_APART=1 $subject" -- "$subject"
assert_contains "$work/one_apart.captured.err" "refused: (shared, 1):"

section "a binding that is aligned to less than in the capture"
SUBJECT=shared SUBJECT_MOVE=64 restored shared.moved shared "$subject"
assert_contains "$work/shared.moved.err" "shared restored"
SUBJECT=shared SUBJECT_MOVE=4 restored shared.odd shared "$subject"
assert_contains "$work/shared.odd.err" 'shared live binding "first" began at a multiple of 32 bytes in the capture; in this process it does not'
SUBJECT=shared SUBJECT_MOVE=4 captured odd 0 -- "$subject"
SUBJECT=shared SUBJECT_MOVE=12 restored odd.moved odd "$subject"
assert_contains "$work/odd.moved.err" "shared restored"

section "a binding that is moved"
SUBJECT=moves captured moves 0 -- "$subject"
SUBJECT=moves restored moves.cold moves "$subject"
assert_contains "$work/moves.cold.err" "moves restored"
assert_contains "$work/moves.cold.err" "out is not bound: binding \"out\" is used by graph moves/1, which was handed out"
assert_contains "$work/moves.cold.err" "moves live graph moves/1, or another graph of its group, uses a binding that was moved"

section "memory of a binding that is freed, and a graph that the engine destroys"
freed() { # how, what the binding is called, how often the graph is restored
	SUBJECT=moves SUBJECT_HOW=$1 captured "$1" 0 --accept-unvaried -- "$subject"
	SUBJECT=moves SUBJECT_HOW=$1 restored "$1.cold" "$1" "$subject"
	assert_count "$work/$1.cold.err" "moves restored" "$3"
	assert_contains "$work/$1.cold.err" "moves live the engine has freed binding \"$2\" and not bound it again: bind the memory that is there in its place"
}
freed frees out 1
freed host out 1
freed sequence @allocation.0 1
freed early out 0
SUBJECT=moves SUBJECT_HOW=destroys captured destroyed 0 -- "$subject"
SUBJECT=moves SUBJECT_HOW=destroys restored destroyed.cold destroyed "$subject"
assert_count "$work/destroyed.cold.err" "moves restored" 1
assert_contains "$work/destroyed.cold.err" "moves live the engine has destroyed graph moves/1, which belongs to Medusa"

section "inputs that are zero until a request comes"
export SUBJECT=zeros IMAGE=$MEDUSA_BUILD/tests/images/memory_kernels.host.so SUBJECT_FACT=1
same='not compared: its inputs held the same bytes in every comparison'
captured zeros 1 -- "$subject"
assert_count "$work/zeros.captured.err" "$same" 2
REQUEST=1 restored zeros.cold zeros "$subject"
assert_count "$work/zeros.cold.err" " live graph " 2
captured accepted 0 --accept-unvaried -- "$subject" # the user has said that nothing depends on them: it is on his head
run accepted.inspect medusa-inspect "$work/accepted.medusa"
assert_contains "$work/accepted.inspect.out" "always compared on the same inputs were allowed"
run accepted.verified medusa-verify "$work/accepted.medusa" -- "$subject"
assert_exit accepted.verified 1
REQUEST=1 captured requested 0 -- "$subject" # the host has filled the table: it is kept, though no input has asked for it
REQUEST=1 restored requested.cold requested "$subject"
assert_lacks "$work/requested.cold.err" " live graph "
export TABLE=device # nothing is known of it: the second graph is compared on the inputs of the first one's launch
REQUEST=1 captured device 1 -- "$subject"
assert_count "$work/device.captured.err" "verification failed: private memory 0x00" 2
REQUEST=1 restored device.cold device "$subject"
unset TABLE
unset SUBJECT IMAGE SUBJECT_FACT
finish
