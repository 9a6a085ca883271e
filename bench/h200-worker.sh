#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many models behind one medusa-worker on a GPU that holds a few of them (worker_models.py). Recorded in bench/results/h200-worker.md.
# "7b": 16 models of Llama 2 7B's shape in 60 GB. "small": 16 models of Qwen1.5-1.8B's shape in 19 GB, also with the driver's checkpoints, for
# which 16 large models would need more host memory than machines have. "nothing": from a request to its first token when no engine runs. STEPS chooses; WORK is a folder with room for the weights' files
# (27 GB and 15 GB), TRACE a CSV of arrivals and lengths.
set -eu
cd "$(dirname "$0")/.."
. tests/e2e/device.sh
build=${BUILD:-build}
work=${WORK:-$(mktemp -d)}
trace=${TRACE:?the path of a trace: TIMESTAMP,ContextTokens,GeneratedTokens, such as azure-llm-2023-conv.csv}
export LD_LIBRARY_PATH=$MEDUSA_BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

machine() {
	echo "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo hostcuda), $(nproc) cores, $(free -g | awk '/^Mem/ { print $2 }') GiB of host memory; $(date -u '+%F %H:%M UTC'); commit $(git rev-parse --short HEAD 2>/dev/null || echo "${COMMIT:-unknown}")"
	echo
}

common=(--trace "$trace" --max-context "${MAX_CONTEXT:-256}" --max-tokens "${MAX_TOKENS:-16}")
for step in ${STEPS:-7b small nothing}; do
	machine
	case $step in
	7b)
		python3 bench/worker_models.py "$work/7b" ${VARIANTS:-fits ours lru cold artifact} "${common[@]}" --recipe models/recipes/llama2-7b.yaml --files \
			--weights 2 --memory 14.8GB --budget 60GB --pool "${POOL:-60GB}" --engine "--kv-blocks 160 --batches 1,2,4,8" --rate "${RATE:-1}" --seconds "${SECONDS_EACH:-60}"
		;;
	small)
		python3 bench/worker_models.py "$work/small" ${VARIANTS:-fits ours lru checkpoint cold artifact} "${common[@]}" --recipe models/recipes/qwen1.5-1.8b.yaml --files \
			--weights 4 --vocabulary 151936 --memory 4.7GB --budget 19GB --pool "${POOL:-60GB}" --engine "--kv-blocks 300 --batches 1,2,4,8" \
			--rate "${RATE:-3}" --seconds "${SECONDS_EACH:-40}"
		;;
	nothing)
		python3 bench/worker_from_nothing.py "$work/nothing" --recipe models/recipes/llama2-7b.yaml --engine "--kv-blocks 160 --batches 1,2,4,8" \
			--rounds "${ROUNDS:-3}"
		;;
	*) echo "h200-worker.sh: no step $step" >&2 && exit 2 ;;
	esac
	rm -f "$work/$step"/weights*.gguf
done
