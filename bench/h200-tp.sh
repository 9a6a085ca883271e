#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tensor-parallel engines on two GPUs, with PyTorch and NCCL below torchrun (tp_decode.py): the shapes of Llama 2 13B and Qwen1.5 14B, 35 batch sizes.
# All graphs of both ranks against live replays in fresh processes, restore against a live start and against the driver's own calls, the first
# graph, replays, and 200 restore cycles; tp_table.py makes the table and judges it.
#
#	OUT=FOLDER bench/h200-tp.sh      # MODELS, STEPS, ROUNDS, CYCLES, LAYERS, BATCHES and RANKS choose less
#
# A run that is stopped goes on where it was: what lies in OUT is not measured again. Each step has a deadline; OUT/MODEL.md is the table.
# NVLink multicast stays off, as graphs with it are refused by name.
set -u
cd "$(dirname "$0")/.." || exit 2
. tests/e2e/device.sh
python=${PYTHON:-python3} ranks=${RANKS:-2} rounds=${ROUNDS:-3} cycles=${CYCLES:-200} failures=0
models=${MODELS:-llama2-13b qwen1.5-14b}
steps=${STEPS:-live capture verify restore floor cycles}
cycle_layers=${CYCLE_LAYERS:-2} cycle_batches=${CYCLE_BATCHES:-1,8} # of the engine that is restored so often
gpus=0
[ "$MEDUSA_DEVICE" != gpu ] || gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
if [ "$gpus" -lt "$ranks" ]; then
	echo "h200-tp: skipped: $ranks NVIDIA GPUs with a driver are needed, and $gpus are here"
	exit 77
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
	echo "h200-tp: skipped: $python has no PyTorch"
	exit 77
fi
for model in $models; do
	[ -e "models/recipes/$model.yaml" ] || { echo "h200-tp: MODELS: no recipe models/recipes/$model.yaml" && exit 2; }
done
for tool in bin/medusa-capture bin/medusa-verify bin/medusa-restore bench/floor; do
	[ -x "$build/$tool" ] || { echo "h200-tp: $build/$tool is missing: make all build/bench/floor" && exit 2; }
done
out=${OUT:-$build/bench/tp}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
PATH=$(cd "$build/bin" && pwd):$PATH
export NCCL_NVLS_ENABLE=0 MEDUSA_LOG=${MEDUSA_LOG:-warn} MEDUSA_RANKS_TIMEOUT=${MEDUSA_RANKS_TIMEOUT:-120} OMP_NUM_THREADS=4

wanted() { [[ " $steps " == *" $1 "* ]]; }

# The engine's ranks, with a command before torchrun or none. Reports go to PATH.RANK.json, output to PATH.log. Sets code and took.
ranked() { # path, seconds, options of the engine, command...
	local path=$1 limit=$2 options=$3 started=$SECONDS
	shift 3
	# shellcheck disable=SC2086,SC2016 # words; the rank is known below torchrun alone
	timeout --kill-after=10 "$limit" "$@" "$python" -m torch.distributed.run --nproc-per-node "$ranks" --master-addr 127.0.0.1 --master-port $((20000 + RANDOM % 20000)) \
		--no-python sh -c 'exec "$@" --report "'"$path"'.$RANK.json"' sh "$python" bench/tp_decode.py $options >"$path.log" 2>&1
	code=$?
	took=$((SECONDS - started))
}

ended() { # what, the exit codes that are right, as a pattern
	local verdict=pass
	[[ $code =~ ^($2)$ ]] || { verdict=FAIL failures=$((failures + 1)); }
	printf '  %s  %s: exit %s after %s s%s\n' $verdict "$1" "$code" "$took" "$( ((code == 124 || code == 137)) && echo ", which is its deadline")"
}

has_reports() { # path
	local rank
	for ((rank = 0; rank < ranks; rank++)); do [ -s "$1.$rank.json" ] || return 1; done
}

alike() { # path of a run, path of a live run: the results of all ranks are the same, bit by bit
	"$python" - "$1" "$2" "$ranks" <<'EOP'
import json, sys
def results(path, rank):
    with open(f"{path}.{rank}.json") as file:
        return [(g["batch"], g["output"], g["kv"]) for g in json.load(file)["graphs"]]
sys.exit(any(not results(sys.argv[1], rank) or results(sys.argv[1], rank) != results(sys.argv[2], rank) for rank in range(int(sys.argv[3]))))
EOP
}

