/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and edges as columns, written and read side by side. */
#include "format/codec/columns.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The type column: the low four bits are the node's type, the rest say what need not be stored. */
enum { TYPE_MASK = 0x0f, VIA_EXTRA = 0x10, SAME_DIMS = 0x20, SAME_PARAMS = 0x40, SAME_ATTRIBUTES = 0x80 };

#define LISTED_KERNELS 4096u
#define RUN_GAP 4u /* equal bytes between two differing ones that are worth a new run */

static const struct md_node zero_node = {.kernel = MD_NONE};

void md_columns_init(struct md_columns *columns, bool with_sequences)
{
	*columns = (struct md_columns){.with_sequences = with_sequences};
	md_map_init(&columns->last);
	for (int i = 0; i < MD_COLUMN_COUNT; i++)
		md_buf_init(&columns->out[i]);
}

void md_columns_finish(struct md_columns *columns)
{
	for (uint32_t i = 0; i < columns->count; i++) {
		free(columns->graphs[i].pointer_start);
		free(columns->graphs[i].noise_start);
	}
	free(columns->graphs);
	free(columns->targets);
	md_map_finish(&columns->last);
	free(columns->last_of_kernel);
	for (int i = 0; i < MD_COLUMN_COUNT; i++)
		md_buf_finish(&columns->out[i]);
}

bool md_columns_add(struct md_columns *columns, const struct md_columns_view *graph)
{
	if (!MD_ARRAY_GROW(columns->graphs, columns->count, columns->capacity))
		return false;
	columns->graphs[columns->count++] = *graph;
	return true;
}

void *md_columns_take_array(const struct md_columns *columns, struct md_budget *budget, uint64_t count, size_t size)
{
	return columns->pool ? md_budget_arena(budget, columns->pool, count, size)
			     : md_budget_alloc(budget, count, size);
}

void md_columns_give_array(const struct md_columns *columns, void *array)
{
	if (!columns->pool)
		free(array);
}

/* ---- prediction ---- */

static uint64_t key_of(const struct md_node *node)
{
	return (uint64_t)node->type << 32 | (node->type == MD_NODE_KERNEL ? node->kernel : 0);
}

/* Kernels have small numbers, which need no map. A place is stored as one more than it is; 0: there is none. */
static bool is_listed(const struct md_node *node)
{
	return node->type == MD_NODE_KERNEL && node->kernel < LISTED_KERNELS;
}

static bool last_of(const struct md_columns *columns, const struct md_node *node, uint64_t *place)
{
	if (!is_listed(node))
		return md_map_get(&columns->last, key_of(node), place);
	*place = columns->last_of_kernel ? columns->last_of_kernel[node->kernel] - 1 : UINT64_MAX;
	return *place != UINT64_MAX;
}

bool md_columns_predict(const struct md_columns *columns, const struct md_columns_view *base, uint32_t base_index,
			const struct md_node *node, uint32_t index, uint64_t *predictor)
{
	if (base && index < base->node_count && key_of(&base->nodes[index]) == key_of(node)) {
		*predictor = (uint64_t)base_index << 32 | index;
		return true;
	}
	return last_of(columns, node, predictor);
}

bool md_columns_note(struct md_columns *columns, const struct md_node *node, uint32_t graph, uint32_t index)
{
	uint64_t place = (uint64_t)graph << 32 | index;
	if (!is_listed(node))
		return md_map_put(&columns->last, key_of(node), place);
	if (!columns->last_of_kernel)
		columns->last_of_kernel = calloc(LISTED_KERNELS, sizeof(*columns->last_of_kernel));
	if (columns->last_of_kernel)
		columns->last_of_kernel[node->kernel] = place + 1;
	return columns->last_of_kernel != NULL;
}

/* The graph that is being coded is not in columns->graphs yet, but its own earlier nodes may predict, too. */
static const struct md_node *predictor_of(const struct md_columns *columns, const struct md_columns_view *self,
					  uint32_t base, const struct md_node *node, uint32_t index)
{
	uint64_t at;
	if (!md_columns_predict(columns, base == MD_NO_BASE ? NULL : &columns->graphs[base], base, node, index, &at))
		return &zero_node;
	uint32_t graph = (uint32_t)(at >> 32);
	return &(graph == columns->count ? self : &columns->graphs[graph])->nodes[(uint32_t)at];
}

static uint32_t kernels_alike(const struct md_columns_view *a, const struct md_columns_view *b)
{
	uint32_t alike = 0;
	for (uint32_t i = 0; i < a->node_count && i < b->node_count; i++)
		alike += key_of(&a->nodes[i]) == key_of(&b->nodes[i]);
	return alike;
}

