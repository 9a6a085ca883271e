/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading: enough goes, nothing that stays lacks what it needs, and little more is lost than must be. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/judges/judges.h"
#include "tests/knapsack_cases.h"

#define NONE MD_KNAPSACK_NONE
#define MOST 64
#ifdef MD_SANITIZED
#define PART 10
#else
#define PART 1
#endif

struct gpu {
	struct md_knapsack_resident residents[MOST];
	uint32_t count;
	uint64_t all;
};

/* Backbones, each with adapters, each with its kernels. */
static void fill_gpu(struct gpu *gpu, uint32_t count, uint64_t seed)
{
	uint64_t random = seed * 77 + 1;
	*gpu = (struct gpu){.count = count};
	for (uint32_t i = 0; i < count; i++) {
		struct md_knapsack_resident *one = &gpu->residents[i];
		uint32_t class = i ? case_below(&random, 3) : 0, other = case_below(&random, i ? i : 1);
		double gib = class == 0 ? case_between(&random, 2, 26) : case_between(&random, 0.05, 1.5);
		*one = (struct md_knapsack_resident){.bytes = (uint64_t)(gib * (1 << 20)),
						     .value = case_between(&random, 0, 1) * (class ? 1 : 4),
						     .needs = class ? other : NONE,
						     .pinned = case_uniform(&random) < 0.08};
		gpu->all += one->bytes;
	}
}

static uint64_t may_go(const struct gpu *gpu)
{
	bool stays[MOST] = {0};
	uint64_t bytes = 0;
	for (uint32_t i = gpu->count; i-- > 0;) { /* what needs stands after what is needed */
		stays[i] |= gpu->residents[i].pinned;
		if (stays[i] && gpu->residents[i].needs != NONE)
			stays[gpu->residents[i].needs] = true;
		bytes += stays[i] ? 0 : gpu->residents[i].bytes;
	}
	return bytes;
}

static void assert_right(const struct gpu *gpu, uint64_t bytes, const bool *gone, const struct md_knapsack_loss *loss)
{
	uint64_t freed = 0;
	double lost = 0;
	for (uint32_t i = 0; i < gpu->count; i++) {
		const struct md_knapsack_resident *one = &gpu->residents[i];
		cr_assert_not(gone[i] && one->pinned, "%u is pinned", i);
		cr_assert_not(one->needs != NONE && gone[one->needs] && !gone[i], "%u stays without %u", i, one->needs);
		freed += gone[i] ? one->bytes : 0;
		lost += gone[i] ? one->value : 0;
	}
	cr_assert_eq(freed, loss->bytes);
	cr_assert_float_eq(lost, loss->value, 1e-9);
	cr_assert_eq(loss->enough, freed >= bytes);
	cr_assert_eq(loss->enough, may_go(gpu) >= bytes, "%llu of %llu", (unsigned long long)freed,
		     (unsigned long long)bytes);
}

Test(offload, rules_hold)
{
	for (uint64_t seed = 0; seed < 20000 / PART; seed++) {
		struct gpu gpu;
		struct md_knapsack_loss greedy, ours;
		bool gone[MOST];
		fill_gpu(&gpu, (uint32_t)(1 + seed % MOST), seed);
		uint64_t bytes = gpu.all * (seed % 11) / 9;
		cr_assert_eq(md_knapsack_offload_greedy(gpu.residents, gpu.count, bytes, gone, &greedy), MD_OK);
		assert_right(&gpu, bytes, gone, &greedy);
		cr_assert_eq(md_knapsack_offload(gpu.residents, gpu.count, bytes, gone, &ours), MD_OK);
		assert_right(&gpu, bytes, gone, &ours);
		cr_assert(ours.value <= greedy.value + 1e-9, "seed %d: %g, the paper's %g", (int)seed, ours.value,
			  greedy.value);
	}
}

