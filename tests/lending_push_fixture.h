/* SPDX-License-Identifier: Apache-2.0 */
/* A lender on device 1 of a driver that counts what was made, in which calls can fail, and borrowers on device 0. */
#ifndef MD_TESTS_LENDING_PUSH_FIXTURE_H
#define MD_TESTS_LENDING_PUSH_FIXTURE_H

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "swap/lending.h"
#include "tests/hostcuda_fixture.h"

enum { PARTS = 3, BLOCKS = 4, ROOM_BLOCKS = 8, BORROWERS = 3 };
#define PART_BYTES (BLOCKS * MD_SWAP_BLOCK)
#define ROOM_BYTES (ROOM_BLOCKS * MD_SWAP_BLOCK)
#define PATIENCE_NS 20000000000ull

/* ---- the driver as the lender has it ---- */

enum call {
	NONE,
	CONTEXT,
	STREAM,
	IMPORT,
	RESERVE,
	MAP,
	ACCESS,
	COPY,
	EVENT,
	RECORD,
	QUERY,
	UNMAP,
	FREE,
	RELEASE,
	CALLS
};

static struct md_cuda table;
static int calls, failed, kept[CALLS]; /* kept: what was made and not given back */
static enum call fails;                /* calls of this kind do, once: */
static int fail_left;                  /* after so many less one; 0: none does */
static bool never_ends;

static CUresult enter(enum call call)
{
	calls++;
	if (call == NONE || call != fails || !fail_left || --fail_left)
		return CUDA_SUCCESS;
	failed = call;
	return CUDA_ERROR_UNKNOWN;
}

static CUresult leave(enum call of, int change, CUresult result)
{
	kept[of] += result == CUDA_SUCCESS ? change : 0;
	return result;
}

#define WRAP(call, of, change, name, symbol, params, args)                                                             \
	static CUresult CUDAAPI name params                                                                            \
	{                                                                                                              \
		CUresult result = enter(call);                                                                         \
		return leave(of, change, result == CUDA_SUCCESS ? md_cuda.symbol args : result);                       \
	}
WRAP(CONTEXT, NONE, 0, set_context, cuCtxSetCurrent, (CUcontext c), (c))
WRAP(STREAM, STREAM, 1, make_stream, cuStreamCreate, (CUstream * s, unsigned f), (s, f))
WRAP(IMPORT, IMPORT, 1, import, cuMemImportFromShareableHandle,
     (CUmemGenericAllocationHandle * h, void *s, CUmemAllocationHandleType t), (h, s, t))
WRAP(RESERVE, RESERVE, 1, reserve, cuMemAddressReserve,
     (CUdeviceptr * p, size_t n, size_t a, CUdeviceptr at, unsigned long long f), (p, n, a, at, f))
WRAP(MAP, MAP, 1, map, cuMemMap,
     (CUdeviceptr p, size_t n, size_t o, CUmemGenericAllocationHandle h, unsigned long long f), (p, n, o, h, f))
WRAP(ACCESS, NONE, 0, set_access, cuMemSetAccess, (CUdeviceptr p, size_t n, const CUmemAccessDesc *a, size_t c),
     (p, n, a, c))
WRAP(COPY, NONE, 0, copy, cuMemcpyDtoDAsync_v2, (CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q), (d, s, n, q))
WRAP(EVENT, EVENT, 1, make_event, cuEventCreate, (CUevent * e, unsigned f), (e, f))
WRAP(RECORD, NONE, 0, record, cuEventRecord, (CUevent e, CUstream q), (e, q))
WRAP(UNMAP, MAP, -1, unmap, cuMemUnmap, (CUdeviceptr p, size_t n), (p, n))
WRAP(FREE, RESERVE, -1, free_addresses, cuMemAddressFree, (CUdeviceptr p, size_t n), (p, n))
WRAP(RELEASE, IMPORT, -1, release, cuMemRelease, (CUmemGenericAllocationHandle h), (h))
WRAP(NONE, STREAM, -1, end_stream, cuStreamDestroy_v2, (CUstream s), (s))
WRAP(NONE, EVENT, -1, end_event, cuEventDestroy_v2, (CUevent e), (e))

/* How often it is asked depends on the machine; the last answer counts. */
static CUresult CUDAAPI query(CUevent event)
{
	CUresult result = md_cuda.cuEventQuery(event);
	return result == CUDA_SUCCESS ? enter(QUERY) : result;
}

static CUresult CUDAAPI query_stream(CUstream stream)
{
	return never_ends ? CUDA_ERROR_NOT_READY : md_cuda.cuStreamQuery(stream);
}

