/* SPDX-License-Identifier: Apache-2.0 */
/* A run over time: intervals that stay few however long it takes, levels worked out by hand, sums that equal the whole run's. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "simulator/run/run_state.h"
#include "tests/sim_bench.h"

#define S UINT64_C(1000000000)
#define GPUS 2

static struct md_sim_track track_of(uint64_t end_ns)
{
	struct md_sim_track track;
	struct md_error err = {0};
	cr_assert_eq(md_sim_track_init(&track, end_ns, GPUS, &err), MD_OK, "%s", err.message);
	return track;
}

static void pass(struct md_sim_track *track, uint64_t until, uint64_t waiting, uint64_t running)
{
	const struct md_sim_memory memory[GPUS] = {{.artifacts = 60 * waiting, .kv = 7, .residues = 2, .free = 100},
						   {.artifacts = 1, .kv = running, .free = 3}};
	const struct md_sim_levels levels = {.waiting = waiting, .running = running, .memory = memory};
	md_sim_track_pass(track, until, &levels);
}

static struct md_sim_series conclude(struct md_sim_track *track)
{
	struct md_sim_series series;
	struct md_error err = {0};
	cr_assert_eq(md_sim_track_conclude(track, &series, &err), MD_OK, "%s", err.message);
	md_sim_track_finish(track);
	return series;
}

/* ---- intervals ---------------------------------------------------------------------------------------------------- */

Test(sim_series, intervals_are_round_and_few)
{
	static const struct {
		double end_s, interval_s;
	} cases[] = {{0, 0.001}, {0.3, 0.001}, {1, 0.005}, {60, 0.2}, {600, 2}, {3600, 10}, {24 * 86400, 10000}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_sim_track track = track_of((uint64_t)(cases[i].end_s * 1e9));
		cr_expect_float_eq((double)track.interval_ns * 1e-9, cases[i].interval_s, 1e-12, "%g s: every %g s",
				   cases[i].end_s, (double)track.interval_ns * 1e-9);
		md_sim_track_finish(&track);
	}
	struct md_sim_track track = track_of(UINT64_MAX); /* nonsense ends, too */
	cr_expect(track.interval_ns > S);
	md_sim_track_finish(&track);
}

/* 2 waiting for 3 s, 8 for 1 s, nothing for 2 s, in intervals of 2 s; an event at a border belongs to what ends there. */
Test(sim_series, levels_are_means_over_time)
{
	struct md_sim_track track = track_of(600 * S);
	pass(&track, 3 * S, 2, 1);
	md_sim_track_now(&track)->arrived += 5;
	pass(&track, 4 * S, 8, 4);
	md_sim_track_now(&track)->met += 1;
	pass(&track, 6 * S, 0, 0);
	struct md_sim_series series = conclude(&track);
	cr_assert_eq(series.count, 3, "not %zu", series.count);
	static const struct md_sim_point points[] = {
	    {.waiting = 2, .running = 1, .waiting_most = 2},
	    {.waiting = 5, .running = 2.5, .waiting_most = 8, .arrived = 5, .met = 1},
	    {.waiting = 0}};
	for (size_t i = 0; i < 3; i++) {
		cr_expect_float_eq(series.points[i].waiting, points[i].waiting, 1e-12, "waiting in %zu", i);
		cr_expect_float_eq(series.points[i].running, points[i].running, 1e-12, "running in %zu", i);
		cr_expect_eq(series.points[i].waiting_most, points[i].waiting_most, "most in %zu", i);
		cr_expect_eq(series.points[i].arrived, points[i].arrived, "arrived in %zu", i);
		cr_expect_eq(series.points[i].met, points[i].met, "met in %zu", i);
	}
	cr_expect_eq(series.memory[1 * GPUS].artifacts, 300, "60 x 5, not %llu",
		     (unsigned long long)series.memory[1 * GPUS].artifacts);
	cr_expect_eq(series.memory[1 * GPUS].kv, 7);
	cr_expect_eq(series.memory[1 * GPUS].residues, 2);
	cr_expect_eq(series.memory[1 * GPUS + 1].free, 3, "the other GPU");
	md_sim_series_finish(&series);
}

Test(sim_series, the_last_interval_may_be_short)
{
	struct md_sim_track track = track_of(600 * S);
	pass(&track, 2 * S, 1, 0);
	pass(&track, 2 * S + S / 2, 6, 0);
	struct md_sim_series series = conclude(&track);
	cr_assert_eq(series.count, 2);
	cr_expect_float_eq(series.points[1].waiting, 6, 1e-12, "the mean of half a second, not of 2 s");
	md_sim_series_finish(&series);
	track = track_of(600 * S);
	series = conclude(&track);
	cr_expect_eq(series.count, 1, "no time has passed");
	cr_expect_eq(series.points[0].waiting, 0);
	md_sim_series_finish(&series);
}

