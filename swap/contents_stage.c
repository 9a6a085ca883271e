/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rooms on this engine's GPU into which lenders, or the carrier, copy what lenders have, and from which this process copies it
 * to its place. So others take over a few rooms, and not each allocation of the engine; and never write where the engine's bytes are.
 */
#define MD_LOG_DOMAIN "swap"

#include "swap/contents_stage.h"

#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/setting.h"
#include "swap/contents_share.h"
#include "swap/lenders.h"

#define ROOM_LEFT ((uint64_t)256 << 20) /* that the rooms leave free on the GPU */
#define AWAIT_NS 3000000000ull

/* Rooms that were given up here, and may still be held by others. */
static atomic_bool held;

void md_swap_stage_init(struct md_share_stage *stage, unsigned most)
{
	bool wanted = md_setting_is_on("MEDUSA_SWAP_PEER_STAGED", true, true, "it is taken for 1");
	*stage = (struct md_share_stage){.most = wanted ? most : 0};
}

/* ---- rooms ---- */

static bool is_free(const struct md_share_slot *slot)
{
	return !slot->lent && !slot->copying;
}

/* How many slots there is room for. */
static enum md_status measure(struct md_swap_share *s, struct md_error *err)
{
	struct md_share_stage *stage = &s->stage;
	size_t free_bytes = 0, total;
	stage->slot_bytes = s->chunk_blocks * MD_SWAP_BLOCK;
	MD_FORWARD(md_cuda_call_in(s->links->driver, err, cuMemGetInfo_v2, &free_bytes, &total));
	uint64_t fit = free_bytes > ROOM_LEFT ? (free_bytes - ROOM_LEFT) / stage->slot_bytes : 0;
	stage->most = fit < stage->most ? (unsigned)fit : stage->most;
	return md_cuda_call_in(s->links->driver, err, cuStreamCreate, &stage->stream, CU_STREAM_NON_BLOCKING);
}

static enum md_status make_events(struct md_swap_share *s, unsigned slots, struct md_error *err)
{
	for (unsigned i = s->stage.count; i < s->stage.count + slots; i++)
		MD_FORWARD(md_cuda_call_in(s->links->driver, err, cuEventCreate, &s->stage.slots[i].copied,
					   CU_EVENT_DISABLE_TIMING));
	return MD_OK;
}

static enum md_status map(const struct md_cuda *driver, struct md_share_room *room, const CUmemAllocationProp *kind,
			  struct md_error *err)
{
	CUmemAccessDesc access = {.location = kind->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemAddressReserve, &room->address, room->bytes, 0, 0, 0));
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemMap, room->address, room->bytes, 0, room->handle, 0));
	room->mapped = true;
	return md_cuda_call_in(driver, err, cuMemSetAccess, room->address, room->bytes, &access, 1);
}

