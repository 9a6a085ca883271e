/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that all ranks of a job share, in which they decide one thing after the other. A decision is one word that is
 * set once: whoever lags, stops or dies while others decide, no two ranks ever read different decisions.
 */
#ifndef MD_RANKS_ROUNDS_H
#define MD_RANKS_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct md_rounds {
	struct md_rounds_memory *memory; /* NULL: none */
	uint32_t ranks, own;             /* own: the rank that this process is */
};

enum md_rounds_end { /* why nothing more is decided */
		     MD_ROUNDS_GONE = 1,
		     MD_ROUNDS_LATE,
		     MD_ROUNDS_OTHER, /* it says something else than the others */
		     MD_ROUNDS_FULL,
};

struct md_vote {
	uint64_t name;   /* what is decided on: not 0, and the same in all ranks */
	uint64_t with;   /* what it brings along; if ranks have different numbers there, the decision is no */
	uint64_t bundle; /* which one this rank restores from; 0: none, or not known. With two, nothing is decided */
	const char *why_not;  /* NULL: yes */
	uint64_t deadline_ns; /* of the caller: when it passes, the decision is no */
	uint64_t patience_ns; /* when that passes, nothing more is decided */
	/* Asked at first, and from time to time in a wait: false when the other ranks are lost. */
	bool (*connected)(void *user);
	void *user;
};

/* The memory of a job, in a file without a name that nobody can cut off; all is zero, and no rank has come. */
enum md_status md_rounds_create(uint32_t ranks, int *fd, struct md_error *err);
/* Maps it; fd stays the caller's. MD_ERR_CORRUPT, MD_ERR_VERSION: it is not the memory of such a job. */
enum md_status md_rounds_map(int fd, uint32_t ranks, uint32_t own, struct md_rounds *out, struct md_error *err);
void md_rounds_unmap(struct md_rounds *rounds);

/* False if that rank has come before; *process is the one that came first then. */
bool md_rounds_arrive(struct md_rounds *rounds, uint32_t rank, uint32_t *process);
/* The first end counts. rank: which one is to blame. The reason is one that any rank can say. */
void md_rounds_end(struct md_rounds *rounds, enum md_rounds_end how, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* True, with the reason in *err, when nothing more is decided. err may be NULL. */
bool md_rounds_ended(const struct md_rounds *rounds, struct md_error *err);

/*
 * Votes on number (0, 1, 2 ...; each rank votes once on each) and, if the vote is yes, waits until it is decided. MD_OK:
 * all ranks have voted yes. Otherwise the error names the rank that has not, and no rank gets MD_OK.
 */
enum md_status md_rounds_vote(struct md_rounds *rounds, uint32_t number, const struct md_vote *vote,
			      struct md_error *err);

#endif
