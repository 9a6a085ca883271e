/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that reach memory by parameters, by pointers that lie in memory, and by tables of indices. */
#include "hostcuda/kernel.h"

struct memory_add {
	float *out;
	const float *in;
	float factor;
	int32_t n;
};

/* out += factor * in */
HOSTCUDA_KERNEL(memory_add, struct memory_add, HOSTCUDA_PARAM(struct memory_add, out),
		HOSTCUDA_PARAM(struct memory_add, in), HOSTCUDA_PARAM(struct memory_add, factor),
		HOSTCUDA_PARAM(struct memory_add, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->factor * p->in[i];
}

struct memory_list {
	float *out;
	const float *const *list;
	int32_t count, n;
};

/* out += the sum of what the list points to */
HOSTCUDA_KERNEL(memory_list, struct memory_list, HOSTCUDA_PARAM(struct memory_list, out),
		HOSTCUDA_PARAM(struct memory_list, list), HOSTCUDA_PARAM(struct memory_list, count),
		HOSTCUDA_PARAM(struct memory_list, n))
{
	for (int32_t k = 0; k < p->count; k++)
		for (int32_t i = 0; i < p->n; i++)
			p->out[i] += p->list[k][i];
}

struct memory_blocks {
	float *out;
	const float *cache;
	const int32_t *table; /* block of each row */
	int32_t block, n;
};

/* A paged cache: out[i] += cache[table[i / block]][i % block]; indices that lead nowhere add nothing. */
HOSTCUDA_KERNEL(memory_blocks, struct memory_blocks, HOSTCUDA_PARAM(struct memory_blocks, out),
		HOSTCUDA_PARAM(struct memory_blocks, cache), HOSTCUDA_PARAM(struct memory_blocks, table),
		HOSTCUDA_PARAM(struct memory_blocks, block), HOSTCUDA_PARAM(struct memory_blocks, n))
{
	int32_t blocks = p->n / p->block;
	for (int32_t i = 0; i < p->n; i++) {
		int32_t at = p->table[i / p->block];
		if (at >= 0 && at < blocks)
			p->out[i] += p->cache[at * p->block + i % p->block];
	}
}

struct memory_through {
	float *const *list;
	const float *in;
	float factor;
	int32_t n;
};

/* what the second address of the list leads to = factor * in */
HOSTCUDA_KERNEL(memory_through, struct memory_through, HOSTCUDA_PARAM(struct memory_through, list),
		HOSTCUDA_PARAM(struct memory_through, in), HOSTCUDA_PARAM(struct memory_through, factor),
		HOSTCUDA_PARAM(struct memory_through, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->list[1][i] = p->factor * p->in[i];
}
