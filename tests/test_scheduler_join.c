/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that batch by themselves: who joins a batch that runs, when, and what a failure does to all in it. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* A continuous function whose requests take 1 GB of KV cache each, at most `most` (0: any number) at one time. */
static struct medusa_sched_function engine(double gb, uint32_t most)
{
	struct medusa_sched_function f = script_model(gb);
	f.continuous = 1;
	f.max_batch = most;
	f.kv_bytes = GB;
	f.abortable = 1;
	return f;
}

/* One function that runs request 1 on GPU 0, everything loaded. */
static void one_engine(const struct setup *setup, double gb, uint32_t most)
{
	script_start(&n, setup);
	script_add(&n, engine(gb, most));
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 1);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n");
}

static void prioritized(uint64_t request, uint32_t function, int32_t priority)
{
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
						    .request = request,
						    .function = function,
						    .priority = priority});
}

/* ---- who joins ---- */

Test(scheduler_join, a_request_joins_the_running_batch_at_once)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_arrive(&n, 2, 0);
	expect(&n, "join b1 f0 gpu0 [2]\n");
	cr_assert_str_eq(n.waits, "", "it waits for no transfer");
	cr_assert_eq(script_books(&n, 0).kv_bytes, 2 * GB);
	cr_assert_eq(script_books(&n, 0).running, 1);
	cr_assert_eq(script_function(&n, 0).running, 2);
	cr_assert_eq(script_stats(&n).joins, 1);
	cr_assert_eq(script_stats(&n).runs, 1);
	script_done(&n, 1);
	cr_assert_eq(script_books(&n, 0).kv_bytes, GB, "the KV cache of a request is free at its end");
	cr_assert_eq(script_books(&n, 0).running, 1, "the batch ends with its last request");
	script_arrive(&n, 3, 0);
	expect(&n, "join b1 f0 gpu0 [3]\n");
	script_done(&n, 3);
	script_done(&n, 2);
	cr_assert_eq(script_books(&n, 0).running, 0);
	cr_assert_eq(script_stats(&n).served, 3);
	script_arrive(&n, 4, 0);
	expect(&n, "run b2 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_join, other_functions_batches_take_nobody)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(10);
	f.max_batch = 8;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_forget(&n);
	script_arrive(&n, 2, 0);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "run b2 f0 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_join, a_full_batch_takes_the_next_one_when_a_request_ends)
{
	one_engine(&(struct setup){0}, 10, 2);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 0);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "join b1 f0 gpu0 [3]\n");
	script_done(&n, 2);
	expect(&n, "join b1 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_join, those_that_waited_for_the_loading_join_when_it_is_done)
{
	script_start(&n, &(struct setup){.gpus = 2});
	struct medusa_sched_function f = engine(10, 3);
	f.context_bytes = GB;
	f.max_parallel = 2;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_forget(&n);
	for (uint64_t request = 2; request <= 5; request++)
		script_arrive(&n, request, 0);
	expect(&n, "");
	script_copied(&n, 1);
	expect(&n, "");
	script_copied(&n, 2);
	/* the fourth and fifth have no room there, and another GPU is free */
	expect(&n, "join b1 f0 gpu0 [2 3]\nswap t3 weights f0 gpu1 host\nswap t4 context f0 gpu1 made\n"
		   "run b2 f0 gpu1 [4 5]\n");
	script_end(&n);
}

Test(scheduler_join, the_higher_priority_and_then_the_queueing_policy_decide_who_joins)
{
	one_engine(&(struct setup){.slots = 2}, 10, 1);
	script_add(&n, engine(10, 1));
	script_arrive(&n, 2, 1);
	script_copied(&n, 2);
	script_forget(&n);
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 0);
	prioritized(5, 0, 1);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "run b3 f0 gpu0 [5]\n");
	script_done(&n, 5);
	expect(&n, "run b4 f0 gpu0 [3]\n");
	script_end(&n);
	/* the same among those that join */
	one_engine(&(struct setup){0}, 10, 2);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 0);
	prioritized(4, 0, 1);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "join b1 f0 gpu0 [4]\n");
	script_done(&n, 2);
	expect(&n, "join b1 f0 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_join, between_functions_the_policy_decides_who_joins)
{
	/* 22 GB: two engines of 9 GB, and four sequences */
	script_start(&n, &(struct setup){.slots = 2, .gb = 22});
	for (int i = 0; i < 2; i++) {
		script_add(&n, engine(9, 0));
		script_arrive(&n, 1 + (uint64_t)i, (uint32_t)i);
		script_copied(&n, 1 + (uint32_t)i);
	}
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 1);
	script_forget(&n);
	script_arrive(&n, 5, 1); /* fifo: it was there before the next one */
	n.now += MS;
	script_arrive(&n, 6, 0);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "join b2 f1 gpu0 [5]\n");
	script_done(&n, 2);
	expect(&n, "join b1 f0 gpu0 [6]\n");
	script_end(&n);
}

