#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The numbers of bench/run.sh on a GPU: the reference engine at the shape of Qwen1.5-4B, 35 batch sizes, seeded weights.
cd "$(dirname "$0")/.."
export SCRIPT=h200-llama.sh MEDUSA_DEVICE=gpu NAME=${NAME:-h200-llama} RECIPE=${RECIPE:-models/recipes/qwen1.5-4b.yaml} ROUNDS=${ROUNDS:-2}
export MEDUSA_PROBE_LIMIT=${MEDUSA_PROBE_LIMIT:-1073741824} # bytes; a larger KV cache is sampled
export KV_BLOCKS=${KV_BLOCKS:-260} ENGINE_ARGS="--max-context 1024" TIMED_ARGS="--bench-replay 9"
exec bench/run.sh
