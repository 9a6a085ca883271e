/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the loading order of a plan from the final places of all artifacts. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/knapsack/knapsack_state.h"

#define NONE MD_KNAPSACK_NONE

struct candidate {
	struct md_knapsack_placement placement;
	double density;
};

struct writer {
	const struct md_knap *knap;
	const struct md_knap_state *end;
	struct md_knap_state now;
	struct md_knapsack_plan plan;
};

static double density(const struct md_knap *knap, uint32_t artifact, uint32_t place)
{
	uint64_t bytes = knap->in->artifacts[artifact].bytes;
	return (knap->in->places[place].gpu ? knap->gpu_value : knap->container_value)[artifact] /
	       (double)(bytes ? bytes : 1);
}

static int compare(const void *a, const void *b)
{
	const struct candidate *one = a, *other = b;
	if (one->density != other->density)
		return one->density > other->density ? -1 : 1;
	if (one->placement.artifact != other->placement.artifact)
		return one->placement.artifact < other->placement.artifact ? -1 : 1;
	return one->placement.place < other->placement.place ? -1 : one->placement.place > other->placement.place;
}

static void write_one(struct writer *writer, uint32_t artifact, uint32_t place)
{
	if (md_knap_has(writer->knap, &writer->now, artifact, place))
		return;
	md_knap_add(writer->knap, &writer->now, artifact, place);
	writer->plan.placements[writer->plan.count++] =
	    (struct md_knapsack_placement){.artifact = artifact, .place = place};
}

static void write_library(struct writer *writer, uint32_t function)
{
	uint32_t library = writer->knap->library[function];
	if (library != NONE && writer->end->container[library] != NONE)
		write_one(writer, library, writer->end->container[library]);
}

/* Adds the library of the group with the greatest value / bytes, unless one is there already. */
static void write_any_library(struct writer *writer, uint32_t group)
{
	const struct md_knap *knap = writer->knap;
	uint32_t best = NONE;
	double most = -1;
	if (writer->now.libraries[group])
		return;
	for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++) {
		uint32_t library = knap->library[knap->members[m]];
		if (library == NONE)
			return;
		uint32_t place = writer->end->container[library];
		if (place != NONE && density(knap, library, place) > most) {
			most = density(knap, library, place);
			best = knap->members[m];
		}
	}
	if (best != NONE)
		write_library(writer, best);
}

static void write_backbone(struct writer *writer, uint32_t group, uint32_t place)
{
	if (place == NONE)
		return;
	write_any_library(writer, group);
	write_one(writer, writer->knap->backbone[group], place);
}

static void write_adapter(struct writer *writer, uint32_t function, uint32_t place)
{
	const struct md_knap *knap = writer->knap;
	uint32_t group = knap->group[function];
	write_library(writer, function);
	if (knap->in->places[place].gpu && knap->backbone[group] != NONE &&
	    md_knap_has_backbone(knap, writer->end, group, place))
		write_backbone(writer, group, place);
	write_one(writer, knap->adapter[function], place);
}

static void write_kernels(struct writer *writer, uint32_t function, uint32_t place)
{
	const struct md_knap *knap = writer->knap;
	uint32_t group = knap->group[function], backbone = knap->backbone[group], adapter = knap->adapter[function];
	write_library(writer, function);
	if (backbone != NONE)
		write_backbone(
		    writer, group,
		    md_knap_has_backbone(knap, writer->end, group, place) ? place : writer->end->container[backbone]);
	if (adapter != NONE && writer->end->gpu[adapter] != NONE)
		write_adapter(writer, function, writer->end->gpu[adapter]);
	else if (adapter != NONE && writer->end->container[adapter] != NONE)
		write_adapter(writer, function, writer->end->container[adapter]);
	write_one(writer, knap->kernels[function], place);
}

static void write_with_prerequisites(struct writer *writer, const struct md_knapsack_placement *placement)
{
	const struct md_knapsack_artifact *artifact = &writer->knap->in->artifacts[placement->artifact];
	switch (artifact->class) {
	case MD_KNAPSACK_LIBRARY:
		write_library(writer, artifact->owner);
		break;
	case MD_KNAPSACK_BACKBONE:
		write_backbone(writer, artifact->owner, placement->place);
		break;
	case MD_KNAPSACK_ADAPTER:
		write_adapter(writer, artifact->owner, placement->place);
		break;
	case MD_KNAPSACK_KERNELS:
		write_kernels(writer, artifact->owner, placement->place);
		break;
	}
}

static uint32_t count_new(const struct md_knap *knap, const struct md_knap_state *start,
			  const struct md_knap_state *end)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < knap->in->artifact_count; i++)
		count += (end->container[i] != start->container[i]) + end->copies[i] - start->copies[i];
	return count;
}

static void list_one(const struct md_knap *knap, uint32_t artifact, uint32_t place, struct candidate *candidates,
		     uint32_t *count)
{
	candidates[(*count)++] =
	    (struct candidate){.placement = {artifact, place}, .density = density(knap, artifact, place)};
}

static uint32_t list_new(const struct md_knap *knap, const struct md_knap_state *start, const struct md_knap_state *end,
			 struct candidate *candidates)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < knap->in->artifact_count; i++) {
		if (end->container[i] != start->container[i])
			list_one(knap, i, end->container[i], candidates, &count);
		for (uint32_t k = knap->containers; end->copies[i] != start->copies[i] && k < knap->in->place_count;
		     k++)
			if (md_knap_has(knap, end, i, knap->places[k]) && !md_knap_has(knap, start, i, knap->places[k]))
				list_one(knap, i, knap->places[k], candidates, &count);
	}
	return count;
}

enum md_status md_knap_plan(const struct md_knap *knap, const struct md_knap_state *start,
			    const struct md_knap_state *end, struct md_knapsack_plan *plan)
{
	struct writer writer = {.knap = knap, .end = end};
	uint32_t count = count_new(knap, start, end);
	struct candidate *candidates = malloc((count + 1) * sizeof(*candidates));
	enum md_status status = md_knap_state_clone(knap, start, &writer.now);
	writer.plan.placements = malloc((count + 1) * sizeof(*writer.plan.placements));
	if (!candidates || status || !writer.plan.placements) {
		md_knapsack_plan_finish(&writer.plan);
		status = MD_ERR_NO_MEMORY;
	} else {
		list_new(knap, start, end, candidates);
		qsort(candidates, count, sizeof(*candidates), compare);
		for (uint32_t i = 0; i < count; i++)
			write_with_prerequisites(&writer, &candidates[i].placement);
		writer.plan.value = writer.now.value;
		writer.plan.added = writer.now.value - start->value;
		*plan = writer.plan;
	}
	md_knap_state_finish(&writer.now);
	free(candidates);
	return status;
}

void md_knapsack_plan_finish(struct md_knapsack_plan *plan)
{
	free(plan->placements);
	plan->placements = NULL;
	plan->count = 0;
}
