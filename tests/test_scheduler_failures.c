/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler where things go wrong: lost GPUs, failed copies and batches, processes that die. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* ---- GPUs ---- */

static void two_gpus(double gb)
{
	script_start(&n,
		     &(struct setup){
			 .gpus = 2, .gb = gb, .peer_gb_per_s = 50, .options = {.placement = "torpor", .retries = 2}});
}

Test(scheduler_faults, gpu_lost_in_mid_swap_as_target)
{
	two_gpus(40);
	script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	expect(&n, "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [1]\n");
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0);
	cr_assert_eq(script_books(&n, 0).present, 0);
	script_copied(&n, 1); /* it came too late: ignored */
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	expect(&n, "");
	script_copied(&n, 2);
	script_done(&n, 1);
	cr_assert_eq(script_stats(&n).served, 1);
	script_end(&n);
}

/* The copy came from there: the node ends it, or it has arrived all the same, and its batch elsewhere waits for the answer. */
Test(scheduler_faults, gpu_lost_in_mid_swap_as_source)
{
	two_gpus(40);
	struct medusa_sched_function f = script_model(30);
	f.max_parallel = 2;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_arrive(&n, 2, 0);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\nswap t2 weights f0 gpu1 peer0\nrun b2 f0 gpu1 "
		   "[2]\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	cr_assert_eq(script_books(&n, 1).running, 1, "the other GPU goes on");
	expect(&n, "abort t2 weights f0 gpu1\n");
	cr_assert_eq(script_books(&n, 1).artifact_bytes, 30 * GB, "nothing else is sent there before the answer");
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 2);
	cr_assert(strstr(n.log, "swap t3 weights f0 gpu1 host"), "%s", n.log);
	script_end(&n);
}

/* Nothing is sent away from a GPU that is no more, though its function is gone too. */
Test(scheduler_faults, gpu_lost_under_an_unregistered_function)
{
	two_gpus(40);
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE});
	script_forget(&n);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	expect(&n, "offload weights f0 host\nreject 1 unregistered\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0);
	script_end(&n);
}

Test(scheduler_faults, all_gpus_lost_and_one_comes_back)
{
	two_gpus(40);
	script_add(&n, script_model(30));
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
	script_arrive(&n, 1, 0);
	script_wait(&n, 60 * SECOND);
	expect(&n, "");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 1);
	script_wait(&n, 10 * MS);
	expect(&n, "swap t1 weights f0 gpu1 host\nrun b1 f0 gpu1 [1]\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
	script_arrive(&n, 2, 0);
	script_wait(&n, 530 * SECOND);
	expect(&n, "");
	script_wait(&n, 100 * SECOND);
	expect(&n, "reject 1 waited too long\nreject 2 waited too long\n");
	script_end(&n);
}

/* xLoRA 4.4: the process that owns the backbone on one GPU dies; its batches move to the copy on another. */
Test(scheduler_faults, backbone_failover_to_another_copy)
{
	script_start(&n, &(struct setup){.gpus = 2, .options = {.placement = "medusa", .retries = 2}});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.2);
	f.backbone = 0;
	script_add(&n, f);
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_copied(&n, 2);
	script_arrive(&n, 2, 1);
	script_copied(&n, 3);
	script_copied(&n, 4);
	script_done(&n, 2);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED});
	cr_assert(strstr(n.log, "run b3 f0 gpu1 [1]"), "%s", n.log);
	cr_assert(strstr(n.log, "offload backbone 0 gpu0"), "what is left of the dead owner stays: %s", n.log);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0);
	script_end(&n);
}

/* An adapter still comes in when the owner dies: nothing new starts on that copy, and then it goes. */
Test(scheduler_faults, backbone_fails_while_an_adapter_is_on_its_way)
{
	script_start(&n, &(struct setup){.slots = 2, .options.retries = 3});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0.2);
	f.backbone = 0;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED});
	expect(&n, "");
	script_copied(&n, 2);
	expect(
	    &n,
	    "offload weights f0 gpu0\noffload backbone 0 gpu0\nswap t3 backbone 0 gpu0 host\nswap t4 weights f0 gpu0 "
	    "host\nrun b2 f0 gpu0 [1]\n");
	script_end(&n);
}

