/* SPDX-License-Identifier: Apache-2.0 */
/* The sections "graphs" and "pointers": heads as records, the rest as columns over all graphs. */
#include <stdlib.h>
#include <string.h>

#include "format/artifact/sections.h"
#include "format/codec/columns.h"

#define POOL_NODES 2048u

struct row { /* a graph's row in the section "graphs", besides the fields of md_visit_graph_head */
	uint32_t node_count, edge_count, base;
	struct md_artifact_graph *graph; /* writing */
	struct md_artifact_graph head;   /* reading: the fields that are not columns, until the graph is made */
};

struct pointer_row {
	uint32_t pointer_count, noise_count;
};

static void visit_graph_row(struct md_archive *a, void *item, void *user)
{
	struct row *row = item;
	struct md_artifact_graph *graph = a->ops->reading ? &row->head : row->graph;
	(void)user;
	md_visit_graph_head(a, graph);
	md_archive_u32(a, "nodes", &row->node_count);
	md_archive_u32(a, "edges", &row->edge_count);
	md_archive_u32(a, "base", &row->base);
	md_visit_graph_tail(a, graph);
}

static void visit_pointer_row(struct md_archive *a, void *item, void *user)
{
	struct pointer_row *row = item;
	(void)user;
	md_archive_u32(a, "pointers", &row->pointer_count);
	md_archive_u32(a, "noise", &row->noise_count);
}

static struct md_columns_view view_of(const struct md_artifact_graph *graph)
{
	return (struct md_columns_view){.nodes = graph->nodes,
					.node_count = graph->node_count,
					.edges = graph->edges,
					.edge_count = graph->edge_count,
					.pointers = graph->pointers,
					.pointer_count = graph->pointer_count,
					.noise = graph->noise,
					.noise_count = graph->noise_count};
}

static const char *name_of(const struct md_artifact_graph *graph)
{
	return graph->label ? graph->label : "(no label)";
}

/* ---- writing ---- */

static void write_columns(struct md_archive *a, const struct md_columns *columns, int from, int to)
{
	md_archive_key(a, "columns");
	msgpack_pack_array(&a->packer, (size_t)(to - from));
	for (int i = from; i < to; i++)
		md_pack_bytes(&a->packer, columns->out[i].data, columns->out[i].size);
	md_archive_key_done(a);
	if (a->out->failed)
		md_archive_fail_memory(a);
}

static void write_graphs(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state,
			 struct row *rows, struct md_columns *columns)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		struct md_columns_view view = view_of(&artifact->graphs[i]);
		state->bases[i] = md_columns_choose_base(columns, &view);
		rows[i] = (struct row){.node_count = view.node_count,
				       .edge_count = view.edge_count,
				       .base = state->bases[i],
				       .graph = &artifact->graphs[i]};
		if (!md_columns_put_graph(columns, &view, state->bases[i])) {
			md_archive_fail_memory(a);
			return;
		}
	}
	uint32_t count = artifact->graph_count;
	md_archive_list(a, "graphs", "graph", &rows, &count, sizeof(*rows), visit_graph_row, NULL);
	write_columns(a, columns, 0, MD_COLUMN_GRAPH_END);
}

static void write_pointers(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state,
			   struct pointer_row *rows, struct md_columns *columns)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		struct md_columns_view view = view_of(&artifact->graphs[i]);
		rows[i] = (struct pointer_row){.pointer_count = view.pointer_count, .noise_count = view.noise_count};
		if (!md_columns_put_pointers(columns, &view, state->bases[i])) {
			md_archive_fail_memory(a);
			return;
		}
	}
	uint32_t count = artifact->graph_count;
	md_archive_list(a, "graphs", "graph", &rows, &count, sizeof(*rows), visit_pointer_row, NULL);
	write_columns(a, columns, MD_COLUMN_GRAPH_END, MD_COLUMN_COUNT);
}

/* ---- reading ---- */

/* Columns are borrowed from the section's bytes. Further columns than this reader knows are skipped. */
static void read_columns(struct md_archive *a, struct md_columns *columns, int from, int to)
{
	if (!md_archive_key(a, "columns"))
		return;
	uint32_t count = md_unpack_array(&a->in);
	if (count < (uint32_t)(to - from))
		md_unpack_fail(&a->in);
	for (int i = from; i < to && !a->in.failed; i++) {
		size_t size;
		const void *data = md_unpack_bytes(&a->in, &size);
		md_reader_init(&columns->in[i], data, size);
	}
	for (uint32_t i = (uint32_t)(to - from); i < count && !a->in.failed; i++)
		md_unpack_skip(&a->in);
	md_archive_key_done(a);
}

/* Few nodes are not worth a huge page. */
static void open_pool(struct md_artifact *artifact, const struct row *rows, uint32_t count)
{
	uint64_t nodes = 0;
	for (uint32_t i = 0; i < count; i++)
		nodes += rows[i].node_count;
	if (nodes >= POOL_NODES)
		md_arena_open_pool(&artifact->pool);
}