/* A run may take far longer than its trace: nothing is lost when intervals are merged, and there are never more. */
Test(sim_series, long_runs_merge_intervals)
{
	struct md_sim_track track = track_of(400 * S);
	uint64_t interval = track.interval_ns, served = 0;
	double waited = 0, covered = 0;
	for (uint64_t at = 1; at <= 5000; at++) {
		pass(&track, at * S, at % 7, at % 3);
		waited += (double)(at % 7);
		md_sim_track_now(&track)->served++;
		cr_assert_leq(track.count, MD_SIM_POINTS_MAX);
	}
	pass(&track, UINT64_C(1000000) * S, 0, 0); /* an idle gap of days */
	struct md_sim_series series = conclude(&track);
	cr_assert(series.count <= MD_SIM_POINTS_MAX && series.count > MD_SIM_POINTS_MAX / 2, "%zu", series.count);
	uint64_t doubled = series.interval_ns / interval;
	cr_expect(series.interval_ns % interval == 0 && (doubled & (doubled - 1)) == 0,
		  "twice as long, again and again");
	double sum = 0;
	for (size_t i = 0; i < series.count; i++) {
		double length = i + 1 < series.count ? (double)series.interval_ns * 1e-9 : 1e6 - covered;
		covered += length;
		sum += series.points[i].waiting * length;
		served += series.points[i].served;
	}
	cr_expect_eq(served, 5000);
	cr_expect_float_eq(sum, waited, 1e-6 * waited, "%g of %g waited", sum, waited);
	md_sim_series_finish(&series);
}

/* ---- what lies on a GPU --------------------------------------------------------------------------------------------- */

static void assert_memory(const struct bench *bench, uint32_t gpu, struct md_sim_memory wanted, const char *when)
{
	struct md_sim_memory memory;
	md_sim_model_memory(bench->model, gpu, &memory);
	cr_expect_eq(memory.artifacts, wanted.artifacts, "%s: artifacts %llu", when,
		     (unsigned long long)memory.artifacts);
	cr_expect_eq(memory.kv, wanted.kv, "%s: KV %llu", when, (unsigned long long)memory.kv);
	cr_expect_eq(memory.residues, wanted.residues, "%s: residues %llu", when, (unsigned long long)memory.residues);
	cr_expect_eq(memory.free, wanted.free, "%s: free %llu", when, (unsigned long long)memory.free);
}

Test(sim_series, memory_by_what_it_holds)
{
	struct bench bench;
	bench_init(&bench);
	struct md_sim_function *function = &bench.functions[BERT];
	uint64_t weight = function->spec.weight_bytes, limit = bench.gpus[0].memory_bytes;
	function->spec.context_bytes = 500;
	function->spec.residue_bytes = 200;
	function->spec.kv_bytes = 1000;
	bench_start(&bench);
	assert_memory(&bench, 0, (struct md_sim_memory){.free = limit}, "at the start");
	struct medusa_sched_action context = weights(&bench, MEDUSA_SCHED_ACTION_SWAP_IN, BERT, 0);
	context.artifact = MEDUSA_SCHED_CLASS_CONTEXT;
	context.source = MEDUSA_SCHED_SOURCE_MADE;
	context.bytes = 500;
	apply(&bench, 0, context);
	swap_and_run(&bench, 0, BERT, 0, 0);
	cr_expect_eq(md_sim_model_running(bench.model), 1);
	assert_memory(&bench, 0,
		      (struct md_sim_memory){.artifacts = weight + 500, .kv = 1000, .free = limit - weight - 1500},
		      "while it runs");
	play(&bench, 10000 * MS);
	cr_expect_eq(md_sim_model_running(bench.model), 0);
	assert_memory(&bench, 0, (struct md_sim_memory){.artifacts = weight + 500, .free = limit - weight - 500},
		      "idle");
	context.type = MEDUSA_SCHED_ACTION_EVICT;
	context.transfer = 0;
	context.bytes = 300;
	apply(&bench, 10000 * MS, context);
	assert_memory(&bench, 0,
		      (struct md_sim_memory){.artifacts = weight, .residues = 200, .free = limit - weight - 200},
		      "its context evicted");
	context.type = MEDUSA_SCHED_ACTION_OFFLOAD;
	context.bytes = 200;
	apply(&bench, 10000 * MS, context);
	assert_memory(&bench, 0, (struct md_sim_memory){.artifacts = weight, .free = limit - weight}, "offloaded");
	assert_no_complaint(&bench);
	bench_finish(&bench);
}

Test(sim_series, a_lost_gpu_has_nothing)
{
	const struct medusa_sched_event lost = {.type = MEDUSA_SCHED_EVENT_GPU_LOST, .now = 50 * MS, .gpu = 0};
	struct bench bench;
	bench_init(&bench);
	bench.options.faults = &lost;
	bench.options.fault_count = 1;
	bench_start(&bench);
	swap_and_run(&bench, 0, BERT, 0, 0);
	play(&bench, 60 * MS);
	assert_memory(&bench, 0, (struct md_sim_memory){0}, "lost");
	cr_expect_eq(md_sim_model_running(bench.model), 0);
	bench_finish(&bench);
}

