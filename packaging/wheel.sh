#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheels of the adapters for PyTorch and vLLM: wheel.sh OUT, called by `make wheel`. Works on a copy, as setuptools leaves folders where it works.
set -eu
cd "$(dirname "$0")/.."
out=$1 python=${PYTHON:-python3}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)}
$python -m pip --version >/dev/null 2>&1 || {
	echo "wheel: $python has no pip; on Debian: apt-get install python3-pip" >&2
	exit 1
}
# What is installed serves without a network; else pip fetches setuptools for itself.
isolation=
! $python -W ignore -c 'import setuptools, wheel; assert int(setuptools.__version__.split(".")[0]) >= 61' 2>/dev/null || isolation=--no-build-isolation

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
make_wheel() { # folder of the project, its package
	mkdir "$copy/$2"
	cp -rL "$1/pyproject.toml" "$1/README.md" "$1/$2" "$copy/$2/"
	! [ -e "$1/setup.py" ] || cp "$1/setup.py" "$1"/*.pth "$copy/$2/"
	find "$copy/$2" -name __pycache__ -prune -exec rm -rf {} +
	$python -W ignore -m pip wheel -q --disable-pip-version-check --no-deps $isolation -w "$copy/wheels" "$copy/$2" >"$copy/log" 2>&1 || {
		cat "$copy/log" >&2
		[ -n "$isolation" ] ||
			echo "wheel: without a network $python needs setuptools and wheel; on Debian: apt-get install python3-setuptools python3-wheel" >&2
		exit 1
	}
}

make_wheel models/torch medusa
make_wheel models/vllm medusa_vllm
mkdir -p "$out"
rm -f "$out"/medusa_torch-*.whl "$out"/medusa_vllm-*.whl
mv "$copy"/wheels/*.whl "$out/"
(cd "$out" && printf '%s\n' medusa_torch-*.whl medusa_vllm-*.whl)