/* An engine's process dies: what lay on the GPU for it goes, and its request is tried again. */
Test(scheduler_faults, a_process_dies_and_is_started_anew)
{
	struct medusa_sched_event dies = {.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED};
	script_start(&n, &(struct setup){.gpus = 1});
	script_add(&n, script_model(30));
	script_add(&n, script_model(20));
	script_serve(&n, 1, 1);
	script_arrive(&n, 2, 0);
	script_copied(&n, 2);
	script_forget(&n);
	script_step(&n, dies);
	expect(&n, "offload weights f0 gpu0\nswap t3 weights f0 gpu0 host\nrun b3 f0 gpu0 [2]\n");
	script_step(&n, dies);
	expect(&n, "abort t3 weights f0 gpu0\n");
	script_step(&n, dies);
	expect(&n, "");
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 3);
	expect(&n, "swap t4 weights f0 gpu0 host\nrun b4 f0 gpu0 [2]\n");
	script_step(&n, dies);
	expect(&n, "abort t4 weights f0 gpu0\nreject 2 failed\n");
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 4);
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 20 * GB, "the other function's weights stay");
	script_end(&n);
}

/* A process dies while its weights leave: the eviction goes on, and its bytes stay in the books until then. */
Test(scheduler_faults, a_process_dies_while_its_weights_leave)
{
	script_start(&n, &(struct setup){.gb = 40});
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 30 * GB);
	script_evicted(&n, 2);
	expect(&n, "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&n);
}

/* The eviction of what a dead process has left behind fails: it is ordered once more, and nobody uses what is there. */
Test(scheduler_faults, a_process_dies_and_what_it_left_behind_stays)
{
	script_start(&n, &(struct setup){.gb = 40});
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
	script_forget(&n);
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 2);
	expect(&n, "offload t3 weights f0 gpu0\n");
	script_evicted(&n, 3);
	expect(&n, "swap t4 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&n);
}

/* The rest of a context that a dead process has left behind goes; what is told to lie there later is used. */
Test(scheduler_faults, a_process_dies_and_the_rest_of_its_context_goes)
{
	script_start(&n, &(struct setup){.gb = 40});
	struct medusa_sched_function f = script_model(0), big = script_model(30);
	f.weight_bytes = 0;
	f.context_bytes = 20 * GB;
	f.residue_bytes = GB;
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_add(&n, big);
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
	script_forget(&n);
	script_evicted(&n, 2);
	expect(&n, "offload context f0 gpu0\nswap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_copied(&n, 3);
	script_done(&n, 2);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1});
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RESIDENT,
						    .artifact = MEDUSA_SCHED_CLASS_CONTEXT});
	script_arrive(&n, 3, 0);
	expect(&n, "run b3 f0 gpu0 [3]\n");
	script_end(&n);
}

/* All that the function has on a GPU is a backbone, which others use, too: its batches there fail, and no others. */
Test(scheduler_faults, a_process_without_artifacts_of_its_own_dies)
{
	script_start(&n, &(struct setup){.slots = 2, .options.retries = 1});
	script_backbone(&n, 14);
	struct medusa_sched_function f = script_model(0);
	f.backbone = 0;
	f.max_parallel = 2;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 1);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
	expect(&n, "run b4 f0 gpu0 [2]\n");
	cr_assert_eq(script_function(&n, 1).running, 1, "the other function's request runs on");
	script_done(&n, 3);
	script_done(&n, 2);
	cr_assert_eq(script_stats(&n).served, 3);
	script_end(&n);
}

/* GPU 1 copies from GPU 0 when the process there dies: the node is asked to end the copy, which may have arrived. */
Test(scheduler_faults, a_process_dies_that_another_gpu_copies_from)
{
	for (int arrived = 0; arrived < 2; arrived++) {
		two_gpus(40);
		struct medusa_sched_function f = script_model(30);
		f.max_parallel = 2;
		script_add(&n, f);
		script_arrive(&n, 1, 0);
		script_copied(&n, 1);
		script_arrive(&n, 2, 0);
		script_forget(&n);
		script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
		cr_assert(strstr(n.log, "abort t2 weights f0 gpu1\n"), "%s", n.log);
		cr_assert_not(strstr(n.log, "gpu1 "), "nothing is sent to the place of the copy: %s", n.log);
		cr_assert_eq(script_books(&n, 1).artifact_bytes, 30 * GB);
		script_forget(&n);
		script_transfer(&n, arrived ? MEDUSA_SCHED_EVENT_TRANSFER_DONE : MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 2);
		cr_assert_eq(strstr(n.log, "weights f0 gpu1 host\n") != NULL, !arrived, "%s", n.log);
		cr_assert_eq(script_books(&n, 1).running, 1);
		script_end(&n);
	}
}

