/* SPDX-License-Identifier: Apache-2.0 */
/* What a node loop tells of its node while it serves: KV caches that grow, functions that change, GPUs that are drained,
 * and what is there already when the loop was restarted. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static void expect_invalid(struct medusa_sched_event event, const char *says)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	event.now = n.now;
	event.size = sizeof(event);
	cr_assert_eq(medusa_sched_step(n.sched, &event, &actions, &count), MEDUSA_SCHED_ERR_INVALID);
	cr_assert(strstr(medusa_sched_error(n.sched), says), "it says: %s", medusa_sched_error(n.sched));
	cr_assert_eq(medusa_sched_audit(n.sched), 0, "%s", medusa_sched_error(n.sched));
}

/* ---- KV caches that grow ---- */

static void grow(uint64_t request, double gb)
{
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_KV_CHANGED,
						    .request = request,
						    .kv_bytes = (uint64_t)(gb * 1e9)});
}

/* 80 GB with 60 GB of weights: request 1 of f0 (b3), 2 of f1 (b4), and f2 idle, which are abortable or not. */
static void two_run(int abortable)
{
	script_start(&n, &(struct setup){.slots = 3});
	struct medusa_sched_function f = script_model(20);
	f.abortable = abortable;
	f.kv_bytes = 5 * GB;
	for (int i = 0; i < 3; i++)
		script_add(&n, f);
	script_serve(&n, 92, 2);
	script_arrive(&n, 1, 0);
	script_copied(&n, 2);
	n.now += MS;
	script_arrive(&n, 2, 1);
	script_copied(&n, 3);
	script_forget(&n);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 10 * GB);
}

Test(scheduler_kv, growth_evicts_what_is_idle)
{
	two_run(1);
	grow(1, 9);
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).kv_bytes, 14 * GB);
	grow(1, 30);
	expect(&n, "offload weights f2 gpu0\n");
	grow(1, 3);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 8 * GB);
	grow(99, 50); /* it has ended, or never was */
	script_done(&n, 1);
	script_done(&n, 2);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 0);
	script_end(&n);
}

Test(scheduler_kv, growth_beyond_that_aborts_the_youngest)
{
	two_run(1);
	grow(1, 36);
	expect(&n, "offload weights f2 gpu0\nabort 2 b3 no room\n");
	cr_assert_eq(script_books(&n, 0).over_bytes, GB);
	script_arrive(&n, 3, 0);
	script_timer(&n);
	expect(&n, "");
	grow(1, 37);
	expect(&n, "");
	script_done(&n, 2);
	cr_assert_eq(script_books(&n, 0).over_bytes, 0);
	cr_assert_eq(script_stats(&n).cancelled, 1);
	script_done(&n, 1);
	expect(&n, "run b4 f0 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_kv, growth_of_what_cannot_be_aborted_is_reported)
{
	two_run(0);
	grow(1, 40);
	expect(&n, "offload weights f2 gpu0\n");
	cr_assert_eq(script_books(&n, 0).over_bytes, 5 * GB);
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 1);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "run b4 f0 gpu0 [3]\n");
	script_end(&n);
}

