/* SPDX-License-Identifier: Apache-2.0 */
/* Out and in where the pool's memory is too small: through the spill file, and what each failure leaves. */
#include "swap/arrival.h"
#include "tests/swap_exchange_fixture.h"
#include "tests/swap_spill_fixture.h"

TestSuite(swap_exchange_spill, .init = set_up, .fini = tear_down, .timeout = 180);

static struct md_swap_pool *other; /* another engine */

static void set_up_spilling(uint32_t blocks, uint32_t in_file)
{
	struct md_error err = {0};
	int fd = make_spilling(blocks, in_file);
	pool = open_spilling(fd);
	other = open_spilling(fd);
	close(fd);
	cr_assert_eq(md_swap_exchange_create(&below, pool, &exchange, &err), MD_OK, "%s", err.message);
}

static void end(void)
{
	md_swap_exchange_destroy(exchange);
	md_swap_pool_close(pool);
	md_swap_pool_close(other);
	md_swap_spill_close(&spill);
	exchange = NULL;
	pool = other = NULL;
}

/* The other engine holds as many blocks, and is out. */
static void hold_by_other(uint32_t count)
{
	struct md_error err = {0};
	uint32_t block;
	bool fresh;
	for (uint32_t i = 0; i < count; i++) {
		struct md_hash hash = md_hash_bytes(&i, sizeof(i));
		cr_assert_eq(md_swap_pool_take(other, &hash, &block, &fresh, &err), MD_OK, "%s", err.message);
		memset(md_swap_pool_bytes(other, block), (int)i, MD_SWAP_BLOCK);
		md_swap_pool_filled(other, block);
	}
	md_swap_pool_rest(other);
}

static void check_other(uint32_t count)
{
	static _Alignas(4096) uint8_t room[MD_SWAP_BLOCK];
	md_swap_pool_work(other);
	for (uint32_t i = 0; i < count; i++) {
		struct md_hash hash = md_hash_bytes(&i, sizeof(i));
		uint32_t block;
		cr_assert(md_swap_pool_locate(other, &hash, &block), "block %u", i);
		const uint8_t *bytes = room;
		if (md_swap_is_spilled(block))
			cr_assert_eq(md_swap_spill_read(&spill, block - MD_SWAP_SPILLED, room), 0, "read");
		else
			bytes = md_swap_pool_bytes(other, block);
		for (size_t at = 0; at < MD_SWAP_BLOCK; at += 1000)
			cr_assert_eq(bytes[at], (uint8_t)i, "block %u", i);
	}
	md_swap_pool_rest(other);
}

/* Moves this engine's blocks to the file, and fills their memory with others. */
static void push_out(uint32_t blocks)
{
	struct md_error err = {0};
	uint64_t written;
	uint32_t block;
	bool fresh;
	cr_assert_eq(md_swap_pool_make_room(other, blocks, &written, &err), MD_OK, "%s", err.message);
	for (uint32_t i = 1000; i < 1000 + blocks; i++) {
		struct md_hash hash = md_hash_bytes(&i, sizeof(i));
		cr_assert_eq(md_swap_pool_take(other, &hash, &block, &fresh, &err), MD_OK, "%s", err.message);
		memset(md_swap_pool_bytes(other, block), 0xee, MD_SWAP_BLOCK);
		md_swap_pool_filled(other, block);
	}
}

/* ---- what goes and comes ---- */

Test(swap_exchange_spill, an_engine_larger_than_memory)
{
	set_up_spilling(4, 60);
	for (size_t i = 0; i < MOST; i++)
		add(0);
	write_all();
	struct md_swap_report report = out();
	cr_assert_eq(report.copied, MOST * RANGE_BYTES, "%zu copied", (size_t)report.copied);
	cr_assert_eq(report.spilled, 20 * MD_SWAP_BLOCK, "%zu spilled", (size_t)report.spilled);
	report = in();
	cr_assert_eq(report.copied, MOST * RANGE_BYTES, "%zu copied", (size_t)report.copied);
	cr_assert(report.spilled == 20 * MD_SWAP_BLOCK && report.ns_spill, "%zu from the file", (size_t)report.spilled);
	assert_all();
	report = out();
	cr_assert(!report.copied && !report.spilled && report.hashed_equal == MOST * RANGE_BYTES,
		  "the file has them: %zu copied", (size_t)report.copied);
	in();
	assert_all();
	for (int turn = 0; turn < 5; turn++) {
		write_block(&memory[turn], 1, 1000 + (uint64_t)turn);
		out(), in();
		assert_block(&memory[turn], 1, 1000 + (uint64_t)turn);
		write_block(&memory[turn], 1, 1 + ((uint64_t)turn << 40) + (1ull << 30));
	}
	out(), in();
	assert_all();
	cr_assert_eq(md_swap_pool_count(pool).held + md_swap_pool_count(pool).spill.held, 0, "all is given back");
	end();
}

