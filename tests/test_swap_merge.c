/* SPDX-License-Identifier: Apache-2.0 */
/* Constant memory that comes in from a broker, which the test is: what an engine has when calls fail at each point. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "swap/constant.h"
#include "swap/exchange.h"
#include "swap/gate.h"
#include "swap/peers.h"
#include "tests/swap_broker_fixture.h"

/* ---- an engine ---- */

static CUdeviceptr state; /* which is none */
static struct md_swap_pool *pool;
static struct md_swap_exchange *exchange;

static enum md_status close_gate(uint64_t deadline_ns, struct md_error *err)
{
	(void)deadline_ns, (void)err;
	return MD_OK;
}

static void open_gate(void)
{
}

static bool is_discardable(uint64_t address, uint64_t bytes)
{
	(void)address, (void)bytes;
	return false;
}

static const struct md_swap_below below = {.driver = &driver,
					   .close_gate = close_gate,
					   .open_gate = open_gate,
					   .list = md_swap_memory_list,
					   .unmap = md_swap_memory_unmap,
					   .map = md_swap_memory_map,
					   .discardable = is_discardable,
					   .note = md_swap_merge_note,
					   .merge = md_swap_merge_map,
					   .commit = md_swap_merge_commit};

static void write_to(CUdeviceptr address, unsigned first)
{
	unsigned *words = malloc(BYTES);
	for (unsigned i = 0; i < FLOATS; i++)
		words[i] = first + i * 2654435761u;
	ok(driver.cuMemcpyHtoD_v2(address, words, BYTES));
	free(words);
}

static void assert_holds(CUdeviceptr address, unsigned first)
{
	unsigned *words = malloc(BYTES);
	ok(driver.cuMemcpyDtoH_v2(words, address, BYTES));
	unsigned right = 0;
	while (right < FLOATS && words[right] == first + right * 2654435761u)
		right++;
	cr_assert_eq(right, FLOATS, "word %u", right);
	free(words);
}

static void declare(CUdeviceptr address)
{
	char name[32];
	snprintf(name, sizeof(name), "weights at %llx", address);
	md_swap_constant_bind(name, address, BYTES, true);
}

static struct md_swap_mapping *mapping_of(CUdeviceptr address)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_mapping *mapping = md_swap_mapping_at(address);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return mapping;
}

static enum md_status out(void)
{
	const struct md_swap_settings settings = {.deadline_ns = 1000000000};
	struct md_swap_report report;
	struct md_error err = {0};
	return md_swap_out(exchange, &settings, &report, &err);
}

static enum md_status in(void)
{
	const struct md_swap_settings settings = {.merge = true};
	struct md_swap_report report;
	struct md_error err = {0};
	return md_swap_in(exchange, &settings, &report, &err);
}

static void out_and_in(void)
{
	cr_assert_eq(out(), MD_OK);
	cr_assert_eq(in(), MD_OK);
}

static bool is_shared(CUdeviceptr address)
{
	return mapping_of(address)->physical->read_only;
}

static void add_constant(size_t i)
{
	ok(md_cuda.cuMemAlloc_v2(&constant[i], BYTES));
	write_to(constant[i], 5 + (unsigned)i);
	declare(constant[i]);
}

/* Constant memory of the engine has been out twice, and was the same. */
static void set_up(void)
{
	struct md_error err = {0};
	int fd = -1;
	setenv("HOSTCUDA_DEVICES", "2", 1);
	device_open();
	driver = md_swap_real;
	struct md_cuda table = md_swap_real;
	md_swap_layer(&table); /* the reference brings the layer into this program */
	ok(md_cuda.cuMemAlloc_v2(&state, BYTES));
	write_to(state, 9);
	add_constant(0);
	cr_assert_eq(md_swap_pool_create(16 * MD_SWAP_BLOCK, &fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), MD_OK, "%s", err.message);
	close(fd);
	cr_assert_eq(md_swap_exchange_create(&below, pool, &exchange, &err), MD_OK, "%s", err.message);
	out_and_in();
	cr_assert_not(broker.attaches, "once is not enough");
	cr_assert_eq(out(), MD_OK);
}

static void tear_down(void)
{
	md_swap_exchange_destroy(exchange);
	md_swap_pool_close(pool);
	for (size_t i = 0; i < MOST; i++)
		drop(&memory[i]);
}

TestSuite(swap_merge, .init = set_up, .fini = tear_down, .timeout = 120);

