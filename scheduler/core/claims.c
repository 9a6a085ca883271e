/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/core/claims.h"

#include <string.h>

#include "base/array.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

uint64_t md_needed_bytes(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint32_t first = md_first_waiting(s, function);
	return md_missing_bytes(s, function, gpu) + (first == NONE ? 0 : s->requests[first].kv_bytes);
}

bool md_claim_put(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	if (!MD_ARRAY_GROW(g->claims, g->claim_count, g->claim_capacity))
		return false;
	uint64_t arrived = s->requests[md_first_waiting(s, function)].arrived;
	uint32_t at = g->claim_count;
	while (at > 0 && s->requests[md_first_waiting(s, g->claims[at - 1])].arrived > arrived)
		at--;
	memmove(g->claims + at + 1, g->claims + at, (g->claim_count - at) * sizeof(*g->claims));
	g->claims[at] = function;
	g->claim_count++;
	md_function_step_aside(s, function);
	s->functions[function].claim = gpu;
	s->functions[function].claimed_at = s->now;
	if (s->eviction->drains && at == 0)
		md_drain_for(s, gpu, md_needed_bytes(s, function, gpu), function);
	return true;
}

void md_claim_drop(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = s->functions[function].claim;
	if (gpu == NONE)
		return;
	struct md_gpu *g = &s->gpus[gpu];
	uint32_t at = 0;
	while (g->claims[at] != function)
		at++;
	memmove(g->claims + at, g->claims + at + 1, (g->claim_count - at - 1) * sizeof(*g->claims));
	g->claim_count--;
	s->functions[function].claim = NONE;
	if (at == 0)
		md_undrain(s, gpu);
}

static void put_first(struct md_gpu *g, uint32_t at)
{
	uint32_t function = g->claims[at];
	memmove(g->claims + 1, g->claims, at * sizeof(*g->claims));
	g->claims[0] = function;
}

/* The claim whose tenant's turn it is; of equals, whose key is least. */
static uint32_t foremost_claim(struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	uint32_t best = 0;
	struct md_key least = {0};
	double soonest = 0;
	for (uint32_t i = 0; i < g->claim_count; i++) {
		md_sort_waiting(s, g->claims[i]);
		double turn = md_tenant_turn(s, g->claims[i]);
		struct md_key key = {0};
		if (s->queueing->traits & MD_QUEUEING_ORDERS_CLAIMS)
			key = s->queueing->key(s, g->claims[i]);
		bool first = !i || turn < soonest || (turn <= soonest && md_key_less(key, least));
		if (!first)
			continue;
		best = i;
		soonest = turn;
		least = key;
	}
	return best;
}

/* The claim whose first request has waited longest. */
static uint32_t oldest_claim(const struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	uint32_t best = 0;
	uint64_t earliest = UINT64_MAX;
	for (uint32_t i = 0; i < g->claim_count; i++) {
		uint64_t arrived = s->requests[md_first_waiting(s, g->claims[i])].arrived;
		if (arrived < earliest) {
			best = i;
			earliest = arrived;
		}
	}
	return best;
}

void md_claims_rank(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	uint32_t front = g->claims[0], next = 0;
	if (!(s->queueing->traits & MD_QUEUEING_ORDERS_CLAIMS) && !md_has_tenants(s))
		return;
	bool ages = g->starts >= MD_OLDEST_TURN && (s->queueing->traits & MD_QUEUEING_AGES_CLAIMS);
	if (ages) {
		next = oldest_claim(s, gpu);
		ages = s->now - s->requests[md_first_waiting(s, g->claims[next])].arrived > MD_LONG_WAIT;
	}
	put_first(g, ages ? next : foremost_claim(s, gpu));
	if (g->claims[0] == front || !s->eviction->drains)
		return;
	md_undrain(s, gpu);
	md_drain_for(s, gpu, md_needed_bytes(s, g->claims[0], gpu), g->claims[0]);
}
