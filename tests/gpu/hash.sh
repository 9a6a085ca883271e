#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: the hash of device memory is the host's, kernel and PTX translation and all, and how fast it is.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
build=${BUILD:-build}
export MEDUSA_BUILD=$PWD/$build
unset MEDUSA_PROBE_KERNEL
command -v nvidia-smi >/dev/null || {
	echo "no NVIDIA GPU here"
	exit 77
}
failed=0
"$build"/tests/test_device_hash --jobs 1 || failed=1
for size in "64 1" "1024 300" "13312 1" "13312 300" "13312 5000"; do
	# shellcheck disable=SC2086
	"$build"/tests/subjects/hash_subject $size || failed=1
done
"$build"/tests/subjects/hash_subject 13312 300 | grep -q "on the device" || {
	echo "the kernel was not used"
	failed=1
}
exit $failed
