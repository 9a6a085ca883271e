/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches, made from the parameters of a call. */
#ifndef HOSTCUDA_LAUNCH_H
#define HOSTCUDA_LAUNCH_H

#include "hostcuda/device_state.h"

CUresult hc_launch_make(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared,
			void **kernel_params, void **extra, struct hc_launch *launch,
			struct hc_function **function) HC_STATE_HELD;
void hc_launch_finish(struct hc_launch *launch);

#endif
