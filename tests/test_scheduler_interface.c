/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler's interface takes and refuses: events, functions, nodes, policies, and sizes of other versions. */
#include <math.h>

#include "scheduler/core/state.h"
#include "tests/scheduler_fixture.h"

static struct script n;

static int step_code(struct medusa_sched_event event)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	event.size = event.size ? event.size : sizeof(event);
	return medusa_sched_step(n.sched, &event, &actions, &count);
}

Test(scheduler_interface, takes_events_of_other_versions)
{
	struct {
		struct medusa_sched_event event;
		uint64_t newer;
	} later = {.event = {.size = sizeof(later), .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 2}};
	struct medusa_sched_event older = {.size = offsetof(struct medusa_sched_event, backbone),
					   .type = MEDUSA_SCHED_EVENT_ARRIVAL,
					   .request = 1,
					   .gpu = 99};
	const struct medusa_sched_action *const *actions;
	size_t count;
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(10));
	older.now = later.event.now = n.now;
	cr_assert_eq(medusa_sched_step(n.sched, &older, &actions, &count), 0, "%s", medusa_sched_error(n.sched));
	cr_assert_gt(count, 0);
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(actions[i]->size, sizeof(struct medusa_sched_action));
	cr_assert_eq(medusa_sched_step(n.sched, &later.event, &actions, &count), 0, "what is zero is not asked for");
	later.newer = 1;
	later.event.request = 3;
	cr_assert_eq(medusa_sched_step(n.sched, &later.event, &actions, &count), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(n.sched), "event->size is not that of a struct medusa_sched_event, or "
						      "fields that this library does not know are set");
	script_end(&n);
}

Test(scheduler_interface, names_what_never_was)
{
	static const struct {
		struct medusa_sched_event event;
		int code;
		const char *says;
	} cases[] = {
	    {{.type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 7},
	     MEDUSA_SCHED_ERR_INVALID,
	     "event->request is 7, a number that is still in use"},
	    {{.type = MEDUSA_SCHED_EVENT_TIMER, .now = 1}, MEDUSA_SCHED_ERR_INVALID, "event->now is 1, earlier than"},
	    {{.type = MEDUSA_SCHED_EVENT_GPU_LOST, .gpu = 1},
	     MEDUSA_SCHED_ERR_INVALID,
	     "event->gpu is 1, but the node has only 1 GPUs"},
	    {{.type = MEDUSA_SCHED_EVENT_GPU_BACK, .gpu = NOBODY}, MEDUSA_SCHED_ERR_INVALID, "gpu"},
	    {{.type = MEDUSA_SCHED_EVENT_MEMORY_REPORT, .gpu = 9}, MEDUSA_SCHED_ERR_INVALID, "event->gpu is 9"},
	    {{.type = MEDUSA_SCHED_EVENT_MEMORY_LIMIT, .gpu = 9}, MEDUSA_SCHED_ERR_INVALID, "event->gpu is 9"},
	    {{.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED},
	     MEDUSA_SCHED_ERR_INVALID,
	     "event->backbone is 0, but only 0 backbones"},
	    {{.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1},
	     MEDUSA_SCHED_ERR_INVALID,
	     "event->function is 1"},
	    {{.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED, .function = 1},
	     MEDUSA_SCHED_ERR_INVALID,
	     "event->function is 1"},
	    {{.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .batch = 1ull << 40},
	     MEDUSA_SCHED_ERR_INVALID,
	     "which no action has named"},
	    {{.type = MEDUSA_SCHED_EVENT_STARTED, .batch = 5}, MEDUSA_SCHED_ERR_INVALID, "which no action has named"},
	    {{.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE, .transfer = ~0ull},
	     MEDUSA_SCHED_ERR_INVALID,
	     "which no action has named"},
	    {{.type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED, .transfer = 99},
	     MEDUSA_SCHED_ERR_INVALID,
	     "which no action has named"},
	    {{.type = MEDUSA_SCHED_EVENT_EVICTED, .transfer = 99},
	     MEDUSA_SCHED_ERR_INVALID,
	     "which no action has named"},
	    {{.type = 0}, MEDUSA_SCHED_ERR_INVALID, "event->type is 0"},
	    {{.size = 4, .type = MEDUSA_SCHED_EVENT_TIMER}, MEDUSA_SCHED_ERR_INVALID, "event->size is not"},
	    {{.type = MEDUSA_SCHED_EVENT_SHARED + 1}, MEDUSA_SCHED_ERR_INVALID, "event->type is 23"},
	    /* What has ended, or was never known here, is no error. */
	    {{.type = MEDUSA_SCHED_EVENT_DONE, .request = 12345}, 0, ""},
	    {{.type = MEDUSA_SCHED_EVENT_FIRST_TOKEN, .request = 12345}, 0, ""},
	    {{.type = MEDUSA_SCHED_EVENT_CANCEL, .request = 12345}, 0, ""},
	};
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(10));
	script_arrive(&n, 7, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct medusa_sched_event e = cases[i].event;
		e.now = e.now ? e.now : n.now;
		int code = step_code(e);
		cr_assert_eq(code, cases[i].code, "case %zu gives %d", i, code);
		cr_assert(!code || strstr(medusa_sched_error(n.sched), cases[i].says), "case %zu says: %s", i,
			  medusa_sched_error(n.sched));
		cr_assert_eq(medusa_sched_audit(n.sched), 0);
	}
	script_done(&n, 7);
	cr_assert_eq(script_stats(&n).served, 1, "what was refused has changed something");
	script_end(&n);
}

