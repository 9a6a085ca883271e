/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that change while their requests wait and run, what stays in host memory, and idle nodes that sleep. */
#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static void change(struct medusa_sched_function f)
{
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), 0, "%s", medusa_sched_error(n.sched));
}

static void arrive_until(uint64_t request, uint64_t ns)
{
	script_step(&n, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = request, .deadline = n.now + ns});
}

/* ---- abortable ---- */

Test(scheduler_change, a_request_that_runs_can_be_aborted_only_since_then)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(10);
	script_add(&n, f);
	arrive_until(1, SECOND);
	script_copied(&n, 1);
	script_forget(&n);
	f.abortable = 1;
	change(f);
	script_timer(&n);
	script_wait(&n, 2 * SECOND);
	expect(&n, "abort 1 b1 deadline\n");
	script_end(&n);
}

Test(scheduler_change, a_cancel_that_came_before_is_heeded)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(10);
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	script_forget(&n);
	f.abortable = 1;
	change(f);
	script_timer(&n);
	expect(&n, "abort 1 b1 cancelled\n");
	script_end(&n);
}

Test(scheduler_change, a_request_that_runs_can_no_longer_be_aborted)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(10);
	f.abortable = 1;
	script_add(&n, f);
	arrive_until(1, SECOND);
	script_copied(&n, 1);
	script_forget(&n);
	f.abortable = 0;
	change(f);
	script_wait(&n, 2 * SECOND);
	expect(&n, "");
	script_done(&n, 1);
	cr_assert_eq(script_stats(&n).served, 1);
	script_end(&n);
}

/* ---- KV memory ---- */

/* Request 1 runs; 2 waits with the function's KV memory, 3 with its own. */
Test(scheduler_change, kv_bytes_for_requests_that_wait)
{
	script_start(&n, &(struct setup){.gb = 40});
	struct medusa_sched_function f = script_model(10);
	f.kv_bytes = 5 * GB;
	script_add(&n, f);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_arrive(&n, 2, 0);
	script_arrive_kv(&n, 3, 0, 7);
	script_forget(&n);
	f.kv_bytes = 20 * GB;
	change(f);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 5 * GB, "what runs keeps its memory");
	script_done(&n, 1);
	expect(&n, "run b2 f0 gpu0 [2]\n");
	cr_assert_eq(script_books(&n, 0).kv_bytes, 20 * GB);
	script_done(&n, 2);
	cr_assert_eq(script_books(&n, 0).kv_bytes, 7 * GB);
	script_end(&n);
}

/* A request whose batch fails waits again, and so takes the new size; one that stated its own keeps it. */
Test(scheduler_change, kv_bytes_for_requests_that_come_back)
{
	for (int own = 0; own < 2; own++) {
		script_start(&n, &(struct setup){.gb = 40, .options.retries = 1});
		struct medusa_sched_function f = script_model(10);
		f.kv_bytes = 5 * GB;
		script_add(&n, f);
		script_arrive_kv(&n, 1, 0, own ? 7 : 0);
		script_copied(&n, 1);
		f.kv_bytes = 20 * GB;
		change(f);
		cr_assert_eq(script_books(&n, 0).kv_bytes, (own ? 7 : 5) * GB);
		script_forget(&n);
		script_step(
		    &n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .batch = n.batches[0]});
		expect(&n, "run b2 f0 gpu0 [1]\n");
		cr_assert_eq(script_books(&n, 0).kv_bytes, (own ? 7 : 20) * GB);
		script_end(&n);
	}
}

/* While a GPU has less memory for a time, the objective of a function can be changed all the same. */
Test(scheduler_change, an_objective_is_changed_while_memory_is_short)
{
	script_start(&n, &(struct setup){0});
	struct medusa_sched_function f = script_model(50);
	f.kv_bytes = 10 * GB;
	script_add(&n, f);
	script_bytes(&n, MEDUSA_SCHED_EVENT_MEMORY_LIMIT, 0, 40);
	f.slo_ns = SECOND;
	change(f);
	f.kv_bytes = 11 * GB;
	cr_assert_eq(medusa_sched_change_function(n.sched, 0, &f), MEDUSA_SCHED_ERR_INVALID);
	script_end(&n);
}

