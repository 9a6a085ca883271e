#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On real GPUs, two of them visible: captures of PyTorch's ResNet-50 whose blocks lie in another order in every process,
# and of an engine of its own that decides by addresses. RUNS (10) captures each, PYTHON names the interpreter.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
python=${PYTHON:-python3} runs=${RUNS:-10} out=$build/tests/gpu/order failures=0
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "tests/gpu/order: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
devices=$(nvidia-smi -L | wc -l)
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
PATH=$(cd "$build/bin" && pwd):$PATH
unset CAPTURE MEDUSA_ARTIFACT MEDUSA_RESOLVE MEDUSA_PROBE MEDUSA_ORDER PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
printf '%s; %s GPUs visible; %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$devices" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"
[ "$devices" -ge 2 ] || echo "note: with one GPU visible addresses mostly keep their order by themselves"

say() { # good, text
	[ "$1" = 0 ] && printf '  pass  %s\n' "$2" && return
	failures=$((failures + 1))
	printf '  FAIL  %s\n' "$2"
}

# What counts is that all graphs came through, and what a cold start made of them.
chain() { # name, graphs, command...
	local name=$1 graphs=$2 code=0
	shift 2
	timeout --kill-after=5 280 medusa-capture -o "$out/$name.medusa" -- "$@" >"$out/$name.log" 2>&1 || code=$?
	grep -q "verification: $graphs passed, 0 failed, 0 not compared" "$out/$name.log" && [ $code = 0 ]
	say $? "$name: capture: exit $code, $(grep -E 'verification: .*passed|refused:|CUDA_ERROR' "$out/$name.log" | head -n 1)"
	[ -e "$out/$name.medusa" ] || return
	code=0
	timeout --kill-after=5 240 medusa-restore "$out/$name.medusa" -- "$@" >"$out/$name.restored" 2>&1 || code=$?
	say $code "$name: restore: exit $code, $(tail -n 1 "$out/$name.restored")"
}

if "$python" -c 'import torch' 2>/dev/null; then
	for run in $(seq "$runs"); do
		chain "resnet$run" 4 "$python" tests/gpu/torch_resnet.py --artifact "$out/resnet$run.medusa"
	done
else
	echo "  skip  resnet: PyTorch is not installed"
fi

image=$build/tests/images/restore_kernels.fatbin
subject=$build/tests/subjects/order_subject
for run in $(seq "$runs"); do
	engine=("$subject" "$image" "seed=$run" bound attributes)
	"${engine[@]}" >"$out/live$run" 2>/dev/null
	chain "bound$run" 3 "${engine[@]}"
	medusa-restore "$out/bound$run.medusa" -- "${engine[@]}" >"$out/again$run" 2>/dev/null
	cmp -s "$out/live$run" "$out/again$run" && ! grep -q wrong: "$out/bound$run.log"
	say $? "bound$run: the same output as live, and nothing wrong about what the driver says of its memory"
	engine=("$subject" "$image" "seed=$run")
	"${engine[@]}" >"$out/live$run" 2>/dev/null
	medusa-capture -o "$out/unnamed$run.medusa" -- "${engine[@]}" >"$out/unnamed$run.log" 2>&1
	for start in 1 2 3; do # in the same order, or refused by name
		medusa-restore "$out/unnamed$run.medusa" -- "${engine[@]}" >"$out/again$run" 2>"$out/unnamed$run.$start.log"
		cmp -s "$out/live$run" "$out/again$run"
		say $? "unnamed$run: start $start: $(grep -m 1 'nothing is restored' "$out/unnamed$run.$start.log" || grep -c ' restored ' "$out/unnamed$run.$start.log")"
	done
done
[ $failures = 0 ] && echo "all passed" || echo "$failures failures; logs in $out"
[ $failures = 0 ]
