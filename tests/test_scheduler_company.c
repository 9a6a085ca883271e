/* SPDX-License-Identifier: Apache-2.0 */
/* With whom a function may be loaded: who leaves before, who waits for whom, and who stays. */
#include "tests/scheduler_fixture.h"

static struct script r;

/* `count` models of 10 GB on GPUs of 80 GB: memory makes nobody leave. */
static void start_models(uint32_t count, struct medusa_sched_function f, struct setup setup)
{
	script_start(&r, &setup);
	for (uint32_t i = 0; i < count; i++)
		script_add(&r, f);
}

static void stays_with(uint32_t function, const uint32_t *others, uint32_t count)
{
	const struct medusa_sched_company company = {.size = sizeof(company), .functions = others, .count = count};
	cr_assert_eq(medusa_sched_set_company(r.sched, function, &company, 1), 0, "%s", medusa_sched_error(r.sched));
}

/* As a group of llama-swap with `swap`: one of them at a time. */
static void alone(uint32_t function)
{
	stays_with(function, NULL, 0);
}

static void start_alone(uint32_t count, struct medusa_sched_function f, struct setup setup)
{
	start_models(count, f, setup);
	for (uint32_t i = 0; i < count; i++)
		alone(i);
}

Test(scheduler_company, what_is_idle_leaves_before)
{
	start_alone(2, script_model(10), (struct setup){.slots = 4});
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_arrive(&r, 2, 1);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

/* On all GPUs of the node, not only on the one where there is to be room. */
Test(scheduler_company, what_is_idle_leaves_other_gpus)
{
	start_alone(1, script_model(10), (struct setup){.gpus = 2, .slots = 4});
	script_add(&r, script_model(20));
	alone(1);
	script_bytes(&r, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 15);
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_arrive(&r, 2, 1);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu1 host\nrun b2 f1 gpu1 [2]\n");
	script_end(&r);
}

Test(scheduler_company, nothing_leaves_without_a_rule)
{
	start_alone(2, script_model(10), (struct setup){.slots = 4});
	cr_assert_eq(medusa_sched_set_company(r.sched, 1, NULL, 0), 0);
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_arrive(&r, 2, 1);
	expect(&r, "swap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

/* A rule is for one direction: function 1 makes nobody leave, and leaves only for those who say so. */
Test(scheduler_company, a_rule_is_for_one_direction)
{
	start_models(2, script_model(10), (struct setup){.slots = 4});
	alone(0);
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_serve(&r, 2, 1);
	expect(&r, "swap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_serve(&r, 3, 0); /* both are there: nothing is loaded */
	expect(&r, "run b3 f0 gpu0 [3]\n");
	script_end(&r);
}

Test(scheduler_company, it_waits_for_runs_to_end)
{
	start_alone(2, script_model(10), (struct setup){.slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_forget(&r);
	script_arrive(&r, 2, 1);
	script_wait(&r, 60 * SECOND);
	expect(&r, "");
	script_done(&r, 1);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

Test(scheduler_company, it_waits_for_evictions_that_take_time)
{
	struct medusa_sched_function f = script_model(10);
	f.evict_ns = SECOND;
	start_alone(2, f, (struct setup){.slots = 4});
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_arrive(&r, 2, 1);
	expect(&r, "evict t2 weights f0 gpu0\n");
	script_arrive(&r, 3, 0); /* it does not come back before */
	expect(&r, "");
	script_evicted(&r, 2);
	expect(&r, "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_copied(&r, 3);
	script_done(&r, 2);
	expect(&r, "evict t4 weights f1 gpu0\n");
	script_evicted(&r, 4);
	expect(&r, "swap t5 weights f0 gpu0 host\nrun b3 f0 gpu0 [3]\n");
	script_end(&r);
}

/* Requests that can still be served before are served before, for 5 s: each exchange serves more than one. */
Test(scheduler_company, what_is_there_serves_for_a_while)
{
	start_alone(2, script_model(10), (struct setup){.slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_arrive(&r, 2, 1);
	script_arrive(&r, 3, 0);
	script_forget(&r);
	script_wait(&r, 4 * SECOND);
	script_done(&r, 1);
	expect(&r, "run b2 f0 gpu0 [3]\n");
	script_arrive(&r, 4, 0);
	script_wait(&r, 2 * SECOND);
	script_done(&r, 3);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b3 f1 gpu0 [2]\n");
	script_copied(&r, 2);
	script_done(&r, 2);
	expect(&r, "evict weights f1 gpu0\nswap t3 weights f0 gpu0 host\nrun b4 f0 gpu0 [4]\n");
	script_end(&r);
}

/* Engines that batch by themselves would never be idle: after 5 s nobody joins. */
Test(scheduler_company, a_batch_that_is_joined_ends_for_it)
{
	struct medusa_sched_function f = script_model(10);
	f.continuous = 1;
	f.max_batch = 8;
	start_alone(2, f, (struct setup){.gpus = 2, .slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_arrive(&r, 2, 1);
	script_forget(&r);
	script_wait(&r, 4 * SECOND);
	script_arrive(&r, 3, 0);
	expect(&r, "join b1 f0 gpu0 [3]\n");
	script_wait(&r, 2 * SECOND);
	script_arrive(&r, 4, 0);
	script_done(&r, 1);
	expect(&r, "");
	script_done(&r, 3);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

/* The other one has gone away: those who waited for it go on at once. */
Test(scheduler_company, a_cancel_ends_the_waiting_of_all)
{
	struct medusa_sched_function f = script_model(10);
	f.continuous = 1;
	f.max_batch = 8;
	start_alone(2, f, (struct setup){.slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_arrive(&r, 2, 1);
	script_wait(&r, 6 * SECOND);
	script_arrive(&r, 3, 0);
	script_forget(&r);
	script_request(&r, MEDUSA_SCHED_EVENT_CANCEL, 2);
	expect(&r, "reject 2 cancelled\njoin b1 f0 gpu0 [3]\n");
	script_end(&r);
}

Test(scheduler_company, a_higher_priority_waits_for_none_that_comes_later)
{
	start_alone(2, script_model(10), (struct setup){.slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_step(&r, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 2, .function = 1, .priority = 5});
	script_arrive(&r, 3, 0);
	script_forget(&r);
	script_done(&r, 1);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

/* Three that exclude each other take turns: none is passed over. */
Test(scheduler_company, those_that_wait_take_turns)
{
	start_alone(3, script_model(10), (struct setup){.slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_arrive(&r, 2, 2);
	script_arrive(&r, 3, 1);
	script_forget(&r);
	script_done(&r, 1);
	expect(&r, "evict weights f0 gpu0\nswap t2 weights f2 gpu0 host\nrun b2 f2 gpu0 [2]\n");
	script_copied(&r, 2);
	script_arrive(&r, 4, 0);
	script_done(&r, 2);
	expect(&r, "evict weights f2 gpu0\nswap t3 weights f1 gpu0 host\nrun b3 f1 gpu0 [3]\n");
	script_end(&r);
}

/* As a persistent group: function 2 may stay, serves all the time, and makes nobody leave. */
Test(scheduler_company, who_may_stay_is_not_disturbed)
{
	start_models(3, script_model(10), (struct setup){.slots = 4});
	stays_with(0, (const uint32_t[]){2}, 1);
	stays_with(1, (const uint32_t[]){2}, 1);
	script_serve(&r, 1, 2);
	script_arrive(&r, 2, 0);
	script_copied(&r, 2);
	script_arrive(&r, 3, 1);
	script_wait(&r, 10 * SECOND);
	script_forget(&r);
	script_serve(&r, 4, 2);
	expect(&r, "run b3 f2 gpu0 [4]\n");
	script_done(&r, 2);
	expect(&r, "evict weights f0 gpu0\nswap t3 weights f1 gpu0 host\nrun b4 f1 gpu0 [3]\n");
	script_end(&r);
}

/* Where the function is, its request has no place: for another GPU others leave. */
Test(scheduler_company, it_is_where_its_request_has_no_place)
{
	start_models(1, script_model(10), (struct setup){.gpus = 2, .slots = 4});
	script_add(&r, script_model(20));
	alone(0);
	script_bytes(&r, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 15);
	script_serve(&r, 1, 0);
	script_serve(&r, 2, 1);
	script_forget(&r);
	script_arrive_kv(&r, 3, 0, 30);
	expect(&r, "evict weights f1 gpu1\nswap t3 weights f0 gpu1 host\nrun b3 f0 gpu1 [3]\n");
	script_end(&r);
}

/* A model that is in nobody's way is loaded while another one waits. */
Test(scheduler_company, others_are_loaded_meanwhile)
{
	start_models(3, script_model(10), (struct setup){.slots = 4});
	stays_with(0, (const uint32_t[]){2}, 1);
	stays_with(1, (const uint32_t[]){2}, 1);
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_arrive(&r, 2, 1);
	script_wait(&r, 10 * SECOND);
	script_forget(&r);
	script_arrive(&r, 3, 2);
	expect(&r, "swap t2 weights f2 gpu0 host\nrun b2 f2 gpu0 [3]\n");
	script_end(&r);
}

/* What is kept stays, whatever the rule says; nobody waits for it. */
Test(scheduler_company, what_is_kept_stays)
{
	for (int pinned = 0; pinned < 2; pinned++) {
		struct medusa_sched_function f = script_model(10);
		start_models(1, f, (struct setup){.slots = 4});
		alone(0);
		f.pinned = pinned;
		f.min_replicas = !pinned;
		script_serve(&r, 1, script_add(&r, f));
		script_forget(&r);
		script_arrive(&r, 2, 0);
		cr_assert(strstr(r.log, "swap t2 weights f0 gpu0 host\nrun b2 f0 gpu0 [2]\n") &&
			      !strstr(r.log, "evict"),
			  "%s", r.log);
		script_end(&r);
	}
}

/* What is kept ahead of requests makes leave what is idle, and is waited for by nobody. */
Test(scheduler_company, what_is_kept_comes_when_others_are_idle)
{
	struct medusa_sched_function f = script_model(10);
	start_models(1, f, (struct setup){.slots = 4});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	f.min_replicas = 1;
	script_add(&r, f);
	alone(1);
	script_forget(&r);
	script_timer(&r);
	expect(&r, "");
	script_done(&r, 1);
	expect(&r, "evict weights f0 gpu0\npreload t2 weights f1 gpu0 host\n");
	script_end(&r);
}

/* ---- several companies, as the matrix of llama-swap has them ---- */

#define COMPANY(...)                                                                                                   \
	{                                                                                                              \
		.size = sizeof(struct medusa_sched_company), .functions = (const uint32_t[]){__VA_ARGS__},             \
		.count = sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)                                    \
	}

/* Functions 0 to 3; 0 may be with 1, or with 2 and 3. */
static void start_companies(uint32_t cost_of_first)
{
	const struct medusa_sched_company companies[] = {COMPANY(1), COMPANY(2, 3)};
	struct medusa_sched_function f = script_model(10);
	script_start(&r, &(struct setup){.slots = 4});
	for (uint32_t i = 0; i < 4; i++) {
		f.leave_cost = i == 1 ? cost_of_first : 0;
		script_add(&r, f);
	}
	cr_assert_eq(medusa_sched_set_company(r.sched, 0, companies, 2), 0, "%s", medusa_sched_error(r.sched));
	for (uint32_t i = 1; i < 4; i++)
		script_serve(&r, i, i);
	script_forget(&r);
}

Test(scheduler_company, the_company_stays_of_which_least_leaves)
{
	start_companies(0);
	script_arrive(&r, 9, 0);
	expect(&r, "evict weights f1 gpu0\nswap t4 weights f0 gpu0 host\nrun b4 f0 gpu0 [9]\n");
	script_end(&r);
	start_companies(3);
	script_arrive(&r, 9, 0);
	expect(&r, "evict weights f2 gpu0\nevict weights f3 gpu0\nswap t4 weights f0 gpu0 host\nrun b4 f0 gpu0 [9]\n");
	script_end(&r);
	start_companies(2); /* the first one of equals */
	script_arrive(&r, 9, 0);
	expect(&r, "evict weights f2 gpu0\nevict weights f3 gpu0\nswap t4 weights f0 gpu0 host\nrun b4 f0 gpu0 [9]\n");
	script_end(&r);
}

/* ---- what does not leave, and what is wrong ---- */

/* A model that has no place on any GPU now makes nobody leave. */
Test(scheduler_company, nobody_leaves_for_what_has_no_place)
{
	start_models(1, script_model(10), (struct setup){.slots = 4, .gb = 80});
	script_add(&r, script_model(70));
	alone(0);
	alone(1);
	script_serve(&r, 1, 0);
	script_bytes(&r, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 40);
	script_forget(&r);
	script_arrive(&r, 2, 1);
	expect(&r, "reject 2 never fits\n");
	script_serve(&r, 3, 0);
	expect(&r, "run b2 f0 gpu0 [3]\n");
	script_end(&r);
}

Test(scheduler_company, wrong_arguments)
{
	const uint32_t unknown = 7;
	struct medusa_sched_company company = {.size = sizeof(company), .functions = &unknown, .count = 1};
	start_models(1, script_model(10), (struct setup){0});
	cr_assert_eq(medusa_sched_set_company(NULL, 0, &company, 1), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_set_company(r.sched, 1, &company, 1), MEDUSA_SCHED_ERR_NOT_FOUND);
	cr_assert_eq(medusa_sched_set_company(r.sched, 0, NULL, 1), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_set_company(r.sched, 0, &company, 1), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(r.sched),
			 "companies[0].functions[0] is 7, but only 1 functions are registered");
	company.functions = NULL;
	cr_assert_eq(medusa_sched_set_company(r.sched, 0, &company, 1), MEDUSA_SCHED_ERR_INVALID);
	company.size = 4;
	cr_assert_eq(medusa_sched_set_company(r.sched, 0, &company, 1), MEDUSA_SCHED_ERR_INVALID);
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 0});
	cr_assert_eq(medusa_sched_set_company(r.sched, 0, NULL, 0), MEDUSA_SCHED_ERR_NOT_FOUND);
	script_end(&r);
}

/* The rule of a function that is unregistered, or taken back, ends: those who waited for it go on. */
Test(scheduler_company, a_rule_ends)
{
	for (int gone = 0; gone < 2; gone++) {
		start_models(2, script_model(10), (struct setup){.slots = 4});
		alone(1);
		script_arrive(&r, 1, 0);
		script_copied(&r, 1);
		script_arrive(&r, 2, 1);
		script_wait(&r, 10 * SECOND);
		script_arrive(&r, 3, 0);
		script_forget(&r);
		if (gone) {
			script_step(
			    &r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1});
			script_done(&r, 1);
			expect(&r, "reject 2 unregistered\noffload weights f1 host\nrun b2 f0 gpu0 [3]\n");
		} else {
			cr_assert_eq(medusa_sched_set_company(r.sched, 1, NULL, 0), 0);
			script_timer(&r);
			expect(&r, "swap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
		}
		script_end(&r);
	}
}
