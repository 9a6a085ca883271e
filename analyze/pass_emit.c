/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: writes surviving graphs, permanent contents, refusals and provenance into the artifact. */
#define MD_LOG_DOMAIN "analyze"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analyze/analysis.h"
#include "base/array.h"
#include "format/checks.h"
#include "base/cleanup.h"
#include "base/log.h"

/* ---- pointers ---------------------------------------------------------------------------------------------------- */

static struct md_pointer make_pointer(const struct md_analysis *analysis, const struct md_finding *finding)
{
	const struct md_target *target = &finding->target;
	/* A tensor map that no library was seen to encode stays PLAIN: its word 0 is the global address, and patching
	 * it gives the bytes of a fresh encoding. */
	struct md_pointer pointer = {.node = finding->node, .at = finding->at, .kind = (uint8_t)finding->kind};
	if (target->binding != MD_NONE) {
		pointer.alloc = analysis->binding_slot[target->binding];
		pointer.offset = target->offset;
	} else {
		pointer.alloc = analysis->alloc_slot[target->alloc];
		pointer.offset = target->offset + (int64_t)analysis->alloc_shift[target->alloc];
	}
	return pointer;
}

static enum md_status make_pointers(const struct md_analysis *analysis, const struct md_findings *findings,
				    struct md_pointer **out, uint32_t *count, struct md_error *err)
{
	struct md_pointer *list = calloc(findings->count + (size_t)1, sizeof(*list));
	if (!list)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < findings->count; i++)
		list[i] = make_pointer(analysis, &findings->items[i]);
	*out = list;
	*count = findings->count;
	return MD_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static bool copy_bytes(void **arena, const void *from, size_t size, void **out)
{
	if (!size)
		return true;
	*out = md_arena_alloc(arena, size);
	if (*out)
		memcpy(*out, from, size);
	return *out != NULL;
}

/* Clears the addresses of the capture: the pointer table has them. The address of an unused window means nothing. */
static void clear_windows(struct md_node *node)
{
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		if (node->attributes[i].id == MD_ATTRIBUTE_WINDOW)
			memset(node->attributes[i].value, 0, 8);
	}
}

static bool copy_node(const struct md_analysis *analysis, const struct md_node *from, void **arena, struct md_node *to)
{
	void *params = NULL, *attributes = NULL;
	*to = *from;
	to->sequence = 0;
	to->params = NULL;
	to->attributes = NULL;
	if (from->type == MD_NODE_KERNEL) {
		if (!copy_bytes(arena, from->params, from->params_size, &params) ||
		    !copy_bytes(arena, from->attributes, from->attribute_count * sizeof(*from->attributes),
				&attributes))
			return false;
		to->kernel = analysis->kernel_slot[from->kernel];
		to->params = params;
		to->attributes = attributes;
		clear_windows(to);
		return true;
	}
	to->kernel = MD_NONE;
	to->params_size = to->attribute_count = 0;
	if (from->type == MD_NODE_MEMSET)
		to->memset.dst = 0;
	if (from->type == MD_NODE_MEMCPY)
		to->memcpy.src = to->memcpy.dst = 0;
	return true;
}

/* A trace numbers the events of the process; an artifact numbers those of each graph. */
static bool number_events(const struct md_trace *trace, const struct md_trace_graph *from, struct md_artifact_graph *to)
{
	MD_AUTO_FREE uint32_t *numbers = md_analysis_number_events(trace, from);
	for (uint32_t n = 0; numbers && n < to->node_count; n++) {
		if (numbers[n] != MD_NONE)
			to->nodes[n].event = numbers[n];
	}
	return numbers != NULL;
}

static void zero_found(struct md_artifact_graph *graph)
{
	for (uint32_t i = 0; i < graph->pointer_count; i++) {
		const struct md_pointer *pointer = &graph->pointers[i];
		if (graph->nodes[pointer->node].type == MD_NODE_KERNEL && pointer->at < MD_ATTRIBUTES_AT)
			memset(graph->nodes[pointer->node].params + pointer->at, 0, 8);
	}
	for (uint32_t i = 0; i < graph->noise_count; i++)
		memset(graph->nodes[graph->noise[i].node].params + graph->noise[i].at, 0, graph->noise[i].size);
}

