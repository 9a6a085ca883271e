/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node loop around libmedusa-sched, as a worker needs it: runs that wait for their copies, requests that join a run,
 * clients that go, a copy that hangs, KV caches that grow, tenants with shares and limits, and a restart that finds a model
 * on the GPU. Two functions take turns on a GPU that has room for one of them. The GPU is simulated. docs/scheduler.md has
 * the contract of each event and action.
 */
#include <inttypes.h>
#include <medusa/scheduler.h>
#include <stdio.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define GB UINT64_C(1000000000)
#define BYTES_PER_NS 25 /* from host memory to the GPU */
#define MOST 64

static const char *const functions[] = {"chat", "code"};
enum { TEAM = 1, GUEST, TENANTS }; /* 0 is the default tenant, of requests that nobody named a tenant for */
static const char *const tenants[TENANTS] = {"nobody", "team", "guest"};

/* ---- what will happen: a real node waits for its sockets, its GPU and its clock here ----------------------------- */

static struct medusa_sched_event queue[MOST];
static size_t queued;
static uint64_t now, timer_at = UINT64_MAX;

static void will_happen(uint64_t at, struct medusa_sched_event event)
{
	size_t i = queued++;
	if (queued > MOST)
		abort();
	event.size = sizeof(event);
	event.now = at;
	for (; i && queue[i - 1].now > at; i--)
		queue[i] = queue[i - 1];
	queue[i] = event;
}

static struct medusa_sched_event next_event(void)
{
	struct medusa_sched_event event = {.size = sizeof(event), .type = MEDUSA_SCHED_EVENT_TIMER, .now = timer_at};
	if (queue[0].now > timer_at) {
		timer_at = UINT64_MAX;
		return event;
	}
	event = queue[0];
	queued--;
	for (size_t i = 0; i < queued; i++)
		queue[i] = queue[i + 1];
	return event;
}

/* What a stopped request, or a stopped copy, would have reported does not happen. */
static void will_not_happen(uint64_t batch, uint64_t request, uint64_t transfer)
{
	size_t kept = 0;
	for (size_t i = 0; i < queued; i++) {
		const struct medusa_sched_event *e = &queue[i];
		int of_run = batch && e->batch == batch && e->request == request;
		if (!of_run && !(transfer && e->transfer == transfer))
			queue[kept++] = *e;
	}
	queued = kept;
}

/* ---- runs: each waits for the transfers that its action names, then computes -------------------------------------- */

static struct run {
	uint64_t request, batch, waits[4];
	uint32_t waiting;
} runs[MOST];
static size_t run_count;

static void compute(const struct run *run)
{
	struct medusa_sched_event event = {.request = run->request, .batch = run->batch};
	event.type = MEDUSA_SCHED_EVENT_FIRST_TOKEN;
	will_happen(now + 30 * MS, event);
	event.type = MEDUSA_SCHED_EVENT_KV_CHANGED; /* an engine that allocates KV blocks as tokens come */
	event.kv_bytes = GB;
	will_happen(now + 60 * MS, event);
	event.type = MEDUSA_SCHED_EVENT_DONE;
	will_happen(now + 100 * MS, event);
}

static void begin_run(const struct medusa_sched_action *action)
{
	for (uint32_t i = 0; i < action->request_count; i++) {
		struct run *run = &runs[run_count++ % MOST];
		*run = (struct run){.request = action->requests[i], .batch = action->batch};
		for (uint32_t t = 0; t < action->transfer_count; t++)
			run->waits[run->waiting++] = action->transfers[t];
		if (!run->waiting)
			compute(run);
	}
}

/* A failed copy ends the runs that wait for it; the scheduler knows that, and tells what becomes of their requests. */
static void transfer_ended(uint64_t transfer, int failed)
{
	for (size_t i = 0; i < MOST; i++) {
		struct run *run = &runs[i];
		for (uint32_t t = 0; t < run->waiting; t++) {
			if (run->waits[t] != transfer)
				continue;
			run->waits[t] = run->waits[--run->waiting];
			if (failed)
				*run = (struct run){0};
			else if (!run->waiting)
				compute(run);
			break;
		}
	}
}

