/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler under random events, policies and faults: books balance, no memory is given twice,
 * every request ends. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "medusa/scheduler.h"
#include "tests/scheduler_draws.h"
#include "tests/scheduler_quotas.h"
#include "tests/scheduler_reality.h"

#define PENDING 4096
#define REQUESTS (1u << 20)

/* ---- a node that carries actions out, late, and now and then not at all ----------------------------------------- */

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

/* ---- what happens ----------------------------------------------------------------------------------------------- */

static void arrive(void)
{
	struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_ARRIVAL,
				       .request = world.next_request++,
				       .function = (uint32_t)draw(world.functions),
				       .kv_bytes = draw(20) ? draw(2 * GB) : draw(100 * GB),
				       .tokens = draw(3) ? draw(1000) : 0,
				       .deadline = draw(4) ? 0 : world.now + draw(2 * SECOND),
				       .priority = draw(4) ? 0 : (int32_t)draw(5) - 2,
				       .tenant = (uint32_t)draw(world.quotas.count)};
	world.kv[e.request] = e.kv_bytes;
	world.deadline[e.request] = e.deadline;
	world.fates[e.request] = LIVES;
	world.arrived[e.request] = world.now;
	world.live++;
	bool full = quotas_arrive(&world.quotas, &world.reality, e.request, e.tenant);
	step(e);
	cr_assert(!full || world.lossy || world.fates[e.request] == REFUSED, "a request beyond its quota is taken");
}

/* The KV cache of something that runs grows or shrinks, as far as there is room for it, or somewhat beyond that. */
static void change_kv(void)
{
	struct reality *r = &world.reality;
	if (!r->running_count)
		return;
	struct running *run = &r->running[draw(r->running_count)];
	struct medusa_sched_event e = {
	    .type = MEDUSA_SCHED_EVENT_KV_CHANGED, .request = run->request, .batch = run->batch};
	e.kv_bytes = draw(4) ? draw(2 * GB) : run->kv + draw(20 * GB);
	bool counts = world.fates[run->request] == LIVES && world.batch_of[run->request] == run->batch;
	if (!counts || world.strayed[run->request])
		return; /* nobody hears of what a stray takes */
	r->kv[run->gpu] += e.kv_bytes - run->kv;
	world.kv[run->request] = run->kv = e.kv_bytes;
	world.given[run->gpu] = UINT64_MAX; /* it may outgrow the GPU */
	step(e);
}

/* Something lies where there is room for it, as after a restart. */
static void tell_resident(void)
{
	uint32_t gpu = (uint32_t)draw(world.gpus), f = (uint32_t)draw(world.functions);
	const struct medusa_sched_function *spec = &world.specs[f];
	struct medusa_sched_gpu_state g = {.size = sizeof(g)};
	struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_RESIDENT, .gpu = gpu, .function = f};
	e.artifact = draw(2) ? MEDUSA_SCHED_CLASS_WEIGHTS : MEDUSA_SCHED_CLASS_CONTEXT;
	uint64_t bytes = e.artifact == MEDUSA_SCHED_CLASS_WEIGHTS ? spec->weight_bytes : spec->context_bytes;
	medusa_sched_gpu_get(world.sched, gpu, &g);
	uint64_t used = g.artifact_bytes + g.residue_bytes + g.kv_bytes + g.foreign_bytes + bytes;
	if (!bytes || world.lost[gpu] || used > g.limit_bytes || world.reality.lies[gpu][e.artifact][f] || world.lossy)
		return;
	world.odd[f] = true;
	world.reality.whole[e.artifact][f] = bytes;
	reality_lies(&world.reality, gpu, e.artifact, f, bytes);
	step(e);
}

/* A request runs already, if its function is there: the answer is its run. */
static void tell_running(void)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	struct medusa_sched_event e = {.size = sizeof(e),
				       .type = MEDUSA_SCHED_EVENT_RUNNING,
				       .now = world.now,
				       .request = world.next_request,
				       .function = (uint32_t)draw(world.functions),
				       .gpu = (uint32_t)draw(world.gpus),
				       .kv_bytes = 1 + draw(GB),
				       .tenant = (uint32_t)draw(world.quotas.count)};
	if (medusa_sched_step(world.sched, &e, &actions, &count)) {
		cr_assert_eq(medusa_sched_audit(world.sched), 0, "%s", medusa_sched_error(world.sched));
		return;
	}
	world.next_request++;
	world.fates[e.request] = LIVES;
	world.arrived[e.request] = world.now;
	world.kv[e.request] = e.kv_bytes;
	world.live++;
	quotas_arrive(&world.quotas, &world.reality, e.request, e.tenant);
	world.quotas.told = e.request;
	world.given[e.gpu] = UINT64_MAX;
	take_actions(actions, count);
	check_memory();
}

