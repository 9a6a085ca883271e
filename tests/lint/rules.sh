#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The project's own rules that a pattern can check.
set -u
cd "$(dirname "$0")/../.."
failed=0

forbid() { # why, pattern, paths...
	local why=$1 pattern=$2 found
	shift 2
	found=$(git grep -nP "$pattern" -- "$@")
	[ -z "$found" ] && return
	echo "$why:"
	echo "$found"
	failed=1
}

inside='(^|[^A-Za-z0-9_."])'
forbid 'inside another process nothing may end it' \
	"$inside(exit|abort|_exit|_Exit|quick_exit|assert)\s*\(" 'capture/*.c' 'restore/*.c' 'driver/*.c' 'kvprofile/*.c' 'base/*.c' 'format/*.c'
forbid 'inside another process nothing may write to its stdout' \
	"$inside(printf|puts|putchar|vprintf)\s*\(|[^A-Za-z0-9_]stdout[^A-Za-z0-9_.]" 'capture/*.c' 'restore/*.c' 'driver/*.c' 'kvprofile/*.c'
forbid 'unbounded string functions' "$inside(strcpy|strcat|sprintf|vsprintf|gets)\s*\(" '*.c' '*.h' ':!tests' ':!bench'
# The words are in two parts, so that this file does not find itself.
forbid 'unfinished work' '\b(TO''DO|FIX''ME|XX''X|HA''CK)\b' ':!*.txt'
forbid 'paths of one machine' '/(work|home|root)/[a-z]' ':!tests/lint/rules.sh'

for file in $(git ls-files '*.c' '*.h' '*.S' '*.cu' '*.cuh' '*.sh' '*.py' '*.def' '*.1' '*.7' Makefile); do
	head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
		echo "$file: its first line is no SPDX line"
		failed=1
	}
done
for file in $(git ls-files '*.c' '*.h'); do
	lines=$(wc -l <"$file")
	[ "$lines" -le 700 ] || {
		echo "$file has $lines lines: divide it"
		failed=1
	}
done
duplicates=$(git ls-files '*.c' '*.h' ':!models' ':!tests/images' | xargs -n 1 basename | sort | uniq -d)
if [ -n "$duplicates" ]; then
	echo "file names that are not unique: $duplicates"
	failed=1
fi
exit $failed
