/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix library's kernels for hostcuda: few rows, tiled, and split-k with arrival counters. */
#include <string.h>

#include "hostcuda/kernel.h"
#include "models/llama/gemm_params.h"
#include "models/llama/vector_host.h"

struct gemm_args {
	struct gemm_params gemm;
};

/* The columns and the part of k that one block works on, and where its sums go. */
struct gemm_span {
	int32_t row_begin, row_end, column_begin, column_end;
	int64_t k_begin, k_end;
	int parts; /* of k that are added up apart, as gemm_split_k does it: a token's result does not depend on the kernel */
	float *out; /* [rows][n] */
	int accumulate;
};

/* The hardware's prefetcher starts anew with every column; asking for columns further on nearly doubles the speed. */
enum { PANEL_ROWS = 4, PANEL_COLUMNS = 4, PREFETCH_COLUMNS = 4 };

static int32_t at_most(int64_t value, int32_t limit)
{
	return value < limit ? (int32_t)value : limit;
}

static void put(const struct gemm_params *g, const struct gemm_span *s, int32_t row, int32_t column, float sum)
{
	float *y = s->out + (size_t)row * g->n + column;
	*y = s->accumulate ? *y + sum : sum;
}

VECTOR_INLINE void add_products(float_lanes *sum, const struct float_pair *a, const struct float_pair *b)
{
	*sum += a->even * b->even;
	*sum += a->odd * b->odd;
}

/*
 * Sums of `rows` x `columns` outputs at once over a part of k, so that each weight is read and widened once for all
 * rows. Every output is added up lane by lane in the same order whatever the panel's size: a token's result does not
 * depend on its batch.
 */
VECTOR_INLINE void add_part(const struct gemm_params *g, const float *x, const uint16_t *w, int64_t length, int rows,
			    int columns, float_lanes sums[PANEL_ROWS][PANEL_COLUMNS])
{
	const int64_t whole = length / PAIR * PAIR;
	for (int64_t i = 0; i < whole; i += PAIR) {
		struct float_pair weights[PANEL_COLUMNS];
		for (int c = 0; c < columns; c++) {
			weights[c] = bf16_load_pair(w + c * g->k + i);
			__builtin_prefetch(w + (c + PREFETCH_COLUMNS) * g->k + i);
		}
		for (int r = 0; r < rows; r++) {
			const struct float_pair values = float_load_pair(x + r * g->k + i);
			for (int c = 0; c < columns; c++)
				add_products(&sums[r][c], &weights[c], &values);
		}
	}
	for (int r = 0; r < rows && whole < length; r++) {
		const struct float_pair values = float_load_pair_part(x + r * g->k + whole, (int)(length - whole));
		for (int c = 0; c < columns; c++) {
			const struct float_pair weights =
			    bf16_load_pair_part(w + c * g->k + whole, (int)(length - whole));
			add_products(&sums[r][c], &weights, &values);
		}
	}
}

VECTOR_INLINE void panel(const struct gemm_params *g, const struct gemm_span *s, int32_t row, int32_t column, int rows,
			 int columns)
{
	const float *x = g->x + row * g->k;
	const uint16_t *w = g->w + column * g->k;
	float totals[PANEL_ROWS][PANEL_COLUMNS] = {0};
	for (int part = 0; part < s->parts; part++) {
		const int64_t begin =
		    s->parts == 1 ? s->k_begin : at_most(GEMM_SPLIT_BEGIN(g->k, part, s->parts), (int32_t)g->k);
		const int64_t end =
		    s->parts == 1 ? s->k_end : at_most(GEMM_SPLIT_BEGIN(g->k, part + 1, s->parts), (int32_t)g->k);
		float_lanes sums[PANEL_ROWS][PANEL_COLUMNS] = {0};
		add_part(g, x + begin, w + begin, end - begin, rows, columns, sums);
		for (int r = 0; r < rows; r++)
			for (int c = 0; c < columns; c++)
				totals[r][c] += float_lanes_sum(&sums[r][c]);
	}
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < columns; c++)
			put(g, s, row + r, column + c, totals[r][c]);
}

