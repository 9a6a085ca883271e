/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that are lost and come back, one by one or a domain at once; what becomes of their requests. */
#include <stdlib.h>

#include "base/array.h"
#include "simulator/cluster/cluster_state.h"

#define LOSSES_STREAM 0x6c6f7373u
#define HAPPENINGS_MAX 1000000u

static enum md_status add(struct md_sim_cluster_state *state, uint64_t at, uint32_t node, bool back)
{
	if (state->happening_count == HAPPENINGS_MAX)
		return md_error_set(state->err, MD_ERR_TOO_LARGE,
				    "node_lost_every: more than %u losses of nodes; a longer time, or a shorter trace",
				    HAPPENINGS_MAX);
	if (!MD_ARRAY_GROW(state->happenings, state->happening_count, state->happening_room))
		return md_sim_cluster_no_memory(state);
	state->happenings[state->happening_count++] = (struct md_sim_happening){.at = at, .node = node, .back = back};
	return MD_OK;
}

/* A node's losses do not depend on how many other nodes there are. */
static enum md_status draw_losses(struct md_sim_cluster_state *state, uint32_t node)
{
	const struct md_sim_cluster *cluster = state->cluster;
	struct md_sim_random random = md_sim_random_of(state->inputs->seed ^ LOSSES_STREAM, node);
	double end = (double)state->workload->end, at = 0;
	for (;;) {
		at += md_sim_random_exponential(&random, (double)cluster->lost_every_ns);
		if (!(at < end))
			return MD_OK;
		MD_FORWARD(add(state, (uint64_t)at, node, false));
		at += (double)cluster->lost_for_ns;
		MD_FORWARD(add(state, (uint64_t)at, node, true));
	}
}

static enum md_status add_domain(struct md_sim_cluster_state *state, const struct md_sim_domain_loss *loss)
{
	uint32_t first = loss->domain * state->cluster->domain_nodes;
	for (uint32_t i = first; i < first + state->cluster->domain_nodes && i < state->count; i++) {
		MD_FORWARD(add(state, loss->at, i, false));
		if (loss->back)
			MD_FORWARD(add(state, loss->at + loss->back, i, true));
	}
	return MD_OK;
}

static int compare(const void *a, const void *b)
{
	const struct md_sim_happening *one = a, *other = b;
	if (one->at != other->at)
		return one->at < other->at ? -1 : 1;
	if (one->node != other->node)
		return one->node < other->node ? -1 : 1;
	return one->back - other->back;
}

enum md_status md_sim_losses_prepare(struct md_sim_cluster_state *state)
{
	for (uint32_t i = 0; state->cluster->lost_every_ns && i < state->count; i++)
		MD_FORWARD(draw_losses(state, i));
	for (uint32_t i = 0; i < state->cluster->loss_count; i++)
		MD_FORWARD(add_domain(state, &state->cluster->losses[i]));
	if (state->happening_count)
		qsort(state->happenings, state->happening_count, sizeof(*state->happenings), compare);
	return MD_OK;
}

/* ---- what happens ---- */

/* An answer that has begun ends with an error; what nothing was answered of is tried elsewhere, once. */
static enum md_status move_request(struct md_sim_cluster_state *state, size_t request, uint32_t lost)
{
	struct md_sim_asked *asked = &state->asked[request];
	state->open[(size_t)asked->from * state->count + lost] -= asked->from != lost;
	if (asked->first || asked->tried) {
		md_sim_count_end(state, request, MD_SIM_END_BROKEN, 0);
		return MD_OK;
	}
	asked->tried = true;
	state->result->retried += asked->counted;
	return md_sim_route(state, request, lost);
}

static enum md_status lose(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	size_t arrived = state->arrived;
	md_sim_seats_leave(state, node);
	md_sim_member_end(state, node);
	member->lost_at = state->now;
	member->there = 0;
	member->job = 0;
	state->result->lost++;
	while (state->oldest < arrived && state->asked[state->oldest].ended)
		state->oldest++;
	for (size_t i = state->oldest; i < arrived; i++)
		if (!state->asked[i].ended && state->asked[i].node == node)
			MD_FORWARD(move_request(state, i, node));
	return MD_OK;
}

static enum md_status come_back(struct md_sim_cluster_state *state, uint32_t node)
{
	state->members[node].doubted = 0;
	state->members[node].waiting = 0;
	md_sim_seats_begin(state, node);
	MD_FORWARD(md_sim_member_begin(state, node));
	state->result->back++;
	md_sim_heap_update(state, node);
	return MD_OK;
}

enum md_status md_sim_losses_happen(struct md_sim_cluster_state *state)
{
	const struct md_sim_happening *happening = &state->happenings[state->happened++];
	bool lives = state->members[happening->node].lives;
	if (happening->back == lives) /* else it was lost, or came back, for another reason already */
		return MD_OK;
	return happening->back ? come_back(state, happening->node) : lose(state, happening->node);
}
