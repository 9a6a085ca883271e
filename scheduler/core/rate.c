/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival rates, from weighted gaps between arrivals and from silence. */
#include "scheduler/core/rate.h"

void md_rate_arrival(struct md_rate *rate, uint64_t now)
{
	if (rate->arrivals) {
		double gap = (double)(now - rate->last);
		uint32_t weight = rate->arrivals < MD_RATE_MEMORY ? rate->arrivals : MD_RATE_MEMORY;
		rate->gap_ns += (gap - rate->gap_ns) / weight;
	}
	rate->last = now;
	if (rate->arrivals <= MD_RATE_MEMORY)
		rate->arrivals++;
}

double md_rate_per_s(const struct md_rate *rate, uint64_t now)
{
	if (!rate->arrivals)
		return 0;
	double gap = rate->arrivals == 1 ? MD_RATE_FIRST_GAP_NS : rate->gap_ns, silence = (double)(now - rate->last);
	if (gap < MD_RATE_LEAST_GAP_NS)
		gap = MD_RATE_LEAST_GAP_NS;
	if (silence > gap) {
		double missed = silence / gap;
		gap += missed / (missed + MD_RATE_MEMORY - 1) * (silence - gap);
	}
	return 1e9 / gap;
}
