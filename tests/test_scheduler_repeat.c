/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler gives the same actions for the same events, and keeps its books when memory runs out. */
#include <stdlib.h>

#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

/* ---- allocations that fail: the linker sends the library's calls here ---- */

static long until_failure; /* allocations; 0: none fails */
static bool fail_on;       /* every one from then on, until mended */
static bool failed;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool fails(void)
{
	if (fail_on && failed)
		return true;
	if (!until_failure || --until_failure)
		return false;
	failed = true;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return fails() ? NULL : __real_realloc(old, size);
}

static bool sound(struct medusa_sched *s)
{
	long left = until_failure;
	bool on = fail_on;
	until_failure = 0;
	fail_on = false;
	int code = medusa_sched_audit(s);
	until_failure = left;
	fail_on = on;
	return code == 0;
}

/* ---- a player of random events ---- */

#define KNOWN 256

struct player {
	struct medusa_sched *sched;
	uint64_t random, hash, now, timer, next_request, no_memory;
	uint64_t batches[KNOWN], transfers[KNOWN], requests[KNOWN];
	uint32_t batch_count, transfer_count, request_count;
	bool careful; /* audits each step */
};

static uint64_t draw(struct player *p, uint64_t below)
{
	p->random = p->random * 6364136223846793005ull + 1442695040888963407ull;
	return (p->random >> 33) % below;
}

static void mix(struct player *p, uint64_t value)
{
	for (int i = 0; i < 8; i++, value >>= 8)
		p->hash = (p->hash ^ (value & 0xff)) * 0x100000001b3ull;
}

static void keep(uint64_t *list, uint32_t *count, uint64_t value)
{
	if (*count < KNOWN)
		list[(*count)++] = value;
}

static uint64_t take(struct player *p, uint64_t *list, uint32_t *count)
{
	uint32_t i = (uint32_t)draw(p, *count);
	uint64_t value = list[i];
	list[i] = list[--*count];
	return value;
}

static void take_actions(struct player *p, const struct medusa_sched_action *const *actions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct medusa_sched_action *a = actions[i];
		const uint64_t fields[] = {a->type,     a->artifact, a->source,  a->reason,       a->function,
					   a->backbone, a->gpu,      a->peer,    a->batch,        a->at,
					   a->transfer, a->bytes,    a->request, a->request_count};
		for (size_t j = 0; j < sizeof(fields) / sizeof(fields[0]); j++)
			mix(p, fields[j]);
		for (uint32_t j = 0; j < a->request_count; j++) {
			mix(p, a->requests[j]);
			keep(p->requests, &p->request_count, a->requests[j]);
		}
		if (a->type == MEDUSA_SCHED_ACTION_RUN)
			keep(p->batches, &p->batch_count, a->batch);
		if (a->type == MEDUSA_SCHED_ACTION_SET_TIMER)
			p->timer = a->at;
		if (a->transfer)
			keep(p->transfers, &p->transfer_count, a->transfer);
	}
}

/* Requests that have not ended. */
static uint64_t live(const struct player *p)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	medusa_sched_stats_get(p->sched, &stats);
	return stats.arrivals - stats.served - stats.rejected - stats.cancelled;
}

static void send(struct player *p, struct medusa_sched_event e)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	e.now = p->now;
	e.size = sizeof(e);
	int code = medusa_sched_step(p->sched, &e, &actions, &count);
	cr_assert(code == 0 || (code == MEDUSA_SCHED_ERR_NO_MEMORY && failed), "event %d: %s", e.type,
		  medusa_sched_error(p->sched));
	p->no_memory += code != 0;
	take_actions(p, actions, code ? 0 : count);
	cr_assert(!p->careful || sound(p->sched), "after event %d: %s", e.type, medusa_sched_error(p->sched));
	failed = failed && !fail_on; /* memory is there again at the next step */
}

