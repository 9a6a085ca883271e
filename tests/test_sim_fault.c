/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in the node model: lost GPUs, failed transfers and batches, late reports; and the order of events. */
#include "tests/sim_bench.h"

static void with_faults(struct bench *bench, const struct medusa_sched_event *faults, size_t count)
{
	bench->options.faults = faults;
	bench->options.fault_count = count;
}

Test(sim_fault, a_lost_gpu_ends_everything_on_it)
{
	const struct medusa_sched_event faults[] = {{.type = MEDUSA_SCHED_EVENT_GPU_LOST, .now = 50 * MS, .gpu = 0},
						    {.type = MEDUSA_SCHED_EVENT_GPU_BACK, .now = 500 * MS, .gpu = 0}};
	struct bench bench;
	bench_init(&bench);
	with_faults(&bench, faults, 2);
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	swap_and_run(&bench, 0, BERT, 1, 1);
	play(&bench, UINT64_MAX);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_GPU_LOST), 1);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_GPU_BACK), 1);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_DONE), 1, "of the other GPU alone");
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_DONE), 1, "of the other GPU alone");
	/* 50 ms at 5.6 GB/s, the rest at 9.8, and the tail. */
	double expected = 50e6 + (1.34e9 - 5.6 * 50e6) / 9.8 + 0.08 * 43e6;
	cr_assert_float_eq((double)time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), expected, 1e7,
			   "its link is free again");
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 0), 0);
	swap_and_run(&bench, 1000 * MS, BERT, 0, 2);
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 2), 1149 * MS, "it is back, and empty");
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_fault, what_copies_from_a_lost_gpu_fails)
{
	const struct medusa_sched_event faults[] = {{.type = MEDUSA_SCHED_EVENT_GPU_LOST, .now = 1010 * MS, .gpu = 0}};
	struct bench bench;
	const uint64_t request = 0;
	bench_init(&bench);
	with_faults(&bench, faults, 1);
	bench_start(&bench);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, BERT, 0));
	play(&bench, 1000 * MS);
	struct medusa_sched_action from = weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 2);
	from.source = MEDUSA_SCHED_SOURCE_PEER;
	from.peer = 0;
	apply(&bench, 1000 * MS, from);
	apply(&bench, 1000 * MS, run(&bench, BERT, 2, &request, 1));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, from.transfer), 1010 * MS);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_DONE), 0, "the batch that waited for it is gone");
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_BATCH_FAILED), 0, "and is not reported besides");
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 2), 0);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

static struct medusa_sched_action abort_of(uint64_t batch, uint64_t request, uint64_t transfer)
{
	return (struct medusa_sched_action){
	    .type = MEDUSA_SCHED_ACTION_ABORT, .batch = batch, .request = request, .transfer = transfer};
}

/* One request of a batch is stopped and the other goes on; a copy that is stopped takes the run that waits for it along. */
Test(sim_fault, what_is_aborted_ends)
{
	struct bench bench;
	const uint64_t requests[] = {0, 1};
	bench_init(&bench);
	bench_start(&bench);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, BERT, 0));
	play(&bench, 1000 * MS);
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, requests, 2));
	play(&bench, 1010 * MS);
	apply(&bench, 1010 * MS, abort_of(1, 0, 0));
	play(&bench, 1020 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 1010 * MS);
	cr_assert_eq(bench.events[bench.count - 1].batch, 1);
	apply(&bench, 1020 * MS, abort_of(1, 0, 0)); /* again, and what never was: nothing happens */
	apply(&bench, 1020 * MS, abort_of(9, 1, 0));
	apply(&bench, 1020 * MS, abort_of(0, 0, 99));
	swap_and_run(&bench, 1020 * MS, BERT, 1, 2);
	play(&bench, 1030 * MS);
	apply(&bench, 1030 * MS, abort_of(0, 0, bench.transfers));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, bench.transfers), 1030 * MS);
	cr_assert_gt(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1020 * MS);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_DONE), 2);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 1), 0);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_fault, transfers_and_batches_fail)
{
	const struct medusa_sched_event faults[] = {
	    {.type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED, .now = 10 * MS, .gpu = 1},
	    {.type = MEDUSA_SCHED_EVENT_TRANSFER_FAILED, .now = 11 * MS, .gpu = 3},
	    {.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .now = 145 * MS, .gpu = 2}};
	struct bench bench;
	bench_init(&bench);
	with_faults(&bench, faults, 3);
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 1, 0);
	swap_and_run(&bench, 0, BERT, 2, 1);
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, 1), 10 * MS);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_BATCH_FAILED, 2), 145 * MS);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_DONE), 0);
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 1), 0, "its artifact is not there");
	cr_assert_eq(md_sim_model_used_bytes(bench.model, 2), bench.functions[BERT].spec.weight_bytes, "this one is");
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_fault, backbones_fail_with_their_batches)
{
	const struct medusa_sched_event faults[] = {
	    {.type = MEDUSA_SCHED_EVENT_BACKBONE_FAILED, .now = 1020 * MS, .gpu = 0, .backbone = 0}};
	struct bench bench;
	const uint64_t requests[] = {0, 1};
	bench_init(&bench);
	with_faults(&bench, faults, 1);
	bench.gpus[0].slots = 2;
	bench.all.backbone_count = 1;
	bench.backbones[0].spec = (struct medusa_sched_backbone){.bytes = 5000, .in_host = 1};
	bench.functions[BERT].spec.backbone = 0;
	bench_start(&bench);
	const struct medusa_sched_action backbone = {.type = MEDUSA_SCHED_ACTION_PRELOAD,
						     .artifact = MEDUSA_SCHED_CLASS_BACKBONE,
						     .source = MEDUSA_SCHED_SOURCE_HOST,
						     .function = MEDUSA_SCHED_NONE,
						     .bytes = 5000,
						     .transfer = 99};
	apply(&bench, 0, backbone);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, BERT, 0));
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, RESNET, 0));
	play(&bench, 1000 * MS);
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, &requests[0], 1));
	apply(&bench, 1000 * MS, run(&bench, RESNET, 0, &requests[1], 1));
	play(&bench, UINT64_MAX);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_BACKBONE_FAILED), 1);
	cr_assert_eq(count_of(&bench, MEDUSA_SCHED_EVENT_DONE), 1, "who does not use it lives on");
	/* 20 ms at half speed, 7 alone. */
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 1027 * MS);
	struct medusa_sched_action out = backbone;
	out.type = MEDUSA_SCHED_ACTION_OFFLOAD;
	out.transfer = 0;
	apply(&bench, 2000 * MS, out);
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_fault, reports_come_late)
{
	struct bench bench;
	size_t reports = 0;
	bench_init(&bench);
	bench.node.report_every_ns = 100 * MS;
	bench.node.report_lag_ns = 250 * MS;
	bench_start(&bench);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, BERT, 1));
	play(&bench, 199 * MS);
	apply(&bench, 199 * MS, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, BERT, 1));
	play(&bench, 500 * MS);
	for (size_t i = 0; i < bench.count; i++) {
		const struct medusa_sched_event *event = &bench.events[i];
		if (event->type != MEDUSA_SCHED_EVENT_MEMORY_REPORT)
			continue;
		reports++;
		cr_assert_eq(event->now - event->as_of, 250 * MS);
		cr_assert_eq(event->bytes, event->gpu == 1 && event->as_of < 199 * MS ? 1340000000u : 0u);
	}
	cr_assert_eq(reports, 8, "two of each GPU, and not %zu in all", reports);
	bench_finish(&bench);
}

