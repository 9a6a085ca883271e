/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms on this engine's GPU through which memory comes from engines on other GPUs; part of struct md_swap_share. */
#ifndef MD_SWAP_CONTENTS_STAGE_H
#define MD_SWAP_CONTENTS_STAGE_H

#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"

#define MD_STAGE_ROOM_SLOTS (MD_CARRY_TAKES_MOST / MD_CARRY_ROOMS)

struct md_swap_share;

struct md_share_slot {
	bool lent;      /* the carrier or a lender copies there, or has been lost and may still do so */
	bool copying;   /* from there to its place */
	size_t chunk;   /* that is being copied */
	CUevent copied; /* NULL: none yet */
};

/* Physical memory that lenders and the carrier map, too; for some slots of one chunk each. */
struct md_share_room {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	uint64_t bytes;
	bool mapped;
	int fd;       /* by which others map it; -1: none */
	bool carried; /* the carrier has it */
};

struct md_share_stage {
	CUcontext context; /* NULL: there are no rooms yet */
	CUstream stream;
	uint64_t slot_bytes;
	unsigned most, count; /* slots: that there may be, and are */
	struct md_share_slot slots[MD_CARRY_TAKES_MOST];
	unsigned room_count;
	struct md_share_room rooms[MD_CARRY_ROOMS];
};

/* Where a chunk is to be copied to. */
enum md_share_where {
	MD_SHARE_TO_PLACE,     /* there are no rooms */
	MD_SHARE_STAGED_THERE, /* to a slot */
	MD_SHARE_NOWHERE,      /* until a slot is free */
};

void md_swap_stage_init(struct md_share_stage *stage, unsigned most);
/* Makes a room if there may be more, and none is free; the context is current. */
enum md_share_where md_swap_stage_find(struct md_swap_share *s, CUcontext context, unsigned *slot);
static inline unsigned md_swap_stage_room_of(unsigned slot)
{
	return slot / MD_STAGE_ROOM_SLOTS;
}
/* The carrier's number of the slot's room, and the slot's place in it. */
uint32_t md_swap_stage_part(const struct md_swap_share *s, unsigned slot);
uint64_t md_swap_stage_offset(const struct md_share_stage *stage, unsigned slot);
/* A chunk has come into its slot: begins to copy it to its place. */
enum md_status md_swap_stage_came(struct md_swap_share *s, size_t chunk, struct md_error *err);
/* Chunks that have got to their place are to be checked. */
enum md_status md_swap_stage_step(struct md_swap_share *s, bool *moved, struct md_error *err);
bool md_swap_stage_works(const struct md_swap_share *s);
/* There is no carrier any more: what it has not copied is free, what has come gets to its place. */
enum md_status md_swap_stage_abandon(struct md_swap_share *s, struct md_error *err);
/* Gives the rooms up; others may hold them until they have ended the session, which is said by the next one. */
void md_swap_stage_finish(struct md_swap_share *s);
void md_swap_stage_given_back(void);
/*
 * For an allocation that has found no room: others may still hold rooms. Waits for that, for three seconds at most each.
 * False: nobody held any. From any thread.
 */
bool md_swap_stage_await(void);

#endif
