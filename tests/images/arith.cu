// SPDX-License-Identifier: Apache-2.0
// The kernels of arith.c for a GPU: same names, same parameters.
#include <cstdint>

extern "C" {
__device__ int32_t arith_bias = 5;

__global__ void add(float *out, const float *a, const float *b, int32_t n)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = a[i] + b[i];
}

__global__ void scale(int32_t *x, int32_t factor, int32_t n)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		x[i] *= factor;
}

// Shared memory comes as it is on a GPU: nothing is read that was not written.
__global__ void shared_sum(int32_t *out, int32_t n)
{
	extern __shared__ int32_t scratch[];
	if (threadIdx.x)
		return;
	int32_t sum = 0;
	for (int32_t i = 0; i < n; i++)
		scratch[i] = i;
	for (int32_t i = 0; i < n; i++)
		sum += scratch[i];
	out[blockIdx.x] = sum;
}

__global__ void wait_flag(int32_t *out, const int32_t *flag)
{
	int32_t seen;
	while (!(seen = *(volatile const int32_t *)flag))
		;
	*out = seen;
}
}

// Mangled, so that nobody finds it by its plain name.
__global__ void bias(int32_t *x, int32_t n)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		x[i] += arith_bias;
}

extern "C" __global__ void meet(int *there, int *met)
{
	int count = atomicAdd(there, 1) + 1;
	for (int turn = 0; turn < 5000 && count < (int)gridDim.x; turn++) {
		__nanosleep(1000000);
		count = atomicAdd(there, 0);
	}
	met[blockIdx.x] = count;
}
