/* SPDX-License-Identifier: Apache-2.0 */
/* One step: an event changes the books, then what can start is started, and the next timer is set. */
#include "scheduler/core/action.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/gpu_events.h"
#include "scheduler/core/keep.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/request_events.h"
#include "scheduler/core/resident.h"
#include "scheduler/core/shares.h"
#include "scheduler/core/state.h"
#include "scheduler/core/stuck.h"
#include "scheduler/core/tenant.h"
#include "scheduler/core/transfer.h"
#include "scheduler/policy/policies.h"
#include "scheduler/policy/preloading.h"

/* Batches and transfers that no action has named. An event of a request may go without a batch. */
static int check_numbers(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	bool never = false;
	switch (e->type) {
	case MEDUSA_SCHED_EVENT_TRANSFER_DONE:
	case MEDUSA_SCHED_EVENT_TRANSFER_FAILED:
	case MEDUSA_SCHED_EVENT_EVICTED:
		md_transfer_find(s, e->transfer, &never);
		if (!never)
			return MEDUSA_SCHED_OK;
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->transfer is %llu, a transfer which no action has named",
			       (unsigned long long)e->transfer);
	case MEDUSA_SCHED_EVENT_FIRST_TOKEN:
	case MEDUSA_SCHED_EVENT_DONE:
	case MEDUSA_SCHED_EVENT_KV_CHANGED:
		if (!e->batch)
			return MEDUSA_SCHED_OK;
		break;
	case MEDUSA_SCHED_EVENT_BATCH_FAILED:
	case MEDUSA_SCHED_EVENT_STARTED:
		break;
	default:
		return MEDUSA_SCHED_OK;
	}
	md_batch_find(s, e->batch, &never);
	if (!never)
		return MEDUSA_SCHED_OK;
	return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->batch is %llu, a batch which no action has named",
		       (unsigned long long)e->batch);
}

static int check_event(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	if (e->now < s->now)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->now is %llu, earlier than the event before (%llu)",
			       (unsigned long long)e->now, (unsigned long long)s->now);
	bool tenant = e->type == MEDUSA_SCHED_EVENT_ARRIVAL || e->type == MEDUSA_SCHED_EVENT_RUNNING;
	if (tenant && e->tenant >= s->tenant_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->tenant is %u: 0 is the default tenant, and the last one added is %u", e->tenant,
			       s->tenant_count - 1);
	bool gpu = e->type == MEDUSA_SCHED_EVENT_MEMORY_REPORT || e->type == MEDUSA_SCHED_EVENT_MEMORY_LIMIT ||
		   e->type == MEDUSA_SCHED_EVENT_GPU_LOST || e->type == MEDUSA_SCHED_EVENT_GPU_BACK ||
		   e->type == MEDUSA_SCHED_EVENT_BACKBONE_FAILED || e->type == MEDUSA_SCHED_EVENT_FUNCTION_FAILED ||
		   e->type == MEDUSA_SCHED_EVENT_GPU_DRAIN || e->type == MEDUSA_SCHED_EVENT_RUNNING ||
		   e->type == MEDUSA_SCHED_EVENT_SHARED || (e->type == MEDUSA_SCHED_EVENT_RESIDENT && e->gpu != NONE);
	bool bytes = e->type == MEDUSA_SCHED_EVENT_MEMORY_REPORT || e->type == MEDUSA_SCHED_EVENT_MEMORY_LIMIT ||
		     e->type == MEDUSA_SCHED_EVENT_SHARED;
	bool function = e->type == MEDUSA_SCHED_EVENT_FUNCTION_GONE || e->type == MEDUSA_SCHED_EVENT_FUNCTION_FAILED;
	if (gpu && e->gpu >= s->gpu_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->gpu is %u, but the node has only %u GPUs", e->gpu,
			       s->gpu_count);
	if (bytes && e->bytes > MD_MOST_BYTES)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->bytes is %llu, more than 2^60",
			       (unsigned long long)e->bytes);
	if (e->type == MEDUSA_SCHED_EVENT_BACKBONE_FAILED && e->backbone >= s->backbone_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->backbone is %u, but only %u backbones are registered", e->backbone,
			       s->backbone_count);
	if (function && e->function >= s->function_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->function is %u, but only %u functions are registered", e->function,
			       s->function_count);
	if (e->type < MEDUSA_SCHED_EVENT_ARRIVAL || e->type > MEDUSA_SCHED_EVENT_SHARED)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->type is %d, which is not in enum medusa_sched_event_type", (int)e->type);
	return check_numbers(s, e);
}

