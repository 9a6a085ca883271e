#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages as mandoc understands them, and no words that an alternating font glues together (.BR a b c).
set -u
cd "$(dirname "$0")/../.."
command -v mandoc >/dev/null || {
	echo 'mandoc is not installed'
	exit 1
}
failed=0
for page in docs/man/*.[1-9]; do
	# Long lines are our style; all else that mandoc finds is a fault.
	mandoc -T lint -W warning "$page" || failed=1
	glued=$(grep -nE '^\.(BR|RB|BI|IB|IR|RI) ' "$page" | sed -E 's/"[^"]*"/"/g; s/^([0-9]+:\.[A-Z]{2}) /\1\t/' |
		grep -E '	.*[A-Za-z0-9;:,.] [A-Za-z0-9]')
	[ -z "$glued" ] && continue
	echo "$page: words without a space between them:"
	echo "$glued"
	failed=1
done
exit $failed