uint32_t md_columns_choose_base(const struct md_columns *columns, const struct md_columns_view *graph)
{
	enum { LOOK_BACK = 6 };
	uint32_t best = MD_NO_BASE, best_alike = 0;
	for (uint32_t back = 1; back <= LOOK_BACK && back <= columns->count; back++) {
		uint32_t at = columns->count - back;
		uint32_t alike = kernels_alike(&columns->graphs[at], graph);
		if (alike > best_alike) {
			best = at;
			best_alike = alike;
		}
	}
	return best_alike * 2 > graph->node_count ? best : MD_NO_BASE;
}

/* ---- kernel indices ---- */

static uint32_t predicted_kernel(const struct md_columns *columns, uint32_t base, uint32_t index)
{
	const struct md_columns_view *graph = base == MD_NO_BASE ? NULL : &columns->graphs[base];
	if (!graph || index >= graph->node_count || graph->nodes[index].type != MD_NODE_KERNEL)
		return 0;
	return graph->nodes[index].kernel + 1;
}

/* ---- grid, block and shared bytes ---- */

static bool same_dims(const struct md_node *a, const struct md_node *b)
{
	return !memcmp(a->grid, b->grid, sizeof(a->grid)) && !memcmp(a->block, b->block, sizeof(a->block)) &&
	       a->shared_bytes == b->shared_bytes;
}

static void put_dims(struct md_buf *out, const struct md_node *node, const struct md_node *predictor)
{
	for (int i = 0; i < 3; i++)
		md_columns_put_difference(out, node->grid[i], predictor->grid[i]);
	for (int i = 0; i < 3; i++)
		md_columns_put_difference(out, node->block[i], predictor->block[i]);
	md_columns_put_difference(out, node->shared_bytes, predictor->shared_bytes);
}

static void get_dims(struct md_reader *in, struct md_node *node, const struct md_node *predictor)
{
	for (int i = 0; i < 3; i++)
		node->grid[i] = md_columns_get_sum32(in, predictor->grid[i]);
	for (int i = 0; i < 3; i++)
		node->block[i] = md_columns_get_sum32(in, predictor->block[i]);
	node->shared_bytes = md_columns_get_sum32(in, predictor->shared_bytes);
}

/* ---- parameter blocks ---- */

static bool same_params(const struct md_node *a, const struct md_node *b)
{
	return a->params_size == b->params_size && (!a->params_size || !memcmp(a->params, b->params, a->params_size));
}

static bool byte_differs(const struct md_node *node, const struct md_node *predictor, uint32_t at)
{
	return node->params[at] != (at < predictor->params_size ? predictor->params[at] : 0);
}

/* End of the run that starts at `at`: RUN_GAP equal bytes in a row, or the end of the block. */
static uint32_t run_end(const struct md_node *node, const struct md_node *predictor, uint32_t at)
{
	uint32_t end = at;
	for (uint32_t i = at; i < node->params_size && i - end < RUN_GAP; i++) {
		if (byte_differs(node, predictor, i))
			end = i + 1;
	}
	return end;
}

static void put_params(struct md_columns *columns, const struct md_node *node, const struct md_node *predictor)
{
	struct md_buf *runs = &columns->out[MD_COLUMN_RUNS], *bytes = &columns->out[MD_COLUMN_PARAMS];
	md_columns_put_difference(runs, node->params_size, predictor->params_size);
	uint32_t done = 0;
	for (uint32_t at = 0; at < node->params_size; at++) {
		if (!byte_differs(node, predictor, at))
			continue;
		uint32_t end = run_end(node, predictor, at);
		md_buf_put_varint(runs, end - at);
		md_buf_put_varint(runs, at - done);
		for (uint32_t i = at; i < end; i++)
			md_buf_put_u8(bytes, (uint8_t)(node->params[i] -
						       (i < predictor->params_size ? predictor->params[i] : 0)));
		done = at = end;
	}
	md_buf_put_varint(runs, 0);
}

static bool take_params(struct md_node *node, const struct md_node *predictor, void **arena, struct md_budget *budget)
{
	if (!node->params_size)
		return true;
	node->params = md_budget_arena(budget, arena, node->params_size, 1);
	if (!node->params)
		return false;
	uint32_t common = node->params_size < predictor->params_size ? node->params_size : predictor->params_size;
	if (common)
		memcpy(node->params, predictor->params, common);
	return true;
}

