/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs have a function: max_replicas, and what stays there while it is idle: min_replicas and pinned. */
#include "tests/scheduler_fixture.h"

static struct script r;

static uint32_t start_replicas(uint32_t most, struct setup setup)
{
	struct medusa_sched_function f = script_model(10);
	f.max_parallel = 8;
	f.max_replicas = most;
	setup.gb = setup.gb > 0 ? setup.gb : 40;
	script_start(&r, &setup);
	return script_add(&r, f);
}

Test(scheduler_replicas, no_more_gpus_hold_a_function_than_may)
{
	for (uint32_t most = 0; most <= 4; most++) {
		start_replicas(most, (struct setup){.gpus = 4, .options.placement = "medusa"});
		for (uint64_t i = 1; i <= 8; i++)
			script_arrive(&r, i, 0);
		cr_assert_eq(r.transfer_count, most ? most : 4, "%s", r.log);
		for (uint32_t t = 1; t <= r.transfer_count; t++)
			script_copied(&r, t);
		for (uint64_t i = 1; i <= 8; i++)
			script_done(&r, i);
		cr_assert_eq(script_stats(&r).served, 8);
		cr_assert_eq(r.transfer_count, most ? most : 4, "%s", r.log);
		script_end(&r);
	}
}

/* A request with a large KV cache fits on the larger GPU alone: the idle copy on the other one makes way. */
Test(scheduler_replicas, what_is_idle_makes_way_for_a_gpu_where_the_request_fits)
{
	for (int slow = 0; slow < 2; slow++) {
		struct medusa_sched_function f = script_model(10);
		f.max_replicas = 1;
		f.evict_ns = slow ? SECOND : 0;
		script_start(&r, &(struct setup){.gpus = 2, .gb = 80});
		script_add(&r, f);
		script_bytes(&r, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 20);
		script_serve(&r, 1, 0);
		script_forget(&r);
		script_arrive_kv(&r, 2, 0, 30);
		if (slow) {
			expect(&r, "offload t2 weights f0 gpu0\n");
			script_evicted(&r, 2);
			expect(&r, "swap t3 weights f0 gpu1 host\nrun b2 f0 gpu1 [2]\n");
		} else {
			script_wait(&r, SECOND);
			expect(&r, "offload weights f0 gpu0\nswap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [2]\n");
		}
		script_end(&r);
	}
}

/* The successor of a GPU that drains is loaded while that one still runs a request. */
Test(scheduler_replicas, a_gpu_that_drains_does_not_count)
{
	start_replicas(1, (struct setup){.gpus = 2});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_gpu(&r, MEDUSA_SCHED_EVENT_GPU_DRAIN, 0);
	script_forget(&r);
	script_arrive(&r, 2, 0);
	expect(&r, "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [2]\n");
	script_end(&r);
}

/* A dead process serves nobody: its successor is loaded elsewhere while what it has left behind leaves. */
Test(scheduler_replicas, what_a_dead_process_has_left_does_not_count)
{
	struct medusa_sched_function f = script_model(10);
	f.max_replicas = 1;
	f.evict_ns = SECOND;
	script_start(&r, &(struct setup){.gpus = 2});
	script_add(&r, f);
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_forget(&r);
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
	expect(&r, "offload t2 weights f0 gpu0\nswap t3 weights f0 gpu1 host\nrun b2 f0 gpu1 [1]\n");
	script_transfer(&r, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 2);
	expect(&r, "offload t4 weights f0 gpu0\n");
	script_evicted(&r, 4);
	script_copied(&r, 3);
	script_done(&r, 1);
	script_arrive(&r, 2, 0);
	expect(&r, "run b3 f0 gpu1 [2]\n");
	script_end(&r);
}

