#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The static analyzer of clang: null pointers, leaks, what was freed or never set. run.sh [FILE...]: these files alone.
# CPPFLAGS as the Makefile has them. JOBS: how many files at a time. tests/scan/accepted.txt lists the findings that are none.
set -u
cd "$(dirname "$0")/../.."
clang=$(command -v clang-14 || command -v clang) || { echo 'clang is not installed' && exit 1; }
eval "flags=(-std=gnu11 ${CPPFLAGS:-})"
checkers=core,unix,deadcode,nullability,security,optin.portability
# It wants memcpy_s, which no C library here has.
disabled=security.insecureAPI.DeprecatedOrUnsafeBufferHandling
accepted=tests/scan/accepted.txt
# Device code of the reference engine is not for hosts' compilers.
[ $# != 0 ] || mapfile -t files < <(git ls-files '*.c' ':!tests' ':!bench' ':!*_host.c' ':!scheduler/example')
[ $# = 0 ] || files=("$@")
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

analyze() { # file: its findings, a line each
	local said
	said=$("$clang" --analyze --analyzer-output text -Xclang -analyzer-checker=$checkers \
		-Xclang -analyzer-disable-checker=$disabled "${flags[@]}" "$1" 2>&1) || said+=$'\n'"$1:1:1: error: the analyzer ended with $?"
	grep -E '(warning|error): ' <<<"$said"
}

# The analyzer does not know __attribute__((cleanup)), so it takes every variable of base/cleanup.h for lost.
forget_cleaned() { # findings: without those about a variable that its function declares with a cleanup
	awk '
	function load(file,    n) {
		if (file == loaded)
			return
		loaded = file
		count = 0
		while ((getline text[++count] < file) > 0)
			;
		close(file)
	}
	function cleaned(name, at) {
		for (; at > 0 && text[at] !~ /^{/; at--)
			if (text[at] ~ /MD_(AUTO_FREE|AUTO_FD|AUTO_FILE|CLEANUP)/) {
				declared = text[at] (text[at] ~ /;/ ? "" : text[at + 1])
				if (declared ~ "[^A-Za-z0-9_]" name "[^A-Za-z0-9_]")
					return 1
			}
		return 0
	}
	/Potential leak of memory pointed to by|the value is never actually read from/ {
		split($0, part, ":")
		name = $0
		sub(/[^\047]*(from|by) \047/, "", name)
		sub(/.*the value is never actually read from \047/, "", name)
		sub(/[.\047].*/, "", name)
		load(part[1])
		if (cleaned(name, part[2] + 0))
			next
	}
	{ print }'
}

# It finds what it is for, and a cleanup hides no leak of another variable.
cat >"$work/bad.c" <<'END'
#include "base/cleanup.h"
int bad(int n);
int bad(int n)
{
	MD_AUTO_FREE int *kept = malloc(sizeof(*kept));
	int *lost = malloc(sizeof(*lost)), *none = 0;
	if (!kept || !lost)
		return 1;
	return n ? *none : 2;
}
END
said=$(analyze "$work/bad.c" | forget_cleaned)
for expected in "pointed to by 'lost'" 'core.NullDereference'; do
	grep -qF "$expected" <<<"$said" && continue
	echo "tests/scan/run.sh: \"$expected\" is not found in a file that is made for it"
	exit 1
done
if grep -q "'kept'" <<<"$said"; then
	echo "tests/scan/run.sh: a variable with a cleanup is taken for lost"
	exit 1
fi

running=0 jobs=${JOBS:-$(nproc)}
for i in "${!files[@]}"; do
	[ "$running" -lt "$jobs" ] || { wait -n && running=$((running - 1)); }
	{ analyze "${files[i]}" | forget_cleaned >"$work/$i.found"; true; } &
	running=$((running + 1))
done
wait

# "FILE | MESSAGE | why it is none", without a line number, which would change; one row for all findings that are alike.
failed=0
grep -v '^#' $accepted | sed 's/ *| */|/g' >"$work/accepted"
cat "$work"/*.found | sort -u | sed -E 's/^([^:]*):([0-9]+):([0-9]+): (warning|fatal error|error): (.*)$/\1|\5|\2/' >"$work/all"
while IFS='|' read -r file message line; do
	if grep -qF "$file|$message|" "$work/accepted"; then
		echo "$file|$message|" >>"$work/used"
		continue
	fi
	echo "$file:$line: $message"
	failed=1
done <"$work/all"
touch "$work/used"
while IFS='|' read -r file message why; do
	[ $# = 0 ] || continue
	grep -qxF "$file|$message|" "$work/used" && [ -n "$why" ] && continue
	echo "$accepted: nothing is found any more of \"$file | $message\", or it says no reason"
	failed=1
done <"$work/accepted"
exit $failed
