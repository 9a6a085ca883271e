/* SPDX-License-Identifier: Apache-2.0 */
/* Batches in the node model: tokens, neighbours, contexts, cold starts, evictions, who pays, allocations. */
#include "tests/sim_bench.h"

static struct medusa_sched_action artifact(struct bench *bench, enum medusa_sched_action_type type,
					   enum medusa_sched_class kind, uint32_t function, uint32_t gpu)
{
	const struct medusa_sched_function *spec = &bench->functions[function].spec;
	struct medusa_sched_action action = weights(bench, type, function, gpu);
	action.artifact = kind;
	action.source = kind == MEDUSA_SCHED_CLASS_CONTEXT ? MEDUSA_SCHED_SOURCE_MADE : MEDUSA_SCHED_SOURCE_COLD;
	if (kind == MEDUSA_SCHED_CLASS_CONTEXT)
		action.bytes = spec->context_bytes;
	else if (kind == MEDUSA_SCHED_CLASS_LIBRARY)
		action.bytes = spec->library_bytes;
	return action;
}

/* Puts a function's weights on a GPU, and lets a second pass. */
static void bring(struct bench *bench, uint32_t function, uint32_t gpu)
{
	apply(bench, 0, weights(bench, MEDUSA_SCHED_ACTION_PRELOAD, function, gpu));
	play(bench, 1000 * MS);
}

Test(sim_batch, requests_end_one_by_one)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1, 2};
	bench_init(&bench);
	bench.functions[BERT].spec.token_ns = 10 * MS;
	bench.requests[0].generated_tokens = 5;
	bench.requests[1].generated_tokens = 1;
	bench.requests[2].generated_tokens = 3;
	bench_start(&bench);
	bring(&bench, BERT, 0);
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, requests, 3));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 0), 1043 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1043 * MS, "one token");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 2), 1063 * MS, "two more");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 1083 * MS, "four more");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_STARTED, 1), 1000 * MS);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_batch, caches_leave_with_their_requests)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1, 2};
	bench_init(&bench);
	bench.functions[BERT].spec.token_ns = 10 * MS;
	bench.functions[BERT].spec.kv_bytes = 500;
	bench.functions[BERT].kv_bytes_per_token = 100;
	bench.requests[2].generated_tokens = 3;
	bench.requests[2].context_tokens = 9;
	bench_start(&bench);
	bring(&bench, BERT, 0);
	uint64_t before = md_sim_model_used_bytes(bench.model, 0);
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, requests, 3));
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), before + 2200);
	play(&bench, 1043 * MS);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), before + 1200, "two have ended");
	play(&bench, 1063 * MS);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), before);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_batch, neighbours_slow_each_other)
{
	struct bench bench;
	bench_init(&bench);
	bench.gpus[0].slots = 2;
	bench.node.decode_share = 0.5;
	bench.functions[BERT].spec.token_ns = bench.functions[RESNET].spec.token_ns = 10 * MS;
	bench.functions[RESNET].spec.t0_ns = 43 * MS;
	bench.requests[0].generated_tokens = bench.requests[1].generated_tokens = 2;
	bench_start(&bench);
	bring(&bench, BERT, 0);
	bring(&bench, RESNET, 0);
	const uint64_t requests[] = {0, 1};
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, &requests[0], 1));
	apply(&bench, 1020 * MS, run(&bench, RESNET, 0, &requests[1], 1));
	play(&bench, UINT64_MAX);
	/* 20 ms alone; both at half speed until the first has its 43 ms, at 1066; the second is at 23 then. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 0), 1066 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 1076 * MS,
		     "further tokens are not slowed by first ones");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 1), 1086 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1096 * MS);
	/* 20 + 46 / 2 + 10 / 2 ms, and 46 / 2 + 10 / 2 + 20: 96 ms in all. */
	cr_assert_float_eq(md_sim_model_billed_s(bench.model, BERT), 0.048, 1e-9);
	cr_assert_float_eq(md_sim_model_billed_s(bench.model, RESNET), 0.048, 1e-9);
	cr_assert_float_eq(md_sim_model_busy_s(bench.model, 0), 0.096, 1e-9);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_batch, decoding_batches_share)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1};
	bench_init(&bench);
	bench.gpus[0].slots = 2;
	bench.node.decode_share = 0.5;
	bench.node.prefill_share = 0;
	bench.functions[BERT].spec.token_ns = bench.functions[RESNET].spec.token_ns = 10 * MS;
	bench.functions[RESNET].spec.t0_ns = 43 * MS;
	bench.requests[0].generated_tokens = 11;
	bench.requests[1].generated_tokens = 6;
	bench_start(&bench);
	bring(&bench, BERT, 0);
	bring(&bench, RESNET, 0);
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, &requests[0], 1));
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, &requests[1], 1));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1043 * MS + 75 * MS, "5 tokens of 15 ms");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 1043 * MS + 75 * MS + 50 * MS, "then alone");
	bench_finish(&bench);
}

