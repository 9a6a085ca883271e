#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Replays one restored graph of the reference engine while the others are restored behind it, then alone; prints both as JSON.
# On hostcuda, or with MEDUSA_DEVICE=gpu on a GPU; RECIPE and ENGINE_ARGS as in bench/run.sh.
set -eu
cd "$(dirname "$0")/.."
MEDUSA_DEVICE=${MEDUSA_DEVICE:-host}
. tests/e2e/device.sh
export PATH=$PWD/$build/bin:$PATH
work=$build/bench/work
mkdir -p "$work"
batches=$(python3 -c 'print(",".join(map(str, [1, 2, 4] + list(range(8, 257, 8)))))')
engine=("$build/models/llama/llama-engine" --recipe "${RECIPE:-models/recipes/bench24.yaml}" --seed 3 --batches "$batches" --tokens 8 --quiet
	--kv-blocks "${KV_BLOCKS:-300}" ${ENGINE_ARGS:-})
artifact=${ARTIFACT:-$work/background.medusa}
[ -e "$artifact" ] || MEDUSA_PROBE=0 medusa-capture -o "$artifact" -- "${engine[@]}" >/dev/null
medusa-restore "$artifact" -- "${engine[@]}" --check --bench-background "${REPLAYS:-2000}" --report "$work/background.json" >/dev/null
python3 - "$work/background.json" <<'END'
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
measured = report["replay_background"]
during, alone = measured["during"], measured["alone"]
print(json.dumps({"device": report["device"], "graphs": report["graphs_restored"], "equal": report["check"]["equal"], **measured,
                  "p50_ratio": during["p50_ms"] / alone["p50_ms"], "p99_ratio": during["p99_ms"] / alone["p99_ms"]}))
END
