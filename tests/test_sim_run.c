/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs: what is measured, what ablations change, that every policy ends every request, the same way each time. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/run/run_state.h"

#define MS UINT64_C(1000000)
#define MAX_REQUESTS 20000
#define MAX_FUNCTIONS 64

struct scene {
	struct medusa_sched_gpu gpus[4];
	double peers[16];
	struct md_sim_node node;
	struct md_sim_backbone backbones[2];
	struct md_sim_function functions[MAX_FUNCTIONS];
	char *models[2];
	struct md_sim_functions all;
	struct md_sim_request *requests;
	struct md_sim_workload workload;
};

static void scene_init(struct scene *scene, uint32_t gpus, uint64_t memory)
{
	*scene = (struct scene){.models = {(char *)"light", (char *)"heavy"}};
	for (uint32_t i = 0; i < gpus; i++)
		scene->gpus[i] = (struct medusa_sched_gpu){sizeof(scene->gpus[i]), memory, i / 2, 1};
	for (uint32_t i = 0; i < gpus * gpus; i++)
		scene->peers[i] = i / gpus == i % gpus ? 0 : 40e9;
	scene->node = (struct md_sim_node){.gpus = scene->gpus,
					   .gpu_count = gpus,
					   .host_bytes_per_s = 10e9,
					   .switch_bytes_per_s = 12e9,
					   .cold_bytes_per_s = 2e9,
					   .peer_bytes_per_s = scene->peers,
					   .prefill_share = 1,
					   .gpu_price_per_h = 3.6,
					   .allocation_ns = MS,
					   .allocation_block_bytes = 20000000};
	scene->requests = calloc(MAX_REQUESTS, sizeof(*scene->requests));
	scene->all = (struct md_sim_functions){
	    .functions = scene->functions, .backbones = scene->backbones, .models = scene->models, .model_count = 2};
	scene->workload = (struct md_sim_workload){.requests = scene->requests};
}

static struct md_sim_function *add_function(struct scene *scene, uint64_t bytes, uint64_t work)
{
	struct md_sim_function *function = &scene->functions[scene->all.count++];
	*function = (struct md_sim_function){.name = (char *)"f",
					     .spec = {.size = sizeof(function->spec),
						      .backbone = MEDUSA_SCHED_NONE,
						      .weight_bytes = bytes,
						      .in_host = 1,
						      .t0_ns = work,
						      .max_batch = 1,
						      .slo_ns = 1000 * MS}};
	return function;
}

static void add_request(struct scene *scene, uint64_t at, uint32_t function)
{
	scene->requests[scene->workload.count++] = (struct md_sim_request){.at = at, .function = function};
	scene->workload.end = at + 1;
}

static struct md_sim_result run_as(const struct scene *scene, const struct md_sim_policy *policy)
{
	struct md_sim_result result;
	struct md_error err = {0};
	enum md_status status = md_sim_run(&scene->node, &scene->all, &scene->workload, policy, 7, NULL, &result, &err);
	cr_assert_eq(status, MD_OK, "%s: %s", policy->name, err.message);
	cr_assert_eq(result.contradictions, 0, "%s contradicts the node", policy->name);
	cr_assert_eq(result.unfinished, 0, "%s leaves %llu requests", policy->name,
		     (unsigned long long)result.unfinished);
	return result;
}

static const struct md_sim_policy *named(const char *name)
{
	const struct md_sim_policy *policy = md_sim_policy_find(name);
	cr_assert_not_null(policy, "no policy %s", name);
	return policy;
}

static void scene_finish(struct scene *scene)
{
	free(scene->requests);
}

static uint32_t compliant_functions(const struct md_sim_result *result)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < result->function_count; i++)
		count += result->functions[i].compliant;
	return count;
}

