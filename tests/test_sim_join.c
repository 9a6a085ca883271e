/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that batch by themselves in the node model and in whole runs: all times computed by hand. */
#include "simulator/run/run_state.h"
#include "simulator/workload/builder.h"
#include "tests/sim_bench.h"

/* ---- the node --------------------------------------------------------------------------------------------------- */

/* T(b) = 40 + 20 (b - 1) ms; n sequences take 10 (1 + (n - 1) / 2) ms for a token of each. Loaded on GPU 0 at 1 s. */
static void start_engine(struct bench *bench)
{
	bench_init(bench);
	struct md_sim_function *function = &bench->functions[RESNET];
	function->spec.t0_ns = 40 * MS;
	function->spec.alpha_ns = 20 * MS;
	function->spec.token_ns = 10 * MS;
	function->spec.kv_bytes = 1000;
	function->spec.continuous = 1;
	function->sequence_share = 0.5;
	bench_start(bench);
	apply(bench, 0, weights(bench, MEDUSA_SCHED_ACTION_PRELOAD, RESNET, 0));
	play(bench, 1000 * MS);
}

static struct medusa_sched_action join(const uint64_t *requests, uint32_t count)
{
	return (struct medusa_sched_action){.type = MEDUSA_SCHED_ACTION_JOIN,
					    .function = RESNET,
					    .gpu = 0,
					    .batch = 1,
					    .requests = requests,
					    .request_count = count};
}

Test(sim_join, requests_join_and_share_steps_and_first_tokens)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1, 2, 3};
	bench_init(&bench);
	start_engine(&bench);
	bench.requests[0].generated_tokens = 12;
	bench.requests[1].generated_tokens = 1;
	bench.requests[2].generated_tokens = 3;
	bench.requests[3].generated_tokens = 2;
	uint64_t before = md_sim_model_used_bytes(bench.model, 0);
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, requests, 1));
	play(&bench, 1049 * MS);
	apply(&bench, 1050 * MS, join(requests + 1, 2));
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), before + 3000);
	cr_assert_eq(md_sim_model_running(bench.model), 3);
	play(&bench, 1099 * MS);
	apply(&bench, 1100 * MS, join(requests + 3, 1));
	play(&bench, UINT64_MAX);
	/* 0 decodes from 1040 on and is alone until 1120: 8 of its 11 further tokens. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 0), 1040 * MS);
	/* 1 and 2 take 60 ms; 10 of these are left when 3 comes, which makes them 20. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 1), 1120 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 2), 1120 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1120 * MS);
	/* 3 has computed 10 of its 40 ms by then. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 3), 1150 * MS);
	/* 0 and 2 together take 15 ms a token: two tokens end 2, and leave 0 with one. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 2), 1150 * MS);
	/* 0 and 3 have a token to go. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 1165 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 3), 1165 * MS);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_STARTED), 1, "a join does not start the batch anew");
	cr_assert_float_eq(md_sim_model_billed_s(bench.model, RESNET), 0.165, 1e-12, "the engine is billed once");
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), before);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_join, an_engine_is_one_neighbour_however_many_have_joined)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1, 2};
	start_engine(&bench);
	bench.gpus[0].slots = 2;
	bench.node.decode_share = 1;
	bench.functions[BERT].spec.t0_ns = 40 * MS;
	bench.functions[BERT].spec.token_ns = 10 * MS;
	apply(&bench, 1000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, BERT, 0));
	play(&bench, 2000 * MS);
	for (int i = 0; i < 3; i++)
		bench.requests[i].generated_tokens = i == 2 ? 5 : 101;
	apply(&bench, 2000 * MS, run(&bench, RESNET, 0, requests, 1));
	play(&bench, 2100 * MS);
	apply(&bench, 2100 * MS, join(requests + 1, 1));
	play(&bench, 2200 * MS);
	apply(&bench, 2200 * MS, run(&bench, BERT, 0, requests + 2, 1));
	play(&bench, 2321 * MS);
	/* it decodes beside one engine: 2240 + 4 x 20 */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 2), 2320 * MS);
	cr_assert_float_eq(md_sim_model_billed_s(bench.model, BERT), 0.06, 1e-12, "half of 120 ms");
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

