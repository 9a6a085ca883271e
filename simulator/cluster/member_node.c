/* SPDX-License-Identifier: Apache-2.0 */
/* One node of a cluster: the scheduler decides, the model advances time, as in a run of one node; functions come as they are asked for. */
#include <stdlib.h>

#include "simulator/cluster/cluster_state.h"
#include "simulator/run/run_state.h"

/* ---- the order of events ---- */

static bool is_before(const struct md_sim_cluster_state *state, uint32_t a, uint32_t b)
{
	const struct md_sim_member *one = &state->members[a], *other = &state->members[b];
	return one->due != other->due ? one->due < other->due : a < b;
}

static void put(struct md_sim_cluster_state *state, uint32_t at, uint32_t node)
{
	state->heap[at] = node;
	state->members[node].heap = at;
}

static void settle(struct md_sim_cluster_state *state, uint32_t node)
{
	uint32_t at = state->members[node].heap;
	while (at && is_before(state, node, state->heap[(at - 1) / 2])) {
		put(state, at, state->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	for (;;) {
		uint32_t best = 2 * at + 1;
		if (best < state->count && best + 1 < state->count &&
		    is_before(state, state->heap[best + 1], state->heap[best]))
			best++;
		if (best >= state->count || !is_before(state, state->heap[best], node))
			break;
		put(state, at, state->heap[best]);
		at = best;
	}
	put(state, at, node);
}

void md_sim_heap_update(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	uint64_t due = MD_SIM_NEVER;
	if (member->lives && !md_sim_model_due(member->model, &due))
		due = MD_SIM_NEVER;
	if (member->lives && member->timer < due)
		due = member->timer;
	member->due = due;
	settle(state, node);
}

/* ---- beginning and end ---- */

enum md_status md_sim_member_begin(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	const struct md_sim_model_options options = {.node = &state->node,
						     .functions = &member->functions,
						     .workload = state->workload,
						     .no_blocks = state->inputs->policy->no_blocks};
	member->functions = state->functions;
	member->functions.functions = NULL;
	member->functions.count = 0;
	member->function_room = 0;
	member->timer = MD_SIM_NEVER;
	member->job = 0;
	member->there = 0;
	MD_FORWARD(md_sim_run_scheduler(&state->node, state->inputs->policy, state->inputs->seed + node, &member->sched,
					state->err));
	MD_FORWARD(md_sim_model_create(&options, &member->model, state->err));
	member->lives = true;
	state->alive++;
	return MD_OK;
}

void md_sim_member_free(struct md_sim_member *member)
{
	medusa_sched_destroy(member->sched);
	md_sim_model_destroy(member->model);
	free(member->functions.functions);
	member->sched = NULL;
	member->model = NULL;
	member->functions.functions = NULL;
	member->functions.count = 0;
	member->function_room = 0;
}

double md_sim_member_busy_s(const struct md_sim_member *member, uint32_t gpus)
{
	double busy_s = member->busy_s;
	for (uint32_t gpu = 0; member->model && gpu < gpus; gpu++)
		busy_s += md_sim_model_busy_s(member->model, gpu);
	return busy_s;
}

void md_sim_member_add_stats(const struct md_sim_member *member, struct medusa_sched_stats *sum)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	if (!member->sched || medusa_sched_stats_get(member->sched, &stats))
		return;
	sum->swaps_host += stats.swaps_host;
	sum->swaps_peer += stats.swaps_peer;
	sum->swaps_cold += stats.swaps_cold;
	sum->preloads += stats.preloads;
	sum->bytes_host += stats.bytes_host;
	sum->bytes_peer += stats.bytes_peer;
	sum->bytes_cold += stats.bytes_cold;
}

void md_sim_member_end(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	uint64_t contradictions = 0;
	md_sim_member_add_stats(member, &state->gone);
	member->busy_s = md_sim_member_busy_s(member, state->node.gpu_count);
	md_sim_model_complaint(member->model, &contradictions);
	state->result->contradictions += contradictions;
	md_sim_member_free(member);
	member->lives = false;
	state->alive--;
	md_sim_heap_update(state, node);
}

/* ---- events ---- */

/* What moves because of an action changes how its function stands. */
static bool touch(struct md_sim_cluster_state *state, uint32_t node, const struct medusa_sched_action *const *actions,
		  size_t count)
{
	const struct md_sim_member *member = &state->members[node];
	for (size_t i = 0; i < count; i++) {
		bool of_function =
		    actions[i]->type != MEDUSA_SCHED_ACTION_SET_TIMER && actions[i]->type != MEDUSA_SCHED_ACTION_REJECT;
		if (of_function && actions[i]->function < member->functions.count &&
		    !md_sim_seat_touch(state, member->locals[actions[i]->function]))
			return false;
	}
	return true;
}

static enum md_status step(struct md_sim_cluster_state *state, uint32_t node, const struct medusa_sched_event *event)
{
	struct md_sim_member *member = &state->members[node];
	const struct medusa_sched_action *const *actions;
	struct medusa_sched_event sized = *event;
	size_t count;
	sized.size = sizeof(sized);
	if (!md_sim_count_event(state, node, event))
		return md_sim_cluster_no_memory(state);
	int code = medusa_sched_step(member->sched, &sized, &actions, &count);
	if (code)
		return md_error_set(state->err, code == MEDUSA_SCHED_ERR_NO_MEMORY ? MD_ERR_NO_MEMORY : MD_ERR_INVALID,
				    "node %u, at %.6f s, event %d: %s", node, (double)event->now / 1e9, event->type,
				    medusa_sched_error(member->sched));
	md_sim_count_actions(state, node, actions, count);
	for (size_t i = 0; i < count; i++)
		if (actions[i]->type == MEDUSA_SCHED_ACTION_SET_TIMER)
			member->timer = actions[i]->at;
	if (!touch(state, node, actions, count))
		return md_sim_cluster_no_memory(state);
	md_sim_model_apply(member->model, event->now, actions, count);
	return md_sim_model_failed(member->model) ? md_sim_cluster_no_memory(state) : MD_OK;
}

/* At equal times, ends come before timers. */
enum md_status md_sim_member_go_on(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	struct medusa_sched_event event = {.type = MEDUSA_SCHED_EVENT_TIMER, .now = state->now};
	uint64_t due;
	if (!md_sim_model_due(member->model, &due) || due > state->now) {
		member->timer = MD_SIM_NEVER;
		MD_FORWARD(step(state, node, &event));
	} else {
		md_sim_model_advance(member->model);
		if (md_sim_model_failed(member->model))
			return md_sim_cluster_no_memory(state);
		while (md_sim_model_event(member->model, &event))
			MD_FORWARD(step(state, node, &event));
	}
	md_sim_heap_update(state, node);
	return MD_OK;
}

enum md_status md_sim_member_take(struct md_sim_cluster_state *state, uint32_t node, uint32_t function,
				  uint64_t request, bool job)
{
	uint32_t seat = md_sim_seat_obtain(state, function, node);
	if (seat == MEDUSA_SCHED_NONE)
		return state->err->status;
	uint32_t local = state->seats[function].seats[seat].local;
	const struct md_sim_request *asked = job ? NULL : &state->workload->requests[request];
	const struct md_sim_function *known = &state->members[node].functions.functions[local];
	const struct medusa_sched_event event = {
	    .type = MEDUSA_SCHED_EVENT_ARRIVAL,
	    .now = state->now,
	    .request = request,
	    .function = local,
	    .kv_bytes = md_sim_model_kv_bytes(known, asked),
	    .tokens = asked ? asked->generated_tokens : 1,
	    .load = job,
	};
	if (!md_sim_seat_touch(state, (struct md_sim_touched){function, seat}))
		return md_sim_cluster_no_memory(state);
	MD_FORWARD(step(state, node, &event));
	md_sim_heap_update(state, node);
	return MD_OK;
}
