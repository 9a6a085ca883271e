/* SPDX-License-Identifier: Apache-2.0 */
/* A node that carries actions out, late, and now and then not at all, and checks what the scheduler says and asks for. */
#ifndef MD_TESTS_SCHEDULER_WORLD_H
#define MD_TESTS_SCHEDULER_WORLD_H

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "medusa/scheduler.h"
#include "tests/scheduler_draws.h"
#include "tests/scheduler_quotas.h"
#include "tests/scheduler_reality.h"

#define PENDING 4096
#define REQUESTS (1u << 20)

enum fate { NOT_YET, LIVES, SERVED, REFUSED };

struct pending {
	uint64_t at;
	struct medusa_sched_event event;
	uint32_t reads_from; /* GPU that the copy comes from */
	bool answers;        /* an abort: what is asked for is stopped now */
};

struct world {
	struct medusa_sched *sched;
	uint32_t gpus, functions, backbones;
	struct quotas quotas;
	uint64_t limit[8], given[8]; /* bytes that the actions so far have put on each GPU, by this side's own count */
	bool lost[8], drained[8];
	bool changed; /* some function was */
	struct pending pending[PENDING];
	size_t pending_count;
	struct reality reality;
	uint64_t asked[PENDING];  /* transfers that were asked to stop */
	bool odd[REALITY_OWNERS]; /* functions that have died, or of which something was told to lie somewhere */
	size_t asked_count;
	uint64_t now, timer, next_request, live;
	uint8_t fates[REQUESTS];
	uint64_t batch_of[REQUESTS], arrived[REQUESTS], kv[REQUESTS], deadline[REQUESTS];
	bool aborting[REQUESTS], strayed[REQUESTS];
	struct medusa_sched_function specs[REALITY_OWNERS];
	uint64_t max_wait, events;
	unsigned faults; /* per thousand */
	unsigned lossy;  /* of a thousand ends, so many are not reported, or do not come */
};

static struct world world;
static uint64_t joins; /* requests, in all worlds */

static void pend(struct pending pending)
{
	cr_assert_lt(world.pending_count, PENDING, "the test's own queue is full");
	world.pending[world.pending_count++] = pending;
}

static void later(uint64_t at, struct medusa_sched_event event)
{
	pend((struct pending){at, event, MEDUSA_SCHED_NONE, false});
}

/* Without faults nobody waits longer than that; the test's own clock is late now and then. */
static void check_wait(uint64_t request, const char *what)
{
	cr_assert(world.faults || world.lossy || world.now - world.arrived[request] <= world.max_wait + SECOND,
		  "request %llu %s after %llu ms", (unsigned long long)request, what,
		  (unsigned long long)((world.now - world.arrived[request]) / 1000000));
}

/* Whether an end of something is not reported. */
static bool lost(void)
{
	return draw(1000) < world.lossy;
}

/* Requests join a batch that runs: all that it needs is there, and it has not failed or been stopped. */
static void check_join(const struct medusa_sched_action *a)
{
	uint32_t there = 0;
	bool found = false;
	cr_assert(world.specs[a->function].continuous, "function %u does not take requests while it runs", a->function);
	cr_assert_eq(a->transfer_count, 0, "requests join a batch that is loading");
	for (size_t i = 0; i < world.reality.running_count; i++) {
		const struct running *r = &world.reality.running[i];
		if (r->batch != a->batch)
			continue;
		cr_assert(r->function == a->function && r->gpu == a->gpu, "a join names another batch");
		found |= world.batch_of[r->request] == a->batch;
		there++;
	}
	/* what has ended unheard is still in the scheduler's books */
	cr_assert(found || world.lossy, "requests join a batch that does not run");
	cr_assert(!world.drained[a->gpu], "requests join a batch on GPU %u, which is drained", a->gpu);
	cr_assert(there + a->request_count <= world.specs[a->function].max_batch || world.changed ||
		      !world.specs[a->function].max_batch,
		  "%u requests run in a batch of %u", there + a->request_count, world.specs[a->function].max_batch);
	joins += a->request_count;
}

