/* SPDX-License-Identifier: Apache-2.0 */
/* One step: an event enters the books, then what can start is started, and the next timer is set. */
#include <stdlib.h>

#include "base/array.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/step.h"
#include "scheduler/core/transfer.h"
#include "scheduler/policy/policies.h"
#include "scheduler/policy/preloading.h"

/* ---- actions ---------------------------------------------------------------------------------------------------- */

bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests)
{
	return MD_ARRAY_RESERVE(s->actions, s->action_count + actions, s->action_capacity) &&
	       MD_ARRAY_RESERVE(s->action_list, s->action_capacity, s->action_list_capacity) &&
	       MD_ARRAY_RESERVE(s->run_requests, s->run_request_count + requests, s->run_request_capacity);
}

struct medusa_sched_action *md_act(struct medusa_sched *s, enum medusa_sched_action_type type)
{
	if (!md_action_room(s, 1, 0))
		return NULL;
	struct medusa_sched_action *action = &s->actions[s->action_count++];
	*action = (struct medusa_sched_action){
	    .size = sizeof(*action), .type = type, .function = NONE, .backbone = NONE, .gpu = NONE, .peer = NONE};
	return action;
}

uint64_t md_draw(struct medusa_sched *s)
{
	/* A Weyl sequence through a mixing function. */
	uint64_t x = s->random += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
	return x ^ (x >> 32);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static int refuse_at_once(struct medusa_sched *s, const struct medusa_sched_event *e, enum medusa_sched_reason reason)
{
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_REJECT);
	if (!action)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for an action");
	action->request = e->request;
	action->function = e->function;
	action->reason = reason;
	s->stats.arrivals++;
	s->stats.rejected++;
	if (e->function < s->function_count) {
		struct md_function *f = &s->functions[e->function];
		f->rejected++;
		f->ended += f->spec.slo_ns != 0;
	}
	return MEDUSA_SCHED_OK;
}

/* On some GPU, were it empty; early binding has no choice. */
static bool fits_at_all(const struct medusa_sched *s, uint32_t function, uint64_t kv_bytes)
{
	uint32_t home = s->functions[function].home;
	if (s->placement->bound)
		return home != NONE && md_fits_empty(s, function, home, kv_bytes);
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (md_fits_empty(s, function, gpu, kv_bytes))
			return true;
	}
	return false;
}

static int arrival(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	if (md_map_get(&s->request_ids, e->request, NULL))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->request is %llu, a number that is still in use",
			       (unsigned long long)e->request);
	if (e->function >= s->function_count || s->functions[e->function].gone)
		return refuse_at_once(s, e, MEDUSA_SCHED_UNREGISTERED);
	struct md_function *f = &s->functions[e->function];
	uint64_t kv_bytes = e->kv_bytes ? e->kv_bytes : f->spec.kv_bytes;
	md_rate_arrival(&f->rate, s->now);
	if (!fits_at_all(s, e->function, kv_bytes))
		return refuse_at_once(s, e, MEDUSA_SCHED_NEVER_FITS);
	if (s->options.max_queue && md_waiting(s, e->function) >= s->options.max_queue)
		return refuse_at_once(s, e, MEDUSA_SCHED_QUEUE_FULL);
	uint32_t request = md_request_create(s, e->request, e->function);
	if (request == NONE)
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for request %llu",
			       (unsigned long long)e->request);
	s->stats.arrivals++;
	s->requests[request].kv_bytes = kv_bytes;
	s->requests[request].tokens = e->tokens;
	md_request_wait(s, request);
	md_function_changed(s, e->function);
	return MEDUSA_SCHED_OK;
}

/* The running or waiting request that an event names. */
static uint32_t find_request(const struct medusa_sched *s, uint64_t id)
{
	uint64_t index;
	return md_map_get(&s->request_ids, id, &index) ? (uint32_t)index : NONE;
}

