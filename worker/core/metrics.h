/* SPDX-License-Identifier: Apache-2.0 */
/* What Prometheus collects (text format 0.0.4). */
#ifndef MD_WORKER_CORE_METRICS_H
#define MD_WORKER_CORE_METRICS_H

#include <stdint.h>

struct md_http_exchange;
struct md_worker;

#define MD_METRICS_BUCKETS 14u

/* Counts of durations by upper bound, not cumulated; the last one has no bound. */
struct md_metrics_histogram {
	uint64_t counts[MD_METRICS_BUCKETS + 1];
	double sum_s;
};

void md_metrics_note(struct md_metrics_histogram *histogram, uint64_t ns);
void md_metrics_answer(struct md_worker *worker, struct md_http_exchange *exchange);

#endif
