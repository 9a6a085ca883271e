// SPDX-License-Identifier: Apache-2.0
// The image of lookup_others.c for a GPU.
#include <cstdint>

extern "C" {
__device__ float lookup_other[64] = {1, 2, 3, 4};

__global__ void lookup_unused(int32_t n)
{
	lookup_other[0] = (float)n;
}
}
