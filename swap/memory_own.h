/* SPDX-License-Identifier: Apache-2.0 */
/* Device allocations that swap/ answers itself (cuMemAlloc and its like), on memory that can go. */
#ifndef MD_SWAP_MEMORY_OWN_H
#define MD_SWAP_MEMORY_OWN_H

#include "swap/physical.h"

struct md_swap_allocation {
	CUdeviceptr address;
	uint64_t bytes; /* as asked for */
	uint64_t id;
	CUcontext context;
	struct md_swap_mapping *mapping; /* that it lies in */
};

/* An allocation in the current context; if the driver refuses, its result. */
CUresult md_swap_own_take(uint64_t bytes, CUdeviceptr *address);
/* The same in a given context, without waiting. */
CUresult md_swap_own_take_in(CUcontext context, CUdevice device, uint64_t bytes, CUdeviceptr *address)
    MD_REQUIRES(md_swap_memory_lock);
/* The allocation that holds the address; false if none of ours does. */
bool md_swap_own_find(CUdeviceptr address, struct md_swap_allocation *found) MD_REQUIRES(md_swap_memory_lock);
/* Frees the allocation that begins at the address, which nothing uses any more; false if none of ours does. */
bool md_swap_own_give(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock);
/* Releases what is kept for later allocations; the number of bytes. */
uint64_t md_swap_own_trim(void) MD_REQUIRES(md_swap_memory_lock);
/* Bytes that are kept, on one device. */
uint64_t md_swap_own_kept(CUdevice device) MD_REQUIRES(md_swap_memory_lock);
uint64_t md_swap_own_kept_all(void) MD_REQUIRES(md_swap_memory_lock);
/* The driver frees a context's allocations with it. */
void md_swap_own_context_gone(CUcontext context);

#endif
