/* SPDX-License-Identifier: Apache-2.0 */
/* The papers' policies do what their papers say, sentence by sentence. */
#include "scheduler/policy/policies.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static double key_of(uint32_t function)
{
	return n.sched->queueing->key(n.sched, function).major;
}

static void serve_every(uint64_t gap, uint32_t function, int times)
{
	static uint64_t number = 1000;
	for (int i = 0; i < times; i++) {
		script_serve(&n, number++, function);
		n.now += gap;
	}
}

/* ---- xLoRA ------------------------------------------------------------------------------------------------------ */

/* Equations 5 and 6: M is the number of batches on the GPU that the batch would share, not the node's mean. */
Test(scheduler_xlora, contention_is_that_of_its_gpu)
{
	script_start(&n, &(struct setup){.gpus = 2, .slots = 3, .gb = 30, .options = {.queueing = "margin"}});
	struct medusa_sched_function f = script_model(20);
	f.slo_ns = SECOND;
	f.max_parallel = 4;
	script_add(&n, f);
	script_add(&n, f);
	for (uint64_t r = 1; r <= 3; r++)
		script_arrive(&n, r, 0); /* fills GPU 0 */
	script_arrive(&n, 4, 1);         /* one on GPU 1 */
	script_arrive(&n, 5, 0);
	cr_assert_eq(script_function(&n, 0).waiting, 1);
	cr_assert_float_eq(key_of(0), (double)(n.now + SECOND - 4 * 100 * MS), 1, "three run on its GPU");
	script_end(&n);
}

/* What a start changes counts for the next start in the same step. */
Test(scheduler_xlora, contention_is_counted_again_after_each_start)
{
	static const uint64_t slo[] = {300, 800, 1000}, t0[] = {100, 200, 350};
	script_start(&n, &(struct setup){.slots = 2, .options = {.queueing = "margin"}});
	for (int i = 0; i < 3; i++) {
		struct medusa_sched_function f = script_model(10);
		f.slo_ns = slo[i] * MS;
		f.t0_ns = t0[i] * MS;
		script_add(&n, f);
	}
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	for (uint32_t i = 0; i < 3; i++)
		script_arrive(&n, i, i);
	script_forget(&n);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	/* alone, 1 is more urgent than 2: 600 ms are left, and 650; beside 0 it is 2: 300 ms, and 400 */
	cr_assert(strstr(n.log, "run b1 f0 gpu0 [0]") && strstr(n.log, "run b2 f2 gpu0 [2]"), "%s", n.log);
	script_end(&n);
}

/* Section 3.1: where the backbone is; of several such GPUs, the one with the fewest batches. */
Test(scheduler_xlora, goes_where_its_backbone_is_and_fewest_run)
{
	script_start(&n,
		     &(struct setup){.gpus = 3, .slots = 4, .options = {.placement = "xlora", .preloading = "xlora"}});
	script_backbone(&n, 10);
	struct medusa_sched_function f = script_model(1);
	f.backbone = 0;
	for (int i = 0; i < 3; i++)
		script_add(&n, f);
	serve_every(2 * SECOND, 0, 2);
	uint32_t backbone = n.sched->backbones[0].artifact;
	cr_assert_eq(md_copy_at(n.sched, backbone, 0)->state, MD_THERE);
	cr_assert_eq(md_copy_at(n.sched, backbone, 1)->state, MD_THERE, "the standby: %s", n.log);
	script_forget(&n);
	script_arrive(&n, 2, 1);
	expect(&n, "swap t4 weights f1 gpu0 host\nrun b3 f1 gpu0 [2]\n");
	script_arrive(&n, 3, 2); /* GPU 2 has most memory free, and GPU 0 runs a batch */
	expect(&n, "swap t5 weights f2 gpu1 host\nrun b4 f2 gpu1 [3]\n");
	script_end(&n);
}

