/* SPDX-License-Identifier: Apache-2.0 */
/* Pointers and noise as columns, written and read side by side. */
#include <stdlib.h>
#include <string.h>

#include "format/codec/columns.h"

/*
 * The predictor of a node predicts the places of its pointers. The base graph predicts their targets: weights stay
 * where they are, and each temporary buffer of the base graph became one temporary buffer here. So each target is
 * written in full once, and a table remembers which target replaced which. The table is direct-mapped; a collision
 * costs bytes and nothing else.
 */
#define TARGET_SLOTS 8192u

struct md_target_slot {
	uint32_t generation, alloc;
	int64_t offset;
	uint32_t pointer; /* of the graph being coded */
};

struct span {
	uint32_t first, count;
};

static struct span span_of(const uint32_t *start, uint32_t node)
{
	return (struct span){start[node], start[node + 1] - start[node]};
}

struct context {
	struct md_columns *columns;
	struct md_columns_view *graph; /* the graph that is being coded; its starts are known up to the current node */
	const struct md_columns_view *base;
	uint32_t base_index;
};

static const struct md_columns_view *view_at(const struct context *c, uint32_t index)
{
	return index == c->columns->count ? c->graph : &c->columns->graphs[index];
}

static bool starts_take(struct md_columns_view *graph)
{
	graph->pointer_start = calloc((size_t)graph->node_count + 1, sizeof(uint32_t));
	graph->noise_start = calloc((size_t)graph->node_count + 1, sizeof(uint32_t));
	return graph->pointer_start && graph->noise_start;
}

static bool context_init(struct context *c, struct md_columns *columns, struct md_columns_view *graph, uint32_t base)
{
	*c = (struct context){.columns = columns,
			      .graph = graph,
			      .base_index = base,
			      .base = base == MD_NO_BASE ? NULL : &columns->graphs[base]};
	if (!columns->targets)
		columns->targets = calloc(TARGET_SLOTS, sizeof(*columns->targets));
	columns->generation++;
	return columns->targets && starts_take(graph);
}

/* ---- what a pointer points to ---- */

static struct md_target_slot *slot_of(const struct md_columns *columns, const struct md_pointer *target)
{
	uint64_t mixed = ((uint64_t)target->offset ^ (uint64_t)target->alloc << 40) * 0x9e3779b97f4a7c15u;
	return &columns->targets[mixed >> 51 & (TARGET_SLOTS - 1)];
}

struct prediction {
	uint32_t alloc;
	int64_t offset;
	const struct md_pointer *key; /* the base graph's pointer, or NULL */
};

static struct prediction predict_target(const struct context *c, uint32_t node, uint32_t k,
					const struct md_pointer *similar)
{
	if (c->base && node < c->base->node_count) {
		struct span span = span_of(c->base->pointer_start, node);
		if (k < span.count) {
			const struct md_pointer *key = &c->base->pointers[span.first + k];
			const struct md_target_slot *slot = slot_of(c->columns, key);
			if (slot->generation == c->columns->generation && slot->alloc == key->alloc &&
			    slot->offset == key->offset) {
				const struct md_pointer *became = &c->graph->pointers[slot->pointer];
				return (struct prediction){became->alloc, became->offset, key};
			}
			return (struct prediction){key->alloc, key->offset, key};
		}
	}
	if (similar)
		return (struct prediction){similar->alloc, similar->offset, NULL};
	return (struct prediction){0};
}

static void remember(const struct context *c, const struct prediction *prediction, uint32_t pointer)
{
	if (!prediction->key)
		return;
	*slot_of(c->columns, prediction->key) = (struct md_target_slot){.generation = c->columns->generation,
									.alloc = prediction->key->alloc,
									.offset = prediction->key->offset,
									.pointer = pointer};
}

static void put_target(struct md_columns *columns, const struct md_pointer *pointer, const struct prediction *guess)
{
	bool hit = pointer->alloc == guess->alloc && pointer->offset == guess->offset;
	md_buf_put_u8(&columns->out[MD_COLUMN_POINTER_HITS], !hit);
	if (hit)
		return;
	md_columns_put_difference(&columns->out[MD_COLUMN_POINTER_ALLOCS], pointer->alloc, guess->alloc);
	md_columns_put_difference(&columns->out[MD_COLUMN_POINTER_OFFSETS], (uint64_t)pointer->offset,
				  (uint64_t)guess->offset);
}

static void get_target(struct md_columns *columns, struct md_pointer *pointer, const struct prediction *guess)
{
	pointer->alloc = guess->alloc;
	pointer->offset = guess->offset;
	if (md_columns_varint(&columns->in[MD_COLUMN_POINTER_HITS]) == 0)
		return;
	pointer->alloc = md_columns_get_sum32(&columns->in[MD_COLUMN_POINTER_ALLOCS], guess->alloc);
	pointer->offset = (int64_t)md_columns_get_sum(&columns->in[MD_COLUMN_POINTER_OFFSETS], (uint64_t)guess->offset);
}

