/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's order of service: queueing and batching, each policy's own rule. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

/* Lets function f miss or meet an SLO of 150 ms `count` times, each with 100 ms or 200 ms of service. */
static void record(uint32_t f, uint32_t count, bool met, uint64_t first_request)
{
	for (uint32_t i = 0; i < count; i++) {
		script_arrive(&n, first_request + i, f);
		n.now += met ? 100 * MS : 200 * MS;
		script_done(&n, first_request + i);
	}
	script_forget(&n);
}

/* ---- queueing ---- */

Test(scheduler_queueing, fifo_is_the_order_of_arrival)
{
	script_start(&n, &(struct setup){0});
	for (int i = 0; i < 3; i++)
		script_add(&n, script_model(10));
	for (uint32_t f = 0; f < 3; f++)
		script_serve(&n, 100 + f, f);
	script_forget(&n);
	for (uint64_t i = 1; i <= 4; i++, n.now += MS)
		script_arrive(&n, i, (uint32_t[]){0, 2, 1, 0}[i - 1]);
	expect(&n, "run b4 f0 gpu0 [1]\n");
	script_done(&n, 1);
	expect(&n, "run b5 f2 gpu0 [2]\n");
	script_done(&n, 2);
	expect(&n, "run b6 f1 gpu0 [3]\n");
	script_done(&n, 3);
	expect(&n, "run b7 f0 gpu0 [4]\n");
	script_end(&n);
}

/* Three functions that lack 2, 4 and -10 answers; p is 0.5, so that the metric is that number times 2 x 100
 * ms or so. */
static void torpor_node(double alpha)
{
	script_start(&n, &(struct setup){.options.queueing = "torpor"});
	struct medusa_sched_function f = script_model(10);
	f.slo_ns = 150 * MS;
	f.slo_percentile = 0.5;
	for (int i = 0; i < 4; i++)
		script_add(&n, f);
	for (uint32_t i = 0; i < 4; i++)
		script_serve(&n, 900 + i, i);
	record(0, 3, false, 100);
	record(1, 5, false, 200);
	record(2, 10, true, 300);
	n.sched->torpor.alpha = alpha;
	n.now += 10 * SECOND;
	script_arrive(&n, 1, 3);
	script_arrive(&n, 2, 2);
	script_arrive(&n, 3, 0);
	script_arrive(&n, 4, 1);
	script_forget(&n);
}