/* A limit that is lowered: what lies on two GPUs stays, and no third one is begun. */
Test(scheduler_replicas, a_limit_that_is_lowered)
{
	start_replicas(2, (struct setup){.gpus = 3});
	script_arrive(&r, 1, 0);
	script_arrive(&r, 2, 0);
	script_copied(&r, 1);
	script_copied(&r, 2);
	struct medusa_sched_function f = script_model(10);
	f.max_parallel = 8;
	f.max_replicas = 1;
	cr_assert_eq(medusa_sched_change_function(r.sched, 0, &f), 0, "%s", medusa_sched_error(r.sched));
	script_forget(&r);
	script_arrive(&r, 3, 0);
	cr_assert_null(strstr(r.log, "swap"), "%s", r.log);
	script_done(&r, 1);
	cr_assert_null(strstr(r.log, "gpu2"), "%s", r.log);
	script_done(&r, 2);
	script_done(&r, 3);
	cr_assert_eq(script_stats(&r).served, 3);
	script_end(&r);
}

/* Idle GPUs are not filled with further copies. */
Test(scheduler_replicas, preloading_keeps_to_it)
{
	static const char *const policies[] = {"medusa", "xlora"};
	for (size_t i = 0; i < 2; i++) {
		start_replicas(1, (struct setup){.gpus = 2, .options.preloading = policies[i]});
		for (uint64_t request = 1; request < 30; request++)
			script_serve(&r, request, 0);
		script_wait(&r, 60 * SECOND);
		cr_assert_eq(!!script_books(&r, 0).artifact_bytes + !!script_books(&r, 1).artifact_bytes, 1, "%s: %s",
			     policies[i], r.log);
		script_end(&r);
	}
}

/* ---- what is kept ---- */

static struct medusa_sched_function kept_model(double gb, uint32_t least)
{
	struct medusa_sched_function f = script_model(gb);
	f.min_replicas = least;
	return f;
}

/* The copies that have been sent for so far arrive. */
static void all_copied(void)
{
	for (uint32_t t = 1; t <= r.transfer_count; t++)
		script_copied(&r, t);
}

Test(scheduler_replicas, some_are_loaded_ahead)
{
	script_start(&r, &(struct setup){.gpus = 3, .gb = 40});
	script_add(&r, kept_model(10, 2));
	script_add(&r, script_model(35));
	script_timer(&r);
	expect(&r, "preload t1 weights f0 gpu0 host\n");
	script_copied(&r, 1);
	expect(&r, "preload t2 weights f0 gpu1 host\n");
	script_copied(&r, 2);
	expect(&r, "");
	script_arrive(&r, 1, 1);
	expect(&r, "swap t3 weights f1 gpu2 host\nrun b1 f1 gpu2 [1]\n");
	script_arrive(&r, 2, 0);
	expect(&r, "run b2 f0 gpu0 [2]\n");
	script_end(&r);
}

/* What is idle makes way for it, and what is kept makes way for nobody. */
Test(scheduler_replicas, what_is_kept_is_not_evicted)
{
	script_start(&r, &(struct setup){.gb = 40});
	script_add(&r, script_model(20));
	script_serve(&r, 1, 0);
	script_add(&r, kept_model(30, 1));
	script_forget(&r);
	script_timer(&r);
	expect(&r, "evict weights f0 gpu0\npreload t2 weights f1 gpu0 host\n");
	script_copied(&r, 2);
	script_arrive(&r, 2, 0);
	script_wait(&r, 20 * SECOND);
	expect(&r, "");
	cr_assert_eq(script_books(&r, 0).artifact_bytes, 30 * GB);
	script_arrive(&r, 3, 1);
	expect(&r, "run b2 f1 gpu0 [3]\n");
	script_done(&r, 3);
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1});
	script_wait(&r, SECOND);
	cr_assert(strstr(r.log, "run b3 f0 gpu0 [2]\n"), "%s", r.log);
	script_end(&r);
}

/* Evictions that take time, of several functions: each is waited for. */
Test(scheduler_replicas, room_is_made_in_time)
{
	script_start(&r, &(struct setup){.gb = 40});
	struct medusa_sched_function slow = script_model(15);
	slow.evict_ns = SECOND;
	script_add(&r, slow);
	script_add(&r, slow);
	script_serve(&r, 1, 0);
	script_serve(&r, 2, 1);
	script_add(&r, kept_model(40, 1));
	script_forget(&r);
	script_timer(&r);
	script_evicted(&r, 3);
	script_evicted(&r, 4);
	script_copied(&r, r.transfer_count);
	cr_assert_eq(script_books(&r, 0).artifact_bytes, 40 * GB, "%s", r.log);
	script_end(&r);
}

