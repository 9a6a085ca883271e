/* SPDX-License-Identifier: Apache-2.0 */
/* Which node computes a request: as the worker's nodes route (expected), and three other ways. */
#include <string.h>

#include "simulator/cluster/cluster_state.h"

#define NONE MEDUSA_SCHED_NONE
#define DOUBT_NS UINT64_C(3000000000) /* as in worker/cluster/route.c */

static const struct {
	const char *name, *summary;
} routings[MD_SIM_ROUTINGS] = {
    [MD_SIM_EXPECTED] = {"expected", "where the first token is expected first, from what nodes tell; medusa-worker"},
    [MD_SIM_RANDOM] = {"random", "any node that is there"},
    [MD_SIM_LEAST_LOADED] = {"least-loaded", "the node that told the fewest requests, of all models"},
    [MD_SIM_LOCALITY] = {"locality",
			 "where the model is nearest to a GPU, whoever waits there; after ServerlessLLM's locality"},
};

const char *md_sim_routing_name(enum md_sim_routing routing)
{
	return routings[routing].name;
}

const char *md_sim_routing_summary(enum md_sim_routing routing)
{
	return routings[routing].summary;
}

bool md_sim_routing_find(const char *name, size_t bytes, enum md_sim_routing *routing)
{
	for (unsigned i = 0; i < MD_SIM_ROUTINGS; i++)
		if (strlen(routings[i].name) == bytes && !memcmp(routings[i].name, name, bytes)) {
			*routing = (enum md_sim_routing)i;
			return true;
		}
	return false;
}

/* ---- what is known of nodes ---- */

static bool is_ended(const struct md_sim_cluster_state *state, uint32_t node)
{
	const struct md_sim_member *member = &state->members[node];
	return !member->lives && state->now >= member->lost_at + state->cluster->lease_ns;
}

static bool is_forgotten(const struct md_sim_cluster_state *state, uint32_t node)
{
	const struct md_sim_member *member = &state->members[node];
	return !member->lives && state->now >= member->lost_at + state->cluster->lease_ns + state->cluster->grace_ns;
}

/* state->at has the seats of the function, plus 1, by node. */
static const struct md_standing *told_by(const struct md_sim_cluster_state *state, uint32_t function, uint32_t node)
{
	uint32_t seat = state->at[node];
	return seat ? &state->seats[function].seats[seat - 1].told : &state->unused[function];
}

static void set_seats(struct md_sim_cluster_state *state, uint32_t function, bool there)
{
	const struct md_sim_seats *seats = &state->seats[function];
	for (uint32_t i = 0; i < seats->count; i++)
		state->at[seats->nodes[i]] = there ? i + 1 : 0;
}

/* ---- the ways ---- */

/* What worker/cluster/route.c does, with the same code behind it. */
static uint32_t expected(const struct md_sim_cluster_state *state, uint32_t function, uint32_t from, uint32_t avoided)
{
	struct md_offer_best best = {.found = false};
	struct md_standing own;
	for (uint32_t k = 0; k < state->count; k++) {
		uint32_t i = (from + k) % state->count;
		const struct md_offer offer = {.standing = is_forgotten(state, i) ? NULL : told_by(state, function, i),
					       .loads = state->members[i].loads,
					       .closed = i == from || i == avoided,
					       .doubted = state->members[i].doubted > state->now,
					       .ended = is_ended(state, i),
					       .open = state->open[(size_t)from * state->count + i]};
		md_offer_consider(&best, i, &offer);
	}
	md_sim_seat_standing(state, function, state->at[from] ? state->at[from] - 1 : NONE, &own);
	return md_offer_is_better(&best, md_offer_here_s(&own, md_sim_loads_of(&state->members[from]), false))
		   ? best.index
		   : from;
}

static bool may_take(const struct md_sim_cluster_state *state, uint32_t node, uint32_t avoided)
{
	return node != avoided && !is_ended(state, node) && state->members[node].doubted <= state->now;
}

static uint32_t any(struct md_sim_cluster_state *state, uint32_t avoided)
{
	uint32_t there = 0;
	for (uint32_t i = 0; i < state->count; i++)
		there += may_take(state, i, avoided);
	if (!there)
		return NONE;
	uint32_t which = (uint32_t)(md_sim_random_next(&state->random) % there), i = 0;
	for (;; i++)
		if (may_take(state, i, avoided) && !which--)
			return i;
}

static uint32_t least_loaded(const struct md_sim_cluster_state *state, uint32_t from, uint32_t avoided)
{
	uint32_t best = NONE;
	for (uint32_t k = 0; k < state->count; k++) {
		uint32_t i = (from + k) % state->count; /* so that equals are not all the same node */
		if (may_take(state, i, avoided) &&
		    (best == NONE || state->members[i].waiting < state->members[best].waiting))
			best = i;
	}
	return best;
}

