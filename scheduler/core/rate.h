/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of a function's calls, estimated from its arrivals. */
#ifndef MD_SCHEDULER_CORE_RATE_H
#define MD_SCHEDULER_CORE_RATE_H

#include <stdint.h>

/*
 * The mean of the gaps between arrivals, exponentially weighted over the last 16 or so (the plain mean of the first
 * ones). While nothing arrives the open gap counts too, once it is longer than the mean: a silence of m mean gaps with
 * weight m / (m + 15). So the estimate is continuous, falls the longer it lasts, and nears 1 / silence. The arrival
 * that ends a silence brings most of the old estimate back: who calls again is expected to call on.
 * Everything is O(1), and the same arrivals give the same estimate, bit for bit.
 */
struct md_rate {
	double gap_ns; /* mean; 0: none known */
	uint64_t last; /* ns */
	uint32_t arrivals;
};

#define MD_RATE_MEMORY 16
/* The assumed gap after a first arrival, and the least mean gap, for many arrivals at one time. */
#define MD_RATE_FIRST_GAP_NS 60e9
#define MD_RATE_LEAST_GAP_NS 1e6

/* A struct of zeros is a function that was never called: rate 0. Times never go back. */
void md_rate_arrival(struct md_rate *rate, uint64_t now);
double md_rate_per_s(const struct md_rate *rate, uint64_t now);

#endif