/* Nothing starts on a GPU that is overfull, not even what needs no memory. */
Test(scheduler_kv, nothing_starts_while_a_gpu_is_overfull)
{
	script_start(&n, &(struct setup){.gpus = 2, .slots = 3});
	struct medusa_sched_function f = script_model(30);
	f.max_parallel = 3;
	script_add(&n, f);
	script_serve(&n, 90, 0);
	script_arrive(&n, 1, 0);
	script_forget(&n);
	grow(1, 60);
	script_arrive(&n, 2, 0);
	expect(&n, "swap t2 weights f0 gpu1 host\nrun b3 f0 gpu1 [2]\n");
	grow(1, 50);
	script_arrive(&n, 3, 0);
	expect(&n, "run b4 f0 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_kv, a_waiting_request_that_will_need_too_much_is_refused)
{
	two_run(0);
	script_arrive(&n, 3, 0);
	grow(3, 61);
	expect(&n, "reject 3 never fits\n");
	expect_invalid(
	    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_KV_CHANGED, .request = 1, .kv_bytes = UINT64_MAX},
	    "event->kv_bytes is 18446744073709551615, more than 2^48");
	script_end(&n);
}

/* ---- draining a GPU ---- */

Test(scheduler_drain, what_runs_ends_and_what_is_idle_leaves)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 70, .slots = 2});
	struct medusa_sched_function f = script_model(30);
	f.context_bytes = 2 * GB;
	f.residue_bytes = GB;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 91, 1);
	script_arrive(&n, 1, 0);
	script_copied(&n, 3);
	script_forget(&n);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_DRAIN, 0);
	expect(&n, "offload context f1 gpu0\noffload weights f1 gpu0\n");
	cr_assert_eq(script_books(&n, 0).draining, 1);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 1);
	expect(&n, "swap t5 weights f1 gpu1 host\nswap t6 context f1 gpu1 made\nrun b3 f1 gpu1 [3]\n");
	script_copied(&n, 4);
	script_done(&n, 1);
	cr_assert(strstr(n.log, "offload weights f0 gpu0"), "%s", n.log);
	cr_assert(strstr(n.log, "run b4 f0 gpu1 [2]"), "%s", n.log);
	cr_assert_eq(script_books(&n, 0).artifact_bytes + script_books(&n, 0).residue_bytes, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	cr_assert_eq(script_books(&n, 0).draining, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
	cr_assert(strstr(n.log, "gpu0 host\n"), "%s", n.log);
	script_end(&n);
}

Test(scheduler_drain, the_only_gpu_keeps_everybody_waiting)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(30));
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_DRAIN, 0);
	script_arrive(&n, 1, 0);
	script_wait(&n, SECOND);
	expect(&n, "");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	script_wait(&n, 10 * MS);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_DRAIN, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	cr_assert_eq(script_books(&n, 0).draining, 0);
	script_end(&n);
}

/* ---- a node loop that was restarted ---- */

static void lies(enum medusa_sched_class artifact, uint32_t owner, uint32_t gpu)
{
	struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_RESIDENT, .artifact = artifact, .gpu = gpu};
	e.function = artifact == MEDUSA_SCHED_CLASS_BACKBONE ? NOBODY : owner;
	e.backbone = artifact == MEDUSA_SCHED_CLASS_BACKBONE ? owner : NOBODY;
	script_step(&n, e);
}

static struct medusa_sched_function adapter(void)
{
	struct medusa_sched_function f = script_model(1);
	f.backbone = 0;
	f.context_bytes = 2 * GB;
	f.residue_bytes = GB;
	f.library_bytes = 3 * GB;
	f.kv_bytes = GB;
	f.in_host = 0;
	f.abortable = 1;
	return f;
}

/* A backbone is told that failed to come, while a context is still on its way to it: it counts as in use. */
Test(scheduler_resident, what_something_is_on_its_way_to_is_in_use)
{
	struct medusa_sched_function f = adapter();
	f.in_host = 1;
	script_start(&n, &(struct setup){.gb = 20});
	script_backbone(&n, 14);
	script_add(&n, f);
	script_add(&n, script_model(10));
	script_arrive(&n, 1, 0);
	expect(&n, "swap t1 backbone 0 gpu0 host\nswap t2 weights f0 gpu0 host\nswap t3 context f0 gpu0 made\n"
		   "run b1 f0 gpu0 [1]\n");
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
	expect(&n, "reject 1 load failed\n");
	lies(MEDUSA_SCHED_CLASS_BACKBONE, 0, 0);
	script_copied(&n, 2);
	script_arrive(&n, 2, 1);
	expect(&n, "");
	script_copied(&n, 3);
	expect(&n, "evict context f0 gpu0\nevict weights f0 gpu0\nevict backbone 0 gpu0\nswap t4 weights f1 gpu0 host\n"
		   "run b2 f1 gpu0 [2]\n");
	script_end(&n);
}