/* ---- memory ---- */

Test(scheduler_join, a_request_whose_kv_cache_does_not_fit_waits_for_room)
{
	one_engine(&(struct setup){.gb = 12.5}, 10, 0);
	script_arrive(&n, 2, 0);
	expect(&n, "join b1 f0 gpu0 [2]\n");
	script_arrive(&n, 3, 0);
	cr_assert_eq(script_books(&n, 0).waiting, 1, "it claims memory");
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, "join b1 f0 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_join, idle_artifacts_leave_for_kv_caches_of_those_that_join)
{
	script_start(&n, &(struct setup){.gb = 20});
	script_add(&n, engine(10, 0));
	script_add(&n, engine(8, 0));
	script_serve(&n, 1, 1);
	script_arrive(&n, 2, 0);
	script_copied(&n, 2);
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_arrive_kv(&n, 4, 0, 1);
	expect(&n, "evict weights f1 gpu0\njoin b2 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_join, where_memory_is_lacking_another_gpu_takes_a_batch)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_end(&n);
	script_start(&n, &(struct setup){.gpus = 2, .gb = 11.5});
	struct medusa_sched_function f = engine(10, 0);
	f.max_parallel = 2;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_forget(&n);
	script_arrive(&n, 2, 0);
	expect(&n, "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [2]\n");
	script_copied(&n, 2);
	script_arrive(&n, 3, 0);
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, "run b3 f0 gpu1 [3]\n");
	script_end(&n);
}

Test(scheduler_join, of_two_batches_the_smaller_one_takes_a_request)
{
	script_start(&n, &(struct setup){.gpus = 2});
	struct medusa_sched_function f = engine(10, 2);
	f.max_parallel = 2;
	script_add(&n, f);
	for (uint64_t request = 1; request <= 3; request++) {
		script_arrive(&n, request, 0);
		script_copied(&n, request == 3 ? 2 : 1);
	}
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\njoin b1 f0 gpu0 [2]\n"
		   "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [3]\n");
	script_done(&n, 1);
	script_done(&n, 2);
	script_arrive(&n, 4, 0);
	script_arrive(&n, 5, 0);
	expect(&n, "join b2 f0 gpu1 [4]\nrun b3 f0 gpu0 [5]\n");
	script_end(&n);
}

Test(scheduler_join, those_that_waited_are_spread_over_batches)
{
	script_start(&n, &(struct setup){.gpus = 2});
	struct medusa_sched_function f = engine(10, 1);
	f.max_parallel = 2;
	script_add(&n, f);
	for (uint64_t request = 1; request <= 4; request++)
		script_arrive(&n, request, 0);
	script_copied(&n, 1);
	script_copied(&n, 2);
	script_forget(&n);
	f.max_batch = 3;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), 0);
	script_timer(&n);
	expect(&n, "join b2 f0 gpu1 [3]\njoin b1 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_join, kv_caches_that_grow_stop_joins_and_the_youngest_leave)
{
	one_engine(&(struct setup){.gb = 16}, 10, 0);
	n.now += MS;
	script_arrive(&n, 2, 0);
	n.now += MS;
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_step(
	    &n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_KV_CHANGED, .request = 1, .kv_bytes = 5 * GB});
	expect(&n, "abort 3 b1 no room\n");
	script_arrive(&n, 4, 0);
	expect(&n, "");
	script_done(&n, 3);
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, "join b1 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_join, of_two_engines_the_request_that_joined_last_leaves)
{
	script_start(&n, &(struct setup){.gb = 24, .slots = 2});
	for (uint32_t f = 0; f < 2; f++) {
		script_add(&n, engine(10, 0));
		script_arrive(&n, 1 + f, f);
		script_copied(&n, 1 + f);
		n.now += MS;
	}
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_step(
	    &n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_KV_CHANGED, .request = 1, .kv_bytes = 3 * GB});
	expect(&n, "abort 3 b1 no room\n");
	script_end(&n);
}

/* ---- ends that are not DONE ---- */

