/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that reach tables by variables of their module which hold addresses, as those of cuFFT do. */
#include "base/export.h"
#include "hostcuda/kernel.h"

#define VARIABLE MD_EXPORT

struct lookup_entry {
	const float *data;
	int32_t size;
};

struct lookup_ring {
	const struct lookup_ring *next;
	float value;
};

VARIABLE const float *lookup_table;            /* the engine makes it */
VARIABLE struct lookup_entry lookup_tables[4]; /* several, with their sizes */
VARIABLE float lookup_own[64] = {5, 4, 3};     /* which others point to */
VARIABLE struct lookup_ring lookup_ring;       /* which points to itself */
VARIABLE int32_t lookup_count;                 /* which a kernel writes */

struct lookup {
	float *out;
	const float *in;
	int32_t n;
};

#define PARAMS HOSTCUDA_PARAM(struct lookup, out), HOSTCUDA_PARAM(struct lookup, in), HOSTCUDA_PARAM(struct lookup, n)

/* out += in * table, where there is one */
HOSTCUDA_KERNEL(lookup_scaled, struct lookup, PARAMS)
{
	for (int32_t i = 0; lookup_table && i < p->n; i++)
		p->out[i] += p->in[i] * lookup_table[i % 64];
}

/* out += in * each of the tables */
HOSTCUDA_KERNEL(lookup_each, struct lookup, PARAMS)
{
	for (int32_t k = 0; k < 4; k++)
		for (int32_t i = 0; lookup_tables[k].data && i < p->n; i++)
			p->out[i] += p->in[i] * lookup_tables[k].data[i % lookup_tables[k].size];
}

/* out += in * what stands twice around the ring */
HOSTCUDA_KERNEL(lookup_around, struct lookup, PARAMS)
{
	const struct lookup_ring *at = lookup_ring.next ? lookup_ring.next->next : &lookup_ring;
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->in[i] * at->value;
}

/* out += in * how often it has run */
HOSTCUDA_KERNEL(lookup_counted, struct lookup, PARAMS)
{
	lookup_count++;
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->in[i] * (float)lookup_count;
}

/* out += in * own */
HOSTCUDA_KERNEL(lookup_in_own, struct lookup, PARAMS)
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->in[i] * lookup_own[i % 64];
}

struct lookup_given {
	float *out;
	const float *in, *table;
	int32_t n;
};

/* out += in * the table that a parameter points to */
HOSTCUDA_KERNEL(lookup_by, struct lookup_given, HOSTCUDA_PARAM(struct lookup_given, out),
		HOSTCUDA_PARAM(struct lookup_given, in), HOSTCUDA_PARAM(struct lookup_given, table),
		HOSTCUDA_PARAM(struct lookup_given, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += p->in[i] * p->table[i % 32];
}

struct lookup_set {
	float *to;
	float value;
};

/* *to = value, wherever that is */
HOSTCUDA_KERNEL(lookup_set, struct lookup_set, HOSTCUDA_PARAM(struct lookup_set, to),
		HOSTCUDA_PARAM(struct lookup_set, value))
{
	*p->to = p->value;
}