/* Books that are told are books that were kept: both schedulers do the same from there on. */
Test(scheduler_resident, told_books_equal_kept_books)
{
	script_start(&n, &(struct setup){.slots = 4});
	script_backbone(&n, 14);
	script_add(&n, adapter());
	lies(MEDUSA_SCHED_CLASS_BACKBONE, 0, 0);
	lies(MEDUSA_SCHED_CLASS_LIBRARY, 0, NOBODY);
	lies(MEDUSA_SCHED_CLASS_WEIGHTS, 0, NOBODY);
	lies(MEDUSA_SCHED_CLASS_WEIGHTS, 0, 0);
	lies(MEDUSA_SCHED_CLASS_WEIGHTS, 0, 0); /* known already */
	script_step(&n, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_RESIDENT, .artifact = MEDUSA_SCHED_CLASS_CONTEXT, .bytes = GB});
	expect(&n, "");
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 15 * GB);
	cr_assert_eq(script_books(&n, 0).residue_bytes, GB);
	script_arrive(&n, 1, 0);
	expect(&n, "swap t1 context f0 gpu0 made\nrun b1 f0 gpu0 [1]\n");
	script_end(&n);
}

Test(scheduler_resident, what_has_no_place_is_sent_away)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 40, .host_gb = 5});
	struct medusa_sched_function f = adapter();
	f.backbone = NOBODY;
	f.weight_bytes = 2 * GB;
	script_add(&n, f);
	script_add(&n, f);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
	lies(MEDUSA_SCHED_CLASS_CONTEXT, 0, 1);
	expect(&n, "");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 1);
	lies(MEDUSA_SCHED_CLASS_LIBRARY, 0, NOBODY);
	lies(MEDUSA_SCHED_CLASS_CONTEXT, 0, 0);
	script_arrive(&n, 1, 0); /* its process cannot be evicted while it runs */
	script_forget(&n);
	lies(MEDUSA_SCHED_CLASS_LIBRARY, 1, NOBODY);
	expect(&n, "offload library f1 host\n");
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1});
	lies(MEDUSA_SCHED_CLASS_WEIGHTS, 1, 0);
	expect(&n, "offload weights f1 gpu0\n");
	script_end(&n);
}

Test(scheduler_resident, more_than_there_is_leaves_again)
{
	script_start(&n, &(struct setup){.gb = 40});
	script_add(&n, script_model(30));
	script_add(&n, script_model(30));
	lies(MEDUSA_SCHED_CLASS_WEIGHTS, 0, 0);
	lies(MEDUSA_SCHED_CLASS_WEIGHTS, 1, 0);
	expect(&n, "offload weights f0 gpu0\n");
	cr_assert_eq(script_books(&n, 0).artifact_bytes, 30 * GB);
	script_end(&n);
}

static struct medusa_sched_event runs(uint64_t request, uint32_t function)
{
	return (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RUNNING,
					   .request = request,
					   .function = function,
					   .kv_bytes = 2 * GB,
					   .deadline = n.now + 5 * SECOND};
}

