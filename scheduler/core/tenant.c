/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start-time fair queueing of tenants. Each has a virtual time: the GPU time that its requests have taken, by its weight.
 * The least is served first. It is charged ahead with what a request will take, as far as that is known, and corrected
 * when the request ends. Who begins to wait starts at the virtual time of the node, which is that of the tenant that was
 * served at the highest, so that nobody saves up while he asks for nothing.
 */
#include "scheduler/core/tenant.h"

#include <math.h>

#include "base/array.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/lane.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/policy/cost.h"

#define SEATS 16      /* of a batch, at most so many are given out one by one; the others by arrival */
#define MOST_LAG 10e9 /* ns of GPU time that a tenant may be behind, because its functions could not start */

/* ---- turns ------------------------------------------------------------------------------------------------------- */

double md_tenant_turn(const struct medusa_sched *s, uint32_t function)
{
	uint32_t first = md_has_tenants(s) ? md_first_waiting(s, function) : NONE;
	return first == NONE ? 0 : s->tenants[s->requests[first].tenant].turn;
}

uint32_t md_first_tenant(const struct medusa_sched *s, uint32_t function)
{
	return s->requests[md_first_waiting(s, function)].tenant;
}

/* What a request of the function will take of a GPU's time, in a batch of `count`. */
static double expected_ns(const struct medusa_sched *s, uint32_t request, uint32_t count)
{
	const struct medusa_sched_function *f = &s->functions[s->requests[request].function].spec;
	double tokens = (double)s->requests[request].tokens * (double)f->token_ns;
	return ((double)f->t0_ns + (double)f->alpha_ns * (count - 1) + tokens) / count;
}

static uint64_t oldest(const struct medusa_sched *s, const struct md_lane *lane)
{
	uint32_t late = lane->late.head, in_time = lane->in_time.head;
	uint32_t first = late != NONE ? late : in_time;
	return s->requests[first].arrived;
}

/* Which of two lanes is served first: that of the tenant whose turn it is, then that whose first request is older. */
static bool is_before(const struct medusa_sched *s, const struct md_lane *a, const struct md_lane *b)
{
	double x = s->tenants[a->tenant].turn, y = s->tenants[b->tenant].turn;
	if (x < y || y < x)
		return x < y;
	uint64_t one = oldest(s, a), other = oldest(s, b);
	return one != other ? one < other : a->tenant < b->tenant;
}

/* The lanes that are served first, the first one in front. Each seat makes a turn later, so no others get one. */
static uint32_t first_lanes(const struct medusa_sched *s, const struct md_function *f, uint32_t most,
			    struct md_lane **first)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < f->lane_count; i++) {
		struct md_lane *lane = &f->lanes[i];
		uint32_t at = count;
		for (; at && is_before(s, lane, first[at - 1]); at--)
			if (at < most)
				first[at] = first[at - 1];
		if (at < most)
			first[at] = lane;
		count += count < most;
	}
	return count;
}

struct seat {
	struct md_lane *lane;
	uint32_t request; /* its next one; NONE: it has no further */
	double turn;
};

void md_tenants_arrange(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	struct md_list *list = &f->waiting;
	uint32_t batch = f->spec.max_batch < list->count ? f->spec.max_batch : list->count, at = list->head;
	uint32_t seats = batch < SEATS ? batch : SEATS;
	struct md_lane *lanes[SEATS];
	struct seat next[SEATS];
	uint32_t count = first_lanes(s, f, seats, lanes);
	for (uint32_t i = 0; i < count; i++)
		next[i] = (struct seat){lanes[i], md_lane_first(s, lanes[i]), s->tenants[lanes[i]->tenant].turn};
	for (; seats-- > 0;) {
		struct seat *best = NULL;
		for (uint32_t i = 0; i < count; i++)
			if (next[i].request != NONE && (!best || next[i].turn < best->turn))
				best = &next[i];
		if (best->request != at)
			md_list_move_before(s, list, best->request, at);
		else
			at = s->requests[at].next;
		best->turn += expected_ns(s, best->request, batch) / s->tenants[best->lane->tenant].weight;
		best->request = md_lane_next(s, best->lane);
	}
}

void md_tenants_charge(struct medusa_sched *s, uint32_t batch, uint32_t count)
{
	const struct md_batch *b = &s->batches[batch];
	for (uint32_t r = b->requests.tail; count-- > 0; r = s->requests[r].previous) {
		struct md_tenant *t = &s->tenants[s->requests[r].tenant];
		t->turn = fmax(t->turn, s->turn - MOST_LAG / t->weight);
		s->turn = fmax(s->turn, t->turn);
		s->requests[r].charged = expected_ns(s, r, b->requests.count);
		t->turn += s->requests[r].charged / t->weight;
	}
}

/* ---- what was taken ---------------------------------------------------------------------------------------------- */

void md_tenant_divide(struct medusa_sched *s, uint32_t batch)
{
	struct md_batch *b = &s->batches[batch];
	if (b->requests.count)
		b->share_ns += (s->now - b->divided) / b->requests.count;
	b->divided = s->now;
}

void md_tenant_runs(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	s->tenants[r->tenant].running++;
	r->share_from = s->batches[r->batch].share_ns;
	r->charged = 0;
}

