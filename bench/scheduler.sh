#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The scheduler's policies side by side on the papers' nodes, on loads made from a seed and, with TRACES=DIR, on public traces: all of it
# simulated. SEEDS=N and JOBS=N (processes at once) if wanted. Writes bench/results/scheduler.md; under 10 minutes on 2 cores.
# With the argument "million", only: how long 10^6 requests over 24 days take with each policy, into bench/results/scheduler-million.md.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build} results=${RESULTS:-bench/results}
simulate=$build/bin/medusa-simulate work=$build/bench/scheduler
[ -x "$simulate" ] || make --no-print-directory -s BUILD="$build" "$simulate"
rm -rf "$work"
mkdir -p "$work" "$results"
seeds=$(seq "${SEEDS:-6}")

job() { # name, node, functions, trace, policies, more options...: a line for xargs, without a blank at its end
	local name=$1 node=$2 functions=$3 trace=$4 policies=$5
	shift 5
	echo "$* --node simulator/nodes/$node.yaml --functions simulator/functions/$functions.yaml --trace '$trace'" \
		"--policy $policies --quiet --json '$work/$name.json'"
}

# Names of results: table.variant.seed; bench/scheduler_table.py looks for them.
torpor_node() { # name, functions, policies
	for seed in $seeds; do
		job "torpor.$2.$seed" torpor-v100 torpor-models torpor "$3" --count "$2" --duration 20min --seed "$seed"
	done
}

# Who is compared: each with contexts that are restored, and with contexts that are captured.
compared=fifo-lru,torpor,torpor-shared,swapserve,xlora,medusa
captured=fifo-lru-capture,torpor-capture,torpor-shared-capture,swapserve-capture,xlora-capture,medusa-capture

traces() { # file: nodes with the speed at which each says something
	local file=${TRACES:-}/$1 node speed mapping
	if [ -z "${TRACES:-}" ] || [ ! -e "$file" ]; then
		echo "skipped: $1 (TRACES=${TRACES:-} does not hold it)" >&2
		return
	fi
	shift
	for place in "$@"; do
		IFS=: read -r node speed <<<"$place"
		for mapping in round-robin zipf:1.0; do
			job "traces.${file##*/}~$node~$mapping~$speed" "$node" azure-32 "$file" "$compared,$captured" \
				--mapping "$mapping" --speed "$speed"
		done
	done
}

load() { # name, node, functions, law, numbers of GPUs, loads
	local gpus offered
	for gpus in $5; do
		for offered in $6; do
			job "loads.$1~$gpus~$offered" "$2" "$3" "$4" "$compared" --gpus "$gpus" --load "$offered"
		done
	done
}

# Loads that are hard to schedule, made from a seed (medusa-simulate(1), TRACES).
loads() {
	load images h200-images lora-images bursty:cov=2,zipf=1,requests=9000 "1 2 4 8" "0.6 0.85 1.0 1.2"
	load images-skewed h200-images lora-images bursty:cov=4,zipf=1.2,requests=9000 "4 8" "0.85 1.0"
	load adapters h200-x8 azure-32 bursty:cov=3,zipf=1,requests=9000 "2 4" "0.6 0.85 1.0"
	load day h200-x8 azure-32 diurnal:day=20min "2 8" "0.6 0.85 1.0"
	load burst h200-x8 azure-32 burst:factor=100 "2 8" "0.6 0.85"
	load huge h200-x8 huge-and-small poisson "1 2 4" "0.6 0.85 1.0 1.2"
	load cycle h200-images cyclic-7b cyclic "1 2 4" "0.6 0.85"
	load impossible h200-x8 impossible-slo poisson "1 2 4" "0.6 0.85 1.0"
	load hot h200-x8 hot-and-heavy poisson "1 2 4" "0.6 0.85 1.0 1.2"
	load sizes h200-x8 mixed-sizes poisson "2 4" "0.3 0.4 0.6"
	load all-fit h200-x8 all-fit poisson "2" "0.2 0.4 0.6 0.8"
}

