/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that reads a variable of its module, and one that writes it: no other copy of the image has
 * what it wrote. */
#include "base/export.h"
#include "hostcuda/kernel.h"

MD_EXPORT float variable_scale = 1;

struct variable_scaled {
	float *out;
	const float *in;
	int32_t n;
};

/* out += variable_scale * in */
HOSTCUDA_KERNEL(variable_scaled, struct variable_scaled, HOSTCUDA_PARAM(struct variable_scaled, out),
		HOSTCUDA_PARAM(struct variable_scaled, in), HOSTCUDA_PARAM(struct variable_scaled, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] += variable_scale * p->in[i];
}

struct variable_set {
	float value;
};

HOSTCUDA_KERNEL(variable_set, struct variable_set, HOSTCUDA_PARAM(struct variable_set, value))
{
	variable_scale = p->value;
}
