/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics.h"

const double md_metrics_bounds[MD_METRICS_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
						      1,     2.5,  5,     10,   30,  60,   300};

void md_metrics_note(struct md_metrics_histogram *histogram, uint64_t ns)
{
	double seconds = (double)ns * 1e-9;
	unsigned bucket = 0;
	while (bucket < MD_METRICS_BUCKETS && seconds > md_metrics_bounds[bucket])
		bucket++;
	histogram->counts[bucket]++;
	histogram->sum_s += seconds;
}

void md_metrics_add(struct md_metrics_histogram *sum, const struct md_metrics_histogram *part)
{
	for (unsigned b = 0; b <= MD_METRICS_BUCKETS; b++)
		sum->counts[b] += part->counts[b];
	sum->sum_s += part->sum_s;
}

/* ---- how requests have ended ---- */

uint64_t md_metrics_served(const struct md_metrics_requests *requests)
{
	return requests->served;
}

uint64_t md_metrics_refused(const struct md_metrics_requests *requests)
{
	return requests->refused + requests->limited;
}

uint64_t md_metrics_failed(const struct md_metrics_requests *requests)
{
	return requests->failed;
}

uint64_t md_metrics_cancelled(const struct md_metrics_requests *requests)
{
	return requests->left_waiting + requests->left_running;
}
