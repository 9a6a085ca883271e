/* SPDX-License-Identifier: Apache-2.0 */
/* Which buffers are saved whole, where the others are looked at, and what counts as changed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/sample.h"

/* ---- windows ---- */

static void assert_covers_both_ends(uint64_t size, uint32_t among)
{
	struct md_sample sample = md_sample_plan(size, among);
	uint64_t end = 0;
	cr_assert_geq(sample.windows, 2, "%llu bytes: %u windows", (unsigned long long)size, sample.windows);
	cr_assert_gt(sample.bytes, 0);
	cr_assert_eq(md_sample_offset(&sample, 0), 0, "the first window is at the start");
	for (uint32_t i = 0; i < sample.windows; i++) {
		uint64_t at = md_sample_offset(&sample, i);
		cr_assert_geq(at, end, "%llu bytes: window %u overlaps the one before", (unsigned long long)size, i);
		end = at + sample.bytes;
	}
	cr_assert_eq(end, size, "%llu bytes: the last window ends at the end", (unsigned long long)size);
}

Test(sample, windows_cover_both_ends_and_do_not_overlap)
{
	static const uint64_t sizes[] = {4, 5, 63, 64, 1000, 2304, 4096, 65536, 1 << 20, 268369920, 134538092544};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_covers_both_ends(sizes[i], 1);
		assert_covers_both_ends(sizes[i], 60);
		assert_covers_both_ends(sizes[i], 5000);
	}
}

Test(sample, tiniest_memory_is_looked_at)
{
	for (uint64_t size = 1; size < 4; size++) {
		struct md_sample sample = md_sample_plan(size, 1);
		cr_assert_eq(md_sample_offset(&sample, sample.windows - 1) + sample.bytes, size);
	}
}

Test(sample, kv_cache_costs_little)
{
	struct md_sample one = md_sample_plan(134538092544, 1), layer = md_sample_plan(2ull << 30, 60);
	uint32_t stay = 0;
	cr_assert_leq((uint64_t)one.windows * one.bytes, 64ull << 20);
	cr_assert_leq((uint64_t)layer.windows * layer.bytes * 60, 256ull << 20);
	for (uint32_t i = 0; i < one.windows; i++)
		stay += md_sample_stays(&one, i, 1);
	cr_assert(stay >= 64 && stay <= 130, "%u windows stay under watch", stay);
	cr_assert(md_sample_stays(&one, 0, 1) && md_sample_stays(&one, one.windows - 1, 1));
}

/* ---- choice ---- */

Test(sample, small_buffers_are_saved_and_layers_go_together)
{
	static const struct {
		uint64_t sizes[5], room;
		bool sampled[5];
		uint32_t count;
	} cases[] = {
	    {{8, 8, 8, 0, 0}, 24, {0}, 0},
	    {{8, 8, 8, 0, 0}, 23, {true, true, true}, 3}, /* two would fit */
	    {{100, 1, 100, 2, 3}, 50, {true, false, true, false, false}, 2},
	    {{UINT64_MAX - 1, 1, 0, 0, 0}, 1, {true}, 1},
	    {{5, 0, 0, 0, 0}, 0, {true}, 1},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool sampled[5] = {0};
		cr_assert_eq(md_sample_choose(cases[i].sizes, 5, cases[i].room, sampled), cases[i].count, "case %zu",
			     i);
		cr_assert_arr_eq(sampled, cases[i].sampled, sizeof(sampled), "case %zu", i);
	}
}

/* ---- changes ---- */

Test(sample, changes_that_are_near_are_one)
{
	size_t size = (1u << 20) + 100, at = 0, end = 0;
	uint8_t *before = calloc(1, size), *now = calloc(1, size);
	cr_assert(before && now);
	cr_assert_not(md_change_next(before, now, size, &at, &end), "nothing changed");
	now[5] = now[9000] = now[500000] = now[size - 1] = 1;
	at = 0;
	cr_assert(md_change_next(before, now, size, &at, &end));
	cr_assert(at <= 5 && end > 9000 && end < 20000, "[%zu, %zu)", at, end);
	at = end;
	cr_assert(md_change_next(before, now, size, &at, &end));
	cr_assert(at > 9000 && at <= 500000 && end > 500000 && end < 510000, "[%zu, %zu)", at, end);
	at = end;
	cr_assert(md_change_next(before, now, size, &at, &end));
	cr_assert(at <= size - 1 && end == size, "the last bytes: [%zu, %zu)", at, end);
	at = end;
	cr_assert_not(md_change_next(before, now, size, &at, &end), "no more");
	free(before);
	free(now);
}