Test(sim_fault, others_are_handed_on)
{
	const struct medusa_sched_event faults[] = {
	    {.type = MEDUSA_SCHED_EVENT_MEMORY_LIMIT, .now = 5, .gpu = 1, .bytes = 77},
	    {.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .now = 6, .function = 2},
	    {.type = MEDUSA_SCHED_EVENT_CANCEL, .now = 7, .request = 3}};
	struct bench bench;
	bench_init(&bench);
	with_faults(&bench, faults, 3);
	bench_start(&bench);
	play(&bench, UINT64_MAX);
	cr_assert_eq(bench.count, 3);
	cr_assert(bench.events[0].bytes == 77 && bench.events[0].now == 5);
	cr_assert_eq(bench.events[1].function, 2);
	cr_assert_eq(bench.events[2].request, 3);
	apply(&bench, 10, weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 1));
	cr_assert_not_null(md_sim_model_complaint(bench.model, NULL), "its memory has shrunk");
	bench_finish(&bench);
}

/* Equal times: copies before computation, then who was first. Twice the same: the very same events. */
Test(sim_fault, the_order_is_settled)
{
	struct bench first, second;
	for (int turn = 0; turn < 2; turn++) {
		struct bench *bench = turn ? &second : &first;
		bench_init(bench);
		bench_start(bench);
		swap_and_run(bench, 0, RESNET, 2, 0);
		swap_and_run(bench, 0, RESNET, 0, 1);
		swap_and_run(bench, 0, RESNET, 3, 2);
		swap_and_run(bench, 0, RESNET, 1, 3);
		play(bench, UINT64_MAX);
		bench_finish(bench);
	}
	cr_assert_eq(first.count, second.count);
	for (size_t i = 0; i < first.count; i++) {
		const struct medusa_sched_event *a = &first.events[i], *b = &second.events[i];
		cr_assert(a->type == b->type && a->now == b->now && a->request == b->request && a->batch == b->batch &&
			      a->transfer == b->transfer,
			  "event %zu differs", i);
	}
	uint64_t order[4];
	size_t done = 0;
	for (size_t i = 0; i < first.count; i++)
		if (first.events[i].type == MEDUSA_SCHED_EVENT_DONE)
			order[done++] = first.events[i].request;
	cr_assert_eq(done, 4);
	for (uint64_t i = 0; i < 4; i++)
		cr_assert_eq(order[i], i, "all end at one time, in the order of their start");
}

Test(sim_fault, copies_end_before_computations)
{
	struct bench bench;
	const uint64_t request = 0;
	bench_init(&bench);
	bench.functions[RESNET].spec.weight_bytes = 43 * 9800000;
	bench.functions[RESNET].spec.swap_ns = 0;
	bench_start(&bench);
	apply(&bench, 0, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, BERT, 0));
	play(&bench, 1000 * MS);
	bench.count = 0;
	apply(&bench, 1000 * MS, run(&bench, BERT, 0, &request, 1));
	apply(&bench, 1000 * MS, weights(&bench, MEDUSA_SCHED_ACTION_PRELOAD, RESNET, 2));
	play(&bench, UINT64_MAX);
	cr_assert_eq(bench.count, 4);
	cr_assert_eq(bench.events[0].type, MEDUSA_SCHED_EVENT_STARTED);
	cr_assert(bench.events[1].type == MEDUSA_SCHED_EVENT_TRANSFER_DONE && bench.events[1].now == 1043 * MS);
	cr_assert(bench.events[2].type == MEDUSA_SCHED_EVENT_FIRST_TOKEN && bench.events[2].now == 1043 * MS);
	bench_finish(&bench);
}