static void run_batch(const struct medusa_sched_action *a)
{
	uint64_t start = world.now + draw(50000000);
	cr_assert(!world.lost[a->gpu], "a batch is sent to GPU %u, which is lost", a->gpu);
	for (uint32_t t = 0; t < a->transfer_count; t++)
		for (size_t i = 0; i < world.asked_count && i < PENDING; i++)
			cr_assert_neq(a->transfers[t], world.asked[i], "a run counts on a transfer that is late");
	reality_run(&world.reality, a, world.kv, !world.lossy);
	if (!world.lossy)
		quotas_start(&world.quotas, &world.reality, a);
	for (uint32_t i = 0; i < a->request_count; i++) {
		/* One whose batch has failed comes again. */
		cr_assert(world.fates[a->requests[i]] == LIVES, "request %llu runs, and has ended",
			  (unsigned long long)a->requests[i]);
		world.batch_of[a->requests[i]] = a->batch;
		world.aborting[a->requests[i]] = world.strayed[a->requests[i]] = false;
		cr_assert(!world.deadline[a->requests[i]] || world.now < world.deadline[a->requests[i]],
			  "request %llu starts after its deadline", (unsigned long long)a->requests[i]);
		check_wait(a->requests[i], "starts");
	}
	if (draw(1000) < world.faults) {
		later(start, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .batch = a->batch});
		return;
	}
	for (uint32_t i = 0; i < a->request_count; i++) {
		if (lost())
			continue; /* it hangs */
		struct medusa_sched_event e = {
		    .type = MEDUSA_SCHED_EVENT_FIRST_TOKEN, .request = a->requests[i], .batch = a->batch};
		later(start, e);
		e.type = MEDUSA_SCHED_EVENT_DONE;
		later(start + 1 + draw(200000000), e);
	}
}

/* Nothing of a function is sent to a GPU beyond its max_replicas. */
static void check_replicas(const struct medusa_sched_action *a)
{
	bool own = a->artifact == MEDUSA_SCHED_CLASS_WEIGHTS || a->artifact == MEDUSA_SCHED_CLASS_CONTEXT;
	uint32_t others = 0, most = own ? world.specs[a->function].max_replicas : 0;
	if (!most || world.odd[a->function] || a->gpu == MEDUSA_SCHED_NONE ||
	    reality_has(&world.reality, a->gpu, &world.specs[a->function], a->function))
		return;
	for (uint32_t gpu = 0; gpu < world.gpus; gpu++)
		others += !world.lost[gpu] && !world.drained[gpu] &&
			  reality_has(&world.reality, gpu, &world.specs[a->function], a->function);
	cr_assert_lt(others, most, "function %u is on %u GPUs, and goes to another one", a->function, others);
}

static void transfer(const struct medusa_sched_action *a)
{
	enum medusa_sched_event_type type = MEDUSA_SCHED_EVENT_TRANSFER_DONE;
	if (a->type == MEDUSA_SCHED_ACTION_EVICT || a->type == MEDUSA_SCHED_ACTION_OFFLOAD)
		type = MEDUSA_SCHED_EVENT_EVICTED;
	if (draw(1000) < world.faults)
		type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED; /* an eviction may fail as well */
	if (!reality_leaves(a->type))
		check_replicas(a);
	reality_begin(&world.reality, a);
	cr_assert(a->gpu == MEDUSA_SCHED_NONE || !world.lost[a->gpu], "a copy to or from GPU %u, which is lost",
		  a->gpu);
	if (a->transfer && !lost()) /* else it hangs */
		pend((struct pending){world.now + 1 + draw(300000000),
				      {.type = type, .transfer = a->transfer},
				      a->source == MEDUSA_SCHED_SOURCE_PEER ? a->peer : MEDUSA_SCHED_NONE,
				      false});
}

/* Asked to stop something: the answer comes, unless it is lost as well. */
static void answer_abort(const struct medusa_sched_action *a)
{
	struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED, .transfer = a->transfer};
	if (a->transfer)
		world.asked[world.asked_count++ % PENDING] = a->transfer;
	if (!a->transfer) {
		cr_assert(a->batch, "an abort names neither a run nor a transfer");
		e = (struct medusa_sched_event){
		    .type = MEDUSA_SCHED_EVENT_DONE, .request = a->request, .batch = a->batch};
		world.aborting[a->request] |= a->reason != MEDUSA_SCHED_REASON_TIMED_OUT;
		world.strayed[a->request] |=
		    a->reason == MEDUSA_SCHED_REASON_TIMED_OUT && world.batch_of[a->request] == a->batch;
	}
	pend((struct pending){world.now + draw(50000000), e, MEDUSA_SCHED_NONE, true});
}

static void take_actions(const struct medusa_sched_action *const *actions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct medusa_sched_action *a = actions[i];
		switch (a->type) {
		case MEDUSA_SCHED_ACTION_JOIN:
			check_join(a);
			run_batch(a);
			break;
		case MEDUSA_SCHED_ACTION_RUN:
			run_batch(a);
			break;
		case MEDUSA_SCHED_ACTION_SWAP_IN:
		case MEDUSA_SCHED_ACTION_PRELOAD:
		case MEDUSA_SCHED_ACTION_EVICT:
		case MEDUSA_SCHED_ACTION_OFFLOAD:
			transfer(a);
			break;
		case MEDUSA_SCHED_ACTION_REJECT:
			cr_assert(world.fates[a->request] == LIVES, "request %llu is refused, and has ended",
				  (unsigned long long)a->request);
			world.fates[a->request] = REFUSED;
			check_wait(a->request, "is refused");
			quotas_end(&world.quotas, a->request);
			world.live--;
			break;
		case MEDUSA_SCHED_ACTION_ABORT:
			answer_abort(a);
			break;
		case MEDUSA_SCHED_ACTION_SET_TIMER:
			cr_assert_gt(a->at, world.now, "a timer is set for the past");
			world.timer = a->at;
			break;
		}
	}
}

