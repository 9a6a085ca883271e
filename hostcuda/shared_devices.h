/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that several processes share: a file holds what each of them uses (HOSTCUDA_SHARED). */
#ifndef HOSTCUDA_SHARED_DEVICES_H
#define HOSTCUDA_SHARED_DEVICES_H

#include "hostcuda/bus.h"
#include "hostcuda/device_state.h"

/* Bytes that other processes use of the device; 0 where none is shared. */
size_t hc_shared_others(const struct hc_device *device) HC_STATE_HELD;
/* device->used is to be `used`: CUDA_ERROR_OUT_OF_MEMORY if all processes together would have too much. */
CUresult hc_shared_use(struct hc_device *device, size_t used) HC_STATE_HELD;
/* The links of the devices; of this process alone where none is shared. */
struct hc_bus_state *hc_shared_buses(void);
/* Between these two, this process uses nothing of any device. `places`: which device each one is from then on. */
void hc_shared_leave(void) HC_STATE_HELD;
CUresult hc_shared_return(const int places[HC_MAX_DEVICES]) HC_STATE_HELD;

#endif
