/* SPDX-License-Identifier: Apache-2.0 */
/* Functions at nodes: which nodes know one, how each stands there, and what the others were told of that. */
#include <stdlib.h>

#include "base/array.h"
#include "simulator/cluster/cluster_state.h"

#define NONE MEDUSA_SCHED_NONE

uint32_t md_sim_seat_find(const struct md_sim_cluster_state *state, uint32_t function, uint32_t node)
{
	const struct md_sim_seats *seats = &state->seats[function];
	for (uint32_t i = 0; i < seats->count; i++)
		if (seats->nodes[i] == node)
			return i;
	return NONE;
}

/* ---- seconds to a first token, as nodes state them before anything is measured ---- */

/* What a load takes alone, without sharing links; the model says how long it takes indeed. */
static void time_starts(const struct md_sim_node *node, const struct medusa_sched_function *spec,
			double first_s[MD_STARTS])
{
	double weights = (double)spec->weight_bytes, library = (double)spec->library_bytes;
	double speed = node->host_bytes_per_s;
	if (node->switch_bytes_per_s > 0 && node->switch_bytes_per_s < speed)
		speed = node->switch_bytes_per_s;
	first_s[MD_START_GPU] = (double)spec->t0_ns * 1e-9;
	first_s[MD_START_HOST] = (double)spec->swap_ns * 1e-9;
	if (!spec->swap_ns)
		first_s[MD_START_HOST] =
		    first_s[MD_START_GPU] + (double)spec->context_ns * 1e-9 + (speed > 0 ? weights / speed : 0);
	first_s[MD_START_DISK] = first_s[MD_START_HOST] + (double)spec->cold_ns * 1e-9 +
				 (node->cold_bytes_per_s > 0 ? (weights + library) / node->cold_bytes_per_s : 0);
}

enum md_status md_sim_seats_prepare(struct md_sim_cluster_state *state)
{
	size_t count = (size_t)state->functions.count + 1;
	state->seats = calloc(count, sizeof(*state->seats));
	state->unused = calloc(count, sizeof(*state->unused));
	if (!state->seats || !state->unused)
		return md_sim_cluster_no_memory(state);
	for (uint32_t i = 0; i < state->functions.count; i++) {
		struct md_standing *unused = &state->unused[i];
		unused->place = MD_PLACE_DISK;
		time_starts(&state->node, &state->functions.functions[i].spec, unused->first_s);
	}
	return MD_OK;
}

void md_sim_seats_finish(struct md_sim_cluster_state *state)
{
	for (uint32_t i = 0; state->seats && i < state->functions.count; i++) {
		free(state->seats[i].seats);
		free(state->seats[i].nodes);
	}
	free(state->seats);
	free(state->unused);
	free(state->touched);
}

/* ---- seats ---- */

static uint32_t add_seat(struct md_sim_cluster_state *state, uint32_t function, uint32_t node)
{
	struct md_sim_seats *seats = &state->seats[function];
	if (!MD_ARRAY_GROW(seats->seats, seats->count, seats->room) ||
	    !MD_ARRAY_GROW(seats->nodes, seats->count, seats->node_room)) {
		md_sim_cluster_no_memory(state);
		return NONE;
	}
	seats->seats[seats->count] = (struct md_sim_seat){.local = NONE, .told = state->unused[function]};
	seats->nodes[seats->count] = node;
	return seats->count++;
}

/* The node's scheduler and model learn of the function. */
static bool introduce(struct md_sim_cluster_state *state, uint32_t node, struct md_sim_touched which, uint32_t *local)
{
	struct md_sim_member *member = &state->members[node];
	struct md_sim_functions *functions = &member->functions;
	const struct md_sim_function *function = &state->functions.functions[which.function];
	if (!MD_ARRAY_GROW(functions->functions, functions->count, member->function_room) ||
	    !MD_ARRAY_GROW(member->locals, functions->count, member->local_room)) {
		md_sim_cluster_no_memory(state);
		return false;
	}
	if (medusa_sched_add_function(member->sched, &function->spec, local)) {
		md_error_set(state->err, MD_ERR_INVALID, "function %s: %s", function->name,
			     medusa_sched_error(member->sched));
		return false;
	}
	functions->functions[functions->count] = *function;
	member->locals[functions->count++] = which;
	if (md_sim_model_add_functions(member->model))
		return true;
	md_sim_cluster_no_memory(state);
	return false;
}

uint32_t md_sim_seat_obtain(struct md_sim_cluster_state *state, uint32_t function, uint32_t node)
{
	uint32_t index = md_sim_seat_find(state, function, node), local;
	if (index == NONE)
		index = add_seat(state, function, node);
	if (index == NONE || state->seats[function].seats[index].local != NONE)
		return index;
	if (!introduce(state, node, (struct md_sim_touched){function, index}, &local))
		return NONE;
	state->seats[function].seats[index].local = local;
	return index;
}

