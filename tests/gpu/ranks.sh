#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two ranks with NCCL on two real GPUs: each is captured, verified and restored with an artifact of its own. A capture leaves NCCL's memory
# alone, graphs that communicate are refused by name, the others are restored by all ranks or by none, and all results are those of PyTorch alone.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
python=${PYTHON:-python3} failures=0 ranks=2
if [ "$MEDUSA_DEVICE" != gpu ] || [ "$(nvidia-smi -L | wc -l)" -lt $ranks ]; then
	echo "tests/gpu/ranks: skipped: $ranks NVIDIA GPUs with a driver are needed"
	exit 77
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
	echo "tests/gpu/ranks: skipped: PyTorch is not installed"
	exit 77
fi
work=${OUT:-$(mktemp -d)}
PATH=$(cd "$build/bin" && pwd):$PATH
mkdir -p -m 700 "$work/meet"
printf '%s; %d x %s; %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(nvidia-smi -L | wc -l)" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
	"$("$python" -c 'import torch; print("PyTorch", torch.__version__, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))' 2>&1 | tail -n 1)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"

verdict() { # what, whether it is so (1), more
	[ "$2" = 1 ] || failures=$((failures + 1))
	printf '  %s  %s%s\n' "$([ "$2" = 1 ] && echo pass || echo FAIL)" "$1" "${3:+: $3}"
}

ranked() { # name, seconds, command, in which RANK_ is the rank...
	local name=$1 limit=$2 rank start=$SECONDS port
	shift 2
	port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	pids=() codes=()
	for ((rank = 0; rank < ranks; rank++)); do
		RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NCCL_NVLS_ENABLE=0 \
			timeout --kill-after=5 "$limit" "${@//RANK_/$rank}" >"$work/$name.$rank.log" 2>&1 &
		pids[rank]=$!
	done
	for ((rank = 0; rank < ranks; rank++)); do
		wait "${pids[rank]}"
		codes[rank]=$?
	done
	took=$((SECONDS - start))
}
engine=("$python" tests/gpu/torch_ranks.py)
right() { # name: every rank ended well
	local rank
	for ((rank = 0; rank < ranks; rank++)); do
		verdict "$1, rank $rank" "$([ "${codes[rank]}" = 0 ] && echo 1)" "exit ${codes[rank]} after $took s; $( (grep -m 1 '^failure' || tail -n 1 "$work/$1.$rank.log") <"$work/$1.$rank.log" | cut -c1-150)"
	done
}
alike() { # name: the results of PyTorch alone
	local rank
	for ((rank = 0; rank < ranks; rank++)); do
		verdict "$1, rank $rank: the results of a live start" "$("$python" - "$work/live.$rank.json" "$work/$1.$rank.json" <<'EOF' && echo 1
import json, sys
live, other = (json.load(open(path))["outputs"] for path in sys.argv[1:])
sys.exit(live != other or not live)
EOF
)"
	done
}

ranked live 120 "${engine[@]}" --out "$work/live.RANK_.json"
right live
ranked capture 280 medusa-capture -o "$work/RANK_.medusa" -- "${engine[@]}"
for ((rank = 0; rank < ranks; rank++)); do
	log=$work/capture.$rank.log
	verdict "capture, rank $rank: only graphs that communicate are refused" "$([ "${codes[rank]}" = 1 ] && ! grep '^medusa-capture: refused' "$log" | grep -qv '(reduce, ' && echo 1)" \
		"exit ${codes[rank]} after $took s; $(grep -m 1 '^medusa-capture: refused' "$log" | cut -c1-190)"
	verdict "capture, rank $rank: the others pass verification" "$(grep -q 'verification: 4 passed, 0 failed, 0 not compared' "$log" && echo 1)" "$(grep -m 1 'verification:' "$log")"
done
export MEDUSA_RANKS_FOLDER=$work/meet
ranked restore 120 medusa-restore "$work/RANK_.medusa" -- "${engine[@]}" --out "$work/restore.RANK_.json"
right restore
alike restore
head -c 3000 "$work/1.medusa" >"$work/cut.1.medusa"
cp "$work/0.medusa" "$work/cut.0.medusa"
ranked cut 120 medusa-restore "$work/cut.RANK_.medusa" -- "${engine[@]}" --expect none --out "$work/cut.RANK_.json"
right cut
alike cut
verdict "cut, rank 0 names rank 1" "$(grep -q 'rank 1 ' "$work/cut.0.log" && echo 1)" "$(grep -m 1 'rank 1 ' "$work/cut.0.log" | cut -c1-190)"
verdict "nothing is left in the folder" "$([ -z "$(find "$work/meet" -name '*.socket')" ] && echo 1)"
printf 'tests/gpu/ranks: %d failures\n' $failures
[ $failures = 0 ]
