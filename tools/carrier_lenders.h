/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lenders that do not write into the rooms of the engine which comes in (swap/contents_lenders.c), in the carrier's process:
 * their memory is mapped for reading while they run, and copied over NVLink by the neighbour that it is on.
 */
#ifndef MD_TOOLS_CARRIER_LENDERS_H
#define MD_TOOLS_CARRIER_LENDERS_H

#include <poll.h>

#include "tools/carrier_lanes.h"
#include "tools/carrier_mapper.h"

#define MD_LENDER_PARTS 64u  /* that wait to be mapped: each has a descriptor */
#define MD_LENDER_COPIES 32u /* chunks that are under way: enough for the time between two looks at them */

struct md_lender_part {
	enum { MD_LENDER_UNASKED, MD_LENDER_ASKED, MD_LENDER_HANDED_OVER, MD_LENDER_MAPPED, MD_LENDER_REFUSED } state;
	uint64_t asked_at;   /* ns; 0: never */
	CUdeviceptr address; /* where it is mapped */
	uint64_t bytes;
};

struct md_lender {
	int fd;                       /* -1: none */
	bool gone;                    /* it wants its memory back, does not answer, or has ended */
	bool returned;                /* its memory is being unmapped */
	bool added;                   /* the engine knows it by its number */
	unsigned lane;                /* of the neighbour that it is on */
	struct md_lender_part *parts; /* owned */
	uint32_t part_count;
	unsigned under_way;
};

struct md_lenders {
	struct md_lanes *lanes;
	struct md_mapper *mapper;
	unsigned mapping; /* parts that the mapper has */
	struct md_lender list[MD_CARRY_LENDERS];
	struct md_carry_message queue[MD_CARRY_TAKES_MOST];
	unsigned queued;
	struct md_lender_copy {
		bool busy;
		unsigned lane, lender;
		CUevent done;
		uint32_t chunk;
		uint64_t bytes;
	} copies[MD_LENDER_COPIES];
	unsigned turn;
	uint64_t idle_since;             /* ns: chunks are wanted, and none is being copied; 0: not so */
	bool unmapped;                   /* a chunk waits for mapping, and for nothing else */
	char missed[MD_CARRY_GPU_BYTES]; /* a GPU with a lender, on which there is no lane yet; "": none */
};

void md_lenders_init(struct md_lenders *lenders, struct md_lanes *lanes, struct md_mapper *mapper);
/*
 * Takes the connection to a lender on this GPU over, and sets *fd to -1. MD_ERR_CORRUPT: the number makes no sense, or comes
 * twice. A lender on a GPU that has no lane gives nothing.
 */
enum md_status md_lenders_add(struct md_lenders *lenders, uint32_t number, const char *gpu, int *fd,
			      struct md_error *err);
#define MD_LENDERS_POLL (MD_CARRY_LENDERS + 1)
/* Lists what to wait for; returns how many there are. */
unsigned md_lenders_poll(const struct md_lenders *lenders, struct pollfd ready[MD_LENDERS_POLL]);
/* Whether chunks are waiting or under way. */
bool md_lenders_copy(const struct md_lenders *lenders);
/* A chunk that the engine wants. MD_ERR_CORRUPT: it is not within its part, or of no lender. */
enum md_status md_lenders_take(struct md_lenders *lenders, const struct md_carry_message *take, struct md_error *err);
void md_lenders_stale(struct md_lenders *lenders, const struct md_carry_message *stale);
/* Hears lenders and the mapper, begins copies, and tells the engine of copies that have ended, and of chunks that do not come. */
enum md_status md_lenders_work(struct md_lenders *lenders, int session, struct md_error *err);
/* Sets those of the carrier's times that are known so far, and begins to count mapping anew. */
void md_lenders_take_times(struct md_lenders *lenders, uint64_t times[MD_PEER_TIMES]);
/* Waits for all copies. */
enum md_status md_lenders_settle(struct md_lenders *lenders, struct md_error *err);
/* The same, and gives everything back. */
enum md_status md_lenders_drop(struct md_lenders *lenders, struct md_error *err);
/* Makes a lane where a lender was of no use without one, so that the next time finds it. */
void md_lenders_open_missed(struct md_lenders *lenders);

#endif
