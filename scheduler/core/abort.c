/* SPDX-License-Identifier: Apache-2.0 */
/* Aborts of running requests, and runs and transfers whose end is never reported. */
#include "scheduler/core/abort.h"

#include "scheduler/core/action.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"
#include "scheduler/core/transfer.h"

#define ABORT_TIME 30000000000ull /* ns that the node has to answer an abort */

static bool ask(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason)
{
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_ABORT);
	if (!action)
		return false;
	const struct md_request *r = &s->requests[request];
	action->request = r->id;
	action->function = r->function;
	action->batch = s->batches[r->batch].id;
	action->gpu = s->batches[r->batch].gpu;
	action->reason = reason;
	s->stats.aborts++;
	return true;
}

bool md_abort_request(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason)
{
	struct md_request *r = &s->requests[request];
	uint64_t most = s->options.run_timeout_ns;
	if (!ask(s, request, reason))
		return false;
	r->aborting = (uint8_t)reason;
	if (most != UINT64_MAX)
		r->expires = s->now + (most && most < ABORT_TIME ? most : ABORT_TIME);
	md_alarm_request(s, request);
	return true;
}

bool md_stray_ask(struct medusa_sched *s, uint32_t stray)
{
	if (!ask(s, stray, MEDUSA_SCHED_REASON_TIMED_OUT))
		return false;
	s->requests[stray].expires = md_run_expires(s, stray, 0);
	md_alarm_request(s, stray);
	return true;
}

/* The request leaves its slot to the stray, and gets another one. */
static uint32_t leave_stray(struct medusa_sched *s, uint32_t request)
{
	uint32_t moved = md_request_create(s, s->requests[request].id, s->requests[request].function);
	if (moved == NONE)
		return NONE;
	struct md_request *r = &s->requests[request];
	struct md_batch *b = &s->batches[r->batch];
	s->requests[moved] = *r;
	md_tenant_divide(s, r->batch);
	md_list_remove(s, &b->requests, request);
	md_list_append(s, &b->strays, request);
	r->state = MD_STRAY;
	return moved;
}

bool md_run_lost(struct medusa_sched *s, uint32_t request)
{
	uint32_t batch = s->requests[request].batch, function = s->requests[request].function;
	if (!md_action_room(s, 2, 0))
		return false;
	uint32_t moved = leave_stray(s, request);
	if (moved == NONE)
		return false;
	s->stats.timeouts++;
	md_stray_ask(s, request);
	md_give_back(s, moved, MEDUSA_SCHED_REASON_TIMED_OUT, MD_BLAME_BATCH);
	md_batch_settle(s, batch);
	md_function_changed(s, function);
	return true;
}

void md_stray_done(struct medusa_sched *s, uint32_t batch, uint64_t id)
{
	struct md_batch *b = &s->batches[batch];
	for (uint32_t r = b->strays.head; r != NONE; r = s->requests[r].next) {
		if (s->requests[r].id != id)
			continue;
		md_batch_leave(s, r);
		md_request_free(s, r);
		md_batch_settle(s, batch);
		return;
	}
}

/* ---- transfers -------------------------------------------------------------------------------------------------- */

/* Whether a batch needs what the transfer brings, and has not begun to compute with it. */
static bool waits_for(const struct medusa_sched *s, const struct md_batch *b, const struct md_transfer *t)
{
	const uint32_t *artifacts = s->functions[b->function].artifacts;
	bool uses = false;
	for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++)
		uses |= artifacts[kind] == t->artifact;
	bool host = t->gpu == NONE && s->artifacts[t->artifact].kind == MEDUSA_SCHED_CLASS_LIBRARY;
	return uses && !b->first_token && (t->gpu == b->gpu || host);
}

/* The runs that wait for it are lost, as far as memory allows to say so; the others become late by themselves. */
static void lose_runs(struct medusa_sched *s, const struct md_transfer *t)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		for (uint32_t b = s->gpus[gpu].first_batch, next; b != NONE; b = next) {
			next = s->batches[b].newer;
			if (!waits_for(s, &s->batches[b], t))
				continue;
			for (uint32_t r = s->batches[b].requests.head, after; r != NONE; r = after) {
				after = s->requests[r].next;
				if (!md_run_lost(s, r))
					return;
			}
		}
	}
}

static bool ask_to_end(struct medusa_sched *s, uint32_t transfer, enum medusa_sched_reason reason)
{
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_ABORT);
	if (!action)
		return false;
	const struct md_transfer *t = &s->transfers[transfer];
	md_transfer_describe(s, action, t->artifact, t->gpu);
	action->transfer = t->id;
	action->reason = reason;
	s->stats.aborts++;
	/* nothing new may count on it */
	if (t->direction == MD_IN && t->gpu != NONE)
		md_copy_at(s, t->artifact, t->gpu)->draining = true;
	return true;
}

bool md_transfer_end(struct medusa_sched *s, uint32_t transfer)
{
	s->transfers[transfer].failing = true;
	return ask_to_end(s, transfer, MEDUSA_SCHED_REASON_FAILED);
}

bool md_transfer_lost(struct medusa_sched *s, uint32_t transfer)
{
	if (!ask_to_end(s, transfer, MEDUSA_SCHED_REASON_TIMED_OUT))
		return false;
	struct md_transfer t = s->transfers[transfer];
	if (t.late || t.direction == MD_OUT)
		return true;
	s->transfers[transfer].late = true;
	s->stats.timeouts++;
	lose_runs(s, &t);
	return true;
}
