/* SPDX-License-Identifier: Apache-2.0 */
/* Our own policies under loads that are hard: rare calls, backbones with many dependents, calls in turn, idle nodes. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* One call every 2 s, and every one misses its objective: results must not be forgotten before there are enough. */
Test(scheduler_medusa, gives_up_at_low_rates_too)
{
	script_start(&n, &(struct setup){.options.queueing = "medusa"});
	struct medusa_sched_function f = script_model(10);
	f.slo_ns = 500 * MS;
	script_add(&n, f);
	script_serve(&n, 900, 0);
	for (uint64_t i = 1; i <= 30; i++) {
		script_arrive(&n, i, 0);
		n.now += 2 * SECOND;
		script_done(&n, i);
	}
	cr_assert(!n.sched->functions[0].high, "30 misses in a row, and it is not given up");
	script_end(&n);
}

/* As soon as nobody calls any more, there is room for all that were given up, whether anything else ends or not. */
Test(scheduler_medusa, takes_back_when_the_load_falls)
{
	script_start(&n, &(struct setup){.options.queueing = "medusa"});
	struct medusa_sched_function f = script_model(10);
	f.slo_ns = 500 * MS;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 900, 0);
	for (uint64_t i = 1; i <= 100; i++) {
		script_arrive(&n, i, 0);
		n.now += 2 * SECOND;
		script_done(&n, i);
	}
	n.sched->functions[0].high = false;
	n.sched->first_class.limit = 0.01; /* GPU seconds per second; it asked for 0.05 */
	script_timer(&n);
	cr_assert(!n.sched->functions[0].high, "it comes back, though it asks for more than the node bears");
	n.now += 3600 * SECOND;
	script_timer(&n);
	cr_assert(n.sched->functions[0].high, "nobody has called for an hour, and it has not come back");
	script_end(&n);
}

/*
 * A model of its own is called more often than the users of a backbone of the same size. But what the backbone's eviction
 * would take along takes longer to make again.
 */
Test(scheduler_medusa, counts_what_goes_with_a_backbone)
{
	for (int contexts = 0; contexts < 2; contexts++) {
		script_start(&n, &(struct setup){.gb = 50, .options.eviction = "medusa"});
		script_backbone(&n, 20);
		struct medusa_sched_function f = script_model(0.1);
		f.backbone = 0;
		f.context_bytes = contexts ? GB / 10 : 0;
		f.context_ns = contexts ? 5 * SECOND : 0;
		script_add(&n, f);
		script_add(&n, f);
		script_add(&n, script_model(20));
		for (uint64_t i = 0; i < 40; i++) {
			script_serve(&n, 100 + i, i % 8 == 0 ? 0 : i % 8 == 4 ? 1 : 2);
			n.now += SECOND + i % 3 * SECOND; /* uneven, so that no next call is expected */
		}
		n.now += SECOND;
		script_add(&n, script_model(25));
		script_forget(&n);
		script_arrive(&n, 1, 3);
		cr_assert_eq(strstr(n.log, "evict weights f2") != NULL, contexts == 1, "contexts %d: %s", contexts,
			     n.log);
		script_end(&n);
	}
}

/* Five models in turn where four fit: least recently used first would load one at each call. */
Test(scheduler_medusa, keeps_a_part_of_a_working_set_that_is_too_large)
{
	script_start(&n, &(struct setup){.gb = 80, .options.eviction = "medusa"});
	for (int i = 0; i < 5; i++)
		script_add(&n, script_model(20));
	uint32_t before = 0;
	for (uint64_t i = 0; i < 200; i++) {
		if (i == 100)
			before = n.transfer_count;
		script_serve(&n, 100 + i, i % 5);
		n.now += 10 * SECOND - MS;
		script_forget(&n);
	}
	cr_assert_leq(n.transfer_count - before, 50, "%u loads for 100 calls", n.transfer_count - before);
	script_end(&n);
}

/* Planning is for idle nodes: none while a request waits, and none when nothing has changed since the last one. */
Test(scheduler_medusa, plans_preloads_only_when_idle_and_changed)
{
	script_start(&n, &(struct setup){.gb = 60, .options = {.preloading = "medusa"}});
	script_add(&n, script_model(10));
	script_add(&n, script_model(10));
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 0);
	void *plan = n.sched->preload_memory;
	uint64_t seen = n.sched->preload.seen;
	for (int i = 0; i < 5; i++)
		script_wait(&n, 2 * SECOND);
	cr_assert(n.sched->preload_memory == plan && n.sched->preload.seen == seen, "it plans while a request waits");
	script_done(&n, 2);
	script_done(&n, 3);
	for (int i = 0; i < 5; i++)
		script_wait(&n, 2 * SECOND);
	cr_assert_neq(n.sched->preload.seen, seen, "it does not plan when the node is idle");
	cr_assert_eq(n.sched->preload.left, 0, "it plans though nothing has changed");
	script_end(&n);
}

