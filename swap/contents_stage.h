/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms on this engine's GPU through which memory comes from engines on other GPUs; part of struct md_swap_share. */
#ifndef MD_SWAP_CONTENTS_STAGE_H
#define MD_SWAP_CONTENTS_STAGE_H

#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"

#define MD_STAGE_ROOM_SLOTS 4u

struct md_swap_share;

struct md_share_slot {
	bool lent;      /* the carrier copies there */
	bool copying;   /* from there to its place */
	size_t chunk;   /* that is being copied */
	CUevent copied; /* NULL: none yet */
};

/* Physical memory that the carrier maps, too; for some slots of one chunk each. */
struct md_share_room {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	uint64_t bytes;
	bool mapped;
};

struct md_share_stage {
	CUcontext context; /* NULL: there are no rooms yet */
	CUstream stream;
	uint64_t slot_bytes;
	unsigned most, count; /* slots: that there may be, and are */
	struct md_share_slot slots[MD_CARRY_TAKES_MOST];
	unsigned room_count;
	struct md_share_room rooms[MD_CARRY_TAKES_MOST];
};

/* Where the carrier is to copy a chunk to. */
enum md_share_where {
	MD_SHARE_TO_PLACE,     /* there are no rooms */
	MD_SHARE_STAGED_THERE, /* to a slot */
	MD_SHARE_NOWHERE,      /* until a slot is free */
};

void md_swap_stage_init(struct md_share_stage *stage, unsigned most);
/* Makes a room if there may be more; the context is current. An error: the carrier is lost. */
enum md_status md_swap_stage_find(struct md_swap_share *s, CUcontext context, enum md_share_where *where,
				  unsigned *slot, struct md_error *err);
/* The carrier's number of the room, and the slot's place in it. */
uint32_t md_swap_stage_part(const struct md_swap_share *s, unsigned slot);
uint64_t md_swap_stage_offset(const struct md_share_stage *stage, unsigned slot);
/* A chunk has come into its slot: begins to copy it to its place. */
enum md_status md_swap_stage_came(struct md_swap_share *s, size_t chunk, struct md_error *err);
/* Chunks that have got to their place are to be checked. */
enum md_status md_swap_stage_step(struct md_swap_share *s, bool *moved, struct md_error *err);
bool md_swap_stage_works(const struct md_swap_share *s);
/* There is no carrier any more: what has not come is free, what has come gets to its place. */
enum md_status md_swap_stage_abandon(struct md_swap_share *s, struct md_error *err);
/* Gives the rooms up; the carrier may hold them until it has ended the session, which is said by the next one. */
void md_swap_stage_finish(struct md_swap_share *s);
void md_swap_stage_given_back(void);
/*
 * For an allocation that has found no room: the carrier may still hold rooms. Waits for that, for three seconds at most.
 * False: it held none. From any thread.
 */
bool md_swap_stage_await(void);

#endif
