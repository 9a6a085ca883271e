/* SPDX-License-Identifier: Apache-2.0 */
/* Backbones whose engines have limits: places for adapters, requests at one time, GPUs, and times; and when one leaves. */
#include "tests/scheduler_fixture.h"

static struct script r;

static uint32_t engine(struct medusa_sched_backbone spec)
{
	uint32_t index = NOBODY;
	spec.size = sizeof(spec);
	spec.bytes = spec.bytes ? spec.bytes : 10 * GB;
	spec.in_host = 1;
	cr_assert_eq(medusa_sched_add_backbone(r.sched, &spec, &index), 0, "%s", medusa_sched_error(r.sched));
	return index;
}

static struct medusa_sched_function adapter_on(uint32_t backbone, double gb)
{
	struct medusa_sched_function f = script_model(gb);
	f.backbone = backbone;
	f.continuous = 1;
	f.max_batch = 8;
	return f;
}

/* One engine with adapters f0, f1, f2 of a GB each. */
static uint32_t start_adapters(struct setup setup, struct medusa_sched_backbone spec)
{
	setup.gb = setup.gb > 0 ? setup.gb : 40;
	setup.slots = 64;
	script_start(&r, &setup);
	uint32_t backbone = engine(spec);
	for (int i = 0; i < 3; i++)
		script_add(&r, adapter_on(backbone, 1));
	return backbone;
}

static void fail_backbone(uint32_t backbone)
{
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED, .backbone = backbone});
}

static void unregister(uint32_t function)
{
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = function});
}

static void tell_adapter(uint32_t function)
{
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RESIDENT,
						    .artifact = MEDUSA_SCHED_CLASS_WEIGHTS,
						    .function = function});
}

Test(scheduler_backbones, the_adapter_that_was_used_longest_ago_makes_place)
{
	start_adapters((struct setup){0}, (struct medusa_sched_backbone){.adapter_slots = 2});
	script_serve(&r, 1, 0);
	script_serve(&r, 2, 1);
	script_serve(&r, 3, 0);
	script_forget(&r);
	script_arrive(&r, 4, 2);
	expect(&r, "evict weights f1 gpu0\nswap t4 weights f2 gpu0 host\nrun b4 f2 gpu0 [4]\n");
	script_end(&r);
}

