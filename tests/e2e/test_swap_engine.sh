#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A whole engine under medusa-swap run whose memory goes and comes at any moment of its life: while it loads, warms up, captures,
# restores in the background, computes and ends. Its tokens stay the same.
. "$(dirname "$0")/lib.sh"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
long=("${engine[@]}" --tokens "${TOKENS:-150}" --check)

swapped() { # name, options of run..., --: swaps the engine until it has ended; how often it was out is in $outs
	local name=$1 options=() pid code=0 at=0
	shift
	while [ "$1" != -- ]; do options+=("$1") && shift; done
	medusa-swap run --name "$name" --pool-bytes 256M "${options[@]}" -- "${long[@]}" --report "$work/$name.json" >"$work/$name.out" 2>"$work/$name.err" &
	pid=$! outs=0
	while kill -0 $pid 2>/dev/null; do
		if medusa-swap out "$name" >"$work/$name.swap" 2>&1; then
			outs=$((outs + 1))
			until medusa-swap in "$name" >>"$work/$name.swap" 2>&1; do
				kill -0 $pid 2>/dev/null || break
			done
		fi
		sleep "0.0$((at++ % 7))"
	done
	wait $pid || code=$?
	assert_equal "the exit code of $name" 0 "$code"
	assert_contains "$work/$name.out" "check: $graphs of $graphs graphs bit-equal to eager"
	assert_equal "the tokens of $name" "$(grep -v '^check' "$work/alone.out")" "$(grep -v '^check' "$work/$name.out")"
}

run alone "${long[@]}"
assert_exit alone 0
capture tiny

all=0
for round in $(seq 20); do
	[ "$round" -le 3 ] || [ $all -lt 8 ] || break # a slow machine needs more rounds
	section "round $round: an engine that captures its graphs"
	swapped live$round --
	all=$((all + outs))
	section "round $round: an engine that is restored"
	swapped restored$round --artifact "$work/tiny.medusa" --
	assert_restored restored$round $graphs 0
	all=$((all + outs))
done
checks=$((checks + 1))
[ $all -ge 8 ] || fail "the engines to be out at least 8 times" "$all"
echo "  out $all times"
finish
