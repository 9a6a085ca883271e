#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Weights from a file, which several threads load: the same logits as with one, live, captured, restored and swapped; and what is refused.
. tests/e2e/lib.sh
export MEDUSA_BUILD
python3 bench/gguf_weights.py models/recipes/tiny.yaml 5 "$work/tiny.gguf" || exit 1
engine=("$engine_binary" --model "$work/tiny.gguf" --batches 1,2,4 --max-kv-bytes 1000000 --tokens 6 --raw --quiet --prompt "two words")

section 'threads'
run_live live --load-threads 1
assert_exit live 0
for threads in 2 8 64; do
	run_live "threads$threads" --load-threads "$threads"
	assert_same_output live "threads$threads"
done
assert_equal 'threads: one for each piece' 21 "$(number threads64 threads)"
assert_contains "$work/live.json" '"load": { "file_bytes": 238208, "ms": '
assert_contains "$work/live.json" '"threads": 1, "staging_bytes": 65536, "page_locked": true'
run said "$engine_binary" --model "$work/tiny.gguf" --kv-blocks 64 --tokens 0 --load-threads 3
assert_contains "$work/said.err" 'load: 0.2 MB of the file in '
assert_contains "$work/said.err" ' by 3 threads'
run_live recipe --load-threads 0
assert_exit recipe 2
assert_contains "$work/recipe.err" '--load-threads: "0" is not an integer from 1 to 64'

section 'a machine that locks no pages'
HOSTCUDA_FAULT=cuMemHostAlloc:2:OUT_OF_MEMORY run_live pageable --load-threads 8
assert_exit pageable 0
assert_same_output live pageable
assert_count "$work/pageable.err" 'weights are copied from pageable memory' 1
assert_contains "$work/pageable.json" '"page_locked": false'

section 'refusals'
HOSTCUDA_FAULT=cuMemcpyHtoDAsync_v2:9:ECC_UNCORRECTABLE run_live broken --load-threads 8
assert_exit broken 1
assert_contains "$work/broken.err" "$work/tiny.gguf: tensor "
assert_contains "$work/broken.err" ': cuMemcpyHtoDAsync_v2: CUDA_ERROR_ECC_UNCORRECTABLE'
truncate -s -1000 "$work/tiny.gguf"
run_live shorter
assert_exit shorter 1
assert_contains "$work/shorter.err" "$work/tiny.gguf: tensor \"output.weight\" at offset "
truncate -s 3000 "$work/tiny.gguf"
run_live head
assert_exit head 1
assert_contains "$work/head.err" "$work/tiny.gguf: offset "
python3 bench/gguf_weights.py models/recipes/tiny.yaml 5 "$work/tiny.gguf" || exit 1

section 'captured with many threads, restored with few and many'
run captured medusa-capture -o "$work/load.medusa" -- "${engine[@]}" --load-threads 8
assert_exit captured 0
assert_contains "$work/captured.err" "verification: $graphs passed, 0 failed, 0 not compared"
run captured_alone medusa-capture -o "$work/alone.medusa" -- "${engine[@]}" --load-threads 1
assert_exit captured_alone 0
run difference medusa-inspect --diff "$work/load.medusa" "$work/alone.medusa"
assert_exit difference 0
assert_contains "$work/difference.out" equal
for threads in 1 3 8; do
	run_restored "restored$threads" "$work/load.medusa" --load-threads "$threads" --check
	assert_exit "restored$threads" 0
	assert_contains "$work/restored$threads.out" "check: $graphs of $graphs graphs bit-equal to eager"
	run_restored "restored$threads" "$work/load.medusa" --load-threads "$threads"
	assert_same_output live "restored$threads"
	assert_restored "restored$threads" $graphs 0
done

section 'a server: captured, restored and swapped'
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
serving=(--model "$work/tiny.gguf" --max-kv-bytes 1000000 --load-threads 4)
run serve medusa-capture -o "$work/serve.medusa" -- "$engine_binary" "${serving[@]}" --serve 127.0.0.1:0
assert_exit serve 0
run swapped python3 tests/worker/serve_restored.py "$work" "${serving[@]}"
assert_exit swapped 0
grep -A3 FAIL "$work/swapped.out"
[ "$code" = 0 ] || tail -5 "$work/swapped.err"
finish
