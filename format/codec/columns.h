/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as columns: one byte stream for each field, with each value as its difference from the predicting node's. */
#ifndef MD_FORMAT_CODEC_COLUMNS_H
#define MD_FORMAT_CODEC_COLUMNS_H

#include "base/map.h"
#include "format/artifact/artifact.h"
#include "format/codec/pack.h"

/*
 * Prediction. The predictor of node i is node i of the base graph (an earlier graph, usually of the neighbouring batch
 * size) if that has the same type and kernel; else the last node before it, in this or an earlier graph, with the same
 * type and kernel; else a node of zeros. Writer and reader run the same code over the nodes that both know by then.
 */
struct md_columns_view {
	struct md_node *nodes;
	uint32_t node_count;
	struct md_edge *edges;
	uint32_t edge_count;
	/* artifact only */
	struct md_pointer *pointers;
	uint32_t pointer_count;
	struct md_noise *noise;
	uint32_t noise_count;
	uint32_t *pointer_start, *noise_start; /* by node, and one more; owned by md_columns */
};

enum md_column {
	MD_COLUMN_TYPE,       /* a byte a node: type, and which parts equal the predictor's */
	MD_COLUMN_KERNEL,     /* zig-zag against the base graph's node */
	MD_COLUMN_DIMS,       /* grid, block, shared bytes: seven zig-zags */
	MD_COLUMN_RUNS,       /* parameter size; runs of bytes that differ from the predictor: (gap, length)... */
	MD_COLUMN_PARAMS,     /* the differing bytes, minus the predictor's */
	MD_COLUMN_ATTRIBUTES, /* count, then id, length and bytes without trailing zeros */
	MD_COLUMN_COPIES,     /* fields of memset, memcpy, child graph and event nodes */
	MD_COLUMN_SEQUENCES,  /* traces only */
	MD_COLUMN_EDGES,      /* 1 when all edges equal the base's; else 0 and the edges */
	MD_COLUMN_GRAPH_END,
	/* artifact only, in their own section */
	MD_COLUMN_POINTER_COUNTS = MD_COLUMN_GRAPH_END, /* a node's pointers: 0 as the predictor's, else 1 + count */
	MD_COLUMN_POINTER_PLACES,                       /* bytes since the place before << 1 | kind */
	MD_COLUMN_POINTER_HITS,    /* a byte a pointer. 0: the predicted target; 1: differences follow */
	MD_COLUMN_POINTER_ALLOCS,  /* zig-zag against the predicted target's */
	MD_COLUMN_POINTER_OFFSETS, /* likewise */
	MD_COLUMN_NOISE_COUNTS,    /* a node's noise: 0 as the predictor's, else 1 + count */
	MD_COLUMN_NOISE,           /* bytes since the end before, size */
	MD_COLUMN_COUNT,
};

#define MD_NO_BASE UINT32_MAX
#define MD_PARAMS_MAX 65536u /* bytes; CUDA's own limit is 32,764 */
#define MD_ATTRIBUTES_MAX 64u

struct md_columns {
	struct md_columns_view *graphs; /* borrowed pointers, in order */
	uint32_t count, capacity;
	struct md_target_slot *targets; /* pointers only: the targets that replaced those of the base graph */
	uint32_t generation;            /* of targets: slots with an older number are of earlier graphs, and stale */
	struct md_map last;             /* type and kernel -> graph << 32 | node */
	uint64_t *last_of_kernel;       /* the same, for kernels with small numbers */
	bool with_sequences;
	void **pool; /* reading: the arena that all memory of the graphs is taken from; NULL: they have their own */
	struct md_buf out[MD_COLUMN_COUNT];   /* writing */
	struct md_reader in[MD_COLUMN_COUNT]; /* reading */
};

void md_columns_init(struct md_columns *columns, bool with_sequences);
void md_columns_finish(struct md_columns *columns);

/* Writing: base is an index of an earlier graph or MD_NO_BASE. False when out of memory. */
uint32_t md_columns_choose_base(const struct md_columns *columns, const struct md_columns_view *graph);
bool md_columns_put_graph(struct md_columns *columns, const struct md_columns_view *graph, uint32_t base);
bool md_columns_put_pointers(struct md_columns *columns, const struct md_columns_view *graph, uint32_t base);

/*
 * Reading: graph->node_count and edge_count (pointer_count, noise_count) are those that the file announced; arrays are
 * taken from budget. On failure everything that was taken is freed. Errors start with "node N: " or name the column.
 */
enum md_status md_columns_get_graph(struct md_columns *columns, struct md_columns_view *graph, uint32_t base,
				    void **arena, struct md_budget *budget, struct md_error *err);
/* graph->nodes are there already; needs a fresh md_columns whose graphs are put in the same order. */
enum md_status md_columns_get_pointers(struct md_columns *columns, struct md_columns_view *graph, uint32_t base,
				       struct md_budget *budget, struct md_error *err);

/* ---- shared by the codecs ---- */

/* Memory for an array of the graph that is being read, zero; md_columns_give_array frees it again. */
void *md_columns_take_array(const struct md_columns *columns, struct md_budget *budget, uint64_t count, size_t size);
void md_columns_give_array(const struct md_columns *columns, void *array);
bool md_columns_wrote_all(const struct md_columns *columns);
bool md_columns_add(struct md_columns *columns, const struct md_columns_view *graph);
/* The predictor of a node of the graph being coded, as graph << 32 | node; false: a node of zeros. */
bool md_columns_predict(const struct md_columns *columns, const struct md_columns_view *base, uint32_t base_index,
			const struct md_node *node, uint32_t index, uint64_t *predictor);
bool md_columns_note(struct md_columns *columns, const struct md_node *node, uint32_t graph, uint32_t index);
/* columns_copies.c: memset, memcpy, child graph and event nodes, against a node of the same type. */
bool md_columns_has_copy(const struct md_node *node);
void md_columns_put_copy(struct md_buf *out, const struct md_node *node, const struct md_node *predictor);
void md_columns_get_copy(struct md_reader *in, struct md_node *node, const struct md_node *predictor);

static inline uint64_t md_columns_varint(struct md_reader *in)
{
	if (!in->failed && in->offset < in->size && in->data[in->offset] < 0x80)
		return in->data[in->offset++];
	return md_reader_varint(in);
}

static inline int64_t md_columns_zigzag(struct md_reader *in)
{
	uint64_t value = md_columns_varint(in);
	return (int64_t)(value >> 1 ^ (value & 1 ? UINT64_MAX : 0));
}

static inline void md_columns_put_difference(struct md_buf *out, uint64_t value, uint64_t predicted)
{
	md_buf_put_zigzag(out, (int64_t)(value - predicted));
}

static inline uint64_t md_columns_get_sum(struct md_reader *in, uint64_t predicted)
{
	return predicted + (uint64_t)md_columns_zigzag(in);
}

/* A sum that must fit 32 bits; fails the reader otherwise. */
static inline uint32_t md_columns_get_sum32(struct md_reader *in, uint32_t predicted)
{
	uint64_t sum = md_columns_get_sum(in, predicted);
	if (sum > UINT32_MAX) {
		md_unpack_fail(in);
		return 0;
	}
	return (uint32_t)sum;
}

#endif
