/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps what a borrower wants a second time, and copies it into the borrower's rooms on streams of its own. The engine's calls
 * see nothing of it: other addresses, and calls of the driver that wait for nothing, in the thread of swap/control.c.
 */
#define MD_LOG_DOMAIN "swap"

#include "swap/lending_push.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/setting.h"

#define STREAMS_MOST 8u
#define STREAMS_USUAL 2u
#define COPIES 32u /* chunks that are under way: enough for the time between two looks at them */
#define ROOM_BYTES_MOST (MD_CARRY_TAKES_MOST * MD_CARRY_CHUNK_BLOCKS * MD_SWAP_BLOCK) /* of all rooms */
#define LOOK_NS 50000 /* between two looks at copies whose end is waited for */

struct room {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address; /* 0: not there */
	uint64_t bytes;
};

struct part {
	CUdeviceptr address; /* 0: not mapped */
	uint64_t bytes;
	bool refused;
};

struct copy {
	bool busy, ended; /* ended: the borrower does not know it yet */
	CUevent done;     /* NULL: none yet */
	uint32_t chunk;
	uint64_t bytes;
};

struct md_swap_push {
	const struct md_swap_below *below;
	const struct md_swap_book *book;
	int device;
	CUcontext context;
	unsigned long long id; /* distinguishes the context from a later one with the same handle */
	CUstream streams[STREAMS_MOST];
	unsigned stream_count, turn;
	struct room rooms[MD_CARRY_ROOMS];
	uint64_t room_bytes;
	struct part *parts; /* owned; by number, as in the book */
	size_t part_count;
	struct md_carry_message *queue; /* owned */
	unsigned queued;
	struct copy copies[COPIES];
	uint64_t times[MD_PEER_TIMES], idle_since; /* idle_since: ns; 0: not so */
	bool settled;
};

/* ---- beginning ---- */

static unsigned long long id_of(const struct md_swap_push *push)
{
	unsigned long long id = 0;
	if (push->below->driver->cuCtxGetId && push->below->driver->cuCtxGetId(push->context, &id))
		id = 0;
	return id;
}

/* The engine may have destroyed the context, and what was made in it. */
static bool has_context(const struct md_swap_push *push)
{
	return id_of(push) == push->id;
}

/* Another thread's capture must not mind our calls. */
static enum md_status enter(const struct md_swap_push *push, struct md_error *err)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (!has_context(push))
		return md_error_set(err, MD_ERR_DRIVER, "the engine has destroyed the context in which memory is lent");
	MD_FORWARD(md_cuda_call_in(push->below->driver, err, cuCtxSetCurrent, push->context));
	push->below->driver->cuThreadExchangeStreamCaptureMode(&mode);
	return MD_OK;
}

static enum md_status open_streams(struct md_swap_push *push, struct md_error *err)
{
	unsigned wanted = (unsigned)md_setting_number("MEDUSA_SWAP_PEER_STREAMS", 1, STREAMS_MOST, STREAMS_USUAL);
	MD_FORWARD(enter(push, err));
	for (; push->stream_count < wanted; push->stream_count++)
		MD_FORWARD(md_cuda_call_in(push->below->driver, err, cuStreamCreate, &push->streams[push->stream_count],
					   CU_STREAM_NON_BLOCKING));
	return MD_OK;
}

enum md_status md_swap_push_create(const struct md_swap_below *below, const struct md_swap_book *book, int device,
				   struct md_swap_push **push, struct md_error *err)
{
	CUcontext context = below->map_known && below->context_on ? below->context_on(device) : NULL;
	if (!context)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "the lender has no context on its device %d", device);
	struct md_swap_push *made = calloc(1, sizeof(*made));
	if (made)
		*made = (struct md_swap_push){.below = below,
					      .book = book,
					      .device = device,
					      .context = context,
					      .parts = calloc(book->count + 1, sizeof(*made->parts)),
					      .queue = calloc(MD_CARRY_TAKES_MOST, sizeof(*made->queue))};
	if (!made || !made->parts || !made->queue) {
		md_swap_push_destroy(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for lending");
	}
	made->part_count = book->count;
	made->id = id_of(made);
	enum md_status status = open_streams(made, err);
	if (status != MD_OK) {
		md_swap_push_destroy(made);
		return status;
	}
	*push = made;
	return MD_OK;
}

/* ---- rooms ---- */

static void add(uint64_t *time, uint64_t *began)
{
	uint64_t now = md_clock_ns();
	*time += now - *began;
	*began = now;
}