all_restored() { # path of a run
	"$python" - "$1" "$ranks" <<'EOP'
import json, sys
sys.exit(not all(g["restored"] for rank in range(int(sys.argv[2])) for g in json.load(open(f"{sys.argv[1]}.{rank}.json"))["graphs"]))
EOP
}

floors() { # folder, round: both ranks at once, as a restore has it
	local rank pids=() pid
	code=0
	for ((rank = 0; rank < ranks; rank++)); do
		timeout --kill-after=10 240 "$build/bench/floor" --device $rank "$1/tp.medusa/rank-$rank.medusa" >"$1/floor.$2.$rank.json" 2>"$1/floor.$2.$rank.log" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
}

# Fresh processes again and again, of an engine with few layers and graphs: what could hang does not depend on their number.
run_cycles() { # folder, options of the engine
	local folder=$1 options=$2 number done_before=0
	options+=" --layers $cycle_layers --batches $cycle_batches"
	[ ! -e "$folder/cycles.txt" ] || done_before=$(wc -l <"$folder/cycles.txt")
	has_reports "$folder/cycle.live" || ranked "$folder/cycle.live" 240 "$options"
	if [ ! -d "$folder/cycle.medusa" ]; then
		ranked "$folder/cycle.capture" 600 "$options" medusa-capture -o "$folder/cycle.medusa" --
		ended "the engine of the cycles, captured" 0
	fi
	for ((number = done_before + 1; number <= cycles; number++)); do
		rm -f "$folder"/cycle.run.*.json
		ranked "$folder/cycle.run" 120 "$options" medusa-restore "$folder/cycle.medusa" --
		if [ $code = 0 ] && ! { alike "$folder/cycle.run" "$folder/cycle.live" && all_restored "$folder/cycle.run"; }; then
			code=different
		fi
		[ $code = 0 ] || cp "$folder/cycle.run.log" "$folder/cycle.$number.log"
		echo "$number $code $took" >>"$folder/cycles.txt"
	done
}

measure() { # model
	local model=$1 folder=$out/$1 options round
	mkdir -p "$folder"
	options="--recipe models/recipes/$model.yaml --replays 20 ${LAYERS:+--layers $LAYERS} ${BATCHES:+--batches $BATCHES}"
	if wanted capture && [ ! -d "$folder/tp.medusa" ]; then
		ranked "$folder/capture" 3600 "$options" medusa-capture -o "$folder/tp.medusa" --
		ended "$model: capture" 0
		grep -a '^medusa-capture: ' "$folder/capture.log" | grep -aE 'analysis|verification:|refused|bytes in the file' | cut -c1-330
	fi
	if wanted verify && [ -d "$folder/tp.medusa" ] && [ ! -s "$folder/verify.json" ]; then
		ranked "$folder/verify" 1800 "$options" medusa-verify "$folder/tp.medusa" --json --
		sed -n '/^{/,$p' "$folder/verify.log" >"$folder/verify.json"
		ended "$model: verification" 0
	fi
	for ((round = 1; round <= rounds; round++)); do # what is compared takes turns
		if wanted live && ! has_reports "$folder/live.$round"; then
			ranked "$folder/live.$round" 900 "$options"
			ended "$model: live, round $round" 0
		fi
		[ -d "$folder/tp.medusa" ] || continue
		if wanted restore && ! has_reports "$folder/restore.$round"; then
			ranked "$folder/restore.$round" 600 "$options" medusa-restore "$folder/tp.medusa" --
			ended "$model: restore, round $round" 0
		fi
		if wanted floor && ! has_reports "$folder/floor.$round"; then
			took=0
			floors "$folder" $round
			ended "$model: the driver's own calls, round $round" 0
		fi
	done
	! wanted cycles || run_cycles "$folder" "--recipe models/recipes/$model.yaml"
	{
		printf '# Tensor-parallel decoder of %s on %d GPUs\n\n' "$model" "$ranks"
		printf '%s; %s; %s; commit %s; %s layers, batches %s\n\n' "$(date -u +'%F %H:%M UTC')" \
			"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
			"$("$python" -c 'import torch; print("PyTorch", torch.__version__, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))' 2>/dev/null | tail -n 1)" \
			"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}" "${LAYERS:-all}" "${BATCHES:-of vLLM (35)}"
		"$python" bench/tp_table.py "$folder" "$ranks" "$cycles"
	} >"$out/$model.md" || failures=$((failures + 1))
	cat "$out/$model.md"
}

for model in $models; do measure "$model"; done
printf 'h200-tp: %d failures; records in %s\n' $failures "$out"
[ $failures = 0 ]
