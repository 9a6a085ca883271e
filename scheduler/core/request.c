/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in their function's queue and among all that wait, and how requests end. */
#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/action.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/lane.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

/* ---- lists of requests ------------------------------------------------------------------------------------------- */

void md_list_append(struct medusa_sched *s, struct md_list *list, uint32_t request)
{
	s->requests[request].next = NONE;
	s->requests[request].previous = list->tail;
	if (list->tail != NONE)
		s->requests[list->tail].next = request;
	else
		list->head = request;
	list->tail = request;
	list->count++;
}

bool md_goes_before(const struct md_request *a, const struct md_request *b)
{
	return a->rank != b->rank ? a->rank > b->rank : a->arrived <= b->arrived;
}

/* A request that comes back after a failure goes before those that arrived later. */
void md_list_insert(struct medusa_sched *s, struct md_list *list, uint32_t request)
{
	uint32_t before = list->head;
	if (list->tail == NONE || md_goes_before(&s->requests[list->tail], &s->requests[request])) {
		md_list_append(s, list, request);
		return;
	}
	while (md_goes_before(&s->requests[before], &s->requests[request]))
		before = s->requests[before].next;
	struct md_request *r = &s->requests[request];
	r->next = before;
	r->previous = s->requests[before].previous;
	if (r->previous != NONE)
		s->requests[r->previous].next = request;
	else
		list->head = request;
	s->requests[before].previous = request;
	list->count++;
}

void md_list_remove(struct medusa_sched *s, struct md_list *list, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	if (r->previous != NONE)
		s->requests[r->previous].next = r->next;
	else
		list->head = r->next;
	if (r->next != NONE)
		s->requests[r->next].previous = r->previous;
	else
		list->tail = r->previous;
	list->count--;
}

void md_list_move_before(struct medusa_sched *s, struct md_list *list, uint32_t request, uint32_t before)
{
	struct md_request *r = &s->requests[request];
	md_list_remove(s, list, request);
	r->next = before;
	r->previous = s->requests[before].previous;
	if (r->previous != NONE)
		s->requests[r->previous].next = request;
	else
		list->head = request;
	s->requests[before].previous = request;
	list->count++;
}

/* ---- all that wait, by arrival ----------------------------------------------------------------------------------- */

static void all_insert(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	uint32_t newer = NONE, older = s->newest_waiting;
	while (older != NONE && s->requests[older].arrived > r->arrived) {
		newer = older;
		older = s->requests[older].older;
	}
	r->older = older;
	r->newer = newer;
	if (older != NONE)
		s->requests[older].newer = request;
	else
		s->oldest_waiting = request;
	if (newer != NONE)
		s->requests[newer].older = request;
	else
		s->newest_waiting = request;
	s->waiting++;
}