/* The third one waits for the first of the others that ends, whichever that is. */
Test(scheduler_backbones, an_adapter_in_use_keeps_its_place)
{
	start_adapters((struct setup){0}, (struct medusa_sched_backbone){.adapter_slots = 2});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_copied(&r, 2);
	script_arrive(&r, 2, 1);
	script_copied(&r, 3);
	script_forget(&r);
	script_arrive(&r, 3, 2);
	expect(&r, "");
	script_done(&r, 2);
	expect(&r, "evict weights f1 gpu0\nswap t4 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_end(&r);
}

/* The place is free when the engine has said that the other one has left, and only one leaves. */
Test(scheduler_backbones, a_place_is_free_when_the_other_adapter_has_left)
{
	script_start(&r, &(struct setup){.gb = 40, .slots = 64});
	uint32_t backbone = engine((struct medusa_sched_backbone){.adapter_slots = 2});
	for (int i = 0; i < 3; i++) {
		struct medusa_sched_function f = adapter_on(backbone, 1);
		f.evict_ns = SECOND;
		script_add(&r, f);
	}
	script_serve(&r, 1, 0);
	script_serve(&r, 2, 1);
	script_forget(&r);
	script_arrive(&r, 3, 2);
	expect(&r, "evict t4 weights f0 gpu0\n");
	script_wait(&r, 3 * SECOND);
	expect(&r, "");
	script_evicted(&r, 4);
	expect(&r, "swap t5 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_end(&r);
}

Test(scheduler_backbones, an_adapter_that_stays_keeps_its_place)
{
	script_start(&r, &(struct setup){.gb = 40, .slots = 64});
	uint32_t backbone = engine((struct medusa_sched_backbone){.adapter_slots = 2});
	struct medusa_sched_function pinned = adapter_on(backbone, 1);
	pinned.pinned = 1;
	script_add(&r, pinned);
	script_add(&r, adapter_on(backbone, 1));
	script_add(&r, adapter_on(backbone, 1));
	script_serve(&r, 1, 0);
	script_serve(&r, 2, 1);
	script_forget(&r);
	script_arrive(&r, 3, 2);
	expect(&r, "evict weights f1 gpu0\nswap t4 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_end(&r);
}

/* A node loop that was restarted finds more than the engine has places for now. */
Test(scheduler_backbones, what_is_found_beyond_the_places_is_sent_away)
{
	start_adapters((struct setup){0}, (struct medusa_sched_backbone){.adapter_slots = 1});
	script_step(&r, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_RESIDENT,
						    .artifact = MEDUSA_SCHED_CLASS_BACKBONE});
	tell_adapter(0);
	expect(&r, "");
	tell_adapter(1);
	expect(&r, "offload weights f1 gpu0\n");
	script_end(&r);
}

Test(scheduler_backbones, nobody_leaves_for_what_is_loaded_ahead)
{
	start_adapters((struct setup){.options.preloading = "medusa"},
		       (struct medusa_sched_backbone){.adapter_slots = 2});
	for (uint32_t i = 0; i < 6; i++)
		script_serve(&r, i + 1, i % 3);
	script_forget(&r);
	script_wait(&r, 20 * SECOND);
	expect(&r, "");
	script_end(&r);
}

/* Requests of all adapters count together; the next one has its turn when any of them ends. */
Test(scheduler_backbones, an_engine_runs_so_many_requests_of_all_its_functions)
{
	start_adapters((struct setup){0}, (struct medusa_sched_backbone){.max_batch = 3});
	for (uint32_t f = 0; f < 3; f++)
		script_serve(&r, 90 + f, f);
	script_forget(&r);
	script_arrive(&r, 1, 0);
	script_arrive(&r, 2, 0);
	script_arrive(&r, 3, 1);
	expect(&r, "run b4 f0 gpu0 [1]\njoin b4 f0 gpu0 [2]\nrun b5 f1 gpu0 [3]\n");
	script_arrive(&r, 4, 1);
	script_arrive(&r, 5, 2);
	expect(&r, "");
	script_done(&r, 1);
	expect(&r, "run b6 f2 gpu0 [5]\n");
	script_done(&r, 2);
	expect(&r, "join b5 f1 gpu0 [4]\n");
	script_end(&r);
}

/* More functions wait for the full engine than are passed over in one step: those of another engine join theirs. */
Test(scheduler_backbones, those_who_wait_for_a_full_engine_hold_nobody_up)
{
	script_start(&r, &(struct setup){.gb = 200, .slots = 1000});
	uint32_t backbone = engine((struct medusa_sched_backbone){.max_batch = 100});
	for (uint32_t i = 0; i < 100; i++) {
		struct medusa_sched_function f = adapter_on(backbone, 1);
		f.max_batch = 2;
		script_add(&r, f);
	}
	uint32_t other = script_add(&r, adapter_on(NOBODY, 10));
	for (uint32_t f = 0; f <= other; f++) {
		uint32_t before = r.transfer_count;
		script_arrive(&r, f + 1, f);
		while (before < r.transfer_count)
			script_copied(&r, ++before);
		script_forget(&r);
	}
	for (uint32_t f = 0; f < 100; f++)
		script_arrive(&r, 1000 + f, f);
	expect(&r, "");
	script_arrive(&r, 2000, other);
	expect(&r, "join b101 f100 gpu0 [2000]\n");
	script_end(&r);
}

Test(scheduler_backbones, an_engine_is_on_one_gpu)
{
	start_adapters((struct setup){.gpus = 2, .options.placement = "medusa"},
		       (struct medusa_sched_backbone){.max_replicas = 1});
	script_arrive(&r, 1, 0);
	script_arrive(&r, 2, 1);
	script_arrive(&r, 3, 2);
	expect(&r,
	       "swap t1 backbone 0 gpu0 host\nswap t2 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n"
	       "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\nswap t4 weights f2 gpu0 host\nrun b3 f2 gpu0 [3]\n");
	script_end(&r);
}

/* From a GPU that drains it goes to the other one. */
Test(scheduler_backbones, a_gpu_that_drains_does_not_count)
{
	start_adapters((struct setup){.gpus = 2}, (struct medusa_sched_backbone){.max_replicas = 1});
	script_serve(&r, 1, 0);
	script_gpu(&r, MEDUSA_SCHED_EVENT_GPU_DRAIN, 0);
	script_forget(&r);
	script_arrive(&r, 2, 0);
	expect(&r, "swap t3 backbone 0 gpu1 host\nswap t4 weights f0 gpu1 host\nrun b2 f0 gpu1 [2]\n");
	script_end(&r);
}

/* The memory is free when the engine has left; adapters go with it. */
Test(scheduler_backbones, an_engine_takes_time_to_leave)
{
	start_adapters((struct setup){.gb = 20}, (struct medusa_sched_backbone){.evict_ns = SECOND});
	uint32_t large = script_add(&r, script_model(15));
	script_serve(&r, 1, 0);
	script_forget(&r);
	script_arrive(&r, 2, large);
	expect(&r, "evict weights f0 gpu0\nevict t3 backbone 0 gpu0\n");
	script_evicted(&r, 3);
	expect(&r, "swap t4 weights f3 gpu0 host\nrun b2 f3 gpu0 [2]\n");
	script_end(&r);
}

Test(scheduler_backbones, it_leaves_with_the_last_of_its_functions)
{
	start_adapters((struct setup){0}, (struct medusa_sched_backbone){.evict_ns = SECOND});
	script_arrive(&r, 1, 0);
	script_copied(&r, 1);
	script_copied(&r, 2);
	script_forget(&r);
	unregister(1);
	unregister(2);
	unregister(0);
	expect(&r, "offload weights f1 host\noffload weights f2 host\n");
	script_done(&r, 1);
	expect(
	    &r,
	    "offload weights f0 gpu0\noffload weights f0 host\noffload t3 backbone 0 gpu0\noffload backbone 0 host\n");
	script_evicted(&r, 3);
	cr_assert_eq(script_books(&r, 0).artifact_bytes, 0);
	script_end(&r);
}

/* What was on its way when its functions were unregistered leaves when it has come. */
Test(scheduler_backbones, it_leaves_when_it_comes_for_nobody)
{
	start_adapters((struct setup){0}, (struct medusa_sched_backbone){0});
	script_arrive(&r, 1, 0);
	script_request(&r, MEDUSA_SCHED_EVENT_CANCEL, 1);
	script_batch_failed(&r, 1);
	for (uint32_t f = 0; f < 3; f++)
		unregister(f);
	script_copied(&r, 1);
	script_forget(&r);
	script_copied(&r, 2);
	cr_assert_eq(script_books(&r, 0).artifact_bytes, 0, "%s", r.log);
	script_end(&r);
}

Test(scheduler_backbones, it_leaves_when_none_of_its_functions_was_called)
{
	script_start(&r, &(struct setup){.gb = 40, .slots = 64});
	uint32_t backbone = engine((struct medusa_sched_backbone){.keep_alive_ns = 10 * SECOND});
	struct medusa_sched_function base = adapter_on(backbone, 0), adapter = adapter_on(backbone, 1);
	base.keep_alive_ns = adapter.keep_alive_ns = 10 * SECOND;
	script_add(&r, base);
	script_add(&r, adapter);
	script_serve(&r, 1, 1);
	script_wait(&r, 6 * SECOND);
	script_serve(&r, 2, 0);
	script_forget(&r);
	script_wait(&r, 6 * SECOND);
	expect(&r, "offload weights f1 gpu0\n");
	script_wait(&r, 6 * SECOND);
	expect(&r, "offload backbone 0 gpu0\n");
	script_end(&r);
}

/* By a rule, functions leave; a backbone does when all of its functions have to. */
Test(scheduler_backbones, it_leaves_for_a_rule_if_all_of_its_functions_do)
{
	for (uint32_t friend = 0; friend < 3; friend ++) {
		start_adapters((struct setup){0}, (struct medusa_sched_backbone){0});
		uint32_t other = script_add(&r, script_model(10)), functions[] = {0};
		struct medusa_sched_company company = {
		    .size = sizeof(company), .functions = functions, .count = friend == 1};
		cr_assert_eq(medusa_sched_set_company(r.sched, other, &company, 1), 0);
		script_serve(&r, 1, 1);
		script_forget(&r);
		if (friend == 2)
			script_arrive(&r, 2, 0); /* of which nothing is there: the backbone serves it before */
		script_forget(&r);
		script_arrive(&r, 3, other);
		if (friend == 0)
			expect(&r, "evict weights f1 gpu0\nevict backbone 0 gpu0\nswap t3 weights f3 gpu0 host\n"
				   "run b2 f3 gpu0 [3]\n");
		else if (friend == 1)
			expect(&r, "evict weights f1 gpu0\nswap t3 weights f3 gpu0 host\nrun b2 f3 gpu0 [3]\n");
		else
			expect(&r, "evict weights f1 gpu0\n");
		script_end(&r);
	}
}

/* A dead engine has nothing any more: its adapters are loaded anew with it. */
Test(scheduler_backbones, adapters_of_a_dead_engine_have_no_places)
{
	uint32_t backbone = start_adapters((struct setup){.options.retries = 1},
					   (struct medusa_sched_backbone){.adapter_slots = 1, .evict_ns = SECOND});
	script_serve(&r, 1, 0);
	script_forget(&r);
	fail_backbone(backbone);
	expect(&r, "offload weights f0 gpu0\noffload t3 backbone 0 gpu0\n");
	script_evicted(&r, 3);
	script_arrive(&r, 2, 1);
	expect(&r, "swap t4 backbone 0 gpu0 host\nswap t5 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

Test(scheduler_backbones, times_and_limits_change)
{
	uint32_t backbone = start_adapters((struct setup){0}, (struct medusa_sched_backbone){.adapter_slots = 1});
	struct medusa_sched_backbone changed = {
	    .size = sizeof(changed), .bytes = 10 * GB, .in_host = 1, .adapter_slots = 2, .load_ns = SECOND};
	script_serve(&r, 1, 0);
	cr_assert_eq(medusa_sched_change_backbone(r.sched, backbone, &changed), 0, "%s", medusa_sched_error(r.sched));
	script_forget(&r);
	script_arrive(&r, 2, 1);
	expect(&r, "swap t3 weights f1 gpu0 host\nrun b2 f1 gpu0 [2]\n");
	script_end(&r);
}

Test(scheduler_backbones, what_cannot_change_is_refused)
{
	uint32_t backbone = start_adapters((struct setup){0}, (struct medusa_sched_backbone){0});
	struct medusa_sched_backbone changed = {.size = sizeof(changed), .bytes = 11 * GB, .in_host = 1};
	cr_assert_eq(medusa_sched_change_backbone(r.sched, backbone, &changed), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(r.sched), "bytes cannot change: register another backbone");
	changed.bytes = 10 * GB;
	changed.in_host = 0;
	cr_assert_eq(medusa_sched_change_backbone(r.sched, backbone, &changed), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(r.sched), "in_host cannot change: register another backbone");
	cr_assert_eq(medusa_sched_change_backbone(r.sched, backbone + 1, &changed), MEDUSA_SCHED_ERR_NOT_FOUND);
	cr_assert_eq(medusa_sched_change_backbone(r.sched, backbone, NULL), MEDUSA_SCHED_ERR_INVALID);
	script_end(&r);
}
