#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Captures, analyzes and restores the reference engine's 35 decode graphs and prints ratios within this run.
# On hostcuda (the default) with a seeded 24-layer model; bench/h200-llama.sh runs it on a GPU at Qwen1.5-4B's shape.
set -eu
cd "$(dirname "$0")/.."
MEDUSA_DEVICE=${MEDUSA_DEVICE:-host}
. tests/e2e/device.sh
export PATH=$PWD/$build/bin:$PATH
work=$build/bench/work results=${RESULTS:-bench/results}
mkdir -p "$work" "$results"
batches=$(python3 -c 'print(",".join(map(str, [1, 2, 4] + list(range(8, 257, 8)))))')
engine=("$build/models/llama/llama-engine" --recipe "${RECIPE:-models/recipes/bench24.yaml}" --seed 3 --batches "$batches" --tokens 8 --quiet
	--kv-blocks "${KV_BLOCKS:-300}" ${ENGINE_ARGS:-})
rounds=${ROUNDS:-5}

capture=(env MEDUSA_TRACE="$work/plain.mtrace" LD_PRELOAD="$build/lib/libmedusa-capture.so")

wall() { # FILE COMMAND...: how long the whole process took
	local file=$1 start=$EPOCHREALTIME
	shift
	"$@" >/dev/null
	python3 -c "print('{\"seconds\": %.6f}' % ($EPOCHREALTIME - $start))" >"$file"
}

for i in $(seq "$rounds"); do
	echo "round $i of $rounds: live, and under capture" >&2
	wall "$work/live_wall.$i.json" "${engine[@]}" --report "$work/live.$i.json"
	wall "$work/captured_wall.$i.json" env MEDUSA_PROBE=0 "${capture[@]}" "${engine[@]}" --report "$work/captured.$i.json"
	wall "$work/probed_wall.$i.json" "${capture[@]}" "${engine[@]}" --report "$work/probed.$i.json"
done
echo "capture, analysis, proof" >&2
medusa-capture -o "$work/bench.medusa" --keep-traces -- "${engine[@]}" >/dev/null
for i in $(seq "$rounds"); do
	echo "round $i of $rounds: analysis, floor, restore" >&2
	"$build/bench/analysis" "$work/bench.1.mtrace" "$work/bench.2.mtrace" "$work/again.medusa" >"$work/analysis.$i.json"
	"$build/bench/floor" "$work/bench.medusa" >"$work/floor.$i.json"
	medusa-restore "$work/bench.medusa" -- "${engine[@]}" --check ${TIMED_ARGS:-} --report "$work/restored.$i.json" >/dev/null
done
if [ "$MEDUSA_DEVICE" = host ]; then
	echo "an engine with vLLM's proportions" >&2
	wide=(env SUBJECT_IMAGE="$build/tests/images/restore_kernels.host.so" HOSTCUDA_MEM=140G "$build/tests/subjects/wide_subject")
	rm -f "$work/wide.calls" "$work/wide.live.calls"
	"${wide[@]}" >"$work/wide.live.out"
	env MEDUSA_PROBE_KERNEL="$build/tests/images/probe_kernels.host.so" HOSTCUDA_CALLS="$work/wide.calls" MEDUSA_LOG=debug \
		MEDUSA_TRACE="$work/wide.mtrace" LD_PRELOAD="$build/lib/libmedusa-capture.so" "${wide[@]}" >"$work/wide.out" 2>"$work/wide.err"
	cmp "$work/wide.live.out" "$work/wide.out"
	echo "an engine that cuts each forward into many small graphs" >&2
	pieces=(env SUBJECT_IMAGE="$build/tests/images/restore_kernels.host.so" SUBJECT_GRAPHS=51 SUBJECT_PIECES=26 SUBJECT_NODES=15 SUBJECT_LAYERS=4
		SUBJECT_KV_MIB=1 SUBJECT_POOL_MIB=3 SUBJECT_COPIES=1 HOSTCUDA_MEM=4G)
	subject=$build/tests/subjects/wide_subject
	export MEDUSA_PROBE_KERNEL="$build/tests/images/probe_kernels.host.so"
	rm -f "$work"/pieces.*
	"${pieces[@]}" "$subject" >"$work/pieces.live.out" 2>"$work/pieces.live.err"
	"${pieces[@]}" HOSTCUDA_CALLS="$work/pieces.captured.calls" MEDUSA_TRACE="$work/pieces.mtrace" \
		LD_PRELOAD="$build/lib/libmedusa-capture.so" "$subject" >"$work/pieces.captured.out" 2>"$work/pieces.captured.err"
	MEDUSA_PROBE=0 "${pieces[@]}" medusa-capture -o "$work/pieces.medusa" --no-verify -- "$subject" >/dev/null
	for i in $(seq "$rounds"); do
		"$build/bench/floor" "$work/pieces.medusa" >"$work/pieces.floor.$i.json"
		"${pieces[@]}" medusa-restore "$work/pieces.medusa" -- "$subject" >"$work/pieces.cold.out" 2>"$work/pieces.cold.$i.err"
	done
	"$build/bench/open_times" 20 "$work/pieces.medusa" >"$work/pieces.open"
	"${pieces[@]}" SUBJECT_GRAPHS=6 MEDUSA_PROBE=0 medusa-capture -o "$work/pieces.few.medusa" --no-verify -- "$subject" >/dev/null
	"${pieces[@]}" SUBJECT_GRAPHS=6 HOSTCUDA_CALLS="$work/pieces.verified.calls" MEDUSA_ARTIFACT="$work/pieces.few.medusa" MEDUSA_VERIFY=1 \
		MEDUSA_VERIFY_REPORT="$work/pieces.report" LD_PRELOAD="$build/lib/libmedusa-restore.so" "$subject" >/dev/null 2>&1
	for run in captured cold; do cmp "$work/pieces.live.out" "$work/pieces.$run.out"; done
	unset MEDUSA_PROBE_KERNEL
fi
python3 bench/table.py "$work" "$results" "${NAME:-hostcuda}" "$rounds"

# The scheduler's parts need no device.
if [ "$MEDUSA_DEVICE" = host ]; then
	echo "preloading" >&2
	"$build/bench/knapsack_times" >"$work/scheduler-knapsack.md"
	mv "$work/scheduler-knapsack.md" "$results/scheduler-knapsack.md"
	echo "plans of a cluster" >&2
	"$build/bench/cluster_plan_times" >"$work/cluster-plan.md"
	mv "$work/cluster-plan.md" "$results/cluster-plan.md"
	echo "quotas of tenants" >&2
	"$build/bench/worker_quota_times" >"$work/cluster-quotas.md"
	mv "$work/cluster-quotas.md" "$results/cluster-quotas.md"
	echo "prefixes of prompts" >&2
	{ "$build/bench/worker_prefix_times" && "$build/bench/prefix_routing"; } >"$work/cluster-prefixes.md"
	mv "$work/cluster-prefixes.md" "$results/cluster-prefixes.md"
	echo "the scheduler's steps" >&2
	"$build/bench/scheduler_decisions" >"$work/scheduler-decisions.md"
	mv "$work/scheduler-decisions.md" "$results/scheduler-decisions.md"
fi