/* A second batch has claimed memory on GPU 1, which is being made, when the limit falls to one: it does not start. */
Test(scheduler_change, fewer_batches_than_have_claimed_memory)
{
	script_start(&n, &(struct setup){.gpus = 2, .gb = 40});
	struct medusa_sched_function f = script_model(30), idle = f;
	f.max_parallel = 2;
	idle.evict_ns = SECOND;
	script_add(&n, f);
	script_add(&n, idle);
	script_arrive(&n, 1, 0);
	script_copied(&n, 1);
	script_serve(&n, 2, 1);
	script_forget(&n);
	script_arrive(&n, 3, 0);
	expect(&n, "evict t3 weights f1 gpu1\n");
	f.max_parallel = 1;
	change(f);
	script_evicted(&n, 3);
	script_wait(&n, SECOND);
	expect(&n, "");
	script_done(&n, 1);
	expect(&n, "run b3 f0 gpu0 [3]\n");
	script_end(&n);
}

/* ---- host memory ---- */

static struct medusa_sched_host_state host(void)
{
	struct medusa_sched_host_state state = {.size = sizeof(state)};
	cr_assert_eq(medusa_sched_host_get(n.sched, &state), 0);
	return state;
}

static int said_to_host; /* of the last copy in; -1: there was none */

static void arrive_cold(uint64_t request, uint32_t function)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	struct medusa_sched_event event = {.size = sizeof(event),
					   .type = MEDUSA_SCHED_EVENT_ARRIVAL,
					   .now = n.now,
					   .request = request,
					   .function = function};
	said_to_host = -1;
	cr_assert_eq(medusa_sched_step(n.sched, &event, &actions, &count), 0);
	for (size_t i = 0; i < count; i++)
		if (actions[i]->type == MEDUSA_SCHED_ACTION_SWAP_IN)
			said_to_host = actions[i]->to_host;
	script_actions(&n, actions, count);
}

/* What comes from the disk stays in host memory if there is room, and the action says so. */
Test(scheduler_change, the_action_says_what_stays_in_host_memory)
{
	script_start(&n, &(struct setup){.gpus = 2, .host_gb = 15});
	struct medusa_sched_function f = script_model(10);
	f.in_host = 0;
	script_add(&n, f);
	script_add(&n, f);
	cr_assert_eq(host().limit_bytes, 15 * GB);
	arrive_cold(1, 0);
	expect(&n, "swap t1 weights f0 gpu0 cold\nrun b1 f0 gpu0 [1]\n");
	cr_assert_eq(said_to_host, 1);
	cr_assert_eq(host().artifact_bytes, 10 * GB);
	cr_assert_eq(host().transfers, 1);
	arrive_cold(2, 1);
	expect(&n, "swap t2 weights f1 gpu1 cold\nrun b2 f1 gpu1 [2]\n");
	cr_assert_eq(said_to_host, 0, "there is no room for both");
	script_copied(&n, 1);
	script_copied(&n, 2);
	cr_assert_eq(host().artifact_bytes, 10 * GB);
	cr_assert_eq(host().transfers, 0);
	script_end(&n);
}

/* ---- the timer ---- */

/* Timers of operating systems may ring a little too early, and ring once. */
Test(scheduler_change, a_timer_that_rings_too_early_is_asked_for_again)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(10));
	script_arrive(&n, 1, 0);
	arrive_until(2, SECOND);
	uint64_t due = n.timer;
	cr_assert_gt(due, n.now);
	n.now = due - 1;
	n.timer = 0;
	script_timer(&n);
	cr_assert_eq(n.timer, due);
	script_end(&n);
}

/* ---- preloading ---- */

/* On a node where nothing happens there is nothing to plan, and no timer. */
Test(scheduler_change, an_idle_node_is_not_woken)
{
	static const char *const policies[] = {"medusa", "xlora"};
	for (size_t i = 0; i < 2; i++) {
		script_start(&n, &(struct setup){.options.preloading = policies[i]});
		for (int f = 0; f < 3; f++)
			script_add(&n, script_model(10));
		script_serve(&n, 1, 0);
		unsigned rings = 0;
		uint64_t until = n.now + 3600 * SECOND;
		while (n.timer && n.timer <= until && rings < 1000) {
			uint32_t before = n.transfer_count;
			n.now = n.timer;
			n.timer = 0;
			script_timer(&n);
			while (before < n.transfer_count)
				script_copied(&n, ++before);
			rings++;
		}
		cr_assert_lt(rings, 20, "%s: %u timers in an hour without a call", policies[i], rings);
		script_end(&n);
	}
}
