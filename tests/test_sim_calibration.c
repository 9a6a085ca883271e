/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration that comes with us, simulator/nodes and simulator/functions, shows Torpor's tables 3 and 4. */
#include "tests/sim_bench.h"

/* Torpor's node and models as the files say, DenseNet-169, ResNet-152 and Bert-qa in the bench's places. */
static void load(struct bench *bench)
{
	static const char *const names[] = {"DenseNet-169", "ResNet-152", "Bert-qa"};
	struct md_sim_node node;
	struct md_sim_functions all;
	struct md_error err = {0};
	cr_assert_eq(md_sim_node_read("simulator/nodes/torpor-v100.yaml", &node, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_functions_read("simulator/functions/torpor-models.yaml", &all, &err), MD_OK, "%s",
		     err.message);
	bench_init(bench);
	bench->node.host_bytes_per_s = node.host_bytes_per_s;
	bench->node.switch_bytes_per_s = node.switch_bytes_per_s;
	cr_assert_eq(node.gpu_count, MAX_GPUS);
	for (uint32_t i = 0; i < MAX_GPUS; i++)
		bench->gpus[i] = node.gpus[i];
	memcpy(bench->peers, node.peer_bytes_per_s, sizeof(bench->peers));
	for (int i = 0; i < 3; i++) {
		uint32_t model = 0;
		while (strcmp(all.models[model], names[i]))
			cr_assert_lt(++model, all.model_count, "no %s", names[i]);
		bench->functions[i] = all.templates[model];
	}
	md_sim_functions_finish(&all);
	md_sim_node_finish(&node);
}

/* Takes what has happened; adds up, and counts, the latencies of GPU 0. */
static void take(struct bench *bench, const uint64_t *began, bool *idle, double *sum, int *served)
{
	struct medusa_sched_event event;
	while (md_sim_model_event(bench->model, &event)) {
		if (event.type != MEDUSA_SCHED_EVENT_DONE)
			continue;
		idle[event.gpu] = true;
		if (event.gpu == 0) {
			*sum += (double)(event.now - began[0]) / (double)MS;
			++*served;
		}
	}
}

/* Function a on GPU 0 and, unless it is negative, b on its neighbour, each swapped in anew for each request: ms. */
static double mean_latency(int a, int b)
{
	struct bench bench;
	const int functions[] = {a, b};
	uint64_t began[2] = {0}, at = 0;
	bool idle[MAX_GPUS] = {true, b >= 0}, there[2] = {false};
	double sum = 0;
	int served = 0;
	load(&bench);
	bench_start(&bench);
	while (at < 60000 * MS) {
		for (uint32_t gpu = 0; gpu < 2; gpu++) {
			if (!idle[gpu])
				continue;
			if (there[gpu])
				apply(&bench, at,
				      weights(&bench, MEDUSA_SCHED_ACTION_EVICT, (uint32_t)functions[gpu], gpu));
			swap_and_run(&bench, at, (uint32_t)functions[gpu], gpu, gpu);
			began[gpu] = at;
			there[gpu] = true;
			idle[gpu] = false;
		}
		cr_assert(md_sim_model_due(bench.model, &at), "it stands still");
		md_sim_model_advance(bench.model);
		take(&bench, began, idle, &sum, &served);
	}
	assert_no_complaint(&bench);
	bench_finish(&bench);
	return sum / served;
}

Test(sim_calibration, swaps_alone_are_table_4)
{
	cr_assert_float_eq(mean_latency(DENSENET, -1), 27, 0.001);
	cr_assert_float_eq(mean_latency(RESNET, -1), 25, 0.001);
	cr_assert_float_eq(mean_latency(BERT, -1), 144, 0.001);
}

/* In per cent more than alone; 5 points are about what whole milliseconds hide at 25 ms. */
Test(sim_calibration, swaps_side_by_side_are_table_3)
{
	static const double paper[3][3] = {{0, 0, 0}, {7, 0, 48}, {11, 61, 0}};
	for (int a = 0; a < 3; a++)
		for (int b = 0; b < 3; b++) {
			if (a == b)
				continue;
			double more = 100 * (mean_latency(a, b) / mean_latency(a, -1) - 1);
			cr_expect_float_eq(more, paper[a][b], 5, "%d beside %d: %+.1f %%, the paper %+.0f %%", a, b,
					   more, paper[a][b]);
		}
}
