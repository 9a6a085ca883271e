/* SPDX-License-Identifier: Apache-2.0 */
/* In with overlap, over a list of memory that the test keeps: what calls wait for, and what a failure leaves. */
#include "swap/reach.h"
#include "tests/swap_exchange_fixture.h"

TestSuite(swap_arrival, .init = set_up, .fini = tear_down, .timeout = 120);

static enum md_status in_overlapped(struct md_error *err)
{
	struct md_swap_settings settings = {.overlap = true};
	struct md_swap_report report;
	return md_swap_in(exchange, &settings, &report, err);
}

static void settle(void)
{
	struct md_error err = {0};
	cr_assert_eq(md_swap_exchange_settle(exchange, 10000000000, &err), MD_OK, "%s", err.message);
	cr_assert_not(md_swap_exchange_is_arriving(exchange), "it is there");
}

static void begin_overlapped(void)
{
	struct md_error err = {0};
	cr_assert_eq(in_overlapped(&err), MD_OK, "%s", err.message);
	cr_assert_not(closed, "the gate is open");
	cr_assert_not(md_swap_exchange_is_out(exchange), "it is arriving, or there already");
}

Test(swap_arrival, all_comes_back)
{
	set_up_pool(32);
	add(0), add(MD_SWAP_ALONE), add(0);
	write_all();
	for (int turn = 0; turn < 3; turn++) {
		out();
		begin_overlapped();
		settle();
		assert_all();
	}
	cr_assert_eq(md_swap_pool_count(pool).held, 0, "the pool's blocks are given back");
}

Test(swap_arrival, out_waits_for_what_is_arriving)
{
	set_up_pool(32);
	add(0), add(0);
	write_all();
	for (int turn = 0; turn < 3; turn++) {
		out();
		begin_overlapped();
	}
	out(), in();
	assert_all();
}

Test(swap_arrival, a_call_waits_for_a_range)
{
	set_up_pool(32);
	struct memory *m = (add(0), add(0), add(0));
	CUstream stream;
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	write_all();
	out();
	begin_overlapped();
	md_swap_wish_begin();
	md_swap_wish_range(m->range.address + RANGE_BYTES - 8, 8, false);
	ok(md_swap_wish_await(stream, true));
	uint64_t word;
	ok(md_cuda.cuMemcpyDtoHAsync_v2(&word, m->range.address + RANGE_BYTES - 8, 8, stream));
	ok(md_cuda.cuStreamSynchronize(stream));
	cr_assert_eq(word, md_random_mix(1 + (2ull << 40) + (2ull << 30) + MD_SWAP_BLOCK / 8 - 1),
		     "the last word is there");
	settle();
	assert_all();
}

Test(swap_arrival, memory_that_cannot_come_fails_the_call_that_needs_it)
{
	struct md_error err = {0};
	set_up_pool(32);
	struct memory *m = (add(0), add(0), add(0), add(0), add(0), add(0)); /* more than is submitted ahead */
	write_all();
	out();
	begin_overlapped();
	let_calls_fail();
	call_left = 0;
	md_swap_wish_begin();
	md_swap_wish_range(m->range.address, 8, false);
	refused(CUDA_ERROR_MAP_FAILED, md_swap_wish_block());
	call_left = 0;
	cr_assert_eq(md_swap_exchange_settle(exchange, 1000000000, &err), MD_ERR_DRIVER, "%s", err.message);
	call_left = -1;
	md_swap_wish_begin();
	md_swap_wish_range(m->range.address, 8, false);
	ok(md_swap_wish_block());
	settle();
	assert_all();
}

Test(swap_arrival, should_fail_verified_and_overlapped)
{
	struct md_swap_settings settings = {.overlap = true, .verify = true};
	struct md_swap_report report;
	struct md_error err = {0};
	set_up_pool(16);
	add(0);
	write_all();
	out();
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_ERR_INVALID, "%s", err.message);
	cr_assert(md_swap_exchange_is_out(exchange), "it is out");
	in();
	assert_all();
}

static bool survives_overlapped(int n)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report;
	struct md_error err = {0};
	out();
	call_left = n;
	if (in_overlapped(&err) != MD_OK) {
		cr_assert(closed && md_swap_exchange_is_out(exchange), "call %d: %s", n, err.message);
		in();
	} else if (md_swap_out(exchange, &settings, &report, &err) == MD_OK) {
		bool failed = call_left < 0;
		call_left = -1;
		in();
		assert_all();
		return failed;
	}
	bool failed = call_left < 0;
	call_left = -1;
	settle();
	assert_all();
	return failed;
}

Test(swap_arrival, each_call_fails_once)
{
	fail_each_call(survives_overlapped);
}
