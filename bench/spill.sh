#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How fast the pool's spill file is written and read, against a plain file in the same folder: FOLDER (default: TMPDIR or
# /tmp), MIB=N of each round, ROUNDS=N. Writes bench/results/spill.md; under a minute.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build} results=${RESULTS:-bench/results} folder=${1:-${TMPDIR:-/tmp}}
times=$build/bench/spill_times
[ -x "$times" ] || make --no-print-directory -s BUILD="$build" "$times"
{
	echo '# The spill file of the pool'
	echo
	echo "Made by \`bench/spill.sh\`, $(date -u +%F), commit $(git rev-parse --short=8 HEAD). \`medusa-swap out\` moves blocks to the file as in the column \"spill: write\", with"
	echo "the pool's tables around it; \`in\` reads them as in \"spill: read\", without the copies to the device and the comparison there. \"file\" is a"
	echo "file beside it, which as many threads write and read with nothing around. File system: $(stat -f -c %T "$folder")."
	echo
	"$times" "$folder" "${MIB:-512}" "${ROUNDS:-7}"
	echo
	echo "Machine: $(nproc) processors, $(sed -n 's/^model name\t: //p' /proc/cpuinfo | head -n 1)."
} >"$results/spill.md"
cat "$results/spill.md"
