/* SPDX-License-Identifier: Apache-2.0 */
/* What is brought to GPUs ahead of requests, and stays there: host memory, a restart, requests that come meanwhile. */
#include "tests/scheduler_fixture.h"

static struct script r;

static struct medusa_sched_function kept_model(double gb)
{
	struct medusa_sched_function f = script_model(gb);
	f.min_replicas = 1;
	return f;
}

static void gone(uint32_t function)
{
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = function});
}

/* A library has no room in host memory: nothing is sent for, and nothing evicted from the GPU, until there is some. */
Test(scheduler_keep, nothing_is_sent_for_without_room_in_host_memory)
{
	struct medusa_sched_function f = kept_model(20);
	f.in_host = 0;
	f.library_bytes = GB;
	script_start(&r, &(struct setup){.gb = 40, .host_gb = 30});
	script_add(&r, script_model(30));
	script_serve(&r, 1, 0);
	script_add(&r, f);
	script_forget(&r);
	script_wait(&r, 60 * SECOND);
	script_timer(&r);
	expect(&r, "");
	gone(0);
	expect(&r, "offload weights f0 gpu0\noffload weights f0 host\npreload t2 library f1 host cold\n"
		   "preload t3 weights f1 gpu0 cold\n");
	script_end(&r);
}

/* ---- requests that come meanwhile ---- */

/* A request of another function waits from the beginning: it neither takes the copy when it has come, nor a part of it. */
Test(scheduler_keep, what_is_on_its_way_is_kept)
{
	struct medusa_sched_function f = kept_model(6);
	f.context_bytes = 2 * GB;
	script_start(&r, &(struct setup){.gb = 10});
	script_add(&r, f);
	script_add(&r, script_model(8));
	script_timer(&r);
	expect(&r, "preload t1 weights f0 gpu0 host\npreload t2 context f0 gpu0 made\n");
	script_arrive(&r, 1, 1);
	script_copied(&r, 1);
	script_wait(&r, 10 * SECOND);
	script_copied(&r, 2);
	script_wait(&r, 10 * SECOND);
	script_arrive(&r, 2, 0);
	expect(&r, "run b1 f0 gpu0 [2]\n");
	cr_assert_eq(script_books(&r, 0).waiting, 0, "a claim that cannot be served");
	script_end(&r);
}

/* A copy that failed keeps no place: requests have it until the next one is sent for. */
Test(scheduler_keep, what_failed_on_its_way_keeps_nothing)
{
	for (uint32_t which = 0; which < 3; which++) {
		struct medusa_sched_function f = kept_model(6);
		f.in_host = 0;
		f.library_bytes = f.context_bytes = GB;
		script_start(&r, &(struct setup){.gb = 10});
		script_add(&r, f);
		script_add(&r, script_model(9));
		script_timer(&r);
		expect(&r, "preload t1 library f0 host cold\npreload t2 weights f0 gpu0 cold\n"
			   "preload t3 context f0 gpu0 made\n");
		for (uint32_t t = 1; t <= 3; t++)
			if (t != which + 1)
				script_copied(&r, t);
		script_transfer(&r, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, which + 1);
		expect(&r, "");
		script_serve(&r, 1, 1);
		cr_assert(strstr(r.log, "swap t4 weights f1 gpu0 host\nrun b1 f1 gpu0 [1]\n"), "%u: %s", which, r.log);
		script_wait(&r, 6 * SECOND);
		cr_assert(strstr(r.log, "preload t5 "), "%u: %s", which, r.log);
		script_end(&r);
	}
}

/* A request has brought it, and another one drains its weights before it is whole: it is the replica that lacked. */
Test(scheduler_keep, a_victim_that_is_a_replica_stays)
{
	static const char *const policies[] = {"swapserve", "lru", "medusa"};
	for (size_t i = 0; i < 3; i++) {
		struct medusa_sched_function f = kept_model(6);
		f.context_bytes = 2 * GB;
		script_start(&r, &(struct setup){.gb = 10, .slots = 2, .options.eviction = policies[i]});
		script_add(&r, f);
		script_add(&r, script_model(8));
		script_arrive(&r, 1, 0);
		script_copied(&r, 1);
		script_arrive(&r, 2, 1);
		script_copied(&r, 2);
		script_done(&r, 1);
		script_wait(&r, 10 * SECOND);
		script_arrive(&r, 3, 0);
		expect(&r, "swap t1 weights f0 gpu0 host\nswap t2 context f0 gpu0 made\nrun b1 f0 gpu0 [1]\n"
			   "run b2 f0 gpu0 [3]\n");
		script_end(&r);
	}
}

