#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tables of bench/scheduler.sh in small: the order of the policies on Torpor's, xLoRA's and SwapServeLLM's nodes.
. "$(dirname "$0")/lib.sh"

simulate() { # name of the run, node, functions, trace, policies, more options...: $work/NAME.json and .figures
	local name=$1
	run "$name" medusa-simulate --node "simulator/nodes/$2.yaml" --functions "simulator/functions/$3.yaml" --trace "$4" --policy "$5" \
		--quiet --json "$work/$name.json" "${@:6}"
	assert_exit "$name" 0
	python3 - "$work/$name.json" >"$work/$name.figures" <<-'END'
		import json, sys
		for p in json.load(open(sys.argv[1]))["policies"]:
		    figures = {"compliant": p["functions"]["compliant"], "ran": p["functions"]["served"], "served": p["requests"]["served"],
		               "ttft": p["ttft_ms"]["mean"], "evictions": p["scheduler"]["evictions"]}
		    figures |= {f["name"]: f["met"] for f in p["per_function"]}
		    for key, value in figures.items():
		        print(p["name"], key, int(value))
	END
}

figure() { # name of the run, policy, which: the number, rounded down
	sed -n "s/^$2 $3 //p" "$work/$1.figures"
}

assert_more() { # name of the run, policy with more, policy with less, which figure
	local more less
	more=$(figure "$1" "$2" "$4") less=$(figure "$1" "$3" "$4")
	checks=$((checks + 1))
	[ "${more:-0}" -gt "${less:-0}" ] || fail "$4 of $2 above that of $3" "$more and $less"
}

section "Torpor's node: 480 functions, all within their SLO"
simulate torpor480 torpor-v100 torpor-models torpor torpor,medusa --count 480 --duration 20min
for policy in torpor medusa; do
	assert_equal "functions compliant, $policy" 480 "$(figure torpor480 $policy compliant)"
done

section "560 functions: full Torpor above its ablations, ours above it"
simulate torpor560 torpor-v100 torpor-models torpor torpor,torpor-fifo,torpor-lru,torpor-random,torpor-block,medusa --count 560 \
	--duration 20min
assert_at_least "functions compliant, medusa" 532 "$(figure torpor560 medusa compliant)"
for other in torpor torpor-fifo torpor-lru torpor-random torpor-block; do
	assert_more torpor560 medusa $other compliant
	[ $other = torpor ] || assert_more torpor560 torpor $other compliant
done

section "160 functions: what fits at once runs natively, all run by swapping"
simulate native torpor-v100 torpor-models torpor native,torpor,medusa --count 160 --duration 20min
ran=$(figure native native ran)
checks=$((checks + 1))
[ "$ran" = 72 ] || [ "$ran" = 73 ] || fail "native to run 72 or 73 of 160 functions" "$ran"
for policy in torpor medusa; do
	assert_equal "functions that run, $policy" 160 "$(figure native $policy ran)"
	assert_equal "functions compliant, $policy" 160 "$(figure native $policy compliant)"
done

section "xLoRA's ablation: without shared backbones worst, whole best"
simulate xlora l40s-xlora xlora-llama2 mmpp xlora,xlora-nbs,xlora-npl,xlora-nab1 --duration 2h
for other in xlora-npl xlora-nab1 xlora; do
	assert_more xlora xlora-nbs $other ttft
	[ $other = xlora ] || assert_more xlora $other xlora ttft
done

section "SwapServeLLM: 75 GB where two engines lie, and one of those again"
printf 'seconds,function,context,generated\n0,gemma-7b-0,9,9\n0,deepseek-coder-6.7b-0,9,9\n9,llama-3.3-70b-fp8-0,9,9\n30,gemma-7b-0,9,9\n' \
	>"$work/scenario.csv"
simulate swapserve h100-swapserve swapserve-models "$work/scenario.csv" swapserve,fifo-lru,medusa
for policy in swapserve fifo-lru medusa; do
	assert_equal "requests served, $policy" 4 "$(figure swapserve $policy served)"
	assert_equal "within its SLO: Llama 70B, $policy" 1 "$(figure swapserve $policy llama-3.3-70b-fp8-0)"
	assert_at_least "evictions, $policy" 3 "$(figure swapserve $policy evictions)"
done
finish