Test(sim_run, measures_what_happens)
{
	struct scene scene;
	scene_init(&scene, 1, 2000000000);
	add_function(&scene, 1000000000, 40 * MS)->spec.swap_ns = 130 * MS;
	scene.functions[0].spec.slo_ns = 100 * MS;
	scene.functions[0].spec.slo_percentile = 0.5;
	add_request(&scene, 10 * MS, 0);
	add_request(&scene, 20 * MS, 0);
	add_request(&scene, 500 * MS, 0);
	add_request(&scene, 600 * MS, 0);
	struct md_sim_result result = run_as(&scene, named("torpor-fifo"));
	cr_assert_eq(result.requests, 4);
	cr_assert_eq(result.served, 4);
	/* 130 from its arrival; 120 + 40 behind it; 40; 40. */
	cr_assert_eq(result.met, 2);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 50), 40, 1e-6);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 75), 130, 1e-6);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 100), 160, 1e-6);
	cr_assert_float_eq(md_sim_samples_percentile(&result.wait_ms, 100), 120, 1e-6);
	cr_assert_float_eq(md_sim_samples_mean(&result.batch), 1, 1e-9);
	cr_assert(result.functions[0].counted && result.functions[0].compliant, "half of them is enough");
	cr_assert_eq(compliant_functions(&result), 1);
	cr_assert_float_eq(result.functions[0].gpu_s, 0.25, 1e-9, "130 + 3 x 40 ms");
	cr_assert_float_eq(result.functions[0].cost, 0.25 / 1000, 1e-9);
	cr_assert_float_eq(result.gpu_busy_s[0], 0.25, 1e-9);
	cr_assert_float_eq(result.end_s, 0.64, 1e-9);
	cr_assert_eq(result.stats.swaps_host, 1);
	md_sim_result_finish(&result);

	scene.functions[0].spec.slo_percentile = 0.51;
	result = run_as(&scene, named("torpor-fifo"));
	cr_assert_eq(compliant_functions(&result), 0, "two of four are not 51 %%");
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

/* At one time, the end of a batch is known before the arrival: the function's own GPU is free for it. */
Test(sim_run, ends_come_before_arrivals)
{
	struct scene scene;
	scene_init(&scene, 2, 2000000000);
	add_function(&scene, 1000000000, 40 * MS)->spec.swap_ns = 130 * MS;
	scene.functions[0].spec.max_parallel = 2;
	add_request(&scene, 0, 0);
	add_request(&scene, 130 * MS, 0);
	struct md_sim_result result = run_as(&scene, named("torpor"));
	cr_assert_eq(result.stats.swaps_peer + result.stats.swaps_host, 1);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 1), 40, 1e-6);
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

Test(sim_run, first_tokens_have_their_own_goal)
{
	struct scene scene;
	scene_init(&scene, 1, 2000000000);
	struct md_sim_function *function = add_function(&scene, 1000000000, 40 * MS);
	function->spec.swap_ns = 130 * MS;
	function->spec.token_ns = 100 * MS;
	function->spec.slo_ns = 150 * MS;
	add_request(&scene, 0, 0);
	scene.requests[0].generated_tokens = 11;
	for (int goal = 0; goal < 2; goal++) {
		function->spec.slo_goal = goal ? MEDUSA_SCHED_GOAL_FIRST_TOKEN : MEDUSA_SCHED_GOAL_COMPLETION;
		struct md_sim_result result = run_as(&scene, named("torpor-fifo"));
		cr_assert_float_eq(md_sim_samples_percentile(&result.ttft_ms, 50), 130, 1e-6);
		cr_assert_float_eq(md_sim_samples_percentile(&result.end_ms, 50), 1130, 1e-6);
		cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 50), goal ? 130 : 1130, 1e-6);
		cr_assert_eq(result.met, (uint64_t)goal);
		md_sim_result_finish(&result);
	}
	scene_finish(&scene);
}

