/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the machine's devices a process has. */
#ifndef HOSTCUDA_VISIBLE_DEVICES_H
#define HOSTCUDA_VISIBLE_DEVICES_H

#include "hostcuda/device_state.h"

/*
 * The places of the devices that CUDA_VISIBLE_DEVICES names, of so many in the machine; all without it. As with the driver, what
 * is no device ends the list, and one that is named twice leaves none. Returns how many.
 */
int hc_visible_devices(int devices, int places[HC_MAX_DEVICES]);

#endif
