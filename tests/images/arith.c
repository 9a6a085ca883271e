/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels for tests: exported and hidden ones, a global, one that needs shared memory, one that waits. */
#include <unistd.h>

#include "base/export.h"
#include "hostcuda/kernel.h"

MD_EXPORT int32_t arith_bias = 5;

struct add_params {
	float *out;
	const float *a, *b;
	int32_t n;
};
HOSTCUDA_KERNEL(add, struct add_params, HOSTCUDA_PARAM(struct add_params, out), HOSTCUDA_PARAM(struct add_params, a),
		HOSTCUDA_PARAM(struct add_params, b), HOSTCUDA_PARAM(struct add_params, n))
{
	for (uint32_t t = 0; t < block->block_dim[0]; t++) {
		int64_t i = (int64_t)block->block_idx[0] * block->block_dim[0] + t;
		if (i < p->n)
			p->out[i] = p->a[i] + p->b[i];
	}
}

struct scale_params {
	int32_t *x;
	int32_t factor, n;
};
HOSTCUDA_KERNEL(scale, struct scale_params, HOSTCUDA_PARAM(struct scale_params, x),
		HOSTCUDA_PARAM(struct scale_params, factor), HOSTCUDA_PARAM(struct scale_params, n))
{
	for (uint32_t t = 0; t < block->block_dim[0]; t++) {
		int64_t i = (int64_t)block->block_idx[0] * block->block_dim[0] + t;
		if (i < p->n)
			p->x[i] *= p->factor;
	}
}

/* Adds the image's global to every element; found by enumeration alone. */
struct bias_params {
	int32_t *x;
	int32_t n;
};
HOSTCUDA_HIDDEN_KERNEL(bias, struct bias_params, HOSTCUDA_PARAM(struct bias_params, x),
		       HOSTCUDA_PARAM(struct bias_params, n))
{
	for (uint32_t t = 0; t < block->block_dim[0]; t++) {
		int64_t i = (int64_t)block->block_idx[0] * block->block_dim[0] + t;
		if (i < p->n)
			p->x[i] += arith_bias;
	}
}

/* out[block] = sum of 0 .. n-1, by way of shared memory, which must come zeroed. */
struct sum_params {
	int32_t *out;
	int32_t n;
};
HOSTCUDA_KERNEL(shared_sum, struct sum_params, HOSTCUDA_PARAM(struct sum_params, out),
		HOSTCUDA_PARAM(struct sum_params, n))
{
	int32_t *scratch = block->shared, sum = 0;
	for (int32_t i = 0; i < p->n; i++)
		scratch[i] += i;
	for (int32_t i = 0; i < p->n; i++)
		sum += scratch[i];
	p->out[block->block_idx[0]] = sum;
}

/* Waits until *flag is not 0, then stores it. */
struct wait_params {
	int32_t *out;
	const int32_t *flag;
};
HOSTCUDA_KERNEL(wait_flag, struct wait_params, HOSTCUDA_PARAM(struct wait_params, out),
		HOSTCUDA_PARAM(struct wait_params, flag))
{
	int32_t seen;
	while (!(seen = __atomic_load_n(p->flag, __ATOMIC_ACQUIRE)))
		usleep(200);
	*p->out = seen;
}

/* Each block waits for all others, 5 seconds at most, and stores how many have come. */
struct meet_params {
	int32_t *there, *met;
};
HOSTCUDA_KERNEL(meet, struct meet_params, HOSTCUDA_PARAM(struct meet_params, there),
		HOSTCUDA_PARAM(struct meet_params, met))
{
	int32_t count = __atomic_add_fetch(p->there, 1, __ATOMIC_ACQ_REL);
	for (int turn = 0; turn < 5000 && count < (int32_t)block->grid_dim[0]; turn++) {
		usleep(1000);
		count = __atomic_load_n(p->there, __ATOMIC_ACQUIRE);
	}
	p->met[block->block_idx[0]] = count;
}
