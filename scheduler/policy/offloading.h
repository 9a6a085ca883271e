/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading: which copies leave a GPU together, as the minimum knapsack of knapsack.h. */
#ifndef MD_SCHEDULER_POLICY_OFFLOADING_H
#define MD_SCHEDULER_POLICY_OFFLOADING_H

#include "scheduler/core/state.h"

/*
 * Artifacts whose copies on this GPU the eviction policy's knapsack gives up for `bytes`, in the order in which they
 * leave, and their number in *count; none of the keeper's, and none that is in use. If the policy spares backbones, they
 * are among them only if another GPU has the backbone and nothing here uses it, or if all else is not enough. The caller
 * frees the list. NULL: the policy has no knapsack, or there is nothing to give up, or no memory.
 */
uint32_t *md_offload_choose(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper, uint32_t *count);

#endif
