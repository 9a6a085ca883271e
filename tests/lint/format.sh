#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# C files are as clang-format 14 leaves them; format.sh FILE... looks at these alone.
set -u
cd "$(dirname "$0")/../.."
tool=$(command -v clang-format-14 || command -v clang-format) || {
	echo 'clang-format is not installed'
	exit 1
}
if [ $# = 0 ]; then
	mapfile -t files < <(git ls-files '*.c' '*.h')
	set -- "${files[@]}"
fi
said=$(printf '%s\0' "$@" | xargs -0 -n 32 -P 2 "$tool" --dry-run -Werror 2>&1) && exit
[ -n "$said" ] || said='it failed and said nothing'
grep -oE '^[^ :]+\.[ch]:' <<<"$said" | sort -u | sed "s|\(.*\):|\1: run $(basename "$tool") -i \1|"
grep -qE '^[^ :]+\.[ch]:' <<<"$said" || echo "$(basename "$tool"): $said"
exit 1
