/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: gives every allocation and binding that is referred to its place in the artifact: bound, or in the private
 * arena. */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "driver/maker.h"
#include "base/cleanup.h"

struct marks {
	uint8_t *alloc,
	    *binding;   /* one byte for each of the first capture; of a group of mappings, that of the group */
	uint8_t *image; /* the image is loaded, so its variables are set */
};

static void mark_target(const struct md_analysis *analysis, struct marks *marks, const struct md_target *target)
{
	uint32_t variable = analysis->variable_of[target->alloc];
	if (target->binding != MD_NONE) {
		marks->binding[target->binding] = 1;
		return;
	}
	marks->alloc[analysis->group[target->alloc]] = 1;
	if (variable == MD_NONE)
		return;
	marks->alloc[analysis->group[analysis->variables[variable].alloc]] = 1;
	marks->image[analysis->variables[variable].image] = 1;
}

static void mark_images(const struct md_analysis *analysis, struct marks *marks, const struct md_trace_graph *graph)
{
	for (uint32_t n = 0; n < graph->node_count; n++) {
		const struct md_node *node = &graph->nodes[n];
		uint32_t image =
		    node->type == MD_NODE_KERNEL ? analysis->traces[0]->kernels[node->kernel].image : MD_NONE;
		if (image != MD_NONE)
			marks->image[image] = 1;
	}
}

/* The value of a variable counts when its image is used, unless only the engine's own copy of the image will do. */
static bool is_reached(const struct md_analysis *analysis, const struct marks *marks, const struct md_held *held)
{
	uint32_t image = held->variable == MD_NONE ? MD_NONE : analysis->variables[held->variable].image;
	if (image == MD_NONE)
		return marks->alloc[analysis->group[held->alloc]];
	return marks->image[image] && !md_variable_unsettled(analysis, image);
}

static void mark(const struct md_analysis *analysis, struct marks *marks, const struct md_findings *findings)
{
	for (uint32_t i = 0; i < findings->count; i++)
		mark_target(analysis, marks, &findings->items[i].target);
}

static void mark_outputs(const struct md_analysis *analysis, struct marks *marks, const struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->graph[0]->output_count; i++) {
		if (pair->outputs[i].alloc != MD_NONE)
			mark_target(analysis, marks, &pair->outputs[i]);
	}
}

/* From the graphs, through the contents, to whatever these point to. */
static void mark_all(struct md_analysis *analysis, struct marks *marks)
{
	bool changed = true;
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		if (analysis->pairs[i].why)
			continue;
		mark(analysis, marks, &analysis->pairs[i].findings);
		mark_outputs(analysis, marks, &analysis->pairs[i]);
		mark_images(analysis, marks, analysis->pairs[i].graph[0]);
	}
	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < analysis->held_count; i++) {
			struct md_held *held = &analysis->held[i];
			uint32_t group = analysis->group[held->alloc];
			if (held->kept || !is_reached(analysis, marks, held) || analysis->broken[group])
				continue;
			held->kept = changed = true;
			mark(analysis, marks, &held->findings);
		}
	}
}