/* A doubtful word whose target nothing else refers to has no slot in the artifact: it begins as zero. */
static enum md_status emit_doubtful(const struct md_analysis *analysis, const struct md_pair *pair,
				    struct md_artifact_graph *graph, struct md_error *err)
{
	graph->doubtful = calloc(pair->doubts.count + (size_t)1, sizeof(*graph->doubtful));
	if (!graph->doubtful)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < pair->doubts.count; i++) {
		const struct md_doubt *doubt = &pair->doubts.items[i];
		const struct md_finding found = {doubt->node, doubt->at, doubt->target, MD_POINTER_PLAIN, 0};
		struct md_pointer pointer = make_pointer(analysis, &found);
		struct md_doubtful *doubtful = &graph->doubtful[graph->doubtful_count++];
		*doubtful = (struct md_doubtful){.node = doubt->node,
						 .at = doubt->at,
						 .alloc = pointer.alloc,
						 .offset = pointer.alloc == MD_NONE ? 0 : pointer.offset,
						 .order = {doubt->one.alloc, doubt->two.alloc},
						 .place = {doubt->one.alloc_offset, doubt->two.alloc_offset}};
		memset(graph->nodes[doubt->node].params + doubt->at, 0, 8);
	}
	return MD_OK;
}

static enum md_status emit_outputs(const struct md_analysis *analysis, const struct md_pair *pair,
				   struct md_artifact_graph *graph, struct md_error *err)
{
	const struct md_trace_graph *from = pair->graph[0];
	graph->outputs = calloc(from->output_count + (size_t)1, sizeof(*graph->outputs));
	graph->note = from->note_size ? malloc(from->note_size) : NULL;
	if (!graph->outputs || (from->note_size && !graph->note))
		return md_analysis_no_memory(err);
	if (from->note_size)
		memcpy(graph->note, from->note, from->note_size);
	graph->note_size = from->note_size;
	for (uint32_t i = 0; i < from->output_count; i++) {
		const struct md_finding found = {MD_NONE, 0, pair->outputs[i], MD_POINTER_PLAIN, 0};
		struct md_artifact_output *output = &graph->outputs[graph->output_count++];
		*output = (struct md_artifact_output){.alloc = MD_NONE};
		if (!from->outputs[i].size)
			continue;
		struct md_pointer place = make_pointer(analysis, &found);
		*output = (struct md_artifact_output){place.alloc, (uint64_t)place.offset, from->outputs[i].size};
	}
	return MD_OK;
}