static void assert_own_constant(void)
{
	cr_assert_not(is_shared(constant[0]), "it is shared");
	cr_assert_eq(right_at(constant[0]), CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "it can be written");
	cr_assert_eq(memory->leases, 0, "%u leases are left", memory->leases);
	assert_holds(constant[0], 5);
}

static void assert_own(void)
{
	assert_own_constant();
	assert_holds(state, 9);
}

/* ---- what is merged, and what is not ---- */

Test(swap_merge, one_fills_and_the_next_reads)
{
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]) && memory->committed, "it is given to others");
	cr_assert_eq(right_at(state), CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "nobody has declared that constant");
	assert_holds(constant[0], 5);
	memory->leases++; /* another process reads it */
	out_and_in();
	cr_assert(is_shared(constant[0]) && broker.commits == 1, "it was there");
	cr_assert_eq(right_at(constant[0]), CU_MEM_ACCESS_FLAGS_PROT_READ, "it cannot be written");
	assert_holds(constant[0], 5);
	assert_holds(state, 9);
	ok(md_cuda.cuMemFree_v2(constant[0]));
	cr_assert_eq(memory->leases, 1, "the lease ends with the memory");
	constant[0] = 0;
}

Test(swap_merge, who_fills_or_is_not_there_is_not_waited_for)
{
	broker.busy = true;
	cr_assert_eq(in(), MD_OK);
	assert_own();
	broker.absent = true;
	out_and_in();
	assert_own();
}

static void declare_written(void)
{
	md_swap_constant_bind("a word", constant[0] + 64, 4, false);
}

Test(swap_merge, what_is_declared_written_while_the_broker_is_asked)
{
	meanwhile = declare_written;
	cr_assert_eq(in(), MD_OK);
	meanwhile = NULL;
	cr_assert_eq(broker.attaches, 1, "it was asked");
	assert_own();
}

Test(swap_merge, what_another_device_reaches)
{
	const CUmemAccessDesc right = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = md_swap_mapping_note(md_swap_mapping_at(constant[0]), &right, 1);
	pthread_mutex_unlock(&md_swap_memory_lock);
	ok(result);
	cr_assert_eq(in(), MD_OK);
	cr_assert_not(broker.attaches, "the broker was asked");
	assert_own();
}

Test(swap_merge, a_device_that_reaches_it_later_reads)
{
	unsigned long long flags = 0;
	const CUmemLocation other = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]));
	ok(md_swap_peers_allow(0, 1));
	ok(driver.cuMemGetAccess(&flags, &other, constant[0]));
	cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ, "it may only read");
	ok(driver.cuMemGetAccess(&flags, &other, state));
	cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "it may write to the engine's own");
	out_and_in();
	assert_own();
}

static CUresult export_range(void *handle, CUdeviceptr ptr, size_t bytes, CUmemRangeHandleType type,
			     unsigned long long flags)
{
	(void)handle, (void)ptr, (void)bytes, (void)type, (void)flags;
	return CUDA_SUCCESS;
}

static CUresult bind_address(CUmemGenericAllocationHandle group, size_t at, CUdeviceptr ptr, size_t bytes,
			     unsigned long long flags)
{
	(void)group, (void)at, (void)ptr, (void)bytes, (void)flags;
	return CUDA_SUCCESS;
}

Test(swap_merge, what_goes_to_others_is_not_shared)
{
	CUipcMemHandle handle;
	int fd = -1;
	md_swap_real.cuMemGetHandleForAddressRange = export_range; /* a driver that would allow it */
	md_swap_real.cuMulticastBindAddr = bind_address;
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]));
	refused(CUDA_ERROR_NOT_SUPPORTED, md_cuda.cuIpcGetMemHandle(&handle, constant[0]));
	refused(CUDA_ERROR_NOT_SUPPORTED,
		md_cuda.cuMemGetHandleForAddressRange(&fd, constant[0], BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	refused(CUDA_ERROR_NOT_SUPPORTED, md_cuda.cuMulticastBindAddr(1, 0, constant[0], BYTES, 0));
	broker.absent = true;
	out_and_in();
	ok(md_cuda.cuIpcGetMemHandle(&handle, constant[0]));
	broker.absent = false;
	unsigned before = broker.attaches;
	out_and_in();
	cr_assert_eq(broker.attaches, before, "it has been given to others, who may write to it");
	assert_own();
}

Test(swap_merge, memory_that_was_freed_in_order_is_not_given_out_again)
{
	CUdeviceptr ordered;
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]));
	ok(md_cuda.cuMemFreeAsync(constant[0], NULL));
	ok(md_cuda.cuMemAllocAsync(&ordered, BYTES, NULL));
	cr_assert_eq(right_at(ordered), CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "others read it");
	write_to(ordered, 3);
	constant[0] = 0;
}

