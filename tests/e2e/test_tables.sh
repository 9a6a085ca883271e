#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tables in memory that nobody bound, of which the inputs of a capture reach one row: a cold start has them all.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/tables_subject
export IMAGE=$MEDUSA_BUILD/tests/images/tables_kernels.host.so

captured() { # table, exit code, options of medusa-capture...
	local name=$1 wanted=$2
	shift 2
	TABLE=$name run "$name.captured" medusa-capture -o "$work/$name.medusa" "$@" -- "$subject"
	assert_exit "$name.captured" "$wanted"
}

cold() { # table, how its graph comes: every row gives what it should
	TABLE=$1 run "$1.cold" medusa-restore "$work/$1.medusa" -- "$subject"
	assert_exit "$1.cold" 0
	assert_count "$work/$1.cold.err" "rows $2" 1
	python3 - "$work/$1.cold.out" <<'END' || fail "right outputs of '$1'" "$(excerpt "$work/$1.cold.out")"
import re, sys
lines = open(sys.argv[1]).read().splitlines()
wrong = [line for line in lines if not (found := re.match(r"out (\d+), wanted (\d+)$", line)) or found[1] != found[2]]
sys.exit(len(lines) < 4 or bool(wrong))
END
	checks=$((checks + 1))
}

kept() { # of private memory, bytes
	medusa-inspect --text "$work/$1.medusa" | awk '/^content / { for (i = 1; i <= NF; i++) if (sub("size=", "", $i)) sum += $i } END { print sum + 0 }'
}

for name in experts rows beside one made pointers; do
	section "$name"
	captured $name 0
	cold $name restored
done
section "what is kept"
assert_equal "bytes of 2 rows of 64 KiB" 131072 "$(kept experts)"
for name in beside one; do
	assert_at_least "bytes kept of 64 rows" 65532 "$(kept $name)"
	assert_equal "bytes kept behind 64 rows" 0 $(($(kept $name) / 65537))
done

for name in apart pair set; do
	section "rows that no input has asked for, copied from the host or set: $name"
	captured $name 0
	cold $name restored
	assert_equal "bytes of 2 rows, and addresses" $((131072 + ($(kept $name) % 65536))) "$(kept $name)"
	assert_lacks "$work/$name.captured.err" "neither read nor written"
done
section "rows that no input has asked for, made by a kernel"
captured garbage 0
assert_contains "$work/garbage.captured.err" "65536 bytes at 1 places of unbound memory were neither read nor written"
assert_equal "bytes of 1 row" 65536 "$(kept garbage)"

section "a row that differs"
captured differs 1
assert_contains "$work/differs.captured.err" "unbound memory: contents of allocation"
assert_contains "$work/differs.captured.err" "differs between the captures; no recorded input makes the graph read bytes"
cold differs live

section "a table that is followed by too much"
captured large 1
assert_contains "$work/large.captured.err" "it is too large to be saved; no recorded input makes the graph read bytes"
cold large live

finish