/* Events about what ended meanwhile are ignored, twice over too. */
Test(scheduler_interface, forgets_what_has_ended)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(10));
	script_serve(&n, 1, 0);
	script_copied(&n, 1);
	script_evicted(&n, 1);
	script_transfer(&n, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1);
	script_batch_failed(&n, 1);
	script_done(&n, 1);
	script_request(&n, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 1);
	script_request(&n, MEDUSA_SCHED_EVENT_CANCEL, 1);
	expect(&n, "swap t1 weights f0 gpu0 host\nrun b1 f0 gpu0 [1]\n");
	cr_assert_eq(script_stats(&n).served, 1);
	script_end(&n);
}

/* What comes in late about the first try says nothing about the second. */
Test(scheduler_interface, tells_an_end_of_an_earlier_try_by_its_batch)
{
	script_start(&n, &(struct setup){.options.retries = 1});
	script_add(&n, script_model(10));
	script_arrive(&n, 1, 0);
	script_batch_failed(&n, 1);
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[0]});
	cr_assert_eq(script_stats(&n).served, 0, "the failed batch's end was taken for the second's");
	script_step(&n,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_DONE, .request = 1, .batch = n.batches[1]});
	cr_assert_eq(script_stats(&n).served, 1);
	script_end(&n);
}

Test(scheduler_interface, takes_older_and_newer_callers)
{
	struct {
		struct medusa_sched_function known;
		uint64_t more[4];
	} newer = {.known = script_model(10)};
	uint32_t index;
	script_start(&n, &(struct setup){0});
	newer.known.size = sizeof(newer);
	cr_assert_eq(medusa_sched_add_function(n.sched, &newer.known, &index), 0, "a tail of zeros is refused");
	newer.more[3] = 1;
	cr_assert_eq(medusa_sched_add_function(n.sched, &newer.known, &index), MEDUSA_SCHED_ERR_INVALID);
	struct medusa_sched_function older = script_model(10);
	older.size = offsetof(struct medusa_sched_function, slo_ns);
	older.slo_percentile = 77; /* beyond its size: not read */
	cr_assert_eq(medusa_sched_add_function(n.sched, &older, &index), 0, "%s", medusa_sched_error(n.sched));
	older.size = 3;
	cr_assert_eq(medusa_sched_add_function(n.sched, &older, &index), MEDUSA_SCHED_ERR_INVALID);
	/* States of another size: no byte beyond, and zeros in what the library does not know. */
	struct {
		struct medusa_sched_gpu_state known;
		uint64_t more;
	} state = {.known.size = sizeof(state), .more = 5};
	cr_assert_eq(medusa_sched_gpu_get(n.sched, 0, &state.known), 0);
	cr_assert_eq(state.more, 0);
	state.known =
	    (struct medusa_sched_gpu_state){.size = offsetof(struct medusa_sched_gpu_state, kv_bytes), .kv_bytes = 9};
	cr_assert_eq(medusa_sched_gpu_get(n.sched, 0, &state.known), 0);
	cr_assert_eq(state.known.kv_bytes, 9, "it wrote beyond the caller's struct");
	cr_assert_eq(medusa_sched_gpu_get(n.sched, 1, &state.known), MEDUSA_SCHED_ERR_NOT_FOUND);
	script_end(&n);
}

