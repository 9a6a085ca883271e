#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# llama-engine --serve with LoRA adapters: loaded, unloaded and mixed over HTTP; graphs restored; swapped out and in.
. tests/e2e/lib.sh
export MEDUSA_BUILD
section 'adapters'
mkdir "$work/adapters"
run adapters env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/serve_adapters.py "$work/adapters"
assert_exit adapters 0
grep -A3 FAIL "$work/adapters.out"
[ "$code" = 0 ] || tail -5 "$work/adapters.err"

section 'captured without an adapter, restored and swapped with some'
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
options=(--recipe models/recipes/tiny.yaml --max-kv-bytes 1000000 --lora-slots 2 --max-lora-rank 64)
run capture medusa-capture -o "$work/lora.medusa" -- "$engine_binary" "${options[@]}" --serve 127.0.0.1:0
assert_exit capture 0
run restored python3 tests/worker/serve_adapters_restored.py "$work" "${options[@]}"
assert_exit restored 0
grep -A3 FAIL "$work/restored.out"
[ "$code" = 0 ] || tail -5 "$work/restored.err"
finish
