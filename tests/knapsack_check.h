/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of knapsack.h once more, from its text alone: a checker that shares no code with the solvers. */
#ifndef MD_TESTS_KNAPSACK_CHECK_H
#define MD_TESTS_KNAPSACK_CHECK_H

#include <stdio.h>
#include <string.h>

#include "scheduler/knapsack/knapsack.h"

#define CHECK_MOST 64 /* places */

struct knapsack_check {
	const struct md_knapsack *problem;
	uint64_t *at; /* per artifact: a bit for each place */
	uint64_t used[CHECK_MOST];
	char broken[200]; /* the first rule that is, or empty */
};

static inline uint64_t check_gpus(const struct md_knapsack *problem)
{
	uint64_t gpus = 0;
	for (uint32_t p = 0; p < problem->place_count; p++)
		gpus |= (uint64_t)problem->places[p].gpu << p;
	return gpus;
}

/* Where an artifact is; all places if there is no such artifact. */
static inline uint64_t check_where(const struct knapsack_check *check, enum md_knapsack_class class, uint32_t owner)
{
	for (uint32_t i = 0; i < check->problem->artifact_count; i++)
		if (check->problem->artifacts[i].class == class && check->problem->artifacts[i].owner == owner)
			return check->at[i];
	return UINT64_MAX;
}

static inline bool check_exists(const struct knapsack_check *check, enum md_knapsack_class class, uint32_t owner)
{
	return check_where(check, class, owner) != UINT64_MAX;
}

static inline const char *check_models(const struct knapsack_check *check, uint32_t function, uint64_t bit)
{
	uint64_t gpus = check_gpus(check->problem), reachable = ~gpus | bit;
	uint32_t backbone = check->problem->functions[function].backbone;
	uint64_t adapter = check_where(check, MD_KNAPSACK_ADAPTER, function);
	if (backbone != MD_KNAPSACK_NONE && !(check_where(check, MD_KNAPSACK_BACKBONE, backbone) & reachable))
		return "kernels without their backbone";
	if (!(adapter & reachable))
		return "kernels without their adapter";
	if (adapter != UINT64_MAX && (adapter & gpus) && !(adapter & bit))
		return "kernels on another GPU than the adapter";
	return NULL;
}

static inline const char *check_rule(const struct knapsack_check *check, const struct md_knapsack_artifact *artifact,
				     uint64_t at, uint64_t bit)
{
	const struct md_knapsack *problem = check->problem;
	uint64_t gpus = check_gpus(problem), same_kind = bit & gpus ? gpus : ~gpus;
	uint32_t owner = artifact->owner;
	bool library = false;
	if (at & bit)
		return "twice in one place";
	if ((at & same_kind) && !(artifact->class == MD_KNAPSACK_BACKBONE && (bit & gpus)))
		return "in two places of a kind";
	if (artifact->class == MD_KNAPSACK_LIBRARY)
		return bit & gpus ? "a library on a GPU" : NULL;
	if (artifact->class == MD_KNAPSACK_BACKBONE) {
		for (uint32_t f = 0; f < problem->function_count; f++)
			library |=
			    problem->functions[f].backbone == owner && check_where(check, MD_KNAPSACK_LIBRARY, f);
		return library ? NULL : "a backbone before every library";
	}
	if (!check_where(check, MD_KNAPSACK_LIBRARY, owner))
		return "before its library";
	if (artifact->class == MD_KNAPSACK_KERNELS)
		return bit & gpus ? check_models(check, owner, bit) : "kernels in a container";
	if (!(bit & gpus))
		return NULL;
	uint32_t backbone = problem->functions[owner].backbone;
	if (backbone != MD_KNAPSACK_NONE && !(check_where(check, MD_KNAPSACK_BACKBONE, backbone) & bit))
		return "an adapter on a GPU without its backbone";
	uint64_t kernels = check_where(check, MD_KNAPSACK_KERNELS, owner);
	if (check_exists(check, MD_KNAPSACK_KERNELS, owner) && (kernels & gpus) && !(kernels & bit))
		return "an adapter on another GPU than the kernels";
	return NULL;
}

static inline void check_put(struct knapsack_check *check, const struct md_knapsack_placement *placement, bool held)
{
	const struct md_knapsack *problem = check->problem;
	if (placement->artifact >= problem->artifact_count || placement->place >= problem->place_count) {
		snprintf(check->broken, sizeof(check->broken), "no such artifact or place");
		return;
	}
	const struct md_knapsack_artifact *artifact = &problem->artifacts[placement->artifact];
	uint64_t bit = 1ull << placement->place;
	const char *why = held ? NULL : check_rule(check, artifact, check->at[placement->artifact], bit);

	check->used[placement->place] += artifact->bytes;
	if (!held && check->used[placement->place] > problem->places[placement->place].bytes)
		why = "more than there is room";
	check->at[placement->artifact] |= bit;
	if (why && !check->broken[0])
		snprintf(check->broken, sizeof(check->broken), "artifact %u (class %d) in place %u: %s",
			 placement->artifact, (int)artifact->class, placement->place, why);
}

static inline double check_value(const struct knapsack_check *check)
{
	const struct md_knapsack *problem = check->problem;
	double value = 0;
	for (uint32_t i = 0; i < problem->artifact_count; i++) {
		const struct md_knapsack_artifact *artifact = &problem->artifacts[i];
		double rate = 0, spared = 0;
		for (uint32_t f = 0; f < problem->function_count; f++)
			if (artifact->class == MD_KNAPSACK_BACKBONE ? problem->functions[f].backbone == artifact->owner
								    : f == artifact->owner)
				rate += problem->functions[f].rate;
		if (check->at[i])
			spared = artifact->container_s;
		if ((check->at[i] & check_gpus(problem)) && artifact->gpu_s > spared)
			spared = artifact->gpu_s;
		value += rate * spared;
	}
	return value;
}

/* `at` has room for artifact_count words. */
static inline void check_begin(struct knapsack_check *check, const struct md_knapsack *problem, uint64_t *at)
{
	*check = (struct knapsack_check){.problem = problem, .at = at};
	memset(at, 0, problem->artifact_count * sizeof(*at));
	for (uint32_t i = 0; i < problem->held_count; i++)
		check_put(check, &problem->held[i], true);
}

#endif
