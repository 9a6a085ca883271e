/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs have a function, and how many may. */
#ifndef MD_SCHEDULER_REPLICAS_H
#define MD_SCHEDULER_REPLICAS_H

#include "scheduler/core/state.h"

/* Whether the GPU holds or loads something of the function's own, or runs it. */
bool md_replica_at(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Whether the function may be on the GPU, beside the others that have it. */
bool md_replica_may(const struct medusa_sched *s, uint32_t function, uint32_t gpu);

#endif