static struct medusa_sched_event any_event(struct player *p)
{
	struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_TIMER, .gpu = (uint32_t)draw(p, 3)};
	uint64_t what = draw(p, 100);
	if (what < 40) {
		e.type = MEDUSA_SCHED_EVENT_ARRIVAL;
		e.request = p->next_request++;
		e.function = (uint32_t)draw(p, 12);
		e.kv_bytes = draw(p, 3) * GB;
		e.deadline = draw(p, 4) ? 0 : p->now + draw(p, SECOND);
		e.priority = draw(p, 4) ? 0 : (int32_t)draw(p, 3) - 1;
	} else if (what < 65 && p->transfer_count) {
		e.type = draw(p, 30) ? MEDUSA_SCHED_EVENT_TRANSFER_DONE : MEDUSA_SCHED_EVENT_TRANSFER_FAILED;
		e.transfer = take(p, p->transfers, &p->transfer_count);
	} else if (what < 94 && p->request_count) {
		e.type = MEDUSA_SCHED_EVENT_DONE;
		e.request = take(p, p->requests, &p->request_count);
	} else if (what == 94 && p->batch_count) {
		e.type = MEDUSA_SCHED_EVENT_BATCH_FAILED;
		e.batch = take(p, p->batches, &p->batch_count);
	} else if (what == 96 && p->request_count) {
		e.type = MEDUSA_SCHED_EVENT_CANCEL;
		e.request = p->requests[draw(p, p->request_count)];
	} else if (what == 95) {
		e.type = draw(p, 2) ? MEDUSA_SCHED_EVENT_GPU_LOST : MEDUSA_SCHED_EVENT_GPU_BACK;
	}
	return e;
}

static bool begin(struct player *p, const struct medusa_sched_options *options)
{
	struct medusa_sched_gpu gpus[3];
	double peers[9];
	for (uint32_t i = 0; i < 3; i++)
		gpus[i] = (struct medusa_sched_gpu){sizeof(gpus[i]), 40 * GB, i / 2, 2};
	for (int i = 0; i < 9; i++)
		peers[i] = i % 2 ? 50e9 : 0;
	struct medusa_sched_node node = {.size = sizeof(node),
					 .gpus = gpus,
					 .gpu_count = 3,
					 .host_bytes = 90 * GB,
					 .host_bytes_per_s = 10e9,
					 .cold_bytes_per_s = 2e9,
					 .peer_bytes_per_s = peers};
	*p = (struct player){.random = 5, .hash = 0xcbf29ce484222325ull};
	uint32_t index;
	struct medusa_sched_backbone b = {.size = sizeof(b), .bytes = 8 * GB};
	if (medusa_sched_create(&node, options, &p->sched))
		return false;
	if (medusa_sched_add_backbone(p->sched, &b, &index))
		return false;
	for (uint32_t i = 0; i < 12; i++) {
		struct medusa_sched_function f = script_model(1 + i);
		f.backbone = i % 3 ? NOBODY : 0;
		f.in_host = i % 4 == 0;
		f.context_bytes = i % 2 * GB;
		f.residue_bytes = i % 2 * GB / 4;
		f.library_bytes = i % 5 * GB / 2;
		f.evict_ns = i % 3 * 100 * MS;
		f.max_batch = 4;
		f.max_parallel = 2;
		f.abortable = i % 2;
		f.slo_ns = i % 4 ? 300 * MS : 0;
		if (medusa_sched_add_function(p->sched, &f, &index))
			return false;
	}
	return true;
}

static void play(struct player *p, uint32_t events)
{
	for (uint32_t i = 0; i < events; i++) {
		p->now += draw(p, 40 * MS);
		send(p, any_event(p));
	}
}

/* ---- the same again ---- */

static uint64_t hash_of(const struct medusa_sched_options *options, uint32_t events)
{
	struct player p;
	cr_assert(begin(&p, options), "%s", medusa_sched_error(NULL));
	play(&p, events);
	cr_assert(sound(p.sched), "%s", medusa_sched_error(p.sched));
	medusa_sched_destroy(p.sched);
	return p.hash;
}

