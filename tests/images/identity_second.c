/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the identity subject: the same names and layouts as in the first image, but other code. */
#include "hostcuda/kernel.h"

struct apply {
	float *out;
	const float *in;
	int32_t n;
};

HOSTCUDA_KERNEL(apply, struct apply, HOSTCUDA_PARAM(struct apply, out), HOSTCUDA_PARAM(struct apply, in),
		HOSTCUDA_PARAM(struct apply, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] * 3 + 5;
}

HOSTCUDA_HIDDEN_KERNEL(stir, struct apply, HOSTCUDA_PARAM(struct apply, out), HOSTCUDA_PARAM(struct apply, in),
		       HOSTCUDA_PARAM(struct apply, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->out[i] / 2 - p->in[i];
}

HOSTCUDA_KERNEL(rest, struct apply, HOSTCUDA_PARAM(struct apply, out), HOSTCUDA_PARAM(struct apply, in),
		HOSTCUDA_PARAM(struct apply, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = 0;
}
