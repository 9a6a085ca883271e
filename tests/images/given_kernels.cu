// SPDX-License-Identifier: Apache-2.0
// The kernels of given_kernels.c for a GPU: same names, same parameters; they are launched with one thread.
#include <cstdint>

extern "C" {
__global__ void given_copy(int32_t *out, const int32_t *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = in[i];
}

__global__ void given_add(int32_t *out, const int32_t *in, const int32_t *table, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = in[i] + table[i];
}

struct given_all {
	int32_t n, odd, more;
	int32_t *out;
	const int32_t *in;
};

__global__ void given_packed(int32_t first, given_all all)
{
	for (int32_t i = first; i < all.n; i++)
		all.out[i] = all.in[i];
}

__global__ void given_rare(int32_t *out, const int32_t *in, int32_t *rare, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		out[i] = in[i];
		if (in[i] > 1000) {
			out[i] += rare[i];
			rare[i] = 1;
		}
	}
}
}
