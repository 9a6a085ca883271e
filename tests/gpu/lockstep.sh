#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Graphs that communicate, on two real GPUs: PyTorch and NCCL below torchrun. One bundle is captured, verified and restored; then a rank dies,
# an artifact is damaged, and NCCL has other settings. Each step has a deadline. OUT, a folder, gets the logs (OUT/summary.txt the table).
#
#	OUT=FOLDER tests/gpu/lockstep.sh      # STEPS="live capture verify restore" leaves the rest out, and ends within 10 minutes
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
python=${PYTHON:-python3} failures=0 ranks=2
steps=${STEPS:-live capture verify restore again dies damaged settings}
if [ "$MEDUSA_DEVICE" != gpu ] || [ "$(nvidia-smi -L | wc -l)" -lt $ranks ]; then
	echo "tests/gpu/lockstep: skipped: $ranks NVIDIA GPUs with a driver are needed"
	exit 77
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
	echo "tests/gpu/lockstep: skipped: PyTorch is not installed"
	exit 77
fi
work=${OUT:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
PATH=$(cd "$build/bin" && pwd):$PATH
export NCCL_NVLS_ENABLE=0 MEDUSA_RANKS_TIMEOUT=${MEDUSA_RANKS_TIMEOUT:-40} MEDUSA_LOG=${MEDUSA_LOG:-warn} OMP_NUM_THREADS=4
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
bundle=$work/tp2.medusa
exec > >(tee "$work/summary.txt") 2>&1
printf '%s; %d x %s; %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(nvidia-smi -L | wc -l)" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
	"$("$python" -c 'import torch; print("PyTorch", torch.__version__, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))' 2>&1 | tail -n 1)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"

wanted() { [[ " $steps " == *" $1 "* ]]; }

verdict() { # what, whether it is so (1), more
	[ "$2" = 1 ] || failures=$((failures + 1))
	printf '  %s  %s%s\n' "$([ "$2" = 1 ] && echo pass || echo FAIL)" "$1" "${3:+: $3}"
}

# The engine's ranks, with a command before torchrun or none. Output in $work/NAME.log, results in $work/NAME.RANK.json.
ranked() { # name, seconds, options for the engine, command...
	local name=$1 limit=$2 options=$3 started=$SECONDS
	shift 3
	# shellcheck disable=SC2086 # words
	timeout --kill-after=10 "$limit" "$@" "$python" -m torch.distributed.run --nproc-per-node $ranks --master-addr 127.0.0.1 --master-port $((20000 + RANDOM % 20000)) \
		--no-python sh -c 'exec "$@" --out "'"$work/$name"'.$RANK.json"' sh "$python" tests/gpu/torch_lockstep.py $options >"$work/$name.log" 2>&1
	code=$?
	took=$((SECONDS - started))
}
ended() { # name, exit codes that are right, as a pattern
	local why
	why=$(grep -a -m 1 -E '^(\[.*\]:)?failure|^medusa-[a-z]+: refused|Traceback' "$work/$1.log" || tail -n 1 "$work/$1.log")
	verdict "$1" "$([[ $code =~ ^($2)$ ]] && echo 1)" "exit $code after $took s$( ((code == 124 || code == 137)) && echo ", which is its deadline"); $(cut -c1-180 <<<"$why")"
}
alike() { # name: results are those of PyTorch alone
	local rank
	for ((rank = 0; rank < ranks; rank++)); do
		verdict "$1, rank $rank: the results of a live start" "$("$python" - "$work/live.$rank.json" "$work/$1.$rank.json" 2>/dev/null <<'EOP' && echo 1
import json, sys
live, other = (json.load(open(path))["outputs"] for path in sys.argv[1:])
sys.exit(live != other or not live)
EOP
)"
	done
}

if wanted live; then
	ranked live 90 ""
	ended live 0
fi
if wanted capture; then
	ranked capture 240 "" medusa-capture -o "$bundle" --
	ended capture 0
	grep -a '^medusa-capture: ' "$work/capture.log" | grep -aE 'analysis|verification:|refused|bytes in the file' | cut -c1-330 | sed 's/^/        /'
fi
if wanted verify && [ -d "$bundle" ]; then
	ranked verify 150 "" medusa-verify "$bundle" --json --
	sed -n '/^{/,$p' "$work/verify.log" >"$work/verify.json"
	ended verify 0
