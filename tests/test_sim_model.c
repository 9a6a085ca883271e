/* SPDX-License-Identifier: Apache-2.0 */
/* The node model, driven by hand: links and their shares, swaps as given, pipelining, order, faults,
 * Torpor's Table 3. */
#include <math.h>

#include "simulator/model/links.h"
#include "tests/sim_bench.h"

/* ---- links ------------------------------------------------------------------------------------------------------ */

static double speed_of(const struct md_sim_links *links, uint32_t user)
{
	for (size_t i = 0; i < links->count; i++)
		if (links->flows[i].user == user)
			return links->flows[i].speed;
	return -1;
}

Test(sim_links, shares_are_max_min_fair)
{
	struct md_sim_links links = {0};
	uint32_t slow, fast, shared, user;
	uint64_t at;
	cr_assert(md_sim_links_add(&links, 2 * GB, &slow) && md_sim_links_add(&links, 12 * GB, &fast) &&
		  md_sim_links_add(&links, 12 * GB, &shared));
	cr_assert(md_sim_links_start(&links, 0, 20e6, slow, shared, 1));
	cr_assert(md_sim_links_start(&links, 0, 100e6, fast, shared, 2));
	cr_assert_float_eq(speed_of(&links, 1), 2, 1e-9, "bound by its own link");
	cr_assert_float_eq(speed_of(&links, 2), 10, 1e-9, "takes what the slow one leaves");
	cr_assert(md_sim_links_start(&links, 5 * MS, 100e6, fast, shared, 3));
	cr_assert_float_eq(speed_of(&links, 2), 5, 1e-9, "equal parts");
	cr_assert_float_eq(speed_of(&links, 3), 5, 1e-9, "equal parts");
	/* Flow 2 has 50 MB left at 5 ms: flow 1 ends at 10 ms, then flows 2 and 3 share 12 GB/s. */
	cr_assert(md_sim_links_next(&links, &at, &user));
	cr_assert(user == 1 && at == 10 * MS);
	md_sim_links_stop(&links, at, user);
	cr_assert_float_eq(speed_of(&links, 2), 6, 1e-9, "the link is theirs");
	cr_assert(md_sim_links_next(&links, &at, &user));
	cr_assert(user == 2 && at == 10 * MS + (uint64_t)llround(25e6 / 6), "ended at %llu", (unsigned long long)at);
	md_sim_links_finish(&links);
}

Test(sim_links, without_bound_takes_no_time)
{
	struct md_sim_links links = {0};
	uint32_t free_link, user;
	uint64_t at;
	cr_assert(md_sim_links_add(&links, 0, &free_link));
	cr_assert(md_sim_links_start(&links, 7, 1e12, free_link, MD_SIM_NO_LINK, 4));
	cr_assert(md_sim_links_next(&links, &at, &user));
	cr_assert(user == 4 && at == 7);
	md_sim_links_finish(&links);
}

/* ---- swaps ------------------------------------------------------------------------------------------------------ */

Test(sim_model, undisturbed_swaps_take_what_is_given)
{
	const double tails[] = {0, 0.08, 0.5, 1};
	for (size_t t = 0; t < 4; t++) {
		for (uint32_t function = 0; function < 3; function++) {
			struct bench bench;
			bench_init(&bench);
			bench.functions[function].tail = tails[t];
			bench_start(&bench);
			swap_and_run(&bench, 3, function, 0, 0);
			play(&bench, UINT64_MAX);
			cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0) - 3,
				     bench.functions[function].spec.swap_ns, "function %u, tail %g: %llu", function,
				     tails[t], (unsigned long long)bench.events[bench.count - 1].now);
			struct medusa_sched_action from = weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, function, 1);
			uint64_t request = 1, now = 1000 * MS;
			from.source = MEDUSA_SCHED_SOURCE_PEER;
			from.peer = 0;
			apply(&bench, now, from);
			apply(&bench, now, run(&bench, function, 1, &request, 1));
			play(&bench, UINT64_MAX);
			cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1) - now,
				     bench.functions[function].spec.swap_peer_ns, "from a peer: function %u, tail %g",
				     function, tails[t]);
			assert_no_complaint(&bench);
			bench_finish(&bench);
		}
	}
}

Test(sim_model, what_is_there_runs_at_once)
{
	struct bench bench;
	const uint64_t requests[] = {1, 2, 3};
	bench_init(&bench);
	bench.functions[BERT].spec.alpha_ns = 5 * MS;
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 2, 0);
	play(&bench, UINT64_MAX);
	apply(&bench, 500 * MS, run(&bench, BERT, 2, requests, 3));
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 3), 553 * MS, "T(3) = 43 + 2 x 5 ms");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_FIRST_TOKEN, 1), 553 * MS, "first tokens come with T(b)");
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

/* Without a tail, computation may end with the copies, and never before. */
Test(sim_model, no_result_before_its_weights)
{
	struct bench bench;
	bench_init(&bench);
	bench.functions[BERT].tail = 0;
	bench.functions[BERT].spec.swap_ns = 0;
	bench.functions[BERT].spec.weight_bytes = 980000000;
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 100 * MS, "980 MB at 9.8 GB/s");
	bench_finish(&bench);
}

