/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's memory: reservations as in SwapServeLLM, residues, host memory, and budgets by bytes. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

enum { GEMMA, CODER, LLAMA, MODELS };

/*
 * SwapServeLLM, section 3.4: Gemma 7B (16 GB), DeepSeek-Coder 6.7B (14 GB), LLaMA 3.3 70B FP8 (75 GB) on one GPU of 80
 * GB. A gigabyte of each is its context, and a part of that stays when it is evicted.
 */
static void swapserve_node(double residue_gb)
{
	static const double gb[MODELS] = {15, 13, 74};
	script_start(&n, &(struct setup){.slots = 4, .options.eviction = "swapserve"});
	for (int i = 0; i < MODELS; i++) {
		struct medusa_sched_function f = script_model(gb[i]);
		f.context_bytes = GB;
		f.residue_bytes = (uint64_t)(residue_gb * 1e9);
		f.evict_ns = SECOND;
		script_add(&n, f);
	}
	script_serve(&n, 901, GEMMA);
	script_serve(&n, 902, CODER);
	script_forget(&n);
}

static void assert_within(double gb)
{
	struct medusa_sched_gpu_state g = script_books(&n, 0);
	uint64_t used = g.artifact_bytes + g.residue_bytes + g.kv_bytes;
	cr_assert_leq(used, (uint64_t)(gb * 1e9), "%llu bytes in use", (unsigned long long)used);
}

Test(scheduler_reservation, both_small_ones_fit_side_by_side)
{
	swapserve_node(0.5);
	script_arrive(&n, 1, GEMMA);
	script_arrive(&n, 2, CODER);
	expect(&n, "run b3 f0 gpu0 [1]\nrun b4 f1 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_reservation, is_granted_when_both_have_gone_and_not_before)
{
	swapserve_node(0.5);
	script_arrive(&n, 1, LLAMA);
	expect(&n, "evict t5 context f0 gpu0\nevict t6 weights f0 gpu0\nevict t7 context f1 gpu0\nevict t8 weights f1 "
		   "gpu0\n");
	cr_assert_eq(script_books(&n, 0).waiting, 1);
	for (uint32_t t = 5; t <= 7; t++) {
		script_evicted(&n, t);
		expect(&n, "");
	}
	script_evicted(&n, 8);
	expect(&n, "swap t9 weights f2 gpu0 host\nswap t10 context f2 gpu0 made\nrun b3 f2 gpu0 [1]\n");
	assert_within(80);
	cr_assert_eq(script_books(&n, 0).residue_bytes, GB);
	script_end(&n);
}

Test(scheduler_reservation, busy_ones_drain)
{
	swapserve_node(0.5);
	script_arrive(&n, 1, GEMMA);
	script_arrive(&n, 2, CODER);
	script_arrive(&n, 3, LLAMA);
	n.now += MS;
	script_arrive(&n, 4, GEMMA);
	expect(&n, "run b3 f0 gpu0 [1]\nrun b4 f1 gpu0 [2]\n");
	script_done(&n, 1);
	expect(&n, "evict t5 context f0 gpu0\nevict t6 weights f0 gpu0\n");
	script_evicted(&n, 5);
	script_evicted(&n, 6);
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, "evict t7 context f1 gpu0\nevict t8 weights f1 gpu0\n");
	script_evicted(&n, 7);
	script_evicted(&n, 8);
	expect(&n, "swap t9 weights f2 gpu0 host\nswap t10 context f2 gpu0 made\nrun b5 f2 gpu0 [3]\n");
	assert_within(80);
	script_end(&n);
}

/* Room for the second cache comes when the first one goes; function 1 need not go for it, nor stop. */
Test(scheduler_reservation, what_waits_for_a_cache_makes_nobody_drain)
{
	script_start(&n, &(struct setup){.gb = 20, .slots = 4, .options.eviction = "medusa"});
	struct medusa_sched_function large = script_model(10), small = script_model(2);
	large.max_parallel = small.max_parallel = 2;
	script_add(&n, large);
	script_add(&n, small);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_arrive_kv(&n, 3, 0, 6);
	script_arrive(&n, 4, 1);
	script_forget(&n);
	script_arrive_kv(&n, 5, 0, 6);
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).waiting, 1);
	script_arrive(&n, 6, 1);
	expect(&n, "run b5 f1 gpu0 [6]\n");
	script_done(&n, 3);
	expect(&n, "run b6 f0 gpu0 [5]\n");
	script_end(&n);
}

