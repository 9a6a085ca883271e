/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of latencies, with two buckets for each doubling of the time. */
#include "scheduler/core/latency.h"

#include <string.h>

#include "base/array.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/state.h"

#define FIRST_NS 100000u /* upper bound of the first bucket; the next are 1.5, 2, 3, 4, 6, 8 ... times that */

MD_EXPORT uint64_t medusa_sched_bucket_ns(uint32_t bucket)
{
	if (bucket >= MEDUSA_SCHED_BUCKETS - 1)
		return UINT64_MAX;
	uint64_t doubled = (uint64_t)FIRST_NS << bucket / 2;
	return bucket % 2 ? doubled + doubled / 2 : doubled;
}

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t low = 0, high = MEDUSA_SCHED_BUCKETS - 1;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (ns <= medusa_sched_bucket_ns(middle))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool md_latencies_reserve(struct medusa_sched *s, uint32_t functions)
{
	bool first = !s->latency_capacity;
	if (!MD_ARRAY_RESERVE(s->latencies, functions + 1, s->latency_capacity))
		return false;
	if (first)
		memset(s->latencies, 0, sizeof(*s->latencies));
	return true;
}

void md_latencies_begin(struct medusa_sched *s, uint32_t function)
{
	memset(&s->latencies[function + 1], 0, sizeof(*s->latencies));
}

static void count(struct md_histogram *histogram, uint64_t ns)
{
	histogram->count++;
	histogram->total_ns += ns;
	histogram->buckets[bucket_of(ns)]++;
}

/* All together come first. */
void md_latency_count(struct medusa_sched *s, uint32_t request, enum medusa_sched_latency which)
{
	const struct md_request *r = &s->requests[request];
	count(&s->latencies[0].of[which], s->now - r->arrived);
	count(&s->latencies[r->function + 1].of[which], s->now - r->arrived);
}

MD_EXPORT int medusa_sched_latency_get(const struct medusa_sched *s, uint32_t function, enum medusa_sched_latency which,
				       struct medusa_sched_histogram *histogram)
{
	if (!s)
		return MEDUSA_SCHED_ERR_INVALID;
	if ((unsigned)which >= MD_LATENCIES || (function != NONE && function >= s->function_count))
		return MEDUSA_SCHED_ERR_NOT_FOUND;
	const struct md_histogram *h = &s->latencies[function == NONE ? 0 : function + 1].of[which];
	struct medusa_sched_histogram known = {.count = h->count, .total_ns = h->total_ns};
	memcpy(known.buckets, h->buckets, sizeof(known.buckets));
	return md_give_struct(histogram, &known, sizeof(known));
}
