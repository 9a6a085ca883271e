/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of a function's calls, estimated from its arrivals. */
#ifndef MD_SCHEDULER_CORE_RATE_H
#define MD_SCHEDULER_CORE_RATE_H

#include <stdint.h>

/*
 * The mean of the gaps between arrivals, exponentially weighted over about the last 16 (the plain mean of the first
 * ones). While nothing arrives, the open gap counts, too, once it is longer than the mean: a silence of m mean gaps
 * with weight m / (m + 15). So the estimate is continuous, falls while the silence lasts, and approaches 1 / silence.
 * The arrival that ends a silence restores most of the old estimate: a function that is called again is expected to be
 * called further. Everything is O(1), and equal arrivals give equal estimates, bit for bit.
 */
struct md_rate {
	double gap_ns;   /* mean; 0: none known */
	double variance; /* of the gaps, in units of the mean's square, weighted alike */
	uint64_t last;   /* ns */
	uint32_t arrivals;
};

#define MD_RATE_MEMORY 16
/* The gap that is assumed after the first arrival, and the least mean gap, for many arrivals at the same time. */
#define MD_RATE_FIRST_GAP_NS 60e9
#define MD_RATE_LEAST_GAP_NS 1e6
/* Gaps are even below this squared coefficient of variation (that of a Poisson process is 1), after so many arrivals. */
#define MD_RATE_EVEN 0.1
#define MD_RATE_EVEN_ARRIVALS 4
#define MD_RATE_SOONER 8.0

/* A struct of zeros is a function that was never called: its rate is 0. Times never decrease. */
void md_rate_arrival(struct md_rate *rate, uint64_t now);
double md_rate_per_s(const struct md_rate *rate, uint64_t now);
/*
 * The rate that the next call suggests: that of md_rate_per_s(), but a function that is called at even intervals has just
 * been called for a while, and will soon be called after that: at most MD_RATE_SOONER times the mean rate.
 */
double md_rate_next_per_s(const struct md_rate *rate, uint64_t now);

#endif