Test(scheduler_reservation, gemma_waits_and_comes_back)
{
	swapserve_node(0.5);
	script_arrive(&n, 1, LLAMA);
	script_arrive(&n, 2, GEMMA);
	for (uint32_t t = 5; t <= 8; t++)
		script_evicted(&n, t);
	script_copied(&n, 9);
	script_copied(&n, 10);
	cr_assert_eq(script_books(&n, 0).waiting, 1);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "evict t11 context f2 gpu0\nevict t12 weights f2 gpu0\n");
	script_evicted(&n, 11);
	script_evicted(&n, 12);
	expect(&n, "swap t13 weights f0 gpu0 host\nswap t14 context f0 gpu0 made\nrun b4 f0 gpu0 [2]\n");
	assert_within(80);
	script_end(&n);
}

/* What two leave behind is too much for the third: the older residue is offloaded as well. */
Test(scheduler_reservation, residues_that_leave_too_little_are_offloaded)
{
	swapserve_node(1);
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 76);
	script_arrive(&n, 1, LLAMA);
	for (uint32_t t = 5; t <= 8; t++)
		script_evicted(&n, t);
	expect(&n,
	       "evict t5 context f0 gpu0\nevict t6 weights f0 gpu0\nevict t7 context f1 gpu0\nevict t8 weights f1 "
	       "gpu0\noffload context f0 gpu0\nswap t9 weights f2 gpu0 host\nswap t10 context f2 gpu0 made\nrun b3 f2 "
	       "gpu0 [1]\n");
	assert_within(76);
	cr_assert_eq(script_books(&n, 0).residue_bytes, GB);
	script_end(&n);
}

Test(scheduler_reservation, two_wait_in_the_order_of_arrival)
{
	swapserve_node(0.5);
	struct medusa_sched_function f = script_model(70);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_arrive(&n, 1, GEMMA);
	script_arrive(&n, 2, CODER);
	n.now += MS;
	script_arrive(&n, 3, LLAMA);
	n.now += MS;
	script_arrive(&n, 4, 3);
	cr_assert_eq(script_books(&n, 0).waiting, 2);
	script_done(&n, 1);
	script_done(&n, 2);
	for (uint32_t t = 5; t <= 8; t++)
		script_evicted(&n, t);
	cr_assert_eq(script_function(&n, LLAMA).running, 1, "%s", n.log);
	script_copied(&n, 9);
	script_copied(&n, 10);
	script_forget(&n);
	script_done(&n, 3);
	script_evicted(&n, 11);
	script_evicted(&n, 12);
	cr_assert(strstr(n.log, "run b6 f3 gpu0 [4]"), "%s", n.log);
	assert_within(80);
	script_end(&n);
}

/* ---- KV caches ---- */

Test(scheduler_memory, a_batch_takes_as_many_as_their_kv_caches_fit)
{
	script_start(&n, &(struct setup){.gb = 40, .options.batching = "medusa"});
	struct medusa_sched_function f = script_model(30);
	f.max_batch = 8;
	f.kv_bytes = 3 * GB;
	script_add(&n, f);
	script_serve(&n, 9, 0);
	for (uint64_t i = 1; i <= 6; i++, n.now += MS)
		script_arrive(&n, i, 0);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "run b3 f0 gpu0 [2 3 4]\n");
	cr_assert_eq(script_books(&n, 0).kv_bytes, 9 * GB);
	script_done(&n, 2);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 6 * GB);
	script_done(&n, 3);
	script_done(&n, 4);
	expect(&n, "run b4 f0 gpu0 [5 6]\n");
	script_end(&n);
}

