/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's rounds: which models are to lie on which nodes, and how nodes do that; as worker/cluster/leader.c and obey.c. */
#include <stdlib.h>
#include <time.h>

#include "base/array.h"
#include "medusa/scheduler_cluster.h"
#include "simulator/cluster/cluster_state.h"

#define NONE MEDUSA_SCHED_NONE
#define AGAIN_NS UINT64_C(30000000000) /* what requests for others have sent away is not loaded again at once */
#define UNLIMITED 256u                 /* requests at one time of an engine that states no limit */

/* ---- what the leader knows ---- */

struct problem {
	struct medusa_sched_cluster_node *nodes;
	struct medusa_sched_cluster_model *models;
	struct medusa_sched_cluster_place *places;
	uint32_t place_count, place_room;
};

static void finish(struct problem *p)
{
	free(p->nodes);
	free(p->models);
	free(p->places);
}

static uint32_t parallel_of(const struct medusa_sched_function *spec)
{
	uint32_t batch = spec->max_batch ? spec->max_batch : spec->continuous ? UNLIMITED : 1;
	return spec->continuous ? batch : batch * (spec->max_parallel ? spec->max_parallel : 1);
}

static void state_nodes(const struct md_sim_cluster_state *state, struct problem *p)
{
	for (uint32_t i = 0; i < state->count; i++) {
		const struct md_sim_member *member = &state->members[i];
		p->nodes[i].domain = i / state->cluster->domain_nodes;
		p->nodes[i].closed = !member->lives && state->now >= member->lost_at + state->cluster->lease_ns;
		for (uint32_t gpu = 0; gpu < state->node.gpu_count; gpu++)
			p->nodes[i].memory_bytes += state->node.gpus[gpu].memory_bytes;
	}
}

/* By the last plan. */
static bool is_planned(const struct md_sim_cluster_state *state, const struct md_sim_seat *seat)
{
	return seat->planned && seat->planned == state->result->rounds;
}

static bool is_forgotten(const struct md_sim_cluster_state *state, uint32_t node)
{
	return state->now >= state->members[node].lost_at + state->cluster->lease_ns + state->cluster->grace_ns;
}

/* Rates and busy times as nodes tell them, or told before their leases ended; false: out of memory. */
static bool state_model(struct md_sim_cluster_state *state, uint32_t function, struct problem *p)
{
	const struct medusa_sched_function *spec = &state->functions.functions[function].spec;
	const struct md_standing *unused = &state->unused[function];
	struct md_sim_seats *seats = &state->seats[function];
	struct medusa_sched_cluster_model *model = &p->models[function];
	double seconds = (double)state->cluster->placement_ns * 1e-9, running = 0;
	*model = (struct medusa_sched_cluster_model){.bytes = spec->weight_bytes + spec->context_bytes,
						     .load_s =
							 unused->first_s[MD_START_DISK] - unused->first_s[MD_START_GPU],
						     .anywhere = 1};
	for (uint32_t i = 0; i < seats->count; i++) {
		struct md_sim_seat *seat = &seats->seats[i];
		if (seat->gone ? is_forgotten(state, seats->nodes[i]) : seat->local == NONE)
			continue;
		if (!seat->gone)
			md_demand_note(&seat->demand, seat->taken, seat->there, seconds);
		model->rate += seat->demand.told_rate;
		running += seat->demand.told_busy / parallel_of(spec);
		bool loaded = seat->told.place == MD_PLACE_GPU || seat->told.place == MD_PLACE_LOADING;
		if (!loaded && !is_planned(state, seat))
			continue;
		if (!MD_ARRAY_GROW(p->places, p->place_count, p->place_room))
			return false;
		p->places[p->place_count++] = (struct medusa_sched_cluster_place){
		    .model = function, .node = seats->nodes[i], .loaded = loaded, .planned = is_planned(state, seat)};
	}
	model->busy_s = model->rate > 0 ? running / model->rate : 0;
	return true;
}