/* ---- a restart ---- */

static void resident(uint32_t function, enum medusa_sched_class artifact)
{
	script_step(&r, (struct medusa_sched_event){
			    .type = MEDUSA_SCHED_EVENT_RESIDENT, .function = function, .artifact = artifact});
}

static void restart(const char *preloading)
{
	struct medusa_sched_function f = kept_model(8);
	f.context_bytes = GB;
	script_start(&r, &(struct setup){.gb = 40, .slots = 4, .options.preloading = preloading});
	for (int i = 0; i < 3; i++)
		script_add(&r, f);
}

/* Several functions have replicas. All that lies there is told, one after the other, and then what runs: nothing is sent for. */
Test(scheduler_keep, a_restart_tells_replicas_one_after_the_other)
{
	static const char *const policies[] = {"none", "medusa", "xlora"};
	for (size_t i = 0; i < 3; i++) {
		restart(policies[i]);
		for (uint32_t f = 0; f < 3; f++) {
			resident(f, MEDUSA_SCHED_CLASS_WEIGHTS);
			script_wait(&r, 100 * MS);
			resident(f, MEDUSA_SCHED_CLASS_CONTEXT);
			script_wait(&r, 100 * MS);
		}
		for (uint32_t f = 0; f < 3; f++) {
			script_step(&r, (struct medusa_sched_event){
					    .type = MEDUSA_SCHED_EVENT_RUNNING, .request = f + 1, .function = f});
			script_wait(&r, 100 * MS);
		}
		expect(&r, "run b1 f0 gpu0 [1]\nrun b2 f1 gpu0 [2]\nrun b3 f2 gpu0 [3]\n");
		script_wait(&r, 10 * SECOND);
		for (uint32_t f = 0; f < 3; f++)
			script_done(&r, f + 1);
		script_wait(&r, 10 * SECOND);
		expect(&r, "");
		script_end(&r);
	}
}

/* What was not told is sent for, without another event. */
Test(scheduler_keep, a_restart_sends_for_what_lacks)
{
	restart("none");
	resident(0, MEDUSA_SCHED_CLASS_WEIGHTS);
	resident(0, MEDUSA_SCHED_CLASS_CONTEXT);
	resident(1, MEDUSA_SCHED_CLASS_WEIGHTS);
	script_wait(&r, 900 * MS);
	expect(&r, "");
	script_wait(&r, 100 * MS);
	expect(&r, "preload t1 context f1 gpu0 made\n");
	script_copied(&r, 1);
	expect(&r, "preload t2 weights f2 gpu0 host\npreload t3 context f2 gpu0 made\n");
	script_end(&r);
}

/* ---- requests that wait for what is kept ---- */

/* How often the scheduler is woken in that time, and by nothing else. */
static uint32_t wake_ups(uint64_t ns)
{
	uint32_t count = 0;
	for (uint64_t until = r.now + ns; r.timer && r.timer <= until; count++)
		script_wait(&r, r.timer - r.now);
	return count;
}

/* Nothing changes by time alone: it is looked for ever more rarely, and soon again when something has happened. */
Test(scheduler_keep, a_request_that_waits_for_what_is_kept_wakes_nobody)
{
	for (int change = 0; change < 2; change++) {
		struct medusa_sched_function f = script_model(8);
		f.pinned = 1;
		script_start(&r, &(struct setup){.gb = 10});
		script_add(&r, f);
		script_add(&r, script_model(8));
		script_serve(&r, 1, 0);
		script_arrive(&r, 2, 1);
		script_forget(&r);
		cr_assert_lt(wake_ups(100 * SECOND), 120);
		if (change) {
			f.pinned = 0;
			cr_assert_eq(medusa_sched_change_function(r.sched, 0, &f), 0, "%s",
				     medusa_sched_error(r.sched));
			script_wait(&r, SECOND);
			expect(&r, "evict weights f0 gpu0\nswap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
		} else {
			gone(0);
			script_wait(&r, 5 * MS);
			expect(&r, "offload weights f0 gpu0\noffload weights f0 host\n"
				   "swap t2 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
		}
		script_end(&r);
	}
}