fi
if wanted restore && [ -d "$bundle" ]; then
	ranked restore 100 "--expect all" medusa-restore "$bundle" --
	ended restore 0
	alike restore
fi
if wanted again && [ -d "$bundle" ]; then
	for turn in 1 2 3; do
		ranked again$turn 120 "--expect any" medusa-restore "$bundle" --
		ended again$turn 0
		alike again$turn
	done
fi
if wanted dies && [ -d "$bundle" ]; then
	ranked dies 120 "--expect any --die reduce_scatter" medusa-restore "$bundle" --
	verdict "rank 1 dies in mid restore: all end before the deadline" "$([ $code != 0 ] && [ $took -lt 90 ] && echo 1)" "exit $code after $took s"
fi
if wanted damaged && [ -d "$bundle" ]; then
	rm -rf "$work/damaged.medusa"
	cp -r "$bundle" "$work/damaged.medusa"
	truncate -s 3000 "$work/damaged.medusa/rank-1.medusa"
	ranked damaged 120 "--expect any" medusa-restore "$work/damaged.medusa" --
	ended damaged 0
	alike damaged
	verdict "damaged: rank 0 names rank 1" "$(grep -aq 'rank 1 cannot restore it' "$work/damaged.log" && echo 1)"
fi
if wanted settings && [ -d "$bundle" ]; then
	NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=4 ranked settings 120 "--expect any" medusa-restore "$bundle" --
	ended settings 0
	"$python" - "$work"/settings.?.json <<'EOP'
import json, sys
for path in sys.argv[1:]:
    done = json.load(open(path))
    print("        with other NCCL settings:", sum(s["restored"] for s in done["steps"]), "of", len(done["steps"]), "graphs restored;",
          next((s["reason"] for s in done["steps"] if s["reason"]), "")[:200])
EOP
fi

"$python" - "$work" "$ranks" <<'EOP'
import json, os, re, sys
work, ranks = sys.argv[1], int(sys.argv[2])
def load(name):
    try:
        return json.load(open(os.path.join(work, name)))
    except (OSError, ValueError):
        return {}
def steps(run, rank):
    return {s["graph"]: s for s in load(f"{run}.{rank}.json").get("steps", [])}
try:
    log = open(os.path.join(work, "capture.log"), errors="replace").read()
except OSError:
    log = ""
refused = {(int(m[1]), f"{m[2]}/{m[3]}"): m[4] for m in re.finditer(r"medusa-capture: rank (\d+): refused: \((\w+), (\d+)\): (.*)", log)}
verified = {(r["rank"], f"{g['label']}/{g['batch']}"): g["outcome"] for r in load("verify.json").get("ranks", []) for g in r["graphs"]}
print(f"\n{'graph':<20} {'rank':>4} {'captured':>9} {'verified':>9} {'restored':>9} {'same':>5} {'live us':>9} {'restored us':>12}")
for rank in range(ranks):
    live, back = load(f"live.{rank}.json"), load(f"restore.{rank}.json")
    for graph in steps("live", rank):
        key = graph.replace("/", " ") + "."
        same = [back["outputs"].get(k) == v for k, v in live.get("outputs", {}).items() if k.startswith(key)] if back else []
        us = [f"{r.get('replay_us', {}).get(graph, 0):.1f}" for r in (live, back)]
        print(f"{graph:<20} {rank:>4} {'refused' if (rank, graph) in refused else 'yes' if log else '-':>9} {verified.get((rank, graph), '-'):>9}"
              f" {'yes' if steps('restore', rank).get(graph, {}).get('restored') else 'no':>9} {'yes' if same and all(same) else 'no':>5} {us[0]:>9} {us[1]:>12}")
for run in ("live", "restore", "again1", "again2", "again3", "damaged"):
    for rank in range(ranks):
        r = load(f"{run}.{rank}.json")
        if r:
            print(f"{run + ',':<9} rank {rank}: communicator {r['communicator_s']:.3f} s, all graphs {r['graphs_s'] * 1e3:.1f} ms, "
                  f"{sum(s['restored'] for s in r['steps'])} of {len(r['steps'])} restored")
for (rank, graph), why in sorted(refused.items()):
    print(f"refused, rank {rank}, {graph}: {why[:300]}")
EOP
printf 'tests/gpu/lockstep: %d failures; logs in %s\n' $failures "$work"
[ $failures = 0 ]