/* The run that others have joined ends before them: the engine goes on. */
Test(sim_join, those_that_joined_inherit_the_engine)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1, 2};
	start_engine(&bench);
	bench.requests[0].generated_tokens = 6;
	bench.requests[1].generated_tokens = 11;
	bench.requests[2].generated_tokens = 1;
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, requests, 1));
	play(&bench, 1050 * MS);
	apply(&bench, 1050 * MS, join(requests + 1, 1));
	play(&bench, 1150 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 1090 * MS);
	apply(&bench, 1150 * MS, join(requests + 2, 1));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 2), 1190 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1190 * MS);
	cr_assert_float_eq(md_sim_model_billed_s(bench.model, RESNET), 0.19, 1e-12);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_join, one_is_aborted_and_the_others_go_faster)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1};
	start_engine(&bench);
	bench.requests[0].generated_tokens = bench.requests[1].generated_tokens = 101;
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, requests, 1));
	play(&bench, 1040 * MS);
	apply(&bench, 1040 * MS, join(requests + 1, 1));
	play(&bench, 1080 * MS); /* 96 of 100 are left */
	play(&bench, 1229 * MS);
	apply(&bench, 1230 * MS,
	      (struct medusa_sched_action){
		  .type = MEDUSA_SCHED_ACTION_ABORT, .batch = 1, .request = 1, .function = RESNET, .gpu = 0});
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1230 * MS);
	/* ten tokens of 15 ms, 86 of 10 */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 2090 * MS);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_join, a_failed_batch_takes_along_those_that_joined)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1};
	const struct medusa_sched_event faults[] = {
	    {.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .now = 1060 * MS, .gpu = 0}};
	bench_init(&bench);
	bench.options.faults = faults;
	bench.options.fault_count = 1;
	bench.functions[RESNET].spec.continuous = 1;
	bench.functions[RESNET].spec.token_ns = 10 * MS;
	bench.requests[0].generated_tokens = bench.requests[1].generated_tokens = 101;
	bench_start(&bench);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, RESNET, 0));
	play(&bench, 1000 * MS);
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, requests, 1));
	play(&bench, 1050 * MS);
	apply(&bench, 1050 * MS, join(requests + 1, 1));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_BATCH_FAILED, 1), 1060 * MS);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_DONE), 0);
	cr_assert_eq(md_sim_model_running(bench.model), 0);
	bench_finish(&bench);
}

Test(sim_join, other_functions_take_nobody)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1};
	start_engine(&bench);
	bench.functions[RESNET].spec.continuous = 0;
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, requests, 1));
	apply(&bench, 1010 * MS, join(requests + 1, 1));
	cr_assert_not_null(md_sim_model_complaint(bench.model, NULL));
	bench_finish(&bench);
}

/* ---- whole runs -------------------------------------------------------------------------------------------------- */

/* One GPU, one engine; requests at 0, 100 and 110 ms of 11 tokens each. */
Test(sim_join, a_run_of_three_requests)
{
	struct medusa_sched_gpu gpu = {sizeof(gpu), 4000000000, 0, 1};
	struct md_sim_node node = {.gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = 10e9, .prefill_share = 1};
	struct md_sim_function function = function_of(1000000000, 40 * MS, 0, 0, 0);
	char *models[] = {(char *)"engine"};
	function.name = models[0];
	function.spec.alpha_ns = 20 * MS;
	function.spec.token_ns = 10 * MS;
	function.spec.kv_bytes = 1000000000;
	function.spec.slo_ns = 1000 * MS;
	function.spec.continuous = 1;
	function.sequence_share = 0.1;
	const struct md_sim_functions functions = {
	    .functions = &function, .count = 1, .models = models, .model_count = 1};
	struct md_sim_request requests[] = {{0, 0, 0, 11, 0}, {100 * MS, 0, 0, 11, 0}, {110 * MS, 0, 0, 11, 0}};
	const struct md_sim_workload workload = {.requests = requests, .count = 3, .end = 111 * MS};
	struct md_sim_result result;
	struct md_error err = {0};
	cr_assert_eq(md_sim_run(&node, &functions, &workload, md_sim_policy_find("fifo-lru"), 1, NULL, &result, &err),
		     MD_OK, "%s", err.message);
	cr_assert_eq(result.contradictions, 0);
	/*
	 * 0: pipelined with the copy of 1 GB, first token at 100; alone to 140, 4 tokens; with 1 and 2 from 200 on.
	 * 1 joins at 100 (or when the copy has ended), computes alone for 10 ms, then beside 2 at half speed: 30 ms left, 60:
	 * first token at 170. 2 then computes alone: 10 of 40 left ... first token at 180.
	 */
	cr_assert_eq(result.stats.joins, 2);
	cr_assert_eq(result.stats.runs, 1);
	cr_assert_eq(result.served, 3);
	cr_assert_float_eq(md_sim_samples_percentile(&result.ttft_ms, 1), 70, 1e-6, "request 1: 100 to 170");
	cr_assert_float_eq(md_sim_samples_percentile(&result.ttft_ms, 50), 70, 1e-6, "request 2: 110 to 180");
	cr_assert_float_eq(md_sim_samples_percentile(&result.ttft_ms, 100), 100, 1e-6, "request 0, with its copy");
	/* 0: 7 tokens until 170, 10 ms at 11 ms a token beside 1, and so on: see the sum below. */
	double left = 10 - 7 - 10.0 / 11, end0 = 180 + left * 12;
	/* 1 has 10 - 10/11 tokens left at 180, `left` fewer when 0 ends; then 2 are left */
	double one = 10 - 10.0 / 11 - left, end1 = end0 + one * 11, two = 10 - left - one, end2 = end1 + two * 10;
	cr_assert_float_eq(result.end_s, end2 / 1000, 1e-6);
	cr_assert_float_eq(result.gpu_busy_s[0], end2 / 1000, 1e-6);
	md_sim_result_finish(&result);
}

