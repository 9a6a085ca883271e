// SPDX-License-Identifier: Apache-2.0
// The kernel of doubt_kernels.c for a GPU: same name, same parameters.
#include <cstdint>

extern "C" __global__ void doubt(float *out, const float *in, const float *table, float *word, int32_t n,
				 int32_t kind)
{
	for (int32_t i = threadIdx.x; i < n; i += blockDim.x) {
		float more = 0;
		if (kind == 1)
			more = word[i % 8];
		if (kind == 2)
			more = word ? 1 : 0;
		if (kind == 3 && word)
			more = word[0];
		if (kind == 4)
			(void)*(const volatile float *)word;
		if (kind == 5)
			word[0] = 3;
		out[i] = in[i] + table[i % 8] + more;
	}
}
