#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plug-in for vLLM as far as it goes without a GPU and without vLLM: its decisions, on a stand-in of vLLM's
# call structure; forked engine cores and templates, in real processes of another stand-in, restored on hostcuda.
. "$(dirname "$0")/lib.sh"
if [ -n "${SAN:-}" ]; then
	# Python itself is not sanitized, and never gives back all that it takes.
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
fi

run_limit=900 # a hundred starts of Python
section "unittest"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/models/torch:$PWD/models/vllm run unittest \
	python3 -m unittest discover --verbose --start-directory models/vllm/tests
assert_exit unittest 0
grep -o '^.* \.\.\. skipped .*' "$work/unittest.err"
assert_lacks "$work/unittest.err" "Ran 0 tests"
[ $failures = 0 ] || grep -A 30 '^\(FAIL\|ERROR\): ' "$work/unittest.err"

section "without PyTorch and vLLM the entry point does nothing"
run alone env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$PWD/models/torch:$PWD/models/vllm" python3 -S -c 'import sys, medusa_vllm
medusa_vllm.register()
print([name for name in ("torch", "vllm") if name in sys.modules], len([f for f in sys.meta_path if type(f).__module__ == "medusa_vllm"]))'
assert_equal "what it imports, and what waits for imports" "[] 0" "$(cat "$work/alone.out")"
finish
