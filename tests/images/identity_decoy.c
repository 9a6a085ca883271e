/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the identity subject: a kernel of the third image's name and layout, in an image that has nothing to do
 * with it.
 */
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
		p->out[i] = -p->in[i];
}