/* ---- whole runs ----------------------------------------------------------------------------------------------------- */

struct scene {
	struct md_sim_node node;
	struct md_sim_functions functions;
	struct md_sim_workload workload;
};

static void read_scene(struct scene *scene, const char *node, const char *functions)
{
	const struct md_sim_workload_options options = {.seed = 3, .duration_ns = 60 * S};
	char path[128];
	struct md_error err = {0};
	snprintf(path, sizeof(path), "simulator/nodes/%s.yaml", node);
	cr_assert_eq(md_sim_node_read(path, &scene->node, &err), MD_OK, "%s", err.message);
	snprintf(path, sizeof(path), "simulator/functions/%s.yaml", functions);
	cr_assert_eq(md_sim_functions_read(path, &scene->functions, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_sim_workload_read("mmpp", &scene->functions, &options, &scene->workload, &err), MD_OK, "%s",
		     err.message);
}

static void assert_memory_adds_up(const struct md_sim_series *series, const struct md_sim_node *node, const char *what)
{
	for (size_t i = 0; i < series->count * series->gpu_count; i++) {
		const struct md_sim_memory *memory = &series->memory[i];
		uint64_t sum = memory->artifacts + memory->kv + memory->residues + memory->free;
		uint64_t all = node->gpus[i % series->gpu_count].memory_bytes;
		/* each of the four means is rounded down */
		cr_assert(sum <= all && sum + 4 >= all, "%s: point %zu holds %llu of %llu", what, i,
			  (unsigned long long)sum, (unsigned long long)all);
	}
}

static double length_s(const struct md_sim_result *result, size_t index)
{
	double interval = (double)result->series.interval_ns * 1e-9, left = result->end_s - interval * (double)index;
	return left < interval ? left : interval;
}

static double waited_s(const struct md_sim_result *result)
{
	return md_sim_samples_mean(&result->wait_ms) * (double)result->wait_ms.count * 1e-3;
}

static void assert_adds_up(const struct scene *scene, const struct md_sim_result *result)
{
	const struct md_sim_series *series = &result->series;
	const char *name = result->policy->name;
	struct md_sim_point sum = {0};
	uint64_t rejected = 0, swaps = 0;
	for (size_t i = 0; i < series->count; i++) {
		sum.arrived += series->points[i].arrived;
		sum.served += series->points[i].served;
		sum.met += series->points[i].met;
		sum.rejected += series->points[i].rejected;
		sum.swaps += series->points[i].swaps;
		sum.waiting += series->points[i].waiting * length_s(result, i);
	}
	for (size_t reason = 0; reason < MD_SIM_REASONS; reason++)
		rejected += result->rejected[reason];
	for (uint32_t f = 0; f < result->function_count; f++)
		swaps += result->functions[f].swaps;
	cr_expect_eq(sum.arrived, result->requests, "%s: arrived", name);
	cr_expect_eq(sum.served, result->served, "%s: served", name);
	cr_expect_eq(sum.met, result->met, "%s: in time", name);
	cr_expect_eq(sum.rejected, rejected, "%s: rejected", name);
	cr_expect_eq(sum.swaps, result->stats.swaps_host + result->stats.swaps_peer + result->stats.swaps_cold,
		     "%s: swaps", name);
	cr_expect_eq(swaps, sum.swaps, "%s: swaps by function", name);
	/* the time that requests waited is the area below the queue's length */
	if (result->served == result->requests)
		cr_expect_float_eq(sum.waiting, waited_s(result), 1e-6 * waited_s(result) + 1e-9,
				   "%s: %g s waited, %g s in the queue", name, waited_s(result), sum.waiting);
	cr_expect(series->count > 1 && (double)series->count * (double)series->interval_ns * 1e-9 >= result->end_s,
		  "%s: the whole run", name);
	assert_memory_adds_up(series, &scene->node, name);
}

Test(sim_series, the_sum_is_the_whole)
{
	static const struct {
		const char *node, *functions;
	} cases[] = {
	    {"torpor-v100", "torpor-models"}, {"l40s-xlora", "xlora-llama2"}, {"h100-swapserve", "swapserve-models"}};
	static const char *const policies[] = {"torpor", "fifo-lru", "native", "medusa"};
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct scene scene;
		read_scene(&scene, cases[c].node, cases[c].functions);
		for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++) {
			struct md_sim_result result;
			struct md_error err = {0};
			cr_assert_eq(md_sim_run(&scene.node, &scene.functions, &scene.workload,
						md_sim_policy_find(policies[p]), 1, NULL, &result, &err),
				     MD_OK, "%s: %s", cases[c].node, err.message);
			assert_adds_up(&scene, &result);
			md_sim_result_finish(&result);
		}
		md_sim_workload_finish(&scene.workload);
		md_sim_functions_finish(&scene.functions);
		md_sim_node_finish(&scene.node);
	}
}
