#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tenants in medusa-simulate: shares and limits that can be calculated by hand, in every report, and what is wrong with its message.
. "$(dirname "$0")/lib.sh"

cat >"$work/node.yaml" <<'END'
name: one GPU
source: made up, so that a request takes 0.1 s, and what is loaded stays
host_speed: 1000GB/s
prefill_share: 0
gpus: [{memory: 20GB, slots: 4}]
END
cat >"$work/functions.yaml" <<'END'
source: made up
tenants:
  - {name: web, weight: 3}
  - {name: night}
  - {name: few, max_waiting: 10}
  - {name: slow, max_running: 1}
defaults: {weights: 1GB, in_host: true, execution: 100ms, slo: 10s, goal: first_token}
models:
  - {name: day, tenant: web}
  - {name: any}
  - {name: wide, max_parallel: 4}
END
simulate() { # name of the run, trace, more options...
	local name=$1 trace=$2
	shift 2
	run "$name" medusa-simulate --node "$work/node.yaml" --functions "$work/functions.yaml" --trace "$trace" --no-real \
		--json "$work/$name.json" --html "$work/$name.html" "$@"
}
of() { # name of the run, an expression in which t is the dictionary of tenants of the first policy, and policies all of these
	python3 - "$work/$1.json" "$2" <<'END'
import json, sys
policies = {p["name"]: {t["name"]: t for t in p["tenants"]} for p in json.load(open(sys.argv[1]))["policies"]}
t = next(iter(policies.values()))
print(eval(sys.argv[2]))
END
}
flood() { # file, count, columns behind the time...
	local file=$1 count=$2 columns row
	shift 2
	echo seconds,function,tenant >"$file"
	for ((row = 0; row < count; row++)); do
		for columns in "$@"; do echo "0,$columns" >>"$file"; done
	done
}
checked() { # name of the run: its files are what a reader of JSON and a browser accept
	run "$1.check" python3 tests/sim_report_check.py "$work/$1.json" "$work/$1.html"
	assert_equal "faults of the reports of $1" "" "$(cat "$work/$1.check.out" "$work/$1.check.err")"
}

section "weights of 3 and 1 share a function's time 3 to 1, and idle time is nobody's"
flood "$work/flood.csv" 80 any-0,web any-0,night
simulate flood "$work/flood.csv" --policy medusa,fifo-lru,torpor
assert_exit flood 0
checked flood
# 16 s of computing. While both wait, 3 of 4 requests are web's, so its 80 take 10.7 s with 26 or 27 of night's; the rest is night's.
assert_equal "all GPU seconds" "True" "$(of flood 'all(abs(t[n]["gpu_s"] - 8) < 0.01 for n in ("web", "night"))')"
assert_equal "what web had of the contended time" "[75.0, 75.0, 75.0]" \
	"$(of flood '[round(100 * p["web"]["contended"]["gpu_s"] / p["web"]["contended"]["all_s"]) / 1 for p in policies.values()]')"
assert_equal "how long both waited" "True" "$(of flood '10.4 < t["web"]["contended"]["s"] == t["night"]["contended"]["s"] < 10.7')"
assert_equal "web is done then" "True" "$(of flood '10.4 < t["web"]["wait_ms"]["max"] / 1000 < 10.7 and 15.8 < t["night"]["wait_ms"]["max"] / 1000 < 16')"
assert_contains "$work/flood.out" "contended: had, due"
assert_equal "the row of web, medusa" "1" "$(grep -cE '^web +medusa +3 +80 +80 +[0-9]+ \([0-9.]+ %\) .* 7[45]\.[0-9] %, 75\.0 % +0$' "$work/flood.out")"
assert_contains "$work/flood.html" "By tenant"

section "whoever comes later has saved nothing up"
{ cat "$work/flood.csv"; for ((row = 0; row < 40; row++)); do echo 4,any-0,slow; done; } >"$work/later.csv"
sed 's/, max_running: 1//' "$work/functions.yaml" >"$work/unbound.yaml"
run later medusa-simulate --node "$work/node.yaml" --functions "$work/unbound.yaml" --trace "$work/later.csv" --no-real --policy medusa \
	--json "$work/later.json" --html "$work/later.html"
