#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each header compiles alone; the installed ones as C90, C11 and both C++98 and C++11 too, without any of our include paths. Each enum of an
# installed header has a function that names its values.
set -u
cd "$(dirname "$0")/../.."
cuda=$(dirname "$(find -L "${CUDA_HOME:-/usr/local/cuda}/include" build/cuda -name cuda.h 2>/dev/null | head -1)")
failed=0

try() { # header, compiler and flags
	local header=$1 said
	shift
	said=$("$@" -fsyntax-only -Wall -Wextra -Wno-pragma-once-outside-header "$header" 2>&1) && return
	echo "$header does not compile alone ($1):"
	head -n 5 <<<"$said"
	failed=1
}

flags=(-std=gnu11 -D_GNU_SOURCE -I. -Iinclude -isystem "$cuda" -x c)
own=()
# Device code and X-macro lists are no headers in this sense.
mapfile -t headers < <(git ls-files -z '*.h' | xargs -0r awk '
	FNR <= 3 && /not a header of its own/ { no[FILENAME] }
	FNR > 3 { nextfile }
	END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in no)) print ARGV[i] }')
for header in "${headers[@]}"; do
	case $header in
	include/*)
		try "$header" gcc -std=c11 -Wpedantic -x c
		try "$header" gcc -std=c90 -Wpedantic -Wno-long-long -x c
		command -v g++ >/dev/null && try "$header" g++ -std=c++11 -x c++
		command -v g++ >/dev/null && try "$header" g++ -std=c++98 -Wpedantic -Wno-long-long -x c++
		;;
	*) own+=("$header") ;;
	esac
done
# gcc compiles each of several alone, too; one by one, where something is wrong.
for ((at = 0; at < ${#own[@]}; at += 32)); do
	some=("${own[@]:at:32}")
	gcc -fsyntax-only -Wall -Wextra -Wno-pragma-once-outside-header "${flags[@]}" "${some[@]}" >/dev/null 2>&1 && continue
	failed=0
	for header in "${some[@]}"; do try "$header" gcc "${flags[@]}"; done
	[ $failed = 1 ] || echo "these do not compile in one command, and each does alone: ${some[*]}"
	failed=1
done
for header in include/medusa/*.h; do
	for enum in $(sed -n 's/^enum \([a-z_]*\) {.*/\1/p' "$header"); do
		grep -q "^const char \*${enum%_type}_name(enum $enum " "$header" && continue
		echo "$header: enum $enum has no function that names its values: const char *${enum%_type}_name(enum $enum ...)"
		failed=1
	done
done
exit $failed