/* What others know of the node stays as it was told, until its grace is over. */
void md_sim_seats_leave(struct md_sim_cluster_state *state, uint32_t node)
{
	struct md_sim_member *member = &state->members[node];
	for (uint32_t i = 0; i < member->functions.count; i++) {
		const struct md_sim_touched *which = &member->locals[i];
		struct md_sim_seat *seat = &state->seats[which->function].seats[which->seat];
		seat->gone = true;
		seat->local = NONE;
		seat->there = 0;
	}
	member->wanted_count = 0;
}

void md_sim_seats_begin(struct md_sim_cluster_state *state, uint32_t node)
{
	for (uint32_t f = 0; f < state->functions.count; f++) {
		uint32_t index = md_sim_seat_find(state, f, node);
		if (index == NONE)
			continue;
		struct md_sim_seat *seat = &state->seats[f].seats[index];
		*seat = (struct md_sim_seat){.local = NONE, .told = state->unused[f], .dirty = seat->dirty};
	}
}

/* ---- standings ---- */

static enum md_place place_of(const struct md_sim_cluster_state *state, uint32_t node, uint32_t local)
{
	static const enum md_place places[] = {[MD_SIM_ON_GPU] = MD_PLACE_GPU,
					       [MD_SIM_LOADING] = MD_PLACE_LOADING,
					       [MD_SIM_RETURNING] = MD_PLACE_HOST,
					       [MD_SIM_IN_HOST] = MD_PLACE_HOST,
					       [MD_SIM_ON_DISK] = MD_PLACE_DISK};
	return places[md_sim_model_where(state->members[node].model, local)];
}

/* Copies share the disk in equal parts, so each other one makes a load longer by as much as it takes alone. */
struct md_loads md_sim_loads_of(const struct md_sim_member *member)
{
	return (struct md_loads){.count = member->model ? md_sim_model_cold_copies(member->model) : 0, .slows = 1};
}

void md_sim_seat_standing(const struct md_sim_cluster_state *state, uint32_t function, uint32_t index,
			  struct md_standing *standing)
{
	const struct md_sim_seats *seats = &state->seats[function];
	*standing = state->unused[function];
	if (index == NONE || seats->seats[index].local == NONE)
		return;
	const struct md_sim_seat *seat = &seats->seats[index];
	struct medusa_sched_function_state now = {.size = sizeof(now)};
	standing->place = place_of(state, seats->nodes[index], seat->local);
	standing->rate = seat->demand.told_rate;
	standing->busy = seat->demand.told_busy;
	if (!seat->there || medusa_sched_function_get(state->members[seats->nodes[index]].sched, seat->local, &now))
		return;
	standing->running = now.running;
	standing->waiting = seat->there > now.running ? seat->there - now.running : 0;
}

bool md_sim_seat_touch(struct md_sim_cluster_state *state, struct md_sim_touched touched)
{
	struct md_sim_seat *seat = &state->seats[touched.function].seats[touched.seat];
	if (seat->dirty)
		return true;
	if (!MD_ARRAY_GROW(state->touched, state->touched_count, state->touched_room))
		return false;
	state->touched[state->touched_count++] = touched;
	seat->dirty = true;
	return true;
}

static bool is_on_its_way(const struct md_sim_cluster_state *state, struct md_sim_touched which)
{
	const struct md_sim_seats *seats = &state->seats[which.function];
	enum md_sim_where where =
	    md_sim_model_where(state->members[seats->nodes[which.seat]].model, seats->seats[which.seat].local);
	return where == MD_SIM_LOADING || where == MD_SIM_RETURNING;
}

/* What is on its way is looked at again next time. */
void md_sim_seats_tell(struct md_sim_cluster_state *state)
{
	size_t kept = 0;
	for (size_t i = 0; i < state->touched_count; i++) {
		struct md_sim_touched which = state->touched[i];
		struct md_sim_seat *seat = &state->seats[which.function].seats[which.seat];
		seat->dirty = false;
		if (seat->gone || seat->local == NONE)
			continue;
		struct md_standing now;
		md_sim_seat_standing(state, which.function, which.seat, &now);
		md_standing_round(&now);
		seat->told = now;
		if (is_on_its_way(state, which)) {
			seat->dirty = true;
			state->touched[kept++] = which;
		}
	}
	state->touched_count = kept;
	for (uint32_t i = 0; i < state->count; i++)
		if (state->members[i].lives) {
			state->members[i].waiting = state->members[i].there;
			state->members[i].loads = md_sim_loads_of(&state->members[i]);
		}
}