static void change_function(void)
{
	uint32_t f = (uint32_t)draw(world.functions);
	struct medusa_sched_function changed = world.specs[f];
	changed.slo_ns = draw(4) ? 1 + draw(SECOND) : 0;
	world.changed = true;
	changed.max_batch = (uint32_t)draw(16);
	changed.max_parallel = (uint32_t)draw(4);
	changed.keep_alive_ns = draw(3) ? 0 : draw(20 * SECOND);
	changed.abortable = draw(2) != 0;
	int code = medusa_sched_change_function(world.sched, f, &changed);
	cr_assert(code == 0 || code == MEDUSA_SCHED_ERR_NOT_FOUND || changed.kv_bytes, "%s",
		  medusa_sched_error(world.sched));
	cr_assert_eq(medusa_sched_audit(world.sched), 0, "%s", medusa_sched_error(world.sched));
}

/* Also while requests wait. */
static void add_tenant(void)
{
	struct quotas *q = &world.quotas;
	uint32_t index = 0;
	if (q->count == QUOTAS_TENANTS)
		return;
	q->specs[q->count] = any_tenant();
	cr_assert_eq(medusa_sched_add_tenant(world.sched, &q->specs[q->count], &index), 0);
	cr_assert_eq(index, q->count++);
	cr_assert_eq(medusa_sched_audit(world.sched), 0, "%s", medusa_sched_error(world.sched));
}

static void change_tenant(void)
{
	uint32_t tenant = (uint32_t)draw(world.quotas.count);
	world.quotas.specs[tenant] = any_tenant();
	cr_assert_eq(medusa_sched_change_tenant(world.sched, tenant, &world.quotas.specs[tenant]), 0);
	cr_assert_eq(medusa_sched_audit(world.sched), 0, "%s", medusa_sched_error(world.sched));
}

static void mishap(void)
{
	uint32_t gpu = (uint32_t)draw(world.gpus);
	struct medusa_sched_event e = {.gpu = gpu};
	switch (draw(17)) {
	case 0:
		e.type = world.lost[gpu] ? MEDUSA_SCHED_EVENT_GPU_BACK : MEDUSA_SCHED_EVENT_GPU_LOST;
		world.lost[gpu] = !world.lost[gpu];
		world.drained[gpu] = false;
		break;
	case 1:
		e.type = MEDUSA_SCHED_EVENT_MEMORY_REPORT; /* up to ten seconds old */
		e.bytes = draw(world.limit[gpu]);
		e.as_of = world.now - draw(world.now < 10 * SECOND ? world.now + 1 : 10 * SECOND);
		break;
	case 2:
		e.type = MEDUSA_SCHED_EVENT_MEMORY_LIMIT;
		e.bytes = world.limit[gpu] / (1 + draw(3));
		break;
	case 3:
		e.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED;
		e.backbone = (uint32_t)draw(world.backbones);
		break;
	case 9:
		e.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED;
		e.function = (uint32_t)draw(world.functions);
		world.odd[e.function] = true;
		break;
	case 4:
		e.type = MEDUSA_SCHED_EVENT_CANCEL;
		e.request = draw(world.next_request + 1);
		break;
	case 5:
		e.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE;
		e.function = (uint32_t)draw(world.functions);
		if (draw(20))
			return;
		break;
	case 6: /* a GPU that a copy comes from */
		for (size_t i = 0; i < world.pending_count; i++)
			gpu = world.pending[i].reads_from != MEDUSA_SCHED_NONE ? world.pending[i].reads_from : gpu;
		e.gpu = gpu;
		e.type = MEDUSA_SCHED_EVENT_GPU_LOST;
		world.lost[gpu] = true;
		break;
	case 7: /* all of it again, and more */
		e.type = MEDUSA_SCHED_EVENT_MEMORY_LIMIT;
		e.bytes = world.limit[gpu] + draw(8 * GB);
		break;
	case 10:
		change_kv();
		return;
	case 11:
		e.type = draw(2) && !world.lost[gpu] ? MEDUSA_SCHED_EVENT_GPU_DRAIN : MEDUSA_SCHED_EVENT_GPU_BACK;
		world.lost[gpu] = world.lost[gpu] && e.type != MEDUSA_SCHED_EVENT_GPU_BACK;
		world.drained[gpu] = e.type == MEDUSA_SCHED_EVENT_GPU_DRAIN;
		break;
	case 12:
		tell_resident();
		return;
	case 13:
		tell_running();
		return;
	case 14:
		change_function();
		return;
	case 15:
		change_tenant();
		return;
	case 16:
		if (draw(50) == 0)
			add_tenant();
		return;
	default:
		e.type = MEDUSA_SCHED_EVENT_TIMER;
	}
	step(e);
}

