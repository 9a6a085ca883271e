#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Test programs run by themselves, from another folder and without tests/run.sh: they find what they need, or say what to set.
. "$(dirname "$0")/lib.sh"

alone() { # name, command...; from / and with none of our settings
	local name=$1
	shift
	run "$name" env -u MEDUSA_BUILD -u LD_LIBRARY_PATH -u MEDUSA_DEVICE ${SAN:+-u ASAN_OPTIONS} -C / "$@"
}

section "a program that uses the device, one that runs other programs, one that reads samples of the sources"
for program in test_image_registry test_interpose test_restore test_sim_calibration; do
	alone "$program" "$MEDUSA_BUILD/tests/$program" --jobs 1
	assert_exit "$program" 0
done

section "every test program starts alone"
for program in "$MEDUSA_BUILD"/tests/test_*; do
	alone list "$program" --list
	assert_equal "exit code of $(basename "$program") --list" 0 "$code"
done

section "a program that has no build folder beside it is skipped, and says what to set"
mkdir -p "$work/elsewhere/tests"
cp "$MEDUSA_BUILD/tests/test_buf" "$work/elsewhere/tests/"
alone elsewhere "$work/elsewhere/tests/test_buf"
assert_exit elsewhere 77
assert_contains "$work/elsewhere.err" "skipped: $work/elsewhere/lib/hostcuda/libcuda.so.1 is not there"
assert_contains "$work/elsewhere.err" "set MEDUSA_BUILD"
finish
