#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every file of the fuzz corpora, and every bomb, through its target: no crash, no leak, at most 1 GiB, no hang; ok-* are
# read, should-fail-* are refused. Bombs are left out with sanitizers, which take several times the memory and time.
set -u
cd "$(dirname "$0")/../.."
. tests/e2e/device.sh
export TMPDIR
TMPDIR=$(mktemp -d) || exit 1 # a target that fails leaves what it has written
trap 'rm -rf "$TMPDIR"' EXIT
checks=0 failures=0
for source in tests/fuzz/target_*.c; do
	name=$(basename "$source" .c)
	name=${name#target_}
	echo "$name:"
	files=(tests/fuzz/corpus/"$name"/*)
	[ -z "${SAN:-}" ] && [ -d "tests/fuzz/bombs/$name" ] && files+=(tests/fuzz/bombs/"$name"/*)
	checks=$((checks + 1))
	"$MEDUSA_BUILD/tests/fuzz/$name" "${files[@]}" || failures=$((failures + 1))
done
printf '%d checks, %d failures\n' $checks $failures
[ $failures = 0 ]
