#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every lint script; each prints what is wrong and exits 1, or 77 where a tool that nobody must have is not there.
set -u
cd "$(dirname "$0")/../.."
failed=0
for script in tests/lint/*.sh; do
	[ "$script" = tests/lint/run.sh ] && continue
	bash "$script"
	case $? in
	0) result=ok ;;
	77) result=skip ;; # the script says which tool is missing
	*) result=FAIL failed=1 ;;
	esac
	printf '  %-5s %s\n' $result "$(basename "$script" .sh)"
done
exit $failed
