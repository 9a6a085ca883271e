/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of regular, random, bursty and ending arrivals. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "scheduler/core/rate.h"

#define SECOND 1000000000ull

static double after_regular(struct md_rate *rate, uint32_t count, uint64_t gap)
{
	uint64_t now = 0;
	for (uint32_t i = 0; i < count; i++, now += gap)
		md_rate_arrival(rate, now);
	return md_rate_per_s(rate, now - gap);
}

static void assert_about(double rate, double expected, double part)
{
	cr_assert(fabs(rate - expected) <= part * expected, "%g, expected %g within %g", rate, expected, part);
}

Test(rate, never_called_is_zero)
{
	struct md_rate rate = {0};
	cr_assert_eq(md_rate_per_s(&rate, 0), 0);
	cr_assert_eq(md_rate_per_s(&rate, 1000 * SECOND), 0);
}

Test(rate, one_arrival_is_once_a_minute_and_fades)
{
	struct md_rate rate = {0};
	md_rate_arrival(&rate, 5 * SECOND);
	assert_about(md_rate_per_s(&rate, 5 * SECOND), 1 / 60.0, 1e-12);
	assert_about(md_rate_per_s(&rate, 65 * SECOND), 1 / 60.0, 1e-12);
	cr_assert_lt(md_rate_per_s(&rate, 3605 * SECOND), 1 / 1800.0);
}

Test(rate, regular_arrivals_are_exact)
{
	for (uint32_t count = 2; count < 100; count += 7) {
		struct md_rate rate = {0};
		assert_about(after_regular(&rate, count, SECOND / 4), 4, 1e-9);
	}
}

Test(rate, a_new_pace_is_learnt_within_some_memories)
{
	struct md_rate rate = {0};
	uint64_t now = 99 * SECOND;
	assert_about(after_regular(&rate, 100, SECOND), 1, 1e-9);
	for (int i = 0; i < 4 * MD_RATE_MEMORY; i++)
		md_rate_arrival(&rate, now += 10 * SECOND);
	assert_about(md_rate_per_s(&rate, now), 0.1, 0.03);
}

Test(rate, random_arrivals_in_the_mean)
{
	struct md_rate rate = {0};
	uint64_t now = 0, random = 1;
	double gaps = 0;
	const int count = 20000;
	for (int i = 0; i < count; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		now += (uint64_t)(-log(((double)(random >> 11) + 1) / 9007199254740993.0) * 2 * SECOND);
		md_rate_arrival(&rate, now);
		gaps += i ? 1 / md_rate_per_s(&rate, now) : 2;
	}
	assert_about(gaps / count, 2, 0.03);
}

Test(rate, silence_counts_steadily)
{
	struct md_rate rate = {0};
	uint64_t last = 99 * SECOND;
	double before = after_regular(&rate, 100, SECOND);
	cr_assert_eq(md_rate_per_s(&rate, last + SECOND), before, "a gap that is not over yet is no silence");
	for (uint64_t silence = 2; silence < 100000; silence *= 2) {
		double now = md_rate_per_s(&rate, last + silence * SECOND);
		cr_assert_lt(now, before, "after %d s", (int)silence);
		cr_assert_geq(now * (double)silence, 1, "never below once in the silence so far");
		before = now;
	}
	assert_about(before, 1 / 65536.0, 0.01);
	cr_assert_gt(md_rate_per_s(&rate, last + 15 * SECOND), 0.12, "a short silence weighs little");
}

Test(rate, an_arrival_brings_most_of_the_rate_back)
{
	struct md_rate rate = {0};
	uint64_t now = 99 * SECOND + 100 * SECOND;
	after_regular(&rate, 100, SECOND);
	cr_assert_lt(md_rate_per_s(&rate, now), 0.02);
	md_rate_arrival(&rate, now);
	assert_about(md_rate_per_s(&rate, now), 1 / (1 + 99 / 16.0), 1e-9);
}

Test(rate, arrivals_at_one_time_stay_finite)
{
	struct md_rate rate = {0};
	for (int i = 0; i < 100000; i++)
		md_rate_arrival(&rate, 7 * SECOND);
	assert_about(md_rate_per_s(&rate, 7 * SECOND), 1e9 / MD_RATE_LEAST_GAP_NS, 1e-12);
	cr_assert_lt(md_rate_per_s(&rate, 20 * SECOND), 1);
}

Test(rate, same_arrivals_same_bits)
{
	struct md_rate one = {0}, other = {0};
	for (uint64_t i = 0; i < 1000; i++) {
		md_rate_arrival(&one, i * i * 12345);
		md_rate_arrival(&other, i * i * 12345);
	}
	double a = md_rate_per_s(&one, 1ull << 62), b = md_rate_per_s(&other, 1ull << 62);
	cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0);
}

/* Calls every 10 s: after one, the next is far away; just before the next, it is near. Uneven calls tell nothing. */
Test(rate, next_call_of_even_intervals)
{
	struct md_rate even = {0}, uneven = {0};
	uint64_t now = 0;
	for (uint64_t i = 0; i < 50; i++, now += 10 * SECOND) {
		md_rate_arrival(&even, now);
		md_rate_arrival(&uneven, now + i % 2 * 8 * SECOND);
	}
	now -= 10 * SECOND;
	assert_about(md_rate_next_per_s(&even, now), 0.1, 1e-9);
	assert_about(md_rate_next_per_s(&even, now + 5 * SECOND), 0.2, 1e-9);
	assert_about(md_rate_next_per_s(&even, now + 99 * SECOND / 10), 0.8, 1e-9);
	now += 9 * SECOND;
	assert_about(md_rate_next_per_s(&uneven, now), md_rate_per_s(&uneven, now), 1e-12);
}
