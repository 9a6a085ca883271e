#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything that wants a real GPU, in order of what stands on what; skipped by name where there is none.
#
# PARTS="nodes memory" picks parts: suites hash engine lora runtime nodes memory sequence identity inputs torch. A part prints one line a
# case, and a count as its last line; none stops another. OUT, a folder, gets the logs.
#
# A machine with a GPU need not be able to build. Where there is nvcc:
#
#	make all tests && tests/gpu/runtime.sh
#
# and then these, carried to the same places beside the sources, are all that the parts besides `suites` need (libzstd.so.1
# may lie in build/lib, if there is none; `suites` needs build/tests/test_*, and Criterion's library by TEST_LIBS=FOLDER):
#
#	build/bin build/lib build/models build/tests/subjects build/tests/images build/tests/gpu/runtime
#
# What graphs and memory may hold, in some minutes (its lines belong into bench/results/h200-tests.txt):
#
#	COMMIT=... PARTS="engine runtime nodes memory sequence identity inputs" OUT=FOLDER tests/gpu/run.sh 2>&1 | tee FOLDER/h200-tests.txt
set -u
cd "$(dirname "$0")/../.."
. tests/e2e/device.sh
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "tests/gpu: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
printf '%s; %d x %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(nvidia-smi -L | wc -l)" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"
export PATH=$PWD/$build/bin:$PATH
out=$build/tests/gpu
mkdir -p "$out"
passed=0 failed=0

part() { [ -z "${PARTS:-}" ] || [[ " $PARTS " == *" $1 "* ]]; }

try() { # name, command...
	local name=$1 start=$SECONDS
	shift
	if timeout 200 "$@" >"$out/$name.log" 2>&1; then
		passed=$((passed + 1)); printf '  pass  %-28s %3d s  %s\n' "$name" $((SECONDS - start)) "$(tail -n 1 "$out/$name.log" | cut -c1-90)"
		grep '^skipped ' "$out/$name.log" | sed 's/^/        /'
	else
		failed=$((failed + 1)); printf '  FAIL  %-28s exit %d, its output:\n' "$name" $?; tail -n "${TAIL:-25}" "$out/$name.log" | cut -c1-300 | sed 's/^/        /'
	fi
}

for suite in test_llama_kernels test_lora_kernels test_gemm test_hostcuda_entry test_hostcuda_memory test_hostcuda_vmm test_hostcuda_module \
	test_hostcuda_stream test_hostcuda_stream_capture test_hostcuda_graph test_interpose; do
	part suites || break
	[ -x "$build/tests/$suite" ] || { echo "  skip  $suite: not built here"; continue; }
	try "$suite" env LD_LIBRARY_PATH="${TEST_LIBS:-}" "$build/tests/$suite" --jobs 1
done
if part hash; then
	try hash tests/gpu/hash.sh
	grep '^kernel\|^hashed' "$out/hash.log" | sed 's/^/        /'
fi
check_engine() {
	engine=$build/models/llama/llama-engine
	tiny=("$engine" --recipe models/recipes/tiny.yaml --batches 1,2,4,8 --tokens 8 --check)
	try engine-live "${tiny[@]}"
	try capture medusa-capture -o "$out/tiny.medusa" --keep-traces -- "${tiny[@]}"
	try inspect medusa-inspect "$out/tiny.medusa"
	try restore medusa-restore "$out/tiny.medusa" -- "${tiny[@]}" --report "$out/restored.json"
	try restored-all python3 -c "import json; r = json.load(open('$out/restored.json')); assert r['graphs_live'] == 0 and r['graphs_restored'] == 4, r['graphs']"
	try verify medusa-verify "$out/tiny.medusa" --junit "$out/tiny.xml" -- "${tiny[@]}"
	medusa-analyze -o "$out/noimages.medusa" --no-images "$out/tiny.1.mtrace" "$out/tiny.2.mtrace" >"$out/noimages.log" 2>&1
	for order in loaded stored trigger; do
		try "resolve-$order" medusa-restore "$out/tiny.medusa" --resolve "$order" -- "${tiny[@]}" --report "$out/$order.json"
	done
	try no-images medusa-restore "$out/noimages.medusa" -- "${tiny[@]}" --report "$out/noimages.json"
}
part engine && check_engine
# Adapters: every row of logits against double precision, by graphs that knew none of them.
check_lora() {
	local tiny=("$build/models/llama/llama-engine" --recipe models/recipes/tiny.yaml --batches 1,2,4,8 --tokens 8 --lora-slots 3 --max-lora-rank 64)
	local mixed=(--check --reference --adapter "$out/lora1" --adapter - --adapter "$out/lora64" --adapter "$out/lora8" --prompt a --prompt b --prompt c --prompt d)
	for rank in 1 8 64; do
		python3 tests/llama/make_adapter.py --model models/recipes/tiny.yaml --rank $rank --alpha $rank --seed $rank --std 0.1 --peft "$out/lora$rank"
	done
	try lora-live "${tiny[@]}" "${mixed[@]}"
	try lora-capture medusa-capture -o "$out/lora.medusa" -- "${tiny[@]}" --check # launches each graph
	try lora-restore medusa-restore "$out/lora.medusa" -- "${tiny[@]}" "${mixed[@]}" --report "$out/lora.json"
	try lora-restored-all python3 -c "import json; r = json.load(open('$out/lora.json')); assert r['graphs_live'] == 0 and r['graphs_restored'] == 4, r['graphs']"
}
part lora && check_lora
# Engines that nobody here wrote must run as before under capture, and their graphs must be in the trace.
if part torch && python3 -c 'import torch' 2>/dev/null; then
	try torch-untouched medusa-capture -o "$out/torch.medusa" --keep-traces --no-verify -- python3 tests/gpu/torch_graphs.py
	try torch-trace bash -c "medusa-inspect '$out/torch.1.mtrace'; medusa-inspect '$out/torch.medusa' | head -40; test -s '$out/torch.1.mtrace'"
fi
[ $((passed + failed)) = 0 ] || printf '%d passed, %d failed\n' $passed $failed
went_well= went_badly=
[ $failed = 0 ] || went_badly=" what stands above"
for script in runtime nodes memory sequence identity inputs torch; do
	part $script || continue
	tests/gpu/$script.sh
	case $? in
	0) went_well+=" $script" ;;
	77) went_well+=" $script (skipped)" ;;
	*) failed=$((failed + 1)) went_badly+=" $script" ;;
	esac
done
printf 'tests/gpu: done in %d s; good:%s; bad:%s\n' $SECONDS "${went_well:- none}" "${went_badly:- none}"
[ $failed = 0 ]
