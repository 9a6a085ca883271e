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

/* ---- aborts ---- */

static struct medusa_sched_function abortable_model(double gb)
{
	struct medusa_sched_function f = script_model(gb);
	f.abortable = 1;
	f.max_batch = 4;
	return f;
}

/* One function that is there, abortable, and request 1 running in b2. */
static void one_runs(const struct medusa_sched_options *options)
{
	script_start(&n, &(struct setup){.slots = 2, .options = *options});
	script_add(&n, abortable_model(30));
	script_serve(&n, 9, 0);
	script_arrive(&n, 1, 0);
	script_forget(&n);
}

static void expect_cancelled(uint64_t count)
{
	struct medusa_sched_stats stats = script_stats(&n);
	cr_assert_eq(stats.cancelled, count, "%llu cancelled", (unsigned long long)stats.cancelled);
	cr_assert_eq(stats.arrivals, stats.served + stats.rejected + stats.cancelled);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 0);
	cr_assert_eq(script_books(&n, 0).running, 0);
}

Test(scheduler_aborts, a_running_request_is_stopped_when_its_client_goes)
{
	one_runs(&(struct medusa_sched_options){0});
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	expect(&n, "abort 1 b2 cancelled\n");
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	expect(&n, "");
	script_done(&n, 1);
	expect_cancelled(1);
	script_done(&n, 1);
	expect_cancelled(1);
	script_end(&n);
}

Test(scheduler_aborts, what_cannot_be_aborted_runs_to_its_end)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(30));
	script_serve(&n, 9, 0);
	script_step(&n, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 1, .deadline = n.now + SECOND});
	script_forget(&n);
	script_wait(&n, 2 * SECOND);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	expect(&n, "");
	script_done(&n, 1);
	cr_assert_eq(script_stats(&n).served, 2);
	script_end(&n);
}

/* The abort is on its way when the batch or the GPU fails: the request is not tried again. */
Test(scheduler_aborts, a_failure_that_overtakes_the_abort_ends_the_request)
{
	for (int lost = 0; lost < 2; lost++) {
		one_runs(&(struct medusa_sched_options){.retries = 5});
		script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
		script_forget(&n);
		if (lost)
			script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
		else
			script_batch_failed(&n, 2);
		expect(&n, "reject 1 cancelled\n");
		expect_cancelled(1);
		script_done(&n, 1);
		expect_cancelled(1);
		script_end(&n);
	}
}

Test(scheduler_aborts, an_abort_that_is_not_answered_ends_the_request_and_is_asked_again)
{
	one_runs(&(struct medusa_sched_options){0});
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	script_forget(&n);
	script_wait(&n, 29 * SECOND);
	expect(&n, "");
	script_wait(&n, 2 * SECOND);
	expect(&n, "abort 1 b2 timed out\nreject 1 cancelled\n");
	script_end(&n);
}

/* ---- deadlines ---- */

static void arrive_until(uint64_t request, uint64_t deadline)
{
	script_step(&n, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = request, .deadline = deadline});
}

Test(scheduler_deadlines, end_what_waits_and_what_runs)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, abortable_model(30));
	script_serve(&n, 9, 0);
	arrive_until(1, n.now + 5 * SECOND);
	arrive_until(2, n.now + 3 * SECOND);
	arrive_until(3, n.now);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [9]\nrun b2 f0 gpu0 [1]\nreject 3 deadline\n");
	script_wait(&n, 3 * SECOND - 1);
	expect(&n, "");
	script_wait(&n, 1);
	expect(&n, "reject 2 deadline\n");
	script_wait(&n, 2 * SECOND);
	expect(&n, "abort 1 b2 deadline\n");
	script_done(&n, 1);
	expect_cancelled(1);
	cr_assert_eq(script_stats(&n).rejected, 2);
	script_end(&n);
}

/* ---- priorities ---- */

static void arrive_with(uint64_t request, uint32_t function, int32_t priority)
{
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
						    .request = request,
						    .function = function,
						    .priority = priority});
}

/* All queueing policies obey: within a function, and between functions. */
Test(scheduler_priorities, order_what_waits_with_every_queueing_policy)
{
	size_t count;
	const struct medusa_sched_policy *policies = medusa_sched_policies(MEDUSA_SCHED_KIND_QUEUEING, &count);
	for (size_t i = 0; i < count; i++) {
		script_start(&n, &(struct setup){.options.queueing = policies[i].name});
		struct medusa_sched_function f = script_model(20);
		f.slo_ns = 300 * MS; /* some of them become late */
		script_add(&n, f);
		script_add(&n, f);
		script_serve(&n, 90, 0);
		script_serve(&n, 91, 1);
		arrive_with(1, 0, 0);
		arrive_with(2, 0, -1);
		arrive_with(3, 0, 2);
		arrive_with(4, 1, 1);
		arrive_with(5, 0, 2);
		arrive_with(6, 1, 3);
		script_forget(&n);
		static const uint64_t order[] = {1, 6, 3, 5, 4, 2};
		for (size_t r = 0; r < sizeof(order) / sizeof(order[0]); r++) {
			char line[32];
			n.now += 100 * MS;
			script_forget(&n);
			script_done(&n, order[r]);
			snprintf(line, sizeof(line), "[%llu]", (unsigned long long)(r < 5 ? order[r + 1] : 0));
			cr_assert(r == 5 || strstr(n.log, line), "%s: after %llu comes %s", policies[i].name,
				  (unsigned long long)order[r], n.log);
		}
		script_end(&n);
	}
}