static bool take_graphs(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state,
			struct row *rows, uint32_t count)
{
	artifact->graphs = md_budget_alloc(a->budget, count, sizeof(*artifact->graphs));
	state->bases = artifact->graphs ? md_budget_alloc(a->budget, count, sizeof(*state->bases)) : NULL;
	if (!state->bases) {
		md_archive_fail_memory(a);
		return false;
	}
	artifact->graph_count = state->base_count = count;
	open_pool(artifact, rows, count);
	for (uint32_t i = 0; i < count; i++) {
		artifact->graphs[i] = rows[i].head;
		artifact->graphs[i].pooled = artifact->pool != NULL;
		rows[i].head = (struct md_artifact_graph){0};
		state->bases[i] = rows[i].base;
	}
	return true;
}

static void fail_graph(struct md_archive *a, enum md_status status, const struct md_artifact_graph *graph,
		       const struct md_error *why)
{
	md_archive_fail(a, status, "graph %s/%u: %s", name_of(graph), graph->batch, why->message);
}

static void read_graph_columns(struct md_archive *a, struct md_artifact *artifact, const struct row *rows,
			       struct md_columns *columns)
{
	columns->pool = artifact->pool ? &artifact->pool : NULL;
	for (uint32_t i = 0; i < artifact->graph_count && a->status == MD_OK; i++) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		struct md_columns_view view = {.node_count = rows[i].node_count, .edge_count = rows[i].edge_count};
		struct md_error why = {0};
		enum md_status status =
		    md_columns_get_graph(columns, &view, rows[i].base, &graph->arena, a->budget, &why);
		if (status != MD_OK) {
			fail_graph(a, status, graph, &why);
			return;
		}
		graph->nodes = view.nodes;
		graph->node_count = view.node_count;
		graph->edges = view.edges;
		graph->edge_count = view.edge_count;
	}
}

static void read_graphs(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state,
			struct md_columns *columns)
{
	struct row *rows = NULL;
	uint32_t count = 0;
	md_archive_list(a, "graphs", "graph", &rows, &count, sizeof(*rows), visit_graph_row, NULL);
	read_columns(a, columns, 0, MD_COLUMN_GRAPH_END);
	if (a->status == MD_OK && take_graphs(a, artifact, state, rows, count))
		read_graph_columns(a, artifact, rows, columns);
	for (uint32_t i = 0; i < count; i++) {
		free(rows[i].head.label);
		free(rows[i].head.doubtful);
		free(rows[i].head.outputs);
		free(rows[i].head.handed);
		free(rows[i].head.note);
	}
	free(rows);
}

static void read_pointers(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state,
			  struct md_columns *columns)
{
	struct pointer_row *rows = NULL;
	uint32_t count = 0;
	md_archive_list(a, "graphs", "graph", &rows, &count, sizeof(*rows), visit_pointer_row, NULL);
	read_columns(a, columns, MD_COLUMN_GRAPH_END, MD_COLUMN_COUNT);
	if (a->status == MD_OK && (count != artifact->graph_count || count != state->base_count))
		md_archive_fail(a, MD_ERR_CORRUPT, "pointers of %u graphs, of %u there are", count,
				artifact->graph_count);
	columns->pool = artifact->pool ? &artifact->pool : NULL;
	for (uint32_t i = 0; i < count && a->status == MD_OK; i++) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		struct md_columns_view view = view_of(graph);
		struct md_error why = {0};
		view.pointer_count = rows[i].pointer_count;
		view.noise_count = rows[i].noise_count;
		enum md_status status = md_columns_get_pointers(columns, &view, state->bases[i], a->budget, &why);
		if (status != MD_OK) {
			fail_graph(a, status, graph, &why);
			break;
		}
		graph->pointers = view.pointers;
		graph->pointer_count = view.pointer_count;
		graph->noise = view.noise;
		graph->noise_count = view.noise_count;
	}
	free(rows);
}

/* ---- both ---- */

void md_section_graphs(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state)
{
	struct md_columns columns;
	struct row *rows;
	md_columns_init(&columns, false);
	if (a->ops->reading) {
		read_graphs(a, artifact, state, &columns);
	} else {
		rows = calloc((size_t)artifact->graph_count + 1, sizeof(*rows));
		state->bases = calloc((size_t)artifact->graph_count + 1, sizeof(*state->bases));
		if (rows && state->bases)
			write_graphs(a, artifact, state, rows, &columns);
		else
			md_archive_fail_memory(a);
		free(rows);
	}
	md_columns_finish(&columns);
}

void md_section_pointers(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state)
{
	struct md_columns columns;
	struct pointer_row *rows;
	md_columns_init(&columns, false);
	if (a->ops->reading) {
		read_pointers(a, artifact, state, &columns);
	} else {
		rows = calloc((size_t)artifact->graph_count + 1, sizeof(*rows));
		if (rows)
			write_pointers(a, artifact, state, rows, &columns);
		else
			md_archive_fail_memory(a);
		free(rows);
	}
	md_columns_finish(&columns);
}
