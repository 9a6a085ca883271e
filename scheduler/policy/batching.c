/* SPDX-License-Identifier: Apache-2.0 */
/* Batching: how many requests of a function run together, and how long the first ones wait for more. */
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

static uint32_t most(const struct medusa_sched *s, uint32_t function, uint32_t limit)
{
	uint32_t waiting = md_waiting(s, function), max = s->functions[function].spec.max_batch;
	max = max < limit ? max : limit;
	return waiting < max ? waiting : max;
}

static uint32_t none_size(struct medusa_sched *s, uint32_t function, uint64_t *until)
{
	(void)until;
	return most(s, function, 1);
}

/*
 * Waiting for more requests pays only where another batch computes its first token anyway (M in equation 5); otherwise
 * the function starts at once. xLoRA's measured latencies imply this: its mean time to the first token is below its own
 * batching delay, and below that of fixed delays. A function that no GPU holds starts at once, too, because its loading
 * begins with its start: batches are for instances that are loaded (section 4.2).
 */
static bool may_start_alone(const struct medusa_sched *s, uint32_t function)
{
	bool held = false;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		bool here = s->gpus[gpu].present && md_all_there(s, function, gpu);
		if (here && !s->gpus[gpu].prefilling)
			return true;
		held |= here;
	}
	return !held;
}

static uint32_t fixed_size(struct medusa_sched *s, uint32_t function, uint64_t *until)
{
	uint32_t size = s->options.fixed_batch ? s->options.fixed_batch : 1, count = most(s, function, size);
	uint32_t full = s->functions[function].spec.max_batch < size ? s->functions[function].spec.max_batch : size;
	uint64_t expires = s->requests[md_first_waiting(s, function)].arrived + s->options.fixed_delay_ns;
	if (count >= full || s->now >= expires || may_start_alone(s, function))
		return count;
	*until = expires;
	return 0;
}

/* The largest batch whose first token meets the SLO (B_i in xLoRA). */
static uint32_t largest_in_time(const struct medusa_sched_function *spec)
{
	if (!spec->slo_ns || !spec->alpha_ns)
		return spec->max_batch;
	if (spec->slo_ns <= spec->t0_ns)
		return 1;
	uint64_t more = (spec->slo_ns - spec->t0_ns) / spec->alpha_ns;
	return more + 1 < spec->max_batch ? (uint32_t)more + 1 : spec->max_batch;
}

/* Fill or expire: the batch waits for d = SLO - T(N), where N requests are there. */
static uint32_t xlora_size(struct medusa_sched *s, uint32_t function, uint64_t *until)
{
	const struct medusa_sched_function *spec = &s->functions[function].spec;
	uint32_t full = largest_in_time(spec), count = most(s, function, full);
	uint64_t takes = md_first_token_ns(s, function, count);
	uint64_t delay = spec->slo_ns > takes ? spec->slo_ns - takes : 0;
	uint64_t expires = s->requests[md_first_waiting(s, function)].arrived + delay;
	if (count >= full || !spec->slo_ns || s->now >= expires || may_start_alone(s, function))
		return count;
	*until = expires;
	return 0;
}

/*
 * Of the batches of the first n that wait and may be in time, the one that serves most in time for each second: a
 * further request makes the batch longer, and so the first ones late in the end. 0: none would be in time.
 */
static uint32_t densest(const struct medusa_sched *s, uint32_t function, uint32_t count)
{
	uint32_t last = s->functions[function].waiting.head, first = last, in_time = 0, best = 0;
	double most_per_ns = 0;
	for (uint32_t n = 1; n <= count && last != NONE; n++, last = s->requests[last].next) {
		uint64_t takes = md_first_token_ns(s, function, n);
		for (in_time++; in_time && md_deadline(s, first) < s->now + takes; in_time--)
			first = s->requests[first].next;
		if ((double)in_time > most_per_ns * (double)takes) {
			most_per_ns = (double)in_time / (double)takes;
			best = n;
		}
	}
	return best;
}

/*
 * Nobody waits for others while a slot is free. Of the requests that arrived meanwhile, so many run together as serves
 * most of them in time for each second, or as still leave the first one in time, if these are more. What has to be
 * loaded first is loaded for all of them.
 */
static uint32_t medusa_size(struct medusa_sched *s, uint32_t function, uint64_t *until)
{
	(void)until;
	const struct medusa_sched_function *spec = &s->functions[function].spec;
	uint32_t count = most(s, function, UINT32_MAX), first = md_first_waiting(s, function);
	uint64_t deadline = md_deadline(s, first);
	if (deadline == UINT64_MAX || !spec->alpha_ns || s->requests[first].late || !md_has_copy(s, function))
		return count;
	uint64_t left = deadline > s->now + spec->t0_ns ? deadline - s->now - spec->t0_ns : 0;
	uint64_t in_time = left / spec->alpha_ns + 1;
	if (in_time >= count)
		return count;
	uint32_t dense = densest(s, function, count);
	if (!dense && md_has_tenants(s)) /* whose late requests stand among the others */
		return count;
	return in_time > dense ? (uint32_t)in_time : dense;
}

static const struct md_batching none = {"none", "one request at a time (Torpor, section 4.5; xLoRA-NAB #1)", none_size};
static const struct md_batching fixed = {"fixed", "a fixed size and delay (xLoRA-NAB #2 and #3, table 3)", fixed_size};
static const struct md_batching xlora = {
    "xlora", "fill or expire: until the batch is full, or the first request must start (xLoRA, section 4.2)",
    xlora_size};
static const struct md_batching medusa = {
    "medusa",
    "ours: of what waits when a slot gets free, as many as are served in time fastest; all if weights must be loaded",
    medusa_size};

const struct md_batching *const md_batchings[] = {&medusa, &none, &fixed, &xlora, NULL};