static void watch_calls(void)
{
	table = md_cuda;
	table.cuCtxSetCurrent = set_context;
	table.cuStreamCreate = make_stream;
	table.cuStreamDestroy_v2 = end_stream;
	table.cuStreamQuery = query_stream;
	table.cuMemImportFromShareableHandle = import;
	table.cuMemAddressReserve = reserve;
	table.cuMemMap = map;
	table.cuMemSetAccess = set_access;
	table.cuMemcpyDtoDAsync_v2 = copy;
	table.cuEventCreate = make_event;
	table.cuEventDestroy_v2 = end_event;
	table.cuEventRecord = record;
	table.cuEventQuery = query;
	table.cuMemUnmap = unmap;
	table.cuMemAddressFree = free_addresses;
	table.cuMemRelease = release;
}

static void assert_nothing_kept(void)
{
	for (enum call call = 0; call < CALLS; call++)
		cr_assert_eq(kept[call], 0, "%d of call %u", kept[call], call);
}

/* ---- the lender, on device 1 ---- */

static struct md_swap_lending lending;
static struct md_swap_book book;
static struct md_swap_wire wire;
static int run; /* the other end of the wire */
static struct {
	CUmemGenericAllocationHandle handle; /* 0: the engine has freed it */
	CUdeviceptr address;
} parts[PARTS];
static CUcontext contexts[2];
static bool locked, without_context;

