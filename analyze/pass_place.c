/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: gives every allocation and binding that is referred to its place in the artifact: bound, or in the private
 * arena. */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

#define ARENA_ALIGNMENT 512u

struct marks {
	uint8_t *alloc, *binding; /* one byte for each of the first capture */
	uint32_t *group;          /* allocation -> representative of the mappings that lie side by side with it */
};

static void mark_target(struct marks *marks, const struct md_target *target)
{
	if (target->binding != MD_NONE)
		marks->binding[target->binding] = 1;
	else
		marks->alloc[target->alloc] = 1;
}

static void mark(struct marks *marks, const struct md_findings *findings)
{
	for (uint32_t i = 0; i < findings->count; i++)
		mark_target(marks, &findings->items[i].target);
}

static void mark_outputs(struct marks *marks, const struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->graph[0]->output_count; i++) {
		if (pair->outputs[i].alloc != MD_NONE)
			mark_target(marks, &pair->outputs[i]);
	}
}

/* From the graphs, through the contents, to whatever these point to. */
static void mark_all(struct md_analysis *analysis, struct marks *marks)
{
	bool changed = true;

	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		if (analysis->pairs[i].why)
			continue;
		mark(marks, &analysis->pairs[i].findings);
		mark_outputs(marks, &analysis->pairs[i]);
	}
	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < analysis->held_count; i++) {
			struct md_held *held = &analysis->held[i];
			if (held->kept || !marks->alloc[held->alloc] || analysis->broken[held->alloc])
				continue;
			held->kept = changed = true;
			mark(marks, &held->findings);
		}
	}
}

/* ---- mappings side by side ------------------------------------------------------------------------------------------
 */

static uint32_t group_of(const struct marks *marks, uint32_t alloc)
{
	while (marks->group[alloc] != alloc) {
		marks->group[alloc] = marks->group[marks->group[alloc]];
		alloc = marks->group[alloc];
	}
	return alloc;
}

static bool adjoin(const struct md_view *view, uint32_t left, uint32_t right)
{
	const struct md_view_alloc *a = &view->allocs[left], *b = &view->allocs[right];

	return a->address + a->size == b->address && a->born < b->died && b->born < a->died;
}

static int compare_addresses(const void *left, const void *right, void *user)
{
	const struct md_view *view = user;
	uint64_t a = view->allocs[*(const uint32_t *)left].address, b = view->allocs[*(const uint32_t *)right].address;

	return (a > b) - (a < b);
}

/*
 * One tensor may lie across several mappings of a reserved range, with pointers into the first only. So mappings that
 * were neighbours stay neighbours in the arena; wholly bound ones are the engine's and end a group.
 */
static bool group_mappings(const struct md_analysis *analysis, struct marks *marks)
{
	const struct md_view *view = &analysis->views[0];
	MD_AUTO_FREE uint32_t *order = calloc(view->alloc_count + 1u, sizeof *order);
	uint32_t count = 0;

	if (!order)
		return false;
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		marks->group[i] = i;
		if (view->allocs[i].family == MD_ALLOC_VMM && !md_view_fully_bound(view, i))
			order[count++] = i;
	}
	qsort_r(order, count, sizeof *order, compare_addresses, (void *)(uintptr_t)view);
	for (uint32_t i = 0, j = 0; i < count; i++) {
		uint64_t end = view->allocs[order[i]].address + view->allocs[order[i]].size;
		while (j > 0 && view->allocs[order[j - 1]].address >= end)
			j--;
		while (j < count && view->allocs[order[j]].address < end)
			j++;
		for (uint32_t k = j; k < count && view->allocs[order[k]].address == end; k++) {
			uint32_t left = analysis->partner[order[i]], right = analysis->partner[order[k]];
			bool together = adjoin(view, order[i], order[k]) && left != MD_NONE && right != MD_NONE &&
					adjoin(&analysis->views[analysis->captures - 1], left, right);
			if (together)
				marks->group[group_of(marks, order[k])] = group_of(marks, order[i]);
		}
	}
	return true;
}

/* ---- tables ---------------------------------------------------------------------------------------------------------
 */

/* A binding that no graph refers to still tells the engine's contract, if it is more than weights. */
static bool keeps_binding(const struct md_analysis *analysis, const struct marks *marks, uint32_t binding)
{
	return marks->binding[binding] || (analysis->views[0].bindings[binding].role != MD_BIND_CONSTANT &&
					   analysis->binding_match[binding] != MD_NONE);
}