Test(swap_exchange_spill, another_engine_makes_room)
{
	set_up_spilling(8, 8);
	hold_by_other(8);
	add(0), add(0);
	write_all();
	struct md_swap_report report = out();
	cr_assert_eq(report.spilled, 6 * MD_SWAP_BLOCK, "%zu", (size_t)report.spilled);
	check_other(8);
	report = in();
	cr_assert_eq(report.spilled, 0, "what went last is in memory");
	assert_all();
	check_other(8);
	end();
}

Test(swap_exchange_spill, what_was_moved_comes_back_and_stays_in_memory_if_there_is_room)
{
	set_up_spilling(8, 16);
	add(0), add(0);
	write_all();
	out();
	push_out(8);
	struct md_swap_report report = in();
	cr_assert_eq(report.spilled, 6 * MD_SWAP_BLOCK, "%zu", (size_t)report.spilled);
	assert_all();
	out();
	report = in();
	cr_assert_eq(report.spilled, 6 * MD_SWAP_BLOCK, "memory is still full: %zu", (size_t)report.spilled);
	md_swap_pool_close(other);
	out();
	report = in();
	cr_assert_eq(report.spilled, 6 * MD_SWAP_BLOCK, "now it is kept");
	out();
	report = in();
	cr_assert_eq(report.spilled, 0, "so it comes from memory: %zu", (size_t)report.spilled);
	assert_all();
	other = NULL;
	end();
}

Test(swap_exchange_spill, equal_blocks_are_held_once)
{
	set_up_spilling(1, 16);
	struct memory *one = add(0), *two = add(0);
	for (size_t i = 0; i < BLOCKS; i++) {
		write_block(one, i, i ? 5 : 0);
		write_block(two, i, 5 + i);
	}
	out();
	cr_assert_eq(md_swap_pool_count(pool).held + md_swap_pool_count(pool).spill.held, 3, "each is held once");
	push_out(1);
	in();
	for (size_t i = 0; i < BLOCKS; i++) {
		assert_block(one, i, i ? 5 : 0);
		assert_block(two, i, 5 + i);
	}
	cr_assert_eq(md_swap_pool_count(pool).spill.held, 0, "all is given back");
	end();
}

Test(swap_exchange_spill, overlap_is_for_what_is_in_memory)
{
	struct md_swap_settings settings = {.overlap = true};
	struct md_swap_report report;
	struct md_error err = {0};
	set_up_spilling(8, 16);
	add(0), add(0);
	write_all();
	out();
	push_out(3);
	while (md_swap_exchange_look(exchange))
		;
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_OK, "%s", err.message);
	cr_assert(report.spilled && !report.coming && !md_swap_exchange_is_arriving(exchange), "all is there");
	assert_all();
	md_swap_pool_close(other);
	other = NULL;
	out(), in(); /* there is room in memory now */
	out();
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_OK, "%s", err.message);
	cr_assert(report.coming, "from memory");
	cr_assert_eq(md_swap_exchange_settle(exchange, 10000000000, &err), MD_OK, "%s", err.message);
	assert_all();
	end();
}

/* ---- refusals ---- */

Test(swap_exchange_spill, should_fail_when_both_are_full)
{
	set_up_spilling(4, 3);
	hold_by_other(4);
	add(0), add(0);
	write_all();
	assert_out_refused(MD_ERR_NO_MEMORY, " 6291456, and 6291456 more are needed");
	cr_assert_eq(md_swap_pool_count(pool).spill.free, 3, "nothing was moved");
	assert_all();
	check_other(4);
	end();
}

