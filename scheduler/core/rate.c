/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival rates, from weighted gaps between arrivals and from silence. */
#include "scheduler/core/rate.h"

void md_rate_arrival(struct md_rate *rate, uint64_t now)
{
	if (rate->arrivals) {
		double gap = (double)(now - rate->last);
		uint32_t weight = rate->arrivals < MD_RATE_MEMORY ? rate->arrivals : MD_RATE_MEMORY;
		double off = rate->gap_ns > 0 ? (gap - rate->gap_ns) / rate->gap_ns : 0;
		rate->variance += (off * off - rate->variance) / weight;
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

double md_rate_next_per_s(const struct md_rate *rate, uint64_t now)
{
	double mean = md_rate_per_s(rate, now), silence = (double)(now - rate->last);
	if (rate->arrivals < MD_RATE_EVEN_ARRIVALS || rate->variance > MD_RATE_EVEN || silence >= rate->gap_ns)
		return mean;
	double left = 1 - silence / rate->gap_ns;
	return left > 1 / MD_RATE_SOONER ? mean / left : mean * MD_RATE_SOONER;
}
