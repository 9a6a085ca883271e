/* SPDX-License-Identifier: Apache-2.0 */
/* The device's address space. */
#ifndef HOSTCUDA_ADDRESS_SPACE_H
#define HOSTCUDA_ADDRESS_SPACE_H

#include "hostcuda/device_state.h"

CUresult hc_space_take(uint64_t *address, size_t size, size_t alignment, uint64_t wanted);
void hc_space_give(uint64_t address, size_t size);
CUresult hc_space_blank(uint64_t address, size_t size); /* removes access and contents */

#endif
