/* SPDX-License-Identifier: Apache-2.0 */
/* All device allocations of this process that can be taken away. The list is stable while the gate is closed. */
#ifndef MD_SWAP_SWAP_MEMORY_H
#define MD_SWAP_SWAP_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

/* The range stays where it is, and md_swap_memory_unmap refuses it; `why` says why. */
#define MD_SWAP_RESIDENT 1u
/*
 * The driver moves the contents of the range (managed memory): unmap and map the range, but neither hash nor copy it.
 */
#define MD_SWAP_MOVES 2u

/* One allocation: no address that is computed from an address in it leads to its neighbours. */
#define MD_SWAP_ALONE 8u
/* The memory has other addresses, too. */
#define MD_SWAP_SEVERAL 16u

struct md_swap_range {
	CUdeviceptr address; /* 0: resident memory that has no address */
	uint64_t bytes; /* what is mapped there: multiples of the granularity, 2 MB; managed memory: as asked for */
	int device;
	uint32_t flags;
	const char *why;   /* "exported to another process", say; NULL where nothing is to be said */
	CUcontext context; /* one in which the address can be read and written */
	void *owner;       /* of swap_memory.c */
	uint64_t serial;   /* of the physical memory, which no other one has ever had; 0: managed memory */
};

/*
 * Call it while the gate is closed. Sorted by address; the caller frees *ranges. Releases memory that is kept for later
 * first.
 */
enum md_status md_swap_memory_list(struct md_swap_range **ranges, size_t *count, struct md_error *err);
/*
 * Releases the physical memory; the address stays reserved. Memory that is unmapped already is left alone.
 * MD_ERR_UNSUPPORTED: the range stays as it is, because the driver does not move it, or because it is resident.
 */
enum md_status md_swap_memory_unmap(const struct md_swap_range *range, struct md_error *err);
/* Maps new physical memory at the same address, with the same rights. Memory that is mapped already is left alone. */
enum md_status md_swap_memory_map(const struct md_swap_range *range, struct md_error *err);

/*
 * A descriptor by which another process can map the range's physical memory, until the memory goes out again. The caller
 * closes it. MD_ERR_UNSUPPORTED: the memory was not made so that it can be handed over.
 */
enum md_status md_swap_memory_lend(const struct md_swap_range *range, int *fd, struct md_error *err);

/*
 * The same for whatever has this serial number, at any time. MD_ERR_BUSY: the memory's lock is held; MD_ERR_NOT_FOUND: there
 * is no such memory any more, or it is out.
 */
enum md_status md_swap_memory_lend_known(uint64_t serial, int *fd, struct md_error *err);
/*
 * Maps all of it, which is so many bytes, at an address that the caller has reserved: whatever the engine does then, the memory
 * exists until the caller has unmapped it there. Nobody may access it yet. Errors as above.
 */
enum md_status md_swap_memory_map_known(uint64_t serial, uint64_t address, uint64_t bytes, struct md_error *err);

struct md_swap_totals {
	uint64_t swappable; /* bytes that md_swap_memory_unmap would release, or has released */
	uint64_t out;       /* of these, bytes that are unmapped now */
	uint64_t resident;  /* bytes of device memory that stay, as far as they are known */
	uint64_t kept;      /* bytes that this process holds and uses for nothing */
	uint64_t constant;  /* of the swappable ones, bytes that the engine has declared constant (swap/constant.h) */
	uint64_t shared;    /* bytes that other engines may have, too (swap/merge.h) */
	unsigned contexts;
};
void md_swap_memory_totals(struct md_swap_totals *totals);

#endif