Test(scheduler_queueing, torpor_rescues_the_one_that_lacks_most_within_the_high_group)
{
	torpor_node(1);
	script_done(&n, 1);
	script_done(&n, 4);
	script_done(&n, 3);
	expect(&n, "run b24 f1 gpu0 [4]\nrun b25 f0 gpu0 [3]\nrun b26 f2 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_queueing, torpor_gives_up_what_is_beyond_the_threshold)
{
	torpor_node(0.5);
	script_done(&n, 1);
	script_done(&n, 3);
	script_done(&n, 2);
	/* 2 of 6 is within half of the sum, 4 more is not: that function is low, and last. */
	expect(&n, "run b24 f0 gpu0 [3]\nrun b25 f2 gpu0 [2]\nrun b26 f1 gpu0 [4]\n");
	script_end(&n);
}

Test(scheduler_queueing, torpor_serves_the_smallest_first_within_the_low_group)
{
	torpor_node(0);
	script_done(&n, 1);
	script_done(&n, 2);
	script_done(&n, 3);
	expect(&n, "run b24 f2 gpu0 [2]\nrun b25 f0 gpu0 [3]\nrun b26 f1 gpu0 [4]\n");
	script_end(&n);
}

/* However the metrics round, all of their sum is within 1 x their sum. */
Test(scheduler_queueing, torpor_alpha_1_leaves_nobody_out)
{
	for (uint32_t first = 1; first < 12; first++) {
		script_start(&n, &(struct setup){.options.queueing = "torpor"});
		struct medusa_sched_function f = script_model(5);
		f.slo_ns = 150 * MS;
		f.slo_percentile = 0.7;
		for (uint32_t i = 0; i < 6; i++) {
			script_add(&n, f);
			script_serve(&n, 900 + i, i);
			record(i, (first * (i + 7)) % 11 + 1, false, 100 * i);
		}
		n.sched->torpor.alpha = 1;
		n.now += 10 * SECOND;
		script_timer(&n);
		for (uint32_t i = 0; i < 6; i++)
			cr_assert(n.sched->functions[i].high, "round %u: function %u is in the low group", first, i);
		script_end(&n);
	}
}

/* Every 20 updates, 2 s each: twice at 4 % more, half at 4 % less, else a hundredth more; at most 1. */
Test(scheduler_queueing, torpor_adapts_its_threshold)
{
	static const struct {
		const char *name;
		double before, after;
		uint32_t met, missed;
		double ratio;
	} cases[] = {
	    {"better", 0.3, 0.6, 10, 0, 0.5},         {"worse", 0.3, 0.15, 1, 9, 0.5},
	    {"as before", 0.3, 0.303, 5, 5, 0.5},     {"better, bounded", 0.7, 1, 10, 0, 0.5},
	    {"as before, bounded", 1, 1, 10, 0, 1.0},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		script_start(&n, &(struct setup){.options.queueing = "torpor"});
		struct medusa_sched_function f = script_model(10);
		f.slo_ns = 150 * MS;
		script_add(&n, f);
		script_serve(&n, 900, 0);
		while (n.sched->torpor.updates < 19) {
			n.now += 2 * SECOND;
			script_timer(&n);
		}
		n.sched->torpor.ended = n.sched->torpor.met = 0;
		record(0, cases[i].met, true, 100);
		n.sched->next_tick = UINT64_MAX;
		record(0, cases[i].missed, false, 200);
		n.sched->torpor.alpha = cases[i].before;
		n.sched->torpor.ratio = cases[i].ratio;
		cr_assert_eq(n.sched->torpor.updates, 19, "%s: a tick too early", cases[i].name);
		n.sched->next_tick = n.now;
		script_timer(&n);
		cr_assert_float_eq(n.sched->torpor.alpha, cases[i].after, 1e-9, "%s: alpha is %g", cases[i].name,
				   n.sched->torpor.alpha);
		script_end(&n);
	}
}

/* Margin SLO - (w + M T): function 0 is the less urgent one alone, the more urgent one beside another batch. */
Test(scheduler_queueing, margin_counts_contention)
{
	for (uint32_t slots = 1; slots <= 2; slots++) {
		script_start(&n, &(struct setup){.slots = slots, .options.queueing = "margin"});
		struct medusa_sched_function f = script_model(10);
		script_add(&n, f);
		f.slo_ns = SECOND;
		f.t0_ns = 350 * MS;
		script_add(&n, f);
		f.slo_ns = 800 * MS;
		f.t0_ns = 200 * MS;
		script_add(&n, f);
		f.max_parallel = 2;
		script_add(&n, f);
		for (uint32_t i = 0; i < 4; i++)
			script_serve(&n, 900 + i, i);
		script_arrive(&n, 1, 0);
		if (slots == 2)
			script_arrive(&n, 2, 3);
		script_arrive(&n, 3, 1);
		script_arrive(&n, 4, 2);
		script_forget(&n);
		script_done(&n, 1);
		if (slots == 1)
			expect(&n, "run b6 f2 gpu0 [4]\n");
		else
			expect(&n, "run b7 f1 gpu0 [3]\n");
		script_end(&n);
	}
}

static void medusa_node(uint32_t functions, uint64_t slo_ns)
{
	script_start(&n, &(struct setup){.options.queueing = "medusa"});
	struct medusa_sched_function f = script_model(10);
	for (uint32_t i = 0; i < functions; i++) {
		f.slo_ns = slo_ns ? slo_ns + i * 100 * MS : 0;
		script_add(&n, f);
		script_serve(&n, 900 + i, i);
	}
	script_forget(&n);
}

Test(scheduler_queueing, medusa_takes_the_latest_start_first)
{
	medusa_node(3, 500 * MS);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 2);
	n.now += 10 * MS;
	script_arrive(&n, 3, 1);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "run b5 f1 gpu0 [3]\n");
	script_end(&n);
}

Test(scheduler_queueing, medusa_serves_late_requests_after_those_in_time)
{
	medusa_node(3, 500 * MS);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 1);
	n.now += 550 * MS;
	script_arrive(&n, 3, 2);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "run b5 f2 gpu0 [3]\n");
	script_done(&n, 3);
	expect(&n, "run b6 f1 gpu0 [2]\n");
	script_end(&n);
}

/* One queue of a function: the late ones do not hold up those that can still be in time. */
Test(scheduler_queueing, medusa_serves_late_requests_of_one_function_last_too)
{
	medusa_node(1, 500 * MS);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 0);
	n.now += 550 * MS;
	script_arrive(&n, 3, 0);
	script_forget(&n);
	script_done(&n, 1);
	script_done(&n, 3);
	expect(&n, "run b3 f0 gpu0 [3]\nrun b4 f0 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_queueing, medusa_serves_functions_that_are_given_up_after_the_others)
{
	medusa_node(3, 500 * MS);
	n.sched->functions[0].high = false;
	script_arrive(&n, 1, 1);
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 2);
	script_forget(&n);
	script_done(&n, 1);
	expect(&n, "run b5 f2 gpu0 [3]\n");
	script_done(&n, 3);
	expect(&n, "run b6 f0 gpu0 [2]\n");
	script_end(&n);
}

/* A function that takes more of the GPU than there is, and misses: it is given up, and comes back when it is calm. */
Test(scheduler_queueing, medusa_gives_up_under_overload_and_takes_back_when_it_is_calm)
{
	medusa_node(2, 500 * MS);
	for (uint64_t i = 0; i < 200; i++)
		script_arrive(&n, 1000 + i, 0);
	for (uint32_t i = 0; i < 200; i++, n.now += 50 * MS) {
		struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_DONE,
					       .request = n.sched->requests[n.sched->batches[0].requests.head].id};
		script_step(&n, e);
	}
	cr_assert(!n.sched->functions[0].high, "it misses every SLO, and is not given up");
	for (int i = 0; i < 600; i++) {
		n.now += SECOND;
		script_timer(&n);
	}
	cr_assert(n.sched->functions[0].high && n.sched->functions[1].high, "it never comes back");
	script_end(&n);
}

