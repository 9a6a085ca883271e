/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of one step, and the requests that they name. */
#include "scheduler/core/action.h"

#include "base/array.h"

bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests)
{
	return MD_ARRAY_RESERVE(s->actions, s->action_count + actions, s->action_capacity) &&
	       MD_ARRAY_RESERVE(s->action_list, s->action_capacity, s->action_list_capacity) &&
	       MD_ARRAY_RESERVE(s->run_requests, s->run_request_count + requests, s->run_request_capacity) &&
	       MD_ARRAY_RESERVE(s->run_transfers, s->run_transfer_count + MD_FUNCTION_ARTIFACTS,
				s->run_transfer_capacity);
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

static void add_transfer(struct medusa_sched *s, struct medusa_sched_action *run, uint32_t transfer)
{
	s->run_transfers[s->run_transfer_count++] = s->transfers[transfer].id;
	run->transfer_count++;
}

void md_action_transfers(struct medusa_sched *s, struct medusa_sched_action *run)
{
	const uint32_t *artifacts = s->functions[run->function].artifacts;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		const struct md_copy *copy = artifacts[kind] == NONE ? NULL : md_copy_at(s, artifacts[kind], run->gpu);
		if (copy && copy->state == MD_LOADING)
			add_transfer(s, run, copy->transfer);
	}
	uint32_t library = artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	if (library != NONE && s->artifacts[library].host == MD_LOADING)
		add_transfer(s, run, s->artifacts[library].host_transfer);
}

/* Sets the pointers last, because the arrays may move while they grow. */
void md_actions_list(struct medusa_sched *s)
{
	size_t offset = 0, transfers = 0;
	for (size_t i = 0; i < s->action_count; i++) {
		s->action_list[i] = &s->actions[i];
		if (s->actions[i].type != MEDUSA_SCHED_ACTION_RUN && s->actions[i].type != MEDUSA_SCHED_ACTION_JOIN)
			continue;
		s->actions[i].requests = s->run_requests + offset;
		offset += s->actions[i].request_count;
		s->actions[i].transfers = s->run_transfers + transfers;
		transfers += s->actions[i].transfer_count;
	}
}
