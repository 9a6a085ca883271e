/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler where things go wrong: failures that other schedulers are known for, by name; lost
 * GPUs, failed copies. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* ---- known from elsewhere ---- */

/* Ollama 17408: what was to go is called again by many at once, while it goes. Whoever asked first is served first. */
Test(scheduler_known, ollama_17408_eviction_target_resurrected_by_concurrent_requests)
{
	for (int busy = 0; busy < 2; busy++) {
		script_start(&n, &(struct setup){.gb = 40, .slots = 2, .options.eviction = "swapserve"});
		struct medusa_sched_function f = script_model(30);
		f.evict_ns = SECOND;
		f.max_batch = 1;
		script_add(&n, f);
		script_add(&n, f);
		script_serve(&n, 1, 0);
		if (busy)
			script_arrive(&n, 2, 0);
		script_forget(&n);
		n.now += MS;
		script_arrive(&n, 3, 1);
		for (uint64_t i = 10; i < 30; i++)
			script_arrive(&n, i, 0);
		if (busy) {
			expect(&n, "");
			script_done(&n, 2);
		}
		expect(&n, "evict t2 weights f0 gpu0\n");
		script_evicted(&n, 2);
		if (busy)
			expect(&n, "swap t3 weights f1 gpu0 host\nrun b3 f1 gpu0 [3]\n");
		else
			expect(&n, "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [3]\n");
		script_copied(&n, 3);
		script_done(&n, 3);
		expect(&n, "evict t4 weights f1 gpu0\n");
		script_evicted(&n, 4);
		cr_assert_eq(script_function(&n, 0).running, 1, "those who came meanwhile are not served");
		script_end(&n);
	}
}

/* Ollama 18282: a model that can never fit must not push out the others over and over. */
Test(scheduler_known, ollama_18282_what_can_never_fit_evicts_nobody)
{
	script_start(&n, &(struct setup){.options.eviction = "medusa"});
	script_add(&n, script_model(40));
	script_add(&n, script_model(60));
	script_serve(&n, 1, 0);
	script_forget(&n);
	script_arrive_kv(&n, 2, 1, 30);
	expect(&n, "reject 2 never fits\n");
	/* The request would have fitted before the limit fell. */
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 1);
	script_forget(&n);
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 50);
	expect(&n, "reject 4 never fits\n");
	script_arrive(&n, 5, 1);
	expect(&n, "reject 5 never fits\n");
	script_done(&n, 3);
	script_serve(&n, 6, 0);
	expect(&n, "run b3 f0 gpu0 [6]\n");
	cr_assert_eq(script_stats(&n).evictions, 0);
	script_end(&n);
}

/* llama-swap 946: the idle unload and a request for the same model meet, in either order. */
Test(scheduler_known, llama_swap_946_unload_races_a_request)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_serve(&n, 1, 0);
	/* The artifact leaves because its memory is needed elsewhere; a request comes meanwhile. */
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 85);
	script_forget(&n);
	script_arrive(&n, 2, 0);
	expect(&n, "");
	n.now += SECOND;
	script_evicted(&n, 2);
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 1);
	expect(&n, "swap t3 weights f0 gpu0 host\nrun b2 f0 gpu0 [2]\n");
	/* A function that is unregistered in the middle of a request: that one ends, later ones are refused. */
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE});
	script_arrive(&n, 3, 0);
	expect(&n, "reject 3 unregistered\n");
	script_copied(&n, 3);
	script_done(&n, 2);
	expect(&n, "offload t4 weights f0 gpu0\noffload weights f0 host\n");
	script_evicted(&n, 4);
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 0);
	script_end(&n);
}

