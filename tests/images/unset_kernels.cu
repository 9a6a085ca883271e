// SPDX-License-Identifier: Apache-2.0
// The kernels of unset_kernels.c for a GPU: same names, same parameters.
#include <cstdint>

#define WIDTH 64

__device__ static void compute(float *out, const float *in, uint64_t own)
{
	for (int i = threadIdx.x; i < WIDTH; i += blockDim.x)
		out[i] = 2 * in[i] + (in[i] == 77 && own ? (float)(own % 999 + 1) : 0);
}

#define NUMBER_KERNEL(name, type)                                                                                      \
	extern "C" __global__ void name(float *out, const float *in, type own)                                         \
	{                                                                                                              \
		compute(out, in, (uint64_t)own);                                                                       \
	}

NUMBER_KERNEL(number4, uint32_t)
NUMBER_KERNEL(number8, uint64_t)
NUMBER_KERNEL(number1, uint8_t)

__global__ void cxx_number(float *out, const float *in, unsigned long own)
{
	compute(out, in, own);
}

struct Empty {
};
__global__ void cxx_empty(float *out, const float *in, Empty)
{
	compute(out, in, 0);
}

struct members {
	float *out;
	const float *in;
	uint8_t flag;
	uint32_t own;
};
extern "C" __global__ void object(members all)
{
	compute(all.out, all.in, all.own);
}

extern "C" __global__ void gap(float *out, const float *in, uint8_t, uint32_t own)
{
	compute(out, in, own);
}
