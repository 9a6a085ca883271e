/* SPDX-License-Identifier: Apache-2.0 */
/* Which artifact is where, what the rules allow next, and the order in which a plan is loaded. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/knapsack/knapsack_state.h"

#define NONE MD_KNAPSACK_NONE

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static bool valid_input(const struct md_knapsack *in)
{
	for (uint32_t i = 0; i < in->function_count; i++) {
		const struct md_knapsack_function *function = &in->functions[i];
		if ((function->backbone != NONE && function->backbone >= in->backbone_count) || !(function->rate >= 0))
			return false;
	}
	for (uint32_t i = 0; i < in->artifact_count; i++) {
		const struct md_knapsack_artifact *artifact = &in->artifacts[i];
		uint32_t owners = artifact->class == MD_KNAPSACK_BACKBONE ? in->backbone_count : in->function_count;
		if ((unsigned)artifact->class > MD_KNAPSACK_KERNELS || artifact->owner >= owners ||
		    !(artifact->container_s >= 0) || !(artifact->gpu_s >= 0))
			return false;
	}
	for (uint32_t i = 0; i < in->held_count; i++)
		if (in->held[i].artifact >= in->artifact_count || in->held[i].place >= in->place_count)
			return false;
	return true;
}

static uint32_t *slot_of(struct md_knap *knap, const struct md_knapsack_artifact *artifact)
{
	switch (artifact->class) {
	case MD_KNAPSACK_LIBRARY:
		return &knap->library[artifact->owner];
	case MD_KNAPSACK_ADAPTER:
		return &knap->adapter[artifact->owner];
	case MD_KNAPSACK_KERNELS:
		return &knap->kernels[artifact->owner];
	case MD_KNAPSACK_BACKBONE:
		return &knap->backbone[artifact->owner];
	}
	return NULL;
}

static void index_groups(struct md_knap *knap)
{
	const struct md_knapsack *in = knap->in;
	knap->groups = in->backbone_count;
	for (uint32_t f = 0; f < in->function_count; f++) {
		uint32_t backbone = in->functions[f].backbone;
		knap->group[f] = backbone == NONE ? knap->groups++ : backbone;
		knap->first[knap->group[f] + 1]++;
	}
	for (uint32_t g = 0; g < knap->groups; g++)
		knap->first[g + 1] += knap->first[g];
	for (uint32_t f = in->function_count; f-- > 0;)
		knap->members[--knap->first[knap->group[f] + 1]] = f;
	/* filling has moved each group's start to its end, so all are shifted back by one */
	for (uint32_t g = 0; g < knap->groups; g++)
		knap->first[g] = knap->first[g + 1];
	knap->first[knap->groups] = in->function_count;
}

static bool index_artifacts(struct md_knap *knap)
{
	const struct md_knapsack *in = knap->in;
	for (uint32_t i = 0; i < in->artifact_count; i++) {
		const struct md_knapsack_artifact *artifact = &in->artifacts[i];
		uint32_t *slot = slot_of(knap, artifact);
		double rate = 0;
		if (*slot != NONE)
			return false;
		*slot = i;
		if (artifact->class != MD_KNAPSACK_BACKBONE)
			rate = in->functions[artifact->owner].rate;
		else
			for (uint32_t m = knap->first[artifact->owner]; m < knap->first[artifact->owner + 1]; m++)
				rate += in->functions[knap->members[m]].rate;
		knap->container_value[i] = artifact->container_s * rate;
		knap->gpu_value[i] =
		    (artifact->gpu_s > artifact->container_s ? artifact->gpu_s : artifact->container_s) * rate;
	}
	return true;
}

static void index_places(struct md_knap *knap)
{
	uint32_t count = 0;
	for (uint32_t gpu = 0; gpu < 2; gpu++) {
		for (uint32_t p = 0; p < knap->in->place_count; p++)
			if (knap->in->places[p].gpu == (bool)gpu)
				knap->places[count++] = p;
		if (!gpu)
			knap->containers = count;
	}
}