/* With many functions, a step looks at some of them, and all are loaded in the end; from a linked GPU if it has them. */
Test(scheduler_medusa, preloads_many_functions_a_few_at_a_time)
{
	script_start(&n, &(struct setup){.gpus = 2, .peer_gb_per_s = 100, .options = {.preloading = "medusa"}});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.1);
	f.backbone = 0;
	for (int i = 0; i < 20; i++) {
		script_add(&n, f);
		script_serve(&n, 100 + (uint64_t)i, (uint32_t)i);
	}
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	for (int i = 0; i < 60; i++) {
		uint32_t before = n.transfer_count;
		script_wait(&n, SECOND);
		while (before < n.transfer_count)
			script_copied(&n, ++before);
	}
	uint32_t there = 0;
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t weights = n.sched->functions[i].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
		there += n.sched->artifacts[weights].copies > 0;
	}
	cr_assert_eq(there, 20, "only %u of 20 adapters are loaded: %s", there, n.log);
	script_end(&n);
}

/* What fails each time is tried ahead of requests ever more rarely, while others come and go; a served request ends that. */
Test(scheduler_medusa, preloads_what_fails_ever_more_rarely)
{
	script_start(&n, &(struct setup){.gb = 60, .options = {.preloading = "medusa"}});
	script_add(&n, script_model(10));
	script_add(&n, script_model(10));
	for (uint64_t i = 0; i < 10; i++)
		script_serve(&n, 1 + i, (uint32_t)i % 2);
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED, .gpu = 0, .function = 1});
	uint32_t seen = n.transfer_count, tries = 0;
	for (uint64_t i = 0; i < 400; i++) {
		script_serve(&n, 100 + i, 0);
		script_wait(&n, 2 * SECOND);
		for (; seen < n.transfer_count; tries++)
			script_transfer(&n,
					strstr(n.log, "evict") ? MEDUSA_SCHED_EVENT_EVICTED
							       : MEDUSA_SCHED_EVENT_TRANSFER_FAILED,
					++seen);
		script_forget(&n);
	}
	cr_assert(tries >= 4 && tries <= 12, "%u tries in 800 s", tries);
	cr_assert(n.sched->functions[1].failures >= 4, "%u failures", n.sched->functions[1].failures);
	script_serve(&n, 2000, 1);
	cr_assert_eq(n.sched->functions[1].failures, 0);
	script_end(&n);
}

/* Two functions that are called by turns; the first one leaves when it is not called for 3 s. */
static void serve_two(const char *preloading)
{
	script_start(&n, &(struct setup){.gb = 60, .options = {.preloading = preloading}});
	struct medusa_sched_function f = script_model(10);
	f.keep_alive_ns = 3 * SECOND;
	script_add(&n, f);
	script_add(&n, script_model(10));
	for (uint64_t i = 0; i < 6; i++)
		script_serve(&n, 1 + i, (uint32_t)i % 2);
}

/* A function that left because nobody called it for keep_alive_ns is not loaded ahead again, until somebody does. */
Test(scheduler_medusa, does_not_preload_what_was_let_go)
{
	serve_two("medusa");
	uint32_t loads = n.transfer_count;
	for (uint64_t i = 0; i < 20; i++) {
		script_serve(&n, 100 + i, 1);
		script_wait(&n, SECOND);
	}
	cr_assert_null(strstr(n.log, "preload"), "loaded again: %s", n.log);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 10000000000u, "it did not leave");
	cr_assert_eq(n.transfer_count, loads, "%u loads", n.transfer_count - loads);
	script_serve(&n, 200, 0);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 20000000000u);
	script_end(&n);
}

/* xLoRA's preloading goes by predicted rates alone, as its paper says. */
Test(scheduler_medusa, xlora_preloads_what_was_let_go)
{
	serve_two("xlora");
	for (uint64_t i = 0; i < 6 && !strstr(n.log, "preload"); i++) {
		script_serve(&n, 100 + i, 1);
		script_wait(&n, SECOND);
	}
	cr_assert(strstr(n.log, "offload weights f0") && strstr(n.log, "preload"), "not let go and loaded: %s", n.log);
	script_end(&n);
}
