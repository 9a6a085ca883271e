# SPDX-License-Identifier: Apache-2.0
# Sourced by sequence.sh and identity.sh: an engine is captured with some words and restored with others.
. "$(dirname "${BASH_SOURCE[0]}")/cases.sh"
declare -A way=() texts=() unlike=()
engines=()

# engine NAME "words of the capture" "options of medusa-restore" "words of the restore" COUNT [TEXT...]: that many graphs are
# restored, and each TEXT is said by capture or restore. --no-verify, for medusa-capture, may stand before the words.
engine() {
	local name=$1
	engines+=("$name")
	way[$name]="$2|$3|$4|$5"
	shift 5
	texts[$name]=$(printf '%s\n' "$@")
}

host_only() { # name, why: not tried on a GPU
	unlike[$1]=$2
}

one() { # name
	local words options more count text option=() allowed=0
	IFS='|' read -r words options more count <<<"${way[$1]}"
	[ "$MEDUSA_DEVICE" = host ] || [ -z "${unlike[$1]:-}" ] || skips "${unlike[$1]}"
	[ "${words%% *}" != --no-verify ] || { option=(--no-verify); words=${words#--no-verify}; }
	live "${subject[@]}" $words
	[[ ${texts[$1]} != *'refused: ('* ]] || allowed=1
	captured $allowed ${option[@]+"${option[@]}"} -- "${subject[@]}" $words
	restored $options -- "${subject[@]}" $more
	[ "$(grep -c ' restored ' restored.err)" = "$count" ] ||
		fails "$(grep -c ' restored ' restored.err) graphs restored, not $count: $(grep -m 1 ' live ' restored.err)"
	while IFS= read -r text; do
		grep -qF -- "$text" captured.err restored.err || fails "nobody says '$text': $(grep -h -m 1 'kernels: \|verification: ' restored.err captured.err | tail -n 1)"
	done <<<"${texts[$1]}"
	looked_at "$1"
	passes "$count graphs restored, as live${texts[$1]:+; $(head -n 1 <<<"${texts[$1]}")}"
}

looked_at() { :; }

prove() { # files that must be there...
	built "${subject[0]}" "$MEDUSA_BUILD/bin/medusa-capture" "$@"
	cases "${engines[@]}"
	finish
}
