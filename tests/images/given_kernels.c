/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of an engine that uses memory of its graphs outside of them, too. */
#include "hostcuda/kernel.h"

struct given_copy {
	int32_t *out;
	const int32_t *in;
	int32_t n;
};

HOSTCUDA_KERNEL(given_copy, struct given_copy, HOSTCUDA_PARAM(struct given_copy, out),
		HOSTCUDA_PARAM(struct given_copy, in), HOSTCUDA_PARAM(struct given_copy, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i];
}

struct given_add {
	int32_t *out;
	const int32_t *in, *table;
	int32_t n;
};

HOSTCUDA_KERNEL(given_add, struct given_add, HOSTCUDA_PARAM(struct given_add, out),
		HOSTCUDA_PARAM(struct given_add, in), HOSTCUDA_PARAM(struct given_add, table),
		HOSTCUDA_PARAM(struct given_add, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + p->table[i];
}

/* Pointers in the midst of a struct. */
struct given_packed {
	int32_t first;
	struct {
		int32_t n, odd, more;
		int32_t *out;
		const int32_t *in;
	} all;
};

HOSTCUDA_KERNEL(given_packed, struct given_packed, HOSTCUDA_PARAM(struct given_packed, first),
		HOSTCUDA_PARAM(struct given_packed, all))
{
	for (int32_t i = p->first; i < p->all.n; i++)
		p->all.out[i] = p->all.in[i];
}

struct given_rare {
	int32_t *out;
	const int32_t *in;
	int32_t *rare;
	int32_t n;
};

/* Only for large inputs does it read what rare holds, and write there. */
HOSTCUDA_KERNEL(given_rare, struct given_rare, HOSTCUDA_PARAM(struct given_rare, out),
		HOSTCUDA_PARAM(struct given_rare, in), HOSTCUDA_PARAM(struct given_rare, rare),
		HOSTCUDA_PARAM(struct given_rare, n))
{
	for (int32_t i = 0; i < p->n; i++) {
		p->out[i] = p->in[i];
		if (p->in[i] > 1000) {
			p->out[i] += p->rare[i];
			p->rare[i] = 1;
		}
	}
}
