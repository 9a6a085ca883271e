# SPDX-License-Identifier: Apache-2.0
# Sourced by nodes.sh and memory.sh: each graph by itself, then those that went well beside each other, by the lists that
# the tests on hostcuda go by.
. "$(dirname "${BASH_SOURCE[0]}")/cases.sh"
declare -A expected=() reason=() texts=() other=()
graphs=() alone=
listed() { # list: its words, which are also functions of cases.sh, mean something else while it is read
	eval "$(declare -f restored | sed '1s/restored/run_restored/')"
	restored() { graphs+=("$1"); expected[$1]=restored; }
	refused() { graphs+=("$1"); expected[$1]=refused; reason[$1]=$2; }
	told() { texts[$1]=$2; }
	either() { other[$1]=$2; }
	. "$1"
}

is_refused() { # graph: and the engine was told why
	grep -qF "refused: ($1, 1): ${reason[$1]:-}" captured.err
}

# Exits unless it became of the graph what is expected; the number of restored graphs is in $alive.
expect() { # graph
	local refusal
	refusal=$(grep -F -m 1 "refused: ($1, 1): " captured.err)
	if [ -z "$refusal" ]; then
		[ "${expected[$1]}" = restored ] || [ -n "${other[$1]:-}" ] || fails "$1 was not refused, expected: ${reason[$1]}"
		grep -qx "$1 restored" restored.err || fails "not restored: $(grep -m 1 "^$1 " restored.err)"
		! grep -q 'no preferred clusters here' live.err || texts[$1]=${texts[$1]/id=11/id=4}
		[ -z "${texts[$1]:-}" ] || grep -qF -- "${texts[$1]}" captured.txt || fails "the artifact lacks '${texts[$1]}' ($1)"
		alive=$((alive + 1))
		return
	fi
	[ "${expected[$1]}" = refused ] || fails "$refusal"
	is_refused "$1" || fails "$refusal; expected: ${reason[$1]}"
	grep -qF "$1 live: graph $1/1 was not materialized: ${reason[$1]}" restored.err || fails "the engine was not told why: $(grep -m 1 "^$1 " restored.err)"
}

graphs_of() { # case: one graph, or all that went well
	if [ "$1" = together ]; then
		cat ../together.list
	else
		printf '%s\n' "$1"
	fi
}

one() { # case
	local names alive=0 name said=
	mapfile -t names < <(graphs_of "$1")
	live "${subject[@]}" "${names[@]}"
	captured 1 --no-verify -- "${subject[@]}" "${names[@]}"
	[ $1 = together ] || ! grep -q 'not given again' live.err captured.err || skips "this driver gives no address again at once"
	run_restored -- "${subject[@]}" "${names[@]}"
	for name in "${names[@]}"; do
		expect "$name"
	done
	[ $alive = 0 ] || verified $alive "${subject[@]}" "${names[@]}"
	! grep -q 'no preferred clusters here' live.err || said=" (cluster dimensions in place of preferred ones, which this driver refuses)"
	[ "$1" != together ] || passes "$alive graphs restored and verified, $((${#names[@]} - alive)) refused by name, all as live"
	[ $alive = 0 ] && passes "refused, as live: ${reason[$1]}"
	passes "restored, verified, as live$said"
}

prove() {
	built "${subject[@]}" "$MEDUSA_BUILD/bin/medusa-capture"
	cases "${graphs[@]}"
	mkdir -p "$out"
	with_verdict pass | grep -vE "${alone:-^$}" >"$out/together.list"
	[ ! -s "$out/together.list" ] || [ -n "${ONLY:-}" ] || LIMIT=120 cases together
	finish
}