static void every_combination(uint32_t events)
{
	const struct medusa_sched_policy *policies[MEDUSA_SCHED_KINDS];
	size_t counts[MEDUSA_SCHED_KINDS], all = 1, distinct = 0;
	uint64_t last = 0;
	for (int kind = 0; kind < MEDUSA_SCHED_KINDS; kind++) {
		policies[kind] = medusa_sched_policies((enum medusa_sched_kind)kind, &counts[kind]);
		all *= counts[kind];
	}
	for (size_t i = 0; i < all; i++) {
		const char *names[MEDUSA_SCHED_KINDS];
		size_t rest = i;
		for (int kind = 0; kind < MEDUSA_SCHED_KINDS; rest /= counts[kind], kind++)
			names[kind] = policies[kind][rest % counts[kind]].name;
		struct medusa_sched_options o = {.size = sizeof(o),
						 .seed = 9,
						 .queueing = names[0],
						 .placement = names[1],
						 .eviction = names[2],
						 .batching = names[3],
						 .preloading = names[4],
						 .retries = 2,
						 .max_wait_ns = 5 * SECOND,
						 .fixed_batch = 3,
						 .fixed_delay_ns = 100 * MS};
		uint64_t hash = hash_of(&o, events);
		cr_assert_eq(hash, hash_of(&o, events), "%s, %s, %s, %s, %s: not the same again", names[0], names[1],
			     names[2], names[3], names[4]);
		distinct += hash != last;
		last = hash;
	}
	/* Policies make a difference, or the hash sees nothing. */
	cr_assert_gt(distinct, all / 2, "%zu of %zu combinations differ from their neighbours", distinct, all);
}

Test(scheduler_repeat, the_same_events_give_the_same_actions_with_all_policies, .timeout = 1200)
{
	every_combination(250);
}

Test(scheduler_repeat, a_long_run_gives_the_same_actions)
{
	struct medusa_sched_options o = {.size = sizeof(o),
					 .retries = 1,
					 .max_wait_ns = 5 * SECOND,
					 .run_timeout_ns = 2 * SECOND,
					 .transfer_timeout_ns = 2 * SECOND};
	uint64_t hash = hash_of(&o, 20000);
	cr_assert_eq(hash, hash_of(&o, 20000));
	o.placement = "random";
	hash = hash_of(&o, 5000);
	o.seed = 1;
	cr_assert_neq(hash, hash_of(&o, 5000), "another seed draws the same lots");
}

/* ---- out of memory ---- */

/* The nth allocation fails, or all from the nth on until the step ends. False: there are not that many. */
static bool play_short_of_memory(long nth, bool on)
{
	struct player p;
	struct medusa_sched_options o = {.size = sizeof(o),
					 .retries = 2,
					 .max_wait_ns = 5 * SECOND,
					 .run_timeout_ns = 2 * SECOND,
					 .transfer_timeout_ns = 2 * SECOND};
	until_failure = nth;
	fail_on = on;
	failed = false;
	bool began = begin(&p, &o), reached;
	if (began) {
		p.careful = true;
		play(&p, 400);
		/* Whatever waits ends within its time. */
		reached = failed || !until_failure;
		until_failure = 0;
		fail_on = failed = false;
		while (live(&p)) {
			p.now += SECOND;
			while (p.transfer_count)
				send(&p,
				     (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE,
								 .transfer = take(&p, p.transfers, &p.transfer_count)});
			while (p.request_count)
				send(&p,
				     (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE,
								 .request = take(&p, p.requests, &p.request_count)});
			send(&p, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
			cr_assert_lt(p.now, 1000 * SECOND, "allocation %ld: %llu requests do not end", nth,
				     (unsigned long long)live(&p));
		}
	} else {
		reached = true;
	}
	until_failure = 0;
	fail_on = failed = false;
	medusa_sched_destroy(p.sched);
	return reached;
}

Test(scheduler_memory, any_allocation_may_fail, .timeout = 1200)
{
	for (int on = 0; on < 2; on++) {
		long nth = 1;
		while (play_short_of_memory(nth, on))
			nth += nth < 120 ? 1 : 13;
		cr_assert_gt(nth, 40, "only %ld allocations were made to fail", nth);
	}
}