Test(sim_model, switch_neighbours_share_others_do_not)
{
	struct bench bench;
	bench_init(&bench);
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	swap_and_run(&bench, 0, BERT, 2, 1);
	play(&bench, UINT64_MAX);
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), 149 * MS, "another switch");
	cr_assert_eq(time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 1), 149 * MS, "another switch");
	bench_finish(&bench);

	bench_init(&bench);
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	swap_and_run(&bench, 0, BERT, 1, 1);
	play(&bench, UINT64_MAX);
	/* 1.34 GB at 5.6 GB/s, and 0.08 x 43 ms behind it. */
	double expected = 1.34e9 / 5.6 + 0.08 * 43e6;
	cr_assert_float_eq((double)time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0), expected, 2e6, "one switch: %llu",
			   (unsigned long long)time_of(&bench, MEDUSA_SCHED_EVENT_DONE, 0));
	bench_finish(&bench);
}

/* ---- Torpor's Table 3 -------------------------------------------------------------------------------------------- */

/*
 * The paper's two tables disagree about ResNet-152 and Bert-qa alone (29 and 149 ms in table 3, 25 and 144 in table 4):
 * the same model fits either with the public models' weights in float32.
 */
static const struct calibration {
	const char *name;
	double host, pcie_switch;
	uint64_t swap_ms[3];
	double tail[3];
} calibrations[] = {
    {"table 3's diagonal", 9.8 * GB, 11.2 * GB, {27, 29, 149}, {0.08, 0.08, 0.08}},
    {"table 4", 10.6 * GB, 12.4 * GB, {27, 25, 144}, {0.02, 0.02, 0.3}},
};

static void calibrate(struct bench *bench, const struct calibration *calibration)
{
	bench->node.host_bytes_per_s = calibration->host;
	bench->node.switch_bytes_per_s = calibration->pcie_switch;
	for (int i = 0; i < 3; i++) {
		bench->functions[i].spec.swap_ns = calibration->swap_ms[i] * MS;
		bench->functions[i].tail = calibration->tail[i];
	}
}

/* Functions a on GPU 0 and b on GPU 1 of one switch (b < 0: nobody), each swapped in anew for each request. */
static double mean_latency(const struct calibration *calibration, int a, int b)
{
	struct bench bench;
	const int functions[] = {a, b};
	uint64_t began[2] = {0}, at = 0;
	double sum = 0;
	int served = 0;
	bool idle[] = {true, b >= 0}, there[2] = {false};
	bench_init(&bench);
	calibrate(&bench, calibration);
	bench_start(&bench);
	while (at < 100000 * MS) {
		for (uint32_t gpu = 0; gpu < 2; gpu++) {
			if (!idle[gpu])
				continue;
			uint32_t function = (uint32_t)functions[gpu];
			if (there[gpu])
				apply(&bench, at, weights(&bench, MEDUSA_SCHED_ACTION_EVICT, function, gpu));
			swap_and_run(&bench, at, function, gpu, gpu);
			began[gpu] = at;
			there[gpu] = true;
			idle[gpu] = false;
		}
		cr_assert(md_sim_model_due(bench.model, &at), "it stands still");
		md_sim_model_advance(bench.model);
		struct medusa_sched_event event;
		while (md_sim_model_event(bench.model, &event)) {
			if (event.type != MEDUSA_SCHED_EVENT_DONE)
				continue;
			idle[event.gpu] = true;
			if (event.gpu == 0) {
				sum += (double)(event.now - began[0]) / (double)MS;
				served++;
			}
		}
	}
	assert_no_complaint(&bench);
	bench_finish(&bench);
	return sum / served;
}

/*
 * The paper rounds to whole milliseconds, which alone is 4 points at 25 ms; the model has a few numbers (the two links'
 * speeds, a tail or two) for six entries. 5 points distinguish it from links without sharing (0), from a copy that
 * fills the switch alone (Bert-qa beside DenseNet-169 +20), and from a model without pipelining.
 */
static void assert_table_3(const struct calibration *calibration)
{
	static const char *const names[] = {"DenseNet-169", "ResNet-152", "Bert-qa"};
	static const double paper[3][3] = {{0, 0, 0}, {7, 0, 48}, {11, 61, 0}};
	printf("  alone as in %s:\n", calibration->name);
	for (int a = 0; a < 3; a++) {
		double alone = mean_latency(calibration, a, -1);
		cr_assert_float_eq(alone, (double)calibration->swap_ms[a], 0.001, "%s alone: %.3f ms", names[a], alone);
		for (int b = 0; b < 3; b++) {
			if (a == b)
				continue;
			double beside = mean_latency(calibration, a, b), more = 100 * (beside / alone - 1);
			printf("  %-12s beside %-12s %6.1f ms (%+.1f %%; Torpor %+.0f %%)\n", names[a], names[b],
			       beside, more, paper[a][b]);
			cr_expect_float_eq(more, paper[a][b], 5, "%s beside %s: %+.1f %%, the paper %+.0f %%", names[a],
					   names[b], more, paper[a][b]);
		}
	}
}

Test(sim_model, torpors_table_3)
{
	for (size_t i = 0; i < sizeof(calibrations) / sizeof(calibrations[0]); i++)
		assert_table_3(&calibrations[i]);
}
