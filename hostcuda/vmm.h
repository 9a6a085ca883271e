/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped memory that may not be touched before it is filled (HOSTCUDA_REMAPPED), or that is shared. */
#ifndef HOSTCUDA_VMM_H
#define HOSTCUDA_VMM_H

#include "hostcuda/device_state.h"

/* A copy or a set is about to write there. State lock not held. */
void hc_vmm_fill(uint64_t address, size_t size);
/*
 * Memory that this process shares with others becomes its own copy, as a checkpoint has it: from then on the processes do
 * not see each other's writes.
 */
CUresult hc_vmm_part(void) HC_STATE_HELD;

#endif