/* ---- a write ---- */

static void assert_refused_copies(CUdeviceptr to)
{
	CUstream own = NULL;
	uint64_t word = 0;
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpy(to, state, 8));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpyAsync(to, state, 8, own));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpyHtoD_v2(to, &word, 8));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpyHtoDAsync_v2(to, &word, 8, own));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpyDtoD_v2(to, state, 8));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpyDtoDAsync_v2(to, state, 8, own));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemcpyHtoDAsync_v2_ptsz(to, &word, 8, own));
}

static void assert_refused_sets(CUdeviceptr to)
{
	CUstream own = NULL;
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD8_v2(to, 0, 8));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD16_v2(to, 0, 4));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD32_v2(to, 0, 2));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD8Async(to, 0, 8, own));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD16Async(to, 0, 4, own));
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD32Async(to, 0, 2, own));
}

/* While a stream is captured, work cannot be waited for. */
Test(swap_merge, a_copy_into_it_is_refused_during_a_capture)
{
	uint64_t word = 1;
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]));
	ok(md_cuda.cuMemcpyDtoH_v2(&word, constant[0], 8));
	ok(md_cuda.cuMemcpyDtoD_v2(state, constant[0], 8));
	md_swap_gate_capture_begins((CUstream)&word, NULL);
	assert_refused_copies(constant[0]);
	assert_refused_copies(constant[0] + BYTES - 1); /* its last byte */
	assert_refused_sets(constant[0] + BYTES - 4);
	refused(CUDA_ERROR_NOT_PERMITTED, md_cuda.cuMemsetD8_v2(constant[0] - 4, 0, 8));
	md_swap_gate_capture_ends((CUstream)&word);
	ok(md_cuda.cuMemcpyDtoD_v2(state, state + 8, 8));
	assert_holds(constant[0], 5);
	out_and_in();
	assert_own_constant();
	ok(md_cuda.cuMemcpyHtoD_v2(constant[0], &word, 8));
	out_and_in();
	cr_assert_not(is_shared(constant[0]), "it was written once");
}

/* Behind the same address, with what it held, and for good. */
static void assert_own_in_place(void)
{
	cr_assert_not(is_shared(constant[0]));
	cr_assert_eq(right_at(constant[0]), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	cr_assert_eq(memory->leases, 0, "%u leases", memory->leases);
	write_to(constant[0], 5);
	out_and_in();
	assert_own_constant();
}

Test(swap_merge, a_copy_into_it_gives_the_engine_its_own)
{
	unsigned word = 5;
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]));
	ok(md_cuda.cuMemcpyHtoD_v2(constant[0], &word, 4)); /* what is there already */
	assert_holds(constant[0], 5);
	cr_assert(!md_swap_gate_is_closed());
	assert_own_in_place();
}

Test(swap_merge, a_set_at_its_end_gives_the_engine_its_own)
{
	cr_assert_eq(in(), MD_OK);
	ok(md_cuda.cuMemsetD32_v2(constant[0] + BYTES - 4, 5 + (FLOATS - 1) * 2654435761u, 1));
	assert_holds(constant[0], 5);
	assert_own_in_place();
}

Test(swap_merge, what_is_declared_written_while_it_is_shared)
{
	cr_assert_eq(in(), MD_OK);
	cr_assert(is_shared(constant[0]));
	declare_written();
	cr_assert(is_shared(constant[0]), "kernels may be reading it");
	md_swap_merge_bound(constant[0] + 64, 4);
	assert_holds(constant[0], 5);
	cr_assert_not(is_shared(constant[0]));
	out_and_in();
	assert_own();
}

/* ---- what is not known ---- */

Test(swap_merge, contents_that_are_not_known)
{
	struct md_swap_range *ranges;
	size_t count;
	struct md_error err;
	cr_assert_eq(md_swap_memory_list(&ranges, &count, &err), MD_OK);
	for (size_t i = 0; i < count; i++)
		md_swap_merge_note(&ranges[i], NULL); /* as if there had been no memory for their hash */
	free(ranges);
	cr_assert_eq(in(), MD_OK);
	cr_assert_not(broker.attaches, "the broker was asked");
	assert_own();
}

