#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-simulate --cluster as a user calls it: the table, its JSON, the same bytes for the same seed, wrong files and wrong options.
. "$(dirname "$0")/lib.sh"

cat >"$work/cluster.yaml" <<'END'
name: five nodes
source: made up
nodes: 5
domain_nodes: 2
warmup: 20s
popularity_change: 30s
popularity_part: 0.2
node_lost_every: 2min
node_lost_for: 20s
domains_lost: [{at: 50s, domain: 1, for: 5s}]
END
simulate() { # name of the run, options...
	local name=$1
	shift
	run "$name" medusa-simulate --cluster "$work/cluster.yaml" --node h200-x8 --gpus 2 --functions many-models --count 60 \
		--trace bursty:cov=2,zipf=1,requests=100000 --duration 2min --max-wait 30s --no-real "$@"
}

section "four routings side by side"
simulate all --json "$work/all.json"
assert_exit all 0
assert_contains "$work/all.out" "Simulated: no GPU was used. five nodes: 5 nodes of 2 GPUs"
for word in expected random least-loaded locality "served within the objective" "nodes lost" "copies in the last one"; do
	assert_contains "$work/all.out" "$word"
done
assert_equal "words on stderr" "" "$(cat "$work/all.err")"
run check python3 tests/sim_report_check.py "$work/all.json"
assert_exit check 0
assert_equal "faults of the JSON" "" "$(cat "$work/check.out")"
of() { # an expression in which r is the dictionary of routings
	python3 -c 'import json, sys
r = {one["name"]: one for one in json.load(open(sys.argv[1]))["routings"]}
print(eval(sys.argv[2]))' "$work/all.json" "$1"
}
assert_equal "all four" "['expected', 'random', 'least-loaded', 'locality']" "$(of 'list(r)')"
assert_equal "expected serves more in time than random" True "$(of "r['expected']['requests']['met'] > 1.5 * r['random']['requests']['met']")"
assert_equal "nodes were lost, and came back" True "$(of "all(x['nodes_lost'] >= x['nodes_back'] > 2 for x in r.values())")"
assert_equal "plans were made" True "$(of "all(x['placement']['plans'] >= 120 and x['placement']['copies'] > 5 for x in r.values())")"

section "the same again, and another seed"
simulate again --json "$work/again.json"
simulate other --json "$work/other.json" --seed 2
for form in out json; do assert_same_file "$work/all.$form" "$work/again.$form"; done
checks=$((checks + 1))
cmp -s "$work/all.json" "$work/other.json" && fail "other results for another seed" "the same"
simulate one --routing locality,expected --quiet --json -
assert_exit one 0
assert_equal "in the order that was asked for" "['locality', 'expected']" \
	"$(python3 -c 'import json, sys; print([r["name"] for r in json.load(sys.stdin)["routings"]])' <"$work/one.out")"

section "a public form of trace, laid over itself"
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	for i in $(seq 10 40); do echo "2023-11-16 18:17:$i.1,500,20"; done
} >"$work/azure.csv"
sed 's/^warmup.*/rate_factor: 20/' "$work/cluster.yaml" >"$work/factor.yaml"
run azure medusa-simulate --cluster "$work/factor.yaml" --node h200-x8 --functions many-models --count 20 --mapping zipf:1 \
	--trace "$work/azure.csv" --routing expected --no-real
assert_exit azure 0
assert_contains "$work/azure.out" "620 requests in 30 s"

section "wrong files"
refuse() { # name, what it says, options...
	local name=$1 says=$2
	shift 2
	[[ " $* " == *" --functions "* ]] || set -- --functions many-models "$@"
	run "$name" medusa-simulate --cluster "$work/cluster.yaml" --node h200-x2 --trace poisson --duration 1s "$@"
	assert_exit "$name" "${code:-3}"
	assert_contains "$work/$name.err" "$says"
}
sed -i 's/^nodes: 5/nodes: five/' "$work/cluster.yaml"
refuse number "cluster.yaml:3: nodes: "
sed -i 's/^nodes: five/nodes: 5/' "$work/cluster.yaml"
run nofile medusa-simulate --cluster nowhere --node h200-x2 --functions many-models --trace poisson
assert_exit nofile 3
assert_contains "$work/nofile.err" "nowhere: neither a file nor one of the clusters by name: h200-x1000, three"
refuse backbones "has a backbone; a cluster is simulated without backbones" --functions azure-32
refuse native "policy native binds functions to GPUs for ever" --policy native

section "wrong usage"
code=2
refuse routing "--routing nearest: expected, random, least-loaded or locality is expected" --routing nearest
refuse twice "--routing: random is there twice" --routing random,expected,random
refuse empty "--routing : expected, random" --routing expected,
refuse policies "--policy torpor,medusa with --cluster: one policy is expected" --policy torpor,medusa
refuse html "--html has no effect with --cluster" --html "$work/x.html"
refuse load "--load has no effect with --cluster" --load 1
refuse faults "--faults has no effect with --cluster" --faults "$work/azure.csv"
refuse gpus "--gpus 1-2 with --cluster: one number is expected" --gpus 1-2
refuse lost "that is the file of --cluster, which would be lost" --json "$work/cluster.yaml"
run alone medusa-simulate --routing random --node h200-x2 --functions many-models --trace poisson
assert_exit alone 2
assert_contains "$work/alone.err" "--routing has no effect without --cluster"

section "what has no effect is said"
run remark medusa-simulate --cluster three --node h200-x2 --functions all-fit --trace poisson --duration 5s --quiet
assert_exit remark 0
assert_contains "$work/remark.err" "functions has no effect in a cluster: all are on the nodes' disks at the beginning"
finish
