/* SPDX-License-Identifier: Apache-2.0 */
/* Queueing: which function's requests are served first. */
#include <math.h>
#include <stdlib.h>

#include "scheduler/core/dispatch.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

/* ---- fifo ------------------------------------------------------------------------------------------------------- */

static struct md_key fifo_key(struct medusa_sched *s, uint32_t function)
{
	return (struct md_key){0, s->requests[md_first_waiting(s, function)].arrived};
}

/* ---- torpor ------------------------------------------------------------------------------------------------------ */

/*
 * Required request count (section 5.2), with what the authors' code adds: it is weighted by the mean latency; the
 * threshold comes from the cumulative sum and is adapted every 20 updates; the largest is served first in the high
 * group, the smallest in the low group.
 */

#define TORPOR_PERIOD 2000000000ull
#define TORPOR_UPDATES 20

static double torpor_metric(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	double p = f->spec.slo_percentile,
	       mean = f->served ? f->service_s / (double)f->served : (double)f->spec.t0_ns * 1e-9;
	if (p >= 1)
		return f->met < f->ended ? INFINITY : 0;
	return mean * (p * (double)f->ended - (double)f->met) / (1 - p);
}

static struct md_key torpor_key(struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	double metric = torpor_metric(s, function);
	uint64_t arrived = s->requests[md_first_waiting(s, function)].arrived;
	/* Keys of the high group are all below those of the low group: x / (1 + |x|) keeps the order and is bounded. */
	double squeezed = metric / (1 + fabs(metric)); /* -1 .. 1 */
	squeezed = isnan(squeezed) ? 1 : squeezed;
	return (struct md_key){f->high ? -2 - squeezed : 2 + squeezed, arrived};
}

struct ranked {
	double metric;
	uint32_t function;
};

static int by_metric(const void *x, const void *y)
{
	const struct ranked *a = x, *b = y;
	if (a->metric != b->metric)
		return a->metric < b->metric ? -1 : 1;
	return a->function < b->function ? -1 : a->function > b->function;
}

static void torpor_adapt(struct medusa_sched *s)
{
	if (++s->torpor.updates % TORPOR_UPDATES)
		return;
	double ratio = s->torpor.ended ? (double)s->torpor.met / (double)s->torpor.ended : 1;
	double change = ratio - s->torpor.ratio;
	double alpha = s->torpor.alpha * (change >= 0.04 ? 2 : change <= -0.04 ? 0.5 : 1.01);
	s->torpor.alpha = alpha > 1 ? 1 : alpha;
	s->torpor.ratio = ratio;
	s->torpor.ended = s->torpor.met = 0;
}

static void torpor_tick(struct medusa_sched *s)
{
	struct ranked *ranked = malloc((s->function_count + 1) * sizeof(*ranked));
	if (!ranked)
		return; /* the groups stay as they are */
	double positive = 0, sum = 0;
	for (uint32_t f = 0; f < s->function_count; f++)
		ranked[f] = (struct ranked){torpor_metric(s, f), f};
	torpor_adapt(s);
	qsort(ranked, s->function_count, sizeof(*ranked), by_metric);
	/*
	 * summed in the same order as below, because rounding could otherwise make the last cumulative sum exceed the
	 * total
	 */
	for (uint32_t i = 0; i < s->function_count; i++)
		positive += ranked[i].metric > 0 && isfinite(ranked[i].metric) ? ranked[i].metric : 0;
	for (uint32_t i = 0; i < s->function_count; i++) {
		sum += ranked[i].metric > 0 ? ranked[i].metric : 0;
		s->functions[ranked[i].function].high = sum <= s->torpor.alpha * positive;
	}
	free(ranked);
	for (uint32_t f = 0; f < s->function_count; f++) {
		if (md_priority_has(&s->ready, f))
			md_function_ready(s, f);
	}
}

/* ---- margin: xLoRA's deadline margin under contention ----------------------------------------------------------- */

/* Where the function would go: where it is, else where its backbone is; of several, where the fewest batches run. */
static uint32_t likely_gpu(const struct medusa_sched *s, uint32_t function)
{
	uint32_t backbone = s->functions[function].artifacts[MEDUSA_SCHED_CLASS_BACKBONE], best = NONE;
	int nearest = -1;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (!s->gpus[gpu].present)
			continue;
		int state = backbone == NONE ? MD_ABSENT : md_copy_at(s, backbone, gpu)->state;
		int near = md_all_there(s, function, gpu) ? 2 : state == MD_THERE || state == MD_LOADING;
		if (near > nearest || (near == nearest && s->gpus[gpu].running < s->gpus[best].running)) {
			nearest = near;
			best = gpu;
		}
	}
	return best;
}

/*
 * SLO - (w + M T(b)), where M counts the batches of the GPU that it would share: the waiting time w grows equally for
 * all, so the order is that of arrival + SLO - M T(b).
 */
