/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/prefill.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_SAMPLES 8u
#define LEAST_PAIRS 8u
#define LEAST_APART 2048.0  /* bytes between two prompts whose times are compared */
#define LEAST_CACHED 2048.0 /* bytes that a cache is expected to have before it is judged */
#define LEAST_SAVED_S 0.005 /* the same of seconds, where only times tell */
#define MISSES_MAX 8u
#define EVERY 4u /* samples from one estimate to the next */
#define PAIRS_MAX (MD_PREFILL_SAMPLES * (MD_PREFILL_SAMPLES - 1) / 2)

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;
	return (one > other) - (one < other);
}

static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof(*values), compare);
	return values[count / 2];
}

static uint32_t count_of(const struct md_prefill_samples *samples)
{
	return samples->taken < MD_PREFILL_SAMPLES ? samples->taken : MD_PREFILL_SAMPLES;
}

/* Pairs of prompts of nearly one length say little, so those are compared that are apart by a quarter of all there are. */
static double least_apart(const struct md_prefill_samples *samples)
{
	double low = samples->list[0].bytes, high = low;
	for (uint32_t i = 1; i < count_of(samples); i++) {
		low = fmin(low, samples->list[i].bytes);
		high = fmax(high, samples->list[i].bytes);
	}
	return fmax(LEAST_APART, (high - low) / 4);
}

/*
 * The median of the slopes between pairs (Theil and Sen): up to a quarter of the samples may be anything, such as times in which the
 * engine had something else to do. False: they say too little.
 */
static bool estimate(const struct md_prefill_samples *samples, double *byte_s, double *rest_s)
{
	double slopes[PAIRS_MAX], rests[MD_PREFILL_SAMPLES];
	uint32_t count = count_of(samples), pairs = 0;
	double apart = least_apart(samples);
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < i; k++) {
			double bytes = samples->list[i].bytes - samples->list[k].bytes;
			if (fabs(bytes) >= apart)
				slopes[pairs++] = (samples->list[i].seconds - samples->list[k].seconds) / bytes;
		}
	if (count < LEAST_SAMPLES || pairs < LEAST_PAIRS)
		return false;
	*byte_s = fmax(0, median(slopes, pairs));
	for (uint32_t i = 0; i < count; i++)
		rests[i] = samples->list[i].seconds - *byte_s * samples->list[i].bytes;
	*rest_s = fmax(0, median(rests, count));
	return true;
}

/* What was known stays where the last ones say too little. */
static void add(struct md_prefill *prefill, bool sure, double bytes, double seconds)
{
	struct md_prefill_samples *samples = sure ? &prefill->sure : &prefill->assumed;
	samples->list[samples->taken % MD_PREFILL_SAMPLES].bytes = bytes;
	samples->list[samples->taken % MD_PREFILL_SAMPLES].seconds = seconds;
	samples->taken++;
	if (samples->taken % EVERY || (!sure && prefill->is_sure))
		return;
	bool known = estimate(samples, &prefill->byte_s, &prefill->rest_s);
	prefill->is_sure = prefill->is_sure || (sure && known);
}

static void judge(struct md_prefill *prefill, bool hit)
{
	prefill->misses = hit ? 0 : prefill->misses + (prefill->misses < MISSES_MAX);
	prefill->uncached = prefill->misses >= MISSES_MAX;
}

/* Where the engine tells nothing, it is judged by its times, but not by those from which it was assumed to keep prefixes. */
void md_prefill_note(struct md_prefill *prefill, const struct md_prefill_request *request)
{
	double seconds = request->seconds, cached = fmin(request->cached, request->bytes);
	bool expected = cached >= LEAST_CACHED;
	if (request->told && (expected || request->told_part > 0))
		judge(prefill, request->told_part > 0);
	else if (!request->told && expected && seconds > 0 && prefill->is_sure &&
		 prefill->byte_s * cached >= LEAST_SAVED_S)
		judge(prefill, seconds < prefill->rest_s + prefill->byte_s * (request->bytes - cached / 2));
	if (!(seconds > 0))
		return;
	if (request->told)
		add(prefill, true, request->bytes * (1 - request->told_part), seconds);
	else if (prefill->uncached)
		add(prefill, true, request->bytes, seconds);
	else
		add(prefill, !(cached > 0), request->bytes - cached, seconds);
}

void md_prefill_begin_life(struct md_prefill *prefill)
{
	prefill->misses = 0;
	prefill->uncached = false;
}