/* Few rows are bound by memory: four columns make enough independent sums and streams. */
VECTOR_INLINE int32_t multiply_few(const struct gemm_params *g, const struct gemm_span *s)
{
	int32_t column = s->column_begin;
	for (; column + 4 <= s->column_end; column += 4)
		if (s->row_end - s->row_begin == 2)
			panel(g, s, s->row_begin, column, 2, 4);
		else
			panel(g, s, s->row_begin, column, 1, 4);
	return column;
}

/* The weights of two columns stay in the first-level cache while all rows pass over them. */
VECTOR_CLONES static void multiply(const struct gemm_params *g, const struct gemm_span *s)
{
	int32_t rows = s->row_end - s->row_begin, column = s->column_begin;
	if (rows == 1 || rows == 2)
		column = multiply_few(g, s);
	for (; column + 2 <= s->column_end; column += 2) {
		int32_t row = s->row_begin;
		for (; row + 4 <= s->row_end; row += 4)
			panel(g, s, row, column, 4, 2);
		for (; row + 2 <= s->row_end; row += 2)
			panel(g, s, row, column, 2, 2);
		for (; row < s->row_end; row++)
			panel(g, s, row, column, 1, 2);
	}
	for (; column < s->column_end; column++)
		for (int32_t row = s->row_begin; row < s->row_end; row++)
			panel(g, s, row, column, 1, 1);
}

static struct gemm_span block_span(const struct hostcuda_block *block, const struct gemm_params *g, uint32_t row_tile)
{
	int64_t column = (int64_t)block->block_idx[0] * g->columns, row = (int64_t)row_tile * GEMM_TILE_ROWS;
	return (struct gemm_span){
	    .row_begin = at_most(row, g->rows),
	    .row_end = at_most(row + GEMM_TILE_ROWS, g->rows),
	    .column_begin = at_most(column, g->n),
	    .column_end = at_most(column + g->columns, g->n),
	    .k_begin = 0,
	    .k_end = g->k,
	    .parts = gemm_parts(g->n, g->k),
	    .out = g->y,
	    .accumulate = g->accumulate,
	};
}

HOSTCUDA_HIDDEN_KERNEL(gemm_rows, struct gemm_args, HOSTCUDA_PARAM(struct gemm_args, gemm))
{
	struct gemm_span span = block_span(block, &p->gemm, 0);
	multiply(&p->gemm, &span);
}

HOSTCUDA_HIDDEN_KERNEL(gemm_tiled, struct gemm_args, HOSTCUDA_PARAM(struct gemm_args, gemm))
{
	struct gemm_span span = block_span(block, &p->gemm, block->block_idx[1]);
	multiply(&p->gemm, &span);
}

/* Adds up the partial sums of a tile, always from the first split to the last. */
VECTOR_CLONES static void reduce(const struct gemm_params *g, const struct gemm_span *s, uint32_t splits)
{
	const size_t plane = (size_t)g->rows * g->n;
	for (int32_t row = s->row_begin; row < s->row_end; row++)
		for (int32_t column = s->column_begin; column < s->column_end; column++) {
			const float *partial = g->workspace + (size_t)row * g->n + column;
			float sum = 0;
			for (uint32_t split = 0; split < splits; split++)
				sum += partial[split * plane];
			put(g, s, row, column, sum);
		}
}

HOSTCUDA_HIDDEN_KERNEL(gemm_split_k, struct gemm_args, HOSTCUDA_PARAM(struct gemm_args, gemm))
{
	const struct gemm_params *g = &p->gemm;
	const uint32_t split = block->block_idx[1], splits = block->grid_dim[1];
	struct gemm_span span = block_span(block, g, block->block_idx[2]), partial = span;
	uint32_t *counter = g->counters + block->block_idx[0] + (size_t)block->grid_dim[0] * block->block_idx[2];
	partial.k_begin = at_most(GEMM_SPLIT_BEGIN(g->k, split, splits), (int32_t)g->k);
	partial.k_end = at_most(GEMM_SPLIT_BEGIN(g->k, split + 1, splits), (int32_t)g->k);
	partial.parts = 1;
	partial.out = g->workspace + (size_t)split * g->rows * g->n;
	partial.accumulate = 0;
	multiply(g, &partial);

	if (__atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL) != splits - 1)
		return;
	reduce(g, &span, splits);
	__atomic_store_n(counter, 0, __ATOMIC_RELEASE);
}
