#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes status-page.png anew: medusa-worker with four models on a small GPU of hostcuda, its status page in Chromium
# (tests/worker/picture.py). From the tree's root, after `make`: MEDUSA_BUILD=$PWD/build docs/images/status-page.sh [FILE.png]
set -eu
file=$(realpath "${1:-$(dirname "$0")/status-page.png}")
cd "$(dirname "$0")/../.."
build=${MEDUSA_BUILD:-$PWD/build}
export PATH=$build/bin:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/medusa-picture.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
# The engines need the stand-in for the driver; the browser must not have it.
export ENGINE_LIBRARIES=$build/lib/hostcuda
unset LD_LIBRARY_PATH LD_PRELOAD CUDA_VISIBLE_DEVICES
python3 tests/worker/picture.py "$work" "$build/models/llama/llama-engine" "$file"
