#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The HTML report of medusa-simulate in a real browser: every width from a phone's, dark mode, sorting, and no scripts.
. "$(dirname "$0")/lib.sh"
# A browser of its own needs neither the stand-in for the driver nor other libraries of ours.
unset LD_LIBRARY_PATH LD_PRELOAD
python3 -c 'import sys; sys.path.insert(0, "tests"); import browser; sys.exit(not browser.find())' || {
	echo "no Chromium here (Debian: chromium-headless-shell): skipped how the report looks in a browser"
	exit 77
}
page() { # name, options of medusa-simulate...
	local name=$1
	shift
	run "$name" medusa-simulate "$@" --no-real --quiet --html "$work/$name.html"
	assert_exit "$name" 0
	local shots=()
	[ -z "${KEEP:-}" ] || { mkdir -p "$work/$name" && shots=("$work/$name"); }
	run "$name.browser" python3 tests/sim_report_pages.py "$work/$name.html" "${shots[@]}"
	assert_equal "faults of $name" "0" "$code$(grep -v ' checks$' "$work/$name.browser.out" "$work/$name.browser.err" -h)"
}

section "a few policies, hundreds of functions"
page few --node simulator/nodes/torpor-v100.yaml --functions simulator/functions/torpor-models.yaml --trace torpor --count 560 \
	--duration 30s --policy torpor,fifo-lru,native

section "all policies, 8 GPUs"
page many --node simulator/nodes/h200-x8.yaml --functions simulator/functions/azure-32.yaml --trace poisson --duration 1min \
	--policy "$(medusa-simulate --list | awk '!NF { exit } { printf "%s%s", comma, $1; comma = "," }')"

section "names that are long, and would be elements"
long=$(printf 'averylongname%.0s' {1..30})
sed "s|{name: DenseNet-169|{name: \"$long\"|; s|{name: ResNet-50|{name: \"</th><script>document.title=1</script><img src=http://localhost/x>\"|" \
	simulator/functions/torpor-models.yaml >"$work/odd.yaml"
assert_contains "$work/odd.yaml" averylongname
assert_contains "$work/odd.yaml" "<img"
page odd --node simulator/nodes/torpor-v100.yaml --functions "$work/odd.yaml" --trace torpor --count 64 --duration 30s --policy torpor

section "tenants, with the numbers of the JSON"
sed 's/^models:/tenants: [{name: web, weight: 3}, {name: few, max_waiting: 5}, {name: night-and-weekend-batches, weight: 0.5}]\n&/' \
	simulator/functions/azure-32.yaml >"$work/tenants.yaml"
{
	echo seconds,function,context,generated,tenant
	for ((row = 0; row < 300; row++)); do echo "0.$((row / 100)),$((row % 32)),500,50,$([ $((row % 3)) = 0 ] && echo web || { [ $((row % 3)) = 1 ] && echo few || echo night-and-weekend-batches; })"; done
} >"$work/tenants.csv"
export TENANTS=$work/tenants.json
page tenants --node simulator/nodes/h200.yaml --functions "$work/tenants.yaml" --trace "$work/tenants.csv" --policy medusa,torpor \
	--json "$TENANTS"
unset TENANTS
finish