assert_exit later 0
checked later
# Weights of 3, 1 and 1. At 4 s web has 50 requests left, which take 8.3 s at three fifths; until then slow has a fifth, 16 or 17
# requests, and not what it did not use before; then it shares with night: its 23 last ones take 4.7 s.
assert_equal "web, and then slow, are done" "True" "$(of later '12.2 < t["web"]["wait_ms"]["max"] / 1000 < 12.5 and 12.7 < t["slow"]["wait_ms"]["max"] / 1000 < 13.1')"
assert_equal "it had what was due" "True" "$(of later 'abs(t["slow"]["contended"]["gpu_s"] - t["slow"]["contended"]["due_s"]) < 0.2')"

section "limits refuse, and hold back, exactly those over"
flood "$work/limits.csv" 30 any-0,few
simulate limits "$work/limits.csv" --policy medusa,fifo-lru,swapserve
assert_exit limits 0
checked limits
# The first runs at once, 10 wait, 19 are refused.
assert_equal "refused for the quota" "[19, 19, 19]" "$(of limits '[p["few"]["rejected"]["quota"] for p in policies.values()]')"
assert_equal "served, most waiting" "11 10" "$(of limits '(lambda f: str(f["served"]) + " " + str(f["waiting_most"]))(t["few"])')"
assert_contains "$work/limits.out" "rejected: quota"
assert_contains "$work/limits.out" "19: 19 quota"
assert_contains "$work/limits.html" "19: 19 quota"
flood "$work/held.csv" 4 wide-0,slow
simulate held "$work/held.csv" --policy medusa
checked held
# One after the other, 0.1 s each, although there are four slots; and for its own limit, so it does not contend.
assert_equal "the last one has waited for three" "True" "$(of held '300 <= t["slow"]["wait_ms"]["max"] < 305')"
assert_equal "time contended" "0" "$(of held 't["slow"]["contended"]["s"]')"
flood "$work/beside.csv" 4 wide-0,slow wide-0,night
simulate beside "$work/beside.csv" --policy fifo-lru # medusa would compute first tokens one after the other
assert_equal "others go on beside it, in three slots" "[0, 100, 300]" "$(of beside '[t["night"]["wait_ms"]["p50"], t["night"]["wait_ms"]["max"], t["slow"]["wait_ms"]["max"]]')"

section "a request's tenant: its own, its function's, or the default one"
printf 'tenant,function,seconds\n,day-0,0\nnight,day-0,1\ndefault,day-0,2\n,any-0,3\n"slow" , any-0 ,4\n' >"$work/whose.csv"
simulate whose "$work/whose.csv" --policy medusa,native
assert_exit whose 0
checked whose
assert_equal "requests by tenant" "{'default': 2, 'web': 1, 'night': 1, 'few': 0, 'slow': 1}" "$(of whose '{n: t[n]["requests"] for n in t}')"
assert_contains "$work/whose.err" "native: it knows no tenants; their weights and limits have no effect on it"
# The default tenant may have a weight and limits of its own: here it may not wait.
sed 's/^tenants:/&\n  - {name: default, weight: 2, max_waiting: 1, max_running: 0}/' "$work/functions.yaml" >"$work/default.yaml"
flood "$work/default.csv" 4 any-0,
run default medusa-simulate --node "$work/node.yaml" --functions "$work/default.yaml" --trace "$work/default.csv" --no-real --policy medusa \
	--json "$work/default.json" --html "$work/default.html"
assert_exit default 0
checked default
assert_equal "served and refused of the default tenant" "2 2" "$(of default '(lambda d: str(d["served"]) + " " + str(d["rejected"]["quota"]))(t["default"])')"
assert_equal "the row of the default tenant" "1" "$(grep -cE '^default +medusa +2 +4 +2 .* 2: 2 quota$' "$work/default.out")"
fenced docs/man/medusa-simulate.1 file tenants.yaml >"$work/tenants.yaml"
run page medusa-simulate --node "$work/node.yaml" --functions "$work/tenants.yaml" --trace poisson --no-real --policy medusa \
	--json "$work/page.json" --html "$work/page.html"
assert_exit page 0
checked page
assert_equal "the manual page's file, with a law" "True" "$(of page 't["shop"]["requests"] > 8000 and t["research"]["requests"] > 5000 and not t["default"]["requests"]')"

