/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of one step, and the requests that they name. */
#include "scheduler/core/action.h"

#include "base/array.h"

bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests)
{
	return MD_ARRAY_RESERVE(s->actions, s->action_count + actions, s->action_capacity) &&
	       MD_ARRAY_RESERVE(s->action_list, s->action_capacity, s->action_list_capacity) &&
	       MD_ARRAY_RESERVE(s->run_requests, s->run_request_count + requests, s->run_request_capacity);
}

struct medusa_sched_action *md_act(struct medusa_sched *s, enum medusa_sched_action_type type)
{
	if (!md_action_room(s, 1, 0))
		return NULL;
	struct medusa_sched_action *action = &s->actions[s->action_count++];
	*action = (struct medusa_sched_action){
	    .size = sizeof(*action), .type = type, .function = NONE, .backbone = NONE, .gpu = NONE, .peer = NONE};
	return action;
}

/* Sets the pointers last, because the arrays may move while they grow. */
void md_actions_list(struct medusa_sched *s)
{
	size_t offset = 0;
	for (size_t i = 0; i < s->action_count; i++) {
		s->action_list[i] = &s->actions[i];
		if (s->actions[i].type != MEDUSA_SCHED_ACTION_RUN)
			continue;
		s->actions[i].requests = s->run_requests + offset;
		offset += s->actions[i].request_count;
	}
}
