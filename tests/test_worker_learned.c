/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker learns of its engines' times, and what it tells the scheduler before it has measured any. */
#include <criterion/criterion.h>

#include "worker/config/config.h"
#include "worker/core/learned.h"

#define MS UINT64_C(1000000)

Test(worker_learned, the_first_measurement_counts_and_further_ones_a_quarter)
{
	struct md_learned learned = {0};
	md_learned_count(&learned, MD_LEARNED_START, 8000 * MS);
	cr_assert_eq(learned.ns[MD_LEARNED_START], 8000 * MS);
	md_learned_count(&learned, MD_LEARNED_START, 4000 * MS);
	cr_assert_eq(learned.ns[MD_LEARNED_START], 7000 * MS);
	md_learned_count(&learned, MD_LEARNED_START, 3000 * MS);
	cr_assert_eq(learned.ns[MD_LEARNED_START], 6000 * MS);
	for (int i = 0; i < 100; i++)
		md_learned_count(&learned, MD_LEARNED_START, 100 * MS);
	cr_assert_float_eq((double)learned.ns[MD_LEARNED_START], 100e6, 10, "it is forgotten what was long ago");
	cr_assert_eq(learned.ns[MD_LEARNED_SWAP_IN], 0, "the others were not measured");
	md_learned_count(&learned, MD_LEARNED_SWAP_IN, 0);
	cr_assert_neq(learned.ns[MD_LEARNED_SWAP_IN], 0, "no time at all is a measurement, too");
}

Test(worker_learned, measured_before_stated_before_guessed)
{
	struct md_learned learned = {0};
	struct md_config_own own = {0};
	struct medusa_sched_function f = {.slo_ns = 7};
	md_learned_times(&learned, &own, false, &f);
	cr_assert(f.t0_ns == 50 * MS && f.swap_ns == 5050 * MS && f.evict_ns == 500 * MS);
	md_learned_times(&learned, &own, true, &f);
	cr_assert_eq(f.swap_ns, 550 * MS);
	own.start_ns = 20000 * MS;
	own.swap_ns = 300 * MS;
	md_learned_times(&learned, &own, false, &f);
	cr_assert(f.swap_ns == 20050 * MS && f.evict_ns == 300 * MS);
	md_learned_times(&learned, &own, true, &f);
	cr_assert_eq(f.swap_ns, 350 * MS);
	md_learned_count(&learned, MD_LEARNED_START, 9000 * MS);
	md_learned_count(&learned, MD_LEARNED_SWAP_IN, 200 * MS);
	md_learned_count(&learned, MD_LEARNED_LEAVE, 100 * MS);
	md_learned_count(&learned, MD_LEARNED_FIRST_TOKEN, 30 * MS);
	md_learned_times(&learned, &own, false, &f);
	cr_assert(f.t0_ns == 30 * MS && f.swap_ns == 9030 * MS && f.evict_ns == 100 * MS);
	md_learned_times(&learned, &own, true, &f);
	cr_assert_eq(f.swap_ns, 230 * MS);
	cr_assert_eq(f.slo_ns, 7, "what is not a time stays");
}