/* Section 4.3: the offloader's candidates are adapters and contexts, however little the backbone is worth. */
Test(scheduler_xlora, offloads_adapters_and_contexts_before_backbones)
{
	script_start(&n, &(struct setup){.gb = 20, .options.eviction = "density"});
	script_backbone(&n, 12);
	struct medusa_sched_function f = script_model(1);
	f.backbone = 0;
	f.context_bytes = GB;
	f.context_ns = 5 * SECOND;
	script_add(&n, f);
	script_add(&n, script_model(4));
	script_add(&n, script_model(5));
	script_add(&n, script_model(19));
	serve_every(10 * SECOND, 0, 3);
	serve_every(3 * SECOND, 1, 3); /* a byte of these weights is worth more than one of the backbone */
	script_forget(&n);
	script_arrive(&n, 1, 2);
	expect(&n, "evict weights f1 gpu0\nswap t5 weights f2 gpu0 host\nrun b7 f2 gpu0 [1]\n");
	script_copied(&n, 5);
	script_done(&n, 1);
	/* if they are not enough, the backbone goes too */
	script_forget(&n);
	script_arrive(&n, 2, 3);
	cr_assert(strstr(n.log, "evict backbone 0 gpu0") && strstr(n.log, "run b8 f3"), "%s", n.log);
	script_end(&n);
}

/* Equations 7 and 8, greedily: what a valuable context needs does not leave before it, so the victim is another. */
Test(scheduler_xlora, offloads_as_a_knapsack_with_precedence)
{
	script_start(&n, &(struct setup){.gb = 10, .options.eviction = "density"});
	struct medusa_sched_function f = script_model(4);
	f.context_bytes = GB;
	f.context_ns = 50 * SECOND;
	script_add(&n, f);
	script_add(&n, script_model(4));
	script_add(&n, script_model(4));
	serve_every(10 * SECOND, 0, 3);
	serve_every(3 * SECOND, 1, 3); /* of the weights, those of 0 are worth less */
	script_forget(&n);
	script_arrive(&n, 3, 2);
	expect(&n, "evict weights f1 gpu0\nswap t4 weights f2 gpu0 host\nrun b7 f2 gpu0 [3]\n");
	script_end(&n);
}

/*
 * Section 4.4: a standby backbone on another GPU as long as its memory is idle; when the owner fails, what it served is
 * redirected there at once, though nothing else is ever tried again.
 */
Test(scheduler_xlora, a_standby_takes_over_what_runs)
{
	script_start(&n, &(struct setup){.gpus = 2, .options = {.placement = "xlora", .preloading = "xlora"}});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.2);
	f.backbone = 0;
	script_add(&n, f);
	serve_every(2 * SECOND, 0, 2);
	cr_assert(strstr(n.log, "preload t3 backbone 0 gpu1 host"), "no standby: %s", n.log);
	script_forget(&n);
	script_wait(&n, 5 * SECOND);
	expect(&n, ""); /* one is enough */
	script_arrive(&n, 2, 0);
	expect(&n, "run b3 f0 gpu0 [2]\n");
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED});
	cr_assert(strstr(n.log, "run b4 f0 gpu1 [2]"), "%s", n.log);
	cr_assert_not(strstr(n.log, "swap t4 backbone"), "the standby has it: %s", n.log);
	script_end(&n);
}

/* The standby is worth nothing as long as the other copy serves: it is the first to go. */
Test(scheduler_xlora, a_standby_makes_room_before_all_else)
{
	script_start(&n,
		     &(struct setup){.gpus = 2,
				     .gb = 40,
				     .options = {.placement = "xlora", .preloading = "xlora", .eviction = "density"}});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.2);
	f.backbone = 0;
	script_add(&n, f);
	script_add(&n, script_model(12));
	script_add(&n, script_model(27));
	serve_every(2 * SECOND, 0, 2);
	serve_every(2 * SECOND, 1, 2);
	uint32_t backbone = n.sched->backbones[0].artifact;
	cr_assert_eq(n.sched->artifacts[backbone].copies, 2, "%s", n.log);
	script_arrive(&n, 3,
		      0); /* on GPU 0, so that the next one goes to GPU 1, where 12 GB are idle beside the standby */
	script_forget(&n);
	script_arrive(&n, 4, 2);
	cr_assert(strstr(n.log, "evict backbone 0 gpu1") && !strstr(n.log, "evict weights"), "%s", n.log);
	cr_assert_eq(n.sched->artifacts[backbone].copies, 1);
	script_end(&n);
}

/* Section 4.2: batches are for instances that are loaded; one that is not begins to load when it is asked for. */
Test(scheduler_xlora, what_no_gpu_holds_waits_for_no_batch)
{
	static const char *const names[] = {"xlora", "fixed"};
	for (int i = 0; i < 2; i++) {
		script_start(
		    &n, &(struct setup){.slots = 2,
					.options = {.batching = names[i], .fixed_batch = 4, .fixed_delay_ns = SECOND}});
		struct medusa_sched_function f = script_model(10);
		f.slo_ns = SECOND;
		f.max_batch = 4;
		f.max_parallel = 2;
		script_add(&n, f);
		script_arrive(&n, 1, 0);
		expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n");
		script_arrive(&n, 2, 0); /* now it is held, and computes */
		expect(&n, "");
		script_end(&n);
	}
}