static struct md_key margin_key(struct medusa_sched *s, uint32_t function)
{
	const struct medusa_sched_function *spec = &s->functions[function].spec;
	uint32_t first = md_first_waiting(s, function), gpu = likely_gpu(s, function);
	uint32_t waiting = md_waiting(s, function), size = waiting < spec->max_batch ? waiting : spec->max_batch;
	double contention = 1 + (gpu == NONE ? 0 : (double)s->gpus[gpu].running);
	double slo = spec->slo_ns ? (double)spec->slo_ns : 1e18;
	double start =
	    (double)s->requests[first].arrived + slo - contention * (double)md_first_token_ns(s, function, size);
	return (struct md_key){start, s->requests[first].arrived};
}

/* ---- swapserve -------------------------------------------------------------------------------------------------- */

/*
 * Each engine has a queue and a worker of its own; what engines compete for is memory, in a priority queue of
 * reservations (section 3.3). The paper does not say by what: here by the longest queue, then by age, which is the
 * reverse of its order of preemption.
 */
static struct md_key swapserve_key(struct medusa_sched *s, uint32_t function)
{
	uint32_t demand = md_waiting(s, function) + s->functions[function].running;
	return (struct md_key){-(double)demand, s->requests[md_first_waiting(s, function)].arrived};
}

/* ---- medusa ------------------------------------------------------------------------------------------------------ */

/*
 * Orders by the latest start that is still in time, in three classes: requests of functions that shall reach their
 * percentile; of functions that are given up for now; requests that are late, by arrival. Earliest deadline first is
 * optimal until there is overload, and the worst order from then on. So when the first class misses more than it may,
 * functions leave it that take most of the GPUs' time and are far from their goal anyway, so that most functions stay,
 * until it asks for less than before. They come back as soon as the first class would still ask for less than what the
 * node has been seen to bear.
 * While the first class misses more than it may, those of its functions go first that can reach their percentile
 * soon, and of these and of the others those that take least time for a request: what is late already loses nothing, most
 * are in time, and functions that are beyond rescue do not cost others their percentile.
 * Of the functions that are given up, too, those go first that can be rescued, then those that take least time: their starts
 * are due soonest where they must be loaded, and they would push each other out. Likewise what is late and must be loaded
 * waits for younger late requests of functions that are there, as long as LATE_STAY loads take, once some have waited long.
 * Every MD_OLDEST_TURN-th start takes the request that has waited longest, if that is long, so that waiting times are bounded.
 */

#define MEDUSA_PERIOD 1000000000ull

#define EVIDENCE 20
#define MISSES 0.03
#define LOWER 0.8
#define RAISE 1.02
#define MOVES 4 /* functions that one step moves, and one */
#define LATE_STAY 16
#define HORIZON_S 300.0 /* so soon a function can reach its percentile, or it comes second */

/* GPU time until the first token, including the copy if no GPU has the weights. */
static uint64_t takes_ns(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	if (md_has_copy(s, function))
		return f->spec.t0_ns;
	uint64_t copy = md_copy_ns(f->spec.weight_bytes, s->host_bytes_per_s);
	return f->spec.swap_ns > f->spec.t0_ns ? f->spec.swap_ns : f->spec.t0_ns + copy;
}

/* Of the requests that can be in time, as one batch, and of each of them. */
static uint64_t takes_each_ns(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	uint32_t count = f->waiting.count < f->spec.max_batch ? f->waiting.count : f->spec.max_batch;
	return count > 1 ? (takes_ns(s, function) + (count - 1) * f->spec.alpha_ns) / count : takes_ns(s, function);
}

/* More of the first class is late than may be, since the last decision. */
static bool misses_much(const struct medusa_sched *s)
{
	return s->first_class.missed > MISSES * s->first_class.ended;
}

/* How far the function is from its goal: requests that must be in time in a row to reach it; 0: it reaches it. */
static double deficit(const struct md_function *f)
{
	double p = f->spec.slo_percentile, lacking = p * (double)f->ended - (double)f->met;
	return lacking <= 0 || p >= 1 ? 0 : lacking / (1 - p);
}

/* The function would not reach its goal within HORIZON_S if all its requests were in time. */
static bool is_far_from_goal(const struct medusa_sched *s, const struct md_function *f)
{
	return deficit(f) > HORIZON_S * md_rate_per_s(&f->rate, s->now);
}

/* Requests wait so long that only serving many more of them can help. */
static bool is_behind(const struct medusa_sched *s)
{
	return s->oldest_waiting != NONE && s->now - s->requests[s->oldest_waiting].arrived > MD_LONG_WAIT;
}