/* The running one, unless the event is about an earlier try of it. */
static uint32_t find_running(const struct medusa_sched *s, const struct medusa_sched_event *e)
{
	uint32_t request = find_request(s, e->request);
	if (request == NONE || s->requests[request].state != MD_RUNNING)
		return NONE;
	return !e->batch || s->batches[s->requests[request].batch].id == e->batch ? request : NONE;
}

static void cancel(struct medusa_sched *s, uint32_t request)
{
	if (request == NONE)
		return;
	s->requests[request].cancelled = true;
	if (s->requests[request].state == MD_WAITING)
		md_request_reject(s, request, MEDUSA_SCHED_CANCELLED);
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
	if (s->functions[s->requests[request].function].spec.slo_goal == MEDUSA_SCHED_GOAL_FIRST_TOKEN)
		md_request_count(s, request, met);
}

static void take_from_batch(struct medusa_sched *s, uint32_t request)
{
	struct md_request *r = &s->requests[request];
	struct md_batch *b = &s->batches[r->batch];
	if (r->previous != NONE)
		s->requests[r->previous].next = r->next;
	else
		b->requests.head = r->next;
	if (r->next != NONE)
		s->requests[r->next].previous = r->previous;
	else
		b->requests.tail = r->previous;
	b->requests.count--;
	b->kv_bytes -= r->kv_bytes;
	s->gpus[b->gpu].kv -= r->kv_bytes;
	s->gpus[b->gpu].changed = s->now;
}

static void done(struct medusa_sched *s, uint32_t request)
{
	if (request == NONE)
		return;
	first_token(s, request);
	struct md_request *r = &s->requests[request];
	struct md_function *f = &s->functions[r->function];
	uint32_t batch = r->batch;
	if (f->spec.slo_goal == MEDUSA_SCHED_GOAL_COMPLETION)
		md_request_count(s, request, in_time(s, request));
	f->service_s += (double)(s->now - s->batches[batch].started) * 1e-9;
	f->served++;
	f->running--;
	s->stats.served++;
	take_from_batch(s, request);
	md_request_end(s, request);
	if (!s->batches[batch].requests.count)
		md_batch_end(s, batch);
}

/* ---- GPUs ------------------------------------------------------------------------------------------------------- */

/* Batches of this GPU that use the artifact (NONE: all). */
static void fail_batches(struct medusa_sched *s, uint32_t gpu, uint32_t artifact, enum medusa_sched_reason reason)
{
	for (uint32_t b = s->gpus[gpu].first_batch, next; b != NONE; b = next) {
		next = s->batches[b].newer;
		const uint32_t *artifacts = s->functions[s->batches[b].function].artifacts;
		bool uses = artifact == NONE;
		for (int kind = 0; kind < MD_FUNCTION_ARTIFACTS; kind++)
			uses |= artifacts[kind] == artifact;
		if (uses)
			md_batch_fail(s, b, reason);
	}
}

/* What comes for a function that is gone goes again; so does what could not go before. */
static void ended_for(struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind != MEDUSA_SCHED_BACKBONE && s->functions[a->owner].gone)
		md_function_changed(s, a->owner);
}

static void transfer_done(struct medusa_sched *s, uint32_t transfer)
{
	uint32_t artifact = s->transfers[transfer].artifact;
	md_transfer_done(s, transfer);
	ended_for(s, artifact);
}

/* Copies of `artifact` on their way to the GPU, or reading from it, do not come. */
static void transfer_failed(struct medusa_sched *s, uint32_t transfer)
{
	struct md_transfer t = s->transfers[transfer];
	md_transfer_drop(s, transfer);
	ended_for(s, t.artifact);
	if (t.direction == MD_OUT)
		return;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (t.gpu == gpu || t.gpu == NONE)
			fail_batches(s, gpu, t.artifact, MEDUSA_SCHED_LOAD_FAILED);
	}
}