Test(scheduler_join, a_failed_batch_fails_those_that_joined_too)
{
	one_engine(&(struct setup){.options = {.retries = 1}}, 10, 0);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_batch_failed(&n, 1);
	expect(&n, "run b2 f0 gpu0 [1 2]\n");
	script_batch_failed(&n, 2);
	expect(&n, "reject 1 failed\nreject 2 failed\n");
	cr_assert_eq(script_books(&n, 0).kv_bytes, 0);
	script_end(&n);
}

Test(scheduler_join, what_a_lost_gpu_held_runs_elsewhere)
{
	one_engine(&(struct setup){.gpus = 2}, 10, 0);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_LOST, 0);
	expect(&n, "swap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [1 2]\n");
	script_end(&n);
}

Test(scheduler_join, one_that_joined_is_cancelled_alone)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 2);
	expect(&n, "abort 2 b1 cancelled\n");
	script_arrive(&n, 3, 0);
	expect(&n, "join b1 f0 gpu0 [3]\n");
	script_done(&n, 2);
	cr_assert_eq(script_stats(&n).cancelled, 1);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 2 * GB);
	script_end(&n);
}

Test(scheduler_join, a_run_is_timed_from_its_own_join)
{
	one_engine(&(struct setup){.options = {.run_timeout_ns = 10 * SECOND}}, 10, 0);
	script_wait(&n, 6 * SECOND);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_wait(&n, 5 * SECOND);
	expect(&n, "abort 1 b1 timed out\nreject 1 timed out\n");
	script_arrive(&n, 3, 0);
	expect(&n, ""); /* its engine may hang: it takes nobody */
	script_wait(&n, 4 * SECOND);
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, ""); /* the slot is still in use, as far as anybody knows */
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[0]});
	expect(&n, "run b2 f0 gpu0 [3]\n");
	script_end(&n);
}

/* An engine whose only request had a time-out may hang: nothing starts there until the answer, or until it is asked again. */
Test(scheduler_join, no_engine_starts_beside_one_that_may_hang)
{
	for (int answered = 0; answered < 2; answered++) {
		one_engine(&(struct setup){.slots = 2, .options = {.run_timeout_ns = 10 * SECOND}}, 10, 0);
		script_wait(&n, 10 * SECOND);
		expect(&n, "abort 1 b1 timed out\nreject 1 timed out\n");
		script_arrive(&n, 2, 0);
		script_wait(&n, 9 * SECOND);
		expect(&n, "");
		cr_assert_eq(script_books(&n, 0).waiting, 0, "others are kept from a GPU that it cannot have");
		if (answered)
			script_step(&n, (struct medusa_sched_event){
					    .type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[0]});
		script_wait(&n, 2 * SECOND);
		expect(&n, answered ? "run b2 f0 gpu0 [2]\n" : "abort 1 b1 timed out\nrun b2 f0 gpu0 [2]\n");
		script_end(&n);
	}
}

/* Another GPU takes what waits. */
Test(scheduler_join, another_gpu_takes_over_from_an_engine_that_may_hang)
{
	one_engine(&(struct setup){.gpus = 2, .slots = 2, .options = {.run_timeout_ns = 10 * SECOND, .retries = 1}}, 10,
		   0);
	script_wait(&n, 10 * SECOND);
	expect(&n, "abort 1 b1 timed out\nswap t2 weights f0 gpu1 host\nrun b2 f0 gpu1 [1]\n");
	script_end(&n);
}

Test(scheduler_join, a_batch_takes_requests_again_when_its_time_out_is_answered)
{
	one_engine(&(struct setup){.options = {.run_timeout_ns = 10 * SECOND}}, 10, 0);
	script_wait(&n, 6 * SECOND);
	script_arrive(&n, 2, 0);
	script_wait(&n, 5 * SECOND);
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[0]});
	expect(&n, "join b1 f0 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_join, nobody_joins_on_a_gpu_that_drains)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_DRAIN, 0);
	script_arrive(&n, 2, 0);
	expect(&n, "");
	script_gpu(&n, MEDUSA_SCHED_EVENT_GPU_BACK, 0);
	expect(&n, "join b1 f0 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_join, requests_join_what_was_found_running)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, engine(10, 3));
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RESIDENT,
						    .artifact = MEDUSA_SCHED_CLASS_WEIGHTS});
	script_request(&n, MEDUSA_SCHED_EVENT_RUNNING, 1);
	script_arrive(&n, 2, 0);
	script_request(&n, MEDUSA_SCHED_EVENT_RUNNING, 3);
	script_arrive(&n, 4, 0);
	expect(&n, "run b1 f0 gpu0 [1]\njoin b1 f0 gpu0 [2]\nrun b1 f0 gpu0 [3]\n");
	script_done(&n, 1);
	expect(&n, "join b1 f0 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_join, an_unregistered_function_ends_with_those_that_joined)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 0});
	script_done(&n, 1);
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, "offload weights f0 gpu0\noffload weights f0 host\n");
	script_end(&n);
}

