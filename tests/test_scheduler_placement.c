/* SPDX-License-Identifier: Apache-2.0 */
/* Where the scheduler puts things: placement, eviction and preloading, each policy's own rule. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* ---- placement ---- */

Test(scheduler_placement, first_is_where_it_is_else_the_first_with_room)
{
	script_start(&n, &(struct setup){.gpus = 3, .gb = 40});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 1);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\nswap t2 weights f1 gpu1 host\nrun b2 f1 gpu1 "
		   "[2]\n");
	script_copied(&n, 1);
	script_copied(&n, 2);
	script_done(&n, 1);
	script_done(&n, 2);
	script_arrive(&n, 3, 1);
	expect(&n, "run b3 f1 gpu1 [3]\n");
	script_arrive(&n, 4, 2);
	expect(&n, "evict weights f0 gpu0\nswap t3 weights f2 gpu0 host\nrun b4 f2 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_placement, random_draws_among_all_with_room)
{
	uint32_t count[4] = {0};
	script_start(&n, &(struct setup){.gpus = 4, .options.placement = "random"});
	for (uint32_t f = 0; f < 80; f++) {
		script_add(&n, script_model(1));
		script_serve(&n, f, f);
		for (uint32_t gpu = 0; gpu < 4; gpu++)
			count[gpu] +=
			    md_copy_at(n.sched, n.sched->functions[f].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS], gpu)
				->state == MD_THERE;
	}
	for (uint32_t gpu = 0; gpu < 4; gpu++)
		cr_assert(count[gpu] >= 10 && count[gpu] <= 32, "GPU %u was drawn %u times of 80", gpu, count[gpu]);
	script_end(&n);
}

/* Torpor's Native: bound to one GPU when it is registered, to the one with the least, and nowhere else ever. */
Test(scheduler_placement, early_binding_never_moves)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 40, .options = {.placement = "early", .eviction = "never"}});
	script_add(&n, script_model(20)); /* GPU 0 */
	script_add(&n, script_model(15)); /* GPU 1 */
	script_add(&n, script_model(20)); /* GPU 1: 15 are less than 20 */
	script_add(&n, script_model(39)); /* nowhere: 20 and 35 are bound */
	script_arrive(&n, 1, 1);
	script_arrive(&n, 2, 2);
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 3);
	expect(&n, "swap t1 weights f1 gpu1 host\nrun b1 f1 gpu1 [1]\nswap t2 weights f0 gpu0 host\nrun b2 f0 gpu0 "
		   "[3]\nreject 4 never fits\n");
	script_copied(&n, 2);
	script_done(&n, 3);
	expect(&n, ""); /* GPU 0 is idle, and function 2 waits for its own */
	script_copied(&n, 1);
	script_done(&n, 1);
	expect(&n, "swap t3 weights f2 gpu1 host\nrun b3 f2 gpu1 [2]\n");
	/* Who is unregistered makes room for others. */
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 0});
	script_forget(&n);
	script_add(&n, script_model(39));
	script_arrive(&n, 5, 4);
	expect(&n, "swap t4 weights f4 gpu0 host\nrun b4 f4 gpu0 [5]\n");
	script_end(&n);
}

/*
 * Torpor, algorithm 1, on four GPUs, 0 and 1 behind one PCIe switch, 2 and 3 behind another. Heavy functions: a copy
 * makes the first token take more than 1.3 times as long.
 */
enum { HEAVY_A, HEAVY_B, LIGHT_A, LIGHT_B, HEAVY_C, FUNCTIONS };

static void torpor_node(void)
{
	script_start(&n, &(struct setup){.gpus = 4, .options = {.placement = "torpor", .eviction = "torpor"}});
	for (int i = 0; i < FUNCTIONS; i++) {
		struct medusa_sched_function f = script_model(10);
		if (i == LIGHT_A || i == LIGHT_B)
			f.swap_ns = 110 * MS;
		f.max_parallel = 4;
		script_add(&n, f);
	}
	cr_assert(n.sched->functions[HEAVY_A].heavy && !n.sched->functions[LIGHT_A].heavy);
}

