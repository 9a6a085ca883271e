/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: one ops table each. */
#ifndef MD_SCHEDULER_POLICY_POLICIES_H
#define MD_SCHEDULER_POLICY_POLICIES_H

#include "scheduler/core/state.h"

struct md_queueing {
	const char *name, *summary;
	/* Functions with the least key are served first; only a function that changed is asked again, and the first
	 * one. */
	struct md_key (*key)(struct medusa_sched *s, uint32_t function);
	/* Called every period ns while requests wait; keys are then asked for anew. NULL, 0: never. */
	void (*tick)(struct medusa_sched *s);
	uint64_t period;
	bool separates_late; /* requests that can't meet their SLO any more go to the function's second queue */
};

struct md_choice {
	uint32_t gpu;  /* NONE: no GPU can take it now */
	uint32_t peer; /* to copy from, or NONE: from the host */
};

struct md_placement {
	const char *name, *summary;
	bool bound; /* only on the function's home */
	/* Among GPUs with a free slot where md_fits() holds. */
	struct md_choice (*choose)(struct medusa_sched *s, uint32_t function);
};

struct md_eviction {
	const char *name, *summary;
	/* The copy with the least rank goes first. NULL: nothing is ever evicted for another. */
	struct md_key (*rank)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
	/* True if this idle copy may be evicted now. NULL: always. */
	bool (*may)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
	/* Busy copies are evicted, too: they get no new batches, and leave when the last one has ended. */
	bool drains;
};

struct md_batching {
	const char *name, *summary;
	/* How many of the waiting requests run together, at least 1; or 0 and *until: not before then, or the next
	 * arrival. */
	uint32_t (*size)(struct medusa_sched *s, uint32_t function, uint64_t *until);
};

struct md_preloading {
	const char *name, *summary;
	void (*plan)(struct medusa_sched *s); /* every preload_period_ns; sends for what it wants. NULL: nothing */
};

extern const struct md_queueing *const md_queueings[];
extern const struct md_placement *const md_placements[];
extern const struct md_eviction *const md_evictions[];
extern const struct md_batching *const md_batchings[];
extern const struct md_preloading *const md_preloadings[]; /* each ends with NULL */

int md_policies_choose(struct medusa_sched *s, const struct medusa_sched_options *options);

#endif