/* What a request has taken counts from its own join, for the measured times that policies use. */
Test(scheduler_join, service_times_count_from_the_join)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_STARTED, .batch = n.batches[0]});
	n.now += 10 * SECOND;
	script_arrive(&n, 2, 0);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_STARTED, .batch = n.batches[0]});
	n.now += SECOND;
	script_done(&n, 2);
	cr_assert_float_eq(n.sched->functions[0].service_s, 1, 1e-9);
	script_done(&n, 1);
	cr_assert_float_eq(n.sched->functions[0].service_s, 12, 1e-9);
	script_end(&n);
}

/* ---- others need the GPU ---- */

/*
 * Requests for function 0 arrive twice a second and take 2 s each, from request 1 on, which runs; until the log has what is
 * wanted, or for a minute. Returns how long that took.
 */
static uint64_t never_ceasing(const char *wanted)
{
	uint64_t began = n.now, first = 1, next = 2;
	while (!strstr(n.log, wanted) && n.now < began + 60 * SECOND) {
		script_arrive(&n, next++, 0);
		if (next - first > 4)
			script_done(&n, first++);
		script_wait(&n, SECOND / 2);
	}
	return n.now - began;
}

static void check_turn(uint64_t waited)
{
	cr_assert_gt(script_stats(&n).joins, 8, "nobody joins meanwhile");
	cr_assert_leq(waited, 8 * SECOND, "it waits for %.1f s", (double)waited / 1e9);
}

Test(scheduler_join, a_function_that_needs_the_memory_has_its_turn)
{
	one_engine(&(struct setup){.gb = 20, .slots = 4}, 10, 0);
	script_add(&n, engine(12, 0));
	script_arrive(&n, 1000, 1);
	check_turn(never_ceasing("run b2 f1 gpu0 [1000]"));
	script_end(&n);
}

Test(scheduler_join, an_engine_that_drains_takes_nobody)
{
	one_engine(&(struct setup){.gb = 20, .slots = 4, .options = {.eviction = "swapserve"}}, 10, 0);
	script_add(&n, engine(12, 0));
	script_arrive(&n, 1000, 1);
	script_arrive(&n, 2, 0);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [1000]\n");
	script_end(&n);
}

Test(scheduler_join, a_function_that_needs_the_slot_has_its_turn)
{
	one_engine(&(struct setup){.gb = 80, .slots = 1}, 10, 0);
	script_add(&n, script_model(12));
	script_arrive(&n, 1000, 1);
	check_turn(never_ceasing("run b2 f1 gpu0 [1000]"));
	script_end(&n);
}

Test(scheduler_join, those_that_wait_for_slots_have_their_turns_one_after_the_other)
{
	one_engine(&(struct setup){.gb = 80, .slots = 1}, 10, 0);
	script_add(&n, script_model(12));
	script_add(&n, script_model(12));
	script_arrive(&n, 1000, 1);
	script_arrive(&n, 1001, 2);
	never_ceasing("run b2 f1 gpu0 [1000]");
	script_done(&n, 1000);
	cr_assert(strstr(n.log, "run b3 f2 gpu0 [1001]"), "%s", n.log);
	script_end(&n);
}

/* ---- what does not change ---- */

Test(scheduler_join, a_function_does_not_become_continuous)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, engine(10, 0));
	struct medusa_sched_function f = engine(10, 4);
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), 0, "%s", medusa_sched_error(n.sched));
	f.continuous = 0;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), MEDUSA_SCHED_ERR_INVALID);
	cr_assert(strstr(medusa_sched_error(n.sched), "continuous"), "%s", medusa_sched_error(n.sched));
	script_end(&n);
}

Test(scheduler_join, a_smaller_max_batch_holds_for_those_that_come)
{
	one_engine(&(struct setup){0}, 10, 0);
	script_arrive(&n, 2, 0);
	script_forget(&n);
	struct medusa_sched_function f = engine(10, 1);
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), 0);
	script_arrive(&n, 3, 0);
	script_done(&n, 1);
	expect(&n, "");
	script_done(&n, 2);
	expect(&n, "run b2 f0 gpu0 [3]\n");
	script_end(&n);
}
