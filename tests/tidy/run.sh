#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What clang sees and gcc does not: which lock guards what (base/guarded.h), and the mistakes that .clang-tidy lists.
# run.sh [FILE...]: these files alone. CPPFLAGS as the Makefile has them. LOCKS_ONLY=1: the locks alone, which is quick. JOBS:
# how many files at a time.
set -u
cd "$(dirname "$0")/../.."
clang=$(command -v clang-14 || command -v clang) || { echo 'clang is not installed' && exit 1; }
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || [ -n "${LOCKS_ONLY:-}" ] || { echo 'clang-tidy is not installed' && exit 1; }
# Device code of the reference engine is not for hosts' compilers.
[ $# != 0 ] || mapfile -t files < <(git ls-files '*.c' ':!tests' ':!bench' ':!*_host.c' ':!scheduler/example')
[ $# = 0 ] || files=("$@")

# Prints the files that base/guarded.h is included in, by itself or by what they include: in all others there is no word of locks.
# The last two parts of a path are its own.
with_locks() {
	git grep -E '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' -- '*.c' '*.h' '*.def' | awk -F '[:"]' '
		function own(path, parts, n) {
			n = split(path, parts, "/")
			return parts[n - 1] "/" parts[n]
		}
		{ name = $3; if (name !~ "/") { name = $1; sub("[^/]*$", $3, name) }
		  users[own(name)] = users[own(name)] " " $1 }
		END {
			todo[1] = "base/guarded.h"
			for (at = last = 1; at <= last; at++) {
				n = split(users[own(todo[at])], by, " ")
				for (i = 1; i <= n; i++)
					if (!(by[i] in found)) {
						found[by[i]]
						todo[++last] = by[i]
						print by[i]
					}
			}
		}'
}
if [ -n "${LOCKS_ONLY:-}" ] && [ $# = 0 ]; then
	mapfile -t files < <(grep -xFf <(with_locks) <<<"$(printf '%s\n' "${files[@]}")")
	[ "${#files[@]}" -gt 0 ] || { echo 'tests/tidy/run.sh: no file includes base/guarded.h' && exit 1; }
fi
eval "flags=(-std=gnu11 $CPPFLAGS)"

locks() {
	"$clang" -fsyntax-only -DMD_CHECK_LOCKS -Wthread-safety -Wno-thread-safety-attributes -Wno-unknown-attributes -Werror=thread-safety-analysis "${flags[@]}" "$1"
}
check() {
	locks "$1" || return 1
	[ -n "${LOCKS_ONLY:-}" ] || "$tidy" --quiet "$1" -- "${flags[@]}" 2>/dev/null
}

# Both find what they are for.
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cat >"$work/bad.c" <<'END'
#include "base/guarded.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int guarded MD_GUARDED_BY(lock);
int bad(int n);
static int held(void) MD_REQUIRES(lock)
{
	return guarded;
}
int bad(int n)
{
	int some[2];
	pthread_mutex_lock(&lock);
	if (n > 1)
		return some[0];
	pthread_mutex_unlock(&lock);
	return held() + guarded;
}
END
found() { # what it says, what said it
	grep -qF "$1" <<<"$2" && return
	echo "tests/tidy/run.sh: '$1' is not found in a file that is made for it"
	exit 1
}
said=$(locks "$work/bad.c" 2>&1) && found 'an error' ''
found "reading variable 'guarded' requires holding mutex 'lock'" "$said"
found "calling function 'held' requires holding mutex 'lock'" "$said"
found "mutex 'lock' is not held on every path" "$said"
[ -n "${LOCKS_ONLY:-}" ] || found 'clang-analyzer-core.uninitialized' "$("$tidy" --config-file=.clang-tidy "$work/bad.c" -- "${flags[@]}" 2>&1)"

failed=0 running=0
for file in "${files[@]}"; do
	[ -e "$file" ] || { echo "$file: there is no such file" && failed=1 && continue; }
	[ "$running" -lt "${JOBS:-$(nproc)}" ] || { wait -n || failed=1; running=$((running - 1)); }
	check "$file" &
	running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
	wait -n || failed=1
	running=$((running - 1))
done
exit $failed
