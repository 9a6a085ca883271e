/* SPDX-License-Identifier: Apache-2.0 */
/* Follows each request of a cluster to its end, and counts it once. */
#include "simulator/cluster/cluster_state.h"

static struct md_sim_asked *asked_of(struct md_sim_cluster_state *state, uint64_t request)
{
	return request < state->workload->count ? &state->asked[request] : NULL;
}

void md_sim_count_end(struct md_sim_cluster_state *state, size_t request, enum md_sim_end end, unsigned reason)
{
	struct md_sim_asked *asked = &state->asked[request];
	struct md_sim_cluster_result *result = state->result;
	asked->ended = true;
	state->ended++;
	if (!asked->counted)
		return;
	result->broken += end == MD_SIM_END_BROKEN;
	result->nowhere += end == MD_SIM_END_NOWHERE;
	if (end == MD_SIM_END_REFUSED && reason < MD_SIM_REASONS)
		result->rejected[reason]++;
}

/* The request is no longer at its node. */
static void leave(struct md_sim_cluster_state *state, size_t request)
{
	const struct md_sim_asked *asked = &state->asked[request];
	uint32_t function = state->workload->requests[request].function;
	struct md_sim_seat *seat = &state->seats[function].seats[asked->seat];
	seat->there -= seat->there > 0;
	state->members[asked->node].there -= state->members[asked->node].there > 0;
	state->open[(size_t)asked->from * state->count + asked->node] -= asked->node != asked->from;
}

static bool serve(struct md_sim_cluster_state *state, size_t request, uint64_t now)
{
	const struct md_sim_request *given = &state->workload->requests[request];
	const struct medusa_sched_function *spec = &state->functions.functions[given->function].spec;
	const struct md_sim_asked *asked = &state->asked[request];
	struct md_sim_cluster_result *result = state->result;
	uint64_t hop = asked->node == asked->from ? 0 : state->cluster->hop_ns;
	uint64_t ttft = (asked->first ? asked->first : now) - given->at + hop;
	uint64_t latency = spec->slo_goal == MEDUSA_SCHED_GOAL_FIRST_TOKEN ? ttft : now - given->at + hop;
	md_sim_count_end(state, request, MD_SIM_END_SERVED, 0);
	if (!asked->counted)
		return true;
	state->members[asked->node].served++;
	result->served++;
	result->met += spec->slo_ns && latency <= spec->slo_ns;
	return md_sim_samples_add(&result->ttft_ms, (double)ttft / 1e6);
}

static bool done(struct md_sim_cluster_state *state, const struct medusa_sched_event *event)
{
	struct md_sim_asked *asked = asked_of(state, event->request);
	if (asked->ended || asked->batch != event->batch || asked->aborted == MEDUSA_SCHED_REASON_TIMED_OUT)
		return true;
	leave(state, event->request);
	if (!asked->aborted)
		return serve(state, event->request, event->now);
	md_sim_count_end(state, event->request, MD_SIM_END_REFUSED, asked->aborted);
	return true;
}

static void touch(struct md_sim_cluster_state *state, size_t request)
{
	/* what stands in the queue is told with what moves; out of memory shows with the next action */
	(void)md_sim_seat_touch(
	    state, (struct md_sim_touched){state->workload->requests[request].function, state->asked[request].seat});
}

bool md_sim_count_event(struct md_sim_cluster_state *state, uint32_t node, const struct medusa_sched_event *event)
{
	struct md_sim_asked *asked = asked_of(state, event->request);
	if (event->type == MEDUSA_SCHED_EVENT_FIRST_TOKEN && asked)
		asked->first = event->now;
	if (event->type != MEDUSA_SCHED_EVENT_DONE)
		return true;
	if (asked) {
		touch(state, event->request);
		return done(state, event);
	}
	if (state->members[node].job == event->request)
		state->members[node].job = 0;
	return true;
}

static void reject(struct md_sim_cluster_state *state, uint32_t node, const struct medusa_sched_action *action)
{
	struct md_sim_asked *asked = asked_of(state, action->request);
	if (!asked && state->members[node].job == action->request)
		state->members[node].job = 0;
	if (!asked || asked->ended)
		return;
	touch(state, action->request);
	leave(state, action->request);
	md_sim_count_end(state, action->request, MD_SIM_END_REFUSED, action->reason);
}

static void run(struct md_sim_cluster_state *state, const struct medusa_sched_action *action)
{
	for (uint32_t i = 0; i < action->request_count; i++) {
		struct md_sim_asked *asked = asked_of(state, action->requests[i]);
		if (!asked)
			continue;
		asked->first = 0; /* of a batch that has failed */
		asked->batch = action->batch;
		asked->aborted = 0;
	}
}

void md_sim_count_actions(struct md_sim_cluster_state *state, uint32_t node,
			  const struct medusa_sched_action *const *actions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct medusa_sched_action *a = actions[i];
		struct md_sim_asked *asked = asked_of(state, a->request);
		if (a->type == MEDUSA_SCHED_ACTION_REJECT)
			reject(state, node, a);
		else if (a->type == MEDUSA_SCHED_ACTION_ABORT && a->batch && asked && asked->batch == a->batch)
			asked->aborted = (uint8_t)a->reason;
		else if (a->type == MEDUSA_SCHED_ACTION_RUN || a->type == MEDUSA_SCHED_ACTION_JOIN)
			run(state, a);
	}
}