Test(scheduler_interface, refuses_functions_that_cannot_be)
{
	static const struct {
		const char *says;
		struct medusa_sched_function f;
	} cases[] = {
	    {"backbone is 3, but only 0 backbones", {.backbone = 3, .t0_ns = 1}},
	    {"t0_ns is 0", {.backbone = NOBODY, .weight_bytes = 1}},
	    {"residue_bytes", {.backbone = NOBODY, .t0_ns = 1, .context_bytes = 1, .residue_bytes = 2}},
	    {"slo_percentile", {.backbone = NOBODY, .t0_ns = 1, .weight_bytes = 1, .slo_percentile = 1.5}},
	    {"backbone, weight_bytes and context_bytes are all unset", {.backbone = NOBODY, .t0_ns = 1}},
	    {"host memory", {.backbone = NOBODY, .t0_ns = 1, .weight_bytes = 70 * GB}},
	    {"largest GPU has 80000000000", {.backbone = NOBODY, .t0_ns = 1, .weight_bytes = GB, .kv_bytes = 80 * GB}},
	    {"bytes", {.backbone = NOBODY, .t0_ns = 1, .weight_bytes = ~0ull, .kv_bytes = 2}},
	    {"bytes", {.backbone = NOBODY, .t0_ns = 1, .weight_bytes = 1, .library_bytes = ~0ull}},
	    {"bytes", {.backbone = NOBODY, .t0_ns = 1, .context_bytes = ~0ull, .weight_bytes = 3}},
	};
	script_start(&n, &(struct setup){.host_gb = 60});
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct medusa_sched_function f = cases[i].f;
		uint32_t index;
		f.size = sizeof(f);
		cr_assert_eq(medusa_sched_add_function(n.sched, &f, &index), MEDUSA_SCHED_ERR_INVALID, "case %zu", i);
		cr_assert(strstr(medusa_sched_error(n.sched), cases[i].says), "case %zu says: %s", i,
			  medusa_sched_error(n.sched));
	}
	cr_assert_eq(n.sched->function_count, 0);
	script_end(&n);
}