Test(swap_merge, other_contents_than_it_went_out_with)
{
	const struct md_hash other = {{1}};
	struct md_swap_range range = {
	    .address = constant[0], .bytes = BYTES, .owner = mapping_of(constant[0])->physical};
	bool hopeless;
	cr_assert_eq(md_swap_merge_map(&range, &other, &hopeless), MD_SWAP_NOT_MERGED, "it was merged");
	cr_assert_not(broker.attaches, "the broker was asked");
	cr_assert_eq(in(), MD_OK);
}

static int calls_left = -1, unmaps_left = -1, creates_left = -1; /* until one fails; -1: none does */
static bool goes_on;                                             /* and all later ones */

static bool is_due(int *left)
{
	if (*left < 0 || (*left)-- > 0)
		return false;
	if (goes_on)
		*left = 0;
	return true;
}

#define FAILING(name, own_counter, params, args)                                                                       \
	static CUresult failing_##name params                                                                          \
	{                                                                                                              \
		return is_due(&calls_left) || is_due(&(own_counter)) ? CUDA_ERROR_UNKNOWN : driver.name args;          \
	}
static int never = -1;
FAILING(cuMemCreate, creates_left,
	(CUmemGenericAllocationHandle * h, size_t n, const CUmemAllocationProp *p, unsigned long long f), (h, n, p, f))
FAILING(cuMemUnmap, unmaps_left, (CUdeviceptr p, size_t n), (p, n))
FAILING(cuMemMap, never, (CUdeviceptr p, size_t n, size_t o, CUmemGenericAllocationHandle h, unsigned long long f),
	(p, n, o, h, f))
FAILING(cuMemSetAccess, never, (CUdeviceptr p, size_t n, const CUmemAccessDesc *d, size_t c), (p, n, d, c))
FAILING(cuMemRelease, never, (CUmemGenericAllocationHandle h), (h))
FAILING(cuMemImportFromShareableHandle, never, (CUmemGenericAllocationHandle * h, void *o, CUmemAllocationHandleType t),
	(h, o, t))

static void let_calls_fail(void)
{
	md_swap_real.cuMemCreate = failing_cuMemCreate;
	md_swap_real.cuMemUnmap = failing_cuMemUnmap;
	md_swap_real.cuMemMap = failing_cuMemMap;
	md_swap_real.cuMemSetAccess = failing_cuMemSetAccess;
	md_swap_real.cuMemRelease = failing_cuMemRelease;
	md_swap_real.cuMemImportFromShareableHandle = failing_cuMemImportFromShareableHandle;
}

/* What went out by a call that failed in its middle comes in as it went, not as it was before. */
Test(swap_merge, an_out_that_failed_half_way)
{
	cr_assert_eq(in(), MD_OK);
	memory->leases++; /* another process has what the memory held so far */
	broker.absent = true;
	out_and_in();
	cr_assert_not(is_shared(constant[0]), "it is the engine's own now");
	write_to(constant[0], 6);
	let_calls_fail();
	unmaps_left = 1;
	creates_left = 0;
	cr_assert_eq(out(), MD_ERR_DRIVER, "the second one cannot be unmapped, and the first one not be mapped");
	cr_assert(md_swap_exchange_is_out(exchange));
	broker.absent = false;
	unmaps_left = creates_left = -1;
	cr_assert_eq(in(), MD_OK);
	assert_holds(constant[0], 6);
	assert_holds(state, 9);
}

/* ---- each call fails ---- */

static void bring_in(const char *what, int n)
{
	if (md_swap_exchange_is_out(exchange))
		cr_assert_eq(in(), MD_OK, "%s, call %d: the next in", what, n);
	assert_holds(constant[0], 5);
	assert_holds(state, 9);
	CUmemAccess_flags wanted =
	    is_shared(constant[0]) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (wanted == CU_MEM_ACCESS_FLAGS_PROT_READ || !memory->committed)
		cr_assert_eq(right_at(constant[0]), wanted, "%s, call %d: right %d", what, n, right_at(constant[0]));
}