static int compare_handed(const void *left, const void *right)
{
	const struct md_artifact_handed *a = left, *b = right;
	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The artifact has one allocation for mappings that lie side by side; parts of it may touch. */
static enum md_status emit_handed(const struct md_analysis *analysis, const struct md_pair *pair,
				  struct md_artifact_graph *graph, struct md_error *err)
{
	graph->handed = calloc(pair->part_count + (size_t)1, sizeof(*graph->handed));
	if (!graph->handed)
		return md_analysis_no_memory(err);
	graph->group = pair->part_count ? pair->group : 0;
	for (uint32_t i = 0; i < pair->part_count; i++) {
		const struct md_part *part = &pair->parts[i];
		graph->handed[graph->handed_count++] = (struct md_artifact_handed){
		    analysis->alloc_slot[part->alloc], part->offset + analysis->alloc_shift[part->alloc], part->size,
		    part->reads, part->writes};
	}
	if (graph->handed_count)
		qsort(graph->handed, graph->handed_count, sizeof(*graph->handed), compare_handed);
	return MD_OK;
}

static enum md_status emit_graph(const struct md_analysis *analysis, const struct md_pair *pair,
				 struct md_artifact_graph *graph, struct md_error *err)
{
	const struct md_trace_graph *from = pair->graph[0];
	bool failed = false;
	graph->label = md_analysis_copy_text(pair->label, &failed);
	graph->batch = pair->batch;
	graph->proof = analysis->captures == 2 ? MD_PROOF_TWO : MD_PROOF_NONE;
	graph->instantiate_flags = from->instantiate_flags;
	graph->accepted = from->tolerance.given || !pair->graph[1] ? from->tolerance : pair->graph[1]->tolerance;
	graph->constant_words = pair->constant_words;
	graph->pointer_words = pair->pointer_words;
	graph->noise_words = pair->noise_words;
	graph->nodes = calloc(from->node_count + (size_t)1, sizeof(*graph->nodes));
	graph->edges = calloc(from->edge_count + (size_t)1, sizeof(*graph->edges));
	graph->noise = calloc(pair->noises.count + (size_t)1, sizeof(*graph->noise));
	if (failed || !graph->nodes || !graph->edges || !graph->noise)
		return md_analysis_no_memory(err);
	for (uint32_t n = 0; n < from->node_count; n++, graph->node_count++) {
		if (!copy_node(analysis, &from->nodes[n], &graph->arena, &graph->nodes[n]))
			return md_analysis_no_memory(err);
	}
	if (!number_events(analysis->traces[0], from, graph))
		return md_analysis_no_memory(err);
	if (from->edge_count)
		memcpy(graph->edges, from->edges, from->edge_count * sizeof(*graph->edges));
	graph->edge_count = from->edge_count;
	if (pair->noises.count)
		memcpy(graph->noise, pair->noises.items, pair->noises.count * sizeof(*graph->noise));
	graph->noise_count = pair->noises.count;
	MD_FORWARD(make_pointers(analysis, &pair->findings, &graph->pointers, &graph->pointer_count, err));
	zero_found(graph);
	MD_FORWARD(emit_doubtful(analysis, pair, graph, err));
	MD_FORWARD(emit_handed(analysis, pair, graph, err));
	return emit_outputs(analysis, pair, graph, err);
}

static void drop_graph(struct md_artifact_graph *graph)
{
	struct md_artifact alone = {.graphs = malloc(sizeof(*graph)), .graph_count = 1};
	if (!alone.graphs)
		return; /* out of memory: the next allocation ends the analysis */
	*alone.graphs = *graph;
	md_artifact_finish(&alone);
}

/* A graph that breaks a rule of the format is refused with that rule, so that the other graphs keep their artifact. */
static enum md_status try_graph(struct md_analysis *analysis, struct md_pair *pair, struct md_artifact_graph *graph,
				struct md_error *err)
{
	struct md_artifact alone = *analysis->out;
	struct md_artifact_graph ungrouped;
	struct md_error broken = {0};
	MD_FORWARD(emit_graph(analysis, pair, graph, err));
	ungrouped = *graph;
	ungrouped.group = ungrouped.handed_count = 0; /* the other graphs of its group are not in this artifact */
	alone.graphs = &ungrouped;
	alone.graph_count = 1;
	alone.refusal_count = alone.content_count = 0;
	if (md_artifact_check(&alone, &broken) == MD_OK)
		return MD_OK;
	if (broken.status == MD_ERR_NO_MEMORY)
		return md_analysis_no_memory(err);
	md_pair_refuse(pair, "cannot be stored: %s", broken.message);
	return MD_OK;
}

/* The graphs that are not refused stay, in order. */
static enum md_status keep_graphs(struct md_analysis *analysis, struct md_artifact_graph *made, struct md_error *err)
{
	struct md_artifact *out = analysis->out;
	bool failed = false;
	md_analysis_close_groups(analysis);
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		if (!pair->why) {
			out->graphs[out->graph_count++] = made[i];
			continue;
		}
		drop_graph(&made[i]);
		out->refusals[out->refusal_count++] =
		    (struct md_artifact_refusal){md_analysis_copy_text(pair->label, &failed), pair->batch,
						 md_analysis_copy_text(pair->why, &failed)};
	}
	return failed ? md_analysis_no_memory(err) : MD_OK;
}

static enum md_status emit_graphs(struct md_analysis *analysis, struct md_error *err)
{
	struct md_artifact *out = analysis->out;
	size_t room = analysis->pair_count + (size_t)1;
	MD_AUTO_FREE struct md_artifact_graph *made = calloc(room, sizeof(*made));
	enum md_status status = MD_OK;
	out->graphs = calloc(room, sizeof(*out->graphs));
	out->refusals = calloc(room, sizeof(*out->refusals));
	if (!out->graphs || !out->refusals || !made)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->pair_count && status == MD_OK; i++)
		if (!analysis->pairs[i].why)
			status = try_graph(analysis, &analysis->pairs[i], &made[i], err);
	if (status == MD_OK)
		return keep_graphs(analysis, made, err);
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		drop_graph(&made[i]);
	return status;
}

/* ---- contents, provenance ---------------------------------------------------------------------------------------- */