static void lose_copy(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state == MD_THERE)
		s->artifacts[artifact].copies--;
	if (copy->state == MD_THERE || copy->state == MD_SUSPENDED)
		md_copy_leave(s, artifact, gpu);
	*copy = (struct md_copy){.older = NONE, .newer = NONE};
}

static void gpu_lost(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	if (!g->present)
		return;
	g->present = false;
	s->free_slots -= g->slots - g->running;
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		if (!s->transfers[i].live)
			continue;
		if (s->transfers[i].gpu == gpu)
			md_transfer_drop(s, i);
		else if (s->transfers[i].peer == gpu)
			transfer_failed(s, i);
	}
	fail_batches(s, gpu, NONE, MEDUSA_SCHED_FAILED);
	while (g->claim_count) {
		uint32_t function = g->claims[0];
		md_claim_drop(s, function);
		md_function_changed(s, function);
	}
	for (uint32_t a = 0; a < s->artifact_count; a++)
		lose_copy(s, a, gpu);
	g->artifacts = g->residues = g->held = g->kv = g->foreign = 0;
	g->changed = s->now;
}

static void gpu_back(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	if (g->present)
		return;
	g->present = true;
	g->changed = s->now;
	s->free_slots += g->slots - g->running;
}

static void backbone_failed(struct medusa_sched *s, uint32_t gpu, uint32_t backbone)
{
	uint32_t artifact = s->backbones[backbone].artifact;
	for (uint32_t i = 0; i < s->transfer_count; i++) {
		const struct md_transfer *t = &s->transfers[i];
		if (t->live && t->artifact == artifact && (t->gpu == gpu || t->peer == gpu))
			transfer_failed(s, i);
	}
	fail_batches(s, gpu, artifact, MEDUSA_SCHED_FAILED);
	struct md_copy *copy = md_copy_at(s, artifact, gpu);
	if (copy->state != MD_THERE)
		return;
	/* Adapters may still be on their way to it: it goes when they have come. */
	copy->failed = copy->draining = true;
	s->gpus[gpu].draining = true;
}

/*
 * What the driver says is in use, and we don't know of, others have taken. A report that was taken before the last
 * change, or so soon after that the driver may not have caught up with it, says nothing; one that is lower than the
 * books never makes memory free.
 */
static void memory_report(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	struct md_gpu *g = &s->gpus[e->gpu];
	uint64_t ours = g->artifacts + g->residues + g->kv;
	if (e->as_of < g->changed + s->options.report_lag_ns || g->transfers || g->leaving) {
		s->stats.reports_ignored++;
		return;
	}
	g->foreign = e->bytes > ours ? e->bytes - ours : 0;
}

/* What now fits on no GPU, lost ones included, never will. */
static void refuse_too_large(struct medusa_sched *s)
{
	for (uint32_t r = s->oldest_waiting, newer; r != NONE; r = newer) {
		newer = s->requests[r].newer;
		uint32_t function = s->requests[r].function;
		if (!fits_at_all(s, function, s->requests[r].kv_bytes))
			md_request_reject(s, r, MEDUSA_SCHED_NEVER_FITS);
	}
}

/* ---- functions -------------------------------------------------------------------------------------------------- */

static void function_gone(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	if (f->gone)
		return;
	f->gone = true;
	if (f->home != NONE)
		s->gpus[f->home].bound -= f->spec.weight_bytes + f->spec.context_bytes + f->spec.kv_bytes;
	for (uint32_t r = md_first_waiting(s, function), last = NONE; r != NONE && r != last;
	     r = md_first_waiting(s, function)) {
		last = r;
		md_request_reject(s, r, MEDUSA_SCHED_UNREGISTERED);
	}
	md_claim_drop(s, function);
	md_function_changed(s, function);
}

/* ---- a step ----------------------------------------------------------------------------------------------------- */

