/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that need more than a context has by default. */
#include "hostcuda/kernel.h"

HOSTCUDA_USES_HEAP;

enum { STACK = 0, HEAP = 2, WIDTH = 64 }; /* CUlimit */

struct twice {
	float *out;
	const float *in;
};

static int *volatile nowhere;

static void compute(const struct twice *p)
{
	for (int i = 0; i < WIDTH; i++)
		p->out[i] = 2 * p->in[i];
}

/* 8,192 bytes of stack a thread: with less it writes beyond its own, and faults. */
HOSTCUDA_KERNEL(deep, struct twice, HOSTCUDA_PARAM(struct twice, out), HOSTCUDA_PARAM(struct twice, in))
{
	if (block->limits[STACK] < 8192)
		*nowhere = 0;
	compute(p);
}

/* 64 MiB of the heap: with less malloc answers NULL, and nothing is computed. */
HOSTCUDA_KERNEL(heap, struct twice, HOSTCUDA_PARAM(struct twice, out), HOSTCUDA_PARAM(struct twice, in))
{
	if (block->limits[HEAP] >= 64u << 20)
		compute(p);
}
