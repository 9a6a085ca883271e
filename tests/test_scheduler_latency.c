/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of latencies, and what the expected tokens of a request say about how long it takes. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static struct medusa_sched_histogram latency(uint32_t function, enum medusa_sched_latency which)
{
	struct medusa_sched_histogram h = {.size = sizeof(h)};
	cr_assert_eq(medusa_sched_latency_get(n.sched, function, which, &h), 0);
	return h;
}

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t bucket = 0;
	while (medusa_sched_bucket_ns(bucket) < ns)
		bucket++;
	return bucket;
}

Test(scheduler_latency, bounds_double_with_every_second_bucket)
{
	static const uint64_t first[] = {100, 150, 200, 300, 400, 600, 800, 1200}; /* us */
	for (uint32_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		cr_assert_eq(medusa_sched_bucket_ns(i), first[i] * 1000);
	for (uint32_t i = 2; i < MEDUSA_SCHED_BUCKETS - 1; i++)
		cr_assert_eq(medusa_sched_bucket_ns(i), 2 * medusa_sched_bucket_ns(i - 2));
	cr_assert_eq(medusa_sched_bucket_ns(MEDUSA_SCHED_BUCKETS - 2), 3355443200000ull);
	cr_assert_eq(medusa_sched_bucket_ns(MEDUSA_SCHED_BUCKETS - 1), UINT64_MAX);
	cr_assert_eq(medusa_sched_bucket_ns(UINT32_MAX), UINT64_MAX);
}

static void expect_one(uint32_t function, enum medusa_sched_latency which, uint64_t ns)
{
	struct medusa_sched_histogram h = latency(function, which);
	cr_assert_eq(h.count, 1, "%s: %llu requests", medusa_sched_latency_name(which), (unsigned long long)h.count);
	cr_assert_eq(h.total_ns, ns, "%s: %llu ns", medusa_sched_latency_name(which), (unsigned long long)h.total_ns);
	for (uint32_t i = 0; i < MEDUSA_SCHED_BUCKETS; i++)
		cr_assert_eq(h.buckets[i], i == bucket_of(ns), "%s: bucket %u", medusa_sched_latency_name(which), i);
}

Test(scheduler_latency, each_is_counted_in_its_bucket)
{
	script_start(&n, &(struct setup){.options.retries = 1});
	for (int i = 0; i < 40; i++)
		script_add(&n, script_model(30));
	script_serve(&n, 1, 0); /* counts for function 0, in no time */
	script_arrive(&n, 2, 0);
	script_arrive(&n, 3, 39);
	n.now += 2 * SECOND;
	script_done(&n, 2);
	n.now += SECOND;
	script_batch_failed(&n, 3); /* waits once, however often it runs */
	n.now += SECOND;
	script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 3);
	n.now += 50 * SECOND;
	script_done(&n, 3);
	expect_one(39, MEDUSA_SCHED_LATENCY_WAITING, 2 * SECOND);
	expect_one(39, MEDUSA_SCHED_LATENCY_FIRST_TOKEN, 4 * SECOND);
	expect_one(39, MEDUSA_SCHED_LATENCY_COMPLETION, 54 * SECOND);
	cr_assert_eq(latency(NOBODY, MEDUSA_SCHED_LATENCY_COMPLETION).count, 3);
	cr_assert_eq(latency(NOBODY, MEDUSA_SCHED_LATENCY_COMPLETION).total_ns, 56 * SECOND);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_WAITING).buckets[0], 2);
	cr_assert_eq(latency(7, MEDUSA_SCHED_LATENCY_WAITING).count, 0);
	script_end(&n);
}