section "a load at which tenants have what is due to them: the manual page, step by step"
fenced docs/man/medusa-simulate.1 file tenants.sh >"$work/tenants.sh"
(cd "$work" && run shares bash -c "$(cat tenants.sh) --policy medusa --no-real --json shares.json --html shares.html"
echo $code >shares.code)
assert_equal "exit code" 0 "$(cat "$work/shares.code")"
checked shares
assert_equal "what the tenants had, per cent" "75 25" "$(of shares '"%.0f %.0f" % tuple(100 * t[n]["contended"]["gpu_s"] / t[n]["contended"]["all_s"] for n in ("shop", "research"))')"
assert_contains "$work/shares.html" "A tenant that asks for less than its share"

section "more tenants than are shown"
{ printf 'source: made up\ntenants:\n'; printf -- '  - {name: t%d}\n' {1..70}; sed '1,/- {name: slow/d; s/, tenant: web//' "$work/functions.yaml"; } >"$work/many.yaml"
printf 'seconds,function,tenant\n0,any-0,t1\n0,any-0,t70\n' >"$work/many.csv"
run many medusa-simulate --node "$work/node.yaml" --functions "$work/many.yaml" --trace "$work/many.csv" --no-real --policy medusa \
	--json "$work/many.json" --html "$work/many.html"
assert_exit many 0
assert_contains "$work/many.out" "(and 6 tenants more: see the JSON)"
assert_contains "$work/many.html" "And 6 tenants more"
assert_equal "the last one in the JSON" "1" "$(of many 't["t70"]["served"]')"

section "without tenants there is no trace of them"
sed '/^tenants:/,/^  - {name: slow/d; s/, tenant: web//' "$work/functions.yaml" >"$work/none.yaml"
sed 's/,[a-z]*$//' "$work/flood.csv" >"$work/none.csv"
run none medusa-simulate --node "$work/node.yaml" --functions "$work/none.yaml" --trace "$work/none.csv" --no-real --policy medusa \
	--json "$work/none.json" --html "$work/none.html"
assert_exit none 0
checked none
assert_equal "tenants" "{}" "$(of none t)"
assert_equal "words about tenants" "" "$(grep -il tenant "$work/none.out" "$work/none.html")"

section "what is wrong"
wrong() { # message, trace's rows or "", a line of functions.yaml that replaces that of the tenant few, or ""
	printf 'seconds,function,tenant\n%b' "$2" >"$work/wrong.csv"
	sed "s/^  - {name: few.*/${3:-&}/" "$work/functions.yaml" >"$work/wrong.yaml"
	run wrong medusa-simulate --node "$work/node.yaml" --functions "$work/wrong.yaml" --trace "$work/wrong.csv" --policy medusa
	assert_exit wrong 3
	assert_contains "$work/wrong.err" "$1"
}
wrong "wrong.csv:3: tenant: 'webb': there is no such tenant in the file of functions" '0,day-0,web\n1,day-0,webb\n'
wrong "wrong.yaml:5: tenants[2].weight: 0 is less than 1e-06" '0,day-0,\n' '  - {name: few, weight: 0}'
wrong "wrong.yaml:5: tenants[2].name: it is missing" '0,day-0,\n' '  - {weight: 2}'
wrong "wrong.yaml:5: tenants[2].name: 'web' is there already" '0,day-0,\n' '  - {name: web}'
wrong "wrong.yaml:5: tenants[2].max_waiting: " '0,day-0,\n' '  - {name: few, max_waiting: -1}'
wrong "wrong.yaml:5: tenants[2].share: " '0,day-0,\n' '  - {name: few, share: 3}'
sed -i 's/tenant: web/tenant: webb/' "$work/functions.yaml"
wrong "wrong.yaml:9: models[0].tenant: there is no tenant 'webb'" '0,day-0,\n' ''
sed 's/,$/,web/' "$work/wrong.csv" >"$work/nobody.csv"
run nobody medusa-simulate --node "$work/node.yaml" --functions "$work/none.yaml" --trace "$work/nobody.csv" --policy medusa
assert_exit nobody 3
assert_contains "$work/nobody.err" "nobody.csv:2: tenant: 'web': there is no such tenant; the file of functions has no tenants"
finish
