/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of requests by function and tenant, each by priority and arrival: one of those in time, one of those that are late. */
#include "scheduler/core/lane.h"

#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"

/* ---- a list ------------------------------------------------------------------------------------------------------ */

static void put_after(struct medusa_sched *s, struct md_list *list, uint32_t request, uint32_t previous)
{
	struct md_request *r = &s->requests[request];
	r->lane_previous = previous;
	r->lane_next = previous == NONE ? list->head : s->requests[previous].lane_next;
	*(previous == NONE ? &list->head : &s->requests[previous].lane_next) = request;
	*(r->lane_next == NONE ? &list->tail : &s->requests[r->lane_next].lane_previous) = request;
	list->count++;
}

/* Most come at the end, and what comes back after a failure at the beginning. */
static void insert(struct medusa_sched *s, struct md_list *list, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	uint32_t previous = list->tail;
	if (list->head != NONE && !md_goes_before(&s->requests[list->head], r))
		previous = NONE;
	while (previous != NONE && !md_goes_before(&s->requests[previous], r))
		previous = s->requests[previous].lane_previous;
	put_after(s, list, request, previous);
}

static void take_out(struct medusa_sched *s, struct md_list *list, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	*(r->lane_previous == NONE ? &list->head : &s->requests[r->lane_previous].lane_next) = r->lane_next;
	*(r->lane_next == NONE ? &list->tail : &s->requests[r->lane_next].lane_previous) = r->lane_previous;
	list->count--;
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

static struct md_lane *find(struct md_function *f, uint32_t tenant)
{
	for (uint32_t i = 0; i < f->lane_count; i++)
		if (f->lanes[i].tenant == tenant)
			return &f->lanes[i];
	return NULL;
}

bool md_lanes_reserve(struct medusa_sched *s, uint32_t function, uint32_t more)
{
	struct md_function *f = &s->functions[function];
	uint32_t requests = f->requests + more;
	return MD_ARRAY_RESERVE(f->lanes, requests < s->tenant_count ? requests : s->tenant_count, f->lane_capacity);
}

void md_lane_insert(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	struct md_lane *lane = find(f, r->tenant);
	if (!lane) {
		lane = &f->lanes[f->lane_count++];
		*lane = (struct md_lane){r->tenant, {NONE, NONE, 0}, {NONE, NONE, 0}, NONE, NONE};
	}
	r->lane_late = false;
	insert(s, &lane->in_time, request);
}

void md_lane_remove(struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	struct md_lane *lane = find(f, r->tenant);
	take_out(s, r->lane_late ? &lane->late : &lane->in_time, request);
	if (!lane->in_time.count && !lane->late.count)
		*lane = f->lanes[--f->lane_count];
}

static void fill(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	for (uint32_t r = f->late.head, next; r != NONE; r = next) {
		next = s->requests[r].next;
		md_list_remove(s, &f->late, r);
		s->requests[r].late = false;
		md_list_insert(s, &f->waiting, r);
	}
	for (uint32_t r = f->waiting.head; r != NONE; r = s->requests[r].next)
		md_lane_insert(s, r);
}

bool md_lanes_create(struct medusa_sched *s)
{
	for (uint32_t f = 0; f < s->function_count; f++)
		if (s->functions[f].requests && !md_lanes_reserve(s, f, 0))
			return false;
	for (uint32_t f = 0; f < s->function_count; f++)
		fill(s, f);
	return true;
}

void md_lanes_destroy(struct medusa_sched *s)
{
	for (uint32_t f = 0; f < s->function_count; f++)
		free(s->functions[f].lanes);
}

void md_lanes_anew(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	for (uint32_t i = 0; i < f->lane_count; i++) {
		struct md_lane *lane = &f->lanes[i];
		while (lane->late.tail != NONE) { /* the oldest come last, to the beginning */
			uint32_t request = lane->late.tail;
			take_out(s, &lane->late, request);
			s->requests[request].lane_late = false;
			insert(s, &lane->in_time, request);
		}
	}
}

/* ---- in the order of service ------------------------------------------------------------------------------------- */

static void move_late(struct medusa_sched *s, struct md_lane *lane)
{
	while (lane->in_time.head != NONE && md_is_late(s, lane->in_time.head)) {
		uint32_t request = lane->in_time.head;
		take_out(s, &lane->in_time, request);
		s->requests[request].lane_late = true;
		insert(s, &lane->late, request);
	}
}

uint32_t md_lane_first(struct medusa_sched *s, struct md_lane *lane)
{
	move_late(s, lane);
	lane->next_in_time = lane->in_time.head;
	lane->next_late = lane->late.head;
	return md_lane_next(s, lane);
}

uint32_t md_lane_next(struct medusa_sched *s, struct md_lane *lane)
{
	uint32_t request = md_sooner(s, lane->next_in_time, lane->next_late);
	if (request != NONE)
		*(request == lane->next_late ? &lane->next_late : &lane->next_in_time) = s->requests[request].lane_next;
	return request;
}