Test(scheduler_latency, a_load_is_no_service)
{
	script_start(&n, &(struct setup){.options.retries = 1});
	struct medusa_sched_function model = script_model(30);
	model.slo_ns = SECOND;
	script_add(&n, model);
	script_step(&n, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 1, .function = 0, .load = 1});
	n.now += 5 * SECOND; /* its model is loaded for so long, which is no objective's and no service's time */
	script_done(&n, 1);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_WAITING).count, 0);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_FIRST_TOKEN).count, 0);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_COMPLETION).count, 0);
	cr_assert_eq(n.sched->functions[0].served, 0, "a load counts as a request that was served");
	cr_assert_eq(n.sched->functions[0].service_s, 0, "the time of a load is learned as time of service");
	cr_assert_eq(n.sched->functions[0].ended, 0, "a load has missed an objective");
	script_arrive(&n, 2, 0);
	n.now += SECOND / 2;
	script_done(&n, 2);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_COMPLETION).count, 1);
	cr_assert_eq(n.sched->functions[0].served, 1);
	cr_assert_float_eq(n.sched->functions[0].service_s, 0.5, 0.01);
	cr_assert_eq(n.sched->functions[0].met, 1);
	script_end(&n);
}

Test(scheduler_latency, what_ends_without_being_served_is_not_counted_as_completed)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(30);
	f.abortable = 1;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_arrive(&n, 2, 0);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 2);
	script_done(&n, 1);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_WAITING).count, 1);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_FIRST_TOKEN).count, 0);
	cr_assert_eq(latency(0, MEDUSA_SCHED_LATENCY_COMPLETION).count, 0);
	struct medusa_sched_histogram h = {.size = sizeof(h)};
	cr_assert_eq(medusa_sched_latency_get(n.sched, 1, MEDUSA_SCHED_LATENCY_WAITING, &h),
		     MEDUSA_SCHED_ERR_NOT_FOUND);
	cr_assert_eq(medusa_sched_latency_get(n.sched, 0, (enum medusa_sched_latency)3, &h),
		     MEDUSA_SCHED_ERR_NOT_FOUND);
	h.size = 3;
	cr_assert_eq(medusa_sched_latency_get(n.sched, 0, MEDUSA_SCHED_LATENCY_WAITING, &h), MEDUSA_SCHED_ERR_INVALID);
	script_end(&n);
}

/* ---- expected tokens -------------------------------------------------------------------------------------------- */

static void arrive_of(uint64_t request, uint32_t function, uint64_t tokens)
{
	script_step(
	    &n, (struct medusa_sched_event){
		    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = request, .function = function, .tokens = tokens});
}

/* Who needs longer for its tokens has to start sooner, if the objective is the end and not the first token. */
Test(scheduler_tokens, bring_the_latest_start_forward)
{
	for (int first_token = 0; first_token < 2; first_token++) {
		script_start(&n, &(struct setup){.options.queueing = "medusa"});
		struct medusa_sched_function f = script_model(20);
		f.slo_ns = 10 * SECOND;
		f.token_ns = 10 * MS;
		f.slo_goal = first_token ? MEDUSA_SCHED_GOAL_FIRST_TOKEN : MEDUSA_SCHED_GOAL_COMPLETION;
		script_add(&n, f);
		script_add(&n, f);
		script_serve(&n, 90, 0);
		script_serve(&n, 91, 1);
		arrive_of(1, 0, 1);
		arrive_of(2, 0, 10);
		n.now += MS;
		arrive_of(3, 1, 500);
		script_forget(&n);
		script_done(&n, 1);
		cr_assert(strstr(n.log, first_token ? "[2]" : "[3]"), "%s", n.log);
		script_end(&n);
	}
}

Test(scheduler_tokens, say_when_a_run_is_late)
{
	script_start(&n, &(struct setup){.slots = 2, .options.max_wait_ns = SECOND});
	struct medusa_sched_function f = script_model(20);
	f.token_ns = 100 * MS;
	script_add(&n, f);
	script_add(&n, f);
	script_serve(&n, 90, 0);
	script_serve(&n, 91, 1);
	arrive_of(1, 0, 1);
	arrive_of(2, 1, 1000);
	script_forget(&n);
	script_wait(&n, 130 * SECOND); /* 120 s, and 10 x (t0 + 100 ms) */
	expect(&n, "abort 1 b3 timed out\nreject 1 timed out\n");
	script_batch_failed(&n, 3);
	script_wait(&n, 980 * SECOND);
	expect(&n, "");
	script_wait(&n, 20 * SECOND); /* 120 s, and 10 x (t0 + 100 s) */
	cr_assert(strstr(n.log, "reject 2 timed out"), "%s", n.log);
	script_end(&n);
}