/* By the device of this process. Without effect after a failure. */
static enum md_status allow(const struct md_swap_push *push, CUdeviceptr address, uint64_t bytes,
			    CUmemAccess_flags flags, struct md_error *err)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, push->device}, flags};
	return md_cuda_call_in(push->below->driver, err, cuMemSetAccess, address, bytes, &access, 1);
}

static enum md_status map_room(struct md_swap_push *push, struct room *room, struct md_error *err)
{
	const struct md_cuda *driver = push->below->driver;
	CUdeviceptr address = 0;
	uint64_t began = md_clock_ns();
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemAddressReserve, &address, room->bytes, 0, 0, 0));
	enum md_status status = md_cuda_call_in(driver, err, cuMemMap, address, room->bytes, 0, room->handle, 0);
	add(&push->times[MD_PEER_OWN_MAP], &began);
	if (status == MD_OK) {
		status = allow(push, address, room->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, err);
		add(&push->times[MD_PEER_OWN_ACCESS], &began);
		if (status != MD_OK)
			driver->cuMemUnmap(address, room->bytes);
	}
	if (status == MD_OK)
		room->address = address;
	else
		driver->cuMemAddressFree(address, room->bytes);
	return status;
}

enum md_status md_swap_push_room(struct md_swap_push *push, uint32_t number, uint64_t bytes, int memory,
				 struct md_error *err)
{
	const struct md_cuda *driver = push->below->driver;
	struct room made = {.bytes = bytes};
	uint64_t began = md_clock_ns();
	if (number >= MD_CARRY_ROOMS || push->rooms[number].address || !bytes || bytes % MD_SWAP_BLOCK ||
	    bytes > ROOM_BYTES_MOST - push->room_bytes || memory < 0)
		return md_error_set(err, MD_ERR_CORRUPT, "room %u of %llu bytes makes no sense", number,
				    (unsigned long long)bytes);
	MD_FORWARD(enter(push, err));
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemImportFromShareableHandle, &made.handle, (void *)(intptr_t)memory,
				   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	add(&push->times[MD_PEER_OWN_IMPORT], &began);
	enum md_status status = map_room(push, &made, err);
	if (status != MD_OK) {
		driver->cuMemRelease(made.handle);
		return status;
	}
	push->times[MD_PEER_OWN_PARTS]++;
	push->rooms[number] = made;
	push->room_bytes += bytes;
	return MD_OK;
}

/* ---- what the borrower wants ---- */

enum md_status md_swap_push_take(struct md_swap_push *push, const struct md_carry_message *take, struct md_error *err)
{
	const struct room *room = take->part < MD_CARRY_ROOMS ? &push->rooms[take->part] : NULL;
	bool good = room && room->address && take->count;
	for (uint32_t i = 0; good && i < take->count; i++)
		good = take->takes[i].offset % MD_SWAP_BLOCK == 0 && take->takes[i].offset < room->bytes;
	if (!good)
		return md_error_set(err, MD_ERR_CORRUPT, "a chunk outside of room %u", take->part);
	if (push->queued == MD_CARRY_TAKES_MOST)
		return md_error_set(err, MD_ERR_CORRUPT, "more than %u chunks at a time", MD_CARRY_TAKES_MOST);
	push->queue[push->queued++] = *take;
	return MD_OK;
}

/* For this process's own device, by an address that the engine does not know. MD_ERR_BUSY: not now. */
static enum md_status map_part(struct md_swap_push *push, uint32_t number, struct md_error *err)
{
	const struct md_cuda *driver = push->below->driver;
	const struct md_swap_book_part *from = &push->book->parts[number];
	CUdeviceptr address = 0;
	uint64_t began = md_clock_ns();
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemAddressReserve, &address, from->bytes, 0, 0, 0));
	enum md_status status = push->below->map_known(from->serial, address, from->bytes, err);
	add(&push->times[MD_PEER_LENT_MAP], &began);
	if (status == MD_OK) {
		status = allow(push, address, from->bytes, CU_MEM_ACCESS_FLAGS_PROT_READ, err);
		add(&push->times[MD_PEER_LENT_ACCESS], &began);
		if (status != MD_OK)
			driver->cuMemUnmap(address, from->bytes);
	}
	if (status != MD_OK) {
		driver->cuMemAddressFree(address, from->bytes);
		return status;
	}
	push->parts[number].address = address;
	push->parts[number].bytes = from->bytes;
	push->times[MD_PEER_LENT_PARTS]++;
	return MD_OK;
}

enum readiness { READY, WAITS, NEVER };

