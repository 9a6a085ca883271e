#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every lint script, as many at once as there are cores; each prints what is wrong and exits 1, or 77 where a tool that nobody must
# have is not there.
set -u
cd "$(dirname "$0")/../.."
said=$(mktemp -d) || exit 1
trap 'rm -rf "$said"' EXIT
scripts=() failed=0
for script in tests/lint/*.sh; do
	[ "$script" = tests/lint/run.sh ] || scripts+=("$(basename "$script" .sh)")
done
running=0
for name in headers locks rules names format layers "${scripts[@]}"; do # the longest first
	[[ " ${scripts[*]} " == *" $name "* && ! -e $said/$name ]] || continue
	[ $running -lt "$(nproc)" ] || { wait -n && running=$((running - 1)); }
	: >"$said/$name"
	{ bash "tests/lint/$name.sh" >"$said/$name" 2>&1; echo $? >"$said/$name.code"; } &
	running=$((running + 1))
done
wait
for name in "${scripts[@]}"; do
	cat "$said/$name"
	case $(cat "$said/$name.code") in
	0) result=ok ;;
	77) result=skip ;; # the script says which tool is missing
	*) result=FAIL failed=1 ;;
	esac
	printf '  %-5s %s\n' $result "$name"
done
exit $failed
