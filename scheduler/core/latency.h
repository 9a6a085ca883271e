/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of latencies: of each function, and of all together. */
#ifndef MD_SCHEDULER_CORE_LATENCY_H
#define MD_SCHEDULER_CORE_LATENCY_H

#include "medusa/scheduler.h"

#include <stdbool.h>

#define MD_LATENCIES 3 /* by enum medusa_sched_latency */

struct md_histogram {
	uint64_t count, total_ns, buckets[MEDUSA_SCHED_BUCKETS];
};

struct md_latencies {
	struct md_histogram of[MD_LATENCIES];
};

/* Makes room for those of so many functions, and of all together; false: out of memory. */
bool md_latencies_reserve(struct medusa_sched *s, uint32_t functions);
void md_latencies_begin(struct medusa_sched *s, uint32_t function); /* there is room for those of this one: all are 0 */
/* Counts the time since the request arrived. */
void md_latency_count(struct medusa_sched *s, uint32_t request, enum medusa_sched_latency which);

#endif
