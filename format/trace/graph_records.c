/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a trace with images, kernels and graphs, and with later statements about a graph. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/codec/columns.h"
#include "format/trace/records.h"

/* ---- images ---- */

void md_trace_put_image(struct md_trace_writer *w, uint64_t sequence, const struct md_image *image)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_IMAGE, sequence, 7, &p))
		return;
	md_pack_bytes(&p, image->hash.bytes, sizeof(image->hash.bytes));
	msgpack_pack_uint32(&p, image->kind);
	msgpack_pack_uint64(&p, image->size);
	md_pack_text(&p, image->path);
	md_pack_text(&p, image->build_id);
	msgpack_pack_uint64(&p, image->file_offset);
	if (image->data)
		md_pack_bytes(&p, image->data, image->size);
	else
		msgpack_pack_nil(&p);
	md_trace_record_end(w);
}

enum md_status md_trace_get_image(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_image *image = md_trace_append(build, &trace->images, &trace->image_count, sizeof(*image));
	(void)sequence;
	if (!image)
		return md_trace_no_room(build, err);
	size_t hash_size;
	uint64_t stored;
	const void *hash = md_unpack_bytes(in, &hash_size);
	if (hash && hash_size == sizeof(image->hash.bytes))
		memcpy(image->hash.bytes, hash, hash_size);
	else
		md_unpack_fail(in);
	image->kind = (enum md_image_kind)md_unpack_uint_max(in, MD_IMAGE_PTX);
	image->size = md_unpack_uint(in);
	image->path = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	image->build_id = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	image->file_offset = md_unpack_uint(in);
	image->data = md_unpack_blob(in, &build->budget, &stored);
	if (!in->failed && image->data && stored != image->size)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes stored of an image of %" PRIu64, stored,
				    image->size);
	return MD_OK;
}

/* ---- kernels ---- */

void md_trace_put_kernel(struct md_trace_writer *w, uint64_t sequence, const struct md_kernel *kernel)
{
	const struct md_func_state *state = &kernel->state;
	const int32_t states[] = {state->max_dynamic_shared_bytes, state->preferred_carveout,
				  state->non_portable_cluster, state->registers, state->static_shared_bytes};
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_KERNEL, sequence, 8, &p))
		return;
	msgpack_pack_uint32(&p, kernel->image);
	md_pack_text(&p, kernel->name);
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
		msgpack_pack_int32(&p, states[i]);
	msgpack_pack_array(&p, (size_t)kernel->param_count * 2);
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		msgpack_pack_uint32(&p, kernel->params[i].offset);
		msgpack_pack_uint32(&p, kernel->params[i].size);
	}
	md_trace_record_end(w);
}

enum md_status md_trace_get_kernel(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				   struct md_error *err)
{
	struct md_trace *trace = build->trace;
	(void)sequence;
	uint32_t launches = trace->kernel_count;
	if (!md_trace_append(build, &trace->launches, &launches, sizeof(*trace->launches)))
		return md_trace_no_room(build, err);
	struct md_kernel *kernel = md_trace_append(build, &trace->kernels, &trace->kernel_count, sizeof(*kernel));
	if (!kernel)
		return md_trace_no_room(build, err);
	kernel->image = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	if (!in->failed && kernel->image != MD_NONE && kernel->image >= trace->image_count)
		return md_error_set(err, MD_ERR_CORRUPT, "image index %u of %u", kernel->image, trace->image_count);
	kernel->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (!kernel->name)
		md_unpack_fail(in);
	kernel->state.max_dynamic_shared_bytes = md_unpack_int32(in);
	kernel->state.preferred_carveout = md_unpack_int32(in);
	kernel->state.non_portable_cluster = md_unpack_int32(in);
	kernel->state.registers = md_unpack_int32(in);
	kernel->state.static_shared_bytes = md_unpack_int32(in);
	uint32_t count = md_unpack_array(in) / 2;
	kernel->params = md_budget_alloc(&build->budget, count, sizeof(*kernel->params));
	if (!kernel->params)
		return md_trace_no_room(build, err);
	kernel->param_count = count;
	for (uint32_t i = 0; i < count; i++) {
		kernel->params[i].offset = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
		kernel->params[i].size = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	}
	return MD_OK;
}

void md_trace_put_launches(struct md_trace_writer *w, uint64_t sequence, uint32_t kernel, uint64_t count)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_LAUNCHES, sequence, 2, &p))
		return;
	msgpack_pack_uint32(&p, kernel);
	msgpack_pack_uint64(&p, count);
	md_trace_record_end(w);
}

/* A later record holds the total so far and replaces the earlier one. */
enum md_status md_trace_get_launches(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				     struct md_error *err)
{
	uint64_t kernel = md_unpack_uint(in), count = md_unpack_uint(in);
	(void)sequence;
	if (!in->failed && kernel >= build->trace->kernel_count)
		return md_error_set(err, MD_ERR_CORRUPT, "kernel index %" PRIu64 " of %u", kernel,
				    build->trace->kernel_count);
	if (!in->failed)
		build->trace->launches[kernel] = count;
	return MD_OK;
}