enum md_status md_knap_init(struct md_knap *knap, const struct md_knapsack *problem)
{
	size_t functions = problem->function_count, artifacts = problem->artifact_count,
	       groups = functions + problem->backbone_count;
	*knap = (struct md_knap){.in = problem};
	if (!valid_input(problem))
		return MD_ERR_INVALID;
	size_t words = 5 * functions + 2 * groups + 1 + problem->place_count;
	knap->memory = malloc(2 * artifacts * sizeof(double) + words * sizeof(uint32_t));
	if (!knap->memory)
		return MD_ERR_NO_MEMORY;
	knap->container_value = knap->memory;
	knap->gpu_value = knap->container_value + artifacts;
	knap->library = (uint32_t *)(knap->gpu_value + artifacts);
	knap->adapter = knap->library + functions;
	knap->kernels = knap->adapter + functions;
	knap->backbone = knap->kernels + functions;
	memset(knap->library, 0xff, (3 * functions + groups) * sizeof(uint32_t)); /* MD_KNAPSACK_NONE */
	knap->first = knap->backbone + groups;
	knap->members = knap->first + groups + 1;
	knap->group = knap->members + functions;
	knap->places = knap->group + functions;
	memset(knap->first, 0, (groups + 1) * sizeof(uint32_t));
	index_groups(knap);
	index_places(knap);
	if (!index_artifacts(knap)) {
		md_knap_finish(knap);
		return MD_ERR_INVALID;
	}
	return MD_OK;
}

void md_knap_finish(struct md_knap *knap)
{
	free(knap->memory);
	knap->memory = NULL;
}

/* ---- state ------------------------------------------------------------------------------------------------------ */

static bool hold(const struct md_knap *knap, struct md_knap_state *state)
{
	const struct md_knapsack *in = knap->in;
	for (uint32_t i = 0; i < in->held_count; i++) {
		uint32_t artifact = in->held[i].artifact, place = in->held[i].place;
		enum md_knapsack_class class = in->artifacts[artifact].class;
		bool gpu = in->places[place].gpu;
		uint64_t room = state->room[place];
		if (md_knap_has(knap, state, artifact, place) || (!gpu && state->container[artifact] != NONE) ||
		    (gpu && class != MD_KNAPSACK_BACKBONE && state->copies[artifact]))
			return false;
		if ((class == MD_KNAPSACK_LIBRARY && gpu) || (class == MD_KNAPSACK_KERNELS && !gpu))
			return false;
		state->room[place] = UINT64_MAX;
		md_knap_add(knap, state, artifact, place);
		state->room[place] = room < in->artifacts[artifact].bytes ? 0 : room - in->artifacts[artifact].bytes;
	}
	return true;
}

/* Memory for a state, without contents; false: there is none. */
static bool get_memory(const struct md_knap *knap, struct md_knap_state *state)
{
	const struct md_knapsack *in = knap->in;
	size_t copies = (size_t)in->backbone_count * in->place_count;
	*state = (struct md_knap_state){0};
	state->size = in->place_count * sizeof(uint64_t) +
		      (3 * (size_t)in->artifact_count + knap->groups) * sizeof(uint32_t) + copies;
	state->memory = malloc(state->size + 1);
	if (!state->memory)
		return false;
	state->room = state->memory;
	state->container = (uint32_t *)(state->room + in->place_count);
	state->gpu = state->container + in->artifact_count;
	state->copies = state->gpu + in->artifact_count;
	state->libraries = state->copies + in->artifact_count;
	state->copy = (uint8_t *)(state->libraries + knap->groups);
	return true;
}

enum md_status md_knap_state_init(const struct md_knap *knap, struct md_knap_state *state)
{
	const struct md_knapsack *in = knap->in;
	if (!get_memory(knap, state))
		return MD_ERR_NO_MEMORY;
	memset(state->memory, 0, state->size);
	memset(state->container, 0xff, 2 * (size_t)in->artifact_count * sizeof(uint32_t)); /* MD_KNAPSACK_NONE */
	for (uint32_t p = 0; p < in->place_count; p++)
		state->room[p] = in->places[p].bytes;
	if (!hold(knap, state)) {
		md_knap_state_finish(state);
		return MD_ERR_INVALID;
	}
	return MD_OK;
}

enum md_status md_knap_state_clone(const struct md_knap *knap, const struct md_knap_state *from,
				   struct md_knap_state *to)
{
	if (!get_memory(knap, to))
		return MD_ERR_NO_MEMORY;
	md_knap_state_copy(to, from);
	return MD_OK;
}

void md_knap_state_copy(struct md_knap_state *to, const struct md_knap_state *from)
{
	memcpy(to->memory, from->memory, from->size);
	to->value = from->value;
}

void md_knap_state_finish(struct md_knap_state *state)
{
	free(state->memory);
	state->memory = NULL;
}

static uint8_t *copy_of(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact,
			uint32_t place)
{
	return &state->copy[(size_t)knap->in->artifacts[artifact].owner * knap->in->place_count + place];
}

bool md_knap_has(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place)
{
	if (!knap->in->places[place].gpu)
		return state->container[artifact] == place;
	if (knap->in->artifacts[artifact].class == MD_KNAPSACK_BACKBONE)
		return *copy_of(knap, state, artifact, place);
	return state->gpu[artifact] == place;
}

