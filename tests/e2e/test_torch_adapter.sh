#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The PyTorch adapter as far as it goes without a GPU: its C interface on hostcuda, and its logic with PyTorch if there is one.
. "$(dirname "$0")/lib.sh"
if [ -n "${SAN:-}" ]; then
	# Python itself is not sanitized, and never gives back all that it takes.
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
fi

section "unittest"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/models/torch run unittest \
	python3 -m unittest discover --verbose --start-directory models/torch/tests
assert_exit unittest 0
grep -o '^.* \.\.\. skipped .*' "$work/unittest.err"
assert_lacks "$work/unittest.err" "Ran 0 tests"
[ $failures = 0 ] || grep -A 30 '^\(FAIL\|ERROR\): ' "$work/unittest.err"

section "its version is the tree's"
run version env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$PWD/models/torch" python3 -c 'import medusa; print(medusa.__version__)'
assert_equal "medusa.__version__" "$(cat VERSION)" "$(cat "$work/version.out")"

section "the package as pip installs it"
run build_meta python3 -c 'import sys
try:
    import tomllib
except ImportError:
    sys.exit(0)
import os
with open("models/torch/pyproject.toml", "rb") as file:
    project = tomllib.load(file)
for package in project["tool"]["setuptools"]["packages"]:
    folder = os.path.join("models/torch", *package.split("."))
    assert os.path.exists(os.path.join(folder, "__init__.py")), folder
with open(os.path.join("models/torch", project["tool"]["setuptools"]["dynamic"]["version"]["file"])) as file:
    assert file.read() == open("VERSION").read(), "the version"
'
assert_exit build_meta 0
finish
