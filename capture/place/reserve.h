/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of reservations during a capture, chosen such that hardly any number looks like one. */
#ifndef MD_CAPTURE_PLACE_RESERVE_H
#define MD_CAPTURE_PLACE_RESERVE_H

#include <stdint.h>

#include "driver/cuda_driver.h"

/*
 * Like cuMemAddressReserve without a wanted address. If the driver agrees, the upper half of the address is a large odd
 * number, which differs from run to run of a capture. Drivers also give low addresses such as 0x302000000, and two
 * parameters of 32 bits side by side look the same (a factor and a shift, by which compilers replace a division).
 */
CUresult md_capture_reserve(CUdeviceptr *address, uint64_t bytes, uint64_t alignment);

#endif
