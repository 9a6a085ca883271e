/* SPDX-License-Identifier: Apache-2.0 */
/* Alarms of requests and transfers: one heap each, by the time when something has to be done about them. */
#include "scheduler/core/alarm.h"

#include "scheduler/core/abort.h"
#include "scheduler/core/action.h"
#include "scheduler/core/request.h"
#include "scheduler/policy/cost.h"

#define SOON 1000000000u            /* ns until something that memory was lacking for is tried again */
#define PATIENCE 120000000000ull    /* ns: the least time-out that is chosen here */
#define MARGIN 10                   /* an expected time may become this many times as long */
#define UNKNOWN_TOKENS 32768        /* of a request that does not state how many are expected */
#define RAISED_AFTER 30000000000ull /* ns of waiting until a request has the highest priority */

/* ---- how long things may take ----------------------------------------------------------------------------------- */

static uint64_t add(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	return a && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

/*
 * The default is generous, because links and GPUs are shared: what ends late by mistake costs a second try. Nobody
 * waits longer than max_wait_ns for a start, so nobody waits much longer than that for an end that never comes.
 */
static uint64_t allowed(const struct medusa_sched *s, uint64_t option, uint64_t expected)
{
	uint64_t least = s->options.max_wait_ns > PATIENCE ? s->options.max_wait_ns : PATIENCE;
	return option ? option : add(least, times(expected, MARGIN));
}

uint64_t md_run_expires(const struct medusa_sched *s, uint32_t request, uint64_t start_ns)
{
	const struct md_request *r = &s->requests[request];
	uint64_t tokens = r->tokens ? r->tokens : UNKNOWN_TOKENS;
	uint64_t expected = add(start_ns, times(tokens, s->functions[r->function].spec.token_ns));
	return add(s->now, allowed(s, s->options.run_timeout_ns, expected));
}

static uint64_t transfer_ns(const struct medusa_sched *s, const struct md_transfer *t)
{
	const struct md_sched_artifact *a = &s->artifacts[t->artifact];
	bool backbone = a->kind == MEDUSA_SCHED_CLASS_BACKBONE;
	uint64_t from_host = backbone ? s->backbones[a->owner].spec.load_ns : 0;
	from_host = from_host ? from_host : md_copy_ns(t->bytes, s->host_bytes_per_s);
	if (t->direction == MD_OUT)
		return backbone ? s->backbones[a->owner].spec.evict_ns : s->functions[a->owner].spec.evict_ns;
	if (t->source == MEDUSA_SCHED_SOURCE_MADE) {
		uint32_t library = s->functions[a->owner].artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
		return add(s->functions[a->owner].spec.context_ns, library == NONE ? 0 : s->artifacts[library].cold_ns);
	}
	return add(from_host, t->source == MEDUSA_SCHED_SOURCE_COLD ? a->cold_ns : 0);
}

/* ---- alarms ----------------------------------------------------------------------------------------------------- */

bool md_alarms_reserve(struct medusa_sched *s)
{
	return md_priority_reserve(&s->request_alarms, s->request_capacity) &&
	       md_priority_reserve(&s->transfer_alarms, s->transfer_capacity);
}

static void set(struct md_priority *alarms, uint32_t index, uint64_t at)
{
	if (at == UINT64_MAX)
		md_priority_remove(alarms, index);
	else
		md_priority_put(alarms, index, (struct md_key){.minor = at});
}

static uint64_t raised_at(const struct medusa_sched *s, const struct md_request *r)
{
	uint64_t after = s->options.max_wait_ns / 4 < RAISED_AFTER ? s->options.max_wait_ns / 4 : RAISED_AFTER;
	return s->priorities && r->rank < INT32_MAX ? add(r->arrived, after) : UINT64_MAX;
}

void md_alarm_request(struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	uint64_t at = r->expires;
	if (r->state == MD_WAITING)
		at = raised_at(s, r);
	bool heeds = r->state == MD_WAITING || (s->functions[r->function].spec.abortable && !r->aborting);
	if (r->state != MD_STRAY && heeds && r->deadline < at)
		at = r->deadline;
	if (r->state == MD_RUNNING && heeds && r->cancelled)
		at = s->now; /* it can be aborted only since then */
	set(&s->request_alarms, request, at);
}

void md_alarm_transfer(struct medusa_sched *s, uint32_t transfer)
{
	uint64_t patience = allowed(s, s->options.transfer_timeout_ns, transfer_ns(s, &s->transfers[transfer]));
	set(&s->transfer_alarms, transfer, add(s->now, patience));
}

uint64_t md_alarms_next(const struct medusa_sched *s)
{
	uint64_t at = s->request_alarms.count ? s->request_alarms.items[0].key.minor : UINT64_MAX;
	if (s->transfer_alarms.count && s->transfer_alarms.items[0].key.minor < at)
		at = s->transfer_alarms.items[0].key.minor;
	return at;
}

/* False: out of memory for an action. */
static bool attend_waiting(struct medusa_sched *s, uint32_t request)
{
	if (s->requests[request].deadline > s->now) {
		md_request_raise(s, request);
		return true;
	}
	if (!md_action_room(s, 1, 0))
		return false;
	md_request_reject(s, request, MEDUSA_SCHED_REASON_DEADLINE);
	return true;
}

static bool attend(struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	if (r->state == MD_WAITING)
		return attend_waiting(s, request);
	if (r->state == MD_STRAY) {
		bool asked = md_stray_ask(s, request);
		s->requests[request].asked_again |= asked;
		return asked;
	}
	if (r->expires <= s->now)
		return md_run_lost(s, request);
	return md_abort_request(s, request,
				r->cancelled ? MEDUSA_SCHED_REASON_CANCELLED : MEDUSA_SCHED_REASON_DEADLINE);
}

void md_alarms_ring(struct medusa_sched *s)
{
	/* a lost transfer fails batches, whose requests wait again, some of them beyond their deadline: they come next */
	while (s->transfer_alarms.count && s->transfer_alarms.items[0].key.minor <= s->now) {
		uint32_t transfer = s->transfer_alarms.items[0].index;
		md_priority_remove(&s->transfer_alarms, transfer);
		if (md_transfer_lost(s, transfer))
			md_alarm_transfer(s, transfer);
		else
			set(&s->transfer_alarms, transfer, s->now + SOON);
	}
	while (s->request_alarms.count && s->request_alarms.items[0].key.minor <= s->now) {
		uint32_t request = s->request_alarms.items[0].index;
		md_priority_remove(&s->request_alarms, request);
		if (!attend(s, request))
			set(&s->request_alarms, request, s->now + SOON);
	}
}