static double least_of_all(const struct gpu *gpu, uint64_t bytes)
{
	double best = INFINITY;
	for (uint32_t set = 0; set < 1u << gpu->count; set++) {
		uint64_t freed = 0;
		double lost = 0;
		bool right = true;
		for (uint32_t i = 0; i < gpu->count; i++) {
			const struct md_knapsack_resident *one = &gpu->residents[i];
			bool gone = set >> i & 1;
			right &= !(gone && one->pinned) && (gone || one->needs == NONE || !(set >> one->needs & 1));
			freed += gone ? one->bytes : 0;
			lost += gone ? one->value : 0;
		}
		if (right && freed >= bytes && lost < best)
			best = lost;
	}
	return best;
}

Test(offload, exact_is_the_least_of_all)
{
	for (uint64_t seed = 0; seed < 400 / PART; seed++) {
		struct gpu gpu;
		struct md_knapsack_loss loss;
		struct knapsack_proof proof;
		bool gone[MOST];
		fill_gpu(&gpu, (uint32_t)(1 + seed % 11), seed);
		uint64_t bytes = gpu.all * (1 + seed % 5) / 7;
		cr_assert_eq(offload_exact(gpu.residents, gpu.count, bytes, 1000000, gone, &loss, &proof), MD_OK);
		assert_right(&gpu, bytes, gone, &loss);
		cr_assert(proof.proven);
		if (loss.enough)
			cr_assert_float_eq(loss.value, least_of_all(&gpu, bytes), 1e-9, "seed %d", (int)seed);
	}
}

Test(offload, ours_is_near_the_least)
{
	double lost[3] = {0}, most = 0, sum = 0;
	uint32_t solved = 0;
	for (uint64_t seed = 0; seed < 400 / PART; seed++) {
		struct gpu gpu;
		struct md_knapsack_loss greedy, ours, exact;
		struct knapsack_proof proof;
		bool gone[MOST];
		fill_gpu(&gpu, (uint32_t)(8 + seed % 17), seed);
		uint64_t bytes = gpu.all * (1 + seed % 5) / 8;
		cr_assert_eq(md_knapsack_offload_greedy(gpu.residents, gpu.count, bytes, gone, &greedy), MD_OK);
		cr_assert_eq(md_knapsack_offload(gpu.residents, gpu.count, bytes, gone, &ours), MD_OK);
		cr_assert_eq(offload_exact(gpu.residents, gpu.count, bytes, 1000000, gone, &exact, &proof), MD_OK);
		if (!proof.proven || !exact.enough || exact.value <= 0)
			continue;
		double gap = ours.value / exact.value - 1;
		lost[0] += greedy.value / exact.value - 1;
		sum += gap;
		most = gap > most ? gap : most;
		solved++;
	}
	cr_log_info("%u solved: lost more than must be, the paper's greedy %.2f %%, ours %.3f %% (at most %.2f %%)",
		    solved, 100 * lost[0] / solved, 100 * sum / solved, 100 * most);
	cr_assert_gt(solved, 200 / PART);
	cr_assert_lt(sum / solved, 0.01);
}

Test(offload, bad_input_is_refused)
{
	struct md_knapsack_resident residents[] = {{.bytes = 1, .value = 1, .needs = 1},
						   {.bytes = 1, .value = 1, .needs = 0}};
	struct md_knapsack_loss loss;
	struct knapsack_proof proof;
	bool gone[2];
	cr_assert_eq(md_knapsack_offload(residents, 2, 1, gone, &loss), MD_ERR_INVALID, "a circle");
	residents[1].needs = 2;
	cr_assert_eq(md_knapsack_offload_greedy(residents, 2, 1, gone, &loss), MD_ERR_INVALID, "no such resident");
	residents[1] = (struct md_knapsack_resident){.bytes = 1, .value = NAN, .needs = NONE};
	cr_assert_eq(offload_exact(residents, 2, 1, 10, gone, &loss, &proof), MD_ERR_INVALID, "no value");
	cr_assert_eq(md_knapsack_offload(NULL, 0, 1, gone, &loss), MD_OK, "nothing there");
	cr_assert_not(loss.enough);
}