Test(scheduler_placement, torpor_1_where_it_is)
{
	torpor_node();
	n.sched->gpus[3].pcie_switch = 1;
	script_serve(&n, 1, HEAVY_A);
	script_forget(&n);
	script_arrive(&n, 2, HEAVY_A);
	expect(&n, "run b2 f0 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_placement, torpor_2_from_the_fastest_peer)
{
	/* GPU 0 has it. To 1 at 25 GB/s, to 2 at 50, to 3 no link. */
	static const double links[16] = {[0 * 4 + 1] = 25, [0 * 4 + 2] = 50};
	script_start(&n, &(struct setup){.gpus = 4, .links = links, .options.placement = "torpor"});
	struct medusa_sched_function f = script_model(10);
	f.max_parallel = 4;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 0);
	expect(&n,
	       "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\nswap t2 weights f0 gpu2 peer0\nrun b2 f0 gpu2 [2]\n"
	       "swap t3 weights f0 gpu1 peer0\nrun b3 f0 gpu1 [3]\nswap t4 weights f0 gpu3 host\nrun b4 f0 gpu3 "
	       "[4]\n");
	script_end(&n);
}

/* 3: a switch with no copy under way; 4: one with light ones; 5: one with heavy ones, when there is no other. */
Test(scheduler_placement, torpor_3_4_5_where_the_switch_is_quietest)
{
	torpor_node();
	script_arrive(&n, 1, HEAVY_A);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n");
	script_arrive(&n, 2, LIGHT_A);
	expect(&n, "swap t2 weights f2 gpu2 host\nrun b2 f2 gpu2 [2]\n");
	script_arrive(&n, 3, LIGHT_B);
	expect(&n, "swap t3 weights f3 gpu3 host\nrun b3 f3 gpu3 [3]\n");
	script_arrive(&n, 4, HEAVY_B);
	expect(&n, "swap t4 weights f1 gpu1 host\nrun b4 f1 gpu1 [4]\n");
	/* All are busy: it waits for the first that is free. */
	script_arrive(&n, 5, HEAVY_C);
	expect(&n, "");
	script_copied(&n, 2);
	script_done(&n, 2);
	expect(&n, "swap t5 weights f4 gpu2 host\nrun b5 f4 gpu2 [5]\n");
	script_end(&n);
}

Test(scheduler_placement, medusa_weighs_waiting_for_copies_against_others_batches)
{
	script_start(&n, &(struct setup){.gpus = 2, .slots = 2, .options.placement = "medusa"});
	struct medusa_sched_function f = script_model(10);
	f.max_parallel = 2;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_forget(&n);
	/* 100 ms until another batch has its first token are less than a second of copying. */
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 0);
	expect(&n, "run b2 f0 gpu0 [2]\n");
	script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 2);
	expect(&n, "run b3 f0 gpu0 [3]\n");
	script_arrive(&n, 4, 1);
	expect(&n, "swap t2 weights f1 gpu1 host\nrun b4 f1 gpu1 [4]\n");
	script_end(&n);
}

/* Measured times to the first token count for more than what the bytes suggest. */
Test(scheduler_placement, medusa_believes_measured_swaps)
{
	for (int slow = 0; slow < 2; slow++) {
		script_start(&n, &(struct setup){.gpus = 2, .slots = 2, .options.placement = "medusa"});
		struct medusa_sched_function f = script_model(10);
		f.swap_ns = slow ? 0 : 150 * MS;
		script_add(&n, script_model(10));
		f.max_parallel = 2;
		script_add(&n, f);
		script_serve(&n, 1, 1);
		script_arrive(&n, 2, 1);
		script_forget(&n);
		/* After its own batch in 200 ms, or copied to an idle GPU in 150. */
		script_arrive(&n, 3, 1);
		if (slow)
			expect(&n, "");
		else
			expect(&n, "swap t2 weights f1 gpu1 host\nrun b3 f1 gpu1 [3]\n");
		script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 2);
		expect(&n, slow ? "run b3 f1 gpu0 [3]\n" : "");
		script_end(&n);
	}
}