static void get_runs(struct md_columns *columns, struct md_node *node)
{
	struct md_reader *runs = &columns->in[MD_COLUMN_RUNS], *bytes = &columns->in[MD_COLUMN_PARAMS];
	uint64_t at = 0, length;
	while ((length = md_columns_varint(runs)) != 0) {
		uint64_t gap = md_columns_varint(runs);
		if (gap > node->params_size - at || length > node->params_size - at - gap) {
			md_unpack_fail(runs);
			return;
		}
		const uint8_t *data = md_reader_take(bytes, length);
		at += gap;
		for (uint64_t i = 0; data && i < length; i++)
			node->params[at + i] = (uint8_t)(node->params[at + i] + data[i]);
		at += length;
		if (!data)
			return;
	}
}

static bool get_params(struct md_columns *columns, struct md_node *node, const struct md_node *predictor, bool same,
		       void **arena, struct md_budget *budget)
{
	node->params_size = predictor->params_size;
	if (!same)
		node->params_size = md_columns_get_sum32(&columns->in[MD_COLUMN_RUNS], predictor->params_size);
	if (node->params_size > MD_PARAMS_MAX) {
		md_unpack_fail(&columns->in[MD_COLUMN_RUNS]);
		node->params_size = 0;
		return true;
	}
	if (!take_params(node, predictor, arena, budget))
		return false;
	if (!same)
		get_runs(columns, node);
	return true;
}

/* ---- attributes ---- */

static bool same_attributes(const struct md_node *a, const struct md_node *b)
{
	if (a->attribute_count != b->attribute_count)
		return false;
	for (uint32_t i = 0; i < a->attribute_count; i++) {
		if (a->attributes[i].id != b->attributes[i].id ||
		    memcmp(a->attributes[i].value, b->attributes[i].value, sizeof(a->attributes[i].value)) != 0)
			return false;
	}
	return true;
}

static void put_attributes(struct md_buf *out, const struct md_node *node)
{
	md_buf_put_varint(out, node->attribute_count);
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		const struct md_attribute *attribute = &node->attributes[i];
		size_t length = sizeof(attribute->value);
		while (length > 0 && !attribute->value[length - 1])
			length--;
		md_buf_put_varint(out, attribute->id);
		md_buf_put_varint(out, length);
		md_buf_put(out, attribute->value, length);
	}
}

static bool get_attributes(struct md_reader *in, struct md_node *node, const struct md_node *predictor, bool same,
			   void **arena, struct md_budget *budget)
{
	uint64_t count = same ? predictor->attribute_count : md_columns_varint(in);
	if (count > MD_ATTRIBUTES_MAX)
		md_unpack_fail(in);
	if (!count || in->failed)
		return true;
	node->attributes = md_budget_arena(budget, arena, count, sizeof(*node->attributes));
	if (!node->attributes)
		return false;
	node->attribute_count = (uint32_t)count;
	if (same) {
		memcpy(node->attributes, predictor->attributes, count * sizeof(*node->attributes));
		return true;
	}
	for (uint64_t i = 0; i < count; i++) {
		uint64_t id = md_columns_varint(in), length = md_columns_varint(in);
		if (id > UINT32_MAX || length > sizeof(node->attributes[i].value))
			md_unpack_fail(in);
		const void *value = md_reader_take(in, in->failed ? 0 : length);
		node->attributes[i].id = (uint32_t)id;
		if (value)
			memcpy(node->attributes[i].value, value, length);
	}
	return true;
}

/* ---- nodes ---- */

static void put_node(struct md_columns *columns, const struct md_columns_view *graph, uint32_t base, uint32_t index)
{
	const struct md_node *node = &graph->nodes[index];
	const struct md_node *predictor = predictor_of(columns, graph, base, node, index);
	uint8_t flags = node->type & TYPE_MASK;
	flags |= node->via_extra ? VIA_EXTRA : 0;
	flags |= same_dims(node, predictor) ? SAME_DIMS : 0;
	flags |= same_params(node, predictor) ? SAME_PARAMS : 0;
	flags |= same_attributes(node, predictor) ? SAME_ATTRIBUTES : 0;
	md_buf_put_u8(&columns->out[MD_COLUMN_TYPE], flags);
	if (node->type == MD_NODE_KERNEL) /* MD_NONE + 1 is 0 */
		md_columns_put_difference(&columns->out[MD_COLUMN_KERNEL], (uint32_t)(node->kernel + 1),
					  predicted_kernel(columns, base, index));
	if (!(flags & SAME_DIMS))
		put_dims(&columns->out[MD_COLUMN_DIMS], node, predictor);
	if (!(flags & SAME_PARAMS))
		put_params(columns, node, predictor);
	if (!(flags & SAME_ATTRIBUTES))
		put_attributes(&columns->out[MD_COLUMN_ATTRIBUTES], node);
	if (md_columns_has_copy(node))
		md_columns_put_copy(&columns->out[MD_COLUMN_COPIES], node, predictor);
	if (columns->with_sequences)
		md_columns_put_difference(&columns->out[MD_COLUMN_SEQUENCES], node->sequence,
					  index ? graph->nodes[index - 1].sequence : 0);
}

