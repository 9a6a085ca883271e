#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a capture and a verification find, they find with copies and comparisons on the device, too.
. "$(dirname "$0")/lib.sh"
kernels=$MEDUSA_BUILD/tests/images/probe_kernels.host.so
export MEDUSA_PROBE_KERNEL=$kernels

for name in groups reached outputs given; do
	section "test_$name.sh"
	run "$name" bash "tests/e2e/test_$name.sh"
	assert_exit "$name" 0
	assert_contains "$work/$name.out" ", 0 failures"
done

finish
