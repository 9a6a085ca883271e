/* SPDX-License-Identifier: Apache-2.0 */
/* Maps memory of lenders for reading, ahead of the copies, and unmaps it; by a thread of its own. */
#ifndef MD_TOOLS_CARRIER_MAPPER_H
#define MD_TOOLS_CARRIER_MAPPER_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"

#define MD_MAPPER_TOGETHER 8u /* parts that get their addresses and access together, at most */

struct md_mapper;

struct md_mapper_part {
	unsigned lender; /* below MD_CARRY_LENDERS */
	uint32_t part;
	int memory; /* a descriptor */
	uint64_t bytes;
	CUcontext context; /* of the device that reads */
	CUdevice device;
};

/* What the thread is done with. */
struct md_mapper_done {
	bool gave_back; /* it was asked for all memory of the lender; else for a part */
	unsigned lender;
	uint32_t part;
	bool there; /* the memory is mapped, also after a failure to unmap it */
	CUdeviceptr address;
	uint64_t bytes;
};

/* Without a thread, everything is done when it is asked for. */
enum md_status md_mapper_create(struct md_mapper **mapper, struct md_error *err);
/* Waits for what the thread is at. What is mapped stays so until the process ends. NULL is allowed. */
void md_mapper_destroy(struct md_mapper *mapper);
/* Readable when something is done. */
int md_mapper_fd(const struct md_mapper *mapper);
/* Takes the descriptor over, if it returns true; false: the part makes no sense, or memory is short. */
bool md_mapper_put(struct md_mapper *mapper, const struct md_mapper_part *part);
/*
 * Unmaps all memory of the lender, before anything else that waits; nobody may be copying from it. Parts of it that wait are
 * done without being mapped.
 */
void md_mapper_give_back(struct md_mapper *mapper, unsigned lender);
/* False: nothing is done that was not told of. */
bool md_mapper_next(struct md_mapper *mapper, struct md_mapper_done *done);
/* Waits until everything is done. */
void md_mapper_await(struct md_mapper *mapper);
/* An error: memory could not be unmapped, and nobody knows what the driver has left. */
enum md_status md_mapper_check(struct md_mapper *mapper, struct md_error *err);
/* Whether copies are under way, from now on. */
void md_mapper_note_copying(struct md_mapper *mapper, bool copying);
/* Sets those of the times that are of lent parts, and begins to count anew. */
void md_mapper_take_times(struct md_mapper *mapper, uint64_t times[MD_PEER_TIMES]);

#endif