/* Changes a byte of a block in the file, and changes it back. */
static void flip(uint32_t block)
{
	static _Alignas(4096) uint8_t data[MD_SWAP_BLOCK];
	cr_assert_eq(md_swap_spill_read(&spill, block, data), 0, "read");
	data[12345] ^= 1;
	cr_assert_eq(md_swap_spill_write(&spill, block, data), 0, "written");
}

/* Two ranges, of which so many blocks are in the file alone. */
static void go_out_to_file(uint32_t blocks)
{
	set_up_spilling(8, 16);
	add(0), add(0);
	write_all();
	out();
	push_out(blocks);
}

Test(swap_exchange_spill, should_fail_bytes_that_were_changed_in_the_file)
{
	go_out_to_file(8);
	for (uint32_t block = 0; block < 6; block += 5) {
		char where[64];
		snprintf(where, sizeof(where), "the 2 MiB at offset %llu have other bytes", block * MD_SWAP_BLOCK);
		flip(block);
		assert_in_refused(false, MD_ERR_CORRUPT, where);
		assert_in_refused(false, MD_ERR_CORRUPT, "the spill file in ");
		flip(block);
	}
	in();
	assert_all();
	end();
}

Test(swap_exchange_spill, should_fail_bytes_that_were_changed_which_memory_does_not_keep)
{
	go_out_to_file(5);
	md_swap_pool_close(other);
	other = NULL;
	flip(0);
	assert_in_refused(false, MD_ERR_CORRUPT, "have other bytes");
	flip(0);
	in(); /* which compares all */
	assert_all();
	end();
}

Test(swap_exchange_spill, should_fail_a_file_that_cannot_be_read)
{
	struct md_error err = {0};
	uint64_t written;
	go_out_to_file(5);
	cr_assert_lt(md_swap_pool_count(pool).spill.held, 6, "some are in memory");
	for (call_fails = 0; call_fails < 2;) {
		int n = call_fails;
		assert_in_refused(false, MD_ERR_CORRUPT, "reading 2 MiB at offset ");
		call_fails = n + 1;
	}
	call_fails = -1;
	cr_assert_eq(md_swap_pool_make_room(other, 8, &written, &err), MD_OK, "%s", err.message);
	cr_assert(written, "the engine is out, and its blocks may be moved as before");
	in();
	assert_all();
	end();
}

/* ---- every call of the system, and of the driver, fails once ---- */

static CUresult failing_event_synchronize(CUevent event)
{
	return is_due(&call_left) ? CUDA_ERROR_UNKNOWN : md_cuda.cuEventSynchronize(event);
}

static CUresult failing_synchronize(void)
{
	return is_due(&call_left) ? CUDA_ERROR_UNKNOWN : md_cuda.cuCtxSynchronize();
}

/* Two ranges, of which a part goes to the file at once, and another engine's blocks, too. False: nothing has failed. */
static bool survives(int n, bool system)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report;
	struct md_error err = {0};
	set_up_spilling(4, 12);
	hold_by_other(3);
	call_left = system ? -1 : n;
	call_fails = system ? n : -1;
	if (md_swap_out(exchange, &settings, &report, &err) != MD_OK) {
		cr_assert_not(md_swap_exchange_is_out(exchange), "call %d: %s", n, err.message);
		assert_all();
		check_other(3);
	} else if (md_swap_in(exchange, &settings, &report, &err) != MD_OK) {
		cr_assert(closed && md_swap_exchange_is_out(exchange), "call %d: %s", n, err.message);
		check_other(3);
		in();
	}
	bool failed = (system ? call_fails : call_left) < 0;
	call_left = call_fails = -1;
	assert_all();
	out(), in();
	assert_all();
	check_other(3);
	end();
	return failed;
}

static void fail_each(bool system, int least)
{
	int n = 0;
	add(0), add(0);
	write_all();
	let_calls_fail();
	table.cuEventSynchronize = failing_event_synchronize;
	table.cuCtxSynchronize = failing_synchronize;
	while (n < 1000 && survives(n, system))
		n++;
	cr_assert_gt(n, least, "%d calls failed", n);
	cr_assert_lt(n, 1000, "there was an end to it");
}

Test(swap_exchange_spill, each_call_of_the_driver_fails_once)
{
	fail_each(false, 40);
}

Test(swap_exchange_spill, each_call_of_the_system_fails_once)
{
	fail_each(true, 10);
}