Test(sim_batch, waits_for_its_context)
{
	struct bench bench;
	const uint64_t request = 0;
	bench_init(&bench);
	bench.functions[BERT].spec.context_ns = 200 * MS;
	bench.functions[BERT].spec.context_bytes = 1000;
	bench_start(&bench);
	struct medusa_sched_action actions[] = {
	    run(&bench, BERT, 0, &request, 1), /* whatever the order within a step */
	    weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 0),
	    artifact(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, MEDUSA_SCHED_CLASS_CONTEXT, BERT, 0)};
	apply_all(&bench, 0, actions, 3);
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_STARTED, 1), 200 * MS, "contexts come before computing");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 243 * MS, "the weights are there by then");
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), bench.functions[BERT].spec.weight_bytes + 1000);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_batch, cold_starts_in_order)
{
	struct bench bench;
	const uint64_t request = 0;
	bench_init(&bench);
	struct medusa_sched_function *spec = &bench.functions[BERT].spec;
	spec->in_host = 0;
	spec->swap_ns = 0;
	spec->cold_ns = 500 * MS;
	spec->library_bytes = 1000000000;
	spec->context_ns = 100 * MS;
	spec->context_bytes = 1;
	bench_start(&bench);
	struct medusa_sched_action actions[] = {
	    artifact(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, MEDUSA_SCHED_CLASS_LIBRARY, BERT, MEDUSA_SCHED_NONE),
	    artifact(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, MEDUSA_SCHED_CLASS_WEIGHTS, BERT, 0),
	    artifact(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, MEDUSA_SCHED_CLASS_CONTEXT, BERT, 0),
	    run(&bench, BERT, 0, &request, 1)};
	apply_all(&bench, 0, actions, 4);
	play(&bench, UINT64_MAX);
	/* Weights use the disk alone for 0.5 s (0.5 GB), then beside the library: 0.84 GB and 1 GB at 0.5 GB/s each. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_DONE, 1), 500 * MS + 1680 * MS + 160 * MS, "library");
	uint64_t copied = 500 * MS + 1680 * MS + (uint64_t)(1.34e9 / 9.8 + 0.5);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_DONE, 2), copied, "disk, then the GPU's link");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_DONE, 3), 2440 * MS, "made with its library");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 2483 * MS);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_batch, evictions_take_their_time)
{
	struct bench bench;
	struct medusa_sched_action out;
	bench_init(&bench);
	bench.functions[BERT].spec.evict_ns = 70 * MS;
	bench_start(&bench);
	bring(&bench, BERT, 0);
	bring(&bench, RESNET, 0);
	out = weights(&bench, MEDUSA_SCHED_ACTION_EVICT, BERT, 0);
	out.transfer = 77;
	apply(&bench, 2000 * MS, out);
	apply(&bench, 2000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, RESNET, 0));
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), bench.functions[BERT].spec.weight_bytes, "one at once");
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_EVICTED, 77), 2070 * MS);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_EVICTED), 1);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), 0);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

/* A suspended context leaves its residue, and takes it up again. */
Test(sim_batch, residues_stay)
{
	struct bench bench;
	struct medusa_sched_action context;
	bench_init(&bench);
	bench.functions[BERT].spec.context_bytes = 1000;
	bench.functions[BERT].spec.residue_bytes = 300;
	bench_start(&bench);
	context = artifact(&bench, MEDUSA_SCHED_ACTION_PRELOAD, MEDUSA_SCHED_CLASS_CONTEXT, BERT, 0);
	apply(&bench, 0, context);
	play(&bench, 1);
	struct medusa_sched_action out = context;
	out.type = MEDUSA_SCHED_ACTION_EVICT;
	out.transfer = 0;
	out.bytes = 700;
	apply(&bench, 2, out);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), 300);
	apply(&bench, 3, context);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), 1000);
	play(&bench, 4);
	apply(&bench, 5, out);
	out.type = MEDUSA_SCHED_ACTION_OFFLOAD;
	out.bytes = 300;
	apply(&bench, 6, out);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), 0);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