static enum md_status lend_known(uint64_t serial, int *fd, struct md_error *err)
{
	return md_cuda_call(err, cuMemExportToShareableHandle, fd, parts[serial - 10].handle,
			    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static enum md_status map_known(uint64_t serial, uint64_t address, uint64_t bytes, struct md_error *err)
{
	if (locked)
		return md_error_set(err, MD_ERR_BUSY, "the lock is held");
	if (!parts[serial - 10].handle)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the engine has freed it");
	return md_cuda_call_in(&table, err, cuMemMap, address, bytes, 0, parts[serial - 10].handle, 0);
}

static CUcontext context_on(CUdevice device)
{
	return without_context ? NULL : contexts[device];
}

static const struct md_swap_below below = {
    .driver = &table, .lend_known = lend_known, .map_known = map_known, .context_on = context_on};

static void make_memory(int device, uint64_t bytes, CUmemGenericAllocationHandle *handle, CUdeviceptr *address)
{
	CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	ok(md_cuda.cuMemCreate(handle, bytes, &kind, 0));
	ok(md_cuda.cuMemAddressReserve(address, bytes, 0, 0, 0));
	ok(md_cuda.cuMemMap(*address, bytes, 0, *handle, 0));
	ok(md_cuda.cuMemSetAccess(*address, bytes, &access, 1));
}

static void fill(CUcontext context, CUdeviceptr address, unsigned char what, uint64_t bytes)
{
	ok(md_cuda.cuCtxSetCurrent(context));
	ok(md_cuda.cuMemsetD8_v2(address, what, bytes));
	ok(md_cuda.cuCtxSynchronize());
}

static unsigned char what_of(uint32_t part, uint32_t block)
{
	return (unsigned char)(1 + part * BLOCKS + block);
}

static void free_part(uint32_t part)
{
	ok(md_cuda.cuMemUnmap(parts[part].address, PART_BYTES));
	ok(md_cuda.cuMemRelease(parts[part].handle));
	parts[part].handle = 0;
}

static void make_parts(void)
{
	struct md_hash_range hashes[PARTS * BLOCKS] = {0};
	uint32_t blocks[PARTS * BLOCKS];
	struct md_swap_part all[PARTS];
	struct md_swap_contents contents = {
	    .parts = all, .part_count = PARTS, .hashes = hashes, .blocks = blocks, .block_count = PARTS * BLOCKS};
	for (uint32_t i = 0; i < PARTS; i++) {
		make_memory(1, PART_BYTES, &parts[i].handle, &parts[i].address);
		all[i] = (struct md_swap_part){.range = {.bytes = PART_BYTES, .serial = 10 + i, .device = 1},
					       .first = i * BLOCKS,
					       .count = BLOCKS};
		for (uint32_t b = 0; b < BLOCKS; b++) {
			fill(contexts[1], parts[i].address + b * MD_SWAP_BLOCK, what_of(i, b), MD_SWAP_BLOCK);
			hashes[i * BLOCKS + b] =
			    (struct md_hash_range){.size = MD_SWAP_BLOCK, .hash = {.bytes = {1, what_of(i, b)}}};
			blocks[i * BLOCKS + b] = i * BLOCKS + b;
		}
	}
	md_swap_book_write(&book, &contents);
}

/* ---- borrowers, on device 0 ---- */

static struct borrower {
	int fd;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr room;
	bool open, failed;
	struct md_carry_message ended;
	enum { NO_ANSWER, DONE, REFUSED } answers[256];
	enum { NOT_YET, TAKEN, REFUSED_ROOM } rooms;
	char why[256];
} borrowers[BORROWERS];

static void set_up(void)
{
	int ends[2];
	setenv("HOSTCUDA_DEVICES", "2", 1);
	device_open();
	for (int i = 0; i < 2; i++)
		ok(md_cuda.cuDevicePrimaryCtxRetain(&contexts[i], i));
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	md_swap_wire_init(&wire, ends[0]);
	run = ends[1];
	cr_assert_eq(write(run, "\n", 1), 1,
		     "so that the lender's thread returns, which else waits while a borrower has rooms");
	make_parts();
	for (size_t i = 0; i < BORROWERS; i++)
		make_memory(0, ROOM_BYTES, &borrowers[i].handle, &borrowers[i].room);
	watch_calls();
	md_swap_lending_init(&lending, &below, &book);
}

static void tear_down(void)
{
	fail_left = 0;
	never_ends = false;
	md_swap_lending_finish(&lending);
	md_swap_book_clear(&book);
	md_swap_wire_finish(&wire);
	close(run);
}

static void understand(struct borrower *b, const struct md_carry_message *message)
{
	switch (message->kind) {
	case MD_CARRY_OFFER:
		cr_assert_eq((int)message->part, (int)getpid());
		return;
	case MD_CARRY_ROOM:
		b->rooms = message->count ? TAKEN : REFUSED_ROOM;
		snprintf(b->why, sizeof(b->why), "%s", message->text);
		return;
	case MD_CARRY_DONE:
	case MD_CARRY_NOT:
		cr_assert(message->chunk < 256 && b->answers[message->chunk] == NO_ANSWER, "each chunk once");
		b->answers[message->chunk] = message->kind == MD_CARRY_DONE ? DONE : REFUSED;
		return;
	case MD_CARRY_FAILED:
		b->failed = true;
		return;
	default:
		cr_assert_eq(message->kind, MD_CARRY_END);
		b->ended = *message;
	}
}

static void hear(struct borrower *b)
{
	bool there = true;
	while (b->open && there) {
		struct md_carry_message message;
		struct md_error none = {0};
		int passed = -1;
		b->open = md_carry_wire_receive(b->fd, &message, &passed, &there, &none) == MD_OK;
		if (b->open && there)
			understand(b, &message);
		if (passed >= 0)
			close(passed);
	}
}

static void step(void)
{
	md_swap_lending_wait(&lending, &wire, 1);
	for (size_t i = 0; i < BORROWERS; i++)
		hear(&borrowers[i]);
}

#define until(condition)                                                                                               \
	do {                                                                                                           \
		uint64_t began_ = md_clock_ns();                                                                       \
		while (!(condition) && md_clock_ns() - began_ < PATIENCE_NS)                                           \
			step();                                                                                        \
		cr_assert(condition, "line %d: %s", __LINE__, #condition);                                             \
	} while (0)

static void begin(struct borrower *b)
{
	struct md_error err = {0};
	int ends[2];
	cr_assert_eq(md_carry_wire_pair(ends, &err), MD_OK, "%s", err.message);
	md_swap_lending_begin(&lending, ends[0]);
	b->fd = ends[1];
	b->open = true;
	b->failed = false;
	b->rooms = NOT_YET;
	b->ended = (struct md_carry_message){0};
	memset(b->answers, 0, sizeof(b->answers));
}

static void say(const struct borrower *b, struct md_carry_message message, int passed)
{
	struct md_error err = {0};
	cr_assert_eq(md_carry_wire_send(b->fd, &message, passed, &err), MD_OK, "%s", err.message);
}

static void give_room(const struct borrower *b, uint32_t number)
{
	int fd;
	ok(md_cuda.cuMemExportToShareableHandle(&fd, b->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	say(b, (struct md_carry_message){.kind = MD_CARRY_ROOM, .part = number, .bytes = ROOM_BYTES}, fd);
	close(fd);
}

static void open_room(struct borrower *b)
{
	begin(b);
	give_room(b, 0);
	until(b->rooms || !b->open);
}

/* Blocks of a part that follow each other, to a place in the room. */
static void take(const struct borrower *b, uint32_t chunk, uint32_t part, uint32_t blocks, uint32_t to)
{
	struct md_carry_message message = {.kind = MD_CARRY_TAKE, .chunk = chunk, .count = blocks};
	for (uint32_t i = 0; i < blocks; i++)
		message.takes[i] = (struct md_carry_take){.offset = (to + i) * MD_SWAP_BLOCK, .part = part, .block = i};
	say(b, message, -1);
}

static void assert_holds(const struct borrower *b, unsigned char what, uint32_t at)
{
	uint8_t *bytes = malloc(MD_SWAP_BLOCK);
	ok(md_cuda.cuCtxSetCurrent(contexts[0]));
	ok(md_cuda.cuMemcpyDtoH_v2(bytes, b->room + at * MD_SWAP_BLOCK, MD_SWAP_BLOCK));
	cr_assert(bytes[0] == what && !memcmp(bytes, bytes + 1, MD_SWAP_BLOCK - 1), "block %u of the room is %u", at,
		  bytes[0]);
	free(bytes);
}

static void assert_right(const struct borrower *b, uint32_t part, uint32_t blocks, uint32_t to)
{
	for (uint32_t i = 0; i < blocks; i++)
		assert_holds(b, what_of(part, i), to + i);
}

#endif
