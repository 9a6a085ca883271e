#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# After a run of tests that were built with COVERAGE=1: a table by folder, and where there is gcovr, pages to read.
# coverage.sh --forget begins anew.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build/coverage}
if [ "${1:-}" = --forget ]; then
	find "$build" -name '*.gcda' -delete
	exit
fi
${PYTHON:-python3} tests/coverage.py "$build"
if ! command -v gcovr >/dev/null; then
	echo "pages line by line: install gcovr (apt-get install gcovr), then BUILD=$build tests/coverage.sh"
	exit
fi
mkdir -p "$build/html"
gcovr --root . --exclude 'tests/' --exclude 'bench/' --gcov-ignore-parse-errors --html-details "$build/html/index.html" "$build/obj" >"$build/html/gcovr.log" 2>&1 || {
	echo "gcovr failed: $build/html/gcovr.log says why" >&2
	exit 1
}
echo "pages line by line: $build/html/index.html"
