#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages of section 3: each example compiles as an engine's author would compile it, and prints what its page says, alone, and
# where the page says so in a capture and a restore too; each function answers the codes that its page names, in each library.
. "$(dirname "$0")/lib.sh"
export XDG_RUNTIME_DIR=$work/runtime # where no engine of the user's own is
mkdir -m 700 "$XDG_RUNTIME_DIR"
lib=$MEDUSA_BUILD/lib
cuda=$(dirname "$(find -L "${CUDA_HOME:-/usr/local/cuda}/include" build/cuda -name cuda.h 2>/dev/null | head -1)")
export LD_LIBRARY_PATH=$lib:$LD_LIBRARY_PATH

compile() { # source, program
	run "compile ${1##*/}" gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -isystem "$cuda" -o "$2" "$1" \
		-L"$lib" -lmedusa -lmedusa-sched -L"$lib/hostcuda" -l:libcuda.so.1
	assert_exit "compile ${1##*/}" 0
}

same_output() { # name of a run
	assert_exit "$1" 0
	assert_same_file "$work/expected" "$work/$1.out"
}

examples=0
for page in docs/man/*.3; do
	[ "$(head -c 4 "$page")" = ".so " ] && continue
	section "the example of $page"
	read -r name how < <(sed -n 's/^\.\\" example: //p' "$page")
	assert_equal "examples" 1 "$(grep -c '^\.\\" example: ' "$page")"
	examples=$((examples + 1))
	fenced "$page" example "$name" >"$work/$name.c"
	fenced "$page" output "$name" >"$work/expected"
	assert_file "$work/expected"
	compile "$work/$name.c" "$work/$name"
	run alone "$work/$name"
	same_output alone
	case $how in
	alone) ;;
	captured)
		run capture medusa-capture --vary program -o "$work/$name.medusa" -- "$work/$name" # below, another program has its name
		assert_exit capture 0
		assert_lacks "$work/capture.err" "will not be materialized"
		run restored medusa-restore "$work/$name.medusa" -- "$work/$name"
		same_output restored
		assert_lacks "$work/restored.err" "captured live"
		assert_lacks "$work/restored.err" "is not restored"
		run verify medusa-verify "$work/$name.medusa" -- "$work/$name"
		assert_exit verify 0
		;;
	*) fail "alone or captured behind the example's name" "$how" ;;
	esac
done
assert_at_least "pages with an example" 17 "$examples"
assert_file "$work/graph.medusa"

section "what each library answers"
mkdir -p "$work/same_name"
compile tests/e2e/statuses.c "$work/same_name/graph" # an artifact holds for a program of its name
answers() { # library, command...
	local library=$1
	shift
	run "statuses_$library" "$@" "$work/same_name/graph"
	assert_exit "statuses_$library" 0
	assert_lacks "$work/statuses_$library.out" "wrong reason"
	awk -v column="$library" -F ' *[|] *' 'NR == 1 { for (i = 2; i <= NF; i++) if ($i == column) at = i; next } { print $1 ": " $at }' \
		tests/e2e/statuses.txt >"$work/expected_$library"
	checks=$((checks + 1))
	diff "$work/expected_$library" "$work/statuses_$library.out" >"$work/differences" ||
		fail "the codes of tests/e2e/statuses.txt (<) from $library" "$(cat "$work/differences")"
}
answers null
answers capture env LD_PRELOAD="$lib/libmedusa-capture.so" MEDUSA_TRACE="$work/statuses.mtrace"
answers restore medusa-restore "$work/graph.medusa" --
for library in null restore; do
	prefix=()
	[ $library = null ] || prefix=(medusa-restore "$work/graph.medusa" --)
	run early "${prefix[@]}" "$work/same_name/graph" early
	assert_exit early 0
	assert_contains "$work/early.out" "graph_get without a driver: $([ $library = null ] && echo NOT_FOUND || echo DRIVER)"
done
finish
