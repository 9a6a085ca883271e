/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with a parameter that may be where one buffer ends and another one begins. */
#include "hostcuda/kernel.h"

#define FAR (1 << 28)

struct affine {
	int32_t *out;
	const int32_t *in, *weight, *bias;
	int32_t n;
};

/* out = in * weight + bias */
HOSTCUDA_KERNEL(affine, struct affine, HOSTCUDA_PARAM(struct affine, out), HOSTCUDA_PARAM(struct affine, in),
		HOSTCUDA_PARAM(struct affine, weight), HOSTCUDA_PARAM(struct affine, bias),
		HOSTCUDA_PARAM(struct affine, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] * p->weight[i] + p->bias[i];
}

struct total {
	int32_t *out;
	const int32_t *in, *begin, *end;
	int32_t n;
};

static int32_t sum_of(const int32_t *begin, const int32_t *end)
{
	int32_t sum = 0;
	for (const int32_t *at = begin; at < end; at++)
		sum += *at;
	return sum;
}

/* out[i] = in[i] + all from begin to end, wherever that lies */
static void sum_up(const struct total *p)
{
	int32_t sum = sum_of(p->begin, p->end);
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + sum;
}

#define TOTAL(name)                                                                                                    \
	HOSTCUDA_KERNEL(name, struct total, HOSTCUDA_PARAM(struct total, out), HOSTCUDA_PARAM(struct total, in),       \
			HOSTCUDA_PARAM(struct total, begin), HOSTCUDA_PARAM(struct total, end),                        \
			HOSTCUDA_PARAM(struct total, n))                                                               \
	{                                                                                                              \
		sum_up(p);                                                                                             \
	}

TOTAL(total)
TOTAL(total1)
TOTAL(total2)
TOTAL(total3)
TOTAL(total4)

struct either {
	int32_t *out;
	const int32_t *in, *first, *second;
	int32_t n, is_end;
};

/* One or the other, by is_end. */
HOSTCUDA_KERNEL(either, struct either, HOSTCUDA_PARAM(struct either, out), HOSTCUDA_PARAM(struct either, in),
		HOSTCUDA_PARAM(struct either, first), HOSTCUDA_PARAM(struct either, second),
		HOSTCUDA_PARAM(struct either, n), HOSTCUDA_PARAM(struct either, is_end))
{
	int32_t sum = p->is_end ? sum_of(p->first, p->second) : 0;
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->is_end ? p->in[i] + sum : p->in[i] * p->first[i] + p->second[i];
}

/* The second buffer is of no consequence: out = in * weight. */
HOSTCUDA_KERNEL(unread, struct affine, HOSTCUDA_PARAM(struct affine, out), HOSTCUDA_PARAM(struct affine, in),
		HOSTCUDA_PARAM(struct affine, weight), HOSTCUDA_PARAM(struct affine, bias),
		HOSTCUDA_PARAM(struct affine, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] * p->weight[i];
}

/* out = in * weight[bias[i] of two words]: an index, and 0 is one, too */
HOSTCUDA_KERNEL(lookup, struct affine, HOSTCUDA_PARAM(struct affine, out), HOSTCUDA_PARAM(struct affine, in),
		HOSTCUDA_PARAM(struct affine, weight), HOSTCUDA_PARAM(struct affine, bias),
		HOSTCUDA_PARAM(struct affine, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] * p->weight[p->bias[i]];
}

/* The same, but the index is so much larger: the kernel faults where that is not there. */
HOSTCUDA_KERNEL(far, struct affine, HOSTCUDA_PARAM(struct affine, out), HOSTCUDA_PARAM(struct affine, in),
		HOSTCUDA_PARAM(struct affine, weight), HOSTCUDA_PARAM(struct affine, bias),
		HOSTCUDA_PARAM(struct affine, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] * p->weight[p->bias[i] - FAR];
}

/* out = in + what lies between the first buffer and the second one, in words; neither is followed */
HOSTCUDA_KERNEL(length, struct total, HOSTCUDA_PARAM(struct total, out), HOSTCUDA_PARAM(struct total, in),
		HOSTCUDA_PARAM(struct total, begin), HOSTCUDA_PARAM(struct total, end), HOSTCUDA_PARAM(struct total, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + (int32_t)(p->end - p->begin);
}

/* The same, but it never ends where the end lies elsewhere. */
HOSTCUDA_KERNEL(endless, struct total, HOSTCUDA_PARAM(struct total, out), HOSTCUDA_PARAM(struct total, in),
		HOSTCUDA_PARAM(struct total, begin), HOSTCUDA_PARAM(struct total, end), HOSTCUDA_PARAM(struct total, n))
{
	for (volatile int32_t waits = p->end - p->begin != p->n; waits;)
		;
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + p->n;
}
