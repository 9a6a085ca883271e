#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random PyTorch engines on a real GPU, by the hundred: each is captured, verified, and restored in three fresh processes on
# poisoned memory, beside others; every answer is compared with the engine alone. Any wrong answer, and any engine hurt, fails.
#
#	tests/gpu/soak.sh [--hours H] [--captures N] [--jobs N] [--seed S] [--families NAME,...] [--first N]
#
# A failure is repeated with the seed that the run printed and --numbers NUMBER. Logs and rows.jsonl lie in
# build/tests/gpu/soak; OUT, a folder, gets them as one file. PYTHON names the interpreter. It needs transformers and torchvision.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
python=${PYTHON:-python3} out=$PWD/$build/tests/gpu/soak
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "tests/gpu/soak: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
if ! "$python" -c 'import torch, torchvision, transformers' 2>/dev/null; then
	echo "tests/gpu/soak: skipped: PyTorch, torchvision or transformers is not installed"
	exit 77
fi
printf '%s; %d x %s; %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(nvidia-smi -L | wc -l)" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
	"$("$python" -c 'import torch, transformers; print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")' 2>&1 | tail -n 1)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"
rm -rf "$out"
mkdir -p "$out"
export PYTHONPYCACHEPREFIX=$out/pycache TORCHINDUCTOR_CACHE_DIR=$out/inductor TRITON_CACHE_DIR=$out/triton
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false TORCHINDUCTOR_COMPILE_THREADS=1 HF_HUB_OFFLINE=1
unset MEDUSA_ARTIFACT MEDUSA_RESOLVE MEDUSA_PROBE PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
seed=$((RANDOM * 32768 + RANDOM))
echo "soak: --seed $seed unless another is given: $*"
"$python" tests/gpu/soak/run.py --seed "$seed" --gpus "$(nvidia-smi -L | wc -l)" --build "$PWD/$build" --out "$out" "$@" &
trap 'kill $!' TERM INT # it sums up what it has, and ends
wait $!
code=$?
wait
[ -z "${OUT:-}" ] || (cd "$out" && cp summary.txt rows.jsonl "$OUT/" &&
	tar -czf "$OUT/soak-logs.tar.gz" --exclude='*.medusa' --exclude='*.mtrace' ./*.log $(head -n 40 kept.txt 2>/dev/null))
exit $code
