/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's connection to the carrier, for one time that its memory comes in. */
#ifndef MD_SWAP_CARRY_H
#define MD_SWAP_CARRY_H

#include "swap/carry_wire.h"
#include "swap/lenders.h"
#include "swap/swap_memory.h"

/* What medusa-swap run has given to a process for this time. */
struct md_swap_carrier {
	int fd;                  /* of the connection; -1: none */
	bool neighbours;         /* it copies from the pool, over links of other GPUs */
	bool peers;              /* memory of engines on other GPUs is wanted */
	int lenders;             /* through which connections to these come; -1: none */
	void (*end)(void *user); /* asks medusa-swap run to kill the carrier, which does not do what it should */
	void *user;
};

/*
 * What a carrier writes must never reach memory that the engine uses. So a chunk counts once the carrier has said that its
 * copy has ended; and physical memory in which the carrier may still write - it holds that memory by a handle of its own -
 * is given up by the engine, which takes new memory for the same addresses (contents_share.c).
 */
struct md_swap_carry {
	struct md_swap_carrier carrier; /* fd is -1 once the connection was given up */
	bool ready, wanted;             /* wanted: a carrier was asked for */
	uint32_t links;
	char gpus[MD_CARRY_LINKS][MD_CARRY_GPU_BYTES];
	uint64_t heard_at; /* ns: the last message, or the beginning */
	struct md_swap_lenders lenders;
	char why[256];                 /* why it carries nothing, or nothing more; "": no reason */
	uint64_t times[MD_PEER_TIMES]; /* of the carrier and of lenders, when they have given up the memory */
};

enum md_carry_event {
	MD_CARRY_EVENT_NONE,
	MD_CARRY_EVENT_READY,
	MD_CARRY_EVENT_DONE,
	MD_CARRY_EVENT_NOT,   /* a lender does not hand over what the chunk wants */
	MD_CARRY_EVENT_ENDED, /* it has given up all parts */
	MD_CARRY_EVENT_LOST, /* it has died, or says that it cannot go on: what it has not said is done may still be written */
	MD_CARRY_EVENT_LIAR, /* it has sent what makes no sense: nothing that it said counts */
};

/* Takes the connections over, and sets carrier->fd and carrier->lenders to -1. carrier: NULL for none. */
void md_swap_carry_init(struct md_swap_carry *carry, struct md_swap_carrier *carrier);
static inline bool md_swap_carry_is_open(const struct md_swap_carry *carry)
{
	return carry->carrier.fd >= 0;
}
/* An error of these: the carrier is lost, as above. */
enum md_status md_swap_carry_begin(struct md_swap_carry *carry, const char *gpu, struct md_error *err);
enum md_status md_swap_carry_part(struct md_swap_carry *carry, uint32_t part, uint64_t bytes, int memory,
				  struct md_error *err);
enum md_status md_swap_carry_chunk(struct md_swap_carry *carry, struct md_carry_message *chunk, struct md_error *err);
enum md_status md_swap_carry_take(struct md_swap_carry *carry, struct md_carry_message *take, struct md_error *err);
/* Hands the connection to a lender over, which is its number from now on. */
enum md_status md_swap_carry_lender(struct md_swap_carry *carry, uint32_t number, const struct md_swap_lender *lender,
				    struct md_error *err);
/* Tells a lender that blocks have other bytes than they were offered with. Fails silently: it is told the next time. */
void md_swap_carry_stale(struct md_swap_carry *carry, struct md_carry_message *stale);
/* The next message, if one has come. `why` of carry says why it was lost. */
enum md_carry_event md_swap_carry_hear(struct md_swap_carry *carry, struct md_carry_message *message);
/* Closes the connection, and has the carrier killed. why: NULL if carry->why says it already. */
void md_swap_carry_abandon(struct md_swap_carry *carry, const char *why);
/*
 * The carrier ends what it is at and gives up the memory, so that the next out releases it. One that does not do that soon
 * is killed.
 */
void md_swap_carry_finish(struct md_swap_carry *carry);

#endif