Test(scheduler_interface, finds_its_policies_by_name)
{
	struct medusa_sched *s = NULL;
	struct medusa_sched_gpu gpu = {.size = sizeof(gpu), .memory_bytes = GB};
	struct medusa_sched_node node = {.size = sizeof(node), .gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = 1e9};
	struct medusa_sched_options o = {.size = sizeof(o), .eviction = "oracle"};
	cr_assert_eq(medusa_sched_create(&node, &o, &s), MEDUSA_SCHED_ERR_NOT_FOUND);
	cr_assert(strstr(medusa_sched_error(NULL), "no eviction policy is called oracle"), "%s",
		  medusa_sched_error(NULL));
	cr_assert_null(s);
	cr_assert_eq(medusa_sched_create(&node, NULL, &s), 0);
	medusa_sched_destroy(s);
	for (int kind = 0; kind < MEDUSA_SCHED_KINDS; kind++) {
		size_t count;
		const struct medusa_sched_policy *p = medusa_sched_policies((enum medusa_sched_kind)kind, &count);
		cr_assert_str_eq(p[0].name, "medusa", "the default of kind %d is %s", kind, p[0].name);
		cr_assert_gt(count, 1);
	}
	gpu.memory_bytes = 0;
	cr_assert_eq(medusa_sched_create(&node, NULL, &s), MEDUSA_SCHED_ERR_INVALID);
	node.gpu_count = 0;
	cr_assert_eq(medusa_sched_create(&node, NULL, &s), MEDUSA_SCHED_ERR_INVALID);
	gpu.memory_bytes = GB;
	node.gpu_count = 1;
	node.host_bytes_per_s = 0;
	cr_assert_eq(medusa_sched_create(&node, NULL, &s), MEDUSA_SCHED_ERR_INVALID);
	node.host_bytes_per_s = 1;
	node.peer_bytes_per_s = (const double[]){-1};
	cr_assert_eq(medusa_sched_create(&node, NULL, &s), MEDUSA_SCHED_ERR_INVALID);
	node.peer_bytes_per_s = NULL;
	o.size = 1;
	cr_assert_eq(medusa_sched_create(&node, &o, &s), MEDUSA_SCHED_ERR_INVALID);
	node.size = 1;
	cr_assert_eq(medusa_sched_create(&node, NULL, &s), MEDUSA_SCHED_ERR_INVALID);
}

