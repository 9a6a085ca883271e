/* SPDX-License-Identifier: Apache-2.0 */
/* What a node loop needs to know of a run: the transfers that it waits for, and who tries it again. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* ---- what a run waits for ---- */

Test(scheduler_runs, names_every_transfer_that_it_waits_for)
{
	script_start(&n, &(struct setup){.slots = 3});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.2);
	f.backbone = 0;
	f.context_bytes = GB;
	f.library_bytes = GB;
	f.in_host = 0;
	f.max_parallel = 2;
	script_add(&n, f);
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	expect(&n, "swap t1 library f0 host cold\nswap t2 backbone 0 gpu0 host\nswap t3 weights f0 gpu0 cold\n"
		   "swap t4 context f0 gpu0 made\nrun b1 f0 gpu0 [1]\n");
	cr_assert_str_eq(n.waits, "t2 t3 t4 t1 ", "%s", n.waits);
	script_copied(&n, 1);
	script_arrive(&n, 2, 1);
	cr_assert_str_eq(n.waits, "t2 t6 t7 t5 ", "the backbone is on its way already: %s", n.waits);
	script_copied(&n, 2);
	script_copied(&n, 4);
	script_arrive(&n, 3, 0);
	cr_assert_str_eq(n.waits, "t3 ", "%s", n.waits);
	script_copied(&n, 3);
	for (uint64_t request = 1; request <= 3; request++)
		script_done(&n, request);
	script_arrive(&n, 4, 0);
	cr_assert_str_eq(n.waits, "", "all of it is there: %s", n.waits);
	script_end(&n);
}

/* ---- what is tried again though the caller wants no retries ---- */

static void three_gpus(void)
{
	script_start(&n, &(struct setup){.gpus = 3, .gb = 40});
	script_add(&n, script_model(30));
}

Test(scheduler_runs, what_a_lost_gpu_held_is_tried_again_twice)
{
	three_gpus();
	script_arrive(&n, 1, 0);
	script_forget(&n);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	expect(&n, "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [1]\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
	expect(&n, "swap t3 weights f0 gpu2 host\nrun b3 f0 gpu2 [1]\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 2);
	expect(&n, "reject 1 failed\n");
	cr_assert_eq(script_stats(&n).retried, 2);
	script_end(&n);
}

Test(scheduler_runs, what_the_last_gpu_held_is_refused)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	script_forget(&n);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	expect(&n, "reject 1 failed\n");
	script_end(&n);
}

Test(scheduler_runs, what_a_failed_batch_held_is_refused)
{
	three_gpus();
	script_arrive(&n, 1, 0);
	script_forget(&n);
	script_batch_failed(&n, 1);
	expect(&n, "reject 1 failed\n");
	script_end(&n);
}

Test(scheduler_runs, what_a_failed_backbone_held_is_tried_again_where_it_is)
{
	script_start(&n, &(struct setup){0});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.2);
	f.backbone = 0;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_copied(&n, 2);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED});
	cr_assert(strstr(n.log, "run b2 f0 gpu0 [1]"), "%s", n.log);
	script_end(&n);
}

/* The sum of such a cache and the weights overflows: it fits nowhere, instead of everywhere. */
Test(scheduler_runs, a_cache_beyond_all_bounds_is_refused)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(30));
	script_step(&n, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 1, .kv_bytes = UINT64_MAX - GB});
	expect(&n, "reject 1 never fits\n");
	script_end(&n);
}
