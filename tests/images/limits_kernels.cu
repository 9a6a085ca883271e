// SPDX-License-Identifier: Apache-2.0
// The kernels of limits_kernels.c for a GPU: same names, same parameters.
#define WIDTH 64

// The compiler cannot tell how deep this goes, so the context's limit decides; about 500 bytes a level.
__device__ __noinline__ static float descend(int levels, float value)
{
	volatile float frame[112];
	frame[levels] = value;
	return levels > 0 ? descend(levels - 1, frame[levels]) + 0 * frame[levels] : frame[levels];
}

extern "C" __global__ void deep(float *out, const float *in)
{
	for (int i = threadIdx.x; i < WIDTH; i += blockDim.x)
		out[i] = 2 * descend(in[0] < 0 ? 13 : 12, in[i]);
}

// 64 MiB of the heap are there in whole if one thread gets half of them.
extern "C" __global__ void heap(float *out, const float *in)
{
	__shared__ void *half;
	if (threadIdx.x == 0)
		half = malloc(32u << 20);
	__syncthreads();
	if (half)
		for (int i = threadIdx.x; i < WIDTH; i += blockDim.x)
			out[i] = 2 * in[i];
	__syncthreads();
	if (threadIdx.x == 0)
		free(half);
}