/* Whether the block can be copied; the book is as it was when it was offered, and is not trusted to be. */
static enum readiness look_at(struct md_swap_push *push, const struct md_carry_take *take)
{
	struct md_error why = {0};
	struct part *part =
	    take->part < push->part_count && take->part < push->book->count ? &push->parts[take->part] : NULL;
	const struct md_swap_book_part *known = part ? &push->book->parts[take->part] : NULL;
	if (!part || part->refused || known->device != push->device ||
	    (take->block + 1ull) * MD_SWAP_BLOCK > known->bytes)
		return NEVER;
	if (part->address)
		return READY;
	enum md_status status = map_part(push, take->part, &why);
	if (status == MD_OK)
		return READY;
	if (status == MD_ERR_BUSY)
		return WAITS;
	md_debug("%llu bytes are not lent: %s", (unsigned long long)known->bytes, why.message);
	part->refused = true;
	return NEVER;
}

/* ---- copies ---- */

static bool follows(const struct md_carry_take *before, const struct md_carry_take *take)
{
	return take->part == before->part && take->block == before->block + 1 &&
	       take->offset == before->offset + MD_SWAP_BLOCK;
}

/* Blocks that follow each other on both sides go as one. */
static enum md_status copy_blocks(struct md_swap_push *push, const struct md_carry_message *take, CUstream stream,
				  struct md_error *err)
{
	CUdeviceptr to = push->rooms[take->part].address;
	for (uint32_t i = 0, next; i < take->count; i = next) {
		const struct md_carry_take *first = &take->takes[i];
		CUdeviceptr from = push->parts[first->part].address + first->block * MD_SWAP_BLOCK;
		for (next = i + 1; next < take->count && follows(&take->takes[next - 1], &take->takes[next]);)
			next++;
		MD_FORWARD(md_cuda_call_in(push->below->driver, err, cuMemcpyDtoDAsync_v2, to + first->offset, from,
					   (next - i) * MD_SWAP_BLOCK, stream));
	}
	return MD_OK;
}

static enum md_status begin_copy(struct md_swap_push *push, struct copy *at, const struct md_carry_message *take,
				 struct md_error *err)
{
	CUstream stream = push->streams[push->turn++ % push->stream_count];
	uint64_t began = md_clock_ns();
	if (!at->done)
		MD_FORWARD(
		    md_cuda_call_in(push->below->driver, err, cuEventCreate, &at->done, CU_EVENT_DISABLE_TIMING));
	MD_FORWARD(copy_blocks(push, take, stream, err));
	MD_FORWARD(md_cuda_call_in(push->below->driver, err, cuEventRecord, at->done, stream));
	at->busy = true;
	at->ended = false;
	at->chunk = take->chunk;
	at->bytes = take->count * MD_SWAP_BLOCK;
	push->times[MD_PEER_COPIES]++;
	add(&push->times[MD_PEER_ISSUE], &began);
	return MD_OK;
}

static struct copy *free_copy(struct md_swap_push *push)
{
	for (size_t i = 0; i < COPIES; i++)
		if (!push->copies[i].busy)
			return &push->copies[i];
	return NULL;
}

/* *moved: the first chunk has begun, or does not come. The borrower that does not read waits. */
static enum md_status feed(struct md_swap_push *push, int borrower, bool *moved, struct md_error *err)
{
	struct copy *at = free_copy(push);
	enum readiness ready = READY;
	*moved = false;
	if (!push->queued || !at)
		return MD_OK;
	for (uint32_t i = 0; i < push->queue[0].count && ready == READY; i++)
		ready = look_at(push, &push->queue[0].takes[i]);
	if (ready == WAITS)
		return MD_OK;
	if (ready == READY)
		MD_FORWARD(begin_copy(push, at, &push->queue[0], err));
	if (ready == NEVER) {
		struct md_carry_message message = {.kind = MD_CARRY_NOT, .chunk = push->queue[0].chunk};
		enum md_status status = md_carry_wire_send(borrower, &message, -1, err);
		if (status == MD_ERR_BUSY)
			return MD_OK;
		MD_FORWARD(status);
	}
	memmove(push->queue, push->queue + 1, --push->queued * sizeof(*push->queue));
	*moved = true;
	return MD_OK;
}

static enum md_status look_at_copy(const struct md_swap_push *push, struct copy *at, struct md_error *err)
{
	if (!at->busy || at->ended)
		return MD_OK;
	CUresult result = push->below->driver->cuEventQuery(at->done);
	if (result == CUDA_ERROR_NOT_READY)
		return MD_OK;
	MD_FORWARD(md_cuda_status(result, "cuEventQuery of copies", err));
	at->ended = true;
	return MD_OK;
}