/* ---- what the scheduler wants: a real node starts copies and batches here, and says later when they ended -------- */

static uint64_t copies_end; /* when the copies to the GPU that are under way end */
static int copy_hangs;      /* the next one does */

static void begin_copy(const struct medusa_sched_action *action)
{
	uint64_t start = now > copies_end ? now : copies_end;
	if (copy_hangs) {
		copy_hangs = 0;
		return;
	}
	copies_end = start + (action->source == MEDUSA_SCHED_SOURCE_MADE ? 20 * MS : action->bytes / BYTES_PER_NS);
	will_happen(copies_end, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE,
							    .transfer = action->transfer});
}

/* The answer comes when it has stopped: of a run that the scheduler thinks lost, this may mean to end the engine. */
static void stop(const struct medusa_sched_action *action)
{
	will_not_happen(action->batch, action->request, action->transfer);
	struct medusa_sched_event event = {
	    .type = MEDUSA_SCHED_EVENT_DONE, .request = action->request, .batch = action->batch};
	if (action->transfer)
		event = (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED,
						    .transfer = action->transfer};
	will_happen(now + MS, event);
	for (size_t i = 0; i < MOST; i++)
		if (action->batch && runs[i].batch == action->batch && runs[i].request == action->request)
			runs[i] = (struct run){0};
}

static void say_artifact(const struct medusa_sched_action *action)
{
	printf(" %s of %s, %" PRIu64 " MB%s", medusa_sched_class_name(action->artifact), functions[action->function],
	       action->bytes / 1000000, action->gpu == MEDUSA_SCHED_NONE ? ", host memory" : "");
}

static void carry_out(const struct medusa_sched_action *action)
{
	printf("            %s", medusa_sched_action_name(action->type));
	switch (action->type) {
	case MEDUSA_SCHED_ACTION_SWAP_IN:
	case MEDUSA_SCHED_ACTION_PRELOAD:
		say_artifact(action);
		begin_copy(action);
		break;
	case MEDUSA_SCHED_ACTION_EVICT:
	case MEDUSA_SCHED_ACTION_OFFLOAD: /* its transfer is 0: it is done when this function returns */
		say_artifact(action);
		break;
	case MEDUSA_SCHED_ACTION_RUN:
	case MEDUSA_SCHED_ACTION_JOIN: /* the engine, which runs, is given further requests */
		for (uint32_t i = 0; i < action->request_count; i++)
			printf(" request %" PRIu64 " of %s, after %" PRIu32 " copies", action->requests[i],
			       functions[action->function], action->transfer_count);
		begin_run(action);
		break;
	case MEDUSA_SCHED_ACTION_ABORT:
		printf(action->transfer ? " a copy" : " request %" PRIu64, action->request);
		printf(": %s", medusa_sched_reason_name(action->reason));
		stop(action);
		break;
	case MEDUSA_SCHED_ACTION_REJECT:
		printf(" request %" PRIu64 ": %s", action->request, medusa_sched_reason_name(action->reason));
		break;
	case MEDUSA_SCHED_ACTION_SET_TIMER:
		timer_at = action->at;
		printf(" %.1f ms", (double)action->at / MS);
		break;
	default: /* of a later release: docs/abi.md */
		break;
	}
	printf("\n");
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static struct medusa_sched *sched;

static void stop_on_error(int error)
{
	if (error) {
		fprintf(stderr, "node loop: %s\n", medusa_sched_error(sched));
		exit(1);
	}
}

static void step(const struct medusa_sched_event *event)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	now = event->now;
	printf("%7.1f ms  %s", (double)now / MS, medusa_sched_event_name(event->type));
	if (event->request)
		printf(": request %" PRIu64, event->request);
	printf("\n");
	if (event->type == MEDUSA_SCHED_EVENT_TRANSFER_DONE || event->type == MEDUSA_SCHED_EVENT_TRANSFER_FAILED)
		transfer_ended(event->transfer, event->type == MEDUSA_SCHED_EVENT_TRANSFER_FAILED);
	stop_on_error(medusa_sched_step(sched, event, &actions, &count));
	for (size_t i = 0; i < count; i++)
		carry_out(actions[i]);
}