/* Every value from the first to the last that is named, no two alike, and none beside them. */
#define ASSERT_NAMED(what, type, first, last)                                                                          \
	do {                                                                                                           \
		for (int i = -1; i < 64; i++) {                                                                        \
			const char *name = medusa_sched_##what##_name((enum type)i);                                   \
			cr_expect_eq(!strcmp(name, "unknown " #what), i < (first) || i > (last), #what " %d is %s", i, \
				     name);                                                                            \
			for (int j = (first); j < i && i <= (last); j++)                                               \
				cr_expect_str_neq(name, medusa_sched_##what##_name((enum type)j));                     \
		}                                                                                                      \
	} while (0)

Test(scheduler_interface, every_value_of_an_enum_has_a_name)
{
	ASSERT_NAMED(action, medusa_sched_action_type, MEDUSA_SCHED_ACTION_RUN, MEDUSA_SCHED_ACTION_JOIN);
	ASSERT_NAMED(class, medusa_sched_class, MEDUSA_SCHED_CLASS_BACKBONE, MEDUSA_SCHED_CLASS_LIBRARY);
	ASSERT_NAMED(event, medusa_sched_event_type, MEDUSA_SCHED_EVENT_ARRIVAL, MEDUSA_SCHED_EVENT_SHARED);
	ASSERT_NAMED(goal, medusa_sched_goal, MEDUSA_SCHED_GOAL_COMPLETION, MEDUSA_SCHED_GOAL_FIRST_TOKEN);
	ASSERT_NAMED(kind, medusa_sched_kind, MEDUSA_SCHED_KIND_QUEUEING, MEDUSA_SCHED_KIND_PRELOADING);
	ASSERT_NAMED(latency, medusa_sched_latency, MEDUSA_SCHED_LATENCY_WAITING, MEDUSA_SCHED_LATENCY_COMPLETION);
	ASSERT_NAMED(reason, medusa_sched_reason, MEDUSA_SCHED_REASON_NEVER_FITS, MEDUSA_SCHED_REASON_QUOTA);
	ASSERT_NAMED(source, medusa_sched_source, MEDUSA_SCHED_SOURCE_HOST, MEDUSA_SCHED_SOURCE_MADE);
	for (int i = -1; i < 64; i++)
		cr_expect_eq(!strcmp(medusa_sched_result_name((enum medusa_sched_result)i), "unknown result"),
			     i != 0 && i != 1 && i != 2 && i != 4);
}

/* ---- values and pointers that nothing can be made of ---- */

static int create_code(struct medusa_sched_node node, struct medusa_sched_options options)
{
	struct medusa_sched *sched = NULL;
	node.size = sizeof(node);
	options.size = sizeof(options);
	int code = medusa_sched_create(&node, &options, &sched);
	medusa_sched_destroy(sched);
	return code;
}

Test(scheduler_interface, refuses_speeds_that_are_none)
{
	static const double wrong[] = {NAN, INFINITY, -1, 1e-300, -INFINITY};
	struct medusa_sched_gpu gpu = {.size = sizeof(gpu), .memory_bytes = GB};
	struct medusa_sched_options options = {0};
	struct medusa_sched_node node = {.gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = 1e9};
	cr_assert_eq(create_code(node, options), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct medusa_sched_node host = node, cold = node, peers = node;
		host.host_bytes_per_s = cold.cold_bytes_per_s = wrong[i];
		peers.peer_bytes_per_s = &wrong[i];
		cr_assert_eq(create_code(host, options), MEDUSA_SCHED_ERR_INVALID, "host %g", wrong[i]);
		cr_assert(strstr(medusa_sched_error(NULL), "host_bytes_per_s is "), "%s", medusa_sched_error(NULL));
		cr_assert_eq(create_code(cold, options), MEDUSA_SCHED_ERR_INVALID, "cold %g", wrong[i]);
		cr_assert_eq(create_code(peers, options), MEDUSA_SCHED_ERR_INVALID, "peers %g", wrong[i]);
		options.residency_per_switch = wrong[i];
		cr_assert_eq(create_code(node, options), wrong[i] > 0 && wrong[i] < 1 ? 0 : MEDUSA_SCHED_ERR_INVALID);
		options.residency_per_switch = 0;
	}
	node.host_bytes_per_s = 0;
	cr_assert_eq(create_code(node, options), MEDUSA_SCHED_ERR_INVALID);
	node = (struct medusa_sched_node){.gpu_count = 1, .host_bytes_per_s = 1e9};
	cr_assert_eq(create_code(node, options), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(NULL), "gpus is NULL: it must describe 1 GPUs");
}

Test(scheduler_interface, refuses_a_percentile_that_is_no_part)
{
	script_start(&n, &(struct setup){0});
	static const double wrong[] = {100, 98, 1.01, -0.5, NAN};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint32_t index;
		struct medusa_sched_function f = script_model(1);
		f.slo_percentile = wrong[i];
		cr_assert_eq(medusa_sched_add_function(n.sched, &f, &index), MEDUSA_SCHED_ERR_INVALID);
		cr_assert(strstr(medusa_sched_error(n.sched), "give a part, such as 0.98 for 98 %"), "%s",
			  medusa_sched_error(n.sched));
	}
	script_end(&n);
}

Test(scheduler_interface, refuses_an_objective_that_there_is_not)
{
	script_start(&n, &(struct setup){0});
	static const int wrong[] = {-1, 2, 9};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint32_t index;
		struct medusa_sched_function f = script_model(1);
		f.slo_goal = (enum medusa_sched_goal)wrong[i];
		cr_assert_eq(medusa_sched_add_function(n.sched, &f, &index), MEDUSA_SCHED_ERR_INVALID);
		cr_assert(strstr(medusa_sched_error(n.sched), "slo_goal is "), "%s", medusa_sched_error(n.sched));
	}
	script_end(&n);
}