static int check_event(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	if (e->now < s->now)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->now is %llu, earlier than the event before (%llu)",
			       (unsigned long long)e->now, (unsigned long long)s->now);
	bool gpu = e->type == MEDUSA_SCHED_MEMORY_REPORT || e->type == MEDUSA_SCHED_MEMORY_LIMIT ||
		   e->type == MEDUSA_SCHED_GPU_LOST || e->type == MEDUSA_SCHED_GPU_BACK ||
		   e->type == MEDUSA_SCHED_BACKBONE_FAILED;
	if (gpu && e->gpu >= s->gpu_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "event->gpu is %u, but the node has only %u GPUs", e->gpu,
			       s->gpu_count);
	if (e->type == MEDUSA_SCHED_BACKBONE_FAILED && e->backbone >= s->backbone_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->backbone is %u, but only %u backbones are registered", e->backbone,
			       s->backbone_count);
	if (e->type == MEDUSA_SCHED_FUNCTION_GONE && e->function >= s->function_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->function is %u, but only %u functions are registered", e->function,
			       s->function_count);
	bool never = false;
	if (e->type == MEDUSA_SCHED_BATCH_FAILED || e->type == MEDUSA_SCHED_STARTED)
		md_batch_find(s, e->batch, &never);
	if (e->type == MEDUSA_SCHED_TRANSFER_DONE || e->type == MEDUSA_SCHED_TRANSFER_FAILED ||
	    e->type == MEDUSA_SCHED_EVICTED)
		md_transfer_find(s, e->transfer, &never);
	if (never)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event names batch or transfer %llu, which no action has named",
			       (unsigned long long)(e->batch | e->transfer));
	if (e->type < MEDUSA_SCHED_ARRIVAL || e->type > MEDUSA_SCHED_TIMER)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->type is %d, which is no enum medusa_sched_event_type", (int)e->type);
	return MEDUSA_SCHED_OK;
}

static int take_event(struct medusa_sched *s, const struct medusa_sched_event *e)
{
	bool never;
	uint32_t batch = md_batch_find(s, e->batch, &never);
	uint32_t transfer = md_transfer_find(s, e->transfer, &never);
	switch (e->type) {
	case MEDUSA_SCHED_ARRIVAL:
		return arrival(s, e);
	case MEDUSA_SCHED_CANCEL:
		cancel(s, find_request(s, e->request));
		break;
	case MEDUSA_SCHED_STARTED:
		if (batch != NONE)
			s->batches[batch].started = s->now;
		break;
	case MEDUSA_SCHED_FIRST_TOKEN:
		first_token(s, find_running(s, e));
		break;
	case MEDUSA_SCHED_DONE:
		done(s, find_running(s, e));
		break;
	case MEDUSA_SCHED_BATCH_FAILED:
		if (batch != NONE)
			md_batch_fail(s, batch, MEDUSA_SCHED_FAILED);
		break;
	case MEDUSA_SCHED_TRANSFER_DONE:
	case MEDUSA_SCHED_EVICTED:
		if (transfer != NONE)
			transfer_done(s, transfer);
		break;
	case MEDUSA_SCHED_TRANSFER_FAILED:
		if (transfer != NONE)
			transfer_failed(s, transfer);
		break;
	case MEDUSA_SCHED_MEMORY_REPORT:
		memory_report(s, e);
		break;
	case MEDUSA_SCHED_MEMORY_LIMIT:
		s->gpus[e->gpu].limit = e->bytes;
		refuse_too_large(s);
		break;
	case MEDUSA_SCHED_GPU_LOST:
		gpu_lost(s, e->gpu);
		break;
	case MEDUSA_SCHED_GPU_BACK:
		gpu_back(s, e->gpu);
		break;
	case MEDUSA_SCHED_BACKBONE_FAILED:
		backbone_failed(s, e->gpu, e->backbone);
		break;
	case MEDUSA_SCHED_FUNCTION_GONE:
		function_gone(s, e->function);
		break;
	case MEDUSA_SCHED_TIMER:
		break;
	}
	return MEDUSA_SCHED_OK;
}