void md_tenant_stops(struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	struct md_tenant *t = &s->tenants[r->tenant];
	md_tenant_divide(s, r->batch);
	uint64_t share = s->batches[r->batch].share_ns - r->share_from;
	t->running--;
	t->gpu_ns += share;
	t->turn += ((double)share - r->charged) / t->weight;
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static bool may_run_more(const struct md_tenant *t)
{
	return !t->starts_none && (!t->max_running || t->running + (t->waiting - t->held.count) < t->max_running);
}

bool md_tenant_waits(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_tenant *t = &s->tenants[r->tenant];
	if (!t->waiting)
		t->turn = fmax(t->turn, s->turn);
	r->held = !may_run_more(t);
	t->waiting++;
	if (!r->held)
		return false;
	md_list_insert(s, &t->held, request);
	s->held++;
	return true;
}

bool md_tenant_unwaits(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_tenant *t = &s->tenants[r->tenant];
	t->waiting--;
	if (!r->held)
		return false;
	md_list_remove(s, &t->held, request);
	s->held--;
	r->held = false;
	return true;
}

void md_tenants_release(struct medusa_sched *s)
{
	for (uint32_t i = 0; s->held && i < s->tenant_count; i++) {
		struct md_tenant *t = &s->tenants[i];
		while (t->held.head != NONE && may_run_more(t)) {
			uint32_t request = t->held.head, function = s->requests[request].function;
			md_list_remove(s, &t->held, request);
			s->held--;
			s->requests[request].held = false;
			md_request_queue(s, request);
			md_function_changed(s, function);
		}
	}
}

static void hold(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	md_request_unqueue(s, request);
	r->held = true;
	md_list_insert(s, &s->tenants[r->tenant].held, request);
	s->held++;
	md_function_changed(s, r->function);
}

void md_tenant_hold_back(struct medusa_sched *s, uint32_t tenant)
{
	const struct md_tenant *t = &s->tenants[tenant];
	uint32_t queued = t->waiting - t->held.count,
		 may = !t->starts_none && t->max_running > t->running ? t->max_running - t->running : 0;
	if ((!t->max_running && !t->starts_none) || queued <= may)
		return;
	for (uint32_t r = s->oldest_waiting, newer, passed = 0; r != NONE; r = newer) {
		newer = s->requests[r].newer;
		if (s->requests[r].tenant == tenant && !s->requests[r].held && passed++ >= may)
			hold(s, r);
	}
}

/* ---- registration ------------------------------------------------------------------------------------------------ */

static void append(struct medusa_sched *s, const struct medusa_sched_tenant *spec)
{
	s->tenants[s->tenant_count++] = (struct md_tenant){
	    .weight = spec->weight > 0 ? spec->weight : 1,
	    .max_waiting = spec->max_waiting,
	    .max_running = spec->max_running,
	    .starts_none = spec->starts_none,
	    .takes_none = spec->takes_none,
	    .held = {NONE, NONE, 0},
	    .turn = s->turn,
	};
}

bool md_tenants_create(struct medusa_sched *s)
{
	if (!MD_ARRAY_GROW(s->tenants, s->tenant_count, s->tenant_capacity))
		return false;
	append(s, &(struct medusa_sched_tenant){.weight = 1});
	return true;
}

static int take(struct medusa_sched *s, const struct medusa_sched_tenant *given, struct medusa_sched_tenant *spec)
{
	if (!s || !given)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", s ? "tenant" : "sched");
	if (!md_take_struct(given, sizeof(*spec), spec))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "tenant->size is not that of a struct medusa_sched_tenant, or fields that this library "
			       "does not know are set");
	bool none = spec->weight >= 0 && spec->weight <= 0;
	if (!none && !(spec->weight >= 1e-6 && spec->weight <= 1e6))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "tenant: weight is %g: give 0 for the default, or 0.000001 to 1000000", spec->weight);
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_add_tenant(struct medusa_sched *s, const struct medusa_sched_tenant *given, uint32_t *index)
{
	struct medusa_sched_tenant spec;
	int code = take(s, given, &spec);
	if (code)
		return code;
	if (!index)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "index is NULL");
	if (!MD_ARRAY_GROW(s->tenants, s->tenant_count, s->tenant_capacity) ||
	    (!md_has_tenants(s) && !md_lanes_create(s)))
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a tenant");
	append(s, &spec);
	*index = s->tenant_count - 1;
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_change_tenant(struct medusa_sched *s, uint32_t tenant,
					 const struct medusa_sched_tenant *changed)
{
	struct medusa_sched_tenant spec;
	int code = take(s, changed, &spec);
	if (code)
		return code;
	if (tenant >= s->tenant_count)
		return md_fail(s, MEDUSA_SCHED_ERR_NOT_FOUND,
			       "tenant is %u: 0 is the default tenant, and the last one added is %u", tenant,
			       s->tenant_count - 1);
	struct md_tenant *t = &s->tenants[tenant];
	double weight = spec.weight > 0 ? spec.weight : 1;
	t->turn = s->turn + (t->turn - s->turn) * (t->weight / weight); /* what it had too much stays the same time */
	t->weight = weight;
	t->max_waiting = spec.max_waiting;
	t->max_running = spec.max_running;
	t->starts_none = spec.starts_none;
	t->takes_none = spec.takes_none;
	md_tenant_hold_back(s, tenant);
	md_tenants_release(s);
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_tenant_get(const struct medusa_sched *s, uint32_t tenant,
				      struct medusa_sched_tenant_state *state)
{
	if (!s)
		return MEDUSA_SCHED_ERR_INVALID;
	if (tenant >= s->tenant_count)
		return MEDUSA_SCHED_ERR_NOT_FOUND;
	const struct md_tenant *t = &s->tenants[tenant];
	struct medusa_sched_tenant_state known = {
	    .waiting = t->waiting,
	    .running = t->running,
	    .served = t->served,
	    .rejected = t->rejected,
	    .gpu_ns = t->gpu_ns,
	    .held = t->held.count,
	};
	return md_give_struct(state, &known, sizeof(known));
}
