/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the identity subject: an image that is loaded where no hook sees it, so that its kernel is
 * a name alone. */
#include "hostcuda/kernel.h"

struct apply {
	float *out;
	const float *in;
	int32_t n;
};

HOSTCUDA_KERNEL(tail, struct apply, HOSTCUDA_PARAM(struct apply, out), HOSTCUDA_PARAM(struct apply, in),
		HOSTCUDA_PARAM(struct apply, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->out[i] * 7 + p->in[i];
}
