#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/h200-lora.sh and bench/worker-lora-trace.py on hostcuda with a tiny model: parts, rows, what fails beside others. Their times mean nothing here.
. "$(dirname "$0")/lib.sh"
bench=bench/h200-lora.sh
unset PARTS RECIPE PROCESSES STREAMS ADAPTERS RANK STARTS SECONDS_EACH BUDGET OUT RECORD LIMIT PYTHON ANY_DEVICE MAX_CONTEXT MEDUSA_BACKBONE

bench() { # name, assignments...
	local name=$1
	shift
	run "$name" env ANY_DEVICE=1 MEDUSA_DEVICE=host OUT="$work/$name.out.d" RECIPE=tiny PROCESSES=3 STREAMS=4 ADAPTERS=6 RANK=4 STARTS=2 SECONDS_EACH=0.5 MAX_CONTEXT=64 \
		LIMIT=120 "$@" $bench
}

section "what is needed"
run skipped env MEDUSA_DEVICE=host $bench
assert_exit skipped 77
assert_contains "$work/skipped.out" "h200-lora: skipped: no NVIDIA GPU with a driver is here"
bench wrong PARTS="backbone nothing"
assert_exit wrong 2
assert_contains "$work/wrong.out" "h200-lora: PARTS: no part nothing; there are backbone template batch serving peak"
bench recipe RECIPE=none
assert_exit recipe 2
assert_contains "$work/recipe.out" "h200-lora: RECIPE: no recipe models/recipes/none.yaml"

section "engines on one backbone"
bench backbone PARTS=backbone RECORD="$work/recorded.md"
assert_contains "$work/backbone.out" "| device memory of 3 processes on one backbone, and one backbone + 3 x what one has besides |"
assert_contains "$work/backbone.out" "| 1.05 | yes |"
assert_contains "$work/backbone.out" "| graphs after that: 2 restored, 0 live |"
assert_contains "$work/backbone.out" "| a process that attaches and restores, from its start to its end after one token, median of 2 |"
assert_contains "$work/recorded.md" "# Many LoRA functions on one backbone"

section "adapters in one engine"
bench serving PARTS="batch serving"
for row in "| the decode graph of 4 rows, each with an adapter of rank 4, against one without slots |" " times while 3 streams go on: its first token later than of one in a slot, median |" \
	"| times between the streams' tokens meanwhile, 99th percentile, against without |" "| 6 adapters in one engine, 4 streams of as many adapters, against the base model: tokens a second |" \
	"| the same: time for a token, median |"; do
	assert_contains "$work/serving.out" "$row"
done
[ "$(grep -c 'not measured' "$work/serving.out")" = 0 ] || fail "all rows are measured" "$(grep 'not measured' "$work/serving.out")"
checks=$((checks + 1))

section "one budget"
bench peak PARTS=peak STREAMS=32 BUDGET=8400000
assert_contains "$work/peak.out" "| two functions in 8 MB: sequences at one time, with one backbone and without |"
assert_contains "$work/peak.out" "| the same: device memory, within the budget |"
[ "$(sed -n 's/.*and without | \([0-9]*\) \/ \([0-9]*\) = .*/\1 \2/p' "$work/peak.out" | awk '{ print ($1 > $2) }')" = 1 ] ||
	fail "more sequences with one backbone" "$(grep 'and without' "$work/peak.out")"
checks=$((checks + 1))

section "what fails leaves the rest alone"
bench poor PARTS="peak backbone" BUDGET=1000
assert_exit poor 1
assert_contains "$work/poor.out" "| peak: the rest of it | not measured: 0 MB leave no room for a sequence (own): give a larger BUDGET | - | **no** |"
assert_contains "$work/poor.out" "| attaching 2 MB of weights, median of 2 starts |"
bench late PARTS="serving" LIMIT=1
assert_exit late 1
assert_contains "$work/late.out" "| serving: the rest of it | not measured: its time was over | - | **no** |"

section "policies on a trace"
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	for i in $(seq 10 29); do echo "2023-11-16 18:00:$i.1000000,10,$((i % 5 + 1))"; done
} >"$work/trace.csv"
run trace python3 bench/worker-lora-trace.py --trace "$work/trace.csv" --policies medusa,fifo-lru --engines 3 --adapters 2 --slots 1 --room 2 --seconds 3 --rate 4 --record "$work/trace.md"
assert_exit trace 0
assert_contains "$work/trace.md" "12 requests in 3 s, of trace.csv; 3 engines with 2 adapters each, 1 slots, memory for 2 engines"
assert_contains "$work/trace.md" "Order of the simulator: "
[ "$(grep -cE '^\| (medusa|fifo-lru) \|' "$work/trace.md")" = 2 ] || fail "a row for each policy" "$(cat "$work/trace.md" "$work/trace.err")"
checks=$((checks + 1))
run policy python3 bench/worker-lora-trace.py --trace "$work/trace.csv" --policies medusa,none
assert_exit policy 1
assert_contains "$work/policy.err" "worker-lora-trace: --policies: no bundle none; there are medusa, torpor-shared, xlora, swapserve, fifo-lru"
finish
