/* SPDX-License-Identifier: Apache-2.0 */
/* Actions of a step. */
#ifndef MD_SCHEDULER_CORE_STEP_H
#define MD_SCHEDULER_CORE_STEP_H

#include "scheduler/core/state.h"

/* Makes sure that the next md_act calls and request numbers find room; false: out of memory. */
bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests);
struct medusa_sched_action *md_act(struct medusa_sched *s,
				   enum medusa_sched_action_type type); /* NULL: out of memory */
uint64_t md_draw(struct medusa_sched *s);                               /* a random number */

#endif
