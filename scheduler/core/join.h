/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that batch by themselves: requests of a continuous function join its batch that runs. */
#ifndef MD_SCHEDULER_CORE_JOIN_H
#define MD_SCHEDULER_CORE_JOIN_H

#include "scheduler/core/state.h"

enum md_join {
	MD_JOINED,
	MD_JOIN_LACKS_MEMORY, /* for the KV cache of the first request */
	MD_JOIN_FULL,         /* their backbone has no room for further requests */
	MD_JOIN_NOT_NOW,      /* no batch takes anybody: full, loading, draining, hanging, or others have their turn */
};

/* The batch of a continuous function on this GPU, unless it hangs. NONE: there is none, or it is another function. */
uint32_t md_join_batch(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/*
 * Whether a continuous function has a batch on this GPU one of whose requests no end came in time, and the node may still
 * answer: its engine may hang, so nothing of it starts there. If no answer has come until the node is asked again, it may.
 */
bool md_join_hangs(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Whether it has a batch (on this GPU; NONE: on any) that may take another request, as soon as GPU and memory allow. */
bool md_joinable(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Whether artifacts of a batch that may take another request are still on their way. */
bool md_join_loads(const struct medusa_sched *s, uint32_t function);
/*
 * Lets waiting requests join: as many as the batch takes, or one if there are several batches. *gpu: the only GPU that
 * comes into question, or NONE; and the one where memory is lacking.
 */
enum md_join md_join(struct medusa_sched *s, uint32_t function, uint32_t *gpu);

#endif
