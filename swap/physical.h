/* SPDX-License-Identifier: Apache-2.0 */
/* Physical memory and its mappings, which go away and come back, for all families of allocations. */
#ifndef MD_SWAP_PHYSICAL_H
#define MD_SWAP_PHYSICAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/guarded.h"
#include "base/hash.h"
#include "driver/cuda_driver.h"
#include "swap/slab.h"

/* Guards everything below. Calls of the driver are made under this lock; waits for the device are not. */
extern pthread_mutex_t md_swap_memory_lock;

struct md_swap_mapping {
	CUdeviceptr address;
	uint64_t bytes, offset; /* offset: in the physical memory */
	struct md_swap_physical *physical;
	CUmemAccessDesc *access; /* as set; each location once */
	uint32_t access_count;
	struct md_swap_mapping *next; /* of the same physical memory */
};

struct md_swap_physical {
	CUmemGenericAllocationHandle handle; /* the driver's; 0: the memory is away */
	CUmemGenericAllocationHandle
	    name;        /* what the engine holds for it; 0: the engine did not make it with cuMemCreate */
	uint64_t serial; /* grows with each that is created */
	uint64_t bytes;
	CUmemAllocationProp prop;
	uint32_t holds;       /* by the engine's handles, and 1 for an allocation that stands on it */
	const char *resident; /* why it must stay; NULL: it may go */
	struct md_swap_mapping *mappings;
	/* For constant memory (merge.h): */
	struct md_share *lease; /* of memory that medusa-backbone holds; NULL: it is this process's own */
	bool read_only;         /* others have it, or may have it; counted in md_swap_read_only */
	bool granted, alone;    /* read_only: it may become this process's own; nobody else has it */
	bool steady, varied;    /* it held the same twice when it went out; it did not, once */
	bool seen;
	struct md_hash held; /* when it went out last, if seen */
	/* For allocations that we answer with it: */
	CUcontext context;
	struct md_swap_slab *slab;                /* of small allocations; NULL: one allocation */
	uint64_t asked;                           /* bytes, of one allocation; 0: none, it is kept for the next one */
	uint64_t id;                              /* of that allocation */
	int shared_fd;                            /* 1 + the descriptor that other processes take it by; 0: none */
	uint64_t shared_as;                       /* its number among all that was shared */
	struct md_swap_physical *previous, *next; /* of all */
};

extern struct md_swap_physical *md_swap_physicals MD_GUARDED_BY(md_swap_memory_lock);
extern uint64_t md_swap_physical_serial MD_GUARDED_BY(md_swap_memory_lock); /* of the one that was created last */

/* New physical memory with one hold. */
CUresult md_swap_physical_create(uint64_t bytes, const CUmemAllocationProp *prop, unsigned long long flags,
				 struct md_swap_physical **physical) MD_REQUIRES(md_swap_memory_lock);
/* One hold less; memory with neither hold nor mapping is released. */
CUresult md_swap_physical_drop(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock);
CUresult md_swap_physical_map(struct md_swap_physical *physical, CUdeviceptr address, uint64_t bytes, uint64_t offset,
			      unsigned long long flags) MD_REQUIRES(md_swap_memory_lock);
/* The mapping ends; its physical memory is released if nothing holds it. */
CUresult md_swap_mapping_unmap(struct md_swap_mapping *mapping) MD_REQUIRES(md_swap_memory_lock);
/* The same for a mapping that the driver has unmapped already. */
CUresult md_swap_mapping_forget(struct md_swap_mapping *mapping) MD_REQUIRES(md_swap_memory_lock);
/* Sets who may reach the mapping: rights of known locations change, other locations are added. */
CUresult md_swap_mapping_allow(struct md_swap_mapping *mapping, const CUmemAccessDesc *access, size_t count)
    MD_REQUIRES(md_swap_memory_lock);
/* The same for rights that the driver has already. */
CUresult md_swap_mapping_note(struct md_swap_mapping *mapping, const CUmemAccessDesc *access, size_t count)
    MD_REQUIRES(md_swap_memory_lock);
/* The mapping that holds the address, or the first one after it that begins before `end`; NULL if there is none. */
struct md_swap_mapping *md_swap_mapping_next(CUdeviceptr address, CUdeviceptr end) MD_REQUIRES(md_swap_memory_lock);
/* The mapping that holds the address, or NULL. */
struct md_swap_mapping *md_swap_mapping_at(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock);

/* Whether the physical memory holds allocations that we answer. */
static inline bool md_swap_is_piece(const struct md_swap_physical *physical)
{
	return physical->context != NULL;
}

/* Releases the physical memory, and makes it anew at the same addresses. After a failure, nothing has changed. */
CUresult md_swap_physical_out(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock);
CUresult md_swap_physical_in(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock);
/* How many are read-only, because other processes may have them. Changes while the gate is closed, or memory is freed. */
extern _Atomic(uint32_t) md_swap_read_only;
/* The same with memory of another process's, by its descriptor. */
CUresult md_swap_physical_in_from(struct md_swap_physical *physical, int fd, bool read_only)
    MD_REQUIRES(md_swap_memory_lock);
/* Puts the handle's memory in its place, which may be written, and ends the lease. After a failure, nothing has changed. */
CUresult md_swap_physical_replace(struct md_swap_physical *physical, CUmemGenericAllocationHandle handle)
    MD_REQUIRES(md_swap_memory_lock);
/* Nothing can write to it any more, by any of its addresses. */
CUresult md_swap_physical_protect(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock);
/* The opposite, of memory that nobody else has or gets: it is this process's own from now on, and its lease ends. */
CUresult md_swap_physical_unprotect(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock);

#endif
