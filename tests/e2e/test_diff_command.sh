#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-inspect --diff on real captures: two of one engine are equal, of another configuration the difference is named.
. "$(dirname "$0")/lib.sh"

# Noise that is the same in both captures of an artifact counts as constant: stacks have few upper halves, and chance
# gives such a pair now and then.
for try in 1 2 3 4 5; do
	capture one
	capture two
	medusa-inspect --diff "$work/one.medusa" "$work/two.medusa" >"$work/chance.out" && break
	grep -q 'constant words\? differ' "$work/chance.out" || break
done
section "two captures of one engine"
for turn in "one two" "two one" "one one"; do
	read -r a b <<<"$turn"
	run same medusa-inspect --diff "$work/$a.medusa" "$work/$b.medusa"
	assert_exit same 0
	assert_contains "$work/same.out" equal
done

section "another KV cache"
engine+=(--kv-blocks 64)
capture other
run differs medusa-inspect --diff "$work/one.medusa" "$work/other.medusa"
assert_exit differs 1
assert_contains "$work/differs.out" "  ~ kv: bytes: 999424 -> 524288"
assert_contains "$work/differs.out" "pointers differ, first node"
run json medusa-inspect --diff --json "$work/one.medusa" "$work/other.medusa"
assert_exit json 1
run parsed python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d["equal"], d["differences"][0]["item"])' "$work/json.out"
assert_equal "what the JSON says" "False kv" "$(cat "$work/parsed.out" "$work/parsed.err")"

section "files that cannot be compared"
run missing medusa-inspect --diff "$work/one.medusa" "$work/missing"
assert_exit missing 3
assert_contains "$work/missing.err" "$work/missing"
run wrong medusa-inspect --diff Makefile "$work/one.medusa"
assert_exit wrong 3
run one medusa-inspect --diff "$work/one.medusa"
assert_exit one 2
run text medusa-inspect --diff --text "$work/one.medusa" "$work/two.medusa"
assert_exit text 2
code=0
medusa-inspect --diff "$work/one.medusa" "$work/other.medusa" >/dev/full 2>"$work/full.err" || code=$?
assert_exit full 4
finish