/* ---- a node's predictor, as spans ---- */

struct similar {
	const struct md_columns_view *graph; /* NULL: there is no predictor */
	struct span pointers, noise;
};

static struct similar similar_to(const struct context *c, uint32_t node)
{
	struct similar similar = {0};
	uint64_t at;
	if (!md_columns_predict(c->columns, c->base, c->base_index, &c->graph->nodes[node], node, &at))
		return similar;
	similar.graph = view_at(c, (uint32_t)(at >> 32));
	similar.pointers = span_of(similar.graph->pointer_start, (uint32_t)at);
	similar.noise = span_of(similar.graph->noise_start, (uint32_t)at);
	return similar;
}

static const struct md_pointer *similar_pointer(const struct similar *similar, uint32_t k)
{
	return k < similar->pointers.count ? &similar->graph->pointers[similar->pointers.first + k] : NULL;
}

/* ---- writing ---- */

static bool same_places(const struct md_pointer *pointers, struct span own, const struct similar *similar)
{
	if (own.count != similar->pointers.count)
		return false;
	for (uint32_t k = 0; k < own.count; k++) {
		const struct md_pointer *a = &pointers[own.first + k], *b = similar_pointer(similar, k);
		if (a->at != b->at || a->kind != b->kind)
			return false;
	}
	return true;
}

static void put_node_pointers(const struct context *c, uint32_t node, const struct similar *similar)
{
	struct md_columns *columns = c->columns;
	struct span own = span_of(c->graph->pointer_start, node);
	bool same = same_places(c->graph->pointers, own, similar);
	md_buf_put_varint(&columns->out[MD_COLUMN_POINTER_COUNTS], same ? 0 : 1 + (uint64_t)own.count);
	uint32_t before = 0;
	for (uint32_t k = 0; k < own.count; k++) {
		const struct md_pointer *pointer = &c->graph->pointers[own.first + k];
		if (!same)
			md_buf_put_varint(&columns->out[MD_COLUMN_POINTER_PLACES],
					  (uint64_t)(pointer->at - before) << 1 | pointer->kind);
		before = pointer->at;
		struct prediction guess = predict_target(c, node, k, similar_pointer(similar, k));
		put_target(columns, pointer, &guess);
		remember(c, &guess, own.first + k);
	}
}

static bool same_noise(const struct md_noise *noise, struct span own, const struct similar *similar)
{
	if (own.count != similar->noise.count)
		return false;
	for (uint32_t k = 0; k < own.count; k++) {
		const struct md_noise *a = &noise[own.first + k], *b = &similar->graph->noise[similar->noise.first + k];
		if (a->at != b->at || a->size != b->size)
			return false;
	}
	return true;
}

static void put_node_noise(const struct context *c, uint32_t node, const struct similar *similar)
{
	struct md_buf *out = &c->columns->out[MD_COLUMN_NOISE];
	struct span own = span_of(c->graph->noise_start, node);
	bool same = same_noise(c->graph->noise, own, similar);
	md_buf_put_varint(&c->columns->out[MD_COLUMN_NOISE_COUNTS], same ? 0 : 1 + (uint64_t)own.count);
	uint32_t before = 0;
	for (uint32_t k = 0; !same && k < own.count; k++) {
		const struct md_noise *noise = &c->graph->noise[own.first + k];
		md_buf_put_varint(out, noise->at - before);
		md_buf_put_varint(out, noise->size);
		before = noise->at + noise->size;
	}
}

static void count_starts(struct md_columns_view *graph)
{
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		graph->pointer_start[graph->pointers[i].node + 1]++;
	for (uint32_t i = 0; i < graph->noise_count; i++)
		graph->noise_start[graph->noise[i].node + 1]++;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		graph->pointer_start[i + 1] += graph->pointer_start[i];
		graph->noise_start[i + 1] += graph->noise_start[i];
	}
}

bool md_columns_put_pointers(struct md_columns *columns, const struct md_columns_view *given, uint32_t base)
{
	struct md_columns_view graph = *given;
	struct context c;
	bool ok = context_init(&c, columns, &graph, base);
	if (ok)
		count_starts(&graph);
	for (uint32_t i = 0; ok && i < graph.node_count; i++) {
		struct similar similar = similar_to(&c, i);
		put_node_pointers(&c, i, &similar);
		put_node_noise(&c, i, &similar);
		ok = md_columns_note(columns, &graph.nodes[i], columns->count, i);
	}
	if (ok && md_columns_wrote_all(columns) && md_columns_add(columns, &graph))
		return true;
	free(graph.pointer_start);
	free(graph.noise_start);
	return false;
}

/* ---- reading ---- */

static enum md_status bad(struct md_error *err, uint32_t node, const char *what)
{
	return md_error_set(err, MD_ERR_CORRUPT, "node %u: %s", node, what);
}

/* Reads the number of the node's items; *same: their places are the predictor's. */
static uint64_t get_count(struct md_reader *in, uint32_t similar, bool *same)
{
	uint64_t code = md_columns_varint(in);
	*same = code == 0;
	return *same ? similar : code - 1;
}

