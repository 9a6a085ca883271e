#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many LoRA functions on one backbone, on one GPU: one table with what each number has to be. About four minutes on an H200.
#
#	OUT=FOLDER bench/h200-lora.sh           # PARTS="backbone serving" chooses; RECIPE, PROCESSES, STREAMS, ADAPTERS, RANK, STARTS, SECONDS_EACH, BUDGET
#
#	backbone   PROCESSES engines on one backbone (medusa-backbone): device memory, attaching, the restore of graphs, a first token from a process's start
#	template   a new function of PyTorch from a warm template (medusa-template), with the backbone's weights; needs PyTorch
#	batch      lora.sh: the decode graph of STREAMS rows with an adapter in each, against one without slots
#	serving    one engine, ADAPTERS adapters: one from host memory while others are served; tokens a second and times of tokens of batches that mix them
#	peak       two functions in one budget of memory: sequences at one time and tokens a second, with one backbone and without
#
# Each part has a deadline, and one that fails leaves the others alone. RECORD=FILE also writes the table there.
set -u
cd "$(dirname "$0")/.." || exit 2
. tests/e2e/device.sh
all="backbone template batch serving peak"
parts=${PARTS:-$all} python=${PYTHON:-python3} failures=0
export RECIPE=${RECIPE:-qwen1.5-4b} STREAMS=${STREAMS:-32} ADAPTERS=${ADAPTERS:-64} RANK=${RANK:-16}
for part in $parts; do
	[[ " $all " == *" $part "* ]] || { echo "h200-lora: PARTS: no part $part; there are $all" && exit 2; }
done
if [ "$MEDUSA_DEVICE" != gpu ] && [ "${ANY_DEVICE:-0}" = 0 ]; then
	echo "h200-lora: skipped: no NVIDIA GPU with a driver is here (ANY_DEVICE=1 tries it all on hostcuda, whose times mean nothing)"
	exit 77
fi
[ -e "models/recipes/$RECIPE.yaml" ] || { echo "h200-lora: RECIPE: no recipe models/recipes/$RECIPE.yaml" && exit 2; }
for tool in bin/medusa-capture bin/medusa-restore bin/medusa-backbone models/llama/llama-engine; do
	[ -x "$build/$tool" ] || { echo "h200-lora: $build/$tool is missing: make all" && exit 2; }
done
out=${OUT:-$build/bench/lora}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
work=$(mktemp -d "${TMPDIR:-/tmp}/medusa-lora.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR=$work MEDUSA_LOG=${MEDUSA_LOG:-error} CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
[ "$MEDUSA_DEVICE" = gpu ] || { unset CUDA_VISIBLE_DEVICES && export HOSTCUDA_SHARED=$work/ledger; }

# What lora.sh says of the largest batch, as a row.
batch() {
	local line ratio
	line=$(RECIPES=$RECIPE RANKS=$RANK BATCHES=1,$STREAMS SLOTS=$ADAPTERS ROUNDS=${ROUNDS:-100} bench/lora.sh 2>"$out/batch.log" | awk -v batch="$STREAMS" '$3 == batch')
	ratio=$(awk '{ print $6 }' <<<"$line")
	if [ -z "$ratio" ]; then
		printf '| batch: bench/lora.sh | not measured: %s | - | **no** |\n' "$(tail -n 1 "$out/batch.log" | tr '|' '/')"
		return 1
	fi
	printf '| the decode graph of %s rows, each with an adapter of rank %s, against one without slots | %s ms x %s | 1.05 | ' "$STREAMS" "$RANK" "$(awk '{ print $4 }' <<<"$line")" "$ratio"
	awk -v ratio="$ratio" 'BEGIN { print ratio <= 1.05 ? "yes |" : "**no** |"; exit ratio > 1.05 }'
}

limit() { # seconds for a part
	case $1 in backbone) echo 100 ;; serving) echo 110 ;; *) echo 80 ;; esac
}

measure() { # part: its rows
	local code=0
	if [ "$1" = template ] && ! "$python" -c 'import torch' 2>/dev/null; then
		echo "| template | not measured: $python has no PyTorch | - | - |"
		return 0
	fi
	if [ "$1" = batch ]; then
		export -f batch
		export out
		timeout --kill-after=5 "${LIMIT:-80}" bash -c batch
	else
		timeout --kill-after=10 "${LIMIT:-$(limit "$1")}" "$python" bench/lora_parts.py "$1" "$work/$1" 2>"$out/$1.log"
	fi || code=$?
	[ $code != 124 ] && [ $code != 137 ] || echo "| $1: the rest of it | not measured: its time was over | - | **no** |"
	return $code
}

rows=
for part in $parts; do
	found=$(measure "$part") || failures=$((failures + 1))
	rows+=${rows:+$'\n'}$found
	printf '%s\n' "$found" | sed 's/^/  /' >&2
done
text="# Many LoRA functions on one backbone

Written by \`bench/h200-lora.sh\`; the shape of $RECIPE, adapters of rank $RANK. Ratios are of one run.

$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)$([ "$MEDUSA_DEVICE" = gpu ] || echo 'hostcuda, whose times mean nothing'), $(nproc) cores, $(free -g | awk '/^Mem/ { print $2 }') GiB of host memory; $("$python" -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null || echo 'no PyTorch'); $(date -u '+%F %H:%M UTC'); commit ${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}; $SECONDS s

| | measured | asked for | reached |
|---|---|---|---|
$rows"
printf '%s\n' "$text"
printf '%s\n' "$text" >"$out/$RECIPE.md"
[ -z "${RECORD:-}" ] || printf '%s\n' "$text" >"$RECORD"
printf 'h200-lora: %d parts did not reach all; records in %s\n' $failures "$out"
[ $failures = 0 ]
