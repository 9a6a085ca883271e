/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped memory that may not be touched before it is filled (HOSTCUDA_REMAPPED). */
#ifndef HOSTCUDA_VMM_H
#define HOSTCUDA_VMM_H

#include <stddef.h>
#include <stdint.h>

/* A copy or a set is about to write there. State lock not held. */
void hc_vmm_fill(uint64_t address, size_t size);

#endif
