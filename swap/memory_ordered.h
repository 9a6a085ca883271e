/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocations (cuMemAllocAsync), on memory that can go. */
#ifndef MD_SWAP_MEMORY_ORDERED_H
#define MD_SWAP_MEMORY_ORDERED_H

#include "swap/physical.h"

/* cuMemFree frees the allocation at the address, of whichever family it is. */
void md_swap_ordered_freed(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock);
/* Whether the allocation has been freed, and waits for its stream. */
bool md_swap_ordered_is_freed(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock);
/* Called before a stream is destroyed. */
void md_swap_ordered_stream_gone(CUstream stream);
/* The pool that the allocation at the address is of; NULL: of none. */
CUmemoryPool md_swap_ordered_pool(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock);
/*
 * Gives back freed memory that the work of its stream has passed, except what each pool may keep (all: everything).
 * wait: waits for the work first. Returns the number of bytes.
 */
uint64_t md_swap_ordered_reclaim(bool all, bool wait) MD_REQUIRES(md_swap_memory_lock);
/* Bytes that are free, but kept by pools, on one device. */
uint64_t md_swap_ordered_kept(CUdevice device) MD_REQUIRES(md_swap_memory_lock);
/* The allocations and events of a context end with it. */
void md_swap_ordered_context_gone(CUcontext context) MD_REQUIRES(md_swap_memory_lock);

#endif