Test(sim_run, what_is_refused_is_not_met)
{
	struct scene scene;
	scene_init(&scene, 1, 2000000000);
	add_function(&scene, 100000000, 40 * MS);
	add_function(&scene, 100000000, 40 * MS)->kv_bytes_per_token = 1000000;
	for (uint32_t i = 0; i < 4; i++) {
		add_request(&scene, i * 1000 * MS, i % 2);
		scene.requests[i].context_tokens = i == 3 ? 1999 : 10;
		scene.requests[i].generated_tokens = 1;
	}
	struct md_sim_result result = run_as(&scene, named("torpor-fifo"));
	cr_assert_eq(result.rejected[MEDUSA_SCHED_REASON_NEVER_FITS], 1, "2 GB of KV cache");
	cr_assert(result.functions[0].compliant && !result.functions[1].compliant);
	cr_assert_eq(result.functions[1].rejected, 1);
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

Test(sim_run, timers_come_when_asked_for)
{
	struct scene scene;
	struct md_sim_policy policy = *named("torpor-fifo");
	policy.batching = "fixed";
	policy.fixed_batch = 3;
	policy.fixed_delay_ns = 500 * MS;
	policy.slots = 0;
	scene_init(&scene, 1, 2000000000);
	scene.gpus[0].slots = 2;
	struct md_sim_function *function = add_function(&scene, 100000000, 2000 * MS);
	function->spec.max_batch = 8;
	function->spec.max_parallel = 2;
	add_request(&scene, 0, 0); /* computes while the others wait for a third */
	add_request(&scene, 100 * MS, 0);
	add_request(&scene, 200 * MS, 0);
	struct md_sim_result result = run_as(&scene, &policy);
	cr_assert_float_eq(md_sim_samples_percentile(&result.wait_ms, 100), 500, 1e-6);
	cr_assert_float_eq(md_sim_samples_percentile(&result.batch, 100), 2, 1e-9);
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

Test(sim_run, native_runs_what_fits)
{
	struct scene scene;
	scene_init(&scene, 2, 2500000000);
	for (int i = 0; i < 6; i++) {
		struct md_sim_function *function = add_function(&scene, 500000000, 40 * MS);
		function->native_bytes = 1200000000;
		function->native_ns = 50 * MS;
	}
	for (uint32_t i = 0; i < 12; i++)
		add_request(&scene, i / 6 * 1000 * MS, i % 6);
	add_request(&scene, 3000 * MS, 0);
	add_request(&scene, 3000 * MS, 1);
	add_request(&scene, 3000 * MS, 1);
	struct md_sim_result result = run_as(&scene, named("native"));
	cr_assert_eq(result.running_functions, 4, "two on each GPU");
	cr_assert_eq(compliant_functions(&result), 4);
	cr_assert_eq(result.rejected[MEDUSA_SCHED_REASON_NEVER_FITS], 4);
	cr_assert_eq(result.functions[5].rejected, 2);
	cr_assert(result.functions[5].counted && !result.functions[5].compliant, "what never runs does not comply");
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 100), 100, 1e-6, "two at a time");
	cr_assert_float_eq(md_sim_samples_percentile(&result.functions[0].latency_ms, 1), 50, 1e-6,
			   "nobody beside it: 0 and 1 are on GPUs of their own");
	cr_assert_float_eq(md_sim_samples_percentile(&result.functions[1].latency_ms, 1), 50, 1e-6,
			   "one by one: the second waits");
	cr_assert_float_eq(result.functions[0].gpu_s, result.end_s * 0.48, 1e-9, "its part of the GPU, all the time");
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

Test(sim_run, ablations_change_functions)
{
	struct scene scene;
	struct md_sim_policy policy = *named("torpor-fifo");
	scene_init(&scene, 1, 4000000000);
	scene.all.backbone_count = 1;
	scene.backbones[0] = (struct md_sim_backbone){(char *)"b", {.bytes = 1000000000, .in_host = 1}};
	for (int i = 0; i < 2; i++) {
		struct md_sim_function *function = add_function(&scene, 100000000, 40 * MS);
		function->spec.backbone = 0;
		function->spec.context_bytes = 1000;
		function->spec.context_ns = 5 * MS;
		function->capture_ns = 900 * MS;
	}
	add_request(&scene, 0, 0);
	add_request(&scene, 5000 * MS, 1);
	struct md_sim_result result = run_as(&scene, &policy);
	/* 1.1 GB at 10 GB/s; then the adapter alone. */
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 100), 110, 1e-6);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 1), 45, 1e-6);
	cr_assert_eq(result.stats.bytes_host, 1200000000);
	md_sim_result_finish(&result);
	policy.no_sharing = true;
	result = run_as(&scene, &policy);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 1), 110, 1e-6, "each its own backbone");
	cr_assert_eq(result.stats.bytes_host, 2200000000);
	md_sim_result_finish(&result);
	policy.no_sharing = false;
	policy.no_artifacts = true;
	result = run_as(&scene, &policy);
	cr_assert_float_eq(md_sim_samples_percentile(&result.latency_ms, 1), 940, 1e-6, "captured, not restored");
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

