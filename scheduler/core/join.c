/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether waiting requests may join a batch that runs, and which batch. */
#include "scheduler/core/join.h"

#include <math.h>

#include "scheduler/core/action.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/books.h"
#include "scheduler/core/company.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/policies.h"

#define MOST_AGES 6 /* a claim so many times as old as an old one ends joins of other tenants, whatever they are due */

/* ---- which batches may take another request ---------------------------------------------------------------------- */

uint32_t md_join_batch(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	if (!s->functions[function].spec.continuous)
		return NONE;
	for (uint32_t b = s->functions[function].first_batch; b != NONE; b = s->batches[b].own_older)
		if (s->batches[b].gpu == gpu && !s->batches[b].hung)
			return b;
	return NONE;
}

bool md_join_hangs(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	if (!s->functions[function].spec.continuous)
		return false;
	for (uint32_t b = s->functions[function].first_batch; b != NONE; b = s->batches[b].own_older)
		for (uint32_t r = s->batches[b].strays.head; s->batches[b].gpu == gpu && r != NONE;
		     r = s->requests[r].next)
			if (!s->requests[r].asked_again)
				return true;
	return false;
}

/* One of whose requests no end came in time takes nobody: its engine may hang. */
static bool has_room(const struct medusa_sched *s, const struct md_batch *b)
{
	return !b->strays.count && b->requests.count < s->functions[b->function].spec.max_batch;
}

bool md_joinable(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	if (!s->functions[function].spec.continuous)
		return false;
	for (uint32_t b = s->functions[function].first_batch; b != NONE; b = s->batches[b].own_older)
		if ((gpu == NONE || s->batches[b].gpu == gpu) && has_room(s, &s->batches[b]))
			return true;
	return false;
}

/* Whether all that the batch computes with is there. */
static bool is_loaded(const struct medusa_sched *s, const struct md_batch *b)
{
	const uint32_t *artifacts = s->functions[b->function].artifacts;
	uint32_t library = artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++)
		if (artifacts[kind] != NONE && md_copy_at(s, artifacts[kind], b->gpu)->state != MD_THERE)
			return false;
	return library == NONE || s->artifacts[library].host == MD_THERE;
}

bool md_join_loads(const struct medusa_sched *s, uint32_t function)
{
	if (!s->functions[function].spec.continuous)
		return false;
	for (uint32_t b = s->functions[function].first_batch; b != NONE; b = s->batches[b].own_older)
		if (has_room(s, &s->batches[b]) && !is_loaded(s, &s->batches[b]))
			return true;
	return false;
}

static bool drains(const struct medusa_sched *s, const struct md_batch *b)
{
	const uint32_t *artifacts = s->functions[b->function].artifacts;
	bool draining = !md_gpu_open(s, b->gpu) || s->gpus[b->gpu].grown;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++)
		draining |= artifacts[kind] != NONE && md_copy_at(s, artifacts[kind], b->gpu)->draining;
	return draining;
}

/*
 * Of two tenants that claim each other's slots, each has requests join its engine until it is ahead by so much virtual time.
 * Turns are as long as claims take to grow old for the one of less weight, and in proportion for the other one.
 */
static double most_ahead(const struct medusa_sched *s, uint32_t tenant, uint32_t other)
{
	return (double)md_patience(s) / 2 / fmin(s->tenants[tenant].weight, s->tenants[other].weight);
}

/* A batch that requests join need never end: when others have waited long enough for its GPU, nobody joins it. */
static bool has_turn(const struct medusa_sched *s, const struct md_batch *b)
{
	const struct md_gpu *g = &s->gpus[b->gpu];
	if (!g->claim_count || g->claims[0] == b->function)
		return true;
	uint32_t own = md_first_tenant(s, b->function), other = md_first_tenant(s, g->claims[0]);
	if (own == other)
		return !md_claim_is_old(s, b->gpu);
	bool ahead = s->tenants[own].turn > s->tenants[other].turn + most_ahead(s, own, other);
	return !ahead && md_claim_age(s, b->gpu) < MOST_AGES * md_patience(s);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* The least of those that take requests now; *count is how many do, *full whether others would if their backbone did. */
static uint32_t choose(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t *count, bool *full)
{
	uint32_t best = NONE;
	*count = 0;
	*full = false;
	for (uint32_t i = s->functions[function].first_batch; i != NONE; i = s->batches[i].own_older) {
		const struct md_batch *b = &s->batches[i];
		if ((gpu != NONE && b->gpu != gpu) || !has_room(s, b) || !is_loaded(s, b) || drains(s, b) ||
		    !has_turn(s, b))
			continue;
		if (!md_backbone_room(s, function, b->gpu)) {
			*full = true;
			continue;
		}
		++*count;
		if (best == NONE || b->requests.count < s->batches[best].requests.count)
			best = i;
	}
	return best;
}

/* How many requests the GPU has memory for, after evictions that take no time. What others claim is not evicted for. */
static uint32_t make_room(struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t most)
{
	const struct md_gpu *g = &s->gpus[gpu];
	int64_t free = md_free_bytes(s, gpu), idle = 0;
	uint64_t bytes;
	if (s->eviction->rank && (!g->claim_count || g->claims[0] == function))
		idle = md_idle_bytes(s, gpu);
	uint32_t count = md_count_that_fit(s, function, most, free + idle, &bytes);
	if (count && (int64_t)bytes > free && !md_make_room(s, gpu, bytes, function))
		count = md_count_that_fit(s, function, most, md_free_bytes(s, gpu), &bytes);
	return count;
}

static void say(struct medusa_sched *s, uint32_t batch, uint32_t first)
{
	const struct md_batch *b = &s->batches[batch];
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_JOIN); /* the caller has made room */
	action->batch = b->id;
	action->function = b->function;
	action->gpu = b->gpu;
	for (uint32_t r = first; r != NONE; r = s->requests[r].next) {
		s->run_requests[s->run_request_count++] = s->requests[r].id;
		action->request_count++;
	}
	s->stats.joins += action->request_count;
	s->dispatches++;
}

enum md_join md_join(struct medusa_sched *s, uint32_t function, uint32_t *gpu)
{
	bool full;
	uint32_t candidates, batch = choose(s, function, *gpu, &candidates, &full);
	*gpu = NONE;
	if (batch == NONE && full)
		return MD_JOIN_FULL;
	if (batch == NONE || (md_company_ruled(s) && md_company_yields(s, function)))
		return MD_JOIN_NOT_NOW;
	struct md_batch *b = &s->batches[batch];
	uint32_t most = candidates > 1 ? 1 : s->functions[function].spec.max_batch - b->requests.count;
	uint32_t together = md_backbone_room(s, function, b->gpu);
	most = most < together ? most : together;
	uint32_t count = make_room(s, function, b->gpu, most), last = b->requests.tail;
	if (!count) {
		*gpu = b->gpu;
		return MD_JOIN_LACKS_MEMORY;
	}
	if (!md_action_room(s, 1, count))
		return MD_JOIN_NOT_NOW;
	md_batch_take(s, batch, count);
	md_company_left(s, function);
	say(s, batch, s->requests[last].next);
	return MD_JOINED;
}
