/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler tells its caller about its state. */
#include <string.h>

#include "scheduler/core/books.h"
#include "scheduler/core/shares.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"

int md_give_struct(void *out, const void *known, size_t bytes)
{
	size_t size;
	if (!out)
		return MEDUSA_SCHED_ERR_INVALID;
	memcpy(&size, out, sizeof(size));
	if (size < sizeof(size))
		return MEDUSA_SCHED_ERR_INVALID;
	memset((char *)out + sizeof(size), 0, size - sizeof(size));
	memcpy((char *)out + sizeof(size), (const char *)known + sizeof(size),
	       (size < bytes ? size : bytes) - sizeof(size));
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_gpu_get(const struct medusa_sched *s, uint32_t gpu, struct medusa_sched_gpu_state *state)
{
	if (!s)
		return MEDUSA_SCHED_ERR_INVALID;
	if (gpu >= s->gpu_count)
		return MEDUSA_SCHED_ERR_NOT_FOUND;
	const struct md_gpu *g = &s->gpus[gpu];
	struct medusa_sched_gpu_state known = {
	    .present = g->present,
	    .limit_bytes = g->limit,
	    .artifact_bytes = g->artifacts,
	    .residue_bytes = g->residues,
	    .kv_bytes = g->kv,
	    .foreign_bytes = g->foreign,
	    .running = g->running,
	    .transfers = g->transfers,
	    .waiting = g->claim_count,
	    .draining = g->closed,
	    .shared_bytes = g->shared,
	    .over_bytes = md_free_bytes(s, gpu) < 0 ? (uint64_t)-md_free_bytes(s, gpu) : 0,
	};
	return md_give_struct(state, &known, sizeof(known));
}

MD_EXPORT int medusa_sched_host_get(const struct medusa_sched *s, struct medusa_sched_host_state *state)
{
	if (!s)
		return MEDUSA_SCHED_ERR_INVALID;
	struct medusa_sched_host_state known = {.limit_bytes = s->host_limit, .artifact_bytes = s->host_used};
	for (uint32_t i = 0; i < s->transfer_count; i++)
		known.transfers += md_to_host(&s->transfers[i]);
	return md_give_struct(state, &known, sizeof(known));
}

MD_EXPORT int medusa_sched_function_get(const struct medusa_sched *s, uint32_t function,
					struct medusa_sched_function_state *state)
{
	if (!s)
		return MEDUSA_SCHED_ERR_INVALID;
	if (function >= s->function_count)
		return MEDUSA_SCHED_ERR_NOT_FOUND;
	const struct md_function *f = &s->functions[function];
	struct medusa_sched_function_state known = {
	    .waiting = md_waiting(s, function),
	    .running = f->running,
	    .ended = f->ended,
	    .met = f->met,
	    .rejected = f->rejected,
	    .rate_per_s = md_rate_per_s(&f->rate, s->now),
	};
	return md_give_struct(state, &known, sizeof(known));
}

MD_EXPORT int medusa_sched_stats_get(const struct medusa_sched *s, struct medusa_sched_stats *stats)
{
	if (!s)
		return MEDUSA_SCHED_ERR_INVALID;
	struct medusa_sched_stats known = s->stats;
	known.memory_bytes =
	    sizeof(*s) + s->gpu_count * (sizeof(*s->gpus) + s->gpu_count * sizeof(*s->peers)) +
	    s->backbone_capacity * sizeof(*s->backbones) +
	    (uint64_t)s->backbone_count * s->gpu_count * sizeof(*s->backbones->gpus) +
	    s->function_capacity * sizeof(*s->functions) + s->latency_capacity * sizeof(*s->latencies) +
	    s->artifact_capacity * (sizeof(*s->artifacts) + s->gpu_count * sizeof(*s->copies)) +
	    s->tenant_capacity * sizeof(*s->tenants) + s->request_capacity * sizeof(*s->requests) +
	    s->batch_capacity * sizeof(*s->batches) + s->transfer_capacity * sizeof(*s->transfers) +
	    (s->request_ids.capacity + s->share_numbers.capacity) * 3 * sizeof(uint64_t) +
	    s->share_capacity * sizeof(*s->shares) + s->sharer_capacity * sizeof(*s->sharers) +
	    (s->ready.capacity + s->joins.capacity + s->holding.capacity + s->request_alarms.capacity +
	     s->transfer_alarms.capacity) *
		(sizeof(struct md_priority_item) + sizeof(uint32_t)) +
	    s->company.bytes + s->company.capacity * 2 * sizeof(*s->company.waiting) +
	    s->action_capacity * sizeof(*s->actions) + s->action_list_capacity * sizeof(*s->action_list) +
	    s->run_request_capacity * sizeof(*s->run_requests) + s->run_transfer_capacity * sizeof(*s->run_transfers);
	return md_give_struct(stats, &known, sizeof(known));
}
