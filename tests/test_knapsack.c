/* SPDX-License-Identifier: Apache-2.0 */
/* Preloading: the rules hold, the exact solver is exact, and the others are near it. */
#include <criterion/criterion.h>

#include "tests/judges/judges.h"
#include "tests/knapsack_cases.h"
#include "tests/knapsack_check.h"

#define NONE MD_KNAPSACK_NONE
#define GIB (1ull << 30)
#ifdef MD_SANITIZED
#define PART 10 /* of the random instances */
#else
#define PART 1
#endif

typedef enum md_status (*solver)(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

static enum md_status solve_exactly(const struct md_knapsack *problem, struct md_knapsack_plan *plan)
{
	struct knapsack_proof proof;
	return knapsack_exact(problem, true, 300000 / PART, plan, &proof);
}

static void assert_near(double value, double expected, const char *what)
{
	cr_assert(fabs(value - expected) <= 1e-9 * (fabs(expected) + 1), "%s: %.12g, expected %.12g", what, value,
		  expected);
}

/* ---- the rules --------------------------------------------------------------------------------------------------- */

static double assert_follows_rules(const struct md_knapsack *problem, solver solve, uint64_t seed)
{
	uint64_t *at = calloc(problem->artifact_count + 1, sizeof(*at));
	struct md_knapsack_plan plan;
	struct knapsack_check check;
	cr_assert(at);
	cr_assert_eq(solve(problem, &plan), MD_OK, "seed %llu", (unsigned long long)seed);
	check_begin(&check, problem, at);
	double before = check_value(&check);
	for (uint32_t i = 0; i < plan.count; i++) {
		check_put(&check, &plan.placements[i], false);
		cr_assert_str_empty(check.broken, "seed %llu, step %u: %s", (unsigned long long)seed, i, check.broken);
	}
	double value = check_value(&check);
	assert_near(plan.value, value, "value");
	assert_near(plan.added, value - before, "added value");
	md_knapsack_plan_finish(&plan);
	free(at);
	return value;
}

static struct knapsack_shape shape_of(uint64_t seed)
{
	return (struct knapsack_shape){
	    .functions = 1 + seed % 23,
	    .backbones = seed / 2 % 7,
	    .containers = seed / 3 % 6,
	    .gpus = seed / 5 % 6,
	    .own_weights = seed % 4 ? 0 : 0.4,
	    .without = seed % 5 ? 0 : 0.15,
	    .one_value = seed % 2,
	    .container_gib = 4 + seed % 3 * 8,
	    .gpu_gib = 12 + seed % 4 * 12,
	};
}

/* Part of what a solver placed lies there already. */
static void hold_some(struct knapsack_case *one, uint64_t seed)
{
	struct md_knapsack_plan plan;
	cr_assert_eq(md_knapsack_greedy(&one->problem, &plan), MD_OK);
	for (uint32_t i = 0; i < plan.count; i++)
		if ((seed * 2654435761u + i * 40503u) % 7 < 3)
			one->held[one->problem.held_count++] = plan.placements[i];
	md_knapsack_plan_finish(&plan);
}

static void assert_random_instances_follow_rules(solver solve, uint64_t count)
{
	for (uint64_t seed = 0; seed < count; seed++) {
		struct knapsack_shape shape = shape_of(seed);
		struct knapsack_case one = knapsack_case_make(&shape, seed);
		if (seed % 3 == 2)
			hold_some(&one, seed);
		assert_follows_rules(&one.problem, solve, seed);
		knapsack_case_finish(&one);
	}
}

Test(knapsack, rules_of_the_papers_greedy)
{
	assert_random_instances_follow_rules(md_knapsack_greedy, 10000 / PART);
}

Test(knapsack, rules_of_bundles)
{
	assert_random_instances_follow_rules(md_knapsack_bundles, 2500 / PART);
}

Test(knapsack, rules_of_exact)
{
	for (uint64_t seed = 0; seed < 300 / PART; seed++) {
		struct knapsack_shape shape = shape_of(seed);
		shape.functions = 1 + seed % 4;
		shape.backbones = seed % 3;
		shape.containers = 1 + seed % 2;
		shape.gpus = 1 + seed / 2 % 2;
		struct knapsack_case one = knapsack_case_make(&shape, seed);
		if (seed % 3 == 2)
			hold_some(&one, seed);
		assert_follows_rules(&one.problem, solve_exactly, seed);
		knapsack_case_finish(&one);
	}
}

/* ---- the paper's greedy, step by step ---- */

Test(knapsack, greedy_takes_the_densest_that_is_possible_now)
{
	static const struct md_knapsack_place places[] = {{.bytes = 4 * GIB}, {.bytes = 20 * GIB, .gpu = true}};
	static const struct md_knapsack_function functions[] = {{.backbone = 0, .rate = 1}, {.backbone = 0, .rate = 2}};
	static const struct md_knapsack_artifact artifacts[] = {
	    {MD_KNAPSACK_BACKBONE, 0, 12 * GIB, 6, 6}, /* (1 + 2) x 6 / 12 = 1.5 */
	    {MD_KNAPSACK_LIBRARY, 0, 2 * GIB, 4, 0},   /* 2 */
	    {MD_KNAPSACK_ADAPTER, 0, 1 * GIB, 3, 3},   /* 3, but after its library */
	    {MD_KNAPSACK_KERNELS, 0, 1 * GIB, 0, 9},   /* 9, but after its models */
	    {MD_KNAPSACK_LIBRARY, 1, 2 * GIB, 1, 0},   /* 1 */
	    {MD_KNAPSACK_ADAPTER, 1, 1 * GIB, 1, 1},   /* 2 */
	    {MD_KNAPSACK_KERNELS, 1, 1 * GIB, 0, 1},   /* 2 */
	};
	const struct md_knapsack problem = {.places = places,
					    .functions = functions,
					    .artifacts = artifacts,
					    .place_count = 2,
					    .function_count = 2,
					    .backbone_count = 1,
					    .artifact_count = 7};
	struct md_knapsack_plan plan;
	bool there[7] = {0};
	cr_assert_eq(md_knapsack_greedy(&problem, &plan), MD_OK);
	/* Library 0 (2), adapter 0 into the container (3), backbone (1.5), kernels 0 (9); 1 GiB is left
	 * for library 1. */
	cr_assert_eq(plan.count, 4);
	for (uint32_t i = 0; i < plan.count; i++)
		there[plan.placements[i].artifact] = true;
	cr_assert(there[0] && there[1] && there[2] && there[3]);
	assert_near(plan.value, 18 + 4 + 3 + 9, "value");
	md_knapsack_plan_finish(&plan);

	/* A bundle sees that the adapter is better off on the GPU. */
	cr_assert_eq(md_knapsack_bundles(&problem, &plan), MD_OK);
	cr_assert_eq(plan.count, 7);
	assert_near(plan.value, 18 + 4 + 3 + 9 + 2 + 2 + 2, "value");
	md_knapsack_plan_finish(&plan);
}

Test(knapsack, greedy_takes_the_first_place_with_room_and_gpus_first)
{
	static const struct md_knapsack_place places[] = {
	    {.bytes = 1}, {.bytes = 8}, {.bytes = 9}, {.bytes = 2, .gpu = true}, {.bytes = 8, .gpu = true}, {9, true}};
	static const struct md_knapsack_function function = {.backbone = NONE, .rate = 1};
	static const struct md_knapsack_artifact artifacts[] = {
	    {MD_KNAPSACK_LIBRARY, 0, 4, 4, 0}, {MD_KNAPSACK_ADAPTER, 0, 4, 4, 4}, {MD_KNAPSACK_KERNELS, 0, 2, 0, 1}};
	static const struct md_knapsack_placement expected[] = {{0, 1}, {1, 4}, {2, 4}};
	const struct md_knapsack problem = {.places = places,
					    .functions = &function,
					    .artifacts = artifacts,
					    .place_count = 6,
					    .function_count = 1,
					    .artifact_count = 3};
	struct md_knapsack_plan plan;
	cr_assert_eq(md_knapsack_greedy(&problem, &plan), MD_OK);
	cr_assert_eq(plan.count, 3);
	cr_assert_arr_eq(plan.placements, expected, sizeof(expected));
	md_knapsack_plan_finish(&plan);
}

Test(knapsack, a_shared_backbone_counts_once)
{
	static const struct md_knapsack_place places[] = {
	    {.bytes = 100 * GIB}, {.bytes = 16 * GIB, .gpu = true}, {.bytes = 16 * GIB, .gpu = true}};
	static const struct md_knapsack_function functions[] = {{.backbone = 0, .rate = 1}, {.backbone = 0, .rate = 2}};
	static const struct md_knapsack_artifact artifacts[] = {
	    {MD_KNAPSACK_BACKBONE, 0, 12 * GIB, 1, 5}, {MD_KNAPSACK_LIBRARY, 0, GIB, 1, 0},
	    {MD_KNAPSACK_LIBRARY, 1, GIB, 1, 0},       {MD_KNAPSACK_ADAPTER, 0, GIB, 0, 1},
	    {MD_KNAPSACK_ADAPTER, 1, 3 * GIB, 0, 1},   {MD_KNAPSACK_KERNELS, 0, GIB, 0, 1},
	    {MD_KNAPSACK_KERNELS, 1, GIB, 0, 1},
	};
	const struct md_knapsack problem = {.places = places,
					    .functions = functions,
					    .artifacts = artifacts,
					    .place_count = 3,
					    .function_count = 2,
					    .backbone_count = 1,
					    .artifact_count = 7};
	struct md_knapsack_plan plan;
	uint32_t copies = 0;
	/* 6 GiB for adapters and kernels don't fit beside one copy: two copies, and 15 for them together. */
	struct knapsack_proof proof;
	cr_assert_eq(knapsack_exact(&problem, true, 300000 / PART, &plan, &proof), MD_OK);
	for (uint32_t i = 0; i < plan.count; i++)
		copies += plan.placements[i].artifact == 0;
	cr_assert(proof.proven);
	cr_assert_eq(copies, 2);
	assert_near(plan.value, 15 + 3 + 3 + 3, "value");
	md_knapsack_plan_finish(&plan);
	assert_near(assert_follows_rules(&problem, md_knapsack_bundles, 0), 24, "bundles");
}

/* ---- the exact solver against every plan there is ---- */

struct enumeration {
	const struct md_knapsack *problem;
	uint64_t at[16], choice[16];
	double best;
};

/* Whether the end state can be reached: again and again whatever the rules allow. */
static void try_end_state(struct enumeration *all)
{
	struct knapsack_check check;
	bool moved = true;
	check_begin(&check, all->problem, all->at);
	while (moved) {
		moved = false;
		for (uint32_t i = 0; i < all->problem->artifact_count; i++)
			for (uint32_t p = 0; p < all->problem->place_count; p++) {
				struct knapsack_check next = check;
				if (!(all->choice[i] & ~check.at[i] & (1ull << p)))
					continue;
				uint64_t before = check.at[i];
				check_put(&next, &(struct md_knapsack_placement){i, p}, false);
				if (next.broken[0]) {
					check.at[i] = before;
					continue;
				}
				check = next;
				moved = true;
			}
	}
	double value = check_value(&check);
	if (value > all->best)
		all->best = value;
}

static void enumerate(struct enumeration *all, uint32_t artifact)
{
	if (artifact == all->problem->artifact_count) {
		try_end_state(all);
		return;
	}
	for (uint64_t places = 0; places < 1ull << all->problem->place_count; places++) {
		enum md_knapsack_class class = all->problem->artifacts[artifact].class;
		uint64_t gpus = check_gpus(all->problem);
		bool several = places & gpus & ((places & gpus) - 1);
		if ((class == MD_KNAPSACK_LIBRARY && (places & gpus)) ||
		    (class == MD_KNAPSACK_KERNELS && (places & ~gpus)) || (several && class != MD_KNAPSACK_BACKBONE))
			continue;
		all->choice[artifact] = places;
		enumerate(all, artifact + 1);
	}
}

/* From nothing, so that a good plan to begin with hides no fault of the search. */
static enum md_status search_from_nothing(const struct md_knapsack *problem, struct md_knapsack_plan *plan)
{
	struct knapsack_proof proof;
	enum md_status status = knapsack_exact(problem, false, 1000000, plan, &proof);
	cr_assert(proof.proven);
	return status;
}

Test(knapsack, exact_is_the_best_of_all_plans)
{
	const uint64_t stride = PART > 1 ? 3 : 1;
	for (uint64_t seed = 0; seed < 60; seed += stride) {
		struct knapsack_shape shape = {.functions = 2,
					       .backbones = 1 + seed % 2,
					       .containers = 1,
					       .gpus = 1 + seed % 2,
					       .own_weights = seed % 3 ? 0 : 0.5,
					       .one_value = seed % 2,
					       .container_gib = 4,
					       .gpu_gib = 20};
		struct knapsack_case one = knapsack_case_make(&shape, seed);
		if (one.problem.artifact_count * one.problem.place_count <= 21) {
			struct enumeration all = {.problem = &one.problem};
			struct md_knapsack_plan plan;
			enumerate(&all, 0);
			struct knapsack_proof proof;
			cr_assert_eq(knapsack_exact(&one.problem, true, 300000 / PART, &plan, &proof), MD_OK);
			cr_assert(proof.proven, "seed %d", (int)seed);
			assert_near(plan.value, all.best, "exact");
			assert_near(assert_follows_rules(&one.problem, search_from_nothing, seed), all.best, "search");
			md_knapsack_plan_finish(&plan);
		}
		knapsack_case_finish(&one);
	}
}

Test(knapsack, exact_brings_a_library_with_a_backbone)
{
	static const struct md_knapsack_place places[] = {{.bytes = 4}, {.bytes = 9, .gpu = true}};
	static const struct md_knapsack_function functions[] = {{.backbone = 0, .rate = 1}, {NONE, 1}};
	static const struct md_knapsack_artifact artifacts[] = {
	    {MD_KNAPSACK_BACKBONE, 0, 8, 3, 3}, {MD_KNAPSACK_LIBRARY, 0, 4, 1, 0}, {MD_KNAPSACK_LIBRARY, 1, 4, 3.5, 0}};
	const struct md_knapsack problem = {.places = places,
					    .functions = functions,
					    .artifacts = artifacts,
					    .place_count = 2,
					    .function_count = 2,
					    .backbone_count = 1,
					    .artifact_count = 3};
	assert_near(assert_follows_rules(&problem, search_from_nothing, 0), 4, "library 0 with its backbone");
	assert_near(assert_follows_rules(&problem, md_knapsack_bundles, 0), 4, "bundles");
}

/* ---- how near the others come ---- */

struct gaps {
	double sum, most;
	uint32_t count;
};

static void add_gap(struct gaps *gaps, double value, double best)
{
	double gap = best > 0 ? 1 - value / best : 0;
	gaps->sum += gap;
	gaps->most = gap > gaps->most ? gap : gaps->most;
	gaps->count++;
}

static double value_by(solver solve, const struct md_knapsack *problem)
{
	struct md_knapsack_plan plan;
	cr_assert_eq(solve(problem, &plan), MD_OK);
	double value = plan.value;
	md_knapsack_plan_finish(&plan);
	return value;
}

Test(knapsack, ours_is_within_one_percent_of_the_best)
{
	struct gaps greedy = {0}, ours = {0};
	const uint64_t count = 400 / PART;
	for (uint64_t seed = 0; seed < count; seed++) {
		struct knapsack_shape shape = {.functions = 3 + seed % 4,
					       .backbones = 1 + seed % 3,
					       .containers = 1 + seed % 3,
					       .gpus = 1 + seed / 3 % 2,
					       .own_weights = seed % 4 ? 0 : 0.3,
					       .one_value = seed % 2,
					       .container_gib = seed % 8 < 4 ? 12 : 6,
					       .gpu_gib = seed % 8 < 4 ? 40 : 20};
		struct knapsack_case one = knapsack_case_make(&shape, seed);
		struct md_knapsack_plan plan;
		struct knapsack_proof proof;
		cr_assert_eq(knapsack_exact(&one.problem, true, 300000 / PART, &plan, &proof), MD_OK);
		double best = plan.value, bound, paper = value_by(md_knapsack_greedy, &one.problem),
		       bundles = value_by(md_knapsack_bundles, &one.problem);
		md_knapsack_plan_finish(&plan);
		cr_assert_eq(knapsack_bound(&one.problem, &bound), MD_OK);
		cr_assert_geq(bound * (1 + 1e-9), best, "seed %d: bound", (int)seed);
		cr_assert_geq(best * (1 + 1e-9), bundles, "seed %d", (int)seed);
		cr_assert_geq(bundles * (1 + 1e-9), paper, "seed %d: worse than the paper's", (int)seed);
		if (proof.proven) {
			add_gap(&greedy, paper, best);
			add_gap(&ours, bundles, best);
		}
		knapsack_case_finish(&one);
	}
	cr_log_info("%u solved: the paper's greedy %.3f %% (at most %.2f %%), ours %.4f %% (at most %.2f %%)",
		    ours.count, 100 * greedy.sum / greedy.count, 100 * greedy.most, 100 * ours.sum / ours.count,
		    100 * ours.most);
	cr_assert_geq(ours.count, count / 2, "too few solved exactly");
	cr_assert_lt(ours.sum / ours.count, 0.01);
	cr_assert_lt(ours.most, 0.05);
}

Test(knapsack, same_input_same_plan)
{
	struct knapsack_shape shape = {.functions = 50, .backbones = 20, .containers = 20, .gpus = 20, .gpu_gib = 20};
	struct knapsack_case one = knapsack_case_make(&shape, 5);
	struct md_knapsack_plan first, second;
	cr_assert_eq(md_knapsack_bundles(&one.problem, &first), MD_OK);
	cr_assert_eq(md_knapsack_bundles(&one.problem, &second), MD_OK);
	cr_assert_eq(first.count, second.count);
	cr_assert_arr_eq(first.placements, second.placements, first.count * sizeof(*first.placements));
	cr_assert_eq(memcmp(&first.value, &second.value, sizeof(double)), 0);
	md_knapsack_plan_finish(&first);
	md_knapsack_plan_finish(&second);
	knapsack_case_finish(&one);
}

/* A plan of less work follows the rules as well, and is never worse than the paper's; now and then more work gives more. */
Test(knapsack, work_is_bounded)
{
	uint32_t better = 0;
	for (uint64_t seed = 0; seed < 200 / PART; seed++) {
		struct knapsack_shape shape = shape_of(seed);
		struct knapsack_case one = knapsack_case_make(&shape, seed);
		double greedy = assert_follows_rules(&one.problem, md_knapsack_greedy, seed), before = greedy;
		for (uint64_t work = 1; work <= 100000; work *= 10) {
			one.problem.work = work;
			double value = assert_follows_rules(&one.problem, md_knapsack_bundles, seed);
			cr_assert(value >= before * (1 - 1e-12), "seed %llu: work %llu gives %g, less work %g",
				  (unsigned long long)seed, (unsigned long long)work, value, before);
			better += work > 1 && value > before * (1 + 1e-9);
			before = value;
		}
		knapsack_case_finish(&one);
	}
	cr_assert_gt(better, 0, "the bound on work has no effect");
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void assert_refused(const struct md_knapsack *problem, const char *what)
{
	struct md_knapsack_plan plan;
	double bound;
	cr_assert_eq(md_knapsack_greedy(problem, &plan), MD_ERR_INVALID, "%s", what);
	cr_assert_eq(md_knapsack_bundles(problem, &plan), MD_ERR_INVALID, "%s", what);
	struct knapsack_proof proof;
	cr_assert_eq(knapsack_exact(problem, true, 100, &plan, &proof), MD_ERR_INVALID, "%s", what);
	cr_assert_eq(knapsack_bound(problem, &bound), MD_ERR_INVALID, "%s", what);
}

Test(knapsack, bad_input_is_refused)
{
	struct md_knapsack_place places[] = {{.bytes = 9}, {.bytes = 9, .gpu = true}};
	struct md_knapsack_function function = {.backbone = NONE, .rate = 1};
	struct md_knapsack_artifact artifacts[] = {{MD_KNAPSACK_LIBRARY, 0, 1, 1, 0},
						   {MD_KNAPSACK_KERNELS, 0, 1, 0, 1}};
	struct md_knapsack_placement held[] = {{0, 0}, {0, 0}};
	struct md_knapsack problem = {.places = places,
				      .functions = &function,
				      .artifacts = artifacts,
				      .held = held,
				      .place_count = 2,
				      .function_count = 1,
				      .artifact_count = 2};
	assert_near(assert_follows_rules(&problem, md_knapsack_bundles, 0), 2, "both");
	function.backbone = 0;
	assert_refused(&problem, "no such backbone");
	function.backbone = NONE;
	function.rate = NAN;
	assert_refused(&problem, "rate");
	function.rate = 1;
	artifacts[1].owner = 1;
	assert_refused(&problem, "no such function");
	artifacts[1] = artifacts[0];
	assert_refused(&problem, "two libraries");
	artifacts[1] = (struct md_knapsack_artifact){(enum md_knapsack_class)4, 0, 1, 0, 1};
	assert_refused(&problem, "no such class");
	artifacts[1] = (struct md_knapsack_artifact){MD_KNAPSACK_KERNELS, 0, 1, 0, 1};
	problem.held_count = 2;
	assert_refused(&problem, "held twice");
	held[1] = (struct md_knapsack_placement){1, 0};
	assert_refused(&problem, "kernels held in a container");
	held[1] = (struct md_knapsack_placement){0, 2};
	assert_refused(&problem, "held nowhere");
}

Test(knapsack, nothing_to_do)
{
	struct md_knapsack nothing = {0};
	struct md_knapsack_function function = {.backbone = NONE, .rate = 1};
	struct md_knapsack_artifact library = {MD_KNAPSACK_LIBRARY, 0, 1, 1, 0};
	struct md_knapsack nowhere = {
	    .functions = &function, .function_count = 1, .artifacts = &library, .artifact_count = 1};
	const solver solvers[] = {md_knapsack_greedy, md_knapsack_bundles, solve_exactly};
	for (size_t i = 0; i < sizeof(solvers) / sizeof(solvers[0]); i++) {
		cr_assert_eq(assert_follows_rules(&nothing, solvers[i], 0), 0);
		cr_assert_eq(assert_follows_rules(&nowhere, solvers[i], 0), 0);
	}
}

Test(knapsack, a_place_that_is_too_full_gets_nothing)
{
	struct md_knapsack_place place = {.bytes = 5};
	struct md_knapsack_function functions[] = {{NONE, 1}, {NONE, 1}};
	struct md_knapsack_artifact artifacts[] = {{MD_KNAPSACK_LIBRARY, 0, 9, 1, 0},
						   {MD_KNAPSACK_LIBRARY, 1, 1, 1, 0}};
	struct md_knapsack_placement held = {0, 0};
	struct md_knapsack problem = {.places = &place,
				      .functions = functions,
				      .artifacts = artifacts,
				      .held = &held,
				      .place_count = 1,
				      .function_count = 2,
				      .artifact_count = 2,
				      .held_count = 1};
	assert_near(assert_follows_rules(&problem, md_knapsack_greedy, 0), 1, "greedy");
	assert_near(assert_follows_rules(&problem, md_knapsack_bundles, 0), 1, "bundles");
}
