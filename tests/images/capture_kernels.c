/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the capture tests: plain arithmetic over buffers whose contents the tests know. */
#include "hostcuda/kernel.h"

struct capture_scale_params {
	float *out;
	const float *in;
	const float *weights;
	int32_t n;
};

HOSTCUDA_KERNEL(capture_scale, struct capture_scale_params, HOSTCUDA_PARAM(struct capture_scale_params, out),
		HOSTCUDA_PARAM(struct capture_scale_params, in), HOSTCUDA_PARAM(struct capture_scale_params, weights),
		HOSTCUDA_PARAM(struct capture_scale_params, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] * p->weights[i];
}

struct capture_count_params {
	uint32_t *counter;
	uint32_t step;
};

HOSTCUDA_KERNEL(capture_count, struct capture_count_params, HOSTCUDA_PARAM(struct capture_count_params, counter),
		HOSTCUDA_PARAM(struct capture_count_params, step))
{
	*p->counter += p->step;
}

/* Needs what is in `table` at one place, and what lists[0] points to. */
struct capture_finish_params {
	float *out;
	const float *in;
	const float *table;
	const float *const *lists;
	int32_t index, n;
};

HOSTCUDA_KERNEL(capture_finish, struct capture_finish_params, HOSTCUDA_PARAM(struct capture_finish_params, out),
		HOSTCUDA_PARAM(struct capture_finish_params, in), HOSTCUDA_PARAM(struct capture_finish_params, table),
		HOSTCUDA_PARAM(struct capture_finish_params, lists),
		HOSTCUDA_PARAM(struct capture_finish_params, index), HOSTCUDA_PARAM(struct capture_finish_params, n))
{
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = p->in[i] + p->table[p->index] + p->lists[0][i];
}

/* Writes at a place that memory says. */
struct capture_scatter_params {
	float *out;
	const uint32_t *slot;
};

HOSTCUDA_KERNEL(capture_scatter, struct capture_scatter_params, HOSTCUDA_PARAM(struct capture_scatter_params, out),
		HOSTCUDA_PARAM(struct capture_scatter_params, slot))
{
	p->out[*p->slot % 32 * 4096] = 1;
}
