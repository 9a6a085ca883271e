/* SPDX-License-Identifier: Apache-2.0 */
/* Events of requests: arrival, cancellation, first token, end. */
#include "scheduler/core/request_events.h"

#include "scheduler/core/abort.h"
#include "scheduler/core/action.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"

#define MOST_KV (1ull << 48) /* of one request, so that the sum of all cannot overflow */

static int refuse_at_once(struct medusa_sched *s, const struct medusa_sched_event *e, enum medusa_sched_reason reason)
{
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_REJECT);
	if (!action)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for an action");
	action->request = e->request;
	action->function = e->function;
	action->reason = reason;
	s->stats.arrivals++;
	s->stats.rejected++;
	s->tenants[e->tenant].rejected++;
	if (e->function < s->function_count) {
		struct md_function *f = &s->functions[e->function];
		f->rejected++;
		f->ended += f->spec.slo_ns != 0;
	}
	return MEDUSA_SCHED_OK;
}

/* From now on, long waits raise priorities, those of requests that wait already, too. */
static void heed_priorities(struct medusa_sched *s)
{
	s->priorities = true;
	for (uint32_t r = s->oldest_waiting; r != NONE; r = s->requests[r].newer)
		md_alarm_request(s, r);
}

int md_request_arrives(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	if (md_map_get(&s->request_ids, e->request, NULL))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->request is %llu, a number that is still in use",
			       (unsigned long long)e->request);
	if (e->function >= s->function_count || s->functions[e->function].gone)
		return refuse_at_once(s, e, MEDUSA_SCHED_REASON_UNREGISTERED);
	struct md_function *f = &s->functions[e->function];
	uint64_t kv_bytes = e->kv_bytes ? e->kv_bytes : f->spec.kv_bytes;
	md_rate_arrival(&f->rate, s->now);
	f->let_go = false;
	if (!md_fits_somewhere(s, e->function, kv_bytes))
		return refuse_at_once(s, e, MEDUSA_SCHED_REASON_NEVER_FITS);
	if (e->deadline && e->deadline <= s->now)
		return refuse_at_once(s, e, MEDUSA_SCHED_REASON_DEADLINE);
	if (s->options.max_queue && md_waiting(s, e->function) >= s->options.max_queue)
		return refuse_at_once(s, e, MEDUSA_SCHED_REASON_QUEUE_FULL);
	const struct md_tenant *t = &s->tenants[e->tenant];
	if (t->takes_none || (t->max_waiting && t->waiting >= t->max_waiting))
		return refuse_at_once(s, e, MEDUSA_SCHED_REASON_QUOTA);
	uint32_t request = md_request_create(s, e->request, e->function);
	if (request == NONE)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for request %llu",
			       (unsigned long long)e->request);
	s->stats.arrivals++;
	s->requests[request].kv_bytes = kv_bytes;
	s->requests[request].own_kv = e->kv_bytes != 0;
	s->requests[request].tokens = e->tokens;
	s->requests[request].tenant = e->tenant;
	s->requests[request].deadline = e->deadline ? e->deadline : UINT64_MAX;
	s->requests[request].rank = e->priority;
	s->requests[request].load = s->requests[request].started = s->requests[request].counted = e->load != 0;
	if (e->priority && !s->priorities)
		heed_priorities(s);
	md_request_wait(s, request);
	md_function_changed(s, e->function);
	return MEDUSA_SCHED_OK;
}

/* Rejects requests that would fit on no empty GPU, not even on a lost one: they never will. */
void md_requests_refuse_too_large(struct medusa_sched *s)
{
	s->refuse_large = false;
	for (uint32_t r = s->oldest_waiting, newer; r != NONE; r = newer) {
		newer = s->requests[r].newer;
		uint32_t function = s->requests[r].function;
		if (!md_fits_somewhere(s, function, s->requests[r].kv_bytes))
			md_request_reject(s, r, MEDUSA_SCHED_REASON_NEVER_FITS);
	}
}

/* The running or waiting request that an event names. */
static uint32_t find_request(const struct medusa_sched *s, uint64_t id)
{
	uint64_t index;
	return md_map_get(&s->request_ids, id, &index) ? (uint32_t)index : NONE;
}