static enum md_status place_bindings(struct md_analysis *analysis, const struct marks *marks, struct md_error *err)
{
	const struct md_view *view = &analysis->views[0];
	struct md_artifact *out = analysis->out;
	bool failed = false;

	for (uint32_t i = 0; i < view->binding_count; i++) {
		const struct md_view_binding *binding = &view->bindings[i];
		const struct md_view_alloc *alloc = &view->allocs[binding->alloc];

		if (!keeps_binding(analysis, marks, i))
			continue;
		analysis->binding_slot[i] = out->alloc_count;
		out->allocs[out->alloc_count++] =
		    (struct md_artifact_alloc){.class = MD_CLASS_BOUND,
					       .family = alloc->family,
					       .binding = out->binding_count,
					       .order = alloc->made_up ? MD_NONE : binding->alloc,
					       .size = binding->size};
		out->bindings[out->binding_count++] =
		    (struct md_binding){md_analysis_copy_text(binding->name, &failed), binding->size, binding->role};
	}
	return failed ? md_analysis_no_memory(err) : MD_OK;
}

struct extent {
	uint64_t start, end;
	uint32_t slot;
	bool used;
};

static void measure_groups(const struct md_view *view, const struct marks *marks, struct extent *extents)
{
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		const struct md_view_alloc *alloc = &view->allocs[i];
		struct extent *extent = &extents[group_of(marks, i)];
		if (!extent->end || alloc->address < extent->start)
			extent->start = alloc->address;
		if (alloc->address + alloc->size > extent->end)
			extent->end = alloc->address + alloc->size;
		extent->used |= marks->alloc[i];
	}
}

static bool place_private(struct md_analysis *analysis, const struct marks *marks)
{
	const struct md_view *view = &analysis->views[0];
	struct md_artifact *out = analysis->out;
	MD_AUTO_FREE struct extent *extents = calloc(view->alloc_count + 1u, sizeof *extents);

	if (!extents)
		return false;
	measure_groups(view, marks, extents);
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		struct extent *extent = &extents[group_of(marks, i)];
		if (!extent->used)
			continue;
		if (!extent->slot) {
			uint64_t size = extent->end - extent->start;
			extent->slot = out->alloc_count + 1;
			out->allocs[out->alloc_count++] = (struct md_artifact_alloc){.class = MD_CLASS_PRIVATE,
										     .family = view->allocs[i].family,
										     .binding = MD_NONE,
										     .order = i,
										     .size = size,
										     .arena_offset = out->arena_size};
			out->arena_size += (size + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
		}
		analysis->alloc_slot[i] = extent->slot - 1;
		analysis->alloc_shift[i] = view->allocs[i].address - extent->start;
	}
	return true;
}

static bool prepare(struct md_analysis *analysis, struct marks *marks)
{
	size_t allocs = analysis->views[0].alloc_count + 1u, bindings = analysis->views[0].binding_count + 1u;

	marks->alloc = calloc(allocs, 1);
	marks->binding = calloc(bindings, 1);
	marks->group = calloc(allocs, sizeof *marks->group);
	analysis->alloc_slot = malloc(allocs * sizeof *analysis->alloc_slot);
	analysis->alloc_shift = calloc(allocs, sizeof *analysis->alloc_shift);
	analysis->binding_slot = malloc(bindings * sizeof *analysis->binding_slot);
	analysis->out->allocs = calloc(allocs + bindings, sizeof *analysis->out->allocs);
	analysis->out->bindings = calloc(bindings, sizeof *analysis->out->bindings);
	if (!marks->alloc || !marks->binding || !marks->group || !analysis->alloc_slot || !analysis->alloc_shift ||
	    !analysis->binding_slot || !analysis->out->allocs || !analysis->out->bindings)
		return false;
	memset(analysis->alloc_slot, 0xff, allocs * sizeof *analysis->alloc_slot);
	memset(analysis->binding_slot, 0xff, bindings * sizeof *analysis->binding_slot);
	return true;
}

enum md_status md_pass_place(struct md_analysis *analysis, struct md_error *err)
{
	struct marks marks = {0};
	enum md_status status = MD_OK;

	if (!prepare(analysis, &marks) || !group_mappings(analysis, &marks)) {
		status = md_analysis_no_memory(err);
	} else {
		mark_all(analysis, &marks);
		status = place_bindings(analysis, &marks, err);
		if (status == MD_OK && !place_private(analysis, &marks))
			status = md_analysis_no_memory(err);
	}
	free(marks.alloc);
	free(marks.binding);
	free(marks.group);
	return status;
}