/* llama-swap 612: A B A A C ... on memory for one. Swaps stay few, and so does what anybody waits. */
Test(scheduler_known, llama_swap_612_thrash_and_waiting_are_bounded)
{
	static const char *const queueings[] = {"medusa", "fifo"};
	uint32_t swaps[2];
	for (int q = 0; q < 2; q++) {
		script_start(&n, &(struct setup){.gb = 40,
						 .options = {.queueing = queueings[q],
							     .placement = "medusa",
							     .eviction = "medusa",
							     .batching = "medusa"}});
		struct medusa_sched_function f = script_model(30);
		f.max_batch = 4;
		for (int i = 0; i < 3; i++)
			script_add(&n, f);
		uint64_t longest = 0, arrived[60];
		for (uint64_t i = 0; i < 60; i++) {
			arrived[i] = n.now;
			script_arrive(&n, i, i % 5 == 1 ? 1 : i % 5 == 4 ? 2 : 0);
			n.now += 10 * MS;
		}
		while (script_stats(&n).served < 60) {
			struct md_batch *b = &n.sched->batches[0];
			for (uint32_t t = 0; t < n.transfer_count; t++)
				script_copied(&n, t + 1);
			cr_assert(b->live, "nothing runs, and %u wait", n.sched->waiting);
			n.now += 3 * SECOND;
			while (b->live && b->requests.count) {
				uint64_t id = n.sched->requests[b->requests.head].id, batch = b->id;
				longest = n.now - arrived[id] > longest ? n.now - arrived[id] : longest;
				script_done(&n, id);
				if (b->id != batch)
					break;
			}
		}
		swaps[q] = (uint32_t)script_stats(&n).swaps_host;
		cr_assert_leq(longest, 60 * SECOND, "%s: somebody waits %llu s", queueings[q],
			      (unsigned long long)(longest / SECOND));
		cr_assert_leq(swaps[q], 15, "%s: %u swaps for 15 batches' worth of requests", queueings[q], swaps[q]);
		script_end(&n);
	}
}

/* Torpor's code spins when every first-class item is locked: here nobody goes, and the one that wants it waits. */
Test(scheduler_known, torpor_spin_when_every_heavy_item_is_locked)
{
	script_start(&n, &(struct setup){.slots = 4, .options = {.eviction = "torpor", .placement = "torpor"}});
	for (int i = 0; i < 4; i++)
		script_add(&n, script_model(25));
	for (uint32_t i = 0; i < 3; i++)
		script_arrive(&n, i, i);
	script_forget(&n);
	script_arrive(&n, 3, 3);
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).waiting, 1);
	script_copied(&n, 1);
	script_done(&n, 0);
	expect(&n, "evict weights f0 gpu0\nswap t4 weights f3 gpu0 host\nrun b4 f3 gpu0 [3]\n");
	script_end(&n);
}

/* Ollama: drivers say 0.5 to 1.5 s late that memory is free, and as late that it is taken. */
Test(scheduler_known, ollama_lagging_memory_reports_are_not_believed)
{
	static const struct {
		const char *name;
		uint64_t after; /* since the last change, when it was measured; it comes in 100 ms later */
		double says, foreign;
	} cases[] = {
	    {"measured at once, still empty", 0, 5, 0},
	    {"1.4 s later", 1400 * MS, 5, 0},
	    {"1.5 s later, less than the books", 1500 * MS, 5, 0},
	    {"1.5 s later, more", 1500 * MS, 45, 15},
	    {"1.4 s later, more", 1400 * MS, 45, 0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		script_start(&n, &(struct setup){0});
		script_add(&n, script_model(30));
		script_arrive(&n, 1, 0);
		script_copied(&n, 1);
		script_done(&n, 1);
		uint64_t measured = n.now + cases[i].after;
		n.now = measured + 100 * MS;
		script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_MEMORY_REPORT,
							    .bytes = (uint64_t)(cases[i].says * 1e9),
							    .as_of = measured});
		cr_assert_eq(script_books(&n, 0).foreign_bytes, (uint64_t)(cases[i].foreign * 1e9), "%s: %llu bytes",
			     cases[i].name, (unsigned long long)script_books(&n, 0).foreign_bytes);
		script_end(&n);
	}
}

/* The driver counts down while an eviction is under way: nothing can be told from that. */
Test(scheduler_known, reports_during_an_eviction_are_not_believed)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(50);
	f.evict_ns = 5 * SECOND;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	n.now += 10 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 60);
	cr_assert_eq(script_books(&n, 0).foreign_bytes, 10 * GB);
	script_arrive(&n, 2, 1);
	n.now += 4 * SECOND;
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_REPORT, 0, 15);
	cr_assert_eq(script_books(&n, 0).foreign_bytes, 10 * GB, "others' memory is given away");
	script_end(&n);
}

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
