#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# llama-engine --serve: OpenAI's API over the decode graphs, live, restored from an artifact, and swapped out and in.
. tests/e2e/lib.sh
export MEDUSA_BUILD
section 'requests'
run serve env LD_LIBRARY_PATH="$MEDUSA_BUILD/lib/hostcuda" python3 tests/worker/serve_reference.py "$work"
assert_exit serve 0
grep -A3 FAIL "$work/serve.out"
[ "$code" = 0 ] || tail -5 "$work/serve.err"

section 'captured, restored and swapped'
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
run capture medusa-capture -o "$work/serve.medusa" -- "$engine_binary" --recipe models/recipes/tiny.yaml --max-kv-bytes 1000000 \
	--serve 127.0.0.1:0
assert_exit capture 0
run restored python3 tests/worker/serve_restored.py "$work"
assert_exit restored 0
grep -A3 FAIL "$work/restored.out"
[ "$code" = 0 ] || tail -5 "$work/restored.err"

section "the demo's worker"
mkdir "$work/demo"
run demo python3 tests/e2e/demo_worker.py "$work/demo" "$engine_binary" "" "" ""
assert_exit demo 0
assert_contains "$work/demo.out" 'each with the text that it got alone'

section 'its command line'
run both "$engine_binary" --recipe models/recipes/tiny.yaml --serve 127.0.0.1:0 --prompt x
assert_exit both 2
run address "$engine_binary" --recipe models/recipes/tiny.yaml --serve nowhere
assert_exit address 2
assert_contains "$work/address.err" 'is no address'
finish
