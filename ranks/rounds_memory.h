/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in the memory that the ranks of a job share: votes and decisions (rounds.c), and steps (steps.c). */
#ifndef MD_RANKS_ROUNDS_MEMORY_H
#define MD_RANKS_ROUNDS_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ranks/rank.h"

#define MD_ROUNDS_MAGIC UINT64_C(0x31534b4e4152444d) /* "MDRANKS1" */
#define MD_ROUNDS_VERSION 3u
#define MD_ROUNDS_MOST 16384u
#define MD_ROUNDS_TEXT 240
#define MD_ROUNDS_LOOK_NS UINT64_C(50000000) /* how often a wait looks whether the others are still there */

struct md_rounds_text { /* whoever has set its word to one of his own writes it, and then says so */
	_Atomic uint32_t writer, written;
	char bytes[MD_ROUNDS_TEXT];
};

/* What a rank does in one step. */
struct md_step_said {
	uint64_t hash; /* of the whole text */
	bool yes;
	char text[MD_ROUNDS_TEXT];
};

struct md_seat {
	_Atomic uint32_t process; /* 0: nobody has come */
	_Atomic uint32_t votes;
	_Atomic uint32_t steps; /* how many it has said */
	/* The last two steps, by their number's parity. One is written again only when all ranks have read it. */
	struct md_step_said said[2];
};

struct md_round {
	_Atomic uint64_t name, with; /* 0: nobody has voted */
	_Atomic uint32_t decision, yes;
	struct md_rounds_text why;
};

struct md_rounds_memory {
	uint64_t magic;
	uint32_t version, ranks;
	_Atomic uint32_t changes; /* ranks that wait are woken by it */
	_Atomic uint32_t ended;   /* how, with the rank above it */
	_Atomic uint32_t step;    /* the last decision about a step; see steps.c */
	_Atomic uint64_t bundle;  /* that ranks restore from; 0: nobody has said it */
	struct md_rounds_text end;
	struct md_seat seats[MD_RANKS_MOST];
	struct md_round rounds[MD_ROUNDS_MOST];
};

void md_rounds_wake(struct md_rounds_memory *memory);
/* Until something changes after seen, but not for long. */
void md_rounds_doze(struct md_rounds_memory *memory, uint32_t seen, uint64_t most_ns);

#endif