static struct md_key medusa_key(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	uint32_t first = md_first_waiting(s, function);
	const struct md_request *r = &s->requests[first];
	if (s->dispatches % MD_OLDEST_TURN == 0 && s->oldest_waiting == first && s->now - r->arrived > MD_LONG_WAIT)
		return (struct md_key){-1, r->arrived};
	uint64_t takes = takes_ns(s, function);
	if (r->late || (md_has_tenants(s) && md_is_late(s, first)))
		return (struct md_key){6, r->arrived + (is_behind(s) ? LATE_STAY * (takes - f->spec.t0_ns) : 0)};
	uint64_t deadline = md_deadline(s, first);
	if (deadline == UINT64_MAX)
		return (struct md_key){2, r->arrived + MD_LONG_WAIT};
	if (f->high && !misses_much(s))
		return (struct md_key){2, deadline > takes ? deadline - takes : 0};
	return (struct md_key){(f->high ? 0 : 4) + is_far_from_goal(s, f), takes_each_ns(s, function)};
}

/* GPU seconds per second that the function asks for until its goals are reached: as measured if those are its ends. */
static double burden(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	bool measured = f->served && f->spec.slo_goal == MEDUSA_SCHED_GOAL_COMPLETION;
	double takes = measured ? f->service_s / (double)f->served : (double)takes_ns(s, function) * 1e-9;
	return md_rate_per_s(&f->rate, s->now) * takes;
}

/* What the first class asks for. */
static double kept_burden(const struct medusa_sched *s)
{
	double sum = 0;
	for (uint32_t f = 0; f < s->function_count; f++)
		sum += s->functions[f].high && !s->functions[f].gone ? burden(s, f) : 0;
	return sum;
}

/*
 * The function whose leaving the high group costs least for what it saves: the greatest burden, more so if it is far
 * from its goal anyway. Or the one in the low group of which the opposite is true. NONE: there is none.
 */
static uint32_t choose_moved(const struct medusa_sched *s, bool high)
{
	uint32_t best = NONE;
	double least = 0;
	for (uint32_t f = 0; f < s->function_count; f++) {
		const struct md_function *function = &s->functions[f];
		if (function->high != high || function->gone || !function->spec.slo_ns)
			continue;
		double score = burden(s, f) * (1 + deficit(function)) * (high ? -1 : 1);
		if (best == NONE || score < least) {
			best = f;
			least = score;
		}
	}
	return best;
}

static void move(struct medusa_sched *s, uint32_t function)
{
	s->functions[function].high = !s->functions[function].high;
	if (md_priority_has(&s->ready, function))
		md_function_changed(s, function);
}

/* Functions leave the first class until what it asks for is within the limit; at least one. */
static void give_up(struct medusa_sched *s, double kept)
{
	for (uint32_t i = 0; i <= MOVES; i++) {
		uint32_t function = choose_moved(s, true);
		if (function == NONE || (i && kept <= s->first_class.limit))
			return;
		kept -= burden(s, function);
		move(s, function);
	}
}

/* Functions come back as long as the first class would still ask for less than the limit. */
static void take_back(struct medusa_sched *s, double kept)
{
	for (uint32_t i = 0; i <= MOVES; i++) {
		uint32_t function = choose_moved(s, false);
		if (function == NONE)
			return;
		kept += burden(s, function);
		if (kept > s->first_class.limit)
			return;
		move(s, function);
	}
}

/*
 * The limit is what the node has been seen to bear, in the units of burden(): lowered when the first class misses too
 * much, raised when it misses nothing. Each decision waits for so many new results, however long that takes, so that
 * rare and frequent calls are judged alike.
 */
static void medusa_tick(struct medusa_sched *s)
{
	double ended = s->first_class.ended, kept = kept_burden(s);
	if (ended >= EVIDENCE && misses_much(s)) {
		s->first_class.limit = kept * LOWER;
		give_up(s, kept);
	} else {
		if (ended >= EVIDENCE && s->first_class.limit < kept * RAISE)
			s->first_class.limit = kept * RAISE;
		take_back(s, kept);
	}
	if (ended >= EVIDENCE)
		s->first_class.ended = s->first_class.missed = 0;
}

static const struct md_queueing fifo = {"fifo", "in the order of arrival", fifo_key, NULL, 0, 0};
static const struct md_queueing torpor = {
    "torpor",      "required request count with an adaptive threshold (Torpor, section 5.2)",
    torpor_key,    torpor_tick,
    TORPOR_PERIOD, 0};
static const struct md_queueing margin = {
    "margin",   "least deadline margin under contention on its GPU (xLoRA, equations 5 and 6)",
    margin_key, NULL,
    0,          MD_QUEUEING_BY_LOAD};
static const struct md_queueing swapserve = {
    "swapserve",
    "longest queue first, also among reservations of memory, then by age (SwapServeLLM, section 3.3)",
    swapserve_key,
    NULL,
    0,
    MD_QUEUEING_BY_LOAD | MD_QUEUEING_ORDERS_CLAIMS};
static const struct md_queueing medusa = {
    "medusa",      "ours: latest start first, late requests last, functions beyond rescue in between",
    medusa_key,    medusa_tick,
    MEDUSA_PERIOD, MD_QUEUEING_SEPARATES_LATE | MD_QUEUEING_ORDERS_CLAIMS | MD_QUEUEING_AGES_CLAIMS};

const struct md_queueing *const md_queueings[] = {&medusa, &fifo, &torpor, &margin, &swapserve, NULL};
