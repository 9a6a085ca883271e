/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that read tables by an index that lies in memory. */
#include "hostcuda/kernel.h"

struct tables_rows {
	uint32_t *out;
	const uint32_t *in;
	const uint32_t *table;
	const uint32_t *index;
	uint32_t rows, n;
};

/* out = in + a row of the table; an index that leads nowhere adds nothing. */
HOSTCUDA_KERNEL(tables_rows, struct tables_rows, HOSTCUDA_PARAM(struct tables_rows, out),
		HOSTCUDA_PARAM(struct tables_rows, in), HOSTCUDA_PARAM(struct tables_rows, table),
		HOSTCUDA_PARAM(struct tables_rows, index), HOSTCUDA_PARAM(struct tables_rows, rows),
		HOSTCUDA_PARAM(struct tables_rows, n))
{
	for (uint32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + (*p->index < p->rows ? p->table[*p->index * p->n + i] : 0);
}

struct tables_lists {
	uint32_t *out;
	const uint32_t *in;
	const uint32_t *const *table;
	const uint32_t *index;
	uint32_t rows, n;
};

/* The same where the table holds the addresses of its rows. */
HOSTCUDA_KERNEL(tables_lists, struct tables_lists, HOSTCUDA_PARAM(struct tables_lists, out),
		HOSTCUDA_PARAM(struct tables_lists, in), HOSTCUDA_PARAM(struct tables_lists, table),
		HOSTCUDA_PARAM(struct tables_lists, index), HOSTCUDA_PARAM(struct tables_lists, rows),
		HOSTCUDA_PARAM(struct tables_lists, n))
{
	for (uint32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + (*p->index < p->rows ? p->table[*p->index][i] : 0);
}

struct tables_pair {
	uint32_t *out;
	const uint32_t *in;
	const uint32_t *first, *second;
	const uint32_t *index;
	uint32_t n;
};

/* The same where the rows are two parameters. */
HOSTCUDA_KERNEL(tables_pair, struct tables_pair, HOSTCUDA_PARAM(struct tables_pair, out),
		HOSTCUDA_PARAM(struct tables_pair, in), HOSTCUDA_PARAM(struct tables_pair, first),
		HOSTCUDA_PARAM(struct tables_pair, second), HOSTCUDA_PARAM(struct tables_pair, index),
		HOSTCUDA_PARAM(struct tables_pair, n))
{
	for (uint32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + (*p->index ? p->second[i] : p->first[i]);
}

struct tables_own {
	uint32_t *out;
	const uint32_t *in;
	uint32_t *table;
	const uint32_t *index;
	uint32_t rows, n;
};

/* As tables_rows, by way of what lies behind the table. */
HOSTCUDA_KERNEL(tables_own, struct tables_own, HOSTCUDA_PARAM(struct tables_own, out),
		HOSTCUDA_PARAM(struct tables_own, in), HOSTCUDA_PARAM(struct tables_own, table),
		HOSTCUDA_PARAM(struct tables_own, index), HOSTCUDA_PARAM(struct tables_own, rows),
		HOSTCUDA_PARAM(struct tables_own, n))
{
	uint32_t *own = p->table + p->rows * p->n;
	for (uint32_t i = 0; i < p->n; i++) {
		own[i] = p->in[i] + (*p->index < p->rows ? p->table[*p->index * p->n + i] : 0);
		p->out[i] = own[i];
	}
}

struct tables_make {
	uint32_t *table;
	uint32_t count, first;
};

HOSTCUDA_KERNEL(tables_make, struct tables_make, HOSTCUDA_PARAM(struct tables_make, table),
		HOSTCUDA_PARAM(struct tables_make, count), HOSTCUDA_PARAM(struct tables_make, first))
{
	for (uint32_t i = 0; i < p->count; i++)
		p->table[i] = p->first + i;
}

MD_EXPORT const uint32_t *tables_row; /* a variable that holds an address */

struct tables_named {
	uint32_t *out;
	uint32_t n;
};

/* As tables_rows, by a variable. */
HOSTCUDA_KERNEL(tables_named, struct tables_named, HOSTCUDA_PARAM(struct tables_named, out),
		HOSTCUDA_PARAM(struct tables_named, n))
{
	for (uint32_t i = 0; i < p->n; i++)
		p->out[i] = tables_row[i];
}
