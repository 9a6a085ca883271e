/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are the same everywhere for a seed (SplitMix64). */
#ifndef MD_SIMULATOR_RANDOM_H
#define MD_SIMULATOR_RANDOM_H

#include <math.h>
#include <stdint.h>

struct md_sim_random {
	uint64_t state;
};

static inline uint64_t md_sim_random_next(struct md_sim_random *random)
{
	uint64_t mixed = random->state += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ (mixed >> 31);
}

/* One generator of many: its numbers do not depend on how many others there are. */
static inline struct md_sim_random md_sim_random_of(uint64_t seed, uint64_t index)
{
	struct md_sim_random outer = {seed}, inner = {md_sim_random_next(&outer) ^ index};

	return (struct md_sim_random){md_sim_random_next(&inner)};
}

static inline double md_sim_random_part(struct md_sim_random *random) /* [0, 1) */
{
	return (double)(md_sim_random_next(random) >> 11) * 0x1p-53;
}

static inline double md_sim_random_exponential(struct md_sim_random *random, double mean)
{
	return -mean * log1p(-md_sim_random_part(random));
}

#endif
