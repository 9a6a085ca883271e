/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which function runs next, where, and how many of its requests: asks the policies, and lets no waiting
 * function block the others for ever.
 */
#include <stdlib.h>

#include "scheduler/core/action.h"
#include "scheduler/core/backbone.h"
#include "scheduler/core/batch.h"
#include "scheduler/core/books.h"
#include "scheduler/core/claims.h"
#include "scheduler/core/company.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/join.h"
#include "scheduler/core/keep.h"
#include "scheduler/core/replicas.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/stuck.h"
#include "scheduler/core/tenant.h"
#include "scheduler/core/transfer.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

#define SKIP 16  /* at most this many functions that cannot start now are passed over in one step */
#define JOINS 64 /* likewise, functions whose requests cannot join now */

/* ---- who may run ------------------------------------------------------------------------------------------------ */

/*
 * Puts the function by its first request. Whose turn it is may have changed since its requests were arranged: a place by
 * the turn of a tenant that has had much meanwhile would be too late for the others, and perhaps for ever.
 */
static void place(struct medusa_sched *s, struct md_priority *queue, uint32_t function)
{
	if (md_has_tenants(s))
		md_tenants_arrange(s, function);
	int32_t rank = s->requests[md_first_waiting(s, function)].rank;
	md_priority_put_turn(queue, function, md_tenant_turn(s, function), rank, s->queueing->key(s, function));
}

void md_function_ready(struct medusa_sched *s, uint32_t function)
{
	place(s, &s->ready, function);
}

static void put_joining(struct medusa_sched *s, uint32_t function)
{
	place(s, &s->joins, function);
}

/*
 * A continuous function has one batch on a GPU. It starts no other while one with room is loading, because that one
 * takes its requests sooner.
 */
static bool may_start(const struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	if (f->batches >= f->spec.max_parallel)
		return false;
	return !f->spec.continuous || (f->batches < s->gpu_count && !md_join_loads(s, function));
}

/* How many requests begin together; 0: more are waited for. Engines that batch by themselves take all that there are. */
static uint32_t batch_size(struct medusa_sched *s, uint32_t function, uint64_t *until)
{
	const struct medusa_sched_function *spec = &s->functions[function].spec;
	return spec->continuous ? spec->max_batch : s->batching->size(s, function, until);
}

/* Puts it where it belongs, if it waits and claims no memory. */
static void stand(struct medusa_sched *s, uint32_t function)
{
	uint64_t until = s->now + 1;
	if (md_joinable(s, function, NONE))
		put_joining(s, function);
	if (!may_start(s, function))
		return;
	if (batch_size(s, function, &until))
		md_function_ready(s, function);
	else
		md_priority_put(&s->holding, function, (struct md_key){0, until > s->now ? until : s->now + 1});
}

void md_function_step_aside(struct medusa_sched *s, uint32_t function)
{
	md_priority_remove(&s->ready, function);
	md_priority_remove(&s->joins, function);
	md_priority_remove(&s->holding, function);
	s->functions[function].stuck = false;
}

void md_function_changed(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	md_sort_waiting(s, function);
	/* a claim of room for a further batch is of no use while one that runs has room, or while none may start */
	bool joins = md_joinable(s, function, NONE);
	bool useless = joins ? f->claim != NONE && !md_joinable(s, function, f->claim) : !may_start(s, function);
	if (!md_waiting(s, function) || useless)
		md_claim_drop(s, function);
	if (!md_waiting(s, function))
		md_company_left(s, function);
	if (f->gone && !f->batches) {
		md_sweep(s, function);
		md_backbone_unused(s, f->spec.backbone);
	}
	bool idle = !md_waiting(s, function) && !f->batches && f->spec.keep_alive_ns && !f->gone;
	if (!idle)
		md_priority_remove(&s->idle, function);
	else if (!md_priority_has(&s->idle, function))
		md_priority_put(&s->idle, function, (struct md_key){0, s->now + f->spec.keep_alive_ns});
	md_function_step_aside(s, function);
	if (md_waiting(s, function) && f->claim == NONE)
		stand(s, function);
}

