/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that depend on the seed alone (SplitMix64); device code includes this file, too. */
#ifndef MD_BASE_SPLITMIX_H
#define MD_BASE_SPLITMIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define MD_RANDOM_FUNCTION static __device__ __forceinline__
#else
#define MD_RANDOM_FUNCTION static inline __attribute__((unused))
#endif

#define MD_RANDOM_STEP UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / the golden ratio: its multiples are far apart */

/* A bijection of 64-bit words in which each input bit changes about half of the output bits. */
MD_RANDOM_FUNCTION uint64_t md_random_mix(uint64_t word)
{
	word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
	return word ^ (word >> 31);
}

/* The next word; state: any seed. */
MD_RANDOM_FUNCTION uint64_t md_random_next(uint64_t *state)
{
	return md_random_mix(*state += MD_RANDOM_STEP);
}

#endif
