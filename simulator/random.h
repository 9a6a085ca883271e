/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of the simulation, the same on every machine: generators over base/splitmix.h, and random times. */
#ifndef MD_SIMULATOR_RANDOM_H
#define MD_SIMULATOR_RANDOM_H

#include <stdint.h>

#include "base/splitmix.h"
#include "simulator/exact_math.h"

struct md_sim_random {
	uint64_t state;
};

static inline uint64_t md_sim_random_next(struct md_sim_random *random)
{
	return md_random_next(&random->state);
}

/* One of many generators; its numbers do not depend on how many others there are. */
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
	return -mean * md_sim_log(1 - md_sim_random_part(random)); /* the difference is exact, and never 0 */
}

/* A gamma distribution of this mean whose standard deviation is cov (> 0) times the mean. */
double md_sim_random_gamma(struct md_sim_random *random, double mean, double cov);

#endif