/* M first tokens at once take M times as long each; copies under way take nothing from others. */
Test(scheduler_placement, medusa_computes_first_tokens_in_turn)
{
	script_start(&n, &(struct setup){.slots = 4, .gb = 60, .options.placement = "medusa"});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(10));
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_forget(&n);
	script_arrive(&n, 3, 2);
	expect(&n, "swap t3 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_arrive(&n, 4, 0);
	expect(&n, "run b4 f0 gpu0 [4]\n");
	script_arrive(&n, 5, 1);
	expect(&n, "");
	script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 4);
	expect(&n, "run b5 f1 gpu0 [5]\n");
	script_end(&n);
}

/* A node that does not report them is not served one by one: 100 ms are long over. */
Test(scheduler_placement, medusa_waits_for_no_first_token_that_is_overdue)
{
	script_start(&n, &(struct setup){.slots = 2, .gb = 60, .options.placement = "medusa"});
	script_add(&n, script_model(10));
	script_add(&n, script_model(10));
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_arrive(&n, 3, 0);
	script_forget(&n);
	n.now += 399 * MS;
	script_arrive(&n, 4, 1);
	expect(&n, "");
	n.now += 2 * MS;
	script_timer(&n);
	expect(&n, "run b4 f1 gpu0 [4]\n");
	script_end(&n);
}

/* ---- eviction ---- */

/* Functions of the given GB and SLO on one GPU, served in turn, a second apart. */
static void resident(const char *eviction, double gpu_gb, const double *gb, uint32_t count)
{
	script_start(&n, &(struct setup){.gb = gpu_gb, .options.eviction = eviction});
	for (uint32_t i = 0; i < count; i++)
		script_add(&n, script_model(gb[i]));
	for (uint32_t i = 0; i + 1 < count; i++) {
		script_serve(&n, 900 + i, i);
		n.now += SECOND;
	}
	script_forget(&n);
}

static const double equal[] = {10, 10, 10, 10};

