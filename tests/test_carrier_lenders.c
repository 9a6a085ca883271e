/* SPDX-License-Identifier: Apache-2.0 */
/* The carrier's part of a loan: what is mapped and unmapped beside the copies, in which order, and what fails of that. */
#include "tools/carrier_lenders.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/hostcuda_fixture.h"

enum { LENDERS = 2, KINDS = 4, CHUNKS = 96, OWN_BLOCKS = 96 };
#define OWN_BYTES (OWN_BLOCKS * MD_SWAP_BLOCK)
#define PATIENCE_NS 20000000000ull

/* ---- calls of the driver in the mapper's thread ---- */

enum call { NONE, CONTEXT, IMPORT, RESERVE, MAP, ACCESS, UNMAP, FREE, RELEASE, CALLS };

static struct md_cuda driver;
static pthread_t copies; /* the test's thread */
static atomic_int count_of[CALLS], calls, fail_at, failed;
static atomic_int handles, mappings, ranges; /* that the mapper has */
static atomic_int hold, hold_at;             /* this call, the n-th one, is held */
static atomic_bool holds, gave_up;

static CUresult enter(enum call call)
{
	if (pthread_equal(pthread_self(), copies))
		return CUDA_SUCCESS;
	int of_kind = atomic_fetch_add(&count_of[call], 1) + 1;
	uint64_t began = md_clock_ns();
	while (atomic_load(&hold) == (int)call && atomic_load(&hold_at) == of_kind) {
		atomic_store(&holds, true);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		if (md_clock_ns() - began < PATIENCE_NS / 2)
			continue;
		atomic_store(&gave_up, true);
		break;
	}
	if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&fail_at))
		return CUDA_SUCCESS;
	atomic_store(&failed, (int)call);
	return CUDA_ERROR_UNKNOWN;
}

static CUresult leave(enum call call, CUresult result)
{
	static const int changes[CALLS] = {
	    [IMPORT] = 1, [RESERVE] = 1, [MAP] = 1, [UNMAP] = -1, [FREE] = -1, [RELEASE] = -1};
	atomic_int *kept = call == IMPORT || call == RELEASE ? &handles
			   : call == MAP || call == UNMAP    ? &mappings
							     : &ranges;
	if (!pthread_equal(pthread_self(), copies) && result == CUDA_SUCCESS)
		atomic_fetch_add(kept, changes[call]);
	return result;
}

#define WRAP(call, name, symbol, params, args)                                                                         \
	static CUresult CUDAAPI name params                                                                            \
	{                                                                                                              \
		CUresult result = enter(call);                                                                         \
		return leave(call, result == CUDA_SUCCESS ? driver.symbol args : result);                              \
	}
WRAP(CONTEXT, set_context, cuCtxSetCurrent, (CUcontext context), (context))
WRAP(IMPORT, import, cuMemImportFromShareableHandle,
     (CUmemGenericAllocationHandle * handle, void *shared, CUmemAllocationHandleType type), (handle, shared, type))
WRAP(RESERVE, reserve, cuMemAddressReserve,
     (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags),
     (address, bytes, alignment, at, flags))
WRAP(MAP, map, cuMemMap,
     (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
     (address, bytes, offset, handle, flags))
WRAP(ACCESS, set_access, cuMemSetAccess,
     (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count), (address, bytes, access, count))
WRAP(UNMAP, unmap, cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes))
WRAP(FREE, free_addresses, cuMemAddressFree, (CUdeviceptr address, size_t bytes), (address, bytes))
WRAP(RELEASE, release, cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))

static void watch_calls(void)
{
	driver = md_cuda;
	copies = pthread_self();
	md_cuda.cuCtxSetCurrent = set_context;
	md_cuda.cuMemImportFromShareableHandle = import;
	md_cuda.cuMemAddressReserve = reserve;
	md_cuda.cuMemMap = map;
	md_cuda.cuMemSetAccess = set_access;
	md_cuda.cuMemUnmap = unmap;
	md_cuda.cuMemAddressFree = free_addresses;
	md_cuda.cuMemRelease = release;
}