/* So that policies are compared on equal terms: each name is there with restored and with captured contexts. */
Test(sim_run, every_policy_restores_or_captures)
{
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	for (size_t i = 0; i < count; i++) {
		char name[64];
		snprintf(name, sizeof(name), "%s%s", policies[i].name, MD_SIM_CAPTURE);
		struct md_sim_policy captured = *named(name);
		cr_assert(!policies[i].no_artifacts && captured.no_artifacts, "%s", name);
		cr_assert_str_eq(captured.name, name);
		captured.name = policies[i].name;
		captured.summary = policies[i].summary;
		captured.no_artifacts = false;
		cr_assert_arr_eq(&captured, &policies[i], sizeof(captured), "%s differs in more than its contexts",
				 name);
	}
	cr_assert_null(md_sim_policy_find(MD_SIM_CAPTURE));
}

/* Torpor, section 4.5: one function at a time on a GPU, however many slots the node's GPUs have. */
Test(sim_run, torpor_runs_one_function_at_a_time)
{
	static const char *const names[] = {"torpor", "torpor-shared"};
	for (int shared = 0; shared < 2; shared++) {
		struct scene scene;
		scene_init(&scene, 1, 4000000000);
		scene.gpus[0].slots = 4;
		for (uint32_t i = 0; i < 2; i++) {
			add_function(&scene, 1000000000, 40 * MS);
			add_request(&scene, 0, i);
		}
		struct md_sim_result result = run_as(&scene, named(names[shared]));
		double waited = md_sim_samples_percentile(&result.wait_ms, 100);
		cr_assert(shared ? waited < 1 : waited > 39, "%s: the second waits %g ms", names[shared], waited);
		md_sim_result_finish(&result);
		scene_finish(&scene);
	}
}

