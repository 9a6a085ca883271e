#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every lint script; each prints what is wrong and exits 1.
set -u
cd "$(dirname "$0")/../.."
failed=0
for script in tests/lint/*.sh; do
	[ "$script" = tests/lint/run.sh ] && continue
	if bash "$script"; then
		printf '  ok    %s\n' "$(basename "$script" .sh)"
	else
		printf '  FAIL  %s\n' "$(basename "$script" .sh)"
		failed=1
	fi
done
exit $failed
