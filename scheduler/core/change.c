/* SPDX-License-Identifier: Apache-2.0 */
/* Changes what a function promises and how long it takes, while it is in use. */
#include "scheduler/core/alarm.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/keep.h"
#include "scheduler/core/lane.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/stuck.h"
#include "scheduler/core/state.h"

/* What the books are kept in cannot change. */
static int check_same(struct medusa_sched *s, const struct medusa_sched_function *old,
		      const struct medusa_sched_function *new)
{
	const struct {
		const char *field;
		bool same;
	} fields[] = {
	    {"backbone", old->backbone == new->backbone},
	    {"weight_bytes", old->weight_bytes == new->weight_bytes},
	    {"context_bytes", old->context_bytes == new->context_bytes},
	    {"library_bytes", old->library_bytes == new->library_bytes},
	    {"residue_bytes", old->residue_bytes == new->residue_bytes},
	    {"in_host", !old->in_host == !new->in_host},
	    {"continuous", !old->continuous == !new->continuous},
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (!fields[i].same)
			return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
				       "%s cannot change: register another function, and unregister "
				       "this one (MEDUSA_SCHED_EVENT_FUNCTION_GONE)",
				       fields[i].field);
	}
	return MEDUSA_SCHED_OK;
}

/* Which requests are late follows from the new objective. */
static void sort_anew(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	for (uint32_t r = f->late.head, next; r != NONE; r = next) {
		next = s->requests[r].next;
		md_request_unwait(s, r);
		md_request_wait(s, r);
	}
	md_lanes_anew(s, function);
	for (uint32_t r = f->waiting.head; r != NONE; r = s->requests[r].next)
		md_alarm_request(s, r);
}

/* What waits with the function's KV memory waits with the new size; the next step refuses what fits nowhere any more. */
static void size_anew(struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	const uint32_t heads[] = {f->waiting.head, f->late.head};
	for (int i = 0; i < 2; i++)
		for (uint32_t r = heads[i]; r != NONE; r = s->requests[r].next)
			if (!s->requests[r].own_kv)
				s->requests[r].kv_bytes = f->spec.kv_bytes;
	s->refuse_large = true;
}

/* Whether its deadlines and cancels are heeded while it runs follows from `abortable`. */
static void heed_anew(struct medusa_sched *s, uint32_t function)
{
	for (uint32_t b = s->functions[function].first_batch; b != NONE; b = s->batches[b].own_older)
		for (uint32_t r = s->batches[b].requests.head; r != NONE; r = s->requests[r].next)
			md_alarm_request(s, r);
}

MD_EXPORT int medusa_sched_change_function(struct medusa_sched *s, uint32_t function,
					   const struct medusa_sched_function *given)
{
	struct medusa_sched_function spec;
	if (!s)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "sched is NULL");
	if (function >= s->function_count || s->functions[function].gone)
		return md_fail(s, MEDUSA_SCHED_ERR_NOT_FOUND, "function %u is not registered", function);
	struct md_function *f = &s->functions[function];
	int code = md_function_take(s, given, &f->spec, &spec);
	if (code)
		return code;
	code = check_same(s, &f->spec, &spec);
	if (code)
		return code;
	struct medusa_sched_function before = f->spec;
	f->spec = spec;
	if (!md_keep_reserve(s, function)) {
		f->spec = before;
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a function");
	}
	if (f->home != NONE)
		s->gpus[f->home].bound += spec.kv_bytes - before.kv_bytes;
	f->heavy = md_function_heavy(s, &spec);
	md_function_cold(s, function);
	size_anew(s, function);
	sort_anew(s, function);
	heed_anew(s, function);
	md_keep_changed(s, function);
	s->functions[function].let_go = false;
	md_stuck_stir(s, s->now);
	md_priority_remove(&s->idle, function); /* keep_alive_ns counts from now */
	md_function_changed(s, function);
	return MEDUSA_SCHED_OK;
}