static void assert_complains(struct bench *bench, const char *what)
{
	const char *complaint = md_sim_model_complaint(bench->model, NULL);
	cr_assert(complaint && strstr(complaint, what), "\"%s\" does not say \"%s\"", complaint ? complaint : "", what);
	bench_finish(bench);
}

Test(sim_batch, contradictions_are_noted)
{
	struct bench bench;
	const uint64_t request = 0;
	bench_init(&bench);
	bench_start(&bench);
	apply(&bench, 0, run(&bench, BERT, 0, &request, 1));
	assert_complains(&bench, "without an artifact");

	bench_init(&bench);
	bench.gpus[0].memory_bytes = 1000;
	bench_start(&bench);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 0));
	assert_complains(&bench, "holds 1340000000 bytes and has 1000");

	bench_init(&bench);
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	apply(&bench, MS, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, BERT, 0));
	assert_complains(&bench, "in use");

	bench_init(&bench);
	bench_start(&bench);
	bring(&bench, BERT, 0);
	apply(&bench, 2000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 0));
	assert_complains(&bench, "brings what is there");

	bench_init(&bench);
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	swap_and_run(&bench, 0, RESNET, 0, 1);
	assert_complains(&bench, "beside 1 others");

	bench_init(&bench);
	bench_start(&bench);
	struct medusa_sched_action from = weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 0);
	from.source = MEDUSA_SCHED_SOURCE_PEER;
	from.peer = 1;
	apply(&bench, 0, from);
	assert_complains(&bench, "where its artifact is not");
}

/* Torpor-Block: what the cache lacks is allocated, what is in the way is freed, call by call. */
Test(sim_batch, the_driver_allocates_without_blocks)
{
	struct bench bench;
	bench_init(&bench);
	bench.options.no_blocks = true;
	bench.node.allocation_ns = MS;
	bench.node.allocation_block_bytes = 20000000;
	bench.gpus[0].memory_bytes = 1400000000;
	bench.all.model_count = 3;
	for (uint32_t i = 0; i < 3; i++)
		bench.functions[i].model = i;
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	play(&bench, 1000 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), (149 + 67) * MS, "67 blocks of 20 MB");
	apply(&bench, 1000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, BERT, 0));
	swap_and_run(&bench, 1000 * MS, BERT, 0, 1);
	play(&bench, 2000 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1149 * MS, "the cache has them all");
	apply(&bench, 2000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, BERT, 0));
	swap_and_run(&bench, 2000 * MS, RESNET, 0, 2);
	play(&bench, 3000 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 2), (2029 + 13 + 10) * MS,
		     "13 blocks of its own, 10 of Bert's freed: 80 are handed out, 70 fit");
	apply(&bench, 3000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, RESNET, 0));
	swap_and_run(&bench, 3000 * MS, BERT, 0, 3);
	play(&bench, 4000 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 3), (3149 + 10 + 10) * MS, "57 of 67 were left");
	assert_no_complaint(&bench);
	bench_finish(&bench);
}