/* ---- where it may run ---------------------------------------------------------------------------------------------- */

bool md_has_place(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	uint32_t first = md_first_waiting(s, function);
	uint64_t kv = first == NONE ? 0 : s->requests[first].kv_bytes;
	return md_gpu_open(s, gpu) && md_replica_may(s, function, gpu) && !md_join_hangs(s, function, gpu) &&
	       (!s->placement->bound || s->functions[function].home == gpu) &&
	       md_fits_empty(s, function, gpu, kv + g->foreign + md_keep_beside(s, function, gpu));
}

static bool could_fit(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	return md_has_place(s, function, gpu) && (!md_company_ruled(s) || md_company_fits(s, function, gpu));
}

/*
 * Whether others have to leave before, or it has to leave for another one: it stands nowhere until company.h tries again.
 * Nobody leaves for what has no place in any case.
 */
static bool is_held(struct medusa_sched *s, uint32_t function)
{
	bool place = false;
	for (uint32_t gpu = 0; md_company_ruled(s) && !place && gpu < s->gpu_count; gpu++)
		place = md_has_place(s, function, gpu);
	return place && md_company_waits(s, function);
}

/* ---- starting a batch ------------------------------------------------------------------------------------------- */

enum outcome { RAN, NO_SLOT, CLAIMED, STUCK, HELD };

bool md_library_ready(struct medusa_sched *s, uint32_t function)
{
	uint32_t library = s->functions[function].artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	if (library != NONE && s->artifacts[library].host == MD_LOADING)
		return !s->transfers[s->artifacts[library].host_transfer].late;
	return library == NONE || s->artifacts[library].host != MD_ABSENT ||
	       md_host_room(s, s->artifacts[library].bytes, function);
}

/*
 * Sends for the artifacts that are missing. A cold weight is also given a place in host memory, if idle ones can be
 * evicted there.
 */
bool md_send_missing(struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer, bool ahead)
{
	const struct md_function *f = &s->functions[function];
	uint32_t library = f->artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	if (library != NONE && s->artifacts[library].host == MD_ABSENT &&
	    (!md_library_ready(s, function) || !md_send_for(s, library, NONE, NONE, ahead)))
		return false;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = f->artifacts[kind];
		if (artifact == NONE)
			continue;
		int state = md_copy_at(s, artifact, gpu)->state;
		if (state == MD_THERE || state == MD_LOADING)
			continue;
		if (kind != MEDUSA_SCHED_CLASS_CONTEXT && s->artifacts[artifact].host == MD_ABSENT)
			md_host_room(s, s->artifacts[artifact].bytes, function);
		if (!md_send_for(s, artifact, gpu, peer, ahead))
			return false;
	}
	return true;
}

/* The oldest claim, which is first then, has had its turn. */
static void count_start(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	bool turn = g->starts >= MD_OLDEST_TURN && g->claim_count && g->claims[0] == function;
	g->starts = turn ? 0 : g->starts + 1;
	if (s->functions[function].claim == gpu)
		g->served_at = s->now;
	s->dispatches++;
}

static enum outcome run(struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer, uint32_t count)
{
	if (!md_action_room(s, 1, count))
		return STUCK;
	uint32_t batch = md_batch_create(s, function, gpu);
	if (batch == NONE)
		return STUCK;
	if (!md_send_missing(s, function, gpu, peer, false) || !md_action_room(s, 1, 0)) {
		md_batch_end(s, batch);
		return STUCK;
	}
	md_batch_take(s, batch, count);
	struct medusa_sched_action *action = md_act(s, MEDUSA_SCHED_ACTION_RUN);
	action->batch = s->batches[batch].id;
	action->function = function;
	action->gpu = gpu;
	action->request_count = s->batches[batch].requests.count;
	for (uint32_t r = s->batches[batch].requests.head; r != NONE; r = s->requests[r].next)
		s->run_requests[s->run_request_count++] = s->requests[r].id;
	md_action_transfers(s, action);
	s->stats.runs++;
	count_start(s, function, gpu);
	md_company_left(s, function);
	md_claim_drop(s, function);
	return RAN;
}

