# SPDX-License-Identifier: Apache-2.0
# Sourced: chooses the device. With an NVIDIA GPU and driver that is it, else (or with MEDUSA_DEVICE=host) hostcuda.
build=${BUILD:-build}
if [ "${MEDUSA_DEVICE:-auto}" = auto ]; then
	if { [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]; } && ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
		MEDUSA_DEVICE=gpu
	else
		MEDUSA_DEVICE=host
	fi
fi
if [ "$MEDUSA_DEVICE" = host ]; then
	unset CUDA_VISIBLE_DEVICES # says which of the machine's GPUs to use, and hostcuda has devices of its own
	export LD_LIBRARY_PATH=$PWD/$build/lib/hostcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export MEDUSA_DEVICE MEDUSA_BUILD=$PWD/$build
