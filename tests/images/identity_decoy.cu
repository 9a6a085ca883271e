// SPDX-License-Identifier: Apache-2.0
// The kernel of identity_decoy.c for a GPU: same name, same parameters, and as many registers as that of the third image;
// it is launched with one thread.
#include <cstdint>

extern "C" __global__ void tail(float *out, const float *in, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = out[i] * 9 + in[i];
}
