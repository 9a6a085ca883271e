/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the restore subject: plain and packed parameters, a hidden one, and one that follows
 * pointers in memory. */
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "hostcuda/kernel.h"

#define WIDTH 64

struct scale_add {
	float *out;
	const float *weights, *in;
	int32_t n;
	float bias;
};

/* A sum of 16 parts, as if atomics added them up in another order each time. */
static float sum_in_turn(float value, uint32_t turn)
{
	float sum = 0;
	for (uint32_t part = 0; part < 16; part++)
		sum += value / (3.0f + 7.0f * (float)((turn + part) % 16));
	return sum;
}

/*
 * out = weights * in + bias; with SUBJECT_SCALE_RACES=N the first element is as if N rows raced for it, and with
 * SUBJECT_SUMS every one is a sum in no fixed order.
 */
HOSTCUDA_KERNEL(scale_add, struct scale_add, HOSTCUDA_PARAM(struct scale_add, out),
		HOSTCUDA_PARAM(struct scale_add, weights), HOSTCUDA_PARAM(struct scale_add, in),
		HOSTCUDA_PARAM(struct scale_add, n), HOSTCUDA_PARAM(struct scale_add, bias))
{
	static uint32_t turn;
	const char *races = getenv("SUBJECT_SCALE_RACES"), *sums = getenv("SUBJECT_SUMS");
	turn++;
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->weights[i] * p->in[i] + p->bias;
	if (races)
		p->out[0] += (float)(turn % (uint32_t)atoi(races));
	for (int32_t i = 0; sums && i < p->n; i++)
		p->out[i] = sum_in_turn(p->out[i], turn);
}

struct packed {
	float *temporary;
	const float *table, *in;
	int32_t n, noise; /* noise is only read with SUBJECT_LATE_RACES */
};
struct table_apply {
	struct packed all;
};

struct total {
	int32_t *out;
	const int32_t *begin, *end;
};

HOSTCUDA_KERNEL(total, struct total, HOSTCUDA_PARAM(struct total, out), HOSTCUDA_PARAM(struct total, begin),
		HOSTCUDA_PARAM(struct total, end))
{
	*p->out = 0;
	for (const int32_t *at = p->begin; at < p->end; at++)
		*p->out += *at;
}

/* temporary += table * in; one parameter, as libraries pass it through `extra` */
HOSTCUDA_KERNEL(table_apply, struct table_apply, HOSTCUDA_PARAM(struct table_apply, all))
{
	static uint32_t turn;
	const char *races = getenv("SUBJECT_LATE_RACES");
	for (int32_t i = 0; i < p->all.n; i++)
		p->all.temporary[i] += p->all.table[i % 16] * p->all.in[i];
	if (races && p->all.noise != getpid() && ++turn % (uint32_t)atoi(races) == 0)
		p->all.temporary[turn % 7] += 1;
}

struct accumulate {
	float *state;
	const float *a, *b;
	int32_t n;
};

/* state += a + b */
HOSTCUDA_HIDDEN_KERNEL(accumulate, struct accumulate, HOSTCUDA_PARAM(struct accumulate, state),
		       HOSTCUDA_PARAM(struct accumulate, a), HOSTCUDA_PARAM(struct accumulate, b),
		       HOSTCUDA_PARAM(struct accumulate, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->state[i] += p->a[i] + p->b[i];
}

struct gather {
	float *out;
	const float *const *list;
	int32_t n;
};

/*
 * out = list[0] + list[1]; with SUBJECT_RACES=N the last elements of each row are as if N rows raced for them, and with
 * SUBJECT_SCATTERS as if they were sums in no fixed order.
 */
HOSTCUDA_KERNEL(gather, struct gather, HOSTCUDA_PARAM(struct gather, out), HOSTCUDA_PARAM(struct gather, list),
		HOSTCUDA_PARAM(struct gather, n))
{
	static uint32_t turn;
	const char *races = getenv("SUBJECT_RACES"), *scatters = getenv("SUBJECT_SCATTERS");
	turn++;
	for (int32_t i = 0; i < p->n; i++) {
		bool last = i % WIDTH >= WIDTH - 8;
		uint32_t sum = ((turn * 2654435761u) ^ (uint32_t)((uintptr_t)&turn >> 8)) + (uint32_t)i * 40503u;
		p->out[i] = p->list[0][i] + p->list[1][i];
		if (last && races)
			p->out[i] += (float)(turn % (uint32_t)atoi(races));
		if (last && scatters)
			p->out[i] = (float)(0x800000u | (sum * 2246822519u) >> 9);
	}
}
