#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The table of `make check COVERAGE=1`, on two small sources of which a part is reached.
. "$(dirname "$0")/lib.sh"

report=$PWD/tests/coverage.py
mkdir -p "$work/base" "$work/tools" "$work/build/obj/base" "$work/build/obj/tools"
cd "$work" || exit 1
cat >base/sign.h <<'END'
static inline int positive(int x)
{
	return x > 0;
}
END
cat >base/sign.c <<'END'
#include "base/sign.h"

int sign(int x)
{
	if (positive(x))
		return 1;
	return -1;
}
END
cat >tools/main.c <<'END'
int sign(int x);

static int never(void)
{
	return 7;
}

int main(int argc, char *argv[])
{
	return argc > 9 ? never() : sign(argv != 0) - 1;
}
END
for source in base/sign tools/main; do
	gcc -I. -O0 --coverage -c "$source.c" -o "build/obj/$source.o"
done
gcc --coverage -o program build/obj/*/*.o

table() { # name of the run; its lines, with one space between words
	run "$1" python3 "$report" build
	assert_exit "$1" 0
	tr -s ' ' <"$work/$1.out" >"$work/$1.table"
}

section "before anything ran, all counts and nothing is covered"
table before
assert_contains before.table "base 0 6 0.0 % 0 2 0.0 %"
assert_contains before.table "tools 0 4 0.0 % 0 2 0.0 %"
assert_contains before.table "all 0 10 0.0 % 0 4 0.0 %"

section "after a run"
./program
table after
assert_contains after.table "base 5 6 83.3 % 1 2 50.0 %"
assert_contains after.table "tools 2 4 50.0 % 1 2 50.0 %"
assert_contains after.table "all 7 10 70.0 % 2 4 50.0 %"
run lines python3 -c 'import json; print({name: file["uncovered"] for name, file in json.load(open("build/coverage.json")).items()})'
assert_equal "lines that nothing reached" "{'base/sign.c': [7], 'base/sign.h': [], 'tools/main.c': [3, 5]}" "$(cat lines.out)"

section "no coverage, and notes that gcov cannot read"
run none python3 "$report" nowhere
assert_exit none 1
assert_contains none.err "nowhere/obj holds no notes of gcov: build with COVERAGE=1"
echo damaged >build/obj/base/sign.gcno
run damaged python3 "$report" build
assert_exit damaged 1
assert_contains damaged.err "coverage: gcov could not read build/obj/base/sign.gcno"
run usage python3 "$report"
assert_exit usage 1
assert_contains usage.err "usage: "

section "notes of a source that is gone do not count, nor what gcov makes of them"
mkdir base/room build/obj/base/room
mv base/sign.c base/room/
gcc -I. -O0 --coverage -c base/room/sign.c -o build/obj/base/room/sign.o
table moved
assert_contains moved.table "base 0 6 0.0 % 0 2 0.0 %"
finish
