/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants of the scheduler: their parts of the GPUs' time, and their limits. */
#include <stdlib.h>

#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static uint32_t add_tenant(double weight, uint32_t max_waiting, uint32_t max_running)
{
	uint32_t index = NOBODY;
	struct medusa_sched_tenant t = {sizeof(t), weight, max_waiting, max_running, 0, 0};
	cr_assert_eq(medusa_sched_add_tenant(n.sched, &t, &index), 0, "%s", medusa_sched_error(n.sched));
	return index;
}

static void change_tenant(uint32_t index, double weight, uint32_t max_waiting, uint32_t max_running)
{
	struct medusa_sched_tenant t = {sizeof(t), weight, max_waiting, max_running, 0, 0};
	cr_assert_eq(medusa_sched_change_tenant(n.sched, index, &t), 0, "%s", medusa_sched_error(n.sched));
}

static struct medusa_sched_tenant_state state_of(uint32_t tenant)
{
	struct medusa_sched_tenant_state state = {.size = sizeof(state)};
	cr_assert_eq(medusa_sched_tenant_get(n.sched, tenant, &state), 0);
	return state;
}

static void arrive(uint64_t request, uint32_t function, uint32_t tenant, int32_t priority)
{
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
						    .request = request,
						    .function = function,
						    .tenant = tenant,
						    .priority = priority});
}

/* The tenant says in the number of its requests: 1000 x tenant + count. */
static void flood(uint32_t function, uint32_t tenant, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		arrive(1000u * tenant + i, function, tenant, 0);
}

/* The requests that were started last, together. */
static uint32_t last_run(uint64_t *requests, uint32_t most)
{
	uint32_t count = 0;
	char *at = strrchr(n.log, '[');
	cr_assert(at, "nothing runs: %s", n.log);
	while (*at != ']' && count < most)
		requests[count++] = strtoull(at + 1, &at, 10);
	script_forget(&n);
	return count;
}

/* Ends what runs, one request at a time, so many times; each took so long. *served counts by tenant. */
static void serve(uint32_t count, uint64_t (*takes)(uint64_t request), uint32_t *served)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t request;
		cr_assert_eq(last_run(&request, 1), 1);
		n.now += takes(request);
		script_done(&n, request);
		served[request / 1000]++;
	}
}

static uint64_t equal(uint64_t request)
{
	(void)request;
	return 100 * MS;
}

/* Requests of tenant 1 take four times what was expected. */
static uint64_t first_is_slow(uint64_t request)
{
	return request / 1000 == 1 ? 400 * MS : 100 * MS;
}

/* ---- shares ---- */

static void share_of_one_function(const char *queueing, uint64_t slo_ns)
{
	uint32_t served[4] = {0};
	struct medusa_sched_function f = script_model(1);
	f.slo_ns = slo_ns;
	script_start(&n, &(struct setup){.options.queueing = queueing});
	script_add(&n, f);
	add_tenant(1, 0, 0);
	add_tenant(3, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 1, 100);
	flood(0, 2, 100);
	serve(80, equal, served);
	cr_assert(served[1] >= 19 && served[1] <= 21 && served[2] >= 59 && served[2] <= 61,
		  "%s: weights 1 and 3 had %u and %u of 80", queueing, served[1], served[2]);
	script_end(&n);
}

Test(scheduler_tenants, shares_of_one_function_follow_weights)
{
	share_of_one_function("fifo", 0);
	share_of_one_function("medusa", 0);
	share_of_one_function("medusa", 300 * MS);
	share_of_one_function("torpor", 300 * MS);
	share_of_one_function("margin", 300 * MS);
	share_of_one_function("swapserve", 0);
}

/* Time is shared, not requests, also where a run's time is not known before. */
Test(scheduler_tenants, shares_are_of_time)
{
	uint32_t served[4] = {0};
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	script_add(&n, script_model(1));
	add_tenant(0, 0, 0);
	add_tenant(0, 0, 0);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_forget(&n);
	flood(0, 1, 100);
	flood(1, 2, 100);
	serve(100, first_is_slow, served);
	cr_assert(served[1] >= 19 && served[1] <= 21, "one that takes 4 times as long had %u of 100", served[1]);
	struct medusa_sched_tenant_state a = state_of(1), b = state_of(2);
	cr_assert_eq(a.gpu_ns, served[1] * 400 * MS);
	cr_assert_eq(b.gpu_ns, served[2] * 100 * MS);
	cr_assert_eq(a.served, served[1]);
	cr_assert_eq(a.waiting, 100 - served[1] - a.running);
	script_end(&n);
}

