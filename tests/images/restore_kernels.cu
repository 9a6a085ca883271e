// SPDX-License-Identifier: Apache-2.0
// The kernels of restore_kernels.c for a GPU: same names, same parameters; they are launched with one thread.
#include <cstdint>

struct packed {
	float *temporary;
	const float *table, *in;
	int32_t n, noise;
};

extern "C" {
__global__ void scale_add(float *out, const float *weights, const float *in, int32_t n, float bias)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = weights[i] * in[i] + bias;
}

__global__ void table_apply(struct packed all)
{
	for (int32_t i = 0; i < all.n; i++)
		all.temporary[i] += all.table[i % 16] * all.in[i];
}

__global__ void total(int32_t *out, const int32_t *begin, const int32_t *end)
{
	*out = 0;
	for (const int32_t *at = begin; at < end; at++)
		*out += *at;
}

__global__ void gather(float *out, const float *const *list, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = list[0][i] + list[1][i];
}
}

// Mangled, so that nobody finds it by its plain name.
__global__ void accumulate(float *state, const float *a, const float *b, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		state[i] += a[i] + b[i];
}