static enum outcome start(struct medusa_sched *s, uint32_t function, struct md_choice choice)
{
	uint64_t until = 0, missing = md_missing_bytes(s, function, choice.gpu), kv_bytes;
	uint32_t most = batch_size(s, function, &until);
	uint32_t together = md_backbone_room(s, function, choice.gpu);
	most = most < together ? most : together;
	most = most ? most : 1;
	if (!md_library_ready(s, function))
		return STUCK;
	md_count_that_fit(s, function, most, INT64_MAX, &kv_bytes);
	if (!md_make_room(s, choice.gpu, missing + kv_bytes, function))
		md_make_room(s, choice.gpu, md_needed_bytes(s, function, choice.gpu), function);
	int64_t room = md_free_bytes(s, choice.gpu) - (int64_t)missing;
	uint32_t count = room < 0 ? 0 : md_count_that_fit(s, function, most, room, &kv_bytes);
	if (count && md_make_place(s, choice.gpu, function))
		return run(s, function, choice.gpu, choice.peer, count);
	if (s->functions[function].claim != NONE)
		return CLAIMED;
	return md_claim_put(s, function, choice.gpu) ? CLAIMED : STUCK;
}

/* Whether a function of the same tenant claims the GPU already. */
static bool has_claimed(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	uint32_t tenant = md_first_tenant(s, function);
	bool claimed = false;
	for (uint32_t i = 0; i < g->claim_count && !claimed; i++)
		claimed = md_first_tenant(s, g->claims[i]) == tenant;
	return claimed;
}

/*
 * A GPU that has memory for the function and no slot, because all are taken by engines that requests may join for ever.
 * NONE: there is none, or the function need not wait for that, or another one has claimed it already.
 */
static uint32_t slot_to_claim(struct medusa_sched *s, uint32_t function)
{
	uint32_t best = NONE;
	for (uint32_t gpu = 0; s->continuous && gpu < s->gpu_count; gpu++) {
		if (!could_fit(s, function, gpu) || !md_fits(s, function, gpu))
			continue;
		if (md_slot_free(s, gpu))
			return NONE; /* it waits for its turn there */
		if (md_has_tenants(s) && md_join_batch(s, function, gpu) != NONE)
			continue; /* its engine has a slot there already */
		bool endless = !has_claimed(s, function, gpu);
		for (uint32_t b = s->gpus[gpu].first_batch; endless && b != NONE; b = s->batches[b].newer)
			endless = s->functions[s->batches[b].function].spec.continuous;
		best = endless && best == NONE ? gpu : best;
	}
	return best;
}

static enum outcome wait_for_slot(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = slot_to_claim(s, function);
	return gpu != NONE && md_claim_put(s, function, gpu) ? CLAIMED : NO_SLOT;
}

/* No other GPU takes a further batch of the function, whose batch has room for requests: what is it that is missing? */
static enum outcome wait_for_join(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = NONE;
	enum md_join joined = md_join(s, function, &gpu);
	if (joined == MD_JOIN_LACKS_MEMORY)
		return md_claim_put(s, function, gpu) ? CLAIMED : STUCK;
	return joined == MD_JOINED ? RAN : NO_SLOT;
}

/* As many GPUs have it as may, and its first request fits on none of them: what is idle there goes, for a GPU with room. */
static void make_way(struct medusa_sched *s, uint32_t function)
{
	for (uint32_t gpu = 0; s->functions[function].spec.max_replicas && gpu < s->gpu_count; gpu++)
		if (md_gpu_open(s, gpu) && md_replica_at(s, function, gpu) && !could_fit(s, function, gpu))
			md_sweep_gpu(s, function, gpu);
}