static void hold_call(enum call call, int at)
{
	atomic_store(&holds, false);
	atomic_store(&hold_at, at);
	atomic_store(&hold, (int)call);
}

static void let_go(void)
{
	atomic_store(&hold, NONE);
}

static int count(enum call call)
{
	return atomic_load(&count_of[call]);
}

/* ---- lenders, an engine, and the carrier ---- */

static struct lender {
	int fd;
	uint64_t says_bytes; /* of a part; 0: what it has */
} lenders_of[LENDERS];

static struct md_lanes lanes;
static struct md_lenders lenders;
static struct md_mapper *mapper;
static CUmemGenericAllocationHandle lent[KINDS]; /* each of one block; parts of lenders take turns */
static int session, engine;
static enum answer { NO_ANSWER, DONE, REFUSED } answers[CHUNKS];
static uint32_t places[CHUNKS], next_place; /* blocks of the engine */
static enum md_status worked;
static struct md_error why;

static void make_lent(void)
{
	CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, lanes.list[0].device}};
	CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	for (unsigned i = 0; i < KINDS; i++) {
		CUdeviceptr address;
		ok(md_cuda.cuMemCreate(&lent[i], MD_SWAP_BLOCK, &kind, 0));
		ok(md_cuda.cuMemAddressReserve(&address, MD_SWAP_BLOCK, 0, 0, 0));
		ok(md_cuda.cuMemMap(address, MD_SWAP_BLOCK, 0, lent[i], 0));
		ok(md_cuda.cuMemSetAccess(address, MD_SWAP_BLOCK, &access, 1));
		ok(md_cuda.cuMemsetD8_v2(address, (unsigned char)(1 + i), MD_SWAP_BLOCK));
		ok(md_cuda.cuCtxSynchronize());
		ok(md_cuda.cuMemUnmap(address, MD_SWAP_BLOCK));
		ok(md_cuda.cuMemAddressFree(address, MD_SWAP_BLOCK));
	}
}

static void make_lanes(void)
{
	struct md_carrier_lane *lane = &lanes.list[0];
	lanes.count = 1;
	lanes.take_streams = 2;
	lanes.parts = calloc(1, sizeof(*lanes.parts));
	lanes.part_count = 1;
	lanes.parts[0] = (struct md_carrier_part){.there = true, .bytes = OWN_BYTES};
	ok(md_cuda.cuMemAlloc_v2(&lanes.parts[0].address, OWN_BYTES));
	lane->device = 1;
	snprintf(lane->gpu, sizeof(lane->gpu), "GPU-of-the-lender");
	ok(md_cuda.cuDevicePrimaryCtxRetain(&lane->context, 1));
	ok(md_cuda.cuCtxSetCurrent(lane->context));
	for (unsigned i = 0; i < lanes.take_streams; i++)
		ok(md_cuda.cuStreamCreate(&lane->takes[i], CU_STREAM_NON_BLOCKING));
}

static void add_lender(unsigned number)
{
	struct md_error err = {0};
	int ends[2];
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	lenders_of[number] = (struct lender){.fd = ends[1]};
	cr_assert_eq(md_lenders_add(&lenders, number, "GPU-of-the-lender", &ends[0], &err), MD_OK, "%s", err.message);
	cr_assert_lt(ends[0], 0, "it has the connection");
}

static void set_up(void)
{
	struct md_error err = {0};
	int ends[2];
	setenv("HOSTCUDA_DEVICES", "2", 1);
	device_open();
	make_lanes();
	make_lent();
	watch_calls();
	cr_assert_eq(md_mapper_create(&mapper, &err), MD_OK, "%s", err.message);
	md_lenders_init(&lenders, &lanes, mapper);
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	session = ends[0];
	engine = ends[1];
	for (unsigned i = 0; i < LENDERS; i++)
		add_lender(i);
}

static void tear_down(void)
{
	md_mapper_destroy(mapper);
	free(lanes.parts);
}

