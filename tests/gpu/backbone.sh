#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-backbone on a real GPU: engines that share weights compute what an engine alone computes; the weights lie on the device once; a
# write to them ends its own process alone. RECIPE (default: Qwen1.5-4B's shape, 8 GB), ENGINES (4). Prints a table.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "tests/gpu/backbone: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
work=$(mktemp -d) failures=0 engines=${ENGINES:-4}
export PATH=$MEDUSA_BUILD/bin:$PATH LD_LIBRARY_PATH=$MEDUSA_BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} MEDUSA_BACKBONE=$work/socket CUDA_VISIBLE_DEVICES=0
engine=("$MEDUSA_BUILD/models/llama/llama-engine" --recipe "${RECIPE:-models/recipes/qwen1.5-4b.yaml}" --batches 1,8 --tokens 16 --kv-blocks 64 --max-context 256)
subject=$MEDUSA_BUILD/tests/subjects/share_subject
trap '[ "$BASHPID" != $$ ] || { kill $(jobs -p) 2>/dev/null; rm -rf "$work"; }' EXIT # not in a child that is told to end
used() { nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits; }
verdict() { # what, whether it is so
	[ "$2" = 1 ] || failures=$((failures + 1))
	printf '  %s  %s\n' "$([ "$2" = 1 ] && echo pass || echo FAIL)" "$1"
}
weights_ms() { awk '/ms  weights: [0-9.]+ MB/ { print $1; exit }' "$1"; }
printf '%s; %s; commit %s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(nvidia-smi -i 0 --query-gpu=name,driver_version --format=csv,noheader)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}"

"${engine[@]}" --check >"$work/alone.out" 2>"$work/alone.err"
verdict "an engine alone" "$([ $? = 0 ] && echo 1)"
medusa-backbone run --keep 2>"$work/broker.err" &
broker=$!
until grep -q ready: "$work/broker.err"; do sleep 0.05; done
before=$(used)
"${engine[@]}" --check --share q >"$work/fills.out" 2>"$work/fills.err"
verdict "the engine that fills the weights: the same tokens" "$(cmp -s "$work/alone.out" "$work/fills.out" && echo 1)"
sleep 1
kept=$(used)
for at in $(seq "$engines"); do
	"${engine[@]}" --share q --repeat 100 >"$work/$at.out" 2>"$work/$at.err" &
	pids[at]=$!
done
together=0
for _ in $(seq 100); do
	now=$(used)
	[ "$now" -le "$together" ] || together=$now
	readers=$(medusa-backbone status --json | sed -n 's/.*"readers": \([0-9]*\).*/\1/p')
	[ "${readers:-0}" -lt "$engines" ] || all_there=$((${all_there:-0} + 1))
	[ "${all_there:-0}" -lt 10 ] || break
	sleep 0.1
done
verdict "all $engines readers were there at one time" "$([ "${all_there:-0}" -gt 0 ] && echo 1)"
status=$(medusa-backbone status)
echo "$status"
kill -KILL "${pids[1]}"
wait "${pids[@]}" 2>/dev/null
for at in $(seq 2 "$engines"); do
	verdict "reader $at: the same tokens" "$([ -s "$work/$at.out" ] && [ "$(sort -u "$work/$at.out")" = "$(grep -v '^check' "$work/alone.out" | sort -u)" ] && echo 1)"
done
"${engine[@]}" --check --share q >"$work/again.out" 2>"$work/again.err"
verdict "an engine after these were killed: the same tokens" "$(cmp -s "$work/alone.out" "$work/again.out" && echo 1)"

coproc FIRST { exec "$subject"; }
first_in=${FIRST[1]} first_out=${FIRST[0]}
exec {second_in}> >(exec "$subject" >"$work/second.out" 2>&1)
ask() { echo "$1" >&"$first_in" && read -r -t 20 answered <&"$first_out"; }
read -r answered <&"$first_out"
ask "share t v 67108864"
ask "set 21"
ask commit
echo "share t v 67108864 0 1" >&"$second_in"
sleep 1.5
echo sum >&"$second_in"
echo "set 5" >&"$second_in"
sleep 1.5
ask sum
verdict "a reader sees what was committed, and its hash ($(sed -n 2,3p "$work/second.out" | tr '\n' ' '))" "$([ "$(sed -n 2,3p "$work/second.out" | tr '\n' ' ')" = "read ok sum 42 " ] && echo 1)"
verdict "a write of the reader is refused ($(sed -n 4p "$work/second.out"))" "$(sed -n 4p "$work/second.out" | grep -q 'set CUDA_ERROR' && echo 1)"
verdict "the other one sees no change ($answered)" "$([ "$answered" = "sum 42" ] && echo 1)"
kill -KILL "$broker"
wait "$broker" 2>/dev/null
medusa-backbone run --keep 2>"$work/later.err" &
until grep -q ready: "$work/later.err"; do sleep 0.05; done
printf 'share t v 67108864 0 1\nsum\n' | "$subject" >"$work/later.out" 2>&1
verdict "a new broker has what the process has ($(sed -n 2,3p "$work/later.out" | tr '\n' ' '))" "$([ "$(sed -n 2,3p "$work/later.out" | tr '\n' ' ')" = "read ok sum 42 " ] && echo 1)"
if python3 -c 'import torch' 2>/dev/null; then
	PYTHONPATH=models/torch python3 tests/gpu/torch_share.py
	verdict "PyTorch: models that share their parameters" "$([ $? = 0 ] && echo 1)"
fi
exec {second_in}>&-
exec {first_in}>&-
printf '\n| | |\n|---|---|\n'
printf '| weights | %s |\n' "$(printf '%s\n' "$status" | sed -n 's/^q: [a-z]*, \([0-9.]* MB\).*/\1/p')"
printf '| MiB in use before; with the weights alone; with %s engines | %s; %s; %s |\n' "$engines" "$before" "$kept" "$together"
printf '| ms until the weights are there, from the start of the process: alone; who fills; readers | %s; %s; %s |\n' "$(weights_ms "$work/alone.err")" \
	"$(weights_ms "$work/fills.err")" "$(for at in $(seq "$engines"); do weights_ms "$work/$at.err"; done | tr '\n' ' ')"
exit $((failures > 0))