static uint64_t draw(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

/* 48 functions on 4 GPUs that hold 20 of them; a third are adapters on two backbones; some start cold. */
static void crowd(struct scene *scene, bool backbones)
{
	uint64_t state = 1, at = 0;
	scene_init(scene, 4, 10000000000);
	scene->node.report_every_ns = 300 * MS;
	scene->node.report_lag_ns = 2000 * MS;
	scene->all.backbone_count = backbones ? 2 : 0;
	for (int i = 0; i < 2; i++)
		scene->backbones[i] =
		    (struct md_sim_backbone){(char *)"b", {.bytes = 3000000000, .cold_ns = 50 * MS, .in_host = i}};
	for (uint32_t i = 0; i < 48; i++) {
		struct md_sim_function *function = add_function(scene, 1000000000 + i % 3 * 600000000, 20 * MS);
		struct medusa_sched_function *spec = &function->spec;
		spec->in_host = i % 5 != 0;
		spec->cold_ns = 300 * MS;
		spec->alpha_ns = 2 * MS;
		spec->token_ns = i % 4 * MS;
		spec->kv_bytes = 10000000;
		spec->max_batch = 1 + i % 4;
		spec->slo_goal = i % 2 ? MEDUSA_SCHED_GOAL_FIRST_TOKEN : MEDUSA_SCHED_GOAL_COMPLETION;
		spec->evict_ns = i % 7 == 0 ? 10 * MS : 0;
		spec->slo_percentile = 0.9;
		function->model = i % 2;
		if (i % 2) {
			spec->context_bytes = 300000000;
			spec->context_ns = 30 * MS;
			spec->residue_bytes = i % 4 == 1 ? 50000000 : 0;
			spec->library_bytes = 100000000;
		}
		if (backbones && i % 3 == 0) {
			spec->backbone = i % 2;
			spec->weight_bytes = 100000000;
		}
	}
	for (int i = 0; i < 3000; i++) {
		at += draw(&state) % (40 * MS);
		add_request(scene, at, (uint32_t)draw(&state) % 48);
		scene->requests[i].generated_tokens = 1 + (uint32_t)draw(&state) % 8;
	}
}

/* Every request ends once, and twice the same run gives the same result. */
static void assert_every_policy(bool backbones)
{
	struct scene scene;
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	crowd(&scene, backbones);
	for (size_t i = 0; i < count; i++) {
		struct md_sim_result result = run_as(&scene, &policies[i]), again = run_as(&scene, &policies[i]);
		uint64_t rejected = 0;
		for (int reason = 0; reason < MD_SIM_REASONS; reason++)
			rejected += result.rejected[reason];
		cr_assert_eq(result.requests, 3000);
		cr_assert_eq(result.served + rejected, 3000, "%s: each request ends", policies[i].name);
		cr_assert_eq(result.stats.served, result.served, "%s counts otherwise", policies[i].name);
		cr_assert_eq(result.latency_ms.count, again.latency_ms.count);
		cr_assert_eq(
		    memcmp(result.latency_ms.values, again.latency_ms.values, result.latency_ms.count * sizeof(double)),
		    0, "%s differs from itself", policies[i].name);
		md_sim_result_finish(&result);
		md_sim_result_finish(&again);
	}
	scene_finish(&scene);
}

Test(sim_run, every_policy_ends_every_request)
{
	assert_every_policy(false);
}

Test(sim_run, every_policy_ends_every_request_with_backbones)
{
	assert_every_policy(true);
}

/* Years without requests, in which the node would report its memory 10^12 times: a wrong time in a trace is like that. */
Test(sim_run, an_idle_node_reports_no_more_after_a_while, .timeout = 120)
{
	struct scene scene;
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	scene_init(&scene, 2, 10000000000);
	scene.node.report_every_ns = MS;
	scene.node.report_lag_ns = 250 * MS;
	add_function(&scene, 4000000000, 20 * MS)->spec.keep_alive_ns = 5000 * MS;
	add_function(&scene, 4000000000, 20 * MS);
	for (uint32_t i = 0; i < 6; i++)
		add_request(&scene, (i < 3 ? 0 : 2000000000ull * 1000 * MS) + i * 30 * MS, i % 2);
	for (size_t i = 0; i < count; i++) {
		struct md_sim_result result = run_as(&scene, &policies[i]);
		cr_assert_eq(result.served, 6, "%s", policies[i].name);
		cr_assert(result.end_s > 2e9, "%s ends at %g s", policies[i].name, result.end_s);
		md_sim_result_finish(&result);
	}
	scene_finish(&scene);
}

#define FAULTS 400

/* Things go wrong ten times a second, of all kinds; all GPUs are back in the end. */
static size_t draw_faults(struct medusa_sched_event *faults, uint64_t seed, uint64_t end)
{
	uint64_t state = seed, at = 0;
	size_t count = 0;
	for (; count < FAULTS - 4 && at < end; count++) {
		static const enum medusa_sched_event_type types[] = {
		    MEDUSA_SCHED_EVENT_TRANSFER_FAILED, MEDUSA_SCHED_EVENT_TRANSFER_FAILED,
		    MEDUSA_SCHED_EVENT_BATCH_FAILED,    MEDUSA_SCHED_EVENT_BATCH_FAILED,
		    MEDUSA_SCHED_EVENT_GPU_LOST,        MEDUSA_SCHED_EVENT_GPU_BACK,
		    MEDUSA_SCHED_EVENT_GPU_BACK,        MEDUSA_SCHED_EVENT_BACKBONE_FAILED,
		    MEDUSA_SCHED_EVENT_MEMORY_LIMIT,    MEDUSA_SCHED_EVENT_FUNCTION_GONE,
		    MEDUSA_SCHED_EVENT_CANCEL,          MEDUSA_SCHED_EVENT_GPU_DRAIN};
		at += draw(&state) % (300 * MS);
		faults[count] = (struct medusa_sched_event){.type = types[draw(&state) % 12],
							    .now = at,
							    .gpu = (uint32_t)draw(&state) % 4,
							    .backbone = (uint32_t)draw(&state) % 2,
							    .function = (uint32_t)draw(&state) % 1000,
							    .bytes = 6000000000 + draw(&state) % 4000000000,
							    .request = draw(&state) % 3000};
		/* One in twenty functions goes, in all. */
		if (faults[count].type == MEDUSA_SCHED_EVENT_FUNCTION_GONE && faults[count].function >= 48)
			faults[count].type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED;
	}
	for (uint32_t gpu = 0; gpu < 4; gpu++)
		faults[count++] =
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_GPU_BACK, .now = end, .gpu = gpu};
	return count;
}

