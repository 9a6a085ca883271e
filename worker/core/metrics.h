/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted of requests and engines. */
#ifndef MD_WORKER_CORE_METRICS_H
#define MD_WORKER_CORE_METRICS_H

#include <stdint.h>

#define MD_METRICS_BUCKETS 14u

extern const double md_metrics_bounds[MD_METRICS_BUCKETS]; /* seconds */

/* Counts of durations by upper bound, not cumulated; the last one has no bound. */
struct md_metrics_histogram {
	uint64_t counts[MD_METRICS_BUCKETS + 1];
	double sum_s;
};

/* Requests of clients for a model, or of a tenant: those that were taken are in exactly one of the others, but for `retried`. */
struct md_metrics_requests {
	uint64_t taken;
	uint64_t open;    /* not ended yet */
	uint64_t served;  /* the engine's answer has ended */
	uint64_t failed;  /* the engine has failed */
	uint64_t refused; /* by the scheduler, or because the daemon takes no more */
	uint64_t limited; /* concurrencyLimit */
	uint64_t left_waiting,
	    left_running; /* the client was gone before the engine had the request, or its answer ended */
	uint64_t retried; /* how often one was given to an engine again */
};

/* Each request that has ended is in one of these. */
uint64_t md_metrics_served(const struct md_metrics_requests *requests);
uint64_t md_metrics_refused(const struct md_metrics_requests *requests);
uint64_t md_metrics_failed(const struct md_metrics_requests *requests);
uint64_t md_metrics_cancelled(const struct md_metrics_requests *requests); /* by its client */

void md_metrics_add(struct md_metrics_histogram *sum, const struct md_metrics_histogram *part);
void md_metrics_note(struct md_metrics_histogram *histogram, uint64_t ns);

#endif
