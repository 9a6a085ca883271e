#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Graphs whose replays differ among themselves: refused, or judged within the tolerance that the user names, and said so.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/outputs_subject" "$MEDUSA_BUILD/tests/images/restore_kernels.host.so")

sums() { # name, options of medusa-capture...
	local name=$1
	shift
	run "$name" env SUBJECT_SUMS=1 medusa-capture -o "$work/$name.medusa" "$@" -- "${subject[@]}"
}

close_to() { # expected run, run: the values that both print agree to five digits
	checks=$((checks + 1))
	python3 - "$work/$1.out" "$work/$2.out" <<'END' || fail "values near those of '$1' in '$2'" "others"
import math, sys
one, two = ([float(line.split()[-1]) for line in open(path)] for path in sys.argv[1:])
sys.exit(not (one and len(one) == len(two) and all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(one, two))))
END
}

section "refused when nobody named a tolerance, with a reason that says how"
sums unnamed
assert_exit unnamed 1
assert_count "$work/unnamed.err" "two replays of the same state give different outputs; --nondeterministic ULPS[:TYPE] accepts" 3
assert_contains "$work/unnamed.err" "analysis: 0 graphs, 3 refused"
MEDUSA_NONDETERMINISTIC=64 sums left_over
assert_exit left_over 1
assert_count "$work/left_over.err" "two replays of the same state give different outputs" 3

section "a tolerance that is none"
for word in "" few 64: 64:int -1 1.5 99999999999999999999; do
	sums wrong --nondeterministic "$word"
	assert_exit wrong 2
	assert_contains "$work/wrong.err" "is not ULPS or ULPS:TYPE"
	run wrong medusa-verify --nondeterministic "$word" "$work/unnamed.medusa" -- true
	assert_exit wrong 2
done

section "accepted within a tolerance: contents are found all the same, and the artifact says so"
sums named --nondeterministic 64:f32
assert_exit named 0
assert_contains "$work/named.err" "analysis: 3 graphs, 0 refused"
assert_count "$work/named.err" "medusa-capture: nondeterministic: step/" 3
assert_contains "$work/named.err" "accepted within 64 ULP of f32 of what they span"
assert_contains "$work/named.err" "1 contents"
run listed medusa-inspect "$work/named.medusa"
assert_count "$work/listed.out" "replay, nondeterministic within 64 ULP of f32" 3
run json medusa-inspect --json "$work/named.medusa"
assert_count "$work/json.out" '"accepted_ulps": 64' 3
assert_count "$work/json.out" '"accepted_type": "f32"' 3
run twin medusa-inspect --text "$work/named.medusa"
assert_count "$work/twin.out" "accepted_ulps=64 accepted_type=1" 3
run again medusa-inspect --from-text "$work/twin.out" -o "$work/again.medusa"
assert_same_file "$work/named.medusa" "$work/again.medusa"
sed 's/accepted_type=1/accepted_type=6/' "$work/twin.out" >"$work/odd.txt"
run odd medusa-inspect --from-text "$work/odd.txt" -o "$work/odd.medusa"
assert_contains "$work/odd.err" "accepted within 64 ULP of type 6"

section "restored, near to what live ones leave"
run live env SUBJECT_SUMS=1 "${subject[@]}"
run restored env SUBJECT_SUMS=1 medusa-restore "$work/named.medusa" -- "${subject[@]}"
assert_exit restored 0
assert_count "$work/restored.err" " restored 0" 3
close_to live restored

section "verified within the tolerance, and not without one"
run verified env SUBJECT_SUMS=1 medusa-verify --nondeterministic 64 "$work/named.medusa" -- "${subject[@]}"
assert_exit verified 0
assert_contains "$work/verified.out" "0 passed, 0 failed, 0 skipped, 3 nondeterministic"
run silent env SUBJECT_SUMS=1 medusa-verify "$work/named.medusa" -- "${subject[@]}"
assert_exit silent 1
assert_count "$work/silent.out" "--nondeterministic ULPS[:TYPE] accepts a graph" 3

section "what is wrong stays wrong: another table, far outside of what live replays span"
sed 's/^  *data hex=0000803f/data hex=0000003f/; s/^data hex=0000803f/data hex=0000003f/' "$work/twin.out" >"$work/table.txt"
checks=$((checks + 1))
! cmp -s "$work/twin.out" "$work/table.txt" || fail "an edited text twin" "no change"
run table medusa-inspect --from-text "$work/table.txt" -o "$work/table.medusa"
assert_exit table 0
run spoilt env SUBJECT_SUMS=1 medusa-verify --nondeterministic 64 "$work/table.medusa" -- "${subject[@]}"
assert_exit spoilt 1
assert_contains "$work/spoilt.out" "3 failed"

section "a deterministic engine is held to every bit, whatever the tolerance"
run exact medusa-capture -o "$work/exact.medusa" --nondeterministic 1000000 -- "${subject[@]}"
assert_exit exact 0
assert_contains "$work/exact.err" "verification: 3 passed, 0 failed, 0 not compared"
run exact_list medusa-inspect "$work/exact.medusa"
assert_lacks "$work/exact_list.out" "nondeterministic"
run exact_twin medusa-inspect --text "$work/exact.medusa"
sed 's/^data hex=0000803f/data hex=0100803f/' "$work/exact_twin.out" >"$work/near.txt"
run near medusa-inspect --from-text "$work/near.txt" -o "$work/near.medusa"
assert_exit near 0
run near medusa-verify --nondeterministic 1000000 "$work/near.medusa" -- "${subject[@]}"
assert_exit near 1
assert_contains "$work/near.out" "3 failed"

section "without the verification run the artifact says what the poison test judged by"
sums unverified --nondeterministic 64 --no-verify
assert_exit unverified 0
run unverified medusa-inspect "$work/unverified.medusa"
assert_count "$work/unverified.out" "two captures, nondeterministic within 64 ULP of f32" 3
finish
