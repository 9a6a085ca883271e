#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/h200-tp.sh and its table without PyTorch and GPUs: commands that only write what the real ones would report.
. "$(dirname "$0")/lib.sh"
bench=bench/h200-tp.sh
unset MODELS STEPS ROUNDS CYCLES LAYERS BATCHES RANKS OUT PYTHON

section "without GPUs"
run skipped env MEDUSA_DEVICE=host $bench
assert_exit skipped 77
assert_contains "$work/skipped.out" "h200-tp: skipped: 2 NVIDIA GPUs with a driver are needed, and 0 are here"

stubs=$work/build
mkdir -p "$stubs/bin" "$stubs/bench" "$work/path"
cat >"$work/path/nvidia-smi" <<'EOS'
#!/bin/bash
[ "$1" = -L ] || { echo "Stub GPU, 1.0" && exit; }
for ((i = 0; i < ${STUB_GPUS:-2}; i++)); do echo "GPU $i: Stub (UUID: GPU-$i)"; done
EOS
cat >"$work/path/python" <<'EOS'
#!/usr/bin/env python3
"""In the place of Python with PyTorch: torchrun is one process, which runs the engine for each rank; everything else is Python."""
import json, os, subprocess, sys, time
args, fault = sys.argv[1:], os.environ.get("STUB_FAULT", "")
if args[:1] == ["-c"]:
    print("stub")
    sys.exit(fault == "no torch")
if args[:2] == ["-m", "torch.distributed.run"]:
    ranks, command = int(args[args.index("--nproc-per-node") + 1]), args[args.index("--no-python") + 1:]
    sys.exit(max(subprocess.run(command, env={**os.environ, "RANK": str(rank)}).returncode for rank in range(ranks)))
if args[:1] != ["bench/tp_decode.py"]:
    os.execv("/usr/bin/python3", ["python3", *args])
value = lambda name, default="": args[args.index(name) + 1] if name in args else default
mode, rank, report = os.environ.get("STUB_MODE", "none"), os.environ["RANK"], value("--report")
with open(os.environ["STUB_CALLS"], "a") as calls:
    calls.write(f"{mode} {rank} {' '.join(args[1:-2])}\n")
cycle = "cycle.run" in report
if cycle and fault == "hang":
    time.sleep(3)
    sys.exit(124)
restored = mode == "restore"
batches = [int(b) for b in value("--batches", "1,2,4").split(",")]
graphs = [{"batch": b, "restored": restored and not (fault == "live" and b == 2), "reason": "a reason" if fault == "live" and b == 2 and restored else "",
           "output": "wrong" if restored and fault == "wrong" and rank == "1" else f"{rank}.{b}", "kv": "kv",
           **({"replay_us": 101.0 if restored else 100.0} if value("--replays") else {})} for b in batches]
json.dump({"mode": mode, "communicator_ms": 900.0, "weights_ms": 800.0, "first_graph_ms": 20.0 + int(rank), "graphs_ms": 40.0 if restored else 600.0 + int(rank),
           "graphs": graphs}, open(report, "w"))
EOS
for mode in capture restore verify; do
	cat >"$stubs/bin/medusa-$mode" <<EOS
#!/bin/bash
args=("\$@")
while [ "\$1" != -- ]; do shift; done && shift
[ $mode != capture ] || mkdir -p "\${args[1]}"
STUB_MODE=$mode "\$@" || exit
[ $mode != verify ] || echo '{"ranks": [{"rank": 0, "graphs": [{"label": "decode", "batch": 1, "outcome": "passed"}]}, {"rank": 1, "graphs": [{"label": "decode", "batch": 1, "outcome": "passed"}]}]}'
EOS
done
cat >"$stubs/bench/floor" <<'EOS'
#!/bin/bash
echo '{"total_ms": 35.0}'
EOS
chmod +x "$work/path"/* "$stubs"/*/*

bench() { # name, assignments...
	local name=$1
	shift
	run "$name" env MEDUSA_DEVICE=gpu BUILD="$stubs" PATH="$work/path:$PATH" PYTHON="$work/path/python" STUB_CALLS="$work/calls" OUT="$work/$name" \
		MODELS=llama2-13b ROUNDS=2 CYCLES=3 "$@" $bench
}

section "what is needed"
bench one STUB_GPUS=1
assert_exit one 77
assert_contains "$work/one.out" "skipped: 2 NVIDIA GPUs with a driver are needed, and 1 are here"
bench torchless STUB_FAULT="no torch"
assert_exit torchless 77
bench nothing MODELS=none
assert_exit nothing 2
assert_contains "$work/nothing.out" "h200-tp: MODELS: no recipe models/recipes/none.yaml"

section "all as it should be"
bench good
assert_exit good 0
table=$work/good/llama2-13b.md
for row in "| graphs that were restored, over all ranks and rounds | 12 of 12 | yes |" "results equal to a live start's, bit by bit | 12 of 12 | yes |" \
	"finds equal to live replays in fresh processes | 2 of 2 | yes |" "(at least 10 x) | 601 ms / 40.0 ms = 15.0 x | yes |" "(at most 1.3 x) | 40.0 ms / 35.0 ms = 1.14 x | yes |" \
	"first graph after communicator and weights are ready (at most 30 ms) | 21.0 ms | yes |" "(median within 2%, or faster) | 1.010, from 1.010 to 1.010 | yes |" \
	"| 3 restore cycles without a hang or another result | 3 of 3, 0 hung | yes |"; do
	assert_contains "$table" "$row"
done
assert_count "$work/calls" "restore 1 --recipe models/recipes/llama2-13b.yaml --replays 20" 2
assert_count "$work/calls" "restore 1 --recipe models/recipes/llama2-13b.yaml --layers 2 --batches 1,8" 3
section "a run that goes on where it was"
: >"$work/calls"
bench good
assert_exit good 0
assert_equal "what ran again" "" "$(cat "$work/calls")"

section "what is not as it should be"
bench wrong STUB_FAULT=wrong
assert_exit wrong 1
assert_contains "$work/wrong/llama2-13b.md" "bit by bit | 6 of 12 | **no** |"
assert_contains "$work/wrong/llama2-13b.md" "| 0 of 3, 0 hung | **no** |"
bench live STUB_FAULT=live
assert_exit live 1
assert_contains "$work/live/llama2-13b.md" "| 8 of 12 | **no** |"
assert_contains "$work/live/llama2-13b.md" "captured live: a reason"
bench hang STUB_FAULT=hang
assert_exit hang 1
assert_contains "$work/hang/llama2-13b.md" "| 0 of 3, 3 hung | **no** |"
bench less STEPS="live" CYCLES=0
assert_exit less 1
assert_contains "$work/less/llama2-13b.md" "| restore against live warm-up, capture and instantiation (at least 10 x) | - | not measured |"
finish
