// SPDX-License-Identifier: Apache-2.0
// The kernel of faulty_kernels.c for a GPU: same name, same parameters; "die" is a trap, which ends no process.
#include <cstdint>

extern "C" __global__ void faulty(float *out, const float *in, const volatile uint64_t *key, int32_t n, int32_t kind)
{
	const uint64_t right = 0x123456789abcdef0;
	const volatile float *from = in;
	if (kind == 1)
		from = (const volatile float *)((uint64_t)in ^ *key ^ right);
	while (kind == 2 && *key != right)
		__nanosleep(1000);
	if (kind == 3 && *key != right)
		__trap();
	for (int i = 0; kind == 4 && i < 100; i++)
		__nanosleep(1000000);
	for (int32_t i = threadIdx.x; i < n; i += blockDim.x)
		out[i] = 2 * from[i];
}