/* The running request, unless the event is about an earlier attempt. */
static uint32_t find_running(const struct medusa_sched *s, const struct medusa_sched_event *e)
{
	uint32_t request = find_request(s, e->request);
	if (request == NONE || s->requests[request].state != MD_RUNNING)
		return NONE;
	return !e->batch || s->batches[s->requests[request].batch].id == e->batch ? request : NONE;
}

void md_request_cancelled(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	uint32_t request = find_request(s, e->request);
	if (request == NONE)
		return;
	s->requests[request].cancelled = true;
	if (s->requests[request].state == MD_WAITING)
		md_request_reject(s, request, MEDUSA_SCHED_REASON_CANCELLED);
	else if (s->functions[s->requests[request].function].spec.abortable && !s->requests[request].aborting)
		md_abort_request(s, request, MEDUSA_SCHED_REASON_CANCELLED);
}

int md_request_kv_changed(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	uint32_t request = find_request(s, e->request);
	if (e->kv_bytes > MOST_KV)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->kv_bytes is %llu, more than 2^48",
			       (unsigned long long)e->kv_bytes);
	if (request == NONE)
		return MEDUSA_SCHED_OK;
	struct md_request *r = &s->requests[request];
	if (r->state == MD_WAITING) {
		r->kv_bytes = e->kv_bytes;
		r->own_kv = true;
		uint32_t function = r->function;
		if (!md_fits_somewhere(s, function, r->kv_bytes))
			md_request_reject(s, request, MEDUSA_SCHED_REASON_NEVER_FITS);
		md_function_changed(s, function);
	} else if (find_running(s, e) != NONE) {
		r->own_kv = true;
		md_batch_grow(s, request, e->kv_bytes);
	}
	return MEDUSA_SCHED_OK;
}

static bool in_time(const struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	return s->now - r->arrived <= s->functions[r->function].spec.slo_ns;
}

static void first_token(struct medusa_sched *s, uint32_t request)
{
	if (request == NONE || s->requests[request].first_token)
		return;
	bool met = in_time(s, request);
	struct md_batch *batch = &s->batches[s->requests[request].batch];
	s->gpus[batch->gpu].prefilling -= !batch->first_token;
	s->look_again |= !s->gpus[batch->gpu].prefilling;
	batch->first_token = true;
	s->requests[request].first_token = true;
	if (!s->requests[request].load)
		md_latency_count(s, request, MEDUSA_SCHED_LATENCY_FIRST_TOKEN);
	if (s->functions[s->requests[request].function].spec.slo_goal == MEDUSA_SCHED_GOAL_FIRST_TOKEN)
		md_request_count(s, request, met);
	if (s->requests[request].aborting)
		return;
	s->requests[request].expires = md_run_expires(s, request, 0);
	md_alarm_request(s, request);
}

void md_request_first_token(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	first_token(s, find_running(s, e));
}

/* A request that the node was asked to stop has ended, whether it was stopped or ended by itself. */
static void count_aborted(struct medusa_sched *s, uint32_t request)
{
	s->stats.cancelled++;
	if (s->requests[request].aborting != MEDUSA_SCHED_REASON_CANCELLED)
		md_request_missed(s, request);
}

static void count_served(struct medusa_sched *s, uint32_t request)
{
	first_token(s, request);
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	/* with the other objective it has been counted at its first token, unless the objective has changed since */
	md_request_count(s, request, in_time(s, request));
	uint64_t started = s->batches[r->batch].started;
	if (!r->load) {
		f->service_s += (double)(s->now - (r->began > started ? r->began : started)) * 1e-9;
		f->served++;
		md_latency_count(s, request, MEDUSA_SCHED_LATENCY_COMPLETION);
	}
	f->failures = 0;
	f->preload_after = 0;
	s->stats.served++;
	s->tenants[r->tenant].served++;
}

void md_request_done(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	bool never;
	uint32_t request = find_running(s, e), batch = md_batch_find(s, e->batch, &never);
	if (request == NONE && batch != NONE)
		md_stray_done(s, batch, e->request);
	if (request == NONE)
		return;
	if (s->requests[request].aborting)
		count_aborted(s, request);
	else
		count_served(s, request);
	batch = s->requests[request].batch;
	s->functions[s->requests[request].function].running--;
	md_tenant_stops(s, request);
	md_batch_leave(s, request);
	md_request_end(s, request);
	md_batch_settle(s, batch);
}