Test(scheduler_replicas, a_lost_or_drained_gpu_is_replaced)
{
	script_start(&r, &(struct setup){.gpus = 2, .gb = 40});
	script_add(&r, kept_model(10, 1));
	script_timer(&r);
	script_copied(&r, 1);
	script_forget(&r);
	script_gpu(&r, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	expect(&r, "preload t2 weights f0 gpu1 host\n");
	script_copied(&r, 2);
	script_gpu(&r, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	expect(&r, "");
	script_gpu(&r, MEDUSA_SCHED_EVENT_GPU_DRAIN, 1);
	cr_assert(strstr(r.log, "preload t3 weights f0 gpu0 "), "%s", r.log);
	all_copied();
	cr_assert_eq(script_books(&r, 1).artifact_bytes, 0, "%s", r.log);
	cr_assert_eq(script_books(&r, 0).artifact_bytes, 10 * GB, "%s", r.log);
	script_end(&r);
}

/* After a copy that failed nothing is sent for a while. */
Test(scheduler_replicas, a_failure_is_not_repeated_at_once)
{
	script_start(&r, &(struct setup){0});
	script_add(&r, kept_model(10, 1));
	script_timer(&r);
	script_forget(&r);
	script_transfer(&r, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
	script_timer(&r);
	expect(&r, "");
	script_wait(&r, 6 * SECOND);
	expect(&r, "preload t2 weights f0 gpu0 host\n");
	script_end(&r);
}

Test(scheduler_replicas, a_process_that_dies_is_replaced)
{
	script_start(&r, &(struct setup){0});
	script_add(&r, kept_model(10, 1));
	script_timer(&r);
	script_copied(&r, 1);
	script_forget(&r);
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
	script_timer(&r);
	expect(&r, "offload weights f0 gpu0\npreload t2 weights f0 gpu0 host\n");
	script_end(&r);
}

/* A pinned function stays wherever it has come, with its backbone; it is not brought anywhere ahead. */
Test(scheduler_replicas, what_is_pinned_stays_where_it_is)
{
	script_start(&r, &(struct setup){.gb = 40});
	script_backbone(&r, 20);
	struct medusa_sched_function f = script_model(5);
	f.backbone = 0;
	f.pinned = 1;
	f.keep_alive_ns = SECOND;
	script_add(&r, f);
	script_add(&r, script_model(30));
	script_timer(&r);
	expect(&r, "");
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_wait(&r, 10 * SECOND);
	script_arrive(&r, 2, 1);
	script_wait(&r, 10 * SECOND);
	expect(&r, "");
	cr_assert_eq(script_books(&r, 0).artifact_bytes, 25 * GB);
	f.pinned = 0;
	cr_assert_eq(medusa_sched_change_function(r.sched, 0, &f), 0, "%s", medusa_sched_error(r.sched));
	script_wait(&r, SECOND);
	cr_assert(strstr(r.log, "run b2 f1 gpu0 [2]\n"), "%s", r.log);
	script_end(&r);
}

/* The owner of a backbone dies: what is left of it and of the function leaves, and both are loaded anew. */
Test(scheduler_replicas, a_backbone_that_fails_is_replaced)
{
	script_start(&r, &(struct setup){.gb = 40});
	script_backbone(&r, 20);
	struct medusa_sched_function f = kept_model(5, 1);
	f.backbone = 0;
	script_add(&r, f);
	script_timer(&r);
	all_copied();
	script_forget(&r);
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED});
	script_timer(&r);
	expect(&r, "offload weights f0 gpu0\noffload backbone 0 gpu0\npreload t3 backbone 0 gpu0 host\npreload t4 "
		   "weights f0 gpu0 host\n");
	script_end(&r);
}

/* A function that has nothing but a backbone keeps that backbone, for adapters that come and go. */
Test(scheduler_replicas, a_backbone_alone_is_kept)
{
	script_start(&r, &(struct setup){.gpus = 2, .gb = 20});
	struct medusa_sched_function base = script_model(0), adapter = script_model(1), other = script_model(15);
	base.backbone = adapter.backbone = script_backbone(&r, 14);
	base.min_replicas = 1;
	script_add(&r, base);
	script_add(&r, adapter);
	script_add(&r, other);
	script_timer(&r);
	expect(&r, "preload t1 backbone 0 gpu0 host\n");
	script_copied(&r, 1);
	script_arrive(&r, 1, 1);
	expect(&r, "swap t2 weights f1 gpu0 host\nrun b1 f1 gpu0 [1]\n");
	script_copied(&r, 2);
	script_done(&r, 1);
	for (uint64_t i = 2; i <= 20; i += 2) {
		script_arrive(&r, i, 2);
		script_arrive(&r, i + 1, 2);
	}
	cr_assert_null(strstr(r.log, "evict backbone"), "%s", r.log);
	cr_assert_null(strstr(r.log, "offload backbone"), "%s", r.log);
	script_end(&r);
}

/* Policies that drain what is in use for others leave alone what is kept. */
Test(scheduler_replicas, what_is_kept_does_not_drain)
{
	script_start(&r, &(struct setup){.gb = 40, .slots = 4, .options.eviction = "swapserve"});
	struct medusa_sched_function f = kept_model(15, 1);
	f.max_parallel = 2;
	script_add(&r, f);
	script_add(&r, script_model(20));
	script_add(&r, script_model(20));
	script_timer(&r);
	script_copied(&r, 1);
	script_arrive(&r, 1, 0);
	script_arrive(&r, 2, 1);
	script_copied(&r, 2);
	script_arrive(&r, 3, 2);
	script_forget(&r);
	script_arrive(&r, 4, 0);
	expect(&r, "run b3 f0 gpu0 [4]\n");
	script_done(&r, 2);
	expect(&r, "evict weights f1 gpu0\nswap t3 weights f2 gpu0 host\nrun b4 f2 gpu0 [3]\n");
	script_end(&r);
}

/* A request that has claimed memory has it first. */
Test(scheduler_replicas, requests_come_first)
{
	script_start(&r, &(struct setup){.gb = 40, .slots = 2});
	script_add(&r, script_model(30));
	script_add(&r, script_model(35));
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_arrive(&r, 2, 1);
	script_add(&r, kept_model(10, 1));
	script_forget(&r);
	script_timer(&r);
	expect(&r, "");
	script_done(&r, 1);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_copied(&r, 2);
	script_done(&r, 2);
	expect(&r, "evict weights f1 gpu0\npreload t3 weights f2 gpu0 host\n");
	script_end(&r);
}

/* What can be had only where another one is kept claims nothing, and holds up nobody. */
Test(scheduler_replicas, who_cannot_have_kept_memory_blocks_nobody)
{
	script_start(&r, &(struct setup){.gb = 40, .slots = 4});
	script_add(&r, kept_model(20, 1));
	script_add(&r, script_model(30));
	script_add(&r, script_model(10));
	script_timer(&r);
	script_copied(&r, 1);
	script_forget(&r);
	script_arrive(&r, 1, 1);
	script_wait(&r, 30 * SECOND);
	script_arrive(&r, 2, 2);
	expect(&r, "swap t2 weights f2 gpu0 host\nrun b1 f2 gpu0 [2]\n");
	script_end(&r);
}

Test(scheduler_replicas, more_than_may_be_cannot_be_kept)
{
	uint32_t index;
	script_start(&r, &(struct setup){0});
	struct medusa_sched_function f = kept_model(10, 2);
	f.max_replicas = 1;
	cr_assert_eq(medusa_sched_add_function(r.sched, &f, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(r.sched), "min_replicas is 2, more than max_replicas, 1");
	script_end(&r);
}