jobs() {
	local full=torpor,torpor-fifo,torpor-lru,torpor-random,torpor-block,medusa count seed ablation variant
	for variant in xlora xlora-nbs xlora-npl xlora-ndo xlora-nab1 xlora-nab2 xlora-nab3; do
		ablation=${ablation:+$ablation,}$variant,$variant-capture
	done
	torpor_node torpor 160 native,torpor,medusa
	for count in 640 600 560 520 480; do
		torpor_node torpor $count $full
	done
	for count in 620 580 540 500; do
		torpor_node torpor $count torpor,medusa
	done
	for seed in $seeds; do
		job "xlora.4h.$seed" l40s-xlora xlora-llama2 mmpp "$ablation" --duration 4h --seed "$seed"
		job "swapserve.4h.$seed" h100-swapserve swapserve-models poisson swapserve,fifo-lru,medusa --duration 4h --seed "$seed"
	done
	job swapserve.scenario.1 h100-swapserve swapserve-models "$work/scenario.csv" swapserve,fifo-lru,medusa
	loads
	traces azure-llm-2023-conv.csv h200-x2:1 h200-x8:3
	traces azure-llm-2023-code.csv h200-x2:2 h200-x8:6
	traces mooncake-conversation.jsonl h200-x2:0.3 h200-x8:2 h200-x8:3
}

# One policy after the other, because times are measured.
million() { # name, policies, more options...
	local policy
	for policy in $2; do
		python3 - "$1" "$policy" "$work/million.json" "$simulate" "${@:3}" --policy "$policy" --quiet --json "$work/million.json" <<-'END'
			import json, resource, subprocess, sys
			name, policy, path, *command = sys.argv[1:]
			subprocess.run(command, check=True)
			used = resource.getrusage(resource.RUSAGE_CHILDREN)
			result = json.load(open(path))["policies"][0]
			decisions = " / ".join(f"{result['real'][f'decide_us_{k}']:.3g}" for k in ("p50", "p99", "p999"))
			print(f"| {name} | {policy} | {result['requests']['all']:,} | {used.ru_utime + used.ru_stime:.1f} | {decisions} |", flush=True)
		END
	done
}

if [ "${1:-}" = million ]; then
	policies=${POLICIES:-$("$simulate" --list | awk 'NF == 0 { exit } { print $1 }')}
	{
		printf '%s\n' '# 10^6 requests over 24 days' '' \
			'Made by `bench/scheduler.sh million` with one thread: the processor time that `medusa-simulate` takes, and what a decision takes. Wanted: a minute.' '' \
			'| load | policy | requests | seconds | decisions, us: median / 99 % / 99.9 % |' '|---|---|---|---|---|'
		million "32 functions of 4 models, daily" "$policies" --node simulator/nodes/h200-x8.yaml --gpus 2 --load 0.013 \
			--functions simulator/functions/azure-32.yaml --trace diurnal:day=24h --duration 576h
		million "276 adapters over 86 backbones, in bursts" "$policies" --node simulator/nodes/h200-images.yaml --gpus 4 \
			--functions simulator/functions/lora-images.yaml --trace bursty:requests=1000000
	} >"$work/million.md"
	mv "$work/million.md" "$results/scheduler-million.md"
	exit
fi

# Two engines are there and idle when the one comes that needs nearly all of the GPU; then one of them is wanted again.
printf 'seconds,function,context,generated\n0,gemma-7b-0,500,200\n0,deepseek-coder-6.7b-0,500,200\n%s\n%s\n' \
	30,llama-3.3-70b-fp8-0,500,200 60,gemma-7b-0,500,200 >"$work/scenario.csv"
started=$EPOCHSECONDS
jobs >"$work/jobs"
echo "$(wc -l <"$work/jobs") simulations" >&2
xargs -P "${JOBS:-$(nproc)}" -L 1 "$simulate" <"$work/jobs"
python3 bench/scheduler_table.py "$work" "$results/scheduler.md" $((EPOCHSECONDS - started))