/* While both wait, the team has three quarters of the GPU's time. Of a guest one request runs, and one waits. */
static void add_tenants(void)
{
	const struct medusa_sched_tenant team = {.size = sizeof(team), .weight = 3},
					 guest = {.size = sizeof(guest), .max_running = 1, .max_waiting = 1};
	uint32_t index;
	stop_on_error(medusa_sched_add_tenant(sched, &team, &index));
	stop_on_error(medusa_sched_add_tenant(sched, &guest, &index));
}

static void say_tenants(void)
{
	struct medusa_sched_tenant_state state = {.size = sizeof(state)};
	for (uint32_t i = 0; i < TENANTS; i++) {
		stop_on_error(medusa_sched_tenant_get(sched, i, &state));
		printf("%s: %" PRIu64 " served, %" PRIu64 " rejected, %" PRIu64 " ms of the GPU\n", tenants[i],
		       state.served, state.rejected, state.gpu_ns / MS);
	}
}

static void create(void)
{
	const struct medusa_sched_gpu gpu = {.size = sizeof(gpu), .memory_bytes = 20 * GB};
	const struct medusa_sched_node node = {
	    .size = sizeof(node), .gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = BYTES_PER_NS * 1e9};
	const struct medusa_sched_options options = {
	    .size = sizeof(options), .preloading = "none", .retries = 1, .transfer_timeout_ns = 5000 * MS};
	const struct medusa_sched_function function = {.size = sizeof(function),
						       .backbone = MEDUSA_SCHED_NONE,
						       .weight_bytes = 12 * GB,
						       .context_bytes = GB,
						       .kv_bytes = GB / 2,
						       .context_ns = 20 * MS,
						       .in_host = 1,
						       .t0_ns = 30 * MS,
						       .token_ns = 7 * MS,
						       .slo_ns = 2000 * MS,
						       .abortable = 1,
						       .continuous = 1};
	uint32_t index;
	stop_on_error(medusa_sched_create(&node, &options, &sched));
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		stop_on_error(medusa_sched_add_function(sched, &function, &index)); /* 0: chat, 1: code */
	add_tenants();
}

/* The engine of chat has outlived the loop before this one. */
static void find_what_is_there(void)
{
	static const enum medusa_sched_class there[] = {MEDUSA_SCHED_CLASS_WEIGHTS, MEDUSA_SCHED_CLASS_CONTEXT};
	for (size_t i = 0; i < 2; i++)
		will_happen(0, (struct medusa_sched_event){
				   .type = MEDUSA_SCHED_EVENT_RESIDENT, .artifact = there[i], .function = 0, .gpu = 0});
}

static void arrives(uint64_t at, uint64_t request, uint32_t function, uint32_t tenant)
{
	will_happen(at, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
						    .request = request,
						    .function = function,
						    .tenant = tenant,
						    .tokens = 10});
}

int main(void)
{
	create();
	find_what_is_there();
	arrives(0, 1, 0, TEAM);
	arrives(1000 * MS, 2, 1, TEAM);
	will_happen(1550 * MS, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_CANCEL, .request = 2});
	arrives(2000 * MS, 3, 0, TEAM);
	arrives(7550 * MS, 4, 0, TEAM);
	for (uint64_t request = 5; request <= 7; request++)
		arrives(8100 * MS, request, 0, GUEST);
	will_happen(9000 * MS, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_GPU_DRAIN, .gpu = 0});
	while (queued) {
		struct medusa_sched_event event = next_event();
		copy_hangs = event.type == MEDUSA_SCHED_EVENT_ARRIVAL && event.request == 3;
		step(&event);
	}
	say_tenants();
	medusa_sched_destroy(sched);
	return 0;
}
