/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to lenders - engines on other GPUs that have the same blocks - for one time that this engine's memory comes in.
 * A lender writes into rooms on this engine's GPU, as long as it has them mapped, and nowhere else.
 */
#ifndef MD_SWAP_LENDERS_H
#define MD_SWAP_LENDERS_H

#include "swap/carry_wire.h"

enum md_swap_lender_way {
	MD_LENDER_SILENT,  /* it has offered nothing yet */
	MD_LENDER_OFFERS,  /* and nothing was asked of it */
	MD_LENDER_ASKED,   /* it has got a room, and has not said whether it can write there */
	MD_LENDER_PUSHES,  /* it writes into rooms */
	MD_LENDER_CARRIED, /* it cannot; the carrier has its connection, and reads its memory */
	MD_LENDER_GONE,
};

struct md_swap_lender {
	int fd; /* -1: none any more */
	enum md_swap_lender_way way;
	uint32_t rooms; /* a bit for each that it has got */
	unsigned asked; /* chunks that it is to write */
	uint64_t heard_at;
	bool ends; /* it was told to give the rooms up */
	int pid;   /* as it says */
	char gpu[MD_CARRY_GPU_BYTES];
};

struct md_swap_lenders {
	int coming; /* through which medusa-swap run sends connections; -1: no more come */
	struct md_swap_lender list[MD_CARRY_LENDERS];
	unsigned count;
};

/* Takes the descriptor over. -1: there are no lenders. */
void md_swap_lenders_init(struct md_swap_lenders *lenders, int coming);
/* Takes connections that have come; one more than there can be is closed. */
void md_swap_lenders_accept(struct md_swap_lenders *lenders);
/* The lender is not heard any more. rooms_back: it has none of the rooms; else md_swap_lenders_await waits for that. */
void md_swap_lender_leave(struct md_swap_lender *lender, bool rooms_back);
/* Lenders are to give all rooms up. */
void md_swap_lenders_end(struct md_swap_lenders *lenders);
/* Waits a moment for that, and adds what they have counted from MD_PEER_COPIER on. */
void md_swap_lenders_finish(struct md_swap_lenders *lenders, uint64_t times[MD_PEER_TIMES]);
/*
 * For an allocation that has found no room: lenders that have not answered may still have rooms mapped. Waits for that, for
 * three seconds at most, and warns of those that keep them. False: there are none. From any thread.
 */
bool md_swap_lenders_await(void);

#endif