/* No GPU with a free slot can take the function: finds out whether a slot or memory is missing. */
static enum outcome wait_for_memory(struct medusa_sched *s, uint32_t function)
{
	uint32_t best = NONE;
	if (md_joinable(s, function, NONE))
		return wait_for_join(s, function);
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (md_join_batch(s, function, gpu) != NONE)
			return wait_for_slot(s, function); /* for that batch's next end */
		if (!could_fit(s, function, gpu))
			continue;
		if (md_fits(s, function, gpu))
			return wait_for_slot(s, function);
		const struct md_gpu *g = &s->gpus[gpu], *b = best == NONE ? NULL : &s->gpus[best];
		if (!b || g->claim_count < b->claim_count || (g->claim_count == b->claim_count && g->held < b->held))
			best = gpu;
	}
	if (best == NONE)
		make_way(s, function);
	if (best == NONE && md_company_ruled(s) && s->functions[function].batches)
		return NO_SLOT; /* for another replica others would have to leave: its own batch ends, or they do */
	return best != NONE && md_claim_put(s, function, best) ? CLAIMED : STUCK;
}

/* ---- a pass ----------------------------------------------------------------------------------------------------- */

static void drain_for_first(struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	if (s->eviction->drains && g->claim_count)
		md_drain_for(s, gpu, md_needed_bytes(s, g->claims[0], gpu), g->claims[0]);
}

/* The first claim of the GPU is for requests that wait to join a batch there; CLAIMED: they still do. */
static enum outcome serve_joining_claim(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint32_t there = gpu;
	enum md_join joined = md_join(s, function, &there);
	if (joined == MD_JOIN_LACKS_MEMORY)
		return CLAIMED;
	md_claim_drop(s, function);
	md_function_changed(s, function);
	drain_for_first(s, gpu);
	return joined == MD_JOINED ? RAN : NO_SLOT;
}

static void serve_claims(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	while (g->claim_count) {
		md_claims_rank(s, gpu);
		uint32_t function = g->claims[0];
		if (is_held(s, function)) {
			md_claim_drop(s, function);
			drain_for_first(s, gpu);
			continue; /* company.h tries it again */
		}
		if (!could_fit(s, function, gpu)) {
			md_claim_drop(s, function);
			md_function_changed(s, function);
			continue;
		}
		struct md_choice choice = {gpu, NONE};
		if (md_join_batch(s, function, gpu) != NONE) {
			if (serve_joining_claim(s, function, gpu) == CLAIMED)
				return;
			continue;
		}
		if (!md_slot_free(s, gpu) || !md_fits(s, function, gpu)) {
			md_make_room(s, gpu, md_needed_bytes(s, function, gpu), function);
			s->look++;
			choice = s->placement->choose(s, function);
			if (choice.gpu == NONE)
				return;
		} else {
			choice.peer = md_best_peer(s, function, gpu);
		}
		if (start(s, function, choice) != RAN)
			return;
		md_function_changed(s, function);
		drain_for_first(s, gpu);
	}
}

/*
 * Keys may change as time passes: the key of the first one is computed again until it stays first, and so is that of
 * the one that has waited longest.
 */
static uint32_t first_of(struct medusa_sched *s, const struct md_priority *queue,
			 void (*put)(struct medusa_sched *s, uint32_t function))
{
	uint32_t oldest = s->oldest_waiting == NONE ? NONE : s->requests[s->oldest_waiting].function;
	if (oldest != NONE && md_priority_has(queue, oldest))
		put(s, oldest);
	for (;;) {
		struct md_priority_item first = queue->items[0];
		md_sort_waiting(s, first.index);
		struct md_key key = s->queueing->key(s, first.index);
		bool turn = md_tenant_turn(s, first.index) <= first.turn;
		if (turn && key.major == first.key.major && key.minor == first.key.minor)
			return first.index;
		put(s, first.index);
		if (queue->items[0].index == first.index)
			return first.index;
	}
}

/* Excludes the function for the rest of this step, even if a failure has put it back into the queue. */
static void set_aside(struct medusa_sched *s, uint32_t function)
{
	md_priority_remove(&s->ready, function);
	md_stuck_put(s, function);
}

