/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler under random events, policies and faults: books balance, no memory is given twice,
 * every request ends. */
#include "tests/scheduler_world.h"

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