/* A process dies while its weights are on their way: the node is asked to end the copy, and none is sent before. */
Test(scheduler_faults, a_process_dies_that_its_weights_are_on_their_way_to)
{
	for (int arrived = 0; arrived < 2; arrived++) {
		script_start(&n, &(struct setup){.gb = 40});
		script_add(&n, script_model(30));
		script_arrive(&n, 1, 0);
		script_forget(&n);
		script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED});
		expect(&n, "abort t1 weights f0 gpu0\n");
		cr_assert_eq(script_books(&n, 0).artifact_bytes, 30 * GB);
		cr_assert_eq(script_function(&n, 0).waiting, 1);
		script_transfer(&n, arrived ? MEDUSA_SCHED_EVENT_TRANSFER_DONE : MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
		expect(&n, arrived ? "run b2 f0 gpu0 [1]\n" : "swap t2 weights f0 gpu0 host\nrun b2 f0 gpu0 [1]\n");
		script_end(&n);
	}
}

/* ---- copies and batches ---- */

Test(scheduler_faults, a_copy_that_fails_is_tried_again_and_then_given_up)
{
	script_start(&n, &(struct setup){.options.retries = 1});
	script_add(&n, script_model(30));
	script_arrive(&n, 1, 0);
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\nswap t2 weights f0 gpu0 host\nrun b2 f0 gpu0 "
		   "[1]\n");
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 2);
	expect(&n, "reject 1 load failed\n");
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0);
	script_end(&n);
}

Test(scheduler_faults, an_eviction_that_fails_leaves_it_there)
{
	script_start(&n, &(struct setup){.gb = 40});
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_forget(&n);
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 2);
	expect(&n, "evict t3 weights f0 gpu0\n");
	script_evicted(&n, 3);
	expect(&n, "swap t4 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_faults, a_batch_that_fails_is_tried_retries_times)
{
	script_start(&n, &(struct setup){.options = {.retries = 2, .batching = "medusa"}});
	struct medusa_sched_function f = script_model(30);
	f.max_batch = 4;
	script_add(&n, f);
	script_serve(&n, 9, 0);
	script_arrive(&n, 1, 0);
	n.now += MS;
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_batch_failed(&n, 2);
	expect(&n, "run b3 f0 gpu0 [1 2]\n");
	script_batch_failed(&n, 3);
	expect(&n, "run b4 f0 gpu0 [1 2]\n");
	script_batch_failed(&n, 4);
	expect(&n, "reject 1 failed\nrun b5 f0 gpu0 [2]\n");
	script_done(&n, 2);
	struct medusa_sched_stats stats = script_stats(&n);
	cr_assert(stats.retried == 4 && stats.rejected == 1 && stats.served == 2, "%llu retried",
		  (unsigned long long)stats.retried);
	script_end(&n);
}

Test(scheduler_faults, cancelled_requests_end_in_the_queue_or_with_their_batch)
{
	script_start(&n, &(struct setup){.options.retries = 5});
	script_add(&n, script_model(30));
	script_serve(&n, 9, 0);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 2);
	expect(&n, "reject 2 cancelled\n");
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	expect(&n, "");
	script_batch_failed(&n, 2);
	expect(&n, "reject 1 cancelled\n");
	cr_assert_eq(script_stats(&n).cancelled, 2);
	script_end(&n);
}

Test(scheduler_faults, function_unregistered_with_requests_waiting)
{
	script_start(&n, &(struct setup){.gb = 40});
	struct medusa_sched_function f = script_model(30);
	f.in_host = 0;
	script_add(&n, f);
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 1);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1});
	expect(&n, "reject 3 unregistered\n");
	cr_assert_eq(script_books(&n, 0).waiting, 0, "its reservation stays");
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 0});
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 0});
	expect(&n, "reject 2 unregistered\n");
	script_done(&n, 1);
	/* The function's weights are still on their way: they leave after they have arrived. */
	expect(&n, "");
	script_copied(&n, 1);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0, "what comes for nobody stays: %s", n.log);
	script_end(&n);
}

/* What runs goes on; nothing new starts until enough has ended. */
Test(scheduler_faults, memory_limit_shrinks_under_running_batches)
{
	script_start(&n, &(struct setup){.slots = 3});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(25));
	script_serve(&n, 9, 2);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_forget(&n);
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 40);
	expect(&n, "offload weights f2 gpu0\n");
	script_arrive(&n, 3, 2);
	expect(&n, "");
	script_copied(&n, 2);
	script_done(&n, 1);
	script_copied(&n, 3);
	expect(&n, "offload weights f0 gpu0\n");
	script_done(&n, 2);
	expect(&n, "evict weights f1 gpu0\nswap t4 weights f2 gpu0 host\nrun b4 f2 gpu0 [3]\n");
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 80);
	script_arrive(&n, 4, 1);
	expect(&n, "swap t5 weights f1 gpu0 host\nrun b5 f1 gpu0 [4]\n");
	script_end(&n);
}