/* Fresh requests would go on and on before the late one: now and then a start is the oldest's. */
Test(scheduler_queueing, medusa_bounds_the_wait_of_late_requests)
{
	medusa_node(2, 500 * MS);
	script_arrive(&n, 1, 1);
	script_arrive(&n, 2, 0);
	n.now += 10 * SECOND;
	uint64_t running = 1, next = 3;
	uint32_t starts = 0;
	while (script_function(&n, 0).running == 0) {
		cr_assert_lt(starts++, 17, "the oldest request waits for ever");
		script_arrive(&n, next, 1);
		script_done(&n, running);
		running = next++;
	}
	script_end(&n);
}

/* ---- batching ---- */

/* Function 0 has a GPU beside function 1, which goes on computing: there is something to wait for. */
static void batching_node(const struct medusa_sched_options *options, uint64_t slo_ns)
{
	script_start(&n, &(struct setup){.slots = 2, .options = *options});
	struct medusa_sched_function f = script_model(10);
	f.max_batch = 8;
	f.slo_ns = slo_ns;
	script_add(&n, f);
	script_add(&n, script_model(10));
	script_arrive(&n, 900, 0);
	script_arrive(&n, 901, 1);
	script_wait(&n, 5 * SECOND);
	script_copied(&n, 1);
	script_copied(&n, 2);
	script_done(&n, 900);
	script_forget(&n);
}

static void arrive_many(uint64_t first, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		script_arrive(&n, first + i, 0);
}

Test(scheduler_batching, none_runs_one_at_a_time)
{
	struct medusa_sched_options o = {.batching = "none"};
	batching_node(&o, 0);
	arrive_many(1, 3);
	expect(&n, "run b3 f0 gpu0 [1]\n");
	script_done(&n, 1);
	expect(&n, "run b4 f0 gpu0 [2]\n");
	script_end(&n);
}

Test(scheduler_batching, fixed_waits_for_its_size_or_its_delay)
{
	struct medusa_sched_options o = {.batching = "fixed", .fixed_batch = 3, .fixed_delay_ns = 200 * MS};
	batching_node(&o, 0);
	arrive_many(1, 2);
	expect(&n, "");
	cr_assert_eq(n.timer, n.now + 200 * MS, "the timer is set for %llu", (unsigned long long)n.timer);
	script_arrive(&n, 3, 0);
	expect(&n, "run b3 f0 gpu0 [1 2 3]\n");
	for (uint64_t i = 1; i <= 3; i++)
		script_done(&n, i);
	arrive_many(4, 2);
	script_wait(&n, 199 * MS);
	expect(&n, "");
	script_wait(&n, MS);
	expect(&n, "run b4 f0 gpu0 [4 5]\n");
	script_end(&n);
}

/* Four are the most whose T(b) = 100 + 10 (b - 1) is within 130 ms. */
Test(scheduler_batching, xlora_starts_when_the_batch_is_full)
{
	struct medusa_sched_options o = {.batching = "xlora"};
	batching_node(&o, 130 * MS);
	arrive_many(1, 3);
	expect(&n, "");
	script_arrive(&n, 4, 0);
	expect(&n, "run b3 f0 gpu0 [1 2 3 4]\n");
	script_end(&n);
}

/* Delay SLO - T(N): 300 ms for one, 290 ms from its arrival when a second has come. */
Test(scheduler_batching, xlora_starts_when_the_first_must)
{
	struct medusa_sched_options o = {.batching = "xlora"};
	batching_node(&o, 400 * MS);
	script_arrive(&n, 1, 0);
	cr_assert_eq(n.timer, n.now + 300 * MS);
	n.now += 50 * MS;
	script_arrive(&n, 2, 0);
	script_wait(&n, 239 * MS);
	expect(&n, "");
	script_wait(&n, MS);
	expect(&n, "run b3 f0 gpu0 [1 2]\n");
	script_end(&n);
}

Test(scheduler_batching, medusa_never_waits_and_takes_as_many_as_keep_the_first_in_time)
{
	struct medusa_sched_options o = {.batching = "medusa"};
	batching_node(&o, 150 * MS);
	script_arrive(&n, 1, 0);
	expect(&n, "run b3 f0 gpu0 [1]\n");
	arrive_many(2, 6);
	n.now += 10 * MS;
	script_done(&n, 1);
	/* 40 ms are left beyond T(1): four more. */
	expect(&n, "run b4 f0 gpu0 [2 3 4 5 6]\n");
	for (uint64_t i = 2; i <= 6; i++)
		script_done(&n, i);
	expect(&n, "run b5 f0 gpu0 [7]\n");
	script_end(&n);
}
