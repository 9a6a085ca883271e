#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whole engines under medusa-swap run whose memory goes and comes at any moment of their lives: while they load, warm up, capture,
# restore in the background, compute and end; alone, two together, and when one of two is killed. Their tokens stay the same.
. "$(dirname "$0")/lib.sh"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
export HOSTCUDA_REMAPPED=fault # whoever touches memory before it is filled, with or without overlap
long=("${engine[@]}" --tokens "${TOKENS:-150}" --check)

swap_until_end() { # name, process: how often it was out is in $outs
	local at=0
	outs=0
	while kill -0 "$2" 2>/dev/null; do
		if medusa-swap out "$1" >"$work/$1.swap" 2>&1; then
			outs=$((outs + 1))
			local how=()
			((at % 2)) || how=(--overlap)
			until medusa-swap in "$1" "${how[@]}" >>"$work/$1.swap" 2>&1; do
				kill -0 "$2" 2>/dev/null || break
			done
		fi
		sleep "0.0$((at++ % 7))"
	done
}

assert_right() { # name of an output
	assert_contains "$work/$1.out" "check: $graphs of $graphs graphs bit-equal to eager"
	assert_equal "the tokens of $1" "$(grep -v '^check' "$work/alone.out")" "$(grep -v '^check' "$work/$1.out")"
}

swapped() { # name, options of run...
	local name=$1 pid code=0
	shift
	medusa-swap run --name "$name" --pool-bytes 256M "$@" -- "${long[@]}" --report "$work/$name.json" >"$work/$name.out" 2>"$work/$name.err" &
	pid=$!
	swap_until_end "$name" $pid
	wait $pid || code=$?
	assert_equal "the exit code of $name" 0 "$code"
	[ "$code" = 0 ] || cat "$work/$name.err"
	assert_right "$name"
	all=$((all + outs))
}

run alone "${long[@]}"
assert_exit alone 0
capture tiny

all=0
for round in $(seq 20); do
	[ "$round" -le 3 ] || [ $all -lt 8 ] || break # a slow machine needs more rounds
	section "round $round: an engine that captures its graphs"
	swapped live"$round"
	section "round $round: an engine that is restored"
	swapped restored"$round" --artifact "$work/tiny.medusa"
	assert_restored restored"$round" $graphs 0
done
assert_at_least "how often an engine was out" 8 $all

section "what only a restored engine's graphs use is not saved"
wide=("${engine[@]}" --batches 1,1024 --max-kv-bytes 60000000 --tokens "${TOKENS:-150}" --check)
run wide_alone "${wide[@]}"
run wide medusa-capture -o "$work/wide.medusa" -- "${wide[@]}"
assert_exit wide 0
most=0
for round in $(seq 20); do
	[ "$round" -le 1 ] || [ "$most" = 0 ] || break # out before the graphs were there
	medusa-swap run --name wide"$round" --pool-bytes 256M --artifact "$work/wide.medusa" -- "${wide[@]}" --report "$work/wide$round.json" \
		>"$work/wide$round.out" 2>"$work/wide$round.err" &
	pid=$!
	while kill -0 $pid 2>/dev/null; do
		medusa-swap out wide"$round" --json >"$work/wide.swap" 2>/dev/null || continue
		discarded=$(sed -n 's/.*"discarded": \([0-9]*\).*/\1/p' "$work/wide.swap")
		[ "${discarded:-0}" -le $most ] || most=$discarded
		medusa-swap in wide"$round" >/dev/null 2>&1
	done
	wait $pid
	assert_equal "the exit code of a wide engine" 0 $?
	assert_restored wide"$round" 2 0
	assert_equal "its tokens" "$(grep -v '^check' "$work/wide_alone.out")" "$(grep -v '^check' "$work/wide$round.out")"
done
assert_at_least "bytes that were not saved" 2097152 $most

pair() { # name, command before the engines' end
	medusa-swap run --name "$1" --pool-bytes 256M -- bash -c 'out=$1 before=$2; shift 2
		"$@" >"$out.one.out" & one=$!
		"$@" >"$out.two.out" & two=$!
		eval "$before"
		wait $one; first=$?
		wait $two && exit $first' - "$work/$1" "$2" "${long[@]}" 2>"$work/$1.err" &
}

section "two processes go and come together"
all=0
for _ in $(seq 20); do
	pair both :
	pid=$!
	swap_until_end both $pid
	wait $pid
	code=$?
	assert_equal "the exit code of both" 0 $code
	[ $code = 0 ] || cat "$work/both.err"
	assert_right both.one
	assert_right both.two
	all=$((all + outs))
	[ $all -lt 2 ] || break # a short-lived engine can be missed
done
assert_at_least "how often both were out" 2 $all

section "one of two is killed while they go and come; the other one goes on"
for delay in 0.2 0.4 0.6 0.9; do
	pair killed "sleep $delay; kill -KILL \$one"
	pid=$!
	swap_until_end killed $pid
	wait $pid
	code=$?
	checks=$((checks + 1))
	[ $code = 137 ] || [ $code = 0 ] || { fail "the exit code of the killed engine" "$code"; cat "$work/killed.err"; } # 0: it had ended before
	assert_right killed.two
done
finish