/* The time of a batch is divided among those that are in it. */
Test(scheduler_tenants, a_batch_divides_its_time)
{
	struct medusa_sched_function f = script_model(1);
	f.continuous = 1;
	f.max_batch = 0;
	script_start(&n, &(struct setup){0});
	script_add(&n, f);
	add_tenant(1, 0, 0);
	add_tenant(1, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	arrive(1000, 0, 1, 0);
	n.now += 100 * MS;
	arrive(2000, 0, 2, 0);
	n.now += 100 * MS;
	script_done(&n, 1000);
	n.now += 100 * MS;
	script_done(&n, 2000);
	cr_assert_eq(state_of(1).gpu_ns, 150 * MS, "%llu ns: %s", (unsigned long long)state_of(1).gpu_ns, n.log);
	cr_assert_eq(state_of(2).gpu_ns, 150 * MS);
	script_end(&n);
}

/* One batch of the function, made of what waits meanwhile. */
static void start_a_batch(uint32_t max_batch)
{
	struct medusa_sched_function f = script_model(1);
	f.max_batch = max_batch;
	script_start(&n, &(struct setup){.options.batching = "medusa"});
	script_add(&n, f);
	script_serve(&n, 1, 0);
	arrive(2, 0, 0, 0);
	script_forget(&n);
}

Test(scheduler_tenants, places_in_a_batch_are_given_out_by_weight)
{
	start_a_batch(4);
	add_tenant(1, 0, 0);
	add_tenant(3, 0, 0);
	flood(0, 1, 8);
	flood(0, 2, 8);
	script_done(&n, 2);
	expect(&n, "run b3 f0 gpu0 [1000 2000 2001 2002]\n");
	script_end(&n);
}

/* Only the first places are given out one by one. */
Test(scheduler_tenants, a_batch_of_more_tenants_than_places_that_are_given_out)
{
	enum { TENANTS = 24 };
	start_a_batch(TENANTS);
	uint64_t ran[TENANTS + 1];
	for (uint32_t i = 1; i <= TENANTS; i++) {
		add_tenant(1, 0, 0);
		arrive(1000u * i, 0, i, 0);
	}
	script_done(&n, 2);
	cr_assert_eq(last_run(ran, TENANTS + 1), TENANTS);
	for (uint32_t i = 0; i < TENANTS; i++)
		cr_assert_eq(ran[i], 1000u * (i + 1), "place %u: %llu", i, (unsigned long long)ran[i]);
	script_end(&n);
}

/* Of two tenants that have had equally much, the one goes first that has waited longer; of those that came together, the first one. */
Test(scheduler_tenants, age_decides_between_equals)
{
	start_a_batch(1);
	add_tenant(1, 0, 0);
	add_tenant(1, 0, 0);
	arrive(2000, 0, 2, 0);
	n.now += MS;
	arrive(1000, 0, 1, 0);
	script_done(&n, 2);
	expect(&n, "run b3 f0 gpu0 [2000]\n");
	script_end(&n);
	start_a_batch(1);
	add_tenant(1, 0, 0);
	add_tenant(1, 0, 0);
	arrive(2000, 0, 2, 0);
	arrive(1000, 0, 1, 0);
	script_done(&n, 2);
	expect(&n, "run b3 f0 gpu0 [1000]\n");
	script_end(&n);
}

/* A tenant whose functions could not start for a minute catches up with 10 s, whatever its weight. */
Test(scheduler_tenants, who_could_not_start_catches_up_with_ten_seconds)
{
	uint32_t served[4] = {0};
	start_a_batch(1);
	add_tenant(1, 0, 0);
	add_tenant(2, 0, 0);
	flood(0, 1, 200);
	flood(0, 2, 200);
	n.sched->tenants[1].turn = n.sched->turn = 100e9;
	n.sched->tenants[2].turn = 40e9;
	script_done(&n, 2);
	serve(100, equal, served);
	cr_assert(served[1] <= 2, "%u of 100 were not the one's that had waited", served[1]);
	served[1] = served[2] = 0;
	serve(90, equal, served);
	cr_assert(served[1] >= 28 && served[1] <= 32, "then it had %u of 90, and 30 were due", served[1]);
	script_end(&n);
}

/* Who waits alone gets all; what he had then is not held against him, and who was idle has saved nothing. */
Test(scheduler_tenants, nothing_is_saved_up)
{
	uint32_t alone[4] = {0}, both[4] = {0};
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	add_tenant(1, 0, 0);
	add_tenant(1, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 1, 200);
	serve(100, equal, alone);
	cr_assert_eq(alone[1], 100);
	char line[64];
	strcpy(line, n.log);
	flood(0, 2, 100);
	strcpy(n.log, line);
	serve(40, equal, both);
	cr_assert(both[1] >= 19 && both[1] <= 21, "after it had all for a while, it had %u of 40", both[1]);
	script_end(&n);
}

/* A tenant cannot take others' parts by a high priority: that one orders its own requests. */
Test(scheduler_tenants, priorities_are_within_a_tenant)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	add_tenant(1, 0, 0);
	add_tenant(1, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	arrive(1000, 0, 1, 0);
	arrive(1001, 0, 1, 5);
	arrive(1002, 0, 1, 9);
	arrive(2000, 0, 2, 0);
	expect(&n, "run b2 f0 gpu0 [1000]\n");
	n.now += 100 * MS;
	script_done(&n, 1000);
	expect(&n, "run b3 f0 gpu0 [2000]\n");
	n.now += 100 * MS;
	script_done(&n, 2000);
	expect(&n, "run b4 f0 gpu0 [1002]\n");
	script_end(&n);
}

/* Weights of now count, also for what was charged before the change. */
Test(scheduler_tenants, weights_change)
{
	uint32_t before[4] = {0}, after[4] = {0};
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	add_tenant(1, 0, 0);
	add_tenant(1e-6, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 1, 200);
	flood(0, 2, 200);
	serve(40, equal, before);
	cr_assert(before[2] <= 2, "the least weight had %u of 40", before[2]);
	change_tenant(2, 1, 0, 0);
	serve(1, equal, after);
	memset(after, 0, sizeof(after));
	serve(80, equal, after);
	cr_assert(after[1] >= 38 && after[1] <= 42, "equal weights had %u and %u of 80", after[1], after[2]);
	script_end(&n);
}

/* What a tenant has had too much, or too little, stays the same time. */
Test(scheduler_tenants, what_was_had_stays_the_same_time_when_a_weight_changes)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	add_tenant(4, 0, 0);
	n.sched->turn = 7e9;
	n.sched->tenants[1].turn = 10e9;
	change_tenant(1, 2, 0, 0);
	cr_assert_float_eq(n.sched->tenants[1].turn, 13e9, 1, "12 s of weight 4: %g", n.sched->tenants[1].turn);
	change_tenant(1, 0, 0, 0); /* the default: 1 */
	cr_assert_float_eq(n.sched->tenants[1].turn, 19e9, 1, "12 s of weight 1: %g", n.sched->tenants[1].turn);
	script_end(&n);
}

