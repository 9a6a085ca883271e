/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: requests that run together on a GPU, from their start to their end or failure. */
#include "scheduler/core/batch.h"

#include "base/array.h"
#include "scheduler/core/abort.h"
#include "scheduler/core/alarm.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/request.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

#define LOSSES 2 /* how often a request is tried again because its GPU or backbone was lost */

static uint32_t batch_slot(struct medusa_sched *s)
{
	if (s->free_batch == NONE) {
		if (!MD_ARRAY_GROW(s->batches, s->batch_count, s->batch_capacity))
			return NONE;
		s->batches[s->batch_count] = (struct md_batch){.next_free = NONE};
		s->free_batch = s->batch_count++;
	}
	uint32_t index = s->free_batch;
	s->free_batch = s->batches[index].next_free;
	return index;
}

uint32_t md_batch_create(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint32_t index = batch_slot(s);
	if (index == NONE)
		return NONE;
	struct md_gpu *g = &s->gpus[gpu];
	struct md_function *f = &s->functions[function];
	uint64_t use = (s->batches[index].id >> 32) + 1; /* transfer.c says what a number is made of */
	s->generation++;
	s->batches[index] = (struct md_batch){
	    .id = use << 32 | index,
	    .function = function,
	    .gpu = gpu,
	    .older = NONE,
	    .newer = g->first_batch,
	    .own_older = f->first_batch,
	    .own_newer = NONE,
	    .requests = {NONE, NONE, 0},
	    .strays = {NONE, NONE, 0},
	    .started = s->now,
	    .divided = s->now,
	    .live = true,
	};
	if (g->first_batch != NONE)
		s->batches[g->first_batch].older = index;
	g->first_batch = index;
	g->running++;
	g->prefilling++;
	s->free_slots--;
	if (f->first_batch != NONE)
		s->batches[f->first_batch].own_newer = index;
	f->first_batch = index;
	f->batches++;
	s->continuous += f->spec.continuous != 0;
	md_pin(s, function, gpu);
	return index;
}

uint32_t md_batch_find(const struct medusa_sched *s, uint64_t id, bool *never)
{
	uint32_t index = (uint32_t)id;
	*never = index >= s->batch_count || !(id >> 32) || id > s->batches[index].id;
	if (*never || !s->batches[index].live || s->batches[index].id != id)
		return NONE;
	return index;
}

void md_batch_add(struct medusa_sched *s, uint32_t batch, uint32_t request, uint64_t start_ns)
{
	struct md_batch *b = &s->batches[batch];
	struct md_request *r = &s->requests[request];
	if (!r->started)
		md_latency_count(s, request, MEDUSA_SCHED_LATENCY_WAITING);
	r->started = true;
	r->state = MD_RUNNING;
	r->batch = batch;
	r->began = s->now;
	r->expires = md_run_expires(s, request, start_ns);
	md_alarm_request(s, request);
	md_tenant_divide(s, batch);
	md_tenant_runs(s, request);
	md_list_append(s, &b->requests, request);
	md_backbone_runs(s, b->function, b->gpu, 1);
	b->kv_bytes += r->kv_bytes;
	s->gpus[b->gpu].kv += r->kv_bytes;
	s->gpus[b->gpu].changed = s->now;
	s->functions[b->function].running++;
}

uint32_t md_count_that_fit(const struct medusa_sched *s, uint32_t function, uint32_t most, int64_t room,
			   uint64_t *kv_bytes)
{
	const struct md_function *f = &s->functions[function];
	uint32_t count = 0;
	*kv_bytes = 0;
	uint32_t in_time = f->waiting.head, late = f->late.head;
	for (; count < most; count++) {
		uint32_t r = md_sooner(s, in_time, late);
		uint64_t more = r == NONE ? 0 : *kv_bytes + s->requests[r].kv_bytes;
		if (r == NONE || (int64_t)more > room)
			break;
		*kv_bytes = more;
		*(r == late ? &late : &in_time) = s->requests[r].next;
	}
	return count;
}

