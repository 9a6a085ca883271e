/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of one step. */
#ifndef MD_SCHEDULER_CORE_ACTION_H
#define MD_SCHEDULER_CORE_ACTION_H

#include "scheduler/core/state.h"

/* Makes room for so many md_act calls and request numbers, and for the transfers of one run; false: out of memory. */
bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests);
/* Adds an action of that kind, whose other fields are not set; NULL: out of memory. */
struct medusa_sched_action *md_act(struct medusa_sched *s, enum medusa_sched_action_type type);
/* Adds what the run of that function on that GPU waits for. Room was made by md_action_room. */
void md_action_transfers(struct medusa_sched *s, struct medusa_sched_action *run);
/* Ends the step: fills action_list, and the requests and transfers of its actions. */
void md_actions_list(struct medusa_sched *s);

#endif
