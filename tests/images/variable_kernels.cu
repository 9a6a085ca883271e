// SPDX-License-Identifier: Apache-2.0
// The kernels of variable_kernels.c for a GPU: same names, same parameters; they are launched with one thread.
#include <cstdint>

extern "C" {
__device__ float variable_scale = 1;

__global__ void variable_scaled(float *out, const float *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] += variable_scale * in[i];
}

__global__ void variable_set(float value)
{
	variable_scale = value;
}
}