Test(scheduler_memory, kv_caches_count_against_others)
{
	script_start(&n, &(struct setup){.gb = 40, .slots = 2});
	script_add(&n, script_model(10));
	script_add(&n, script_model(10));
	script_arrive_kv(&n, 1, 0, 25);
	script_forget(&n);
	script_arrive(&n, 2, 1);
	expect(&n, "");
	script_copied(&n, 1);
	script_done(&n, 1);
	expect(&n, "swap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&n);
}

/* LoRAX 53 and 306: a limit by count runs out of memory, since ranks differ sixteen-fold. Here bytes count. */
Test(scheduler_known, lorax_53_and_306_adapters_are_budgeted_by_bytes)
{
	static const struct {
		double adapter_gb;
		uint32_t fit;
	} cases[] = {{0.1, 12}, {1.6, 6}};
	for (size_t i = 0; i < 2; i++) {
		script_start(&n, &(struct setup){.gb = 24, .slots = 16});
		script_backbone(&n, 14);
		for (uint32_t j = 0; j < 12; j++) {
			struct medusa_sched_function f = script_model(cases[i].adapter_gb);
			f.backbone = 0;
			script_add(&n, f);
		}
		for (uint32_t j = 0; j < 12; j++)
			script_arrive(&n, j, j);
		cr_assert_eq(script_books(&n, 0).running, cases[i].fit, "%g GB: %u run", cases[i].adapter_gb,
			     script_books(&n, 0).running);
		assert_within(24);
		script_end(&n);
	}
}

/* ---- the host's memory ---- */

/* 40 GB for three times 15 GB: whoever was used longest ago goes; what is being read stays. */
Test(scheduler_memory, host_memory_full_evicts_what_was_used_longest_ago)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 40, .host_gb = 40});
	struct medusa_sched_function f = script_model(15);
	f.in_host = 0;
	for (int i = 0; i < 3; i++)
		script_add(&n, f);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_forget(&n);
	script_serve(&n, 3, 2);
	expect(&n,
	       "evict weights f0 gpu0\noffload weights f0 host\nswap t3 weights f2 gpu0 cold\nrun b3 f2 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_memory, weights_that_find_no_room_in_the_host_pass_through)
{
	script_start(&n, &(struct setup){.host_gb = 20});
	script_add(&n, script_model(15)); /* in_host: it stays */
	struct medusa_sched_function f = script_model(12);
	f.in_host = 0;
	script_add(&n, f);
	script_serve(&n, 1, 1);
	expect(&n, "swap t1 weights f1 gpu0 cold\nrun b1 f1 gpu0 [1]\n");
	cr_assert_eq(n.sched->host_used, 15 * GB);
	script_end(&n);
}

/* A process that cannot have its memory now waits until it can; it is not started without. */
Test(scheduler_memory, a_library_waits_for_host_memory)
{
	script_start(&n, &(struct setup){.host_gb = 10, .slots = 2});
	struct medusa_sched_function f = script_model(1);
	f.in_host = 0;
	f.library_bytes = 6 * GB;
	f.context_bytes = GB;
	script_add(&n, f);
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	expect(&n,
	       "swap t1 library f0 host cold\nswap t2 weights f0 gpu0 cold\nswap t3 context f0 gpu0 made\nrun b1 f0 "
	       "gpu0 [1]\n");
	script_arrive(&n, 2, 1);
	expect(&n, "");
	for (uint32_t t = 1; t <= 3; t++)
		script_copied(&n, t);
	script_wait(&n, 100 * MS);
	expect(&n, "");
	script_done(&n, 1);
	script_wait(&n, 100 * MS);
	/* Idle, it makes room though its GPU has enough: the context goes, and the process with it. */
	expect(&n, "offload weights f0 host\noffload context f0 gpu0\noffload library f0 host\nswap t4 library f1 host "
		   "cold\nswap t5 weights f1 gpu0 cold\nswap t6 context f1 gpu0 made\nrun b2 f1 gpu0 [2]\n");
	script_end(&n);
}

/* ---- others on the same GPU ---- */

/* A reservation on a GPU that other functions fill moves to the next GPU. */
Test(scheduler_reservation, moves_when_others_take_the_memory)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 40, .slots = 2});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_copied(&n, 1);
	script_copied(&n, 2);
	script_arrive(&n, 3, 2);
	cr_assert_eq(script_books(&n, 0).waiting, 1);
	script_forget(&n);
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 55);
	cr_assert(script_books(&n, 0).waiting == 0 && script_books(&n, 1).waiting == 1, "it waits on GPU 0 for ever");
	script_done(&n, 2);
	expect(&n, "evict weights f1 gpu1\nswap t3 weights f2 gpu1 host\nrun b3 f2 gpu1 [3]\n");
	script_end(&n);
}

Test(scheduler_memory, a_queue_has_its_bound)
{
	script_start(&n, &(struct setup){.options.max_queue = 2});
	script_add(&n, script_model(30));
	for (uint64_t i = 1; i <= 4; i++)
		script_arrive(&n, i, 0);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\nreject 4 queue full\n");
	script_end(&n);
}

/* Service counts from when it began, not from when it was sent for. */
Test(scheduler_memory, started_tells_when_service_began)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	n.now += 5 * SECOND;
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_STARTED, .batch = n.batches[0]});
	n.now += SECOND;
	script_done(&n, 1);
	cr_assert_float_eq(n.sched->functions[0].service_s, 1, 1e-9);
	script_end(&n);
}
