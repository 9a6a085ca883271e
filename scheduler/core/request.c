/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in their function's queue and among all that wait; batches, and how both end. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/step.h"
#include "scheduler/policy/cost.h"

#define RECENT_S 60.0 /* what a function's recent record forgets to 1/e in */

/* ---- lists of requests ------------------------------------------------------------------------------------------- */

static void list_append(struct medusa_sched *s, struct md_list *list, uint32_t request)
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

/* By arrival: one that comes back after a failure goes before those that came later. */
static void list_insert(struct medusa_sched *s, struct md_list *list, uint32_t request)
{
	uint32_t before = list->head;
	if (list->tail == NONE || s->requests[list->tail].arrived <= s->requests[request].arrived) {
		list_append(s, list, request);
		return;
	}
	while (s->requests[before].arrived <= s->requests[request].arrived)
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

static void list_remove(struct medusa_sched *s, struct md_list *list, uint32_t request)
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
		s->requests[s->request_count].next = NONE;
		s->free_request = s->request_count++;
	}
	uint32_t index = s->free_request;
	if (!md_map_put(&s->request_ids, id, index))
		return NONE;
	s->free_request = s->requests[index].next;
	s->requests[index] = (struct md_request){.id = id, .arrived = s->now, .function = function};
	return index;
}

static void count_for_backbone(struct medusa_sched *s, uint32_t function, int by)
{
	uint32_t backbone = s->functions[function].spec.backbone;
	if (backbone != NONE)
		s->backbones[backbone].waiting += (uint32_t)by;
}

void md_request_wait(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	r->state = MD_WAITING;
	r->late = false;
	list_insert(s, &s->functions[r->function].waiting, request);
	count_for_backbone(s, r->function, 1);
	all_insert(s, request);
}

static void unwait(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	list_remove(s, r->late ? &f->late : &f->waiting, request);
	count_for_backbone(s, r->function, -1);
	all_remove(s, request);
}

void md_request_end(struct medusa_sched *s, uint32_t request)
{
	md_map_remove(&s->request_ids, s->requests[request].id, NULL);
	s->requests[request].next = s->free_request;
	s->free_request = request;
}

static void fade(struct medusa_sched *s, struct md_function *f)
{
	double passed = (double)(s->now - f->recent_at) * 1e-9;
	double keep = exp(-passed / RECENT_S);
	f->recent_n *= keep;
	f->recent_met *= keep;
	f->recent_at = s->now;
}

void md_request_count(struct medusa_sched *s, uint32_t request, bool met)
{
	struct md_function *f = &s->functions[s->requests[request].function];
	if (!f->spec.slo_ns)
		return;
	f->ended++;
	f->met += met;
	fade(s, f);
	f->recent_n += 1;
	f->recent_met += met;
	s->first_class.ended += f->high;
	s->first_class.missed += f->high && !met;
	s->torpor.ended++;
	s->torpor.met += met;
}

void md_request_reject(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = r->function == NONE ? NULL : &s->functions[r->function];
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_REJECT);
	if (!action)
		return; /* it goes on waiting, and is refused at the next event */
	action->request = r->id;
	action->function = r->function;
	action->reason = reason;
	unwait(s, request);
	if (reason == MEDUSA_SCHED_CANCELLED) {
		s->stats.cancelled++;
	} else {
		s->stats.rejected++;
		f->rejected++;
		if (!r->first_token || f->spec.slo_goal == MEDUSA_SCHED_GOAL_COMPLETION)
			md_request_count(s, request, false);
	}
	uint32_t function = r->function;
	md_request_end(s, request);
	md_function_changed(s, function);
}

uint32_t md_waiting(const struct medusa_sched *s, uint32_t function)
{
	return s->functions[function].waiting.count + s->functions[function].late.count;
}

uint32_t md_first_waiting(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	return f->waiting.head != NONE ? f->waiting.head : f->late.head;
}

void md_sort_late(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	while (f->waiting.head != NONE) {
		uint32_t request = f->waiting.head;
		uint64_t deadline = md_deadline(s, request);
		if (deadline == UINT64_MAX || s->now + f->spec.t0_ns <= deadline)
			return;
		list_remove(s, &f->waiting, request);
		s->requests[request].late = true;
		list_insert(s, &f->late, request);
	}
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

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
	s->batches[index] = (struct md_batch){
	    .id = ++s->generation << 32 | index,
	    .function = function,
	    .gpu = gpu,
	    .older = NONE,
	    .newer = g->first_batch,
	    .requests = {NONE, NONE, 0},
	    .started = s->now,
	    .live = true,
	};
	if (g->first_batch != NONE)
		s->batches[g->first_batch].older = index;
	g->first_batch = index;
	g->running++;
	g->prefilling++;
	s->free_slots--;
	s->functions[function].batches++;
	md_pin(s, function, gpu);
	return index;
}

uint32_t md_batch_find(const struct medusa_sched *s, uint64_t id, bool *never)
{
	uint32_t index = (uint32_t)id;
	*never = index >= s->batch_count || (id >> 32) > s->generation;
	if (*never || !s->batches[index].live || s->batches[index].id != id)
		return NONE;
	return index;
}

void md_batch_take(struct medusa_sched *s, uint32_t batch, uint32_t count)
{
	struct md_batch *b = &s->batches[batch];
	while (count-- > 0 && md_waiting(s, b->function)) {
		uint32_t request = md_first_waiting(s, b->function);
		struct md_request *r = &s->requests[request];
		unwait(s, request);
		r->state = MD_RUNNING;
		r->batch = batch;
		list_append(s, &b->requests, request);
		b->kv_bytes += r->kv_bytes;
		s->gpus[b->gpu].kv += r->kv_bytes;
		s->functions[b->function].running++;
	}
	s->gpus[b->gpu].changed = s->now;
}

void md_batch_end(struct medusa_sched *s, uint32_t batch)
{
	struct md_batch *b = &s->batches[batch];
	struct md_gpu *g = &s->gpus[b->gpu];
	if (b->older != NONE)
		s->batches[b->older].newer = b->newer;
	else
		g->first_batch = b->newer;
	if (b->newer != NONE)
		s->batches[b->newer].older = b->older;
	g->running--;
	g->prefilling -= !b->first_token;
	s->look_again |= !g->prefilling;
	g->kv -= b->kv_bytes;
	g->changed = s->now;
	if (g->present)
		s->free_slots++;
	s->functions[b->function].batches--;
	md_unpin(s, b->function, b->gpu);
	b->live = false;
	b->next_free = s->free_batch;
	s->free_batch = batch;
	md_function_changed(s, b->function);
}

/* Back into the queue, or refused. */
static void give_back(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason)
{
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	f->running--;
	bool again = r->tries < s->options.retries && !r->cancelled && !f->gone;
	r->tries++;
	md_request_wait(s, request);
	if (r->cancelled)
		reason = MEDUSA_SCHED_CANCELLED;
	else if (f->gone)
		reason = MEDUSA_SCHED_UNREGISTERED;
	if (again)
		s->stats.retried++;
	else
		md_request_reject(s, request, reason);
}

void md_batch_fail(struct medusa_sched *s, uint32_t batch, enum medusa_sched_reason reason)
{
	uint32_t next;
	struct md_list requests = s->batches[batch].requests;
	uint32_t function = s->batches[batch].function;
	md_batch_end(s, batch);
	for (uint32_t r = requests.head; r != NONE; r = next) {
		next = s->requests[r].next;
		give_back(s, r, reason);
	}
	md_function_changed(s, function);
}
