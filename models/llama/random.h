/* SPDX-License-Identifier: Apache-2.0 */
/* The counter-based generator of llama_fill and llama_sample: the same bits on both devices and in the reference. */
#ifndef LLAMA_RANDOM_H
#define LLAMA_RANDOM_H

#include <stdint.h>

#include "base/splitmix.h"

MD_RANDOM_FUNCTION uint64_t random_word(uint64_t seed, uint64_t stream, uint64_t counter)
{
	return md_random_mix(md_random_mix(seed + MD_RANDOM_STEP * (stream + 1)) + MD_RANDOM_STEP * (counter + 1));
}

/* Multiples of 2^-23 in [-1, 1): exact in float32. */
MD_RANDOM_FUNCTION float random_signed(uint64_t word)
{
	return (float)((int32_t)(word >> 40) - (1 << 23)) * (1.0f / (1 << 23));
}

/* Odd multiples of 2^-24 in (0, 1): exact in float32, so that neither end is ever reached and both logarithms are
 * finite. */
MD_RANDOM_FUNCTION float random_unit(uint64_t word)
{
	return (float)((uint32_t)(word >> 41) * 2 + 1) * (1.0f / (1 << 24));
}

/* To the nearest bfloat16, ties to even; finite values only. */
MD_RANDOM_FUNCTION uint16_t bf16_round(float value)
{
	union {
		float value;
		uint32_t bits;
	} word;
	word.value = value;
	return (uint16_t)((word.bits + 0x7fff + (word.bits >> 16 & 1)) >> 16);
}

MD_RANDOM_FUNCTION float bf16_value(uint16_t half)
{
	union {
		float value;
		uint32_t bits;
	} word;
	word.bits = (uint32_t)half << 16;
	return word.value;
}

#endif
