// SPDX-License-Identifier: Apache-2.0
// The kernels of memory_kernels.c for a GPU: same names, same parameters; they are launched with one thread.
#include <cstdint>

extern "C" {
__global__ void memory_add(float *out, const float *in, float factor, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] += factor * in[i];
}

__global__ void memory_list(float *out, const float *const *list, int32_t count, int32_t n)
{
	for (int32_t k = 0; k < count; k++)
		for (int32_t i = 0; i < n; i++)
			out[i] += list[k][i];
}

__global__ void memory_blocks(float *out, const float *cache, const int32_t *table, int32_t block, int32_t n)
{
	int32_t blocks = n / block;
	for (int32_t i = 0; i < n; i++) {
		int32_t at = table[i / block];
		if (at >= 0 && at < blocks)
			out[i] += cache[at * block + i % block];
	}
}

__global__ void memory_through(float *const *list, const float *in, float factor, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		list[1][i] = factor * in[i];
}
}