void md_batch_take(struct medusa_sched *s, uint32_t batch, uint32_t count)
{
	uint32_t function = s->batches[batch].function;
	uint64_t start = md_start_ns(s, function, s->batches[batch].gpu, NONE) +
			 (count > 1 ? (count - 1) * s->functions[function].spec.alpha_ns : 0);
	uint32_t taken = 0;
	for (; taken < count && md_waiting(s, function); taken++) {
		uint32_t request = md_first_waiting(s, function);
		md_request_unwait(s, request);
		md_batch_add(s, batch, request, start);
	}
	md_tenants_charge(s, batch, taken);
}

void md_batch_leave(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_batch *b = &s->batches[r->batch];
	md_list_remove(s, r->state == MD_STRAY ? &b->strays : &b->requests, request);
	md_backbone_runs(s, b->function, b->gpu, -1);
	b->kv_bytes -= r->kv_bytes;
	s->gpus[b->gpu].kv -= r->kv_bytes;
	s->gpus[b->gpu].changed = s->now;
}

/*
 * The time of the books' last change stays as it is: engines report growth with every few tokens, and no memory report
 * would ever be believed.
 */
void md_batch_grow(struct medusa_sched *s, uint32_t request, uint64_t kv_bytes)
{
	struct md_request *r = &s->requests[request];
	struct md_batch *b = &s->batches[r->batch];
	struct md_gpu *g = &s->gpus[b->gpu];
	bool grows = kv_bytes > r->kv_bytes;
	b->kv_bytes += kv_bytes - r->kv_bytes;
	g->kv += kv_bytes - r->kv_bytes;
	r->kv_bytes = kv_bytes;
	g->grown |= grows && md_free_bytes(s, b->gpu) < 0;
}

/* KV memory of requests that the node was asked to stop. */
static int64_t aborting_bytes(const struct medusa_sched *s, uint32_t gpu)
{
	int64_t bytes = 0;
	for (uint32_t b = s->gpus[gpu].first_batch; b != NONE; b = s->batches[b].newer)
		for (uint32_t r = s->batches[b].requests.head; r != NONE; r = s->requests[r].next)
			bytes += s->requests[r].aborting ? (int64_t)s->requests[r].kv_bytes : 0;
	return bytes;
}

/*
 * The request on the GPU that began last and can be aborted, or NONE. Batches are listed with the youngest first,
 * requests in a batch with the youngest last; but those that join a batch are younger than it.
 */
static uint32_t youngest_abortable(const struct medusa_sched *s, uint32_t gpu)
{
	uint32_t youngest = NONE;
	for (uint32_t b = s->gpus[gpu].first_batch; b != NONE; b = s->batches[b].newer) {
		if (!s->functions[s->batches[b].function].spec.abortable)
			continue;
		for (uint32_t r = s->batches[b].requests.tail; r != NONE; r = s->requests[r].previous) {
			const struct md_request *request = &s->requests[r];
			if (!request->aborting && request->kv_bytes &&
			    (youngest == NONE || request->began > s->requests[youngest].began))
				youngest = r;
		}
	}
	return youngest;
}

void md_batches_shrink(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	int64_t room = md_soon_free_bytes(s, gpu);
	g->grown = md_free_bytes(s, gpu) < 0;
	if (room < 0)
		room += aborting_bytes(s, gpu);
	while (room < 0) {
		uint32_t r = youngest_abortable(s, gpu);
		if (r == NONE || !md_abort_request(s, r, MEDUSA_SCHED_REASON_NO_ROOM))
			return;
		room += (int64_t)s->requests[r].kv_bytes;
	}
}

/* Takes the batch out of its GPU's list and its function's. */
static void unlist(struct medusa_sched *s, const struct md_batch *b)
{
	if (b->older != NONE)
		s->batches[b->older].newer = b->newer;
	else
		s->gpus[b->gpu].first_batch = b->newer;
	if (b->newer != NONE)
		s->batches[b->newer].older = b->older;
	if (b->own_newer != NONE)
		s->batches[b->own_newer].own_older = b->own_older;
	else
		s->functions[b->function].first_batch = b->own_older;
	if (b->own_older != NONE)
		s->batches[b->own_older].own_newer = b->own_newer;
}

