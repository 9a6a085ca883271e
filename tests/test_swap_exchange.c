/* SPDX-License-Identifier: Apache-2.0 */
/* Out and in over a list of memory that the test keeps: what is copied, what comes back, and what a failure leaves. */
#include "tests/fine.h"
#include "tests/swap_exchange_fixture.h"

TestSuite(swap_exchange, .init = set_up, .fini = tear_down, .timeout = 120);

static size_t free_bytes(void)
{
	size_t free_now, total;
	ok(md_cuda.cuMemGetInfo_v2(&free_now, &total));
	return free_now;
}

/* ---- what goes and comes ---- */

Test(swap_exchange, all_comes_back)
{
	set_up_pool(16);
	add(0), add(0);
	write_all();
	size_t before = free_bytes();
	struct md_swap_report report = out();
	cr_assert_geq(free_bytes(), before + 2 * RANGE_BYTES, "the memory is free");
	cr_assert_eq(report.bytes, 2 * RANGE_BYTES, "%zu bytes went", (size_t)report.bytes);
	cr_assert_eq(report.copied, 2 * RANGE_BYTES, "%zu bytes copied", (size_t)report.copied);
	report = in();
	cr_assert_eq(report.copied, 2 * RANGE_BYTES, "%zu bytes copied back", (size_t)report.copied);
	assert_all();
}

Test(swap_exchange, only_what_has_changed_is_copied)
{
	set_up_pool(16);
	struct memory *m = add(0);
	write_all();
	out(), in();
	struct md_swap_report report = out();
	cr_assert(report.copied == 0 && report.hashed_equal == RANGE_BYTES, "%zu copied", (size_t)report.copied);
	in();
	write_block(m, 1, 77);
	report = out();
	cr_assert_eq(report.copied, MD_SWAP_BLOCK, "%zu copied", (size_t)report.copied);
	in();
	assert_block(m, 1, 77);
	write_block(m, 1, 1 + (1ull << 30));
	report = out();
	cr_assert_eq(report.copied, 0, "the pool still had it");
	in();
	assert_all();
}

Test(swap_exchange, equal_blocks_and_zeros_take_no_room)
{
	set_up_pool(1);
	struct memory *one = add(0), *two = add(0);
	for (size_t i = 0; i < BLOCKS; i++) {
		write_block(one, i, 5);
		write_block(two, i, i == 1 ? 5 : 0);
	}
	struct md_swap_report report = out();
	cr_assert_eq(report.copied, MD_SWAP_BLOCK, "%zu copied", (size_t)report.copied);
	cr_assert_eq(report.zero, 2 * MD_SWAP_BLOCK, "%zu zero", (size_t)report.zero);
	in();
	for (size_t i = 0; i < BLOCKS; i++) {
		assert_block(one, i, 5);
		assert_block(two, i, i == 1 ? 5 : 0);
	}
}

Test(swap_exchange, kinds_of_memory)
{
	set_up_pool(16);
	struct memory *kept = add(0), *discardable = add(0), *resident = add(MD_SWAP_RESIDENT);
	struct memory *moves = add(MD_SWAP_MOVES);
	write_all();
	discardable_from = discardable->range.address;
	discardable_to = discardable_from + RANGE_BYTES;
	struct md_swap_report report = out();
	cr_assert(report.copied == RANGE_BYTES && !report.zero && report.discarded == RANGE_BYTES &&
		      report.resident == RANGE_BYTES,
		  "%zu", (size_t)report.copied);
	cr_assert(!kept->mapped && !discardable->mapped && resident->mapped && !moves->mapped, "all but one went");
	in();
	cr_assert(kept->mapped && discardable->mapped && moves->mapped, "they are back");
	for (size_t i = 0; i < BLOCKS; i++) {
		assert_block(kept, i, 1 + (i << 30));
		assert_block(discardable, i, 0);
		assert_block(resident, i, 1 + (2ull << 40) + (i << 30));
	}
}

