/* SPDX-License-Identifier: Apache-2.0 */
/* Our own policies when there is more to do than can be in time: who goes first, how many together, and who still has a turn. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static struct medusa_sched_function model(double gb, uint64_t slo_ms)
{
	struct medusa_sched_function f = script_model(gb);
	f.slo_ns = slo_ms * MS;
	f.slo_goal = MEDUSA_SCHED_GOAL_FIRST_TOKEN;
	return f;
}

/* ---- who claims memory ---- */

Test(scheduler_overload, memory_goes_to_whose_start_is_due_first)
{
	script_start(&n, &(struct setup){.gb = 15, .slots = 4, .options.queueing = "medusa"});
	script_add(&n, model(10, 0));
	script_add(&n, model(10, 60000));
	script_add(&n, model(10, 5000));
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_arrive(&n, 2, 1);
	n.now += 100 * MS;
	script_arrive(&n, 3, 2);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "evict weights f0 gpu0\nswap t2 weights f2 gpu0 host\nrun b2 f2 gpu0 [3]\n");
	script_end(&n);
}

/*
 * Small functions are called without end, and each of their requests can still be in time. Returns how many runs began
 * before the large one, which is late, had its turn.
 */
static uint32_t runs_before_the_large_one(uint32_t gpus)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	uint64_t next = 2, first = 2;
	script_start(&n, &(struct setup){.gb = 20, .gpus = gpus, .slots = 8, .options.queueing = "medusa"});
	script_add(&n, model(18, 1));
	for (int i = 0; i < 6; i++)
		script_add(&n, model(4, 2000));
	for (; next < 12; next++)
		script_arrive(&n, next, (uint32_t)(1 + next % 6));
	script_arrive(&n, 1, 0);
	while (!strstr(n.log, " f0 gpu") && n.now < 300 * SECOND) {
		script_forget(&n);
		n.now += 250 * MS;
		for (uint32_t t = 1; t <= n.transfer_count; t++)
			script_copied(&n, t);
		script_done(&n, first++);
		script_arrive(&n, next, (uint32_t)(1 + next % 6));
		next++;
	}
	cr_assert(strstr(n.log, " f0 gpu"), "it never had its turn");
	medusa_sched_stats_get(n.sched, &stats);
	script_end(&n);
	return (uint32_t)stats.runs;
}

/* 5 s until it has waited for long, 16 starts, and what then runs there ends. */
Test(scheduler_overload, who_needs_much_memory_has_a_turn)
{
	cr_assert_leq(runs_before_the_large_one(1), 60);
	cr_assert_leq(runs_before_the_large_one(2), 90);
}

