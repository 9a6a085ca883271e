#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Functions, structs and enums of libmedusa.so and libmedusa-sched.so equal what is recorded in api/abi; docs/abi.md says what may
# change. UPDATE=1 prints what differs and records anew. Needs abidiff and abidw of libabigail, and a build with -g.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
command -v abidiff >/dev/null && command -v abidw >/dev/null || {
	echo 'abidiff is not installed, so the ABI was not compared with api/abi; on Debian: apt-get install abigail-tools'
	exit 77
}
failed=0
now=$(mktemp -d)
trap 'rm -rf "$now"' EXIT

describe() { # library, headers: what a program that includes the headers can know of the library
	local library=$1 header headers=()
	shift
	for header; do headers+=(--header-file "include/medusa/$header"); done
	abidw --exported-interfaces-only "${headers[@]}" --drop-private-types --drop-undefined-syms --no-show-locs --no-corpus-path \
		--no-comp-dir-path --no-elf-needed --no-parameter-names --no-write-default-sizes --type-id-style hash --out-file "$now/$library.xml" \
		"$build/lib/$library.so"
}

compare() { # library, options of abidiff...: no difference?
	local library=$1
	shift
	abidiff --no-show-locs "$@" "api/abi/$library.xml" "$now/$library.xml" >"$now/differences" 2>&1
}

# What growth.ini lets pass is no break; it also lets pass a field of another type in the place of the old one.
is_compatible() { # library
	compare "$1" || ! grep -q 'data member change' "$now/differences" || return
	compare "$1" --no-added-syms --suppressions api/abi/growth.ini
}

complain() {
	echo "$*"
	cat "$now/differences"
	failed=1
}

for headers in "libmedusa medusa.h swap.h share.h" "libmedusa-sched scheduler.h scheduler_cluster.h"; do
	read -r library headers <<<"$headers"
	recorded=api/abi/$library.xml
	# shellcheck disable=SC2086 # words
	describe "$library" $headers && grep -q '<function-decl' "$now/$library.xml" || {
		echo "abidw does not describe $build/lib/$library.so: build it with -g, by make libs"
		failed=1
		continue
	}
	if [ -n "${UPDATE:-}" ]; then
		[ ! -f "$recorded" ] || compare "$library" --harmless || cat "$now/differences"
		cp "$now/$library.xml" "$recorded"
	elif [ ! -f "$recorded" ]; then
		echo "$recorded is missing: UPDATE=1 tests/lint/abi.sh writes it"
		failed=1
	elif ! is_compatible "$library"; then
		complain "$library.so: programs that are linked with it break; docs/abi.md says how to change it without that:"
	elif ! compare "$library" --harmless; then
		complain "$library.so is not as $recorded records it; if docs/abi.md allows the change, UPDATE=1 tests/lint/abi.sh records it:"
	fi
done
exit $failed
