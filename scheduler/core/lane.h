/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a function's queue, by tenant, if there are several: so that the next one of each is found without a look
 * at all that wait. Each request of the queue is in a lane, too; what a tenant's limits hold back is in neither.
 */
#ifndef MD_SCHEDULER_CORE_LANE_H
#define MD_SCHEDULER_CORE_LANE_H

#include "scheduler/core/state.h"

/* The second tenant is about to come: puts all that waits into lanes. False: out of memory, and nothing has changed. */
bool md_lanes_create(struct medusa_sched *s);
/* Room for lanes of all requests of the function, and of so many more. False: out of memory. */
bool md_lanes_reserve(struct medusa_sched *s, uint32_t function, uint32_t more);
void md_lanes_destroy(struct medusa_sched *s);
void md_lane_insert(struct medusa_sched *s, uint32_t request); /* there is room, see md_lanes_reserve */
void md_lane_remove(struct medusa_sched *s, uint32_t request);
/* The lane's next request, those in time before those that are late. NONE: there is no further one. */
uint32_t md_lane_first(struct medusa_sched *s, struct md_lane *lane);
uint32_t md_lane_next(struct medusa_sched *s, struct md_lane *lane); /* after md_lane_first, or after the last call */
/* The function's objective or times have changed: whether its requests are late will be looked at again. */
void md_lanes_anew(struct medusa_sched *s, uint32_t function);

#endif