static uint64_t expiry(const struct medusa_sched *s, uint32_t request)
{
	uint64_t arrived = s->requests[request].arrived;
	return arrived + s->options.max_wait_ns < arrived ? UINT64_MAX : arrived + s->options.max_wait_ns;
}

/* Requests whose time is over. */
static void expire(struct medusa_sched *s)
{
	uint32_t last = NONE;
	while (s->oldest_waiting != NONE && s->oldest_waiting != last && expiry(s, s->oldest_waiting) <= s->now) {
		last = s->oldest_waiting;
		md_request_reject(s, last, MEDUSA_SCHED_WAITED_TOO_LONG);
	}
}

static void ticks(struct medusa_sched *s)
{
	if (s->queueing->tick && s->now >= s->next_tick) {
		s->next_tick = s->now + s->queueing->period;
		s->queueing->tick(s);
	}
	while (s->holding.count && s->holding.items[0].key.minor <= s->now)
		md_function_changed(s, s->holding.items[0].index);
	while (s->idle.count && s->idle.items[0].key.minor <= s->now) {
		uint32_t function = s->idle.items[0].index;
		md_priority_remove(&s->idle, function);
		md_sweep(s, function);
	}
	if (s->preloading->plan && s->now >= s->next_preload) {
		s->next_preload = s->now + s->options.preload_period_ns;
		s->preloading->plan(s);
	}
}

static void set_timer(struct medusa_sched *s)
{
	uint64_t at = UINT64_MAX;
	if (s->oldest_waiting != NONE)
		at = expiry(s, s->oldest_waiting);
	if (s->holding.count && s->holding.items[0].key.minor < at)
		at = s->holding.items[0].key.minor;
	if (s->idle.count && s->idle.items[0].key.minor < at)
		at = s->idle.items[0].key.minor;
	if (s->queueing->tick && s->waiting && s->next_tick < at)
		at = s->next_tick;
	if (s->preloading->plan && s->next_preload < at)
		at = s->next_preload;
	if (s->retry_at > s->now && s->retry_at < at)
		at = s->retry_at;
	if (at == UINT64_MAX || at == s->timer)
		return;
	at = at > s->now ? at : s->now + 1;
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_SET_TIMER);
	if (!action)
		return;
	action->at = at;
	s->timer = at;
}

/* Nothing points into the arrays while they may still move. */
static void list_actions(struct medusa_sched *s)
{
	size_t offset = 0;
	for (size_t i = 0; i < s->action_count; i++) {
		s->action_list[i] = &s->actions[i];
		if (s->actions[i].type != MEDUSA_SCHED_RUN)
			continue;
		s->actions[i].requests = s->run_requests + offset;
		offset += s->actions[i].request_count;
	}
}

MD_EXPORT int medusa_sched_step(struct medusa_sched *s, const struct medusa_sched_event *given,
				const struct medusa_sched_action *const **actions, size_t *count)
{
	struct medusa_sched_event known, *event = &known;
	if (!s || !given || !actions || !count)
		return MEDUSA_SCHED_ERR_INVALID;
	*count = 0;
	if (!md_take_struct(given, sizeof(known), &known))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "event->size is not that of a struct medusa_sched_event, or fields that this library "
			       "does not know are set");
	s->action_count = s->run_request_count = 0;
	int code = check_event(s, event);
	if (code)
		return code;
	uint64_t before = s->now;
	s->now = event->now;
	if (s->timer <= s->now)
		s->timer = 0;
	code = take_event(s, event);
	if (code) {
		s->now = before;
		return code;
	}
	expire(s);
	ticks(s);
	md_dispatch(s);
	md_preload_next(s);
	set_timer(s);
	list_actions(s);
	*actions = s->action_list;
	*count = s->action_count;
	return MEDUSA_SCHED_OK;
}
