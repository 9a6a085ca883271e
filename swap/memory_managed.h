/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory: the driver itself moves it to the host and back. */
#ifndef MD_SWAP_MEMORY_MANAGED_H
#define MD_SWAP_MEMORY_MANAGED_H

#include "swap/physical.h"

struct md_swap_managed {
	CUdeviceptr address;
	uint64_t bytes;
	CUcontext context;
	CUdevice device;
	bool away;
	const char *resident; /* why the driver does not move it; NULL: it does */
	struct md_swap_managed *next;
};

extern struct md_swap_managed *md_swap_all_managed MD_GUARDED_BY(md_swap_memory_lock);

/* To the host, or back to the device. */
CUresult md_swap_managed_move(struct md_swap_managed *managed, bool away) MD_REQUIRES(md_swap_memory_lock);
/* Called when cuMemFree has freed the allocation at the address. */
void md_swap_managed_freed(CUdeviceptr address);
void md_swap_managed_context_gone(CUcontext context) MD_REQUIRES(md_swap_memory_lock);

#endif