Test(swap_exchange, what_another_process_saved_is_not_copied_again)
{
	struct md_swap_exchange *other = NULL;
	struct md_error err = {0};
	set_up_pool(16);
	add(0);
	write_all();
	out(), in();
	cr_assert_eq(md_swap_exchange_create(&below, pool, &other, &err), MD_OK, "%s", err.message);
	md_swap_exchange_destroy(exchange);
	exchange = other;
	cr_assert_eq(out().copied, 0, "the pool has it");
	in();
	assert_all();
}

Test(swap_exchange, a_pool_of_many_chunks_with_holes)
{
	set_up_pool(200);
	uint32_t block;
	bool fresh;
	for (uint64_t i = 0; i < 70; i++) {
		struct md_hash hash = md_hash_bytes(&i, sizeof(i));
		struct md_error err = {0};
		cr_assert_eq(md_swap_pool_take(pool, &hash, &block, &fresh, &err), MD_OK, "%s", err.message);
		if (i % 2)
			md_swap_pool_give(pool, block);
	}
	for (size_t i = 0; i < MOST; i++)
		add(0);
	write_all();
	for (int turn = 0; turn < 3; turn++)
		out(), in();
	assert_all();
}

Test(swap_exchange, prepared_in_the_background)
{
	atomic_bool stop = false;
	set_up_pool(200);
	add(0);
	write_all();
	cr_assert_not(md_swap_exchange_prepare(exchange, context, 200 * MD_SWAP_BLOCK), "nothing has memory yet");
	md_swap_pool_populate(pool, 200, 2, &stop);
	cr_assert(md_swap_exchange_prepare(exchange, context, 200 * MD_SWAP_BLOCK), "a chunk is locked");
	for (int i = 0; i < 3; i++)
		md_swap_exchange_prepare(exchange, context, RANGE_BYTES);
	cr_assert_not(md_swap_exchange_prepare(exchange, context, RANGE_BYTES), "enough");
	out(), in();
	assert_all();
}

Test(swap_exchange, the_context_may_be_another_at_the_same_place)
{
	set_up_pool(16);
	CUcontext other;
	struct memory *m = add(0);
	for (int i = 0; i < 4; i++) {
		ok(md_cuda.cuCtxCreate_v2(&other, 0, 0));
		m->range.context = other;
		write_all();
		out(), in();
		assert_all();
		ok(md_cuda.cuCtxDestroy_v2(other));
		ok(md_cuda.cuCtxSetCurrent(context));
	}
}

/* ---- refusals, after which all is as before ---- */

Test(swap_exchange, should_fail_work_that_does_not_end)
{
	struct md_swap_settings settings = {0};
	struct md_swap_report report;
	struct md_error err = {0};
	set_up_pool(16);
	add(0);
	write_all();
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), MD_ERR_TIMEOUT, "%s", err.message);
	assert_all();
}

Test(swap_exchange, should_fail_a_pool_that_is_too_small)
{
	set_up_pool(4);
	add(0), add(0);
	write_all();
	assert_out_refused(MD_ERR_NO_MEMORY, "it has 8388608 bytes, and 4194304 more are needed");
	cr_assert_eq(md_swap_pool_count(pool).free, 4, "nothing is kept");
	assert_all();
}

Test(swap_exchange, should_fail_twice)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report;
	struct md_error err = {0};
	set_up_pool(4);
	add(0);
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_ERR_BUSY, "it is in");
	out();
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), MD_ERR_BUSY, "it is out");
	in();
}

Test(swap_exchange, an_unmap_that_fails_brings_all_back)
{
	set_up_pool(16);
	add(0), add(0), add(0);
	write_all();
	for (int i = 0; i < 3; i++) {
		unmap_left = i;
		assert_out_refused(MD_ERR_DRIVER, "a failed unmap");
		assert_all();
	}
	unmap_left = -1;
	out(), in();
	assert_all();
}

Test(swap_exchange, no_way_forth_and_none_back)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report;
	struct md_error err = {0};
	set_up_pool(16);
	add(0), add(0);
	write_all();
	unmap_left = 1;
	map_left = 0;
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), MD_ERR_DRIVER, "%s", err.message);
	cr_assert(closed && md_swap_exchange_is_out(exchange), "part of it is out");
	in();
	assert_all();
}

