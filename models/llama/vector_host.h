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
typedef uint64_t quad_lanes __attribute__((vector_size(4 * LANES)));
typedef uint64_t quad_lanes_any __attribute__((vector_size(4 * LANES), aligned(2), may_alias));

/* always_inline: vectors never cross a real call, whose ABI would depend on the instruction set. */
#pragma GCC diagnostic ignored "-Wpsabi"

VECTOR_INLINE float_lanes float_load(const float *x)
{
	return (float_lanes) * (const float_lanes_any *)x;
}

/* The last count (< LANES) elements, the other lanes zero. */
VECTOR_INLINE float_lanes float_load_part(const float *x, int count)
{
	float_lanes lanes = {0};
	for (int i = 0; i < count; i++)
		lanes[i] = x[i];
	return lanes;
}

/*
 * Sixteen elements as two vectors, those with even and those with odd indices, both in the order 0 4 | 2 6 of their
 *pairs:
 *
 *	even  0 2 8 10 | 4 6 12 14        odd  1 3 9 11 | 5 7 13 15
 *
 * That is where the cheapest instructions put them: two bfloat16 of one word widen by a shift and a mask, and floats
 *get there with one shuffle inside the 128-bit halves.
 */
#define PAIR (2 * LANES)
struct float_pair {
	float_lanes even, odd;
};

VECTOR_INLINE struct float_pair float_load_pair(const float *x)
{
	const float_lanes a = float_load(x), b = float_load(x + LANES);
	return (struct float_pair){__builtin_shuffle(a, b, (word_lanes){0, 2, 8, 10, 4, 6, 12, 14}),
				   __builtin_shuffle(a, b, (word_lanes){1, 3, 9, 11, 5, 7, 13, 15})};
}

VECTOR_INLINE struct float_pair bf16_load_pair(const uint16_t *w)
{
	const quad_lanes quads = (quad_lanes) * (const quad_lanes_any *)w;
	const word_lanes words = (word_lanes)__builtin_shuffle(quads, (quad_lanes){0, 2, 1, 3});
	return (struct float_pair){(float_lanes)(words << 16), (float_lanes)(words & 0xffff0000u)};
}

/* The last count (< PAIR) elements, the others zero. */
VECTOR_INLINE struct float_pair float_load_pair_part(const float *x, int count)
{
	float padded[PAIR] = {0};
	for (int i = 0; i < count; i++)
		padded[i] = x[i];
	return float_load_pair(padded);
}

VECTOR_INLINE struct float_pair bf16_load_pair_part(const uint16_t *w, int count)
{
	uint16_t padded[PAIR] = {0};
	for (int i = 0; i < count; i++)
		padded[i] = w[i];
	return bf16_load_pair(padded);
}

VECTOR_INLINE float float_lanes_sum(const float_lanes *sums)
{
	float_lanes lanes = *sums;
	return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

#endif
