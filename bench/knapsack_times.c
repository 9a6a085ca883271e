/* SPDX-License-Identifier: Apache-2.0 */
/* Preloading and offloading: time at the paper's size and beyond, and how far from the best; as a Markdown page. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/machine.h"
#include "tests/judges/judges.h"
#include "tests/knapsack_cases.h"

#define ROUNDS 21
#define INSTANCES 12

/* CPU time of this thread: what else the machine does does not count. */
static uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;
	return one < other ? -1 : one > other;
}

typedef enum md_status (*solver)(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

/* Median and greatest of the rounds, ms. */
static double solve(solver solve_one, const struct md_knapsack *problem, double *median, double *most)
{
	double times[ROUNDS], value = 0;
	for (int i = 0; i < ROUNDS; i++) {
		struct md_knapsack_plan plan;
		uint64_t start = cpu_ns();
		if (solve_one(problem, &plan))
			exit(3);
		times[i] = (double)(cpu_ns() - start) / 1e6;
		value = plan.value;
		md_knapsack_plan_finish(&plan);
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	*median = times[ROUNDS / 2];
	*most = times[ROUNDS - 1];
	return value;
}

static void print_size(const char *name, const struct knapsack_shape *shape, int instances)
{
	double gap[2] = {0}, median[2] = {0}, most[2] = {0};
	for (int seed = 0; seed < instances; seed++) {
		struct knapsack_case one = knapsack_case_make(shape, 1000 + (uint64_t)seed);
		double bound;
		if (knapsack_bound(&one.problem, &bound))
			exit(3);
		for (int i = 0; i < 2; i++) {
			double mid, max,
			    value = solve(i ? md_knapsack_bundles : md_knapsack_greedy, &one.problem, &mid, &max);
			gap[i] += fmax(0, 1 - value / bound) / instances;
			median[i] = mid > median[i] ? mid : median[i];
			most[i] = max > most[i] ? max : most[i];
		}
		knapsack_case_finish(&one);
	}
	printf("| %s | %.2f (%.2f) | %.3f %% | %.2f (%.2f) | %.3f %% |\n", name, median[0], most[0], 100 * gap[0],
	       median[1], most[1], 100 * gap[1]);
}

static void print_sizes(void)
{
	printf("\n## Time, and value below an upper bound\n\n"
	       "Slowest instance of each row: median of %d runs, in brackets the slowest run, ms of CPU time. The "
	       "bound is the "
	       "Lagrangian dual's: no plan\nreaches more, the best one may have less.\n\n"
	       "| adapters, backbones, containers, GPUs | paper's greedy, ms | below bound | ours, ms | below bound |\n"
	       "|---|---|---|---|---|\n",
	       ROUNDS);
	struct knapsack_shape paper = {.functions = 50, .backbones = 20, .containers = 20, .gpus = 20};
	print_size("50, 20, 20, 20 (the paper's size), much room", &paper, INSTANCES);
	paper.container_gib = 6;
	paper.gpu_gib = 20;
	print_size("the same, room for about half", &paper, INSTANCES);
	paper.one_value = true;
	print_size("the same, one value as in the paper", &paper, INSTANCES);
	struct knapsack_shape node = {.functions = 100, .backbones = 4, .containers = 1, .gpus = 8};
	node.container_gib = 100;
	print_size("100, 4, 1, 8 (a node)", &node, 4);
	node.functions = 1000;
	node.container_gib = 1000;
	print_size("1,000, 4, 1, 8", &node, 4);
	node.functions = 10000;
	node.container_gib = 10000;
	print_size("10,000, 4, 1, 8", &node, 2);
}

static void print_gaps(void)
{
	double sum[2] = {0}, most[2] = {0};
	uint32_t solved = 0, one_percent[2] = {0};
	const uint32_t count = 1000;
	for (uint32_t seed = 0; seed < count; seed++) {
		struct knapsack_shape shape = {.functions = 3 + seed % 4,
					       .backbones = 1 + seed % 3,
					       .containers = 1 + seed % 3,
					       .gpus = 1 + seed / 3 % 2,
					       .own_weights = seed % 4 ? 0 : 0.3,
					       .one_value = seed % 2,
					       .container_gib = seed % 8 < 4 ? 12 : 6,
					       .gpu_gib = seed % 8 < 4 ? 40 : 20};
		struct knapsack_case one = knapsack_case_make(&shape, 5000 + seed);
		struct md_knapsack_plan plans[3] = {0};
		struct knapsack_proof proof;
		if (md_knapsack_greedy(&one.problem, &plans[0]) || md_knapsack_bundles(&one.problem, &plans[1]) ||
		    knapsack_exact(&one.problem, true, 1000000, &plans[2], &proof))
			exit(3);
		for (int i = 0; i < 2 && proof.proven && plans[2].value > 0; i++) {
			double gap = 1 - plans[i].value / plans[2].value;
			sum[i] += gap;
			most[i] = gap > most[i] ? gap : most[i];
			one_percent[i] += gap > 0.01;
			solved += i;
		}
		for (int i = 0; i < 3; i++)
			md_knapsack_plan_finish(&plans[i]);
		knapsack_case_finish(&one);
	}
	printf("\n## Value below the optimum\n\n%u random instances of 3 to 6 functions, 1 to 3 backbones and "
	       "containers, 1 or 2 GPUs; %u solved exactly (at most\n1,000,000 nodes).\n\n"
	       "| | mean | greatest | more than 1 %% |\n|---|---|---|---|\n",
	       count, solved);
	for (int i = 0; i < 2; i++)
		printf("| %s | %.4f %% | %.2f %% | %u |\n", i ? "ours" : "paper's greedy", 100 * sum[i] / solved,
		       100 * most[i], one_percent[i]);
}

/* ---- offloading ---- */

#define RESIDENTS 60

static uint32_t make_residents(struct md_knapsack_resident *residents, uint32_t count, uint64_t seed, uint64_t *all)
{
	uint64_t random = seed * 77 + 1;
	*all = 0;
	for (uint32_t i = 0; i < count; i++) {
		bool backbone = i < 2, kernels = i % 2;
		double gib = backbone ? case_between(&random, 12, 26) : case_between(&random, 0.05, 0.9);
		residents[i] =
		    (struct md_knapsack_resident){.bytes = (uint64_t)(gib * (1ull << 30)),
						  .value = case_between(&random, 0.01, 1) * (backbone ? 8 : 1),
						  .needs = backbone  ? MD_KNAPSACK_NONE
							   : kernels ? i - 1
								     : i / 2 % 2};
		*all += residents[i].bytes;
	}
	return count;
}

static void print_offloading(void)
{
	struct md_knapsack_resident residents[RESIDENTS];
	double sum[2] = {0}, most[2] = {0}, us[2] = {0};
	bool gone[RESIDENTS];
	uint64_t all;
	uint32_t solved = 0;
	for (uint64_t seed = 0; seed < 500; seed++) {
		struct md_knapsack_loss loss[3];
		struct knapsack_proof proof;
		uint32_t count = make_residents(residents, (uint32_t)(8 + seed % 13), seed, &all);
		uint64_t bytes = all * (1 + seed % 7) / 10;
		if (md_knapsack_offload_greedy(residents, count, bytes, gone, &loss[0]) ||
		    md_knapsack_offload(residents, count, bytes, gone, &loss[1]) ||
		    offload_exact(residents, count, bytes, 1000000, gone, &loss[2], &proof))
			exit(3);
		for (int i = 0; i < 2 && proof.proven && loss[2].enough && loss[2].value > 0; i++) {
			double gap = loss[i].value / loss[2].value - 1;
			sum[i] += gap;
			most[i] = gap > most[i] ? gap : most[i];
			solved += i;
		}
	}
	make_residents(residents, RESIDENTS, 1, &all);
	for (int i = 0; i < 2; i++) {
		struct md_knapsack_loss loss;
		uint64_t start = cpu_ns();
		for (int round = 0; round < 1000; round++)
			(i ? md_knapsack_offload : md_knapsack_offload_greedy)(residents, RESIDENTS, all / 4, gone,
									       &loss);
		us[i] = (double)(cpu_ns() - start) / 1e6;
	}
	printf("\n## Offloading\n\nValue lost beyond the least, on %u instances of 8 to 20 residents that were solved "
	       "exactly; CPU time for %d residents, a quarter\nof their bytes.\n\n"
	       "| | mean | greatest | us |\n|---|---|---|---|\n",
	       solved, RESIDENTS);
	for (int i = 0; i < 2; i++)
		printf("| %s | %.2f %% | %.1f %% | %.1f |\n", i ? "ours" : "paper's greedy", 100 * sum[i] / solved,
		       100 * most[i], us[i]);
}

int main(void)
{
	printf("# Preloading as a knapsack\n\nMade by `bench/knapsack_times`: random LoRA functions "
	       "(tests/knapsack_cases.h), "
	       "sizes of 7 to 14 billion parameters. xLoRA (section\n5.12) reports 40 ms and 1.6 %% below the optimum "
	       "at its size. ");
	print_machine();
	print_sizes();
	print_gaps();
	print_offloading();
	return 0;
}