static double value_of(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact)
{
	if (state->copies[artifact])
		return knap->gpu_value[artifact];
	return state->container[artifact] != NONE ? knap->container_value[artifact] : 0;
}

double md_knap_gain(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place)
{
	double value = knap->in->places[place].gpu ? knap->gpu_value[artifact] : knap->container_value[artifact],
	       now = value_of(knap, state, artifact);
	return value > now ? value - now : 0;
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

bool md_knap_has_library(const struct md_knap *knap, const struct md_knap_state *state, uint32_t function)
{
	return knap->library[function] == NONE || state->container[knap->library[function]] != NONE;
}

bool md_knap_has_backbone(const struct md_knap *knap, const struct md_knap_state *state, uint32_t group, uint32_t gpu)
{
	return knap->backbone[group] == NONE || *copy_of(knap, state, knap->backbone[group], gpu);
}

static bool group_has_library(const struct md_knap *knap, const struct md_knap_state *state, uint32_t group)
{
	if (state->libraries[group])
		return true;
	for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++)
		if (knap->library[knap->members[m]] == NONE)
			return true;
	return false;
}

static bool kernels_supported(const struct md_knap *knap, const struct md_knap_state *state, uint32_t function,
			      uint32_t gpu)
{
	uint32_t group = knap->group[function], adapter = knap->adapter[function];
	if (!md_knap_has_backbone(knap, state, group, gpu) && state->container[knap->backbone[group]] == NONE)
		return false;
	if (adapter == NONE || state->gpu[adapter] == gpu)
		return true;
	return state->gpu[adapter] == NONE && state->container[adapter] != NONE;
}

bool md_knap_supported(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place)
{
	const struct md_knapsack_artifact *it = &knap->in->artifacts[artifact];
	bool gpu = knap->in->places[place].gpu;
	switch (it->class) {
	case MD_KNAPSACK_LIBRARY:
		return !gpu;
	case MD_KNAPSACK_BACKBONE:
		return group_has_library(knap, state, it->owner);
	case MD_KNAPSACK_ADAPTER: {
		uint32_t kernels = knap->kernels[it->owner];
		if (!md_knap_has_library(knap, state, it->owner))
			return false;
		return !gpu || (md_knap_has_backbone(knap, state, knap->group[it->owner], place) &&
				(kernels == NONE || state->gpu[kernels] == NONE || state->gpu[kernels] == place));
	}
	case MD_KNAPSACK_KERNELS:
		return gpu && md_knap_has_library(knap, state, it->owner) &&
		       kernels_supported(knap, state, it->owner, place);
	}
	return false;
}

bool md_knap_may_add(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place)
{
	const struct md_knapsack_artifact *it = &knap->in->artifacts[artifact];
	if (it->bytes > state->room[place] || md_knap_has(knap, state, artifact, place))
		return false;
	if (!knap->in->places[place].gpu && state->container[artifact] != NONE)
		return false;
	if (knap->in->places[place].gpu && it->class != MD_KNAPSACK_BACKBONE && state->copies[artifact])
		return false;
	return md_knap_supported(knap, state, artifact, place);
}

void md_knap_add(const struct md_knap *knap, struct md_knap_state *state, uint32_t artifact, uint32_t place)
{
	const struct md_knapsack_artifact *it = &knap->in->artifacts[artifact];
	state->value += md_knap_gain(knap, state, artifact, place);
	state->room[place] -= it->bytes;
	if (!knap->in->places[place].gpu) {
		state->container[artifact] = place;
		if (it->class == MD_KNAPSACK_LIBRARY)
			state->libraries[knap->group[it->owner]]++;
		return;
	}
	if (it->class == MD_KNAPSACK_BACKBONE)
		*copy_of(knap, state, artifact, place) = 1;
	if (!state->copies[artifact]++)
		state->gpu[artifact] = place;
}

void md_knap_remove(const struct md_knap *knap, struct md_knap_state *state, uint32_t artifact, uint32_t place)
{
	const struct md_knapsack_artifact *it = &knap->in->artifacts[artifact];
	double before = value_of(knap, state, artifact);
	state->room[place] += it->bytes;
	if (!knap->in->places[place].gpu) {
		state->container[artifact] = NONE;
		if (it->class == MD_KNAPSACK_LIBRARY)
			state->libraries[knap->group[it->owner]]--;
	} else {
		if (it->class == MD_KNAPSACK_BACKBONE)
			*copy_of(knap, state, artifact, place) = 0;
		if (!--state->copies[artifact])
			state->gpu[artifact] = NONE;
	}
	state->value -= before - value_of(knap, state, artifact);
}