static enum md_status make_room(struct md_swap_share *s, struct md_share_room *room, struct md_error *err)
{
	const struct md_cuda *driver = s->links->driver;
	CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, s->device}};
	int fd = -1;
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemCreate, &room->handle, room->bytes, &kind, 0));
	MD_FORWARD(map(driver, room, &kind, err));
	MD_FORWARD(md_cuda_call_in(driver, err, cuMemExportToShareableHandle, &fd, room->handle,
				   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	room->fd = md_descriptor_raise(fd);
	return MD_OK;
}

/* One room more, for some slots. */
static enum md_status add_room(struct md_swap_share *s, struct md_error *err)
{
	struct md_share_stage *stage = &s->stage;
	struct md_share_room *room = &stage->rooms[stage->room_count];
	unsigned slots = stage->most - stage->count;
	uint64_t began = md_clock_ns();
	slots = slots < MD_STAGE_ROOM_SLOTS ? slots : MD_STAGE_ROOM_SLOTS;
	*room = (struct md_share_room){.bytes = slots * stage->slot_bytes, .fd = -1};
	stage->room_count++; /* what there is of it is given up at the end */
	MD_FORWARD(make_events(s, slots, err));
	MD_FORWARD(make_room(s, room, err));
	s->times.ns_lend += md_clock_ns() - began;
	stage->count += slots;
	return MD_OK;
}

uint32_t md_swap_stage_part(const struct md_swap_share *s, unsigned slot)
{
	return (uint32_t)(s->contents->part_count + md_swap_stage_room_of(slot));
}

enum md_share_where md_swap_stage_find(struct md_swap_share *s, CUcontext context, unsigned *slot)
{
	struct md_share_stage *stage = &s->stage;
	struct md_error why = {0};
	enum md_status status = MD_OK;
	if (!stage->most || (stage->context && stage->context != context))
		return MD_SHARE_TO_PLACE;
	for (*slot = 0; *slot < stage->count && !is_free(&stage->slots[*slot]);)
		++*slot;
	if (*slot == stage->count && *slot < stage->most) {
		if (!stage->stream)
			status = measure(s, &why);
		if (status == MD_OK && stage->most)
			status = add_room(s, &why);
		stage->context = context;
		stage->most = status == MD_OK ? stage->most : stage->count;
		if (status != MD_OK || !stage->most)
			md_debug("no more rooms for what other engines have: %s",
				 status == MD_OK ? "too little memory is free" : why.message);
	}
	if (!stage->count)
		return MD_SHARE_TO_PLACE;
	return *slot < stage->count ? MD_SHARE_STAGED_THERE : MD_SHARE_NOWHERE;
}

/* ---- what comes ---- */

uint64_t md_swap_stage_offset(const struct md_share_stage *stage, unsigned slot)
{
	return slot % MD_STAGE_ROOM_SLOTS * stage->slot_bytes;
}

/* Blocks that follow each other go as one. */
static enum md_status copy(struct md_swap_share *s, const struct md_share_chunk *chunk, unsigned slot,
			   struct md_error *err)
{
	CUdeviceptr from = s->stage.rooms[md_swap_stage_room_of(slot)].address + md_swap_stage_offset(&s->stage, slot);
	size_t end = chunk->first + chunk->count;
	for (size_t i = chunk->first, next; i < end; i = next) {
		for (next = i; next < end && md_swap_share_is_copied(s, next);)
			next++;
		uint64_t bytes = (next - i) * MD_SWAP_BLOCK;
		if (bytes)
			MD_FORWARD(md_cuda_call_in(s->links->driver, err, cuMemcpyDtoDAsync_v2,
						   s->contents->hashes[i].address, from, bytes, s->stage.stream));
		from += bytes;
		next += !bytes;
	}
	return MD_OK;
}

enum md_status md_swap_stage_came(struct md_swap_share *s, size_t index, struct md_error *err)
{
	struct md_share_chunk *chunk = &s->chunks[index];
	struct md_share_slot *slot = &s->stage.slots[chunk->slot];
	struct md_swap_link *link;
	MD_FORWARD(md_swap_links_get(s->links, s->stage.context, &link, err));
	slot->lent = false;
	slot->copying = true;
	slot->chunk = index;
	MD_FORWARD(copy(s, chunk, chunk->slot, err));
	return md_cuda_call_in(s->links->driver, err, cuEventRecord, slot->copied, s->stage.stream);
}

enum md_status md_swap_stage_step(struct md_swap_share *s, bool *moved, struct md_error *err)
{
	for (unsigned i = 0; i < s->stage.count; i++) {
		struct md_share_slot *slot = &s->stage.slots[i];
		if (!slot->copying)
			continue;
		CUresult result = s->links->driver->cuEventQuery(slot->copied);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		MD_FORWARD(md_cuda_status(result, "cuEventQuery of copies", err));
		slot->copying = false;
		s->chunks[slot->chunk].state = MD_SHARE_UNCHECKED;
		s->unchecked += s->chunks[slot->chunk].bytes;
		*moved = true;
	}
	return MD_OK;
}

bool md_swap_stage_works(const struct md_swap_share *s)
{
	bool any = false;
	for (unsigned i = 0; i < s->stage.count; i++)
		any = any || s->stage.slots[i].copying;
	return any;
}

/* ---- the end ---- */

/* Slots into which the carrier may still copy are not used again. */
enum md_status md_swap_stage_abandon(struct md_swap_share *s, struct md_error *err)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->chunks[i].staged && !s->chunks[i].pushed && s->chunks[i].state == MD_SHARE_LENT)
			md_swap_share_free(s, &s->chunks[i]);
	while (md_swap_stage_works(s)) {
		bool moved;
		MD_FORWARD(md_swap_stage_step(s, &moved, err));
	}
	return MD_OK;
}

static void give_up_room(const struct md_cuda *driver, const struct md_share_room *room)
{
	if (room->fd >= 0)
		close(room->fd);
	if (room->mapped && driver->cuMemUnmap(room->address, room->bytes))
		return;
	if (room->address)
		driver->cuMemAddressFree(room->address, room->bytes);
	if (room->handle)
		driver->cuMemRelease(room->handle);
}

void md_swap_stage_finish(struct md_swap_share *s)
{
	const struct md_cuda *driver = s->links->driver;
	struct md_share_stage *stage = &s->stage;
	if (!stage->stream)
		return;
	driver->cuStreamSynchronize(stage->stream);
	atomic_store(&held, true);
	for (unsigned i = 0; i < MD_CARRY_TAKES_MOST; i++)
		if (stage->slots[i].copied)
			driver->cuEventDestroy_v2(stage->slots[i].copied);
	for (unsigned i = 0; i < stage->room_count; i++)
		give_up_room(driver, &stage->rooms[i]);
	driver->cuStreamDestroy_v2(stage->stream);
	stage->stream = NULL;
	stage->count = stage->room_count = 0;
}

void md_swap_stage_given_back(void)
{
	atomic_store(&held, false);
}

bool md_swap_stage_await(void)
{
	uint64_t began = md_clock_ns();
	bool any = atomic_load(&held);
	while (atomic_load(&held) && md_clock_ns() - began < AWAIT_NS)
		poll(NULL, 0, 1);
	return md_swap_lenders_await() || any;
}