static void check_memory(void)
{
	for (uint32_t gpu = 0; gpu < world.gpus; gpu++) {
		struct medusa_sched_gpu_state g = {.size = sizeof(g)};
		cr_assert_eq(medusa_sched_gpu_get(world.sched, gpu, &g), 0);
		uint64_t used = g.artifact_bytes + g.residue_bytes + g.kv_bytes;
		/* What was given before others took memory stays given; nothing new may come while it is too much. */
		uint64_t bound = g.limit_bytes > g.foreign_bytes ? g.limit_bytes - g.foreign_bytes : 0;
		cr_assert(used <= bound || used <= world.given[gpu], "GPU %u: %llu bytes in use, %llu before, of %llu",
			  gpu, (unsigned long long)used, (unsigned long long)world.given[gpu],
			  (unsigned long long)bound);
		world.given[gpu] = used;
		/* whatever really lies there, or may lie there, is in the books: nothing is handed out twice */
		const struct reality *r = &world.reality;
		cr_assert(r->kv[gpu] <= g.kv_bytes && r->artifacts[gpu] <= g.artifact_bytes + g.residue_bytes,
			  "GPU %u: %llu bytes of KV cache and %llu of artifacts are there, %llu and %llu in the books",
			  gpu, (unsigned long long)r->kv[gpu], (unsigned long long)r->artifacts[gpu],
			  (unsigned long long)g.kv_bytes, (unsigned long long)(g.artifact_bytes + g.residue_bytes));
	}
}

/* Requests that ended by an event, and not by a rejection: served, or aborted. */
static uint64_t ended(void)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	medusa_sched_stats_get(world.sched, &stats);
	return stats.served + stats.cancelled;
}

static uint64_t rejected_as_cancelled(const struct medusa_sched_action *const *actions, size_t count)
{
	uint64_t rejected = 0;
	for (size_t i = 0; i < count; i++)
		rejected +=
		    actions[i]->type == MEDUSA_SCHED_ACTION_REJECT &&
		    (actions[i]->reason == MEDUSA_SCHED_REASON_CANCELLED || world.aborting[actions[i]->request]);
	return rejected;
}

/* What the event says has really happened. */
static void happen(const struct medusa_sched_event *e)
{
	struct reality *r = &world.reality;
	if (e->type == MEDUSA_SCHED_EVENT_DONE)
		reality_request_ends(r, e->request, e->batch);
	else if (e->type == MEDUSA_SCHED_EVENT_BATCH_FAILED)
		reality_batch_ends(r, e->batch);
	else if (e->type == MEDUSA_SCHED_EVENT_GPU_LOST)
		reality_gpu_lost(r, e->gpu);
	else if (e->type == MEDUSA_SCHED_EVENT_BACKBONE_FAILED)
		reality_backbone_failed(r, e->gpu, e->backbone);
	else if (e->type == MEDUSA_SCHED_EVENT_FUNCTION_FAILED)
		reality_function_failed(r, e->gpu, e->function);
	else if (e->transfer)
		reality_transfer_ends(r, e->transfer, e->type == MEDUSA_SCHED_EVENT_TRANSFER_FAILED);
}

static void step(struct medusa_sched_event event)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	uint64_t before = ended();
	event.now = world.now;
	event.size = sizeof(event);
	happen(&event);
	reality_heard(&world.reality, event.transfer);
	int code = medusa_sched_step(world.sched, &event, &actions, &count);
	cr_assert_eq(code, 0, "event %d: %s", event.type, medusa_sched_error(world.sched));
	uint64_t by_event = ended() - before - rejected_as_cancelled(actions, count);
	cr_assert_leq(by_event, event.type == MEDUSA_SCHED_EVENT_DONE, "event %d ends %llu requests", event.type,
		      (unsigned long long)by_event);
	if (by_event) {
		cr_assert_eq(world.fates[event.request], LIVES, "a request is served twice");
		world.fates[event.request] = SERVED;
		quotas_end(&world.quotas, event.request);
		world.live--;
	}
	take_actions(actions, count);
	check_memory();
	if (!world.lossy && world.events % 16 == 0)
		quotas_compare(&world.quotas, &world.reality, world.sched);
	if (world.events++ % 64 == 0)
		cr_assert_eq(medusa_sched_audit(world.sched), 0, "after event %d: %s", event.type,
			     medusa_sched_error(world.sched));
}

#endif