static void hand_over(const struct lender *lender, uint32_t part)
{
	struct md_carry_message message = {.kind = MD_CARRY_PART, .part = part};
	struct md_error err = {0};
	int fd;
	ok(driver.cuMemExportToShareableHandle(&fd, lent[part % KINDS], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	message.bytes = lender->says_bytes ? lender->says_bytes : MD_SWAP_BLOCK;
	cr_assert_eq(md_carry_wire_send(lender->fd, &message, fd, &err), MD_OK, "%s", err.message);
	close(fd);
}

/* False: the connection has ended, so the lender has its memory back. */
static bool lends(const struct lender *lender)
{
	struct md_carry_message message;
	struct md_error err = {0};
	bool there = true;
	int none = -1;
	while (there) {
		if (md_carry_wire_receive(lender->fd, &message, &none, &there, &err) != MD_OK)
			return false;
		if (there && message.kind == MD_CARRY_PART)
			hand_over(lender, message.part);
	}
	return true;
}

static void hear_carrier(void)
{
	struct md_carry_message message;
	struct md_error err = {0};
	bool there = true;
	while (there) {
		int passed = -1;
		cr_assert_eq(md_carry_wire_receive(engine, &message, &passed, &there, &err), MD_OK, "%s", err.message);
		if (passed >= 0)
			close(passed);
		if (there && (message.kind == MD_CARRY_DONE || message.kind == MD_CARRY_NOT)) {
			cr_assert_eq(answers[message.chunk], NO_ANSWER, "chunk %u once", message.chunk);
			answers[message.chunk] = message.kind == MD_CARRY_DONE ? DONE : REFUSED;
		}
	}
}

static void step(void)
{
	worked = worked == MD_OK ? md_lenders_work(&lenders, session, &why) : worked;
	hear_carrier();
	for (unsigned i = 0; i < LENDERS; i++)
		lends(&lenders_of[i]);
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

#define until(condition)                                                                                               \
	do {                                                                                                           \
		uint64_t began_ = md_clock_ns();                                                                       \
		while (!(condition) && worked == MD_OK && md_clock_ns() - began_ < PATIENCE_NS)                        \
			step();                                                                                        \
		cr_assert(condition, "line %d: %s: %s", __LINE__, #condition, why.message);                            \
	} while (0)

/* Blocks of so many parts of the lender, from one on. Copies that are under way together go to other places. */
static void take(uint32_t chunk, uint32_t lender, uint32_t part, uint32_t parts)
{
	struct md_carry_message message = {.kind = MD_CARRY_TAKE, .chunk = chunk, .link = lender, .count = parts};
	struct md_error err = {0};
	places[chunk] = next_place + parts <= OWN_BLOCKS ? next_place : 0;
	next_place = places[chunk] + parts;
	for (uint32_t i = 0; i < parts; i++)
		message.takes[i] =
		    (struct md_carry_take){.offset = (places[chunk] + i) * MD_SWAP_BLOCK, .part = part + i};
	cr_assert_eq(md_lenders_take(&lenders, &message, &err), MD_OK, "%s", err.message);
}

static void assert_right(uint32_t chunk, uint32_t part, uint32_t parts)
{
	uint8_t *bytes = malloc(MD_SWAP_BLOCK);
	for (uint32_t i = 0; i < parts; i++) {
		ok(driver.cuMemcpyDtoH_v2(bytes, lanes.parts[0].address + (places[chunk] + i) * MD_SWAP_BLOCK,
					  MD_SWAP_BLOCK));
		cr_assert(bytes[0] == 1 + (part + i) % KINDS && !memcmp(bytes, bytes + 1, MD_SWAP_BLOCK - 1),
			  "part %u holds %u", part + i, bytes[0]);
	}
	free(bytes);
}

static void assert_nothing_kept(void)
{
	cr_assert_eq(atomic_load(&handles), 0, "handles");
	cr_assert_eq(atomic_load(&mappings), 0, "mappings");
	cr_assert_eq(atomic_load(&ranges), 0, "ranges of addresses");
}

static void end(void)
{
	cr_assert_eq(md_lenders_drop(&lenders, &why), MD_OK, "%s", why.message);
	assert_nothing_kept();
	for (unsigned i = 0; i < LENDERS; i++)
		cr_assert_not(lends(&lenders_of[i]), "lender %u has its memory back", i);
	cr_assert_not(atomic_load(&gave_up), "what was held was let go");
}

TestSuite(carrier_lenders, .init = set_up, .fini = tear_down, .timeout = 120);

/* ---- in which order ---- */

Test(carrier_lenders, a_part_is_copied_while_the_next_one_is_mapped)
{
	uint64_t times[MD_PEER_TIMES] = {0};
	hold_call(ACCESS, 2);
	take(0, 0, 0, 1);
	take(1, 0, 1, 1);
	until(answers[0] && atomic_load(&holds));
	assert_right(0, 0, 1);
	cr_assert_eq(answers[1], NO_ANSWER);
	take(2, 0, 0, 1); /* a part that is there */
	until(answers[2]);
	for (int i = 0; i < 5; i++)
		step();
	cr_assert_eq(answers[1], NO_ANSWER);
	let_go();
	until(answers[1]);
	assert_right(1, 1, 1);
	md_lenders_take_times(&lenders, times);
	cr_assert_eq(times[MD_PEER_LENT_PARTS], 2);
	cr_assert_eq(times[MD_PEER_COPIES], 3);
	cr_assert(times[MD_PEER_UNMAPPED] && times[MD_PEER_UNMAPPED] <= times[MD_PEER_IDLE],
		  "it waited for the mapper");
	end();
}

Test(carrier_lenders, parts_that_wait_at_the_same_time_get_access_at_once)
{
	uint64_t times[MD_PEER_TIMES] = {0};
	hold_call(ACCESS, 1);
	take(0, 0, 0, 15);
	until(lenders.mapping == 15);
	let_go();
	until(answers[0]);
	assert_right(0, 0, 15);
	md_lenders_take_times(&lenders, times);
	cr_assert_eq(times[MD_PEER_LENT_PARTS], 15);
	cr_assert_eq(times[MD_PEER_LENT_GROUPS], 4, "1, 2, 4 and 8 parts");
	cr_assert_eq(count(ACCESS), 4);
	end();
}

static void put(uint32_t part)
{
	struct md_mapper_part one = {
	    .part = part, .bytes = MD_SWAP_BLOCK, .context = lanes.list[0].context, .device = lanes.list[0].device};
	ok(driver.cuMemExportToShareableHandle(&one.memory, lent[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	cr_assert(md_mapper_put(mapper, &one));
}

Test(carrier_lenders, time_beside_copies_is_told)
{
	uint64_t times[MD_PEER_TIMES] = {0};
	uint64_t began = md_clock_ns();
	md_mapper_note_copying(mapper, true);
	hold_call(CONTEXT, 1);
	put(0);
	while (!atomic_load(&holds))
		usleep(1000);
	md_mapper_note_copying(mapper, false);
	uint64_t ended = md_clock_ns();
	usleep(20000);
	let_go();
	md_mapper_await(mapper);
	md_mapper_take_times(mapper, times);
	cr_assert(times[MD_PEER_LENT_BESIDE], "copies were under way");
	cr_assert_leq(times[MD_PEER_LENT_BESIDE], ended - began, "and ended before");
	cr_assert_geq(times[MD_PEER_LENT_IMPORT], 20000000, "the rest of it counts as well");
}

/* ---- giving back ---- */

/* Lender 0 is asked for part 1 while the mapper is held; lender 1 has lent part 0. */
static void begin_with_both(enum call held, int at)
{
	take(0, 1, 0, 1);
	until(answers[0]);
	take(1, 0, 0, 1);
	until(answers[1]);
	hold_call(held, at);
}

static void call_back(unsigned lender)
{
	struct md_carry_message message = {.kind = MD_CARRY_FAILED, .text = "it goes out"};
	struct md_error err = {0};
	cr_assert_eq(md_carry_wire_send(lenders_of[lender].fd, &message, -1, &err), MD_OK, "%s", err.message);
}

Test(carrier_lenders, a_lender_that_wants_its_memory_back_waits_for_the_call_that_is_under_way)
{
	begin_with_both(IMPORT, 3);
	take(2, 0, 1, 3);
	until(atomic_load(&holds));
	call_back(0);
	until(answers[2] == REFUSED);
	take(3, 1, 0, 1); /* of the other lender */
	until(answers[3] == DONE);
	cr_assert(lends(&lenders_of[0]), "it is not told that it has what is being mapped");
	let_go();
	until(!lends(&lenders_of[0]));
	cr_assert_leq(count(IMPORT), 5, "what was not wanted any more was left alone");
	cr_assert_eq(atomic_load(&handles), 1, "only the other lender's memory is kept");
	take(4, 0, 0, 1);
	until(answers[4] == REFUSED);
	end();
}

Test(carrier_lenders, unmapping_holds_up_no_copy)
{
	begin_with_both(UNMAP, 1);
	call_back(0);
	until(atomic_load(&holds));
	take(2, 1, 0, 1);
	until(answers[2] == DONE);
	assert_right(2, 0, 1);
	cr_assert(lends(&lenders_of[0]), "it is not told yet");
	let_go();
	until(!lends(&lenders_of[0]));
	end();
}

Test(carrier_lenders, a_lender_that_has_ended_is_forgotten)
{
	begin_with_both(MAP, 3);
	take(2, 0, 1, 1);
	until(atomic_load(&holds));
	close(lenders_of[0].fd);
	lenders_of[0].fd = lenders_of[1].fd;
	until(answers[2] == REFUSED);
	let_go();
	until(lenders.list[0].fd < 0);
	take(3, 1, 2, 1);
	until(answers[3] == DONE);
	assert_right(3, 2, 1);
	end();
}

Test(carrier_lenders, parts_that_wait_are_not_mapped_for_a_lender_that_wants_them_back)
{
	struct md_mapper_done done;
	unsigned told[2] = {0};
	hold_call(IMPORT, 1);
	for (uint32_t part = 0; part < 6; part++)
		put(part);
	while (!atomic_load(&holds))
		usleep(1000);
	md_mapper_give_back(mapper, 0);
	let_go();
	md_mapper_await(mapper);
	while (md_mapper_next(mapper, &done) && !done.gave_back)
		told[done.there]++;
	cr_assert(done.gave_back && !done.there, "the end of the loan comes last");
	cr_assert(told[0] == 5 && told[1] == 1, "%u and %u", told[0], told[1]);
	cr_assert_eq(count(IMPORT), 1);
	assert_nothing_kept();
}

Test(carrier_lenders, a_mapper_that_ends_leaves_what_waits)
{
	hold_call(IMPORT, 1);
	for (uint32_t part = 0; part < 3; part++)
		put(part);
	while (!atomic_load(&holds))
		usleep(1000);
	let_go();
	md_mapper_destroy(mapper);
	cr_assert_leq(count(IMPORT), 3);
	mapper = NULL;
}

/* ---- bounds ---- */

Test(carrier_lenders, no_more_parts_wait_than_there_are_descriptors_for)
{
	struct pollfd ready[MD_LENDERS_POLL];
	hold_call(ACCESS, 1);
	for (uint32_t chunk = 0; chunk < 6; chunk++)
		take(chunk, 0, chunk * 16, 16);
	until(lenders.mapping == MD_LENDER_PARTS);
	for (int i = 0; i < 20; i++)
		step();
	cr_assert_eq(lenders.mapping, MD_LENDER_PARTS);
	cr_assert_eq(md_lenders_poll(&lenders, ready), 1, "what is not heard is not waited for");
	let_go();
	for (uint32_t chunk = 0; chunk < 6; chunk++)
		until(answers[chunk] == DONE);
	cr_assert_eq(lenders.mapping, 0);
	end();
}

Test(carrier_lenders, should_fail_lenders_that_make_no_sense)
{
	struct md_carry_message take = {.kind = MD_CARRY_TAKE, .link = 2, .count = 1};
	struct md_error err = {0};
	int ends[2];
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_lenders_add(&lenders, 0, "GPU-of-the-lender", &ends[0], &err), MD_ERR_CORRUPT, "it is there");
	cr_assert_eq(md_lenders_add(&lenders, MD_CARRY_LENDERS, "GPU-of-the-lender", &ends[0], &err), MD_ERR_CORRUPT);
	cr_assert_eq(md_lenders_take(&lenders, &take, &err), MD_ERR_CORRUPT, "of no lender");
	cr_assert_eq(md_lenders_add(&lenders, 2, "GPU-without-a-lane", &ends[0], &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_lenders_take(&lenders, &take, &err), MD_OK, "%s", err.message);
	until(answers[0] == REFUSED);
	cr_assert_str_eq(lenders.missed, "GPU-without-a-lane", "the next time it has one");
	close(ends[1]);
	end();
}

Test(carrier_lenders, should_fail_parts_of_no_size)
{
	const uint64_t sizes[] = {1, MD_SWAP_BLOCK + 1, UINT64_MAX, UINT64_MAX - MD_SWAP_BLOCK + 1, 1ull << 44};
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		lenders_of[0].says_bytes = sizes[i];
		take(i, 0, i, 1);
		until(answers[i] == REFUSED);
	}
	take(90, 1, 0, 1);
	until(answers[90] == DONE);
	cr_assert_eq(md_lenders_drop(&lenders, &why), MD_OK, "%s", why.message);
}

/* ---- what fails ---- */

/* Whatever the driver says, a chunk comes right or is refused; where memory may be left mapped, the carrier ends. */
static void assert_survived(int n)
{
	hold_call(CONTEXT, 1); /* so that groups are the same each time */
	for (uint32_t i = 0; i < 3; i++)
		take(i, 0, i, 1);
	until(lenders.mapping == 3);
	let_go();
	for (uint32_t i = 0; i < 3 && worked == MD_OK; i++) {
		uint64_t began = md_clock_ns();
		while (!answers[i] && worked == MD_OK && md_clock_ns() - began < PATIENCE_NS)
			step();
		cr_assert(answers[i] || worked != MD_OK, "call %d: chunk %u", n, i);
	}
	enum md_status ended = worked == MD_OK ? md_lenders_drop(&lenders, &why) : worked;
	int what = atomic_load(&failed);
	cr_assert_eq(ended != MD_OK, what == UNMAP || what == FREE || what == RELEASE, "call %d: %s", n, why.message);
	for (uint32_t i = 0; i < 3 && ended == MD_OK && !what; i++)
		cr_assert_eq(answers[i], DONE);
	for (uint32_t i = 0; i < 3; i++)
		if (answers[i] == DONE)
			assert_right(i, i, 1);
	if (ended == MD_OK)
		assert_nothing_kept();
}

static void renew(void)
{
	struct md_error err = {0};
	md_mapper_destroy(mapper);
	atomic_store(&handles, 0);
	atomic_store(&mappings, 0);
	atomic_store(&ranges, 0);
	cr_assert_eq(md_mapper_create(&mapper, &err), MD_OK, "%s", err.message);
	for (unsigned i = 0; i < MD_CARRY_LENDERS; i++) {
		if (lenders.list[i].fd >= 0)
			close(lenders.list[i].fd);
		free(lenders.list[i].parts);
	}
	for (unsigned i = 0; i < LENDERS; i++)
		close(lenders_of[i].fd);
	md_lenders_init(&lenders, &lanes, mapper);
	memset(answers, 0, sizeof(answers));
	ok(driver.cuCtxSynchronize());
	ok(driver.cuMemsetD8_v2(lanes.parts[0].address, 0, OWN_BYTES));
	ok(driver.cuCtxSynchronize());
	next_place = 0;
	worked = MD_OK;
	for (unsigned i = 0; i < LENDERS; i++)
		add_lender(i);
}

Test(carrier_lenders, each_call_fails_once)
{
	int n = 1, kinds[CALLS] = {0};
	do {
		atomic_store(&calls, 0);
		atomic_store(&count_of[CONTEXT], 0);
		atomic_store(&failed, NONE);
		atomic_store(&fail_at, n);
		assert_survived(n);
		kinds[atomic_load(&failed)]++;
		atomic_store(&fail_at, 0);
		renew();
		n++;
	} while (n < 100 && !kinds[NONE]);
	for (int call = CONTEXT; call < CALLS; call++)
		cr_assert(kinds[call], "call %d has failed", call);
	cr_assert_lt(n, 100);
}