/* Computes the keys of all that are ready anew; blocked is in use up to `from`. */
static void rank_ready(struct medusa_sched *s, uint32_t from)
{
	uint32_t count = s->ready.count, *functions = s->blocked + from;
	if (!(s->queueing->traits & MD_QUEUEING_BY_LOAD))
		return;
	for (uint32_t i = 0; i < count; i++)
		functions[i] = s->ready.items[i].index;
	for (uint32_t i = 0; i < count; i++)
		md_function_ready(s, functions[i]);
}

/* A function whose engines are full again claims a slot as before, and does so before others join theirs. */
static void claim_again(struct medusa_sched *s, uint32_t function)
{
	if (!md_has_tenants(s) || !md_priority_has(&s->ready, function) || md_joinable(s, function, NONE))
		return;
	uint32_t gpu = slot_to_claim(s, function);
	if (gpu != NONE)
		md_claim_put(s, function, gpu);
}

/* Requests join engines that run, which needs no slot. */
static void serve_joins(struct medusa_sched *s)
{
	uint32_t passed = 0, aside = 0;
	while (s->joins.count && passed < JOINS) {
		uint32_t function = first_of(s, &s->joins, put_joining), gpu = NONE;
		md_priority_remove(&s->joins, function);
		enum md_join joined = md_join(s, function, &gpu);
		if (joined == MD_JOINED) {
			md_function_changed(s, function);
			claim_again(s, function);
		} else if (joined != MD_JOIN_LACKS_MEMORY || may_start(s, function) ||
			   !md_claim_put(s, function, gpu)) {
			s->blocked[aside++] = function;
			passed += joined != MD_JOIN_FULL;
		}
	}
	while (aside > 0)
		put_joining(s, s->blocked[--aside]);
}

static void serve_ready(struct medusa_sched *s)
{
	uint32_t passed = 0, limit = s->placement->bound ? s->function_count : SKIP;
	s->look++;
	if (s->free_slots)
		rank_ready(s, 0);
	/* without a free slot, there may still be one to claim */
	while ((s->free_slots || s->continuous) && s->ready.count && passed < limit) {
		uint32_t function = first_of(s, &s->ready, md_function_ready);
		md_priority_remove(&s->ready, function);
		enum outcome outcome = HELD;
		if (!is_held(s, function)) {
			struct md_choice choice = s->placement->choose(s, function);
			outcome = choice.gpu == NONE ? wait_for_memory(s, function) : start(s, function, choice);
			s->look += choice.gpu != NONE;
		}
		if (outcome == RAN) {
			md_function_changed(s, function);
			rank_ready(s, passed);
		} else if (outcome == NO_SLOT) {
			s->blocked[passed++] = function;
		} else if (outcome == STUCK) {
			md_company_left(s, function); /* others do not wait for it any longer */
			set_aside(s, function);
		}
	}
	while (passed > 0) {
		uint32_t function = s->blocked[--passed];
		md_function_ready(s, function);
	}
}

/* Batches that fill while another batch computes may start now. */
static void look_at_holding(struct medusa_sched *s)
{
	uint32_t count = 0;
	s->look_again = false;
	for (uint32_t i = 0; i < s->holding.count; i++)
		s->blocked[count++] = s->holding.items[i].index;
	while (count > 0)
		md_function_changed(s, s->blocked[--count]);
}

void md_dispatch(struct medusa_sched *s)
{
	if (s->look_again && s->holding.count)
		look_at_holding(s);
	bool waits = false;
	if (md_company_ruled(s) || s->company.waiting_count)
		md_company_again(s);
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (md_free_bytes(s, gpu) < 0)
			md_shrink(s, gpu);
		if (s->gpus[gpu].grown)
			md_batches_shrink(s, gpu);
		if (s->gpus[gpu].closed)
			md_empty(s, gpu);
		if (s->gpus[gpu].draining)
			md_drained(s, gpu);
		if (s->gpus[gpu].claim_count)
			serve_claims(s, gpu);
	}
	if (s->joins.count)
		serve_joins(s);
	serve_ready(s);
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		waits |= s->gpus[gpu].claim_count > 0;
	waits |= s->company.waiting_count > 0;
	/* idle copies may become evictable later, and claims that wait long block others */
	s->retry_at = waits ? s->now + 1000000000u : 0;
}