/* Marks all bindings that share memory with a marked one. */
static void mark_overlaps(const struct md_analysis *analysis, struct marks *marks)
{
	uint32_t count = analysis->views[0].binding_count;
	for (uint32_t i = 0; i < count; i++)
		if (marks->binding[i] && analysis->within[i] != MD_NONE)
			marks->binding[analysis->within[i]] = 1;
	for (uint32_t i = 0; i < count; i++)
		if (analysis->within[i] != MD_NONE && marks->binding[analysis->within[i]])
			marks->binding[i] = 1;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static bool keeps_contents(const struct md_analysis *analysis)
{
	bool any = analysis->traces[0]->value_count != 0; /* values of variables may be made from weights, too */
	for (uint32_t i = 0; i < analysis->held_count; i++)
		any |= analysis->held[i].kept;
	return any;
}

/* A verification gives bound memory other contents, which other processes would read. */
static bool is_shared(const struct md_view *view, uint32_t binding)
{
	uint32_t alloc = view->bindings[binding].alloc;
	return alloc != MD_NONE && view->allocs[alloc].family == MD_ALLOC_SHARED &&
	       !md_maker_is_name(view->bindings[binding].name); /* the order of a library's is compared */
}

/*
 * A binding that no graph refers to is kept as part of the engine's contract, if it is more than weights or if contents
 * may have been made from it, and unless it is other processes' memory, too.
 */
static bool keeps_binding(const struct md_analysis *analysis, const struct marks *marks, bool contents,
			  uint32_t binding)
{
	return marks->binding[binding] || (contents && analysis->constants[binding].counts) ||
	       (analysis->views[0].bindings[binding].role != MD_BIND_CONSTANT &&
		analysis->binding_match[binding] != MD_NONE && !is_shared(&analysis->views[0], binding));
}

/* The largest power of two, up to 32, of which the address was a multiple in all captures. */
static uint32_t alignment(const struct md_analysis *analysis, uint32_t index)
{
	uint32_t partner = analysis->captures < 2 ? MD_NONE : analysis->binding_match[index];
	uint64_t bits = analysis->views[0].bindings[index].address | MD_BINDING_ALIGN_MAX;
	if (partner != MD_NONE)
		bits |= analysis->views[1].bindings[partner].address;
	return (uint32_t)(bits & (~bits + 1));
}

static struct md_binding make_binding(const struct md_analysis *analysis, uint32_t index, bool contents, bool *failed)
{
	const struct md_view_binding *from = &analysis->views[0].bindings[index];
	const struct md_constant *constant = &analysis->constants[index];
	struct md_binding binding = {.name = md_analysis_copy_text(from->name, failed),
				     .size = from->size,
				     .role = from->role,
				     .align = alignment(analysis, index)};
	if (contents && constant->counts && !constant->why) {
		binding.hashed = true;
		binding.hash = constant->hash;
		binding.varied = constant->varied;
	}
	return binding;
}

/* The kind of allocation behind a binding does not matter, except for host memory, which copies treat differently. */
static enum md_alloc_family bound_family(enum md_alloc_family family)
{
	return family == MD_ALLOC_SHARED || family == MD_ALLOC_GRAPH ? MD_ALLOC_DEVICE : family;
}

/* Both are kept, as graphs refer to both. */
static void place_neighbours(struct md_analysis *analysis)
{
	struct md_artifact *out = analysis->out;
	for (uint32_t i = 0; i < analysis->views[0].binding_count; i++) {
		uint32_t before = analysis->before[i];
		if (before == MD_NONE || analysis->binding_slot[i] == MD_NONE ||
		    analysis->binding_slot[before] == MD_NONE)
			continue;
		struct md_binding *binding = &out->bindings[out->allocs[analysis->binding_slot[i]].binding];
		binding->adjoins = true;
		binding->before = out->allocs[analysis->binding_slot[before]].binding;
	}
}

/* Nothing tells to which of two names of the same memory a pointer belongs, so a restore compares how the two lie. */
static void place_overlaps(struct md_analysis *analysis)
{
	const struct md_view *view = &analysis->views[0];
	struct md_artifact *out = analysis->out;
	for (uint32_t i = 0; i < view->binding_count; i++) {
		uint32_t first = analysis->within[i];
		if (first == MD_NONE || analysis->binding_slot[i] == MD_NONE ||
		    analysis->binding_slot[first] == MD_NONE)
			continue;
		struct md_binding *binding = &out->bindings[out->allocs[analysis->binding_slot[i]].binding];
		binding->overlaps = true;
		binding->within = out->allocs[analysis->binding_slot[first]].binding;
		binding->distance = view->bindings[i].address - view->bindings[first].address;
	}
}

/* One allocation for all modules of the image, which hold the same value. */
static enum md_status place_variables(struct md_analysis *analysis, const struct marks *marks, struct md_error *err)
{
	struct md_artifact *out = analysis->out;
	bool failed = false;
	for (uint32_t i = 0; i < analysis->variable_count; i++) {
		const struct md_variable *variable = &analysis->variables[i];
		if (variable->alloc == MD_NONE || !marks->alloc[variable->alloc])
			continue;
		for (uint32_t a = 0; a < analysis->views[0].alloc_count; a++)
			if (analysis->variable_of[a] == i)
				analysis->alloc_slot[a] = out->alloc_count;
		out->allocs[out->alloc_count++] = (struct md_artifact_alloc){
		    .class = MD_CLASS_VARIABLE,
		    .family = MD_ALLOC_GLOBAL,
		    .binding = MD_NONE,
		    .order = variable->alloc,
		    .size = analysis->views[0].allocs[variable->alloc].size,
		    .image = variable->image, /* the trace's number, which pass_image replaces */
		    .variable = md_analysis_copy_text(variable->name, &failed)};
	}
	return failed ? md_analysis_no_memory(err) : MD_OK;
}

static enum md_status place_bindings(struct md_analysis *analysis, const struct marks *marks, struct md_error *err)
{
	const struct md_view *view = &analysis->views[0];
	struct md_artifact *out = analysis->out;
	bool failed = false, contents = keeps_contents(analysis);
	for (uint32_t i = 0; i < view->binding_count; i++) {
		const struct md_view_binding *binding = &view->bindings[i];
		const struct md_view_alloc *alloc = &view->allocs[binding->alloc];
		if (!keeps_binding(analysis, marks, contents, i))
			continue;
		analysis->binding_slot[i] = out->alloc_count;
		out->allocs[out->alloc_count++] =
		    (struct md_artifact_alloc){.class = MD_CLASS_BOUND,
					       .family = bound_family(alloc->family),
					       .binding = out->binding_count,
					       .order = alloc->made_up ? MD_NONE : binding->alloc,
					       .size = binding->size};
		out->bindings[out->binding_count++] = make_binding(analysis, i, contents, &failed);
	}
	place_neighbours(analysis);
	place_overlaps(analysis);
	return failed ? md_analysis_no_memory(err) : MD_OK;
}

struct extent {
	uint64_t start, end;
	uint32_t slot;
	bool used;
};

static void measure_groups(const struct md_analysis *analysis, const struct marks *marks, struct extent *extents)
{
	const struct md_view *view = &analysis->views[0];
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		const struct md_view_alloc *alloc = &view->allocs[i];
		struct extent *extent = &extents[analysis->group[i]];
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
	MD_AUTO_FREE struct extent *extents = calloc(view->alloc_count + 1u, sizeof(*extents));
	if (!extents)
		return false;
	measure_groups(analysis, marks, extents);
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		struct extent *extent = &extents[analysis->group[i]];
		if (!extent->used || analysis->variable_of[i] != MD_NONE)
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
			out->arena_size += (size + MD_ARENA_ALIGNMENT - 1) / MD_ARENA_ALIGNMENT * MD_ARENA_ALIGNMENT;
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
	marks->image = calloc(analysis->traces[0]->image_count + (size_t)1, 1);
	analysis->alloc_slot = malloc(allocs * sizeof(*analysis->alloc_slot));
	analysis->alloc_shift = calloc(allocs, sizeof(*analysis->alloc_shift));
	analysis->binding_slot = malloc(bindings * sizeof(*analysis->binding_slot));
	analysis->out->allocs = calloc(allocs + bindings, sizeof(*analysis->out->allocs));
	analysis->out->bindings = calloc(bindings, sizeof(*analysis->out->bindings));
	if (!marks->alloc || !marks->binding || !marks->image || !analysis->alloc_slot || !analysis->alloc_shift ||
	    !analysis->binding_slot || !analysis->out->allocs || !analysis->out->bindings)
		return false;
	memset(analysis->alloc_slot, 0xff, allocs * sizeof(*analysis->alloc_slot));
	memset(analysis->binding_slot, 0xff, bindings * sizeof(*analysis->binding_slot));
	return true;
}

enum md_status md_pass_place(struct md_analysis *analysis, struct md_error *err)
{
	struct marks marks = {0};
	enum md_status status = MD_OK;
	if (!prepare(analysis, &marks)) {
		status = md_analysis_no_memory(err);
	} else {
		mark_all(analysis, &marks);
		mark_overlaps(analysis, &marks);
		status = place_bindings(analysis, &marks, err);
		if (status == MD_OK)
			status = place_variables(analysis, &marks, err);
		if (status == MD_OK && !place_private(analysis, &marks))
			status = md_analysis_no_memory(err);
	}
	free(marks.alloc);
	free(marks.binding);
	free(marks.image);
	return status;
}