/* A low priority waits for 30 s at most while higher ones keep coming. */
Test(scheduler_priorities, do_not_starve_anybody)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(20));
	script_serve(&n, 1, 0);
	arrive_with(2, 0, 5);
	arrive_with(3, 0, -5);
	uint64_t began = n.now, running = 2, next = 10;
	while (!strstr(n.log, "[3]")) {
		arrive_with(next, 0, 5);
		script_wait(&n, SECOND);
		script_done(&n, running);
		running = next++;
		cr_assert_lt(n.now, began + 33 * SECOND, "the low priority starves");
	}
	cr_assert_geq(n.now, began + 30 * SECOND, "the priority is not heeded");
	script_end(&n);
}

/* ---- ends that never come ---- */

static const struct medusa_sched_options impatient = {.run_timeout_ns = 10 * SECOND, .transfer_timeout_ns = 5 * SECOND};

Test(scheduler_timeouts, a_lost_run_is_refused_and_its_memory_stays_reserved)
{
	one_runs(&impatient);
	n.sched->options.retries = 0;
	script_wait(&n, 10 * SECOND);
	expect(&n, "abort 1 b2 timed out\nreject 1 timed out\n");
	cr_assert_eq(script_books(&n, 0).running, 1, "somebody may compute there");
	script_wait(&n, 150 * SECOND);
	cr_assert(strstr(n.log, "abort 1 b2 timed out"), "it is not asked again");
	script_forget(&n);
	script_batch_failed(&n, 2);
	cr_assert_eq(script_books(&n, 0).running, 0);
	script_arrive(&n, 1, 0);
	expect(&n, "run b3 f0 gpu0 [1]\n");
	script_end(&n);
}

Test(scheduler_timeouts, a_lost_run_is_tried_again_beside_what_hangs)
{
	one_runs(&impatient);
	n.sched->options.retries = 1;
	script_wait(&n, 10 * SECOND);
	expect(&n, "abort 1 b2 timed out\nrun b3 f0 gpu0 [1]\n");
	cr_assert_eq(script_books(&n, 0).running, 2);
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[1]});
	cr_assert_eq(script_books(&n, 0).running, 1, "the stray has ended, not the second try");
	cr_assert_eq(script_stats(&n).served, 1);
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[2]});
	cr_assert_eq(script_stats(&n).served, 2);
	cr_assert_eq(script_books(&n, 0).running, 0);
	script_end(&n);
}

Test(scheduler_timeouts, a_first_token_gives_more_time)
{
	one_runs(&impatient);
	script_wait(&n, 9 * SECOND);
	script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 1);
	script_wait(&n, 9 * SECOND);
	expect(&n, "");
	script_wait(&n, 2 * SECOND);
	cr_assert(strstr(n.log, "reject 1 timed out"), "%s", n.log);
	script_end(&n);
}

/* The copy may have come or not: nothing counts on it, and its bytes are not handed out, until the node says which. */
Test(scheduler_timeouts, a_lost_copy_is_not_counted_on)
{
	for (int came = 0; came < 2; came++) {
		script_start(&n, &(struct setup){.gpus = 2, .slots = 2, .gb = 40, .options = impatient});
		n.sched->options.retries = 1;
		script_add(&n, script_model(30));
		script_arrive(&n, 1, 0);
		script_forget(&n);
		script_wait(&n, 5 * SECOND);
		expect(&n, "abort t1 weights f0 gpu0\nabort 1 b1 timed out\n"
			   "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [1]\n");
		cr_assert_eq(script_books(&n, 0).artifact_bytes, 30 * GB);
		script_copied(&n, 2);
		script_wait(&n, SECOND);
		script_transfer(&n, came ? MEDUSA_SCHED_EVENT_TRANSFER_DONE : MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
		cr_assert_eq(script_books(&n, 0).artifact_bytes, came ? 30 * GB : 0);
		cr_assert_eq(script_books(&n, 0).running, came, "with its copy, the run has failed");
		if (came)
			script_batch_failed(&n, 1);
		script_done(&n, 1);
		cr_assert_eq(script_stats(&n).served, 1);
		/* it can be used again */
		script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 1);
		script_forget(&n);
		script_arrive(&n, 2, 0);
		expect(&n, came ? "run b3 f0 gpu0 [2]\n" : "swap t3 weights f0 gpu0 host\nrun b3 f0 gpu0 [2]\n");
		script_end(&n);
	}
}

Test(scheduler_timeouts, a_lost_library_keeps_its_function_waiting)
{
	script_start(&n, &(struct setup){.gpus = 2, .options = impatient});
	struct medusa_sched_function f = script_model(30);
	f.library_bytes = GB;
	f.in_host = 0;
	n.sched->options.retries = 1;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 2);
	script_forget(&n);
	script_wait(&n, 6 * SECOND);
	expect(&n, "abort t1 library f0 host\nabort 1 b1 timed out\n");
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
	script_wait(&n, 10 * MS);
	expect(&n, "swap t3 library f0 host cold\nrun b2 f0 gpu0 [1]\n");
	script_end(&n);
}

Test(scheduler_timeouts, a_lost_eviction_frees_nothing_until_it_is_answered)
{
	script_start(&n, &(struct setup){.gb = 40, .options = impatient});
	struct medusa_sched_function f = script_model(30);
	f.evict_ns = SECOND;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_forget(&n);
	script_wait(&n, 5 * SECOND);
	expect(&n, "abort t2 weights f0 gpu0\n");
	script_wait(&n, 5 * SECOND);
	expect(&n, "abort t2 weights f0 gpu0\n");
	script_evicted(&n, 2);
	expect(&n, "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_timeouts, none_if_the_caller_says_so)
{
	one_runs(&(struct medusa_sched_options){.run_timeout_ns = UINT64_MAX, .transfer_timeout_ns = UINT64_MAX});
	script_wait(&n, 1000000 * SECOND);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	script_wait(&n, 1000000 * SECOND);
	expect(&n, "abort 1 b2 cancelled\n");
	script_end(&n);
}