static int take_event(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	bool never;
	uint32_t batch = md_batch_find(s, e->batch, &never);
	uint32_t transfer = md_transfer_find(s, e->transfer, &never);
	switch (e->type) {
	case MEDUSA_SCHED_EVENT_ARRIVAL:
		return md_request_arrives(s, e);
	case MEDUSA_SCHED_EVENT_CANCEL:
		md_request_cancelled(s, e);
		break;
	case MEDUSA_SCHED_EVENT_STARTED:
		if (batch != NONE && !s->batches[batch].begun)
			s->batches[batch].started = s->now;
		if (batch != NONE)
			s->batches[batch].begun = true; /* those that join it may be said to start, too */
		break;
	case MEDUSA_SCHED_EVENT_FIRST_TOKEN:
		md_request_first_token(s, e);
		break;
	case MEDUSA_SCHED_EVENT_DONE:
		md_request_done(s, e);
		break;
	case MEDUSA_SCHED_EVENT_BATCH_FAILED:
		if (batch != NONE)
			md_batch_fail(s, batch, MEDUSA_SCHED_REASON_FAILED, MD_BLAME_BATCH);
		break;
	case MEDUSA_SCHED_EVENT_TRANSFER_DONE:
	case MEDUSA_SCHED_EVENT_EVICTED:
		if (transfer != NONE)
			md_transfer_arrives(s, transfer);
		break;
	case MEDUSA_SCHED_EVENT_TRANSFER_FAILED:
		if (transfer != NONE)
			md_transfer_fails(s, transfer);
		break;
	case MEDUSA_SCHED_EVENT_MEMORY_REPORT:
		md_memory_report(s, e);
		break;
	case MEDUSA_SCHED_EVENT_MEMORY_LIMIT:
		s->gpus[e->gpu].limit = e->bytes;
		md_requests_refuse_too_large(s);
		break;
	case MEDUSA_SCHED_EVENT_GPU_LOST:
		return md_gpu_lost(s, e->gpu);
	case MEDUSA_SCHED_EVENT_GPU_BACK:
		md_gpu_back(s, e->gpu);
		break;
	case MEDUSA_SCHED_EVENT_BACKBONE_FAILED:
		return md_backbone_failed(s, e->gpu, e->backbone);
	case MEDUSA_SCHED_EVENT_FUNCTION_GONE:
		md_function_gone(s, e->function);
		break;
	case MEDUSA_SCHED_EVENT_FUNCTION_FAILED:
		return md_function_failed(s, e->gpu, e->function);
	case MEDUSA_SCHED_EVENT_KV_CHANGED:
		return md_request_kv_changed(s, e);
	case MEDUSA_SCHED_EVENT_GPU_DRAIN:
		md_gpu_drain(s, e->gpu);
		break;
	case MEDUSA_SCHED_EVENT_RESIDENT:
		return md_resident(s, e);
	case MEDUSA_SCHED_EVENT_RUNNING:
		return md_already_running(s, e);
	case MEDUSA_SCHED_EVENT_SHARED:
		return md_shared(s, e);
	case MEDUSA_SCHED_EVENT_TIMER:
		break;
	}
	return MEDUSA_SCHED_OK;
}

static uint64_t expiry(const struct medusa_sched *s, uint32_t request)
{
	uint64_t arrived = s->requests[request].arrived;
	return arrived + s->options.max_wait_ns < arrived ? UINT64_MAX : arrived + s->options.max_wait_ns;
}

/* Rejects requests whose time is over. */
static void expire(struct medusa_sched *s)
{
	uint32_t last = NONE;
	while (s->oldest_waiting != NONE && s->oldest_waiting != last && expiry(s, s->oldest_waiting) <= s->now) {
		last = s->oldest_waiting;
		md_request_reject(s, last, MEDUSA_SCHED_REASON_WAITED_TOO_LONG);
	}
}

