/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of reservations during a capture: such that hardly any number looks like one. */
#ifndef MD_CAPTURE_PLACE_RESERVE_H
#define MD_CAPTURE_PLACE_RESERVE_H

#include <stdint.h>

#include "driver/cuda_driver.h"

/*
 * As cuMemAddressReserve without a wanted address. Where the driver agrees, the upper half of the address is a large odd
 * number, another one in each run of a capture. Drivers also give low addresses such as 0x302000000, and two parameters
 * of 32 bits side by side (a factor and a shift, as compilers replace a division) look the same.
 */
CUresult md_capture_reserve(CUdeviceptr *address, uint64_t bytes, uint64_t alignment);

#endif