/* ---- graphs ---- */

static bool encode_columns(const struct md_trace_graph *graph, struct md_columns *columns)
{
	const struct md_columns_view view = {.nodes = graph->nodes,
					     .node_count = graph->node_count,
					     .edges = graph->edges,
					     .edge_count = graph->edge_count};
	return md_columns_put_graph(columns, &view, MD_NO_BASE);
}

void md_trace_put_graph(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_graph *graph)
{
	struct md_columns columns;
	msgpack_packer p;
	md_columns_init(&columns, true);
	if (!encode_columns(graph, &columns)) {
		md_trace_writer_fail(w, MD_ERR_NO_MEMORY, "out of memory for a graph record");
	} else if (md_trace_record_begin(w, MD_RECORD_GRAPH, sequence, 10, &p)) {
		msgpack_pack_uint64(&p, graph->id);
		md_pack_text(&p, graph->label);
		msgpack_pack_uint32(&p, graph->batch);
		msgpack_pack_uint64(&p, graph->instantiate_flags);
		md_pack_text(&p, graph->refused);
		msgpack_pack_uint32(&p, graph->probe);
		md_pack_text(&p, graph->probe_why);
		msgpack_pack_uint32(&p, graph->node_count);
		msgpack_pack_uint32(&p, graph->edge_count);
		msgpack_pack_array(&p, MD_COLUMN_GRAPH_END);
		for (int i = 0; i < MD_COLUMN_GRAPH_END; i++)
			md_pack_bytes(&p, columns.out[i].data, columns.out[i].size);
		md_trace_record_end(w);
	}
	md_columns_finish(&columns);
}

static enum md_status decode_columns(struct md_trace_build *build, struct md_trace_graph *graph, uint32_t nodes,
				     uint32_t edges, struct md_reader *in, struct md_error *err)
{
	struct md_columns columns;
	struct md_columns_view view = {.node_count = nodes, .edge_count = edges};
	md_columns_init(&columns, true);
	if (md_unpack_array(in) != MD_COLUMN_GRAPH_END)
		md_unpack_fail(in);
	for (int i = 0; i < MD_COLUMN_GRAPH_END && !in->failed; i++) {
		size_t size;
		const void *data = md_unpack_bytes(in, &size);
		md_reader_init(&columns.in[i], data, size);
	}
	enum md_status status = MD_OK;
	if (!in->failed)
		status = md_columns_get_graph(&columns, &view, MD_NO_BASE, &graph->arena, &build->budget, err);
	if (!in->failed && status == MD_OK) {
		graph->nodes = view.nodes;
		graph->node_count = nodes;
		graph->edges = view.edges;
		graph->edge_count = edges;
	}
	md_columns_finish(&columns);
	return status;
}

/* Child graphs have the nodes that they state, and edges stay within one graph. */
static enum md_status check_nesting(const struct md_trace_graph *graph, struct md_error *err)
{
	MD_AUTO_FREE uint32_t *parents = calloc((size_t)graph->node_count + 1, sizeof(*parents));
	if (!parents)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the parents of %u nodes",
				    graph->node_count);
	if (!md_nodes_parents(graph->nodes, graph->node_count, parents))
		return md_error_set(err, MD_ERR_CORRUPT, "child graphs reach too far, or are over %u deep",
				    MD_CHILD_DEPTH_MAX);
	for (uint32_t i = 0; i < graph->edge_count; i++) {
		if (parents[graph->edges[i].from] != parents[graph->edges[i].to])
			return md_error_set(err, MD_ERR_CORRUPT, "edge %u: %u to %u, in another graph", i,
					    graph->edges[i].from, graph->edges[i].to);
	}
	return MD_OK;
}

static enum md_status check_graph(const struct md_trace *trace, const struct md_trace_graph *graph,
				  struct md_error *err)
{
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct md_node *node = &graph->nodes[i];
		if (node->type == MD_NODE_KERNEL && node->kernel != MD_NONE && node->kernel >= trace->kernel_count)
			return md_error_set(err, MD_ERR_CORRUPT, "node %u: kernel index %u of %u", i, node->kernel,
					    trace->kernel_count);
	}
	for (uint32_t i = 0; i < graph->edge_count; i++) {
		const struct md_edge *edge = &graph->edges[i];
		if (edge->from >= graph->node_count || edge->to >= graph->node_count)
			return md_error_set(err, MD_ERR_CORRUPT, "edge %u: %u to %u of %u nodes", i, edge->from,
					    edge->to, graph->node_count);
	}
	return check_nesting(graph, err);
}

/*
 * The executable was updated: what the engine stated of the graph stays, but findings of its test belong to the graph
 * before the update. The memory of the old nodes is not returned to the budget.
 */
static struct md_trace_graph *update_begin(struct md_trace *trace, uint64_t index)
{
	struct md_trace_graph *graph = &trace->graphs[index];
	free(md_steal_ptr(&graph->nodes));
	free(md_steal_ptr(&graph->edges));
	free(md_steal_ptr(&graph->refused));
	free(md_steal_ptr(&graph->probe_why));
	md_arena_free(&graph->arena);
	graph->node_count = graph->edge_count = 0;
	graph->probe_sequence = 0;
	graph->together = false;
	graph->tolerance = (struct md_tolerance){0};
	free(md_steal_ptr(&graph->written));
	graph->written_count = 0;
	graph->written_known = false;
	return graph;
}

