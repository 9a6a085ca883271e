/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of one step. */
#ifndef MD_SCHEDULER_CORE_ACTION_H
#define MD_SCHEDULER_CORE_ACTION_H

#include "scheduler/core/state.h"

/* Makes room for so many md_act calls and request numbers; false: out of memory. */
bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests);
/* Adds an action of that kind, whose other fields are not set; NULL: out of memory. */
struct medusa_sched_action *md_act(struct medusa_sched *s, enum medusa_sched_action_type type);
/* Ends the step: fills action_list and the requests of its actions. */
void md_actions_list(struct medusa_sched *s);

#endif
