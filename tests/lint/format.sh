#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# C files are as clang-format 14 leaves them.
set -u
cd "$(dirname "$0")/../.."
tool=$(command -v clang-format-14 || command -v clang-format) || {
	echo 'clang-format is not installed'
	exit 1
}
failed=0
for file in $(git ls-files '*.c' '*.h'); do
	"$tool" "$file" | cmp -s - "$file" || {
		echo "$file: run $(basename "$tool") -i $file"
		failed=1
	}
done
exit $failed