/* A plan holds until something happens: the memory that the test adds behind the scheduler's back is not seen before. */
Test(scheduler_xlora, plans_when_something_has_happened)
{
	script_start(&n, &(struct setup){.gb = 40, .options = {.preloading = "xlora"}});
	script_add(&n, script_model(30));
	script_add(&n, script_model(15));
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_wait(&n, 3 * SECOND);
	script_forget(&n);
	n.sched->gpus[0].limit = 60 * GB;
	script_wait(&n, 3 * SECOND);
	expect(&n, "");
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 60);
	script_wait(&n, 3 * SECOND);
	expect(&n, "preload t3 weights f0 gpu0 host\n");
	script_end(&n);
}

/* ---- SwapServeLLM ----------------------------------------------------------------------------------------------- */

/* Section 3.5: an engine's queue holds what it has not answered yet, so of two busy ones the less busy one drains. */
Test(scheduler_swapserve, what_runs_counts_as_queued)
{
	for (uint32_t busier = 0; busier < 2; busier++) {
		script_start(
		    &n, &(struct setup){.gb = 40,
					.slots = 4,
					.options = {.eviction = "swapserve", .batching = "fixed", .fixed_batch = 8}});
		struct medusa_sched_function f = script_model(15);
		f.max_batch = 8;
		script_add(&n, f);
		script_add(&n, f);
		script_add(&n, f);
		script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
		for (uint64_t r = 1; r <= 4; r++)
			script_arrive(&n, r, r == 4 ? 1 - busier : busier);
		script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
		for (uint32_t t = 1; t <= 2; t++)
			script_copied(&n, t);
		script_arrive(&n, 5, 2);
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t weights = n.sched->functions[i].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
			cr_assert_eq(md_copy_at(n.sched, weights, 0)->draining, i != busier, "%u of %u: %s", i, busier,
				     n.log);
		}
		script_end(&n);
	}
}

/* Section 3.3: reservations of memory wait in a priority queue; here the longest queue comes first. */
Test(scheduler_swapserve, the_longest_queue_is_granted_memory_first)
{
	script_start(
	    &n, &(struct setup){.gb = 40, .slots = 4, .options = {.queueing = "swapserve", .eviction = "swapserve"}});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	n.now += MS;
	script_arrive(&n, 2, 1);
	n.now += MS;
	script_arrive(&n, 3, 2);
	script_arrive(&n, 4, 2);
	cr_assert_eq(script_books(&n, 0).waiting, 2);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "evict weights f0 gpu0\nswap t2 weights f2 gpu0 host\nrun b2 f2 gpu0 [3]\n");
	script_end(&n);
}

/* Section 6: engines belong to GPUs from the beginning; together they need more than the GPUs have. */
Test(scheduler_swapserve, engines_are_bound_and_swapped)
{
	script_start(&n,
		     &(struct setup){.gpus = 2, .gb = 40, .options = {.placement = "early", .eviction = "swapserve"}});
	for (int i = 0; i < 4; i++)
		script_add(&n, script_model(30));
	for (uint32_t i = 0; i < 4; i++)
		script_serve(&n, 1 + i, i);
	script_forget(&n);
	script_arrive(&n, 11, 0);
	script_arrive(&n, 12, 2); /* GPU 1 is idle, but it is not its */
	expect(&n, "evict weights f2 gpu0\nswap t5 weights f0 gpu0 host\nrun b5 f0 gpu0 [11]\n");
	script_end(&n);
}

/* ---- routers of today ------------------------------------------------------------------------------------------- */

/* Ollama: a model goes where most memory is free, and nobody leaves as long as one such GPU has room. */
Test(scheduler_room, where_it_is_else_where_most_is_free)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 40, .options.placement = "room"});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(15));
	for (uint32_t i = 0; i < 3; i++)
		script_serve(&n, 1 + i, i);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\nswap t2 weights f1 gpu1 host\nrun b2 f1 gpu1 "
		   "[2]\nswap t3 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_arrive(&n, 4, 1);
	expect(&n, "run b4 f1 gpu1 [4]\n");
	script_end(&n);
}
