/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: one ops table each. */
#ifndef MD_SCHEDULER_POLICY_POLICIES_H
#define MD_SCHEDULER_POLICY_POLICIES_H

#include "scheduler/core/state.h"
#include "scheduler/knapsack/knapsack.h"

enum md_queueing_traits {
	MD_QUEUEING_SEPARATES_LATE =
	    1,                   /* requests that can no longer meet their SLO go to the function's second queue */
	MD_QUEUEING_BY_LOAD = 2, /* keys depend on what runs: they are computed again after each start */
	MD_QUEUEING_ORDERS_CLAIMS = 4, /* claims of memory are served by key, not by age */
	MD_QUEUEING_AGES_CLAIMS = 8,   /* but now and then the oldest one has its turn */
};

struct md_queueing {
	const char *name, *summary;
	/*
	 * Functions with the least key are served first. The key of a function is computed again only when the function
	 * has changed, or when it is first.
	 */
	struct md_key (*key)(struct medusa_sched *s, uint32_t function);
	/* Called every period ns while requests wait; all keys are then computed again. NULL, 0: never. */
	void (*tick)(struct medusa_sched *s);
	uint64_t period;
	unsigned traits; /* enum md_queueing_traits */
};

struct md_choice {
	uint32_t gpu;  /* NONE: no GPU can take it now */
	uint32_t peer; /* to copy from, or NONE: from the host */
};

struct md_placement {
	const char *name, *summary;
	bool bound; /* only on the function's home */
	/* Chooses among GPUs with a free slot where md_fits() holds. */
	struct md_choice (*choose)(struct medusa_sched *s, uint32_t function);
};

struct md_eviction {
	const char *name, *summary;
	/* The copy with the least rank is evicted first. NULL: nothing is ever evicted to make room. */
	struct md_key (*rank)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
	/* True if this idle copy may be evicted now. NULL: always. */
	bool (*may)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
	/* Busy copies are evicted, too: they get no new batches, and are evicted when the last one has ended. */
	bool drains;
	/*
	 * Chooses all victims together, so that together they lose the least value; what is lacking then is chosen by
	 * rank. NULL: all are chosen by rank.
	 */
	md_knapsack_offloader *solve;
	double (*value)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu); /* lost with this copy */
	bool spares_backbones; /* solve is given backbones only if all else is not enough, except second copies */
};

struct md_batching {
	const char *name, *summary;
	/*
	 * How many of the waiting requests run together, at least 1; or 0, and *until: not before that time, unless a
	 * request arrives.
	 */
	uint32_t (*size)(struct medusa_sched *s, uint32_t function, uint64_t *until);
};

struct md_preloading {
	const char *name, *summary;
	/* called every preload_period_ns; sends for what it wants. NULL: preloads nothing */
	void (*plan)(struct medusa_sched *s);
	/* whether that would do anything as things are: else no timer is set for it, and the node can sleep */
	bool (*would_plan)(const struct medusa_sched *s);
	bool heeds_keep_alive; /* what was not called for keep_alive_ns is not loaded before it is called again */
};

extern const struct md_queueing *const md_queueings[];
extern const struct md_placement *const md_placements[];
extern const struct md_eviction *const md_evictions[];
extern const struct md_batching *const md_batchings[];
extern const struct md_preloading *const md_preloadings[]; /* each ends with NULL */

int md_policies_choose(struct medusa_sched *s, const struct medusa_sched_options *options);

#endif
