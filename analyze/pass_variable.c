/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: variables of modules, what the engine has written into them, and graphs whose replays write them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"

/* The image of a trace that has the hash, or MD_NONE. */
static uint32_t trace_image(const struct md_trace *trace, const struct md_hash *hash)
{
	for (uint32_t i = 0; i < trace->image_count; i++)
		if (md_hash_equal(&trace->images[i].hash, hash))
			return i;
	return MD_NONE;
}

/* ---- which there are -------------------------------------------------------------------------------------------- */

static struct md_variable *find_or_add(struct md_analysis *analysis, uint32_t image, const char *name)
{
	struct md_variable *variable;
	for (uint32_t i = 0; i < analysis->variable_count; i++)
		if (analysis->variables[i].image == image && !strcmp(analysis->variables[i].name, name))
			return &analysis->variables[i];
	variable = &analysis->variables[analysis->variable_count++];
	*variable = (struct md_variable){.image = image, .name = name, .alloc = MD_NONE, .held = MD_NONE};
	return variable;
}

/* Each module of the image has its own copy of the variable; the first copy stands for all. */
static enum md_status place_globals(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	struct md_view *view = &analysis->views[0];
	for (uint32_t i = 0; i < trace->global_count; i++) {
		const struct md_trace_global *global = &trace->globals[i];
		struct md_variable *variable = find_or_add(analysis, global->image, global->name);
		MD_FORWARD(md_view_seek(view, global->sequence, err));
		uint32_t alloc = md_view_find(view, global->address);
		if (alloc == MD_NONE || view->allocs[alloc].family != MD_ALLOC_GLOBAL ||
		    view->allocs[alloc].address != global->address || view->allocs[alloc].size != global->size)
			continue;
		analysis->variable_of[alloc] = (uint32_t)(variable - analysis->variables);
		if (variable->alloc == MD_NONE)
			variable->alloc = alloc;
	}
	return MD_OK;
}

/* Variables that only the second capture saw written count, too, if the first capture has their image. */
static void note_written(struct md_analysis *analysis, unsigned capture)
{
	const struct md_trace *trace = analysis->traces[capture];
	for (uint32_t i = 0; i < trace->variable_count; i++) {
		const struct md_trace_variable *written = &trace->variables[i];
		uint32_t image = trace_image(analysis->traces[0], &trace->images[written->image].hash);
		if (image != MD_NONE)
			find_or_add(analysis, image, written->name)->written = true;
	}
}

/* ---- what they hold --------------------------------------------------------------------------------------------- */

static bool has_copies(const struct md_trace *trace, uint32_t image, const char *name)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < trace->global_count; i++)
		count += trace->globals[i].image == image && !strcmp(trace->globals[i].name, name);
	return count != 1;
}

/* Tables are filled as they are needed: words that were zero have become addresses, and nothing else has changed. */
static bool has_filled(const struct md_view *view, const struct md_trace_value *before,
		       const struct md_trace_value *after)
{
	bool filled = before->size == after->size && before->size % 8 == 0;
	for (uint64_t at = 0; filled && at < before->size; at += 8) {
		uint64_t old, new;
		memcpy(&old, before->data + at, 8);
		memcpy(&new, after->data + at, 8);
		filled = old == new || (!old && new >= view->lowest &&new < view->highest);
	}
	return filled;
}

/*
 * The value that one capture saw in all copies of the variable, or the last value of a table that was being filled.
 * NULL if there were several values, or if the engine writes the variable between replays (a record without bytes).
 */
static const struct md_trace_value *one_value(const struct md_analysis *analysis, unsigned capture, uint32_t image,
					      const char *name)
{
	const struct md_trace *trace = analysis->traces[capture];
	const struct md_trace_value *last = NULL;
	for (uint32_t i = 0; i < trace->value_count; i++) {
		const struct md_trace_value *value = &trace->values[i];
		if (value->image != image || strcmp(value->name, name))
			continue;
		if (!value->size)
			return NULL;
		if (last && (last->size != value->size || memcmp(last->data, value->data, value->size)) &&
		    (has_copies(trace, image, name) || !has_filled(&analysis->views[capture], last, value)))
			return NULL;
		last = value;
	}
	return last;
}

static void find_values(struct md_analysis *analysis)
{
	for (uint32_t i = 0; i < analysis->variable_count; i++) {
		struct md_variable *variable = &analysis->variables[i];
		for (unsigned c = 0; c < analysis->captures && variable->written; c++) {
			uint32_t image =
			    trace_image(analysis->traces[c], &analysis->traces[0]->images[variable->image].hash);
			variable->value[c] = one_value(analysis, c, image, variable->name);
		}
	}
}

