#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Locks are held where base/guarded.h's words say so, as far as clang sees it (make tidy has the rest).
set -u
cd "$(dirname "$0")/../.."
if ! command -v clang-14 >/dev/null && ! command -v clang >/dev/null; then
	echo 'locks: clang is not installed'
	exit 77
fi
${MAKE:-make} -s --no-print-directory tidy LOCKS_ONLY=1