/* Something has ended by itself: it is reported, or the report is lost. */
static void report(struct medusa_sched_event e)
{
	if (e.type == MEDUSA_SCHED_EVENT_DONE && !reality_runs(&world.reality, e.request, e.batch))
		return; /* it was stopped meanwhile */
	if (e.transfer && !reality_find(&world.reality, e.transfer))
		return;
	if (lost()) {
		reality_unheard(&world.reality, e.transfer);
		happen(&e);
	} else {
		step(e);
	}
}

/*
 * Something was asked to stop: it is stopped now. If it has ended already, that is said (again) where it may not have been
 * heard.
 */
static void answer(struct medusa_sched_event e)
{
	const struct open *o = reality_find(&world.reality, e.transfer);
	if (e.transfer && (o ? draw(2) != 0 : !reality_failed(&world.reality, e.transfer)))
		e.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE; /* of an eviction as well as of a copy in */
	if (lost()) {
		reality_unheard(&world.reality, e.transfer);
		happen(&e);
	} else {
		step(e);
	}
}

/* The first thing that is due; false: nothing ever will be. */
static bool next_due(void)
{
	size_t first = 0;
	for (size_t i = 1; i < world.pending_count; i++)
		first = world.pending[i].at < world.pending[first].at ? i : first;
	if (world.pending_count && (!world.timer || world.pending[first].at <= world.timer)) {
		struct pending p = world.pending[first];
		world.pending[first] = world.pending[--world.pending_count];
		world.now = p.at > world.now ? p.at : world.now;
		if (p.answers)
			answer(p.event);
		else
			report(p.event);
		return true;
	}
	if (!world.timer)
		return false;
	world.now = world.timer > world.now ? world.timer : world.now;
	world.timer = 0;
	step((struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
	return true;
}

/* ---- worlds ----------------------------------------------------------------------------------------------------- */

static void create(struct medusa_sched_options *options)
{
	struct medusa_sched_gpu gpus[8] = {0};
	double peers[64];
	world.gpus = 1 + (uint32_t)draw(8);
	for (uint32_t i = 0; i < world.gpus; i++) {
		world.limit[i] = (8 + draw(80)) * GB;
		gpus[i] = (struct medusa_sched_gpu){sizeof(gpus[i]), world.limit[i], i / 2, (uint32_t)draw(5)};
	}
	for (uint32_t i = 0; i < world.gpus * world.gpus; i++)
		peers[i] = draw(3) ? (double)(50 * GB) : 0;
	struct medusa_sched_node node = {.size = sizeof(node),
					 .gpus = gpus,
					 .gpu_count = world.gpus,
					 .host_bytes = draw(2) ? (40 + draw(200)) * GB : 0,
					 .host_bytes_per_s = 12e9,
					 .cold_bytes_per_s = 2e9,
					 .peer_bytes_per_s = draw(4) ? peers : NULL};
	cr_assert_eq(medusa_sched_create(&node, options, &world.sched), 0, "%s", medusa_sched_error(NULL));
}

static void add_functions(void)
{
	uint32_t index, wanted = 1 + (uint32_t)draw(40);
	while (world.backbones < 3) {
		struct medusa_sched_backbone b = {
		    .size = sizeof(b), .bytes = 1 + draw(7 * GB), .cold_ns = draw(3 * SECOND), .in_host = draw(2) != 0};
		any_limits(&b);
		world.backbones += medusa_sched_add_backbone(world.sched, &b, &index) == 0;
	}
	for (int tries = 0; world.functions < wanted && tries < 1000; tries++) {
		struct medusa_sched_function f = any_function();
		if (medusa_sched_add_function(world.sched, &f, &index))
			continue;
		world.reality.backbone_of[index] = f.backbone;
		world.reality.kv_of[index] = f.kv_bytes;
		world.specs[index] = f;
		world.functions++;
	}
	cr_assert_gt(world.functions, 0, "%s", medusa_sched_error(world.sched));
}

static uint64_t kv_in_books(void)
{
	uint64_t bytes = 0;
	for (uint32_t gpu = 0; gpu < world.gpus; gpu++) {
		struct medusa_sched_gpu_state g = {.size = sizeof(g)};
		medusa_sched_gpu_get(world.sched, gpu, &g);
		bytes += g.kv_bytes;
	}
	return bytes;
}

static void play(uint64_t seed, uint64_t events)
{
	memset(&world, 0, sizeof(world));
	random_state = seed * 0x9e3779b97f4a7c15ull + 1;
	world.max_wait = (1 + draw(60)) * SECOND;
	world.faults = draw(2) ? (unsigned)draw(100) : 0;
	world.lossy = draw(3) ? 0 : (unsigned)draw(30);
	struct medusa_sched_options options = {.size = sizeof(options),
					       .seed = seed,
					       .queueing = any_policy(MEDUSA_SCHED_KIND_QUEUEING),
					       .placement = any_policy(MEDUSA_SCHED_KIND_PLACEMENT),
					       .eviction = any_policy(MEDUSA_SCHED_KIND_EVICTION),
					       .batching = any_policy(MEDUSA_SCHED_KIND_BATCHING),
					       .preloading = any_policy(MEDUSA_SCHED_KIND_PRELOADING),
					       .max_wait_ns = world.max_wait,
					       .max_queue = draw(2) ? 1 + (uint32_t)draw(50) : 0,
					       .retries = (uint32_t)draw(4),
					       .fixed_batch = (uint32_t)draw(8),
					       .fixed_delay_ns = draw(SECOND),
					       .transfer_timeout_ns = draw(3) ? (1 + draw(5)) * SECOND : 0,
					       .run_timeout_ns = draw(3) ? (1 + draw(5)) * SECOND : 0};
	static uint8_t owners[REQUESTS];
	world.quotas = (struct quotas){.count = 1, .of = owners, .told = UINT64_MAX};
	create(&options);
	add_functions();
	for (uint64_t more = draw(2) ? draw(5) : 0; more-- > 0;)
		add_tenant();
	uint64_t gap = 1 + draw(50000000);
	while (world.events < events) {
		uint64_t at = world.now + draw(gap);
		while ((world.pending_count || world.timer) && world.now < at && draw(8) && next_due())
			;
		world.now = world.now > at ? world.now : at;
		if (world.faults && draw(50) == 0)
			mishap();
		else if (world.live < 500)
			arrive();
		else
			next_due();
	}
	/* Whatever waits ends within its time, whoever is lost; whatever runs has an end by then. */
	uint64_t last = world.now, patience = 10 * world.max_wait + (world.lossy ? 10000 : 100) * SECOND;
	while (world.live) {
		cr_assert(next_due(), "%llu requests wait, and nothing will happen", (unsigned long long)world.live);
		cr_assert_lt(world.now, last + patience, "%llu requests do not end", (unsigned long long)world.live);
	}
	/* Once the node answers, all memory of runs comes back. */
	last = world.now;
	world.lossy = 0;
	while (kv_in_books()) {
		cr_assert(next_due(), "KV memory stays reserved, and nothing will happen");
		cr_assert_lt(world.now, last + patience + 10000 * SECOND, "KV memory stays reserved");
	}
	cr_assert_eq(medusa_sched_audit(world.sched), 0, "%s", medusa_sched_error(world.sched));
	medusa_sched_destroy(world.sched);
}

/* MEDUSA_EVENTS asks for more (a million and more is what `make torture` plays), MEDUSA_SEED for other ones. */
Test(scheduler_property, books_balance_and_every_request_ends, .timeout = 3000)
{
	const char *more = getenv("MEDUSA_EVENTS"), *other = getenv("MEDUSA_SEED");
	uint64_t total = more ? strtoull(more, NULL, 10) : 1000000, each = 10000;
	uint64_t first = other ? strtoull(other, NULL, 10) : 1;
	for (uint64_t seed = first; seed < first + total / each; seed++)
		play(seed, each);
	cr_assert_gt(joins, total / 200, "only %llu requests have joined a batch", (unsigned long long)joins);
}