Test(swap_exchange, memory_that_is_missing_at_in)
{
	set_up_pool(16);
	add(0), add(0), add(0);
	write_all();
	out();
	for (int i = 0; i < 3; i++) {
		map_left = i;
		assert_in_refused(false, MD_ERR_DRIVER_MEMORY, "18874368");
	}
	map_left = -1;
	in();
	assert_all();
}

Test(swap_exchange, bytes_that_differ_are_noticed)
{
	set_up_pool(16);
	add(0);
	write_all();
	out();
	((uint8_t *)md_swap_pool_bytes(pool, 1))[12345] ^= 1;
	assert_in_refused(true, MD_ERR_CORRUPT, "has other bytes than when it went out");
	((uint8_t *)md_swap_pool_bytes(pool, 1))[12345] ^= 1;
	in();
	assert_all();
}

/* ---- a broker that answers slowly ---- */

#define SLOW_MS 120
#define ASKED_MOST 5 /* 600 ms */

static unsigned asked, committed;
static enum md_swap_merged answer;

static enum md_swap_merged merge_slowly(const struct md_swap_range *range, const struct md_hash *holds, bool *hopeless)
{
	struct md_error err = {0};
	(void)holds;
	asked++;
	*hopeless = false;
	usleep(answer == MD_SWAP_FILLS ? 0 : SLOW_MS * 1000);
	if (answer == MD_SWAP_FILLS)
		cr_assert_eq(map(range, &err), MD_OK, "%s", err.message);
	return answer;
}

static bool commit_slowly(const struct md_swap_range *range)
{
	(void)range;
	committed++;
	usleep(SLOW_MS * 1000);
	return true;
}

static void note_nothing(const struct md_swap_range *range, const struct md_hash *held)
{
	(void)range, (void)held;
}

static void go_out_and_in_merging(void)
{
	struct md_swap_settings settings = {.merge = true};
	struct md_swap_report report = {0};
	asked = committed = 0;
	out();
	fine(md_swap_in(exchange, &settings, &report, &err));
	assert_all();
}

Test(swap_exchange, a_slow_broker_is_asked_for_half_a_second_however_many_allocations_there_are)
{
	static struct md_swap_below merging;
	merging = below;
	merging.note = note_nothing;
	merging.merge = merge_slowly;
	merging.commit = commit_slowly;
	under = &merging;
	set_up_pool(32);
	for (int i = 0; i < MOST; i++)
		add(0);
	write_all();
	answer = MD_SWAP_NOT_MERGED;
	for (int i = 0; i < 2; i++) {
		go_out_and_in_merging();
		cr_assert(asked >= 1 && asked <= ASKED_MOST, "asked %u times, the next in as well as the first", asked);
	}
	answer = MD_SWAP_FILLS;
	for (int i = 0; i < 24 && asked != MOST; i++) /* where others compute, an answer may take long, too */
		go_out_and_in_merging();
	cr_assert_eq(asked, MOST, "answers that come at once have no end");
	cr_assert(committed >= 1 && committed <= ASKED_MOST, "committed %u times", committed);
}

/* ---- every call of the driver fails once ---- */

/* One round with a failure at call `n`; false when the round has fewer calls. */
static bool survives(int n)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000, .verify = true};
	struct md_swap_report report;
	struct md_error err = {0};
	call_left = n;
	if (md_swap_out(exchange, &settings, &report, &err) != MD_OK) {
		cr_assert_not(md_swap_exchange_is_out(exchange), "call %d: %s", n, err.message);
		assert_all();
	} else if (md_swap_in(exchange, &settings, &report, &err) != MD_OK) {
		cr_assert(closed && md_swap_exchange_is_out(exchange), "call %d: %s", n, err.message);
		in();
	}
	assert_all();
	bool failed = call_left < 0;
	call_left = -1;
	return failed;
}

Test(swap_exchange, each_call_fails_once)
{
	fail_each_call(survives);
}
