/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's memory that the test keeps, swapped through a table of the driver in which calls can fail. */
#ifndef TESTS_SWAP_EXCHANGE_FIXTURE_H
#define TESTS_SWAP_EXCHANGE_FIXTURE_H

#include <stdatomic.h>
#include <unistd.h>

#include "base/splitmix.h"
#include "swap/exchange.h"
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
static atomic_int unmap_left = -1, map_left = -1; /* calls until one fails; -1: none does */
static struct md_cuda table;                      /* through which swap/ calls, and in which calls fail */
static struct md_swap_pool *pool;
static struct md_swap_exchange *exchange;
static CUcontext context;

static atomic_bool asked_last; /* the last call of the driver asked whether something is done */

static inline bool is_due(atomic_int *left)
{
	atomic_store(&asked_last, false);
	return atomic_load(left) >= 0 && atomic_fetch_sub(left, 1) == 0;
}

/* Questions that follow each other count once: how many there are depends on the machine, and nothing else happens between them. */
static inline bool is_due_asking(atomic_int *left)
{
	bool due = !atomic_load(&asked_last) && is_due(left);
	atomic_store(&asked_last, true);
	return due;
}

static inline enum md_status close_gate(uint64_t deadline_ns, struct md_error *err)
{
	if (!deadline_ns)
		return md_error_set(err, MD_ERR_TIMEOUT, "the work did not end");
	closed = true;
	return MD_OK;
}

static inline void open_gate(void)
{
	closed = false;
}

static inline enum md_status list(struct md_swap_range **ranges, size_t *count, struct md_error *err)
{
	(void)err;
	*ranges = calloc(MOST, sizeof(**ranges));
	for (size_t i = 0; i < memory_count; i++)
		(*ranges)[i] = memory[i].range;
	*count = memory_count;
	return MD_OK;
}

static inline enum md_status unmap(const struct md_swap_range *range, struct md_error *err)
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

static inline enum md_status map(const struct md_swap_range *range, struct md_error *err)
{
	struct memory *m = range->owner;
	CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
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

static inline bool is_discardable(uint64_t address, uint64_t bytes)
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
static const struct md_swap_below *under = &below; /* the exchange */

static inline struct memory *add(uint32_t flags)
{
	struct memory *m = &memory[memory_count++];
	struct md_error err = {0};
	m->range = (struct md_swap_range){.bytes = RANGE_BYTES, .flags = flags, .context = context, .owner = m};
	ok(md_cuda.cuMemAddressReserve(&m->range.address, RANGE_BYTES, 0, 0, 0));
	cr_assert_eq(map(&m->range, &err), MD_OK, "%s", err.message);
	return m;
}

/* Bytes of a block that depend on what; 0: zeros. */
static inline void write_block(const struct memory *m, size_t block, uint64_t what)
{
	uint64_t *words = calloc(1, MD_SWAP_BLOCK);
	for (size_t i = 0; what && i < MD_SWAP_BLOCK / 8; i++)
		words[i] = md_random_mix(what + i);
	ok(md_cuda.cuMemcpyHtoD_v2(m->range.address + block * MD_SWAP_BLOCK, words, MD_SWAP_BLOCK));
	free(words);
}

static inline void assert_block(const struct memory *m, size_t block, uint64_t what)
{
	static uint64_t words[MD_SWAP_BLOCK / 8];
	ok(md_cuda.cuMemcpyDtoH_v2(words, m->range.address + block * MD_SWAP_BLOCK, MD_SWAP_BLOCK));
	size_t right = 0;
	while (right < MD_SWAP_BLOCK / 8 && words[right] == (what ? md_random_mix(what + right) : 0))
		right++;
	cr_assert_eq(right, MD_SWAP_BLOCK / 8, "block %zu, word %zu", block, right);
}

static inline void write_all(void)
{
	for (size_t i = 0; i < memory_count; i++)
		for (size_t block = 0; block < BLOCKS; block++)
			write_block(&memory[i], block, 1 + (i << 40) + (block << 30));
}

static inline void assert_all(void)
{
	cr_assert_not(closed, "the gate is open");
	for (size_t i = 0; i < memory_count; i++)
		for (size_t block = 0; block < BLOCKS; block++)
			assert_block(&memory[i], block, 1 + (i << 40) + (block << 30));
}

static inline void set_up_pool(uint32_t blocks)
{
	struct md_error err = {0};
	int fd = -1;
	cr_assert_eq(md_swap_pool_create(blocks * MD_SWAP_BLOCK, &fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), MD_OK, "%s", err.message);
	close(fd);
	cr_assert_eq(md_swap_exchange_create(under, pool, &exchange, &err), MD_OK, "%s", err.message);
}

static inline void set_up(void)
{
	device_open();
	ok(md_cuda.cuCtxGetCurrent(&context));
	table = md_cuda;
}

static inline void tear_down(void)
{
	md_swap_exchange_destroy(exchange);
	md_swap_pool_close(pool);
}

static inline struct md_swap_report out(void)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), MD_OK, "%s", err.message);
	cr_assert(closed && md_swap_exchange_is_out(exchange), "it is out");
	return report;
}

static inline struct md_swap_report in(void)
{
	struct md_swap_settings settings = {.verify = true};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_in(exchange, &settings, &report, &err), MD_OK, "%s", err.message);
	cr_assert_not(md_swap_exchange_is_out(exchange), "it is in");
	return report;
}

static inline void assert_out_refused(enum md_status status, const char *why)
{
	struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report = {0};
	struct md_error err = {0};
	cr_assert_eq(md_swap_out(exchange, &settings, &report, &err), status, "%s", err.message);
	cr_assert(strstr(err.message, why), "%s", err.message);
	cr_assert_not(md_swap_exchange_is_out(exchange), "it is in");
}

static inline void assert_in_refused(bool verify, enum md_status status, const char *why)
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

static atomic_int
    call_left; /* the thread that compares hashes calls, too; calls of the driver until one fails; negative: none does */

#define FAILING_WHERE(due, name, params, args)                                                                         \
	static inline CUresult failing_##name params                                                                   \
	{                                                                                                              \
		return due(&call_left) ? CUDA_ERROR_UNKNOWN : md_cuda.name args;                                       \
	}
#define FAILING(name, params, args) FAILING_WHERE(is_due, name, params, args)
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
FAILING_WHERE(is_due_asking, cuEventQuery, (CUevent e), (e))
FAILING(cuMemGetInfo_v2, (size_t * f, size_t *t), (f, t))

static inline void let_calls_fail(void)
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

/* The n-th call of the driver fails, for each n, until a round has fewer calls. */
static inline void fail_each_call(bool (*survives)(int n))
{
	int n = 0;
	set_up_pool(16);
	add(0), add(0);
	write_all();
	let_calls_fail();
	call_left = -1;
	while (n < 1000 && survives(n)) {
		n++;
		md_swap_exchange_destroy(exchange);
		md_swap_pool_close(pool);
		set_up_pool(16);
	}
	cr_assert_gt(n, 20, "%d calls failed", n);
	cr_assert_lt(n, 1000, "there was an end to it");
}

#endif
