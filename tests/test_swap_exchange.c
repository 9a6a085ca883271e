/* SPDX-License-Identifier: Apache-2.0 */
/* Out and in over a list of memory that the test keeps: what is copied, what comes back, and what a failure leaves. */
#include "swap/exchange.h"

#include <unistd.h>

#include "base/splitmix.h"
#include "swap/reach.h"
#include "tests/hostcuda_fixture.h"

enum { MOST = 8, BLOCKS = 3 };
#define RANGE_BYTES (BLOCKS * MD_SWAP_BLOCK)

/* ---- an engine's memory ---- */

static struct memory {
	struct md_swap_range range;
	CUmemGenericAllocationHandle handle;
	bool mapped;
} memory[MOST];
static size_t memory_count;
static bool closed;
static int unmap_left = -1, map_left = -1; /* calls until one fails; -1: none does */
static struct md_cuda table;               /* through which swap/ calls, and in which calls fail */
static struct md_swap_pool *pool;
static struct md_swap_exchange *exchange;
static CUcontext context;

static bool is_due(int *left)
{
	return *left >= 0 && (*left)-- == 0;
}

static enum md_status close_gate(uint64_t deadline_ns, struct md_error *err)
{
	if (!deadline_ns)
		return md_error_set(err, MD_ERR_TIMEOUT, "the work did not end");
	closed = true;
	return MD_OK;
}

static void open_gate(void)
{
	closed = false;
}

static enum md_status list(struct md_swap_range **ranges, size_t *count, struct md_error *err)
{
	(void)err;
	*ranges = calloc(MOST, sizeof(**ranges));
	for (size_t i = 0; i < memory_count; i++)
		(*ranges)[i] = memory[i].range;
	*count = memory_count;
	return MD_OK;
}

static enum md_status unmap(const struct md_swap_range *range, struct md_error *err)
{
	struct memory *m = range->owner;
	cr_assert(closed && m->mapped, "only what is mapped, behind a closed gate");
	if (is_due(&unmap_left))
		return md_error_set(err, MD_ERR_DRIVER, "a failed unmap");
	ok(md_cuda.cuMemUnmap(range->address, range->bytes));
	ok(md_cuda.cuMemRelease(m->handle));
	m->mapped = false;
	return MD_OK;
}

static enum md_status map(const struct md_swap_range *range, struct md_error *err)
{
	struct memory *m = range->owner;
	CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	cr_assert_not(m->mapped, "only what is not mapped");
	if (is_due(&map_left))
		return md_error_set(err, MD_ERR_DRIVER_MEMORY, "cuMemCreate: no memory");
	ok(md_cuda.cuMemCreate(&m->handle, range->bytes, &kind, 0));
	ok(md_cuda.cuMemMap(range->address, range->bytes, 0, m->handle, 0));
	ok(md_cuda.cuMemSetAccess(range->address, range->bytes, &access, 1));
	m->mapped = true;
	return MD_OK;
}

static uint64_t discardable_from, discardable_to;

static bool is_discardable(uint64_t address, uint64_t bytes)
{
	return address >= discardable_from && address + bytes <= discardable_to;
}

static const struct md_swap_below below = {.driver = &table,
					   .close_gate = close_gate,
					   .open_gate = open_gate,
					   .list = list,
					   .unmap = unmap,
					   .map = map,
					   .discardable = is_discardable};

static struct memory *add(uint32_t flags)
{
	struct memory *m = &memory[memory_count++];
	struct md_error err = {0};
	m->range = (struct md_swap_range){.bytes = RANGE_BYTES, .flags = flags, .context = context, .owner = m};
	ok(md_cuda.cuMemAddressReserve(&m->range.address, RANGE_BYTES, 0, 0, 0));
	cr_assert_eq(map(&m->range, &err), MD_OK, "%s", err.message);
	return m;
}

/* Bytes of a block that depend on what; 0: zeros. */
static void write_block(const struct memory *m, size_t block, uint64_t what)
{
	uint64_t *words = calloc(1, MD_SWAP_BLOCK);
	for (size_t i = 0; what && i < MD_SWAP_BLOCK / 8; i++)
		words[i] = md_random_mix(what + i);
	ok(md_cuda.cuMemcpyHtoD_v2(m->range.address + block * MD_SWAP_BLOCK, words, MD_SWAP_BLOCK));
	free(words);
}

static void assert_block(const struct memory *m, size_t block, uint64_t what)
{
	uint64_t *words = malloc(MD_SWAP_BLOCK);
	ok(md_cuda.cuMemcpyDtoH_v2(words, m->range.address + block * MD_SWAP_BLOCK, MD_SWAP_BLOCK));
	for (size_t i = 0; i < MD_SWAP_BLOCK / 8; i++)
		cr_assert_eq(words[i], what ? md_random_mix(what + i) : 0, "block %zu, word %zu", block, i);
	free(words);
}

static void write_all(void)
{
	for (size_t i = 0; i < memory_count; i++)
		for (size_t block = 0; block < BLOCKS; block++)
			write_block(&memory[i], block, 1 + (i << 40) + (block << 30));
}

static void assert_all(void)
{
	cr_assert_not(closed, "the gate is open");
	for (size_t i = 0; i < memory_count; i++)
		for (size_t block = 0; block < BLOCKS; block++)
			assert_block(&memory[i], block, 1 + (i << 40) + (block << 30));
}

static void set_up_pool(uint32_t blocks)
{
	struct md_error err = {0};
	int fd = -1;
	cr_assert_eq(md_swap_pool_create(blocks * MD_SWAP_BLOCK, &fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), MD_OK, "%s", err.message);
	close(fd);
	cr_assert_eq(md_swap_exchange_create(&below, pool, &exchange, &err), MD_OK, "%s", err.message);
}