Test(scheduler_eviction, lru_takes_what_was_used_longest_ago)
{
	resident("lru", 30, equal, 4);
	script_serve(&n, 1, 0);
	script_forget(&n);
	script_arrive(&n, 2, 3);
	expect(&n, "evict weights f1 gpu0\nswap t4 weights f3 gpu0 host\nrun b5 f3 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_eviction, never_waits_until_what_is_there_has_gone_by_itself)
{
	resident("never", 30, equal, 4);
	script_arrive(&n, 1, 3);
	script_wait(&n, 601 * SECOND);
	expect(&n, "reject 1 waited too long\n");
	script_end(&n);
}

Test(scheduler_eviction, timeout_takes_only_what_was_idle_for_long)
{
	resident("timeout", 30, equal, 4);
	script_arrive(&n, 1, 3);
	script_wait(&n, 15 * SECOND);
	expect(&n, "");
	script_wait(&n, 50 * SECOND);
	expect(&n, "evict weights f0 gpu0\nswap t4 weights f3 gpu0 host\nrun b4 f3 gpu0 [1]\n");
	script_end(&n);
}

/* Light ones go before heavy ones, though used later. */
Test(scheduler_eviction, torpor_heaviness)
{
	script_start(&n, &(struct setup){.gb = 30, .options.eviction = "torpor"});
	for (int i = 0; i < 4; i++) {
		struct medusa_sched_function f = script_model(10);
		f.swap_ns = i == 1 ? 120 * MS : 0;
		script_add(&n, f);
	}
	for (uint32_t i = 0; i < 3; i++)
		script_serve(&n, 900 + i, i);
	script_serve(&n, 910, 1);
	script_forget(&n);
	script_arrive(&n, 1, 3);
	expect(&n, "evict weights f1 gpu0\nswap t4 weights f3 gpu0 host\nrun b5 f3 gpu0 [1]\n");
	script_end(&n);
}

/* A heavy one that another GPU has too goes like a light one; that makes the other copy the last, which stays. */
Test(scheduler_eviction, torpor_at_most_one_replica_goes_first)
{
	script_start(&n,
		     &(struct setup){.gpus = 2, .gb = 30, .options = {.placement = "torpor", .eviction = "torpor"}});
	for (int i = 0; i < 6; i++) {
		struct medusa_sched_function f = script_model(10);
		f.max_parallel = 2;
		script_add(&n, f);
	}
	/* Function 0 on both; 1 and 2 on GPU 0, 3 and 4 on GPU 1, used before it. */
	script_arrive(&n, 1, 1);
	script_arrive(&n, 2, 3);
	for (uint32_t t = 1; t <= 2; t++)
		script_copied(&n, t);
	script_done(&n, 1);
	script_done(&n, 2);
	script_arrive(&n, 3, 2);
	script_arrive(&n, 4, 4);
	for (uint32_t t = 3; t <= 4; t++)
		script_copied(&n, t);
	script_done(&n, 3);
	script_done(&n, 4);
	n.now += MS;
	script_arrive(&n, 5, 0);
	script_arrive(&n, 6, 0);
	for (uint32_t t = 5; t <= 6; t++)
		script_copied(&n, t);
	script_done(&n, 5);
	script_done(&n, 6);
	uint32_t shared = n.sched->functions[0].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
	cr_assert_eq(n.sched->artifacts[shared].copies, 2, "%s", n.log);
	script_forget(&n);
	script_arrive(&n, 7, 5);
	cr_assert(strstr(n.log, "evict weights f0 "), "%s", n.log);
	script_copied(&n, 7);
	script_arrive(&n, 8, 1);
	script_forget(&n);
	script_add(&n, script_model(10));
	script_arrive(&n, 9, 6);
	script_done(&n, 7);
	script_done(&n, 8);
	cr_assert_eq(n.sched->artifacts[shared].copies, 1, "the last copy went before older ones: %s", n.log);
	script_end(&n);
}

Test(scheduler_eviction, swapserve_takes_the_shortest_queue_and_then_lru)
{
	resident("swapserve", 30, equal, 4);
	/* Function 2 runs, and one more waits for 0: of 0 and 1 the latter goes, though used later. */
	script_arrive(&n, 1, 2);
	n.now += MS;
	script_arrive(&n, 2, 3);
	n.now += MS;
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "evict weights f1 gpu0\nswap t4 weights f3 gpu0 host\nrun b5 f3 gpu0 [2]\n");
	script_end(&n);
}

/* Value of a byte: what is called often stays, whenever it was used last. */
Test(scheduler_eviction, density_takes_the_least_value_of_a_byte)
{
	resident("density", 30, equal, 4);
	for (uint64_t i = 0; i < 20; i++)
		script_serve(&n, 100 + i, i % 2 ? 0 : 1);
	n.now += SECOND;
	script_serve(&n, 200, 2);
	script_forget(&n);
	script_arrive(&n, 1, 3);
	expect(&n, "evict weights f2 gpu0\nswap t4 weights f3 gpu0 host\nrun b25 f3 gpu0 [1]\n");
	script_end(&n);
}

/* What has just come stays for about as long as bringing it took, though others are called more often. */
Test(scheduler_eviction, medusa_least_residency)
{
	for (int fresh = 0; fresh < 2; fresh++) {
		resident("medusa", 20, (const double[]){10, 10, 10}, 2);
		for (uint64_t i = 0; i < 8; i++) {
			script_serve(&n, 100 + i, 0);
			n.now += 200 * MS;
		}
		script_serve(&n, 200, 1);
		n.now += fresh ? 100 * MS : 2 * SECOND;
		script_add(&n, script_model(10));
		script_forget(&n);
		script_arrive(&n, 1, 2);
		cr_assert(strstr(n.log, fresh ? "evict weights f0" : "evict weights f1"), "fresh %d: %s", fresh, n.log);
		script_end(&n);
	}
}

/* What leaves with a backbone counts: of itself it is worth less than the other model, with its contexts more. */
Test(scheduler_eviction, medusa_counts_what_leaves_with_a_backbone)
{
	script_start(&n, &(struct setup){.gb = 32, .options.eviction = "medusa"});
	script_backbone(&n, 12);
	struct medusa_sched_function f = script_model(0.5);
	f.backbone = 0;
	f.context_bytes = GB;
	f.context_ns = 3 * SECOND;
	for (int i = 0; i < 3; i++)
		script_add(&n, f);
	script_add(&n, script_model(12));
	script_add(&n, script_model(10));
	for (uint32_t i = 0; i < 3; i++) {
		script_serve(&n, i, i);
		n.now += 20 * SECOND;
	}
	for (uint64_t i = 0; i < 3; i++) {
		script_serve(&n, 10 + i, 3);
		n.now += 10 * SECOND;
	}
	script_forget(&n);
	script_arrive(&n, 20, 4);
	expect(&n, "evict weights f3 gpu0\nswap t9 weights f4 gpu0 host\nrun b7 f4 gpu0 [20]\n");
	script_end(&n);
}

/* A backbone takes those with it that are of no use without. */
Test(scheduler_eviction, a_backbone_goes_with_its_adapters)
{
	script_start(&n, &(struct setup){.gb = 20});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(1);
	f.backbone = 0;
	f.context_bytes = GB;
	f.residue_bytes = GB / 4;
	script_add(&n, f);
	script_add(&n, script_model(19));
	script_serve(&n, 1, 0);
	script_forget(&n);
	script_arrive(&n, 2, 1);
	expect(&n,
	       "evict context f0 gpu0\nevict weights f0 gpu0\nevict backbone 0 gpu0\nswap t4 weights f1 gpu0 host\nrun "
	       "b2 f1 gpu0 [2]\n");
	script_end(&n);
}

/* ---- preloading ---- */

Test(scheduler_preloading, a_plan_is_carried_out_piece_by_piece)
{
	static const char *const names[] = {"xlora", "medusa"};
	for (int i = 0; i < 2; i++) {
		script_start(&n, &(struct setup){.gb = 60, .host_gb = 100, .options.preloading = names[i]});
		for (int j = 0; j < 3; j++) {
			struct medusa_sched_function f = script_model(10);
			f.in_host = 0;
			script_add(&n, f);
		}
		for (uint32_t f = 0; f < 3; f++)
			script_serve(&n, f, f);
		script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
		script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
		script_forget(&n);
		script_wait(&n, SECOND);
		uint32_t loads = 0;
		for (uint32_t t = 4; loads < 3; loads++, t++) {
			cr_assert(n.transfer_count == t, "%s: %u transfers, expected one at a time: %s", names[i],
				  n.transfer_count, n.log);
			cr_assert(strstr(n.log, "preload t"), "%s: %s", names[i], n.log);
			script_forget(&n);
			script_copied(&n, t);
		}
		cr_assert_eq(script_books(&n, 0).artifact_bytes, 30 * GB, "%s", names[i]);
		script_arrive(&n, 10, 1);
		cr_assert(strstr(n.log, "run b4 f1 gpu0 [10]") && !strstr(n.log, "swap"), "%s: %s", names[i], n.log);
		script_end(&n);
	}
}

/* Requests come first: nothing is preloaded onto a GPU to which something is on its way. */
Test(scheduler_preloading, gives_way_to_requests)
{
	script_start(&n, &(struct setup){.gb = 60, .options.preloading = "medusa"});
	for (int j = 0; j < 3; j++)
		script_add(&n, script_model(10));
	for (uint32_t f = 0; f < 3; f++)
		script_serve(&n, f, f);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	script_arrive(&n, 10, 1);
	script_forget(&n);
	script_wait(&n, 3 * SECOND);
	expect(&n, "");
	script_copied(&n, 4);
	script_wait(&n, SECOND);
	cr_assert(strstr(n.log, "preload"), "%s", n.log);
	script_end(&n);
}

Test(scheduler_preloading, none_waits_for_requests)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(10));
	script_serve(&n, 1, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	script_forget(&n);
	script_wait(&n, 100 * SECOND);
	expect(&n, "");
	script_end(&n);
}
