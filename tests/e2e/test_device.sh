#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --device: the lines that the README gives work on a machine without a GPU, too.
. "$(dirname "$0")/lib.sh"
unset LD_LIBRARY_PATH
hostcuda_line="no GPU here: the engine runs on hostcuda"

section "auto, where there is no driver"
if [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] || ldconfig -p | grep -q 'libcuda\.so\.1'; then
	echo "test_device: --device auto and gpu are not tried: this machine has a driver"
else
	capture auto
	assert_exit auto 0
	assert_count "$work/auto.err" "$hostcuda_line" 1
	assert_contains "$work/auto.err" "verification: $graphs passed, 0 failed"
	section "gpu, where there is none"
	run none medusa-capture -o "$work/none.medusa" --device gpu -- "${engine[@]}"
	assert_exit none 3
	assert_contains "$work/none.err" "--device gpu: there is no GPU here"
	assert_no_file "$work/none.medusa"
fi

section "host"
capture host --device host
assert_exit host 0
assert_lacks "$work/host.err" "$hostcuda_line"
run verified medusa-verify "$work/host.medusa" --device host -- "${engine[@]}"
assert_exit verified 0
run restored medusa-restore "$work/host.medusa" --device host -- "${engine[@]}" --report "$work/restored.json"
assert_exit restored 0
assert_restored restored $graphs 0

section "a driver that is found by LD_LIBRARY_PATH is left in place"
LD_LIBRARY_PATH=$MEDUSA_BUILD/lib/hostcuda run found medusa-restore "$work/host.medusa" -- "${engine[@]}" --report "$work/found.json"
assert_exit found 0
assert_lacks "$work/found.err" "$hostcuda_line"
assert_restored found $graphs 0

section "no such device"
run cloud medusa-restore "$work/host.medusa" --device cloud -- true
assert_exit cloud 2
assert_contains "$work/cloud.err" '"cloud" is none of auto, gpu, host'
finish