static void set_up(void)
{
	device_open();
	ok(md_cuda.cuCtxGetCurrent(&context));
	table = md_cuda;
}

static void tear_down(void)
{
	md_swap_exchange_destroy(exchange);
	md_swap_pool_close(pool);
}

TestSuite(swap_exchange, .init = set_up, .fini = tear_down, .timeout = 120);

static struct md_swap_report out(void)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), MD_OK, "%s", err.message);
	cr_assert(closed && md_swap_exchange_is_out(exchange), "it is out");
	return report;
}

static struct md_swap_report in(void)
{
	struct md_swap_settings settings = {.verify = true};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_OK, "%s", err.message);
	cr_assert_not(md_swap_exchange_is_out(exchange), "it is in");
	return report;
}

static void assert_out_refused(enum md_status status, const char *why)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), status, "%s", err.message);
	cr_assert(strstr(err.message, why), "%s", err.message);
	cr_assert_not(md_swap_exchange_is_out(exchange), "it is in");
}

static void assert_in_refused(bool verify, enum md_status status, const char *why)
{
	struct md_swap_settings settings = {.verify = verify};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), status, "%s", err.message);
	cr_assert(strstr(err.message, why), "%s", err.message);
	cr_assert(closed && md_swap_exchange_is_out(exchange), "it is out");
	for (size_t i = 0; i < memory_count; i++)
		cr_assert_not(memory[i].mapped, "range %zu is unmapped", i);
}

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

/* ---- every call of the driver fails once ---- */

static int call_left;

#define FAILING(name, params, args)                                                                                    \
	static CUresult failing_##name params                                                                          \
	{                                                                                                              \
		return is_due(&call_left) ? CUDA_ERROR_UNKNOWN : md_cuda.name args;                                    \
	}
FAILING(cuCtxSetCurrent, (CUcontext c), (c))
FAILING(cuStreamCreate, (CUstream * s, unsigned f), (s, f))
FAILING(cuMemHostRegister_v2, (void *p, size_t n, unsigned f), (p, n, f))
FAILING(cuMemHostAlloc, (void **p, size_t n, unsigned f), (p, n, f))
FAILING(cuMemcpyDtoHAsync_v2, (void *p, CUdeviceptr d, size_t n, CUstream s), (p, d, n, s))
FAILING(cuMemcpyHtoDAsync_v2, (CUdeviceptr d, const void *p, size_t n, CUstream s), (d, p, n, s))
FAILING(cuMemsetD8Async, (CUdeviceptr d, unsigned char c, size_t n, CUstream s), (d, c, n, s))
FAILING(cuStreamSynchronize, (CUstream s), (s))
FAILING(cuCtxPushCurrent_v2, (CUcontext c), (c))
FAILING(cuEventCreate, (CUevent * e, unsigned f), (e, f))
FAILING(cuEventRecord, (CUevent e, CUstream s), (e, s))
FAILING(cuEventQuery, (CUevent e), (e))
FAILING(cuMemGetInfo_v2, (size_t * f, size_t *t), (f, t))

static void let_calls_fail(void)
{
	table.cuCtxSetCurrent = failing_cuCtxSetCurrent;
	table.cuStreamCreate = failing_cuStreamCreate;
	table.cuMemHostRegister_v2 = failing_cuMemHostRegister_v2;
	table.cuMemHostAlloc = failing_cuMemHostAlloc;
	table.cuMemcpyDtoHAsync_v2 = failing_cuMemcpyDtoHAsync_v2;
	table.cuMemcpyHtoDAsync_v2 = failing_cuMemcpyHtoDAsync_v2;
	table.cuMemsetD8Async = failing_cuMemsetD8Async;
	table.cuStreamSynchronize = failing_cuStreamSynchronize;
	table.cuCtxPushCurrent_v2 = failing_cuCtxPushCurrent_v2;
	table.cuEventCreate = failing_cuEventCreate;
	table.cuEventRecord = failing_cuEventRecord;
	table.cuEventQuery = failing_cuEventQuery;
	table.cuMemGetInfo_v2 = failing_cuMemGetInfo_v2;
}

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
	int n = 0;
	set_up_pool(16);
	add(0), add(0);
	write_all();
	let_calls_fail();
	while (n < 1000 && survives(n)) {
		n++;
		md_swap_exchange_destroy(exchange);
		md_swap_pool_close(pool);
		set_up_pool(16);
	}
	cr_assert_gt(n, 20, "%d calls failed", n);
	cr_assert_lt(n, 1000, "there was an end to it");
}

/* ---- in with overlap ---- */

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

Test(swap_exchange, overlapped_all_comes_back)
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

Test(swap_exchange, overlapped_out_waits_for_what_is_arriving)
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

Test(swap_exchange, overlapped_a_call_waits_for_a_range)
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

Test(swap_exchange, overlapped_memory_that_cannot_come_fails_the_call_that_needs_it)
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

Test(swap_exchange, should_fail_verified_and_overlapped)
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

Test(swap_exchange, overlapped_each_call_fails_once)
{
	int n = 0;
	set_up_pool(16);
	add(0), add(0);
	write_all();
	let_calls_fail();
	call_left = -1;
	while (n < 1000 && survives_overlapped(n)) {
		n++;
		md_swap_exchange_destroy(exchange);
		md_swap_pool_close(pool);
		set_up_pool(16);
	}
	cr_assert_gt(n, 20, "%d calls failed", n);
	cr_assert_lt(n, 1000, "there was an end to it");
}
