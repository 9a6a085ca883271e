/* SPDX-License-Identifier: Apache-2.0 */
/* A stopwatch counts the thread's own work, and not the time in which others had its processor. */
#include <time.h>

#include <criterion/criterion.h>

#include "base/stopwatch.h"

#define MS 1000000u

static void work_for(uint64_t ns)
{
	uint64_t until = md_stopwatch_used_ns() + ns;
	while (md_stopwatch_used_ns() < until)
		;
}

static void be_away(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 50 * MS}, NULL);
}

Test(stopwatch, counts_work)
{
	struct md_stopwatch watch = {0};
	uint64_t most = 0;
	/* what others take just before a piece begins is taken off it, too: that does not happen each time */
	for (int i = 0; i < 10 && most < 4 * MS; i++) {
		md_stopwatch_start(&watch);
		work_for(5 * MS);
		uint64_t took = md_stopwatch_stop(&watch);
		most = took > most ? took : most;
	}
	cr_assert_geq(most, 4 * MS, "5 ms of work count as %llu ns", (unsigned long long)most);
}

Test(stopwatch, leaves_out_what_others_took)
{
	struct md_stopwatch watch = {0};
	for (int i = 0; i < 3; i++) {
		md_stopwatch_start(&watch);
		work_for(MS);
		be_away();
		uint64_t took = md_stopwatch_stop(&watch);
		cr_assert(took >= MD_STOPWATCH_LONG && took < 30 * MS, "1 ms of work and 50 ms away count as %llu ns",
			  (unsigned long long)took);
	}
}

Test(stopwatch, short_pieces_are_what_the_clock_says)
{
	struct md_stopwatch watch = {0};
	for (int i = 0; i < 3 * MD_STOPWATCH_PIECES; i++) {
		uint64_t before = md_clock_ns();
		md_stopwatch_start(&watch);
		uint64_t took = md_stopwatch_stop(&watch);
		cr_assert_leq(took, md_clock_ns() - before);
	}
}
