/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of a second capture, at addresses that compare as those of the first; behind the same driver calls. */
#ifndef MD_CAPTURE_PLACE_PLACE_H
#define MD_CAPTURE_PLACE_PLACE_H

#include "capture/capture.h"
#include "format/trace/order.h"

#define MD_PLACE_DEVICES 64

struct md_placed {
	uint64_t address, size;
	CUcontext context;
	int device;
	bool primary; /* the context is the device's own */
	bool parked;  /* freed while a stream was capturing; unmapped later */
};

/* ---- place.c: lock not held, and none of these depends on whether anything is recorded, unless said ---- */

/* Reads the places of MEDUSA_ORDER. If there are none, or they cannot be used, the driver chooses all addresses. */
void md_capture_place_open(void);
/* Called in a child: makes the lock anew. */
void md_capture_place_renew(void);
/*
 * Serves the next request of its kind, or leaves it to the driver (false). The request counts in either case, unless
 * the caller says that it failed altogether.
 */
bool md_capture_place_alloc(enum md_alloc_family family, uint64_t bytes, CUdeviceptr *out);
bool md_capture_place_reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr *out);
void md_capture_place_failed(uint64_t family, uint64_t bytes);
/* False: the memory was not placed. */
bool md_capture_place_free(CUdeviceptr address, CUresult *result);
bool md_capture_place_free_on(CUdeviceptr address, CUstream stream, CUresult *result);
bool md_capture_place_holds(CUdeviceptr address, uint64_t bytes); /* reserved addresses */
bool md_capture_place_find(CUdeviceptr address, struct md_placed *out);
void md_capture_place_peer(CUcontext owner, bool allowed); /* to the current context's device */
void md_capture_place_context_gone(CUcontext context);     /* is about to be destroyed */
void md_capture_place_primary_gone(CUdevice device);       /* if nobody holds the context any more */

/* ---- backing.c: under the caller's lock ---- */

/* Backs the range with memory of the device. Blocks that it covers in part are shared with other ranges. */
bool md_place_map(uint64_t address, uint64_t bytes, int device);
void md_place_unmap(uint64_t address, uint64_t bytes);
/* Lets other devices use the memory of the owner. */
void md_place_allow(int owner, int device, bool allowed);
void md_place_allow_range(uint64_t address, uint64_t bytes, int device, bool allowed);

#endif