static bool get_node(struct md_columns *columns, const struct md_columns_view *graph, uint32_t base, uint32_t index,
		     void **arena, struct md_budget *budget)
{
	struct md_node *node = &graph->nodes[index];
	uint8_t flags = md_reader_u8(&columns->in[MD_COLUMN_TYPE]);
	node->type = flags & TYPE_MASK;
	node->via_extra = flags & VIA_EXTRA;
	node->kernel = MD_NONE;
	if (node->type == MD_NODE_KERNEL)
		node->kernel =
		    md_columns_get_sum32(&columns->in[MD_COLUMN_KERNEL], predicted_kernel(columns, base, index)) - 1;
	const struct md_node *predictor = predictor_of(columns, graph, base, node, index);
	if (flags & SAME_DIMS) {
		memcpy(node->grid, predictor->grid, sizeof(node->grid));
		memcpy(node->block, predictor->block, sizeof(node->block));
		node->shared_bytes = predictor->shared_bytes;
	} else {
		get_dims(&columns->in[MD_COLUMN_DIMS], node, predictor);
	}
	if (!get_params(columns, node, predictor, flags & SAME_PARAMS, arena, budget))
		return false;
	if (!get_attributes(&columns->in[MD_COLUMN_ATTRIBUTES], node, predictor, flags & SAME_ATTRIBUTES, arena,
			    budget))
		return false;
	if (md_columns_has_copy(node))
		md_columns_get_copy(&columns->in[MD_COLUMN_COPIES], node, predictor);
	if (columns->with_sequences)
		node->sequence =
		    md_columns_get_sum(&columns->in[MD_COLUMN_SEQUENCES], index ? graph->nodes[index - 1].sequence : 0);
	return true;
}

/* ---- edges ---- */

static bool edges_equal(const struct md_columns_view *a, const struct md_columns_view *b)
{
	if (a->edge_count != b->edge_count)
		return false;
	for (uint32_t i = 0; i < a->edge_count; i++) {
		const struct md_edge *x = &a->edges[i], *y = &b->edges[i];
		if (x->from != y->from || x->to != y->to || x->from_port != y->from_port || x->to_port != y->to_port ||
		    x->type != y->type)
			return false;
	}
	return true;
}

static void put_edges(struct md_buf *out, const struct md_columns_view *graph, const struct md_columns_view *base)
{
	bool same = base && edges_equal(graph, base);
	md_buf_put_u8(out, same);
	uint32_t previous = UINT32_MAX; /* a chain is 0 -> 1, 1 -> 2 ...: all differences are 1 */
	for (uint32_t i = 0; !same && i < graph->edge_count; i++) {
		const struct md_edge *edge = &graph->edges[i];
		bool data = edge->from_port || edge->to_port || edge->type;
		/* the low bit of the first number says that edge data follow */
		md_buf_put_varint(out, (uint64_t)((uint32_t)(edge->from - previous)) << 1 | data);
		md_buf_put_zigzag(out, (int64_t)edge->to - edge->from);
		if (data) {
			const uint8_t bytes[] = {edge->from_port, edge->to_port, edge->type};
			md_buf_put(out, bytes, sizeof(bytes));
		}
		previous = edge->from;
	}
}

static void get_edge(struct md_reader *in, struct md_edge *edge, uint32_t previous)
{
	uint64_t head = md_columns_varint(in);
	if (head >> 33)
		md_unpack_fail(in);
	edge->from = previous + (uint32_t)(head >> 1);
	edge->to = md_columns_get_sum32(in, edge->from);
	const uint8_t *data = head & 1 ? md_reader_take(in, 3) : NULL;
	if (data) {
		edge->from_port = data[0];
		edge->to_port = data[1];
		edge->type = data[2];
	}
}