/* Plans at whole periods; those for which there was nothing to plan are passed over. */
static void plan_preloads(struct medusa_sched *s)
{
	uint64_t period = s->options.preload_period_ns;
	if (!s->preloading->plan || s->now < s->next_preload)
		return;
	if (s->preload.asleep) {
		s->next_preload += ((s->now - s->next_preload) / period + 1) * period;
		return;
	}
	s->next_preload = s->now + period;
	s->preloading->plan(s);
}

static void ticks(struct medusa_sched *s)
{
	if (s->queueing->tick && s->now >= s->next_tick) {
		s->next_tick = s->now + s->queueing->period;
		s->queueing->tick(s);
	}
	while (s->holding.count && s->holding.items[0].key.minor <= s->now)
		md_function_changed(s, s->holding.items[0].index);
	while (s->idle.count && s->idle.items[0].key.minor <= s->now) {
		uint32_t function = s->idle.items[0].index;
		md_priority_remove(&s->idle, function);
		s->functions[function].let_go = true;
		md_sweep(s, function);
		md_backbone_let_go(s, s->functions[function].spec.backbone);
	}
	plan_preloads(s);
}

static void set_timer(struct medusa_sched *s)
{
	uint64_t at = UINT64_MAX;
	if (s->oldest_waiting != NONE)
		at = expiry(s, s->oldest_waiting);
	if (s->holding.count && s->holding.items[0].key.minor < at)
		at = s->holding.items[0].key.minor;
	if (s->idle.count && s->idle.items[0].key.minor < at)
		at = s->idle.items[0].key.minor;
	if (s->queueing->tick && s->waiting && s->next_tick < at)
		at = s->next_tick;
	s->preload.asleep = s->preloading->plan && !s->preloading->would_plan(s);
	if (s->preloading->plan && !s->preload.asleep && s->next_preload < at)
		at = s->next_preload;
	if (s->retry_at > s->now && s->retry_at < at)
		at = s->retry_at;
	if (md_keep_at(s) < at)
		at = md_keep_at(s);
	/* alarms are far away as a rule: a timer that rings before is left as it is */
	if (md_alarms_next(s) < at) {
		at = md_alarms_next(s);
		if (s->timer && s->timer <= at)
			return;
	}
	if (at == UINT64_MAX || at == s->timer)
		return;
	at = at > s->now ? at : s->now + 1;
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_SET_TIMER);
	if (!action)
		return;
	action->at = at;
	s->timer = at;
}

MD_EXPORT int medusa_sched_step(struct medusa_sched *s, const struct medusa_sched_event *given,
				const struct medusa_sched_action *const **actions, size_t *count)
{
	struct medusa_sched_event known, *event = &known;
	if (!s || !given || !actions || !count)
		return MEDUSA_SCHED_ERR_INVALID;
	*count = 0;
	if (!md_take_struct(given, sizeof(known), &known))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->size is not that of a struct medusa_sched_event, or fields that this library "
			       "does not know are set");
	s->action_count = s->run_request_count = s->run_transfer_count = 0;
	int code = check_event(s, event);
	if (code)
		return code;
	uint64_t before = s->now;
	s->now = event->now;
	/* a timer that rings too early has rung all the same: it is asked for again */
	if (s->timer <= s->now || event->type == MEDUSA_SCHED_EVENT_TIMER)
		s->timer = 0;
	code = take_event(s, event);
	if (code) {
		s->now = before;
		return code;
	}
	if (event->type == MEDUSA_SCHED_EVENT_RESIDENT || event->type == MEDUSA_SCHED_EVENT_RUNNING)
		md_keep_told(s);
	s->happened += event->type != MEDUSA_SCHED_EVENT_TIMER && event->type != MEDUSA_SCHED_EVENT_MEMORY_REPORT;
	if (event->type != MEDUSA_SCHED_EVENT_TIMER)
		md_stuck_stir(s, s->now);
	if (s->refuse_large)
		md_requests_refuse_too_large(s);
	md_alarms_ring(s);
	expire(s);
	ticks(s);
	md_tenants_release(s);
	md_keep_whole(s);
	md_dispatch(s);
	md_keep_next(s);
	md_preload_next(s);
	if (s->action_count)
		md_stuck_stir(s, s->now + 1);
	set_timer(s);
	md_actions_list(s);
	*actions = s->action_list;
	*count = s->action_count;
	return MEDUSA_SCHED_OK;
}