void md_batch_end(struct medusa_sched *s, uint32_t batch)
{
	struct md_batch *b = &s->batches[batch];
	struct md_gpu *g = &s->gpus[b->gpu];
	unlist(s, b);
	md_backbone_runs(s, b->function, b->gpu, -(int64_t)b->requests.count - (int64_t)b->strays.count);
	s->continuous -= s->functions[b->function].spec.continuous != 0;
	g->running--;
	g->prefilling -= !b->first_token;
	s->look_again |= !g->prefilling;
	g->kv -= b->kv_bytes;
	g->changed = s->now;
	if (g->present)
		s->free_slots++;
	s->functions[b->function].batches -= !b->hung;
	for (uint32_t r = b->strays.head, next; r != NONE; r = next) {
		next = s->requests[r].next;
		md_request_free(s, r);
	}
	md_unpin(s, b->function, b->gpu);
	b->live = false;
	b->next_free = s->free_batch;
	s->free_batch = batch;
	md_function_changed(s, b->function);
}

void md_batch_settle(struct medusa_sched *s, uint32_t batch)
{
	struct md_batch *b = &s->batches[batch];
	if (b->requests.count) {
		if (s->functions[b->function].spec.continuous)
			md_function_changed(s, b->function); /* another one may join it */
		return;
	}
	if (!b->strays.count) {
		md_batch_end(s, batch);
		return;
	}
	if (b->hung)
		return;
	b->hung = true;
	s->functions[b->function].batches--;
	/* nobody waits for its first token any more */
	s->gpus[b->gpu].prefilling -= !b->first_token;
	b->first_token = true;
	s->look_again |= !s->gpus[b->gpu].prefilling;
	md_function_changed(s, b->function);
}

/* A GPU that is there, and that the request would fit on if it were empty. */
static bool other_gpu(const struct medusa_sched *s, const struct md_request *r)
{
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		bool bound = s->placement->bound && s->functions[r->function].home != gpu;
		if (md_gpu_open(s, gpu) && !bound && md_fits_empty(s, r->function, gpu, r->kv_bytes))
			return true;
	}
	return false;
}

/*
 * Whether the request is tried again. What a lost GPU or backbone held is not counted as one of its tries, but only
 * LOSSES times, because the request itself may be what kills GPUs.
 */
static bool tried_again(const struct medusa_sched *s, struct md_request *r, enum md_blame blame)
{
	if (r->cancelled || r->aborting || s->functions[r->function].gone)
		return false;
	if (blame == MD_BLAME_NODE && r->losses < LOSSES && other_gpu(s, r)) {
		r->losses++;
		return true;
	}
	return r->tries++ < s->options.retries && md_fits_somewhere(s, r->function, r->kv_bytes);
}

void md_give_back(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason, enum md_blame blame)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	f->running--;
	md_tenant_stops(s, request);
	if (!r->own_kv)
		r->kv_bytes = f->spec.kv_bytes; /* it may have changed since the request began to run */
	bool again = tried_again(s, r, blame);
	md_request_wait(s, request);
	if (r->cancelled)
		reason = MEDUSA_SCHED_REASON_CANCELLED;
	else if (r->aborting)
		reason = (enum medusa_sched_reason)r->aborting;
	else if (f->gone)
		reason = MEDUSA_SCHED_REASON_UNREGISTERED;
	if (again)
		s->stats.retried++;
	else
		md_request_reject(s, request, reason);
}

void md_batch_fail(struct medusa_sched *s, uint32_t batch, enum medusa_sched_reason reason, enum md_blame blame)
{
	uint32_t next;
	struct md_list requests = s->batches[batch].requests;
	uint32_t function = s->batches[batch].function;
	md_batch_end(s, batch);
	for (uint32_t r = requests.head; r != NONE; r = next) {
		next = s->requests[r].next;
		md_give_back(s, r, reason, blame);
	}
	md_function_changed(s, function);
}