Test(scheduler_interface, null_pointers_are_refused)
{
	struct medusa_sched *sched = NULL;
	struct medusa_sched_function f = script_model(1);
	struct medusa_sched_backbone b = {.size = sizeof(b), .bytes = GB};
	struct medusa_sched_node node = {.size = sizeof(node)};
	struct medusa_sched_gpu_state gpu = {.size = sizeof(gpu)};
	struct medusa_sched_host_state host = {.size = sizeof(host)};
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	uint32_t index;
	cr_assert_eq(medusa_sched_create(NULL, NULL, &sched), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(NULL), "node is NULL");
	cr_assert_eq(medusa_sched_create(&node, NULL, NULL), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(NULL), "sched is NULL");
	cr_assert_eq(medusa_sched_add_function(NULL, &f, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_add_backbone(NULL, &b, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_change_function(NULL, 0, &f), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_audit(NULL), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_gpu_get(NULL, 0, &gpu), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_host_get(NULL, &host), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_stats_get(NULL, &stats), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_not_null(medusa_sched_policies(MEDUSA_SCHED_KIND_QUEUEING, NULL));
	script_start(&n, &(struct setup){0});
	cr_assert_eq(medusa_sched_add_backbone(n.sched, &b, NULL), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(n.sched), "index is NULL");
	cr_assert_eq(medusa_sched_gpu_get(n.sched, 0, NULL), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_eq(medusa_sched_host_get(n.sched, NULL), MEDUSA_SCHED_ERR_INVALID);
	script_end(&n);
}

/* Numbers of batches are none of transfers, and neither has a 0. */
Test(scheduler_interface, numbers_of_batches_and_transfers_are_told_apart)
{
	script_start(&n, &(struct setup){0});
	script_add(&n, script_model(10));
	script_arrive(&n, 1, 0);
	const uint64_t wrong[] = {0, n.batches[0], n.transfers[0] + 1, n.transfers[0] + (1ull << 32)};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct medusa_sched_event event = {
		    .type = MEDUSA_SCHED_EVENT_TRANSFER_DONE, .now = n.now, .transfer = wrong[i]};
		cr_assert_eq(step_code(event), MEDUSA_SCHED_ERR_INVALID, "transfer %llu", (unsigned long long)wrong[i]);
	}
	const uint64_t batches[] = {0, n.transfers[0], n.batches[0] + 1};
	for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
		struct medusa_sched_event event = {
		    .type = MEDUSA_SCHED_EVENT_STARTED, .now = n.now, .batch = batches[i]};
		cr_assert_eq(step_code(event), MEDUSA_SCHED_ERR_INVALID, "batch %llu", (unsigned long long)batches[i]);
		event.type = MEDUSA_SCHED_EVENT_BATCH_FAILED;
		cr_assert_eq(step_code(event), MEDUSA_SCHED_ERR_INVALID);
		event.type = MEDUSA_SCHED_EVENT_FIRST_TOKEN;
		event.request = 1;
		cr_assert_eq(step_code(event), batches[i] ? MEDUSA_SCHED_ERR_INVALID : 0);
	}
	script_end(&n);
}

/* Host memory that is too small for a function, or has too little left for it: each with what there is. */
Test(scheduler_interface, what_host_memory_lacks_is_said)
{
	struct script r;
	uint32_t index;
	script_start(&r, &(struct setup){.host_gb = 10});
	script_add(&r, script_model(6));
	struct medusa_sched_function f = script_model(6);
	cr_assert_eq(medusa_sched_add_function(r.sched, &f, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(r.sched), "in_host: library and weights need 6000000000 bytes, and host "
						      "memory has 4000000000 left");
	f = script_model(11);
	f.in_host = 0;
	cr_assert_eq(medusa_sched_add_function(r.sched, &f, &index), MEDUSA_SCHED_ERR_INVALID);
	cr_assert_str_eq(medusa_sched_error(r.sched), "library and weights, 11000000000 bytes, are more than host "
						      "memory has, 10000000000 bytes");
	script_end(&r);
}

/* What a terminal would act upon is escaped, as the tools do. */
Test(scheduler_interface, an_error_is_plain_text)
{
	struct medusa_sched *s;
	struct medusa_sched_gpu gpu = {.size = sizeof(gpu), .memory_bytes = GB};
	struct medusa_sched_node node = {.size = sizeof(node), .gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = 1e9};
	struct medusa_sched_options o = {.size = sizeof(o), .queueing = "a\033[2Jb\nc\xff"};
	cr_assert_eq(medusa_sched_create(&node, &o, &s), MEDUSA_SCHED_ERR_NOT_FOUND);
	cr_assert_str_eq(medusa_sched_error(NULL), "no queueing policy is called a\\x1b[2Jb\\x0ac\\xff");
}