/* Also what waited before there were tenants, late or not, has its place; each tenant's requests go by arrival. */
Test(scheduler_tenants, tenants_come_while_requests_wait)
{
	struct medusa_sched_function f = script_model(1);
	f.slo_ns = 300 * MS;
	script_start(&n, &(struct setup){.options.queueing = "medusa"});
	script_add(&n, f);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 0, 3);
	expect(&n, "run b2 f0 gpu0 [0]\n");
	n.now += SECOND; /* 1 and 2 are late */
	arrive(3, 0, 0, 0);
	add_tenant(1, 0, 0);
	cr_assert_eq(medusa_sched_audit(n.sched), 0, "%s", medusa_sched_error(n.sched));
	arrive(1000, 0, 1, 0);
	arrive(1001, 0, 1, 0);
	script_done(&n, 0);
	static const uint64_t order[] = {1000, 1001, 3, 1, 2}; /* 0 has taken a second */
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		char line[64];
		snprintf(line, sizeof(line), "run b%zu f0 gpu0 [%llu]\n", i + 3, (unsigned long long)order[i]);
		expect(&n, line);
		n.now += 100 * MS;
		script_done(&n, order[i]);
	}
	script_end(&n);
}

/* ---- functions of several tenants ---- */

/*
 * Functions wait in the order of their first request's tenant, which changes as others are served. A function whose place is that of a
 * tenant which has had much meanwhile still has its turn for the others, although nothing happens to it.
 */