/* What has been loaded is used for a while, however long others have waited. */
Test(scheduler_overload, what_was_loaded_stays_in_use_for_a_while)
{
	script_start(&n, &(struct setup){.gb = 15, .slots = 4});
	for (int i = 0; i < 3; i++) {
		struct medusa_sched_function f = model(10, 0);
		f.max_parallel = 4;
		script_add(&n, f);
	}
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_arrive(&n, 2, 1);
	script_arrive(&n, 3, 2);
	script_wait(&n, 20 * SECOND);
	script_forget(&n);
	script_done(&n, 1);
	script_copied(&n, 2);
	expect(&n, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_wait(&n, 4 * SECOND);
	script_arrive(&n, 4, 1);
	expect(&n, "run b3 f1 gpu0 [4]\n");
	script_wait(&n, 2 * SECOND);
	script_arrive(&n, 5, 1);
	expect(&n, "");
	script_done(&n, 2);
	script_done(&n, 4);
	expect(&n, "evict weights f1 gpu0\nswap t3 weights f2 gpu0 host\nrun b4 f2 gpu0 [3]\n");
	script_end(&n);
}

/* ---- whose first token is computed first ---- */

/*
 * Two wait for the slot: the first one's start is due first, and takes four times as long. The second one's function has
 * lost so many requests.
 */
static void wait_for_the_slot(bool misses, uint32_t lost)
{
	script_start(&n, &(struct setup){.slots = 1, .options.queueing = "medusa"});
	script_add(&n, model(1, 0));
	struct medusa_sched_function slow = model(1, 2000);
	slow.t0_ns = 400 * MS;
	script_add(&n, slow);
	script_add(&n, model(1, 2000));
	for (uint32_t f = 0; f < 3; f++)
		script_serve(&n, 900 + f, f);
	script_arrive(&n, 1, 0);
	n.sched->first_class.ended = 10;
	n.sched->first_class.missed = misses ? 5 : 0;
	n.sched->functions[2].ended += lost; /* so many were late */
	script_arrive(&n, 2, 1);
	script_arrive(&n, 3, 2);
	script_forget(&n);
	script_done(&n, 1);
}

Test(scheduler_overload, the_start_that_is_due_first_comes_first)
{
	wait_for_the_slot(false, 1000000);
	expect(&n, "run b5 f1 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_overload, when_many_are_late_the_quickest_comes_first)
{
	wait_for_the_slot(true, 0);
	expect(&n, "run b5 f2 gpu0 [3]\n");
	script_end(&n);
}

/* A function that is far from its percentile does not cost another one its own. */
Test(scheduler_overload, when_many_are_late_those_that_can_reach_their_percentile_come_first)
{
	wait_for_the_slot(true, 1000000);
	expect(&n, "run b5 f1 gpu0 [2]\n");
	script_end(&n);
}

/* The start of what must be loaded is due first, and it would push out what is there. */
Test(scheduler_overload, what_is_given_up_does_not_push_out_what_is_there)
{
	script_start(&n, &(struct setup){.gb = 15, .slots = 1, .options.queueing = "medusa"});
	for (int i = 0; i < 2; i++)
		script_add(&n, model(10, 60000));
	script_serve(&n, 900, 0);
	n.sched->functions[0].high = n.sched->functions[1].high = false;
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 1);
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "run b3 f0 gpu0 [3]\n");
	script_end(&n);
}

/* Two functions whose requests are late, with memory for the one that is there; the other one's has waited longer by so much. */
static void late_ones(uint64_t longer)
{
	script_start(&n, &(struct setup){.gb = 15, .slots = 1, .options.queueing = "medusa"});
	for (int i = 0; i < 2; i++)
		script_add(&n, model(10, 100));
	script_serve(&n, 900, 0);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 1);
	n.now += longer;
	script_arrive(&n, 3, 0);
	n.now += 10 * SECOND;
	script_forget(&n);
	script_done(&n, 1);
}

Test(scheduler_overload, late_requests_do_not_take_turns_in_memory)
{
	late_ones(SECOND);
	expect(&n, "run b3 f0 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_overload, a_late_request_is_not_passed_for_ever)
{
	late_ones(200 * SECOND);
	expect(&n, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b3 f1 gpu0 [2]\n");
	script_end(&n);
}

/* ---- how many together ---- */

/* One runs, another one has waited for 140 ms of its 250, and three have just come. */
static void batch_of_four(uint64_t alpha_ms, bool resident)
{
	script_start(&n, &(struct setup){.slots = 1, .options = {.queueing = "medusa", .batching = "medusa"}});
	struct medusa_sched_function f = model(0.1, 250);
	f.alpha_ns = alpha_ms * MS;
	f.max_batch = 8;
	script_add(&n, f);
	script_add(&n, model(0.1, 0));
	if (resident)
		script_serve(&n, 900, 0);
	script_serve(&n, 901, 1);
	script_arrive(&n, 1, 1);
	script_arrive(&n, 2, 0);
	n.now += 140 * MS;
	for (uint64_t i = 3; i <= 5; i++)
		script_arrive(&n, i, 0);
	script_forget(&n);
	script_done(&n, 1);
}

/* With all four, the first is late and three are in time, which is more of them for each second than the first alone. */
Test(scheduler_overload, one_is_late_so_that_three_are_in_time)
{
	batch_of_four(20, true);
	expect(&n, "run b4 f0 gpu0 [2 3 4 5]\n");
	script_end(&n);
}

/* Each further one takes nearly as long as the first: together they would all be late. */
Test(scheduler_overload, one_alone_where_batches_save_nothing)
{
	batch_of_four(90, true);
	expect(&n, "run b4 f0 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_overload, what_must_be_loaded_is_loaded_for_all)
{
	batch_of_four(90, false);
	expect(&n, "swap t2 weights f0 gpu0 host\nrun b3 f0 gpu0 [2 3 4 5]\n");
	script_end(&n);
}
