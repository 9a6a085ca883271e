/* SPDX-License-Identifier: Apache-2.0 */
/* The backbones of a broker: memory of devices, who fills it, and who has it. */
#ifndef MD_BACKBONE_HOLDINGS_H
#define MD_BACKBONE_HOLDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "backbone/share_wire.h"
#include "base/hash.h"
#include "base/status.h"
#include "driver/cuda_driver.h"

struct md_shared_backbone {
	char id[MD_BACKBONE_ID_BYTES];
	char *name, *layout, *device; /* owned; device: GPU-UUID */
	uint64_t asked, bytes;        /* bytes: whole granules */
	CUmemGenericAllocationHandle handle;
	int fd;            /* of the memory, for other processes */
	const void *fills; /* who fills it; NULL: it is filled */
	uint32_t readers;  /* that have it */
	bool given;        /* its only reader may write there: nobody else gets it */
	struct md_hash hash;
	uint64_t used; /* order in which they were left by the last that had them */
	struct md_shared_backbone *next;
};

struct md_backbones {
	struct md_shared_backbone *first;
	bool keep; /* what is filled stays when nobody has it, until its room is needed or it is dropped */
	uint64_t uses;
};

/* The backbone of this name, layout and device, or NULL; of several, one that is filled. */
struct md_shared_backbone *md_backbones_find(const struct md_backbones *all, const char *name, const char *layout,
					     const char *device);
/*
 * Makes one, which `fills` fills. If the device has no room, those that nobody has are freed, the longest unused ones first.
 * MD_ERR_DRIVER_MEMORY: it has none even so.
 */
enum md_status md_backbones_make(struct md_backbones *all, const char *name, const char *layout, const char *device,
				 uint64_t bytes, const void *fills, struct md_shared_backbone **made,
				 struct md_error *err);
/*
 * Takes back what another broker had handed out and a process still has; that process reads it. like: its id, name, layout,
 * device, sizes and hash. memory: its descriptor, closed here. MD_ERR_CORRUPT: it is no memory of a device, or another
 * backbone has this id.
 */
enum md_status md_backbones_hold(struct md_backbones *all, const struct md_shared_backbone *like, int memory,
				 struct md_shared_backbone **held, struct md_error *err);
void md_backbones_filled(struct md_shared_backbone *backbone, const struct md_hash *hash);
/* Who fills it has gone: what is there is worth nothing. Frees it. */
void md_backbones_abandon(struct md_backbones *all, struct md_shared_backbone *backbone);
/* One reader less; frees the memory if that was the last one, unless backbones are kept. */
void md_backbones_leave(struct md_backbones *all, struct md_shared_backbone *backbone);
/* Frees those of this name (NULL: all) that nobody has; returns how many. */
unsigned md_backbones_drop(struct md_backbones *all, const char *name);
void md_backbones_finish(struct md_backbones *all);

#endif