/* In and out, in which call n fails. False: it has fewer calls. */
static bool survives(const char *what, int n)
{
	calls_left = n;
	bool came = in() == MD_OK;
	bool failed = calls_left < 0;
	calls_left = -1;
	if (came)
		assert_holds(constant[0], 5);
	bring_in(what, n);
	calls_left = failed ? -1 : calls_left;
	cr_assert_eq(out(), MD_OK, "%s, call %d", what, n);
	return failed;
}

Test(swap_merge, each_call_that_gives_the_engine_its_own_fails_once)
{
	CUresult result = CUDA_ERROR_NOT_PERMITTED;
	int n = 0;
	cr_assert_eq(in(), MD_OK);
	let_calls_fail();
	for (; n < 20 && result == CUDA_ERROR_NOT_PERMITTED; n++) {
		cr_assert(is_shared(constant[0]), "before call %d fails", n);
		cr_assert_eq(right_at(constant[0]), CU_MEM_ACCESS_FLAGS_PROT_READ);
		calls_left = n;
		result = md_cuda.cuMemsetD32_v2(constant[0], 5, 1);
		calls_left = -1;
		assert_holds(constant[0], 5);
		cr_assert(!md_swap_gate_is_closed());
	}
	ok(result);
	cr_assert_geq(n, 4, "%d calls failed", n);
	assert_own_in_place();
}

Test(swap_merge, each_call_of_who_fills_fails_once)
{
	int n = 0;
	let_calls_fail();
	while (n < 100 && survives("filling", n)) {
		cr_assert_eq(memory->leases, 0, "call %d: %u leases", n, memory->leases);
		n++;
	}
	cr_assert(n >= 7 && n < 100, "%d calls failed", n);
}

Test(swap_merge, each_call_of_who_reads_fails_once)
{
	int n = 0;
	cr_assert_eq(in(), MD_OK);
	memory->leases++;
	cr_assert_eq(out(), MD_OK);
	let_calls_fail();
	while (n < 100 && survives("reading", n)) {
		cr_assert_eq(memory->leases, 1, "call %d: %u leases", n, memory->leases);
		n++;
	}
	cr_assert(n >= 6 && n < 100, "%d calls failed", n);
}

Test(swap_merge, each_call_of_an_out_fails_once)
{
	let_calls_fail();
	for (int n = 0; n < 4; n++) {
		cr_assert_eq(in(), MD_OK);
		cr_assert(is_shared(constant[0]));
		calls_left = n;
		enum md_status status = out();
		calls_left = -1;
		cr_assert_neq(status, MD_OK, "call %d failed", n);
		bring_in("out", n);
		cr_assert_eq(out(), MD_OK);
		cr_assert_eq(memory->leases, 0, "call %d: %u leases", n, memory->leases);
	}
}

/* The bytes are right, or the engine is out, and what others have is right. */
static void fail_from(int n)
{
	let_calls_fail();
	goes_on = true;
	calls_left = n;
	bool came = in() == MD_OK;
	goes_on = false;
	calls_left = -1;
	cr_assert(came || (md_swap_exchange_is_out(exchange) && !memory->committed), "call %d", n);
	if (came || in() == MD_OK) /* else a mapping could not be undone, and is in the way */
		bring_in("all", n);
}
#define FAIL_FROM(n)                                                                                                   \
	Test(swap_merge, all_calls_fail_from_the_one_after_##n)                                                        \
	{                                                                                                              \
		fail_from(n);                                                                                          \
	}
FAIL_FROM(0)
FAIL_FROM(1)
FAIL_FROM(2)
FAIL_FROM(3)
FAIL_FROM(4)
FAIL_FROM(5)
FAIL_FROM(6)

/* ---- a broker that does not answer ---- */

Test(swap_merge, a_broker_that_does_not_answer_is_asked_once)
{
	broker.absent = true;
	cr_assert_eq(in(), MD_OK);
	add_constant(1);
	out_and_in();
	cr_assert_eq(out(), MD_OK);
	broker.absent = false;
	broker.silent = true;
	cr_assert_eq(in(), MD_OK);
	cr_assert(memory[0].leases == 1 && memory[1].leases == 1, "both are to be filled");
	cr_assert_eq(broker.commits, 1, "it was asked %u times", broker.commits);
	assert_holds(constant[0], 5);
	assert_holds(constant[1], 6);
	cr_assert_eq(right_at(constant[0]), CU_MEM_ACCESS_FLAGS_PROT_READ, "it may have heard of it");
}