static void assert_none_forgotten(uint64_t first_takes)
{
	enum { FUNCTIONS = 4, EACH = 120, STARTS = 60 };
	uint32_t starts[FUNCTIONS] = {0}, served[4] = {0};
	struct medusa_sched_function model = script_model(1);
	model.max_batch = 8;
	script_start(&n, &(struct setup){.options.batching = "medusa"});
	add_tenant(3, 0, 0);
	add_tenant(1, 0, 0);
	for (uint32_t f = 0; f < FUNCTIONS; f++) {
		script_add(&n, model);
		script_serve(&n, 1 + f, f);
	}
	script_forget(&n);
	for (uint32_t i = 0; i < EACH; i++)
		for (uint32_t f = 0; f < FUNCTIONS; f++)
			for (uint32_t tenant = 1; tenant <= 2; tenant++, n.now++)
				arrive(1000 * tenant + FUNCTIONS * i + f, f, tenant, 0);
	for (uint32_t i = 0; i < STARTS; i++) {
		uint64_t requests[8];
		uint32_t count = last_run(requests, 8);
		starts[requests[0] % 1000 % FUNCTIONS]++;
		n.now += i ? 170 * MS : first_takes;
		for (uint32_t r = 0; r < count; r++) {
			served[requests[r] / 1000]++;
			script_done(&n, requests[r]);
		}
	}
	for (uint32_t f = 0; f < FUNCTIONS; f++)
		cr_expect(starts[f] >= STARTS / FUNCTIONS - 3, "%llu ms: function %u had %u of %u starts",
			  (unsigned long long)(first_takes / MS), f, starts[f], STARTS);
	cr_expect(served[1] >= 345 && served[1] <= 365, "weights 3 and 1 had %u and %u", served[1], served[2]);
	script_end(&n);
}

Test(scheduler_tenants, a_function_of_both_is_not_forgotten)
{
	for (uint64_t takes = 20 * MS; takes <= 300 * MS; takes += 20 * MS)
		assert_none_forgotten(takes);
}

/* Requests that are late run together as others do: one by one they would keep everybody waiting. */
Test(scheduler_tenants, late_requests_run_as_batches)
{
	struct medusa_sched_function f = script_model(1);
	f.slo_ns = 300 * MS;
	f.max_batch = 8;
	script_start(&n, &(struct setup){.options = {.queueing = "medusa", .batching = "medusa"}});
	script_add(&n, f);
	add_tenant(3, 0, 0);
	add_tenant(1, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	arrive(1000, 0, 1, 0);
	for (uint64_t i = 1; i <= 8; i++) {
		arrive(1000 + i, 0, 1, 0);
		arrive(2000 + i, 0, 2, 0);
	}
	n.now += 10 * SECOND;
	script_done(&n, 1000);
	/* tenant 1 has had 10 s */
	expect(&n, "run b2 f0 gpu0 [1000]\nrun b3 f0 gpu0 [2001 2002 2003 2004 2005 2006 2007 2008]\n");
	script_end(&n);
}

/* ---- limits ---- */

/* A lower limit holds back the youngest that wait in queues; a higher one lets them in again. */
Test(scheduler_tenants, limits_change)
{
	struct medusa_sched_function f = script_model(1);
	f.max_parallel = 2;
	script_start(&n, &(struct setup){.slots = 2});
	script_add(&n, f);
	add_tenant(1, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 1, 5);
	expect(&n, "run b2 f0 gpu0 [1000]\nrun b3 f0 gpu0 [1001]\n");
	change_tenant(1, 1, 2, 1);
	cr_assert_eq(medusa_sched_audit(n.sched), 0, "%s", medusa_sched_error(n.sched));
	cr_assert_eq(script_function(&n, 0).waiting, 0);
	cr_assert_eq(state_of(1).waiting, 3);
	script_done(&n, 1000);
	expect(&n, "");
	arrive(1005, 0, 1, 0);
	expect(&n, "reject 1005 quota\n");
	script_done(&n, 1001);
	expect(&n, "run b4 f0 gpu0 [1002]\n");
	change_tenant(1, 1, 0, 2);
	arrive(1006, 0, 1, 0);
	expect(&n, "run b5 f0 gpu0 [1003]\n");
	script_end(&n);
}

/* Of a share of nothing, where a limit of 0 would be none. */
Test(scheduler_tenants, a_tenant_may_start_nothing_and_take_nothing)
{
	struct medusa_sched_tenant none = {.size = sizeof(none), .weight = 1, .starts_none = 1};
	script_start(&n, &(struct setup){.slots = 2});
	script_add(&n, script_model(1));
	add_tenant(1, 0, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 1, 3);
	expect(&n, "run b2 f0 gpu0 [1000]\n");
	cr_assert_eq(medusa_sched_change_tenant(n.sched, 1, &none), 0);
	cr_assert_eq(medusa_sched_audit(n.sched), 0, "%s", medusa_sched_error(n.sched));
	script_done(&n, 1000);
	expect(&n, "");
	cr_assert(state_of(1).waiting == 2 && state_of(1).held == 2);
	none.takes_none = 1;
	cr_assert_eq(medusa_sched_change_tenant(n.sched, 1, &none), 0);
	arrive(1003, 0, 1, 0);
	expect(&n, "reject 1003 quota\n");
	arrive(4, 0, 0, 0);
	expect(&n, "run b3 f0 gpu0 [4]\n");
	script_done(&n, 4);
	change_tenant(1, 1, 0, 1);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
	expect(&n, "run b4 f0 gpu0 [1001]\n");
	cr_assert_eq(state_of(1).held, 1);
	script_end(&n);
}

Test(scheduler_tenants, no_more_wait_than_may)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	add_tenant(1, 2, 0);
	script_serve(&n, 1, 0);
	script_forget(&n);
	flood(0, 1, 4);
	arrive(5, 0, 0, 0);
	expect(&n, "run b2 f0 gpu0 [1000]\nreject 1003 quota\n");
	cr_assert_eq(state_of(1).waiting, 2);
	cr_assert_eq(state_of(1).rejected, 1);
	cr_assert_eq(state_of(0).waiting, 1);
	script_end(&n);
}

