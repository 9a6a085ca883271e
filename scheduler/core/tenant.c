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
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/policy/cost.h"

#define SEATS 16      /* of a batch, at most so many are given out one by one; the others by arrival */
#define MOST_LAG 10e9 /* ns of GPU time that a tenant may be behind, because its functions could not start */

/* ---- registration ------------------------------------------------------------------------------------------------ */

static bool add(struct medusa_sched *s, const struct medusa_sched_tenant *spec)
{
	if (!MD_ARRAY_GROW(s->tenants, s->tenant_count, s->tenant_capacity))
		return false;
	s->tenants[s->tenant_count++] = (struct md_tenant){
	    .weight = spec->weight > 0 ? spec->weight : 1,
	    .max_waiting = spec->max_waiting,
	    .max_running = spec->max_running,
	    .held = {NONE, NONE, 0},
	    .turn = s->turn,
	};
	return true;
}

bool md_tenants_create(struct medusa_sched *s)
{
	return add(s, &(struct medusa_sched_tenant){.weight = 1});
}

MD_EXPORT int medusa_sched_add_tenant(struct medusa_sched *s, const struct medusa_sched_tenant *given, uint32_t *index)
{
	struct medusa_sched_tenant spec;
	if (!s || !given || !index)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", !s ? "sched" : !given ? "tenant" : "index");
	if (!md_take_struct(given, sizeof(spec), &spec))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "tenant->size is not that of a struct medusa_sched_tenant, or fields that this library "
			       "does not know are set");
	bool none = spec.weight >= 0 && spec.weight <= 0;
	if (!none && !(spec.weight >= 1e-6 && spec.weight <= 1e6))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "tenant: weight is %g: give 0 for the default, or 0.000001 to 1000000", spec.weight);
	if (!add(s, &spec))
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a tenant");
	*index = s->tenant_count - 1;
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
	};
	return md_give_struct(state, &known, sizeof(known));
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

double md_tenant_turn(const struct medusa_sched *s, uint32_t function)
{
	uint32_t first = md_has_tenants(s) ? md_first_waiting(s, function) : NONE;
	return first == NONE ? 0 : s->tenants[s->requests[first].tenant].turn;
}

/* Of one tenant: by priority, then what can be in time, then by arrival. */
static bool is_sooner(const struct medusa_sched *s, uint32_t a, uint32_t b)
{
	const struct md_request *x = &s->requests[a], *y = &s->requests[b];
	if (x->rank != y->rank)
		return x->rank > y->rank;
	bool x_late = md_is_late(s, a), y_late = md_is_late(s, b);
	return x_late != y_late ? y_late : x->arrived < y->arrived;
}

/* The request that is next, of those from `from` on. */
static uint32_t next_of(const struct medusa_sched *s, uint32_t from)
{
	uint32_t best = from;
	for (uint32_t r = s->requests[from].next; r != NONE; r = s->requests[r].next) {
		const struct md_tenant *t = &s->tenants[s->requests[r].tenant],
				       *least = &s->tenants[s->requests[best].tenant];
		if (t == least ? is_sooner(s, r, best) : t->turn + t->seats < least->turn + least->seats)
			best = r;
	}
	return best;
}

/* What a request of the function will take of a GPU's time, in a batch of `count`. */
static double expected_ns(const struct medusa_sched *s, uint32_t request, uint32_t count)
{
	const struct medusa_sched_function *f = &s->functions[s->requests[request].function].spec;
	double tokens = (double)s->requests[request].tokens * (double)f->token_ns;
	return ((double)f->t0_ns + (double)f->alpha_ns * (count - 1) + tokens) / count;
}

void md_tenants_arrange(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	struct md_list *list = &f->waiting;
	uint32_t seats = f->spec.max_batch < list->count ? f->spec.max_batch : list->count, at = list->head, given = 0;
	for (; given < seats && given < SEATS; given++) {
		uint32_t next = next_of(s, at);
		struct md_tenant *t = &s->tenants[s->requests[next].tenant];
		t->seats += expected_ns(s, next, seats) / t->weight;
		if (next != at)
			md_list_move_before(s, list, next, at);
		at = s->requests[next].next;
	}
	for (uint32_t r = list->head; given-- > 0; r = s->requests[r].next)
		s->tenants[s->requests[r].tenant].seats = 0;
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
	return !t->max_running || t->running + (t->waiting - t->held.count) < t->max_running;
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