static void all_remove(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	if (r->older != NONE)
		s->requests[r->older].newer = r->newer;
	else
		s->oldest_waiting = r->newer;
	if (r->newer != NONE)
		s->requests[r->newer].older = r->older;
	else
		s->newest_waiting = r->older;
	s->waiting--;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

uint32_t md_request_create(struct medusa_sched *s, uint64_t id, uint32_t function)
{
	if (s->free_request == NONE) {
		if (!MD_ARRAY_GROW(s->requests, s->request_count, s->request_capacity))
			return NONE;
		if (!md_alarms_reserve(s))
			return NONE;
		s->requests[s->request_count].next = NONE;
		s->free_request = s->request_count++;
	}
	if (md_has_tenants(s) && !md_lanes_reserve(s, function, 1))
		return NONE;
	uint32_t index = s->free_request;
	if (!md_map_put(&s->request_ids, id, index))
		return NONE;
	s->free_request = s->requests[index].next;
	s->functions[function].requests++;
	s->requests[index] =
	    (struct md_request){.id = id, .arrived = s->now, .deadline = UINT64_MAX, .function = function};
	return index;
}

static void count_for_backbone(struct medusa_sched *s, uint32_t function, int by)
{
	uint32_t backbone = s->functions[function].spec.backbone;
	if (backbone != NONE)
		s->backbones[backbone].waiting += (uint32_t)by;
}

void md_request_queue(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	if (!r->own_kv)
		r->kv_bytes = f->spec.kv_bytes; /* it may have changed while the request was held back */
	if (md_has_tenants(s)) {
		md_list_append(s, &f->waiting, request);
		md_lane_insert(s, request);
	} else {
		md_list_insert(s, &f->waiting, request);
	}
	count_for_backbone(s, r->function, 1);
}

void md_request_wait(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	r->state = MD_WAITING;
	r->late = false;
	if (!md_tenant_waits(s, request))
		md_request_queue(s, request);
	all_insert(s, request);
	md_alarm_request(s, request);
}

void md_request_raise(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	struct md_list *list = r->held ? &s->tenants[r->tenant].held : r->late ? &f->late : &f->waiting;
	bool in_lane = md_has_tenants(s) && !r->held;
	if (in_lane)
		md_lane_remove(s, request);
	md_list_remove(s, list, request);
	r->rank = INT32_MAX;
	md_list_insert(s, list, request);
	if (in_lane)
		md_lane_insert(s, request);
	md_alarm_request(s, request);
	md_function_changed(s, r->function);
}

void md_request_unqueue(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	if (md_has_tenants(s))
		md_lane_remove(s, request);
	md_list_remove(s, r->late ? &f->late : &f->waiting, request);
	r->late = false;
	count_for_backbone(s, r->function, -1);
}

void md_request_unwait(struct medusa_sched *s, uint32_t request)
{
	if (!md_tenant_unwaits(s, request))
		md_request_unqueue(s, request);
	all_remove(s, request);
}

void md_request_end(struct medusa_sched *s, uint32_t request)
{
	md_map_remove(&s->request_ids, s->requests[request].id, NULL);
	md_request_free(s, request);
}

void md_request_free(struct medusa_sched *s, uint32_t request)
{
	md_priority_remove(&s->request_alarms, request);
	s->functions[s->requests[request].function].requests--;
	s->requests[request].next = s->free_request;
	s->free_request = request;
}

void md_request_count(struct medusa_sched *s, uint32_t request, bool met)
{
	struct md_function *f = &s->functions[s->requests[request].function];
	if (!f->spec.slo_ns || s->requests[request].counted)
		return;
	s->requests[request].counted = true;
	f->ended++;
	f->met += met;
	s->first_class.ended += f->high;
	s->first_class.missed += f->high && !met;
	s->torpor.ended++;
	s->torpor.met += met;
}

void md_request_reject(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_REJECT);
	if (!action)
		return; /* out of memory: it goes on waiting, and is rejected at the next event */
	action->request = r->id;
	action->function = r->function;
	action->reason = reason;
	md_request_unwait(s, request);
	if (reason == MEDUSA_SCHED_REASON_CANCELLED || r->aborting) {
		s->stats.cancelled++;
	} else {
		s->stats.rejected++;
		f->rejected++;
		s->tenants[r->tenant].rejected++;
	}
	if (reason != MEDUSA_SCHED_REASON_CANCELLED)
		md_request_missed(s, request);
	uint32_t function = r->function;
	md_request_end(s, request);
	md_function_changed(s, function);
}

void md_request_missed(struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	if (!r->first_token || s->functions[r->function].spec.slo_goal == MEDUSA_SCHED_GOAL_COMPLETION)
		md_request_count(s, request, false);
}

uint32_t md_waiting(const struct medusa_sched *s, uint32_t function)
{
	return s->functions[function].waiting.count + s->functions[function].late.count;
}

uint32_t md_first_waiting(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	return md_sooner(s, f->waiting.head, f->late.head);
}

uint32_t md_sooner(const struct medusa_sched *s, uint32_t in_time, uint32_t late)
{
	if (in_time == NONE || late == NONE)
		return in_time == NONE ? late : in_time;
	return s->requests[late].rank > s->requests[in_time].rank ? late : in_time;
}

bool md_is_late(const struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	uint64_t deadline = md_deadline(s, request);
	return r->late || (deadline != UINT64_MAX && s->now + s->functions[r->function].spec.t0_ns > deadline);
}

static void sort_late(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	while (f->waiting.head != NONE) {
		uint32_t request = f->waiting.head;
		if (!md_is_late(s, request))
			return;
		md_list_remove(s, &f->waiting, request);
		s->requests[request].late = true;
		md_list_insert(s, &f->late, request);
	}
}

void md_sort_waiting(struct medusa_sched *s, uint32_t function)
{
	if (md_has_tenants(s))
		md_tenants_arrange(s, function);
	else if (s->queueing->traits & MD_QUEUEING_SEPARATES_LATE)
		sort_late(s, function);
}