static bool state_problem(struct md_sim_cluster_state *state, struct problem *p)
{
	p->nodes = calloc((size_t)state->count + 1, sizeof(*p->nodes));
	p->models = calloc((size_t)state->functions.count + 1, sizeof(*p->models));
	if (!p->nodes || !p->models)
		return false;
	state_nodes(state, p);
	for (uint32_t i = 0; i < state->functions.count; i++)
		if (!state_model(state, i, p))
			return false;
	return true;
}

/* ---- what follows ---- */

static double cpu_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The new plan has a number that is one more. False: out of memory, or the scheduler refuses the function. */
static bool take_choice(struct md_sim_cluster_state *state, const struct medusa_sched_cluster_choice *choice)
{
	struct md_sim_member *member = &state->members[choice->node];
	if (!member->lives) { /* nobody there reads it */
		uint32_t lost = md_sim_seat_find(state, choice->model, choice->node);
		if (lost != NONE)
			state->seats[choice->model].seats[lost].planned = state->result->rounds + 1;
		return true;
	}
	uint32_t index = md_sim_seat_obtain(state, choice->model, choice->node);
	if (index == NONE)
		return false;
	if (!MD_ARRAY_GROW(member->wanted, member->wanted_count, member->wanted_room)) {
		md_sim_cluster_no_memory(state);
		return false;
	}
	member->wanted[member->wanted_count++] = choice->model;
	struct md_sim_seat *seat = &state->seats[choice->model].seats[index];
	state->result->moved += !is_planned(state, seat);
	seat->planned = state->result->rounds + 1;
	return true;
}

static enum md_status take_plan(struct md_sim_cluster_state *state, const struct medusa_sched_cluster_choice *choices,
				uint32_t count)
{
	for (uint32_t i = 0; i < state->count; i++)
		state->members[i].wanted_count = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!take_choice(state, &choices[i]))
			return state->err->status;
	state->result->rounds++;
	state->result->copies = count;
	for (uint32_t i = 0; i < state->count; i++)
		MD_FORWARD(md_sim_obey(state, i));
	return MD_OK;
}

enum md_status md_sim_round(struct md_sim_cluster_state *state)
{
	struct problem p = {0};
	struct medusa_sched_cluster_choice *choices = NULL;
	uint32_t count = 0;
	enum md_status status = MD_OK;
	if (!state_problem(state, &p)) {
		finish(&p);
		return md_sim_cluster_no_memory(state);
	}
	const struct medusa_sched_cluster cluster = {.size = sizeof(cluster),
						     .nodes = p.nodes,
						     .models = p.models,
						     .places = p.places,
						     .node_count = state->count,
						     .model_count = state->functions.count,
						     .place_count = p.place_count};
	double began = cpu_ms();
	if (medusa_sched_cluster_plan(&cluster, &choices, &count))
		status = md_error_set(state->err, MD_ERR_INVALID, "the leader's plan: %s", medusa_sched_error(NULL));
	else if (!md_sim_samples_add(&state->result->plan_ms, cpu_ms() - began))
		status = md_sim_cluster_no_memory(state);
	if (status == MD_OK)
		status = take_plan(state, choices, count);
	medusa_sched_cluster_free(choices);
	finish(&p);
	return status;
}

/* One model at a time is loaded ahead of requests, as a request would load it. */
enum md_status md_sim_obey(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	for (uint32_t i = 0; member->lives && !member->job && i < member->wanted_count; i++) {
		uint32_t function = member->wanted[i], index = md_sim_seat_find(state, function, node);
		struct md_sim_seat *seat = &state->seats[function].seats[index];
		enum md_sim_where where = md_sim_model_where(member->model, seat->local);
		if ((where != MD_SIM_IN_HOST && where != MD_SIM_ON_DISK) ||
		    (seat->tried_at && state->now - seat->tried_at < AGAIN_NS))
			continue;
		seat->tried_at = state->now;
		member->job = state->workload->count + ++state->jobs;
		state->result->ahead++;
		return md_sim_member_take(state, node, function, member->job, true);
	}
	return MD_OK;
}