static unsigned distance_of(const struct md_standing *standing)
{
	static const unsigned distances[MD_PLACES] = {[MD_PLACE_GPU] = 0,
						      [MD_PLACE_LOADING] = 1,
						      [MD_PLACE_HOST] = 2,
						      [MD_PLACE_DISK] = 3,
						      [MD_PLACE_NOWHERE] = 4};
	return distances[standing->place];
}

/* Among those that are as near, the one with the fewest requests. */
static uint32_t locality(const struct md_sim_cluster_state *state, uint32_t function, uint32_t from, uint32_t avoided)
{
	uint32_t best = NONE;
	unsigned best_distance = 0;
	for (uint32_t k = 0; k < state->count; k++) {
		uint32_t i = (from + k) % state->count;
		if (!may_take(state, i, avoided))
			continue;
		unsigned distance = distance_of(told_by(state, function, i));
		if (best != NONE &&
		    (distance > best_distance ||
		     (distance == best_distance && state->members[i].waiting >= state->members[best].waiting)))
			continue;
		best = i;
		best_distance = distance;
	}
	return best;
}

uint32_t md_sim_route_choose(struct md_sim_cluster_state *state, uint32_t function, uint32_t from, uint32_t avoided)
{
	uint32_t chosen = from;
	set_seats(state, function, true);
	if (state->routing == MD_SIM_EXPECTED)
		chosen = expected(state, function, from, avoided);
	else if (state->routing == MD_SIM_RANDOM)
		chosen = any(state, avoided);
	else if (state->routing == MD_SIM_LEAST_LOADED)
		chosen = least_loaded(state, from, avoided);
	else
		chosen = locality(state, function, from, avoided);
	set_seats(state, function, false);
	return chosen;
}

/* ---- a request ---- */

/* The client asks any node that lives, as a load balancer that looks after them lets it. */
static uint32_t ask(struct md_sim_cluster_state *state)
{
	uint32_t which = (uint32_t)(md_sim_random_next(&state->random) % state->alive), i = 0;
	for (;; i++)
		if (state->members[i].lives && !which--)
			return i;
}

static void note_found(struct md_sim_cluster_state *state, uint32_t function, uint32_t seat)
{
	static const enum md_sim_found founds[MD_PLACES] = {[MD_PLACE_GPU] = MD_SIM_FOUND_GPU,
							    [MD_PLACE_LOADING] = MD_SIM_FOUND_COMING,
							    [MD_PLACE_HOST] = MD_SIM_FOUND_HOST,
							    [MD_PLACE_DISK] = MD_SIM_FOUND_DISK};
	struct md_standing standing;
	md_sim_seat_standing(state, function, seat, &standing);
	state->result->found[founds[standing.place]]++;
}

static enum md_status give(struct md_sim_cluster_state *state, size_t request, uint32_t node)
{
	struct md_sim_asked *asked = &state->asked[request];
	uint32_t function = state->workload->requests[request].function;
	asked->seat = md_sim_seat_obtain(state, function, node);
	if (asked->seat == NONE)
		return state->err->status;
	struct md_sim_seat *seat = &state->seats[function].seats[asked->seat];
	if (asked->counted) {
		note_found(state, function, asked->seat);
		state->result->passed += node != asked->from;
	}
	asked->node = node;
	asked->first = asked->batch = 0;
	asked->aborted = 0;
	seat->taken++;
	seat->there++;
	state->members[node].there++;
	state->open[(size_t)asked->from * state->count + node] += node != asked->from;
	return md_sim_member_take(state, node, function, request, false);
}

enum md_status md_sim_route(struct md_sim_cluster_state *state, size_t request, uint32_t avoided)
{
	struct md_sim_asked *asked = &state->asked[request];
	uint32_t function = state->workload->requests[request].function;
	if (!state->alive) {
		md_sim_count_end(state, request, MD_SIM_END_NOWHERE, 0);
		return MD_OK;
	}
	if (!asked->tried || !state->members[asked->from].lives)
		asked->from = ask(state);
	uint32_t node = md_sim_route_choose(state, function, asked->from, avoided);
	while (node != NONE && !state->members[node].lives) { /* its connection is refused */
		state->members[node].doubted = state->now + DOUBT_NS;
		if (asked->tried) {
			md_sim_count_end(state, request, MD_SIM_END_BROKEN, 0);
			return MD_OK;
		}
		asked->tried = true;
		state->result->retried += asked->counted;
		node = md_sim_route_choose(state, function, asked->from, node);
	}
	if (node != NONE)
		return give(state, request, node);
	md_sim_count_end(state, request, MD_SIM_END_NOWHERE, 0);
	return MD_OK;
}