/* What is held back waits, expires, is cancelled and goes with its function as others do, and no slot waits for it. */
Test(scheduler_tenants, no_more_run_than_may)
{
	script_start(&n, &(struct setup){.slots = 4, .options.max_wait_ns = 20 * SECOND});
	struct medusa_sched_function f = script_model(1);
	f.max_parallel = 4;
	script_add(&n, f);
	script_add(&n, f);
	add_tenant(1, 0, 1);
	script_serve(&n, 1, 0);
	script_serve(&n, 2, 1);
	script_forget(&n);
	flood(0, 1, 3);
	arrive(1003, 1, 1, 7);
	expect(&n, "run b3 f0 gpu0 [1000]\n");
	arrive(3, 0, 0, 0);
	expect(&n, "run b4 f0 gpu0 [3]\n");
	cr_assert_eq(state_of(1).waiting, 3);
	cr_assert_eq(script_function(&n, 0).waiting, 0);
	script_done(&n, 1000);
	expect(&n, "run b5 f1 gpu0 [1003]\n");
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1001);
	expect(&n, "reject 1001 cancelled\n");
	script_wait(&n, 20 * SECOND);
	expect(&n, "reject 1002 waited too long\n");
	arrive(1004, 0, 1, 0);
	script_step(&n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 0});
	expect(&n, "reject 1004 unregistered\n");
	script_batch_failed(&n, 5);
	expect(&n, "reject 1003 failed\n");
	cr_assert_eq(state_of(1).waiting + state_of(1).running, 0);
	script_end(&n);
}

/* ---- errors ---- */

Test(scheduler_tenants, what_is_wrong_is_refused)
{
	uint32_t index;
	const struct medusa_sched_action *const *actions;
	size_t count;
	struct medusa_sched_tenant t = {.size = sizeof(t), .weight = -1};
	struct medusa_sched_tenant_state state = {.size = sizeof(state)};
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(1));
	cr_assert_eq(medusa_sched_add_tenant(n.sched, &t, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(n.sched),
			 "tenant: weight is -1: give 0 for the default, or 0.000001 to 1000000");
	cr_assert_eq(medusa_sched_add_tenant(n.sched, NULL, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_change_tenant(n.sched, 0, &t), MEDUSA_SCHED_ERR_INVALID);
	t.weight = 1;
	cr_assert_eq(medusa_sched_change_tenant(n.sched, 1, &t), MEDUSA_SCHED_ERR_NOT_FOUND);
	cr_assert_str_eq(medusa_sched_error(n.sched),
			 "tenant is 1: 0 is the default tenant, and the last one added is 0");
	cr_assert_eq(medusa_sched_change_tenant(n.sched, 0, NULL), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_change_tenant(NULL, 0, &t), MEDUSA_SCHED_ERR_INVALID);
	t.size = 1;
	cr_assert_eq(medusa_sched_add_tenant(n.sched, &t, &index), MEDUSA_SCHED_ERR_INVALID);
	struct medusa_sched_event e = {
	    .size = sizeof(e), .type = MEDUSA_SCHED_EVENT_ARRIVAL, .now = n.now, .request = 1, .tenant = 1};
	cr_assert_eq(medusa_sched_step(n.sched, &e, &actions, &count), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(n.sched),
			 "event->tenant is 1: 0 is the default tenant, and the last one added is 0");
	cr_assert_eq(medusa_sched_tenant_get(n.sched, 1, &state), MEDUSA_SCHED_ERR_NOT_FOUND);
	script_end(&n);
}