/* Further tokens slow the engine's other sequences alone: load counts a share of them. */
Test(sim_join, offered_load_of_an_engine)
{
	struct medusa_sched_gpu gpu = {sizeof(gpu), 4000000000, 0, 8};
	const struct md_sim_node node = {.gpus = &gpu, .gpu_count = 1, .prefill_share = 1, .decode_share = 0.5};
	struct md_sim_function function = function_of(1000000000, 40 * MS, 0, 0, 0);
	function.spec.token_ns = 10 * MS;
	function.sequence_share = 0.1;
	function.generated_low = function.generated_high = 101;
	cr_assert_float_eq(md_sim_offered_mean_s(&node, &function), 0.04 + 0.5, 1e-12);
	function.spec.continuous = 1;
	cr_assert_float_eq(md_sim_offered_mean_s(&node, &function), 0.04 + 0.1, 1e-12);
}

/* Two engines of which one fits, and requests for both that never cease: nobody waits long. */
Test(sim_join, two_engines_take_turns)
{
	static const char *const policies[] = {"medusa", "fifo-lru", "swapserve", "xlora", "torpor"};
	enum { PER_S = 20, SECONDS = 60 };
	static struct md_sim_request requests[2 * PER_S * SECONDS];
	struct medusa_sched_gpu gpu = {sizeof(gpu), 2500000000, 0, 8};
	struct md_sim_node node = {.gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = 10e9, .prefill_share = 1};
	struct md_sim_function both[2];
	char *models[] = {(char *)"engine"};
	for (int f = 0; f < 2; f++) {
		both[f] = function_of(1500000000, 40 * MS, 0, 0, 0);
		both[f].name = models[0];
		both[f].spec.token_ns = 10 * MS;
		both[f].spec.kv_bytes = 4000000;
		both[f].spec.slo_ns = 1000 * MS;
		both[f].spec.continuous = 1;
	}
	for (uint32_t i = 0; i < 2 * PER_S * SECONDS; i++)
		requests[i] = (struct md_sim_request){i * (uint64_t)(500 * MS / PER_S), i % 2, 0, 51, 0};
	const struct md_sim_functions functions = {.functions = both, .count = 2, .models = models, .model_count = 1};
	const struct md_sim_workload workload = {
	    .requests = requests, .count = 2 * PER_S * SECONDS, .end = SECONDS * 1000 * MS};
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		struct md_sim_result result;
		struct md_error err = {0};
		cr_assert_eq(
		    md_sim_run(&node, &functions, &workload, md_sim_policy_find(policies[i]), 1, NULL, &result, &err),
		    MD_OK, "%s", err.message);
		cr_assert_eq(result.contradictions, 0, "%s", policies[i]);
		cr_assert_eq(result.served, 2 * PER_S * SECONDS, "%s", policies[i]);
		/* 5 s of the other one's turn, its last request, the load, and a second until the scheduler looks */
		cr_assert_leq(md_sim_samples_percentile(&result.wait_ms, 100), 5000 + 540 + 150 + 1000, "%s",
			      policies[i]);
		cr_assert_geq(result.stats.joins, PER_S * SECONDS / 2, "%s", policies[i]);
		md_sim_result_finish(&result);
	}
}