Test(scheduler_resident, requests_that_run_already_are_one_batch)
{
	script_start(&n, &(struct setup){0});
	script_backbone(&n, 14);
	script_add(&n, adapter());
	script_add(&n, adapter());
	expect_invalid(runs(1, 0), "function 0 cannot run on gpu 0, where its backbone is not");
	lies(MEDUSA_SCHED_CLASS_BACKBONE, 0, 0);
	for (uint32_t f = 0; f < 2; f++) {
		lies(MEDUSA_SCHED_CLASS_LIBRARY, f, NOBODY);
		lies(MEDUSA_SCHED_CLASS_WEIGHTS, f, 0);
		lies(MEDUSA_SCHED_CLASS_CONTEXT, f, 0);
	}
	script_step(&n, runs(1, 0));
	script_step(&n, runs(2, 0));
	expect(&n, "run b1 f0 gpu0 [1]\nrun b1 f0 gpu0 [2]\n");
	cr_assert_eq(script_books(&n, 0).kv_bytes, 4 * GB);
	cr_assert_eq(script_books(&n, 0).running, 1);
	expect_invalid(runs(2, 0), "a number that is still in use");
	expect_invalid(runs(3, 1), "no slot is free");
	script_done(&n, 1);
	script_wait(&n, 5 * SECOND);
	expect(&n, "abort 2 b1 deadline\n");
	script_done(&n, 2);
	cr_assert_eq(script_books(&n, 0).running, 0);
	cr_assert_eq(script_stats(&n).served, 1);
	script_arrive(&n, 4, 0);
	expect(&n, "run b2 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_resident, names_what_cannot_be)
{
	static const struct {
		struct medusa_sched_event event;
		const char *says;
	} cases[] = {
	    {{.artifact = (enum medusa_sched_class)9}, "event->artifact is 9"},
	    {{.artifact = MEDUSA_SCHED_CLASS_BACKBONE, .backbone = 7}, "event->backbone is 7"},
	    {{.artifact = MEDUSA_SCHED_CLASS_WEIGHTS, .function = 7}, "event->function is 7"},
	    {{.artifact = MEDUSA_SCHED_CLASS_LIBRARY, .function = 1}, "function 1 has no library"},
	    {{.artifact = MEDUSA_SCHED_CLASS_LIBRARY}, "event->gpu is 0, where no library can be"},
	    {{.artifact = MEDUSA_SCHED_CLASS_CONTEXT, .gpu = NOBODY}, "where no context can be"},
	    {{.artifact = MEDUSA_SCHED_CLASS_CONTEXT, .gpu = 5}, "event->gpu is 5"},
	    {{.artifact = MEDUSA_SCHED_CLASS_CONTEXT, .bytes = 7}, "event->bytes is 7"},
	};
	script_start(&n, &(struct setup){0});
	script_backbone(&n, 14);
	script_add(&n, adapter());
	script_add(&n, script_model(1));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct medusa_sched_event e = cases[i].event;
		e.type = MEDUSA_SCHED_EVENT_RESIDENT;
		expect_invalid(e, cases[i].says);
	}
	script_end(&n);
}

/* ---- functions that change ---- */

Test(scheduler_change, times_and_limits_change_at_once)
{
	script_start(&n, &(struct setup){.slots = 4, .options = {.queueing = "medusa", .batching = "medusa"}});
	struct medusa_sched_function f = script_model(30);
	f.slo_ns = 50 * MS; /* less than t0: all are late */
	script_add(&n, f);
	script_serve(&n, 90, 0);
	for (uint64_t i = 1; i <= 5; i++)
		script_arrive(&n, i, 0);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [90]\nrun b2 f0 gpu0 [1]\n");
	cr_assert_eq(n.sched->functions[0].late.count, 4);
	f.slo_ns = 100 * SECOND;
	f.max_batch = 4;
	f.max_parallel = 2;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), 0, "%s", medusa_sched_error(n.sched));
	cr_assert_eq(medusa_sched_audit(n.sched), 0, "%s", medusa_sched_error(n.sched));
	cr_assert_eq(n.sched->functions[0].late.count, 0);
	script_timer(&n);
	expect(&n, "run b3 f0 gpu0 [2 3 4 5]\n");
	script_end(&n);
}

Test(scheduler_change, what_the_books_are_kept_in_does_not)
{
	struct medusa_sched_function f = script_model(30), g;
	script_start(&n, &(struct setup){0});
	script_add(&n, f);
	g = f;
	g.weight_bytes++;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &g), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(n.sched),
			 "weight_bytes cannot change: register another function, and unregister this one "
			 "(MEDUSA_SCHED_EVENT_FUNCTION_GONE)");
	g = f;
	g.in_host = 0;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &g), MEDUSA_SCHED_ERR_INVALID);
	g = f;
	g.t0_ns = 0;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &g), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, NULL), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_change_function(n.sched, 1, &f), MEDUSA_SCHED_ERR_NOT_FOUND);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE});
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), MEDUSA_SCHED_ERR_NOT_FOUND);
	script_end(&n);
}

Test(scheduler_change, a_shorter_keep_alive_counts_from_now)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(30);
	f.keep_alive_ns = 1000 * SECOND;
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_forget(&n);
	f.keep_alive_ns = SECOND;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), 0, "%s", medusa_sched_error(n.sched));
	script_timer(&n);
	script_wait(&n, 2 * SECOND);
	expect(&n, "offload weights f0 gpu0\n");
	script_end(&n);
}
