#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What slots for adapters cost in a decode step: median replays of the same graphs without slots, with empty ones, and with an adapter in each row,
# each in a slot of its own. SLOTS: how many there are, by default as many as rows of the largest batch.
#
#	RECIPES="qwen1.5-0.5b llama2-7b" RANKS="16 64" BATCHES=1,4,8 bench/lora.sh      # on a GPU; hostcuda: RECIPES=tiny
set -eu
cd "$(dirname "$0")/.."
. tests/e2e/device.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/medusa-lora.XXXXXX")
trap 'rm -rf "$work"' EXIT
batches=${BATCHES:-1,4,8}
rounds=${ROUNDS:-200}
rows=$(tr , '\n' <<<"$batches" | tail -n 1)
slots=${SLOTS:-$rows}

replay() { # name, arguments...: medians, a batch a line
	local name=$1
	shift
	"$build/models/llama/llama-engine" --recipe "$recipe" --batches "$batches" --kv-blocks 64 --tokens 1 --bench-replay "$rounds" --quiet --report "$work/$name.json" "$@" >/dev/null
	sed -n 's/.*"batch": \([0-9]*\),.*"replay_ms": \([0-9.]*\).*/\1 \2/p' "$work/$name.json" >"$work/$name"
}

printf '%-16s %5s %6s %12s %12s %12s\n' recipe rank batch 'none, ms' 'empty, x' 'adapters, x'
for name in ${RECIPES:-qwen1.5-0.5b}; do
	recipe=models/recipes/$name.yaml
	for rank in ${RANKS:-16}; do
		adapters=()
		python3 tests/llama/make_adapter.py --model "$recipe" --rank "$rank" --alpha "$rank" --seed 1 --type bf16 --peft "$work/adapter$rank"
		for slot in $(seq "$rows"); do # the same values, in a slot of their own
			ln -sfn "adapter$rank" "$work/adapter$rank.$slot"
			adapters+=(--adapter "$work/adapter$rank.$slot" --prompt x)
		done
		replay none
		replay empty --lora-slots "$slots" --max-lora-rank "$rank"
		replay full --lora-slots "$slots" --max-lora-rank "$rank" "${adapters[@]}"
		paste -d ' ' "$work/none" "$work/empty" "$work/full" |
			awk -v name="$name" -v rank="$rank" '{ printf "%-16s %5d %6d %12.4f %12.3f %12.3f\n", name, rank, $1, $2, $4 / $2, $6 / $2 }'
	done
done