static enum md_status emit_contents(struct md_analysis *analysis, struct md_error *err)
{
	struct md_artifact *out = analysis->out;
	out->contents = calloc(analysis->held_count + (size_t)1, sizeof(*out->contents));
	if (!out->contents)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->held_count; i++) {
		struct md_held *held = &analysis->held[i];
		struct md_artifact_content *content = &out->contents[out->content_count];
		if (!held->kept || held->variable != MD_NONE)
			continue;
		out->content_count++;
		content->alloc = analysis->alloc_slot[held->alloc];
		content->offset = held->offset + analysis->alloc_shift[held->alloc];
		content->size = held->size;
		content->compared = held->compared;
		content->data = md_steal_ptr(&held->data);
		MD_FORWARD(make_pointers(analysis, &held->findings, &content->pointers, &content->pointer_count, err));
	}
	return MD_OK;
}

static uint32_t find_image(const struct md_artifact *artifact, const struct md_hash *hash)
{
	uint32_t i = 0;
	while (i < artifact->image_count && !md_hash_equal(&artifact->images[i].hash, hash))
		i++;
	return i;
}

static enum md_status emit_value(struct md_analysis *analysis, struct md_held *held, struct md_error *err)
{
	const struct md_variable *variable = &analysis->variables[held->variable];
	struct md_artifact *out = analysis->out;
	uint32_t at = find_image(out, &analysis->traces[0]->images[variable->image].hash);
	struct md_image_value *value;
	bool failed = false;
	if (at == out->image_count)
		return MD_OK;
	if (!MD_ARRAY_EXTEND(out->images[at].values, out->images[at].value_count))
		return md_analysis_no_memory(err);
	value = &out->images[at].values[out->images[at].value_count++];
	*value = (struct md_image_value){.name = md_analysis_copy_text(variable->name, &failed),
					 .size = held->size,
					 .data = md_steal_ptr(&held->data)};
	return failed ? md_analysis_no_memory(err)
		      : make_pointers(analysis, &held->findings, &value->pointers, &value->pointer_count, err);
}

/* Values that the engine has written into variables of images that graphs use. */
static enum md_status emit_values(struct md_analysis *analysis, struct md_error *err)
{
	for (uint32_t i = 0; i < analysis->held_count; i++)
		if (analysis->held[i].kept && analysis->held[i].variable != MD_NONE)
			MD_FORWARD(emit_value(analysis, &analysis->held[i], err));
	return MD_OK;
}

/* An engine may state any number as the time of a stage, but readers add the times up. */
static void emit_stages(const struct md_trace *trace, struct md_provenance *provenance)
{
	uint64_t left = INT64_MAX;
	for (uint32_t i = 0; i < trace->stage_count && trace->stages[i].ns <= left; i++) {
		provenance->stages[provenance->stage_count++] = trace->stages[i];
		left -= trace->stages[i].ns;
	}
}

/*
 * A KV profile that contradicts itself is left out, so that the graphs keep their artifact; the engine measures anew.
 */
static void emit_kv(struct md_analysis *analysis)
{
	struct md_artifact *out = analysis->out;
	struct md_error err = {0};
	out->kv = analysis->traces[0]->kv;
	if (md_artifact_check_kv(&out->kv, out->fingerprint.device_memory, &err) == MD_OK)
		return;
	md_warn("the KV profile is left out: %s", err.message);
	out->kv = (struct md_kv){0};
}

static enum md_status emit_provenance(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	struct md_provenance *provenance = &analysis->out->provenance;
	char created[MD_ANALYZE_TIME_BYTES];
	bool failed = false;
	MD_FORWARD(md_analyze_time(created, err));
	provenance->tool_version = md_analysis_copy_text(MD_VERSION, &failed);
	provenance->command = md_analysis_copy_text(trace->command ? trace->command : "", &failed);
	provenance->created = md_analysis_copy_text(created, &failed);
	provenance->capture_count = analysis->captures;
	provenance->scratch_addresses = analysis->scratch_addresses;
	if (analysis->options.accept_process_values)
		provenance->verification = md_analysis_copy_text("none; " MD_PROCESS_VALUES_ACCEPTED, &failed);
	provenance->stages = calloc(trace->stage_count + (size_t)1, sizeof(*provenance->stages));
	if (failed || !provenance->stages)
		return md_analysis_no_memory(err);
	MD_FORWARD(md_checks_state(analysis->out, err));
	emit_stages(trace, provenance);
	emit_kv(analysis);
	return MD_OK;
}

enum md_status md_pass_emit(struct md_analysis *analysis, struct md_error *err)
{
	MD_FORWARD(emit_graphs(analysis, err));
	MD_FORWARD(emit_contents(analysis, err));
	MD_FORWARD(emit_values(analysis, err));
	return emit_provenance(analysis, err);
}
