#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-backbone: device memory that several processes have in common; whoever is killed, nobody computes with what is not right.
. "$(dirname "$0")/lib.sh"
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"

section "processes that share, and die"
if ! python3 tests/backbone/processes.py "$work" >"$work/processes.out" 2>&1; then
	fail "tests/backbone/processes.py" "$(grep -A3 FAIL "$work/processes.out" || tail -5 "$work/processes.out")"
fi
assert_contains "$work/processes.out" " 0 failures"

section "without a broker"
run none medusa-backbone status
assert_exit none 3
run alone "${engine[@]}" --check
assert_exit alone 0
run private "${engine[@]}" --check --share q
assert_exit private 0
assert_contains "$work/private.err" "the weights are not shared: medusa-backbone is not there"
assert_equal "tokens without a broker" "$(cat "$work/alone.out")" "$(cat "$work/private.out")"
run required env MEDUSA_BACKBONE_REQUIRED=1 "${engine[@]}" --check --share q
assert_exit required 1
assert_contains "$work/required.err" "--share q: there is no room for memory of one's own (MEDUSA_BACKBONE_REQUIRED): medusa-backbone is not there"

section "engines on one backbone: live, restored, swapped, captured"
capture tiny
medusa-backbone run --keep --device host 2>"$work/broker.err" &
broker=$!
for _ in $(seq 1200); do grep -q ready: "$work/broker.err" && break || sleep 0.05; done
shared=("${engine[@]}" --check --share q)
shared=("${shared[@]/#--quiet/--raw}") # which has no effect without a tokenizer
run filler "${shared[@]}"
run reader "${shared[@]}"
assert_contains "$work/reader.err" "shared as q, and filled by another process"
run restored medusa-restore "$work/tiny.medusa" -- "${shared[@]}" --report "$work/restored.json"
assert_restored restored $graphs 0
run swapped medusa-swap run --name one --pool-bytes 64M --artifact "$work/tiny.medusa" -- bash -c '"$@" & engine=$!
	until medusa-swap out one >/dev/null 2>&1; do kill -0 $engine || break; done
	medusa-swap in one --verify >/dev/null; wait $engine' - "${shared[@]}" --repeat 200 --report "$work/swapped.json"
assert_restored swapped $graphs 0
for name in filler reader restored; do
	assert_exit $name 0
	assert_equal "tokens of $name" "$(cat "$work/alone.out")" "$(cat "$work/$name.out")"
done
assert_exit swapped 0
assert_equal "tokens after the swap" "$(grep -v '^check' "$work/alone.out")" "$(grep -v '^check' "$work/swapped.out" | sort -u)"
run captured medusa-capture -o "$work/shared.medusa" -- "${shared[@]}"
assert_exit captured 0
assert_contains "$work/captured.err" "a capture shares nothing"
run other "${shared[@]}" --seed 77
run other_alone "${engine[@]}" --check --seed 77
assert_equal "tokens of other weights" "$(cat "$work/other_alone.out")" "$(cat "$work/other.out")"
run status medusa-backbone status
assert_count "$work/status.out" "q: kept" 2
kill $broker
wait $broker
assert_equal "the exit code of the broker" 0 $?

section "descriptors that it inherits"
run both medusa-backbone run --listen-fd 7 --socket "$work/x"
assert_exit both 2
run closed medusa-backbone run --listen-fd 77
assert_exit closed 3
assert_contains "$work/closed.err" "--listen-fd 77: no such descriptor is open"
run file bash -c 'exec medusa-backbone run --device host --listen-fd 7 7<"$0"' "$work/file.err"
assert_exit file 3
assert_contains "$work/file.err" "--listen-fd 7: not a Unix socket that listens"
run ended bash -c 'exec medusa-backbone run --device host --socket "$0" --end-fd 7 7< <(:)' "$work/ended.sock"
assert_exit ended 0

section "the folder of its socket"
for turn in made there; do
	run "$turn" bash -c 'exec medusa-backbone run --device host --socket "$0" --end-fd 7 7< <(:)' "$work/above/below/b.sock"
	assert_exit "$turn" 0
done
assert_contains "$work/made.err" "made the folder $work/above/below for its socket"
assert_equal "whose folders these are" "700 700" "$(stat -c %a "$work/above" "$work/above/below" | paste -sd' ')"
assert_lacks "$work/there.err" "made the folder"

section "each call of the driver fails once: an engine that shares ends with the error, or has weights of its own"
medusa-backbone run --device host 2>"$work/faulty.err" &
broker=$!
for _ in $(seq 1200); do grep -q ready: "$work/faulty.err" && break || sleep 0.05; done
for call in cuDeviceGetUuid:1 cuMemImportFromShareableHandle:1 cuMemAddressReserve:1 cuMemMap:1 cuMemSetAccess:1 cuMemSetAccess:2; do
	run fault env HOSTCUDA_FAULT="$call:UNKNOWN" "${shared[@]}"
	checks=$((checks + 1))
	if [ $code = 0 ]; then
		assert_equal "tokens, with a failure of $call" "$(cat "$work/alone.out")" "$(cat "$work/fault.out")"
	else
		assert_contains "$work/fault.err" "${call%:*}"
	fi
	assert_equal "what the broker holds after a failure of $call" "" "$(medusa-backbone status)"
done
kill $broker
wait $broker
finish
