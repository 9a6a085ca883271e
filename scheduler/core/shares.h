/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that artifacts of a GPU have in common with others there, and that exists once: each artifact counts in full, and what
 * is counted too often is a credit. It shrinks in the step in which a sharer leaves, so that the books never say less than there is.
 */
#ifndef MD_SCHEDULER_CORE_SHARES_H
#define MD_SCHEDULER_CORE_SHARES_H

#include "scheduler/core/state.h"

/* Artifacts of one GPU that have this memory. What is on its way in counts from its arrival on. */
struct md_sched_share {
	uint64_t number, bytes; /* number: the caller's */
	uint32_t gpu;
	uint32_t first;   /* sharer, linked by next_of_share; NONE: the place is free */
	uint32_t next;    /* share with the same number on another GPU, or free place */
	uint32_t there;   /* sharers that are on the GPU */
	uint32_t leaving; /* of these: on their way out */
	uint32_t busy;    /* of these: in use, and not on their way out */
};

struct md_sched_sharer {
	uint32_t share, artifact;
	uint32_t next_of_share, next_of_copy; /* next_of_copy: 1 + index; 0: the last one */
	bool there, leaving, busy;            /* as the share counts it */
};

/* Takes MEDUSA_SCHED_EVENT_SHARED. Returns a result code. */
int md_shared(struct medusa_sched *s, const struct medusa_sched_event *e);
/* The state or the pins of a copy have changed. What is not there any more shares nothing. */
void md_shares_follow(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
/* The copy shares nothing any more, whatever its state is. */
void md_shares_drop(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
void md_shares_finish(struct medusa_sched *s);
/* Counts the credits of a GPU anew, for the audit: in shared, shared_soon and shared_busy. */
void md_shares_count(const struct medusa_sched *s, uint32_t gpu, struct md_gpu *counted);

#endif