/* ---- replays that write them ------------------------------------------------------------------------------------- */

static bool describe_writer(const struct md_trace *trace, uint64_t id, char **text)
{
	int size = -1;
	for (uint32_t i = 0; i < trace->graph_count && size < 0; i++)
		if (trace->graphs[i].id == id && trace->graphs[i].label)
			size = asprintf(text, "graph %.128s/%" PRIu32, trace->graphs[i].label, trace->graphs[i].batch);
	if (size < 0)
		size = asprintf(text, "graph number %" PRIu64, id);
	return size >= 0;
}

static enum md_status note_replayed(struct md_analysis *analysis, unsigned capture, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[capture];
	for (uint32_t i = 0; i < trace->replayed_count; i++) {
		const struct md_trace_replayed *replayed = &trace->replayed[i];
		uint32_t image = trace_image(analysis->traces[0], &trace->images[replayed->image].hash);
		struct md_variable *variable;
		if (image == MD_NONE)
			continue;
		variable = find_or_add(analysis, image, replayed->name);
		if (!variable->replayed && !describe_writer(trace, replayed->graph, &variable->replayed)) {
			variable->replayed = NULL;
			return md_analysis_no_memory(err);
		}
	}
	return MD_OK;
}

/*
 * Names the first kernel of the image in the graph: it may be the one that writes, or one that reads what another
 * wrote.
 */
static void refuse_kernel(struct md_analysis *analysis, struct md_pair *pair, const struct md_variable *variable)
{
	const struct md_trace *trace = analysis->traces[0];
	for (uint32_t n = 0; n < pair->graph[0]->node_count; n++) {
		const struct md_node *node = &pair->graph[0]->nodes[n];
		if (node->type != MD_NODE_KERNEL || trace->kernels[node->kernel].image != variable->image)
			continue;
		md_pair_refuse(
		    pair,
		    "node %" PRIu32
		    " (%s): replays of %s write variable %s of its module, so no other copy of the module can be used",
		    n, trace->kernels[node->kernel].name, variable->replayed, variable->name);
		return;
	}
}

static void refuse_replayed(struct md_analysis *analysis)
{
	for (uint32_t v = 0; v < analysis->variable_count; v++) {
		if (!analysis->variables[v].replayed)
			continue;
		for (uint32_t i = 0; i < analysis->pair_count; i++)
			if (!analysis->pairs[i].why)
				refuse_kernel(analysis, &analysis->pairs[i], &analysis->variables[v]);
	}
}

/* ---- for other passes -------------------------------------------------------------------------------------------- */

static bool is_settled(const struct md_analysis *analysis, const struct md_variable *variable)
{
	return variable->held != MD_NONE && !analysis->broken[analysis->group[variable->alloc]];
}

const struct md_variable *md_variable_unsettled(const struct md_analysis *analysis, uint32_t image)
{
	for (uint32_t i = 0; i < analysis->variable_count; i++) {
		const struct md_variable *variable = &analysis->variables[i];
		if (variable->image == image && variable->written && !is_settled(analysis, variable))
			return variable;
	}
	return NULL;
}

const char *md_variable_foreign(const struct md_analysis *analysis, uint32_t alloc)
{
	uint32_t index = analysis->variable_of[alloc];
	if (index == MD_NONE || analysis->variables[index].alloc == MD_NONE)
		return "a module global";
	if (analysis->variables[index].replayed)
		return "a module global that replays write";
	return md_variable_unsettled(analysis, analysis->variables[index].image)
		   ? "a module global of which only the engine's own copy has the value"
		   : NULL;
}

enum md_status md_pass_variable(struct md_analysis *analysis, struct md_error *err)
{
	size_t allocs = analysis->views[0].alloc_count + (size_t)1, most = 1;
	for (unsigned c = 0; c < analysis->captures; c++)
		most += (size_t)analysis->traces[c]->global_count + analysis->traces[c]->variable_count +
			analysis->traces[c]->replayed_count;
	analysis->variables = calloc(most, sizeof(*analysis->variables));
	analysis->variable_of = malloc(allocs * sizeof(*analysis->variable_of));
	if (!analysis->variables || !analysis->variable_of)
		return md_analysis_no_memory(err);
	memset(analysis->variable_of, 0xff, allocs * sizeof(*analysis->variable_of));
	MD_FORWARD(place_globals(analysis, err));
	for (unsigned c = 0; c < analysis->captures; c++) {
		note_written(analysis, c);
		MD_FORWARD(note_replayed(analysis, c, err));
	}
	find_values(analysis);
	refuse_replayed(analysis);
	return MD_OK;
}
