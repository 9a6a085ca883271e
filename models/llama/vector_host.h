/* SPDX-License-Identifier: Apache-2.0 */
/* Eight-lane float arithmetic for the hostcuda kernels, written with the compiler's vector types. */
#ifndef LLAMA_VECTOR_HOST_H
#define LLAMA_VECTOR_HOST_H

#include <stdint.h>

/*
 * Sums are kept in eight lanes and folded in one fixed order, and nothing is contracted to fused multiply-add, so that
 * results are the same bits on every machine, with AVX2 or without it.
 */
#define LANES 8
#define VECTOR_INLINE static inline __attribute__((always_inline, unused))
#if defined(__x86_64__)
#define VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define VECTOR_CLONES
#endif

typedef float float_lanes __attribute__((vector_size(4 * LANES)));
typedef float float_lanes_any __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t word_lanes __attribute__((vector_size(4 * LANES)));
typedef uint16_t half_lanes __attribute__((vector_size(2 * LANES)));
typedef uint16_t half_lanes_any __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* always_inline: vectors never cross a real call, whose ABI would depend on the instruction set. */
#pragma GCC diagnostic ignored "-Wpsabi"

VECTOR_INLINE float_lanes float_load(const float *x)
{
	return (float_lanes) * (const float_lanes_any *)x;
}

VECTOR_INLINE float_lanes bf16_load(const uint16_t *w)
{
	half_lanes halves = (half_lanes) * (const half_lanes_any *)w;

	return (float_lanes)(__builtin_convertvector(halves, word_lanes) << 16);
}

VECTOR_INLINE void float_store(float *out, float_lanes lanes)
{
	*(float_lanes_any *)out = lanes;
}

/* The last count (< LANES) elements, the other lanes zero. */
VECTOR_INLINE float_lanes float_load_part(const float *x, int count)
{
	float_lanes lanes = {0};

	for (int i = 0; i < count; i++)
		lanes[i] = x[i];
	return lanes;
}

VECTOR_INLINE float_lanes bf16_load_part(const uint16_t *w, int count)
{
	half_lanes halves = {0};

	for (int i = 0; i < count; i++)
		halves[i] = w[i];
	return (float_lanes)(__builtin_convertvector(halves, word_lanes) << 16);
}

VECTOR_INLINE float float_lanes_sum(const float_lanes *sums)
{
	float_lanes lanes = *sums;

	return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

#endif