static enum md_status get_node_pointers(const struct context *c, uint32_t node, const struct similar *similar,
					struct md_error *err)
{
	struct md_columns *columns = c->columns;
	uint32_t first = c->graph->pointer_start[node];
	bool same;
	uint64_t count = get_count(&columns->in[MD_COLUMN_POINTER_COUNTS], similar->pointers.count, &same);
	if (count > c->graph->pointer_count - first)
		return bad(err, node, "more pointers than the graph announces");
	uint32_t before = 0;
	for (uint32_t k = 0; k < count; k++) {
		struct md_pointer *pointer = &c->graph->pointers[first + k];
		const struct md_pointer *like = similar_pointer(similar, k);
		pointer->node = node;
		if (same) {
			pointer->at = like->at;
			pointer->kind = like->kind;
		} else {
			uint64_t place = md_columns_varint(&columns->in[MD_COLUMN_POINTER_PLACES]);
			if (place >> 1 > UINT32_MAX - before)
				return bad(err, node, "a pointer's place beyond 4 GiB");
			pointer->at = before + (uint32_t)(place >> 1);
			pointer->kind = place & 1;
		}
		before = pointer->at;
		struct prediction guess = predict_target(c, node, k, like);
		get_target(columns, pointer, &guess);
		remember(c, &guess, first + k);
	}
	c->graph->pointer_start[node + 1] = first + (uint32_t)count;
	return MD_OK;
}

static enum md_status get_node_noise(const struct context *c, uint32_t node, const struct similar *similar,
				     struct md_error *err)
{
	struct md_reader *in = &c->columns->in[MD_COLUMN_NOISE];
	uint32_t first = c->graph->noise_start[node];
	bool same;
	uint64_t count = get_count(&c->columns->in[MD_COLUMN_NOISE_COUNTS], similar->noise.count, &same);
	if (count > c->graph->noise_count - first)
		return bad(err, node, "more noise than the graph announces");
	uint64_t before = 0;
	for (uint32_t k = 0; k < count; k++) {
		struct md_noise *noise = &c->graph->noise[first + k];
		if (same) {
			*noise = similar->graph->noise[similar->noise.first + k];
		} else {
			uint64_t at = before + md_columns_varint(in), size = md_columns_varint(in);
			if (at > UINT32_MAX || size > UINT32_MAX)
				return bad(err, node, "noise beyond 4 GiB");
			*noise = (struct md_noise){.at = (uint32_t)at, .size = (uint32_t)size};
			before = at + size;
		}
		noise->node = node;
	}
	c->graph->noise_start[node + 1] = first + (uint32_t)count;
	return MD_OK;
}

static bool columns_failed(const struct md_columns *columns)
{
	for (int i = MD_COLUMN_GRAPH_END; i < MD_COLUMN_COUNT; i++) {
		if (columns->in[i].failed)
			return true;
	}
	return false;
}

static enum md_status get_all(const struct context *c, struct md_error *err)
{
	struct md_columns_view *graph = c->graph;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		struct similar similar = similar_to(c, i);
		MD_FORWARD(get_node_pointers(c, i, &similar, err));
		MD_FORWARD(get_node_noise(c, i, &similar, err));
		if (columns_failed(c->columns))
			return bad(err, i, "a pointer column ends or breaks");
		if (!md_columns_note(c->columns, &graph->nodes[i], c->columns->count, i))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for node %u", i);
	}
	if (graph->pointer_start[graph->node_count] != graph->pointer_count ||
	    graph->noise_start[graph->node_count] != graph->noise_count)
		return md_error_set(err, MD_ERR_CORRUPT, "%u pointers and %u noise spans announced, %u and %u found",
				    graph->pointer_count, graph->noise_count, graph->pointer_start[graph->node_count],
				    graph->noise_start[graph->node_count]);
	return MD_OK;
}

enum md_status md_columns_get_pointers(struct md_columns *columns, struct md_columns_view *graph, uint32_t base,
				       struct md_budget *budget, struct md_error *err)
{
	struct context c = {0};
	graph->pointers = md_columns_take_array(columns, budget, graph->pointer_count, sizeof(*graph->pointers));
	graph->noise =
	    graph->pointers ? md_columns_take_array(columns, budget, graph->noise_count, sizeof(*graph->noise)) : NULL;
	enum md_status status = MD_OK;
	if (!graph->noise)
		status = md_budget_error(budget, err);
	else if (!context_init(&c, columns, graph, base))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the pointers of a graph");
	if (status == MD_OK)
		status = get_all(&c, err);
	if (status == MD_OK && !md_columns_add(columns, graph))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a graph");
	if (status != MD_OK) {
		free(graph->pointer_start);
		free(graph->noise_start);
		md_columns_give_array(columns, graph->pointers);
		md_columns_give_array(columns, graph->noise);
		graph->pointer_start = graph->noise_start = NULL;
		graph->pointers = NULL;
		graph->noise = NULL;
	}
	return status;
}