static enum md_status get_edges(struct md_columns *columns, struct md_columns_view *graph,
				const struct md_columns_view *base, struct md_budget *budget, struct md_error *err)
{
	struct md_reader *in = &columns->in[MD_COLUMN_EDGES];
	uint8_t same = md_reader_u8(in);
	if (in->failed || same > 1 || (same && (!base || base->edge_count != graph->edge_count)))
		return md_error_set(err, MD_ERR_CORRUPT, "edges refer to a base graph with other edges");
	if (!same && graph->edge_count > md_reader_left(in) / 2)
		return md_error_set(err, MD_ERR_CORRUPT, "%u edges announced in %zu bytes", graph->edge_count,
				    md_reader_left(in));
	graph->edges = md_columns_take_array(columns, budget, graph->edge_count, sizeof(*graph->edges));
	if (!graph->edges)
		return md_budget_error(budget, err);
	if (same && graph->edge_count)
		memcpy(graph->edges, base->edges, graph->edge_count * sizeof(*graph->edges));
	uint32_t previous = UINT32_MAX;
	for (uint32_t i = 0; !same && i < graph->edge_count; i++) {
		get_edge(in, &graph->edges[i], previous);
		previous = graph->edges[i].from;
	}
	if (in->failed)
		return md_error_set(err, MD_ERR_CORRUPT, "the edge column ends or breaks at byte %zu", in->failed_at);
	return MD_OK;
}

/* ---- graphs ---- */

bool md_columns_wrote_all(const struct md_columns *columns)
{
	for (int i = 0; i < MD_COLUMN_COUNT; i++) {
		if (columns->out[i].failed)
			return false;
	}
	return true;
}

bool md_columns_put_graph(struct md_columns *columns, const struct md_columns_view *graph, uint32_t base)
{
	for (uint32_t i = 0; i < graph->node_count; i++) {
		put_node(columns, graph, base, i);
		if (!md_columns_note(columns, &graph->nodes[i], columns->count, i))
			return false;
	}
	put_edges(&columns->out[MD_COLUMN_EDGES], graph, base == MD_NO_BASE ? NULL : &columns->graphs[base]);
	return md_columns_wrote_all(columns) && md_columns_add(columns, graph);
}

static const struct md_reader *failed_column(const struct md_columns *columns)
{
	for (int i = 0; i < MD_COLUMN_GRAPH_END; i++) {
		if (columns->in[i].failed)
			return &columns->in[i];
	}
	return NULL;
}

static enum md_status get_nodes(struct md_columns *columns, struct md_columns_view *graph, uint32_t base, void **arena,
				struct md_budget *budget, struct md_error *err)
{
	for (uint32_t i = 0; i < graph->node_count; i++) {
		if (!get_node(columns, graph, base, i, arena, budget)) {
			md_budget_error(budget, err);
			return md_error_prefix(err, "node %u", i);
		}
		const struct md_reader *bad = failed_column(columns);
		if (bad)
			return md_error_set(err, MD_ERR_CORRUPT, "node %u: column %d ends or breaks at byte %zu", i,
					    (int)(bad - columns->in), bad->failed_at);
		if (!md_columns_note(columns, &graph->nodes[i], columns->count, i))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for node %u", i);
	}
	return MD_OK;
}

enum md_status md_columns_get_graph(struct md_columns *columns, struct md_columns_view *graph, uint32_t base,
				    void **arena, struct md_budget *budget, struct md_error *err)
{
	if (base != MD_NO_BASE && base >= columns->count)
		return md_error_set(err, MD_ERR_CORRUPT, "base graph %u of %u", base, columns->count);
	if (graph->node_count > md_reader_left(&columns->in[MD_COLUMN_TYPE]))
		return md_error_set(err, MD_ERR_CORRUPT, "%u nodes announced in %zu bytes", graph->node_count,
				    md_reader_left(&columns->in[MD_COLUMN_TYPE]));
	graph->edges = NULL;
	graph->nodes = NULL;
	if (md_budget_take(budget, graph->node_count * (uint64_t)MD_MAP_ENTRY_BYTES)) /* of the map of last nodes */
		graph->nodes = md_columns_take_array(columns, budget, graph->node_count, sizeof(*graph->nodes));
	if (!graph->nodes)
		return md_budget_error(budget, err);
	enum md_status status = get_nodes(columns, graph, base, columns->pool ? columns->pool : arena, budget, err);
	if (status == MD_OK)
		status = get_edges(columns, graph, base == MD_NO_BASE ? NULL : &columns->graphs[base], budget, err);
	if (status == MD_OK && !md_columns_add(columns, graph))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a graph");
	if (status != MD_OK) {
		md_columns_give_array(columns, graph->nodes);
		md_columns_give_array(columns, graph->edges);
		if (!columns->pool)
			md_arena_free(arena);
		graph->nodes = NULL;
		graph->edges = NULL;
	}
	return status;
}
