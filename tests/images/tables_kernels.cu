// SPDX-License-Identifier: Apache-2.0
// The kernels of tables_kernels.c for a GPU: same names, same parameters; they are launched with one thread.
#include <cstdint>

extern "C" {
__global__ void tables_rows(uint32_t *out, const uint32_t *in, const uint32_t *table, const uint32_t *index,
			    uint32_t rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = in[i] + (*index < rows ? table[*index * n + i] : 0);
}

__global__ void tables_lists(uint32_t *out, const uint32_t *in, const uint32_t *const *table, const uint32_t *index,
			     uint32_t rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = in[i] + (*index < rows ? table[*index][i] : 0);
}

__global__ void tables_pair(uint32_t *out, const uint32_t *in, const uint32_t *first, const uint32_t *second,
			    const uint32_t *index, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = in[i] + (*index ? second[i] : first[i]);
}

__global__ void tables_own(uint32_t *out, const uint32_t *in, uint32_t *table, const uint32_t *index, uint32_t rows,
			   uint32_t n)
{
	uint32_t *own = table + rows * n;
	for (uint32_t i = 0; i < n; i++) {
		own[i] = in[i] + (*index < rows ? table[*index * n + i] : 0);
		out[i] = own[i];
	}
}

__global__ void tables_make(uint32_t *table, uint32_t count, uint32_t first)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] = first + i;
}

__device__ const uint32_t *tables_row;

__global__ void tables_named(uint32_t *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = tables_row[i];
}
}