static struct md_trace_graph *append(struct md_trace_build *build)
{
	struct md_trace *trace = build->trace;
	return md_trace_append(build, &trace->graphs, &trace->graph_count, sizeof(struct md_trace_graph));
}

enum md_status md_trace_get_graph(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	struct md_trace *trace = build->trace;
	uint64_t id = md_unpack_uint(in), index = trace->graph_count;
	struct md_trace_graph *graph = in->failed                               ? NULL
				       : md_map_get(&build->graphs, id, &index) ? update_begin(trace, index)
										: append(build);
	if (!graph)
		return in->failed ? MD_OK : md_trace_no_room(build, err);
	graph->sequence = sequence;
	graph->id = id;
	char *label = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	uint32_t batch = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	if (label) {
		free(graph->label);
		graph->label = label;
	}
	if (label || index == trace->graph_count - 1)
		graph->batch = batch ? batch : graph->batch;
	graph->instantiate_flags = md_unpack_uint(in);
	graph->refused = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	graph->probe = (enum md_probe_result)md_unpack_uint_max(in, MD_PROBE_FAILED);
	graph->probe_why = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	uint32_t nodes = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	uint32_t edges = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	if (in->failed)
		return MD_OK;
	if (!md_budget_take(&build->budget, MD_MAP_ENTRY_BYTES))
		return md_trace_no_room(build, err);
	if (!md_map_put(&build->graphs, graph->id, index))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a graph");
	MD_FORWARD(decode_columns(build, graph, nodes, edges, in, err));
	return check_graph(trace, graph, err);
}

/* ---- labels and probes ---- */

static void note_attach(struct md_trace_graph *graph, struct md_trace_note *note)
{
	char **slot = note->probe ? &graph->probe_why : &graph->label;
	free(*slot);
	*slot = note->text;
	note->text = NULL;
	if (note->probe) {
		graph->probe = note->probe;
		graph->probe_sequence = note->sequence;
	} else {
		graph->batch = note->batch;
	}
}

static enum md_status note_take(struct md_trace_build *build, struct md_trace_note *note, struct md_error *err)
{
	uint64_t index;
	if (md_map_get(&build->graphs, note->graph, &index)) {
		note_attach(&build->trace->graphs[index], note);
		return MD_OK;
	}
	struct md_trace_note *kept = md_trace_append(build, &build->notes, &build->note_count, sizeof(*kept));
	if (!kept) {
		free(note->text);
		return md_trace_no_room(build, err);
	}
	*kept = *note;
	return MD_OK;
}

void md_trace_put_label(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const char *label, uint32_t batch)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_LABEL, sequence, 3, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	md_pack_text(&p, label);
	msgpack_pack_uint32(&p, batch);
	md_trace_record_end(w);
}

enum md_status md_trace_get_label(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	(void)sequence;
	struct md_trace_note note = {.graph = md_unpack_uint(in)};
	note.text = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	note.batch = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	return note_take(build, &note, err);
}

void md_trace_put_probe(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, enum md_probe_result result,
			const char *why)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_PROBE, sequence, 3, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	msgpack_pack_uint32(&p, result);
	md_pack_text(&p, why);
	md_trace_record_end(w);
}

enum md_status md_trace_get_probe(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	struct md_trace_note note = {.sequence = sequence, .graph = md_unpack_uint(in)};
	note.probe = (enum md_probe_result)md_unpack_uint_max(in, MD_PROBE_FAILED);
	if (!note.probe)
		md_unpack_fail(in);
	note.text = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (in->failed) {
		free(note.text);
		return MD_OK;
	}
	return note_take(build, &note, err);
}

void md_trace_put_together(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const char *why)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_TOGETHER, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	md_pack_text(&p, why);
	md_trace_record_end(w);
}

/* A recorder writes it for a graph that is refused for nothing else. */
enum md_status md_trace_get_together(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				     struct md_error *err)
{
	uint64_t id = md_unpack_uint(in), index;
	char *why = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	(void)sequence, (void)err;
	if (in->failed || !md_map_get(&build->graphs, id, &index)) {
		free(why);
		return MD_OK;
	}
	struct md_trace_graph *graph = &build->trace->graphs[index];
	free(graph->refused);
	graph->refused = why;
	graph->together = !why;
	return MD_OK;
}

void md_trace_attach_notes(struct md_trace_build *build)
{
	/* backwards, so that the last of several early labels stays; a label behind the graph stays anyway */
	for (uint32_t i = build->note_count; i-- > 0;) {
		struct md_trace_note *note = &build->notes[i];
		uint64_t index;
		if (!md_map_get(&build->graphs, note->graph, &index))
			continue;
		struct md_trace_graph *graph = &build->trace->graphs[index];
		if (note->probe ? !graph->probe : !graph->label)
			note_attach(graph, note);
	}
}