/* The scheduler's books and the node never differ, and still each request ends. */
Test(sim_run, faults_leave_no_request_behind)
{
	struct scene scene;
	size_t count;
	const struct md_sim_policy *policies = md_sim_policies(&count);
	struct medusa_sched_event faults[FAULTS];
	crowd(&scene, true);
	for (uint32_t i = 0; i < scene.all.count; i += 2)
		scene.functions[i].spec.abortable = 1; /* those that are cancelled while they run are stopped */
	for (size_t i = 0; i < count; i++) {
		for (uint64_t seed = 1; seed <= 3 && !policies[i].early_binding; seed++) {
			struct md_sim_result result;
			struct md_error err = {0};
			size_t drawn = draw_faults(faults, seed, scene.workload.end);
			cr_assert_eq(md_sim_run_faulty(&scene.node, &scene.all, &scene.workload, &policies[i], faults,
						       drawn, &result, &err),
				     MD_OK, "%s, seed %llu: %s", policies[i].name, (unsigned long long)seed,
				     err.message);
			cr_expect_eq(result.contradictions, 0, "%s, seed %llu", policies[i].name,
				     (unsigned long long)seed);
			cr_expect_eq(result.unfinished, 0, "%s, seed %llu", policies[i].name, (unsigned long long)seed);
			md_sim_result_finish(&result);
		}
	}
	scene_finish(&scene);
}

/* A batch of 34 minutes, and a copy of 83: timers alone, however many, mean that nothing happens. */
Test(sim_run, work_under_way_is_waited_for)
{
	static const char *const names[] = {"torpor", "fifo-lru", "medusa"};
	for (int copy = 0; copy < 2; copy++) {
		struct scene scene;
		scene_init(&scene, 1, copy ? 60000000000000 : 2000000000);
		add_function(&scene, copy ? 50000000000000 : 1000000000, 40 * MS)->spec.token_ns = 20 * MS;
		scene.functions[0].spec.slo_ns = copy ? 6000000 * MS : 2400000 * MS;
		add_request(&scene, 0, 0);
		scene.requests[0].generated_tokens = copy ? 0 : 100001;
		for (size_t i = 0; i < 3; i++) {
			struct md_sim_result result = run_as(&scene, named(names[i]));
			cr_assert_eq(result.met, 1, "%s, copy %d", names[i], copy);
			cr_assert_gt(result.end_s, copy ? 4999 : 2000);
			md_sim_result_finish(&result);
		}
		scene_finish(&scene);
	}
}

/* What was aborted was not served, though the model reports its end. */
Test(sim_run, an_aborted_request_counts_as_cancelled)
{
	const struct medusa_sched_event cancel = {.type = MEDUSA_SCHED_EVENT_CANCEL, .now = 1000 * MS, .request = 0};
	struct scene scene;
	struct md_sim_result result;
	struct md_error err = {0};
	scene_init(&scene, 1, 10000000000);
	add_function(&scene, 1000000000, 5000 * MS)->spec.abortable = 1;
	add_request(&scene, 0, 0);
	cr_assert_eq(
	    md_sim_run_faulty(&scene.node, &scene.all, &scene.workload, named("torpor"), &cancel, 1, &result, &err),
	    MD_OK, "%s", err.message);
	cr_assert_eq(result.served, 0);
	cr_assert_eq(result.rejected[MEDUSA_SCHED_REASON_CANCELLED], 1);
	cr_assert_eq(result.unfinished, 0);
	cr_assert_eq(result.contradictions, 0);
	cr_assert_lt(result.end_s, 1.1, "it ends when it is stopped, at %g s", result.end_s);
	md_sim_result_finish(&result);
	scene_finish(&scene);
}

Test(sim_run, should_fail_bad_workload)
{
	struct scene scene;
	struct md_sim_result result;
	struct md_error err;
	scene_init(&scene, 1, 1000);
	add_function(&scene, 1000000000, 40 * MS);
	add_request(&scene, 0, 0);
	cr_assert_eq(md_sim_run(&scene.node, &scene.all, &scene.workload, named("torpor"), 1, NULL, &result, &err),
		     MD_ERR_INVALID);
	cr_assert(strstr(err.message, "function f: "), "%s", err.message);
	add_request(&scene, 5, 3);
	cr_assert_eq(md_sim_run(&scene.node, &scene.all, &scene.workload, named("torpor"), 1, NULL, &result, &err),
		     MD_ERR_INVALID);
	cr_assert_str_eq(err.message, "request 1 is for function 3 of 1");
	scene.requests[0].at = 6;
	scene.requests[1].function = 0;
	cr_assert_eq(md_sim_run(&scene.node, &scene.all, &scene.workload, named("torpor"), 1, NULL, &result, &err),
		     MD_ERR_INVALID);
	cr_assert_str_eq(err.message, "request 1 arrives before the one before it");
	scene_finish(&scene);
}
