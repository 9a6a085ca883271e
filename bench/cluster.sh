#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cluster of 1,000 nodes of 8 H200s and 20,000 models, simulated: four ways of routing, and what makes it worse. With TRACES=DIR, a public
# trace, too. JOBS=N processes at once. Writes bench/results/cluster-simulated.md; some minutes on 2 cores.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build} results=${RESULTS:-bench/results}
simulate=$build/bin/medusa-simulate work=$build/bench/cluster
[ -x "$simulate" ] || make --no-print-directory -s BUILD="$build" "$simulate"
base=simulator/clusters/h200-x1000.yaml trace='bursty:cov=2,zipf=1,requests=1000000'

# Names of results: NUMBER~NAME~ROUTING; bench/cluster_table.py looks for them. A further line for the cluster may be "".
job() { # number, name, routings, lines for the cluster, more options, which replace those that are given here...
	local file="$work/$1.yaml" routing options
	sed "s/^warmup:.*/warmup: ${WARMUP:-2min}/" $base >"$file"
	[ -z "$4" ] || printf '%b\n' "$4" | while read -r line; do
		sed -i "/^${line%%:*}:/d" "$file"
		echo "$line" >>"$file"
	done
	options=(--node h200-x8 --functions many-models --count 20000 --trace "$trace" --duration "${DURATION:-4min}" --speed 0.25 --max-wait 15s)
	for routing in $3; do
		echo "'$work/$1~$2~$routing.json' ${*:5} ${options[*]@Q} --cluster '$file' --routing $routing"
	done
}

jobs() {
	job 0 base "random least-loaded expected locality" ""
	job 1 "no plans of a leader" expected "placement_interval: 0"
	job 2 "four times the requests" "expected locality" "" --rate 4
	job 3 "40,000 models" expected "" --models 40000
	job 4 "4 GPUs a node" expected "" --gpus 4
	job 5 "2 GPUs a node" "expected locality" "" --gpus 2
	job 6 "each 30 s a tenth of the popularities change" expected "popularity_change: 30s\npopularity_part: 0.1"
	job 7 "each 10 s half of the popularities change" "expected locality" "popularity_change: 10s\npopularity_part: 0.5"
	job 8 "each node is lost every 2 h for 5 min; a rack for 30 s" expected \
		"node_lost_every: 2h\ndomains_lost: [{at: 180s, domain: 7, for: 30s}]"
	if [ -e "${TRACES:-/nonexistent}/azure-llm-2023-conv.csv" ]; then
		job 9 "conversations of Azure, 100 times over each other" "random least-loaded expected locality" "rate_factor: 100" \
			--public "$TRACES/azure-llm-2023-conv.csv"
	else
		echo "skipped: azure-llm-2023-conv.csv (TRACES=${TRACES:-} does not hold it)" >&2
	fi
}

# An option may be given once: those of a variant stand in the place of the usual ones.
one() { # file of the result, options...
	local json=$1 given=() more=()
	shift
	while [ $# -gt 0 ]; do
		case $1 in
		--rate) more+=(--speed "$(echo "$2" | awk '{ print $1 * 0.25 }')") ;;
		--models) more+=(--count "$2" --speed 0.125) ;;
		--public) more+=(--trace "$2" --speed 1 --mapping zipf:1) ;;
		*) given+=("$1" "$2") ;;
		esac
		shift 2
	done
	local last=() i j
	for ((i = 0; i < ${#given[@]}; i += 2)); do
		for ((j = 0; j < ${#more[@]}; j += 2)); do
			[ "${given[i]}" != "${more[j]}" ] || continue 2
		done
		last+=("${given[@]:i:2}")
	done
	"$simulate" "${last[@]}" "${more[@]}" --quiet --json "$json"
}
if [ "${1:-}" = one ]; then
	shift
	one "$@"
	exit
fi

rm -rf "$work"
mkdir -p "$work" "$results"
started=$EPOCHSECONDS
jobs >"$work/jobs"
echo "$(wc -l <"$work/jobs") simulations" >&2
xargs -P "${JOBS:-$(nproc)}" -L 1 "$0" one <"$work/jobs"
python3 bench/cluster_table.py "$work" "$results/cluster-simulated.md" $((EPOCHSECONDS - started))