static enum md_status reap(struct md_swap_push *push, int borrower, struct md_error *err)
{
	for (size_t i = 0; i < COPIES; i++) {
		struct copy *at = &push->copies[i];
		MD_FORWARD(look_at_copy(push, at, err));
		if (!at->busy || !at->ended)
			continue;
		struct md_carry_message message = {.kind = MD_CARRY_DONE, .chunk = at->chunk, .bytes = at->bytes};
		enum md_status status = md_carry_wire_send(borrower, &message, -1, err);
		if (status == MD_ERR_BUSY)
			return MD_OK;
		MD_FORWARD(status);
		at->busy = false;
	}
	return MD_OK;
}

static bool copies(const struct md_swap_push *push)
{
	bool any = false;
	for (size_t i = 0; i < COPIES; i++)
		any = any || push->copies[i].busy;
	return any;
}

/* What has ended, and the borrower does not read, is no work. */
bool md_swap_push_works(const struct md_swap_push *push)
{
	bool any = push->queued > 0;
	for (size_t i = 0; i < COPIES; i++)
		any = any || (push->copies[i].busy && !push->copies[i].ended);
	return any;
}

enum md_status md_swap_push_step(struct md_swap_push *push, int borrower, struct md_error *err)
{
	bool moved = true;
	if (push->settled || (!push->queued && !copies(push)))
		return MD_OK;
	if (push->idle_since)
		push->times[MD_PEER_IDLE] += md_clock_ns() - push->idle_since;
	MD_FORWARD(enter(push, err));
	while (moved) {
		MD_FORWARD(reap(push, borrower, err));
		MD_FORWARD(feed(push, borrower, &moved, err));
	}
	push->idle_since = push->queued && !copies(push) ? md_clock_ns() : 0;
	return MD_OK;
}

/* ---- the end ---- */

/* A stream that cannot be asked any more is one of a context that has failed or has gone: its copies have ended. */
enum md_status md_swap_push_settle(struct md_swap_push *push, int borrower, uint64_t until, struct md_error *err)
{
	struct md_error none = {0};
	bool asks = !push->settled && has_context(push);
	if (asks)
		enter(push, &none);
	for (unsigned i = 0; i < push->stream_count && asks; i++)
		while (push->below->driver->cuStreamQuery(push->streams[i]) == CUDA_ERROR_NOT_READY) {
			if (md_clock_ns() >= until)
				return md_error_set(err, MD_ERR_BUSY, "copies to another GPU do not end");
			nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
		}
	if (asks && borrower >= 0)
		reap(push, borrower, &none);
	push->queued = 0;
	push->settled = true;
	return MD_OK;
}

static void unmap(const struct md_swap_push *push, CUdeviceptr address, uint64_t bytes)
{
	CUresult result = push->below->driver->cuMemUnmap(address, bytes);
	if (result == CUDA_SUCCESS)
		push->below->driver->cuMemAddressFree(address, bytes);
	else
		md_warn("%llu bytes that were lent to another engine cannot be unmapped: %s", (unsigned long long)bytes,
			md_cuda_error_name(result));
}

void md_swap_push_give_rooms_up(struct md_swap_push *push)
{
	for (size_t i = 0; i < MD_CARRY_ROOMS; i++) {
		if (!push->rooms[i].address)
			continue;
		unmap(push, push->rooms[i].address, push->rooms[i].bytes);
		push->below->driver->cuMemRelease(push->rooms[i].handle);
		push->rooms[i] = (struct room){0};
	}
	push->room_bytes = 0;
}

const uint64_t *md_swap_push_times(const struct md_swap_push *push)
{
	return push->times;
}

/* Objects of a destroyed context were destroyed with it. */
static void close_streams(struct md_swap_push *push)
{
	struct md_error none = {0};
	if (!push->stream_count || enter(push, &none) != MD_OK)
		return;
	for (size_t i = 0; i < COPIES; i++)
		if (push->copies[i].done)
			push->below->driver->cuEventDestroy_v2(push->copies[i].done);
	for (unsigned i = 0; i < push->stream_count; i++)
		push->below->driver->cuStreamDestroy_v2(push->streams[i]);
}

void md_swap_push_destroy(struct md_swap_push *push)
{
	if (!push)
		return;
	md_swap_push_give_rooms_up(push);
	for (size_t i = 0; i < push->part_count; i++)
		if (push->parts[i].address)
			unmap(push, push->parts[i].address, push->parts[i].bytes);
	close_streams(push);
	free(push->parts);
	free(push->queue);
	free(push);
}
