/* SPDX-License-Identifier: Apache-2.0 */
/* Copies chunks through staging buffers: from the pool over a neighbour's PCIe link, then over NVLink to the engine's memory. */
#include "tools/carrier_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/setting.h"
#include "driver/neighbours.h"

#define LANES_MOST 3u
#define CONTEXT_BYTES ((uint64_t)768 << 20) /* of a neighbour: what a context may take, and more */
#define PARTS_MOST (1u << 20)

enum md_status md_lanes_init(struct md_lanes *lanes, struct md_swap_pool *pool, struct md_error *err)
{
	*lanes = (struct md_lanes){.pool = pool, .blocks = md_swap_pool_count(pool).blocks};
	lanes->take_streams =
	    (unsigned)md_setting_number("MEDUSA_SWAP_PEER_STREAMS", 1, MD_LANE_TAKES, MD_LANE_TAKES_USUAL);
	return md_swap_links_init(&lanes->locks, &md_cuda, pool, err);
}

/* ---- neighbours ---- */

static void close_lane(struct md_carrier_lane *lane)
{
	if (!lane->context)
		return;
	if (!md_cuda.cuCtxSetCurrent(lane->context)) {
		for (unsigned i = 0; i < MD_LANE_BUFFERS; i++) {
			if (lane->buffers[i].stream)
				md_cuda.cuStreamDestroy_v2(lane->buffers[i].stream);
			if (lane->buffers[i].address)
				md_cuda.cuMemFree_v2(lane->buffers[i].address);
		}
		for (unsigned i = 0; i < MD_LANE_TAKES; i++)
			if (lane->takes[i])
				md_cuda.cuStreamDestroy_v2(lane->takes[i]);
		md_cuda.cuCtxSetCurrent(NULL);
	}
	md_cuda.cuDevicePrimaryCtxRelease_v2(lane->device);
	*lane = (struct md_carrier_lane){0};
}

static enum md_status check_room(struct md_error *err)
{
	size_t free_bytes = 0, total;
	MD_FORWARD(md_cuda_call(err, cuMemGetInfo_v2, &free_bytes, &total));
	if (free_bytes >= MD_LANE_ROOM)
		return MD_OK;
	return md_error_set(err, MD_ERR_DRIVER_MEMORY, "has %zu bytes free, and %llu are needed", free_bytes,
			    (unsigned long long)MD_LANE_ROOM);
}

static enum md_status open_buffers(struct md_carrier_lane *lane, struct md_error *err)
{
	for (unsigned i = 0; i < MD_LANE_BUFFERS; i++) {
		struct md_carrier_buffer *buffer = &lane->buffers[i];
		MD_FORWARD(md_cuda_call(err, cuMemAlloc_v2, &buffer->address, MD_LANE_BUFFER_BYTES));
		MD_FORWARD(md_cuda_call(err, cuStreamCreate, &buffer->stream, CU_STREAM_NON_BLOCKING));
	}
	for (unsigned i = 0; i < MD_LANE_TAKES; i++)
		MD_FORWARD(md_cuda_call(err, cuStreamCreate, &lane->takes[i], CU_STREAM_NON_BLOCKING));
	return MD_OK;
}

static enum md_status open_lane(struct md_carrier_lane *lane, const struct md_neighbour *from, struct md_error *err)
{
	*lane = (struct md_carrier_lane){.device = from->device};
	snprintf(lane->gpu, sizeof(lane->gpu), "%s", from->gpu);
	MD_FORWARD(md_cuda_call(err, cuDevicePrimaryCtxRetain, &lane->context, from->device));
	enum md_status status = md_cuda_call(err, cuCtxSetCurrent, lane->context);
	if (status == MD_OK)
		status = check_room(err);
	if (status == MD_OK)
		status = open_buffers(lane, err);
	if (status != MD_OK)
		close_lane(lane);
	return status;
}

static void close_all(struct md_lanes *lanes)
{
	while (lanes->count)
		close_lane(&lanes->list[--lanes->count]);
	*lanes->gpu = '\0';
}

static void open_some(struct md_lanes *lanes, const struct md_neighbour *list, size_t count)
{
	for (size_t i = 0; i < count && lanes->count < LANES_MOST; i++) {
		struct md_error why = {0};
		if (list[i].lacks)
			snprintf(lanes->why, sizeof(lanes->why), "%s %s", list[i].gpu, list[i].lacks);
		else if (open_lane(&lanes->list[lanes->count], &list[i], &why) == MD_OK)
			lanes->count++;
		else
			snprintf(lanes->why, sizeof(lanes->why), "%s: %.180s", list[i].gpu, why.message);
	}
}

enum md_status md_lanes_open(struct md_lanes *lanes, const char *gpu, struct md_error *err)
{
	struct md_neighbour list[MD_NEIGHBOURS_MOST];
	size_t count = 0;
	CUdevice of;
	if (lanes->count && !strcmp(lanes->gpu, gpu))
		return MD_OK;
	MD_FORWARD(md_swap_links_unlock(&lanes->locks, err));
	close_all(lanes);
	MD_FORWARD(md_neighbours_find(gpu, MD_LANE_ROOM + CONTEXT_BYTES, list, &count, &of, err));
	snprintf(lanes->why, sizeof(lanes->why), "there is no other GPU");
	open_some(lanes, list, count);
	if (!lanes->count)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "no neighbour of %s is of use: %s", gpu, lanes->why);
	snprintf(lanes->gpu, sizeof(lanes->gpu), "%s", gpu);
	return MD_OK;
}

void md_lanes_add(struct md_lanes *lanes, const char *gpu)
{
	struct md_neighbour list[MD_NEIGHBOURS_MOST];
	struct md_error why = {0};
	size_t count = 0;
	CUdevice of;
	if (!lanes->count || lanes->count == MD_CARRY_LINKS ||
	    md_neighbours_find(lanes->gpu, MD_LANE_ROOM + CONTEXT_BYTES, list, &count, &of, &why) != MD_OK)
		return;
	for (size_t i = 0; i < count; i++)
		if (!strcmp(list[i].gpu, gpu) && !list[i].lacks)
			lanes->count += open_lane(&lanes->list[lanes->count], &list[i], &why) == MD_OK;
}

/* ---- page-locked parts of the pool ---- */

static struct md_swap_link lock_link(const struct md_lanes *lanes)
{
	struct md_swap_link link = {.context = lanes->list[0].context};
	if (md_cuda.cuCtxGetId && md_cuda.cuCtxGetId(link.context, &link.id))
		link.id = 0;
	return link;
}

bool md_lanes_prepare(struct md_lanes *lanes)
{
	struct md_swap_links *locks = &lanes->locks;
	uint32_t populated = md_swap_pool_populated(lanes->pool) / MD_SWAP_CHUNK, chunk = 0;
	if (!lanes->count || locks->cannot_lock)
		return false;
	while (chunk < populated && locks->locked[chunk])
		chunk++;
	if (chunk == populated || md_cuda.cuCtxSetCurrent(lanes->list[0].context))
		return false;
	struct md_swap_link link = lock_link(lanes);
	md_swap_links_lock(locks, &link, chunk * MD_SWAP_CHUNK);
	return true;
}

static enum md_status lock_pages(struct md_lanes *lanes, const struct md_carry_message *chunk, struct md_error *err)
{
	struct md_swap_link link = lock_link(lanes);
	MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, link.context));
	for (uint32_t i = 0; i < chunk->count; i++)
		for (uint32_t block = 0; block < chunk->runs[i].count; block++)
			md_swap_links_lock(&lanes->locks, &link, chunk->runs[i].block + block);
	return MD_OK;
}

/* ---- memory of the engine ---- */

static void release(struct md_carrier_part *part)
{
	if (part->handle)
		md_cuda.cuMemRelease(part->handle);
	*part = (struct md_carrier_part){0};
}

static enum md_status give_access(const struct md_lanes *lanes, CUdeviceptr address, uint64_t bytes,
				  struct md_error *err)
{
	CUmemAccessDesc access[MD_CARRY_LINKS];
	for (unsigned i = 0; i < lanes->count; i++)
		access[i] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, lanes->list[i].device},
					      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return md_cuda_call(err, cuMemSetAccess, address, bytes, access, lanes->count);
}

static void note_time(uint64_t *time, uint64_t *began)
{
	uint64_t now = md_clock_ns();
	*time += now - *began;
	*began = now;
}

static enum md_status map(struct md_lanes *lanes, struct md_carrier_part *part, struct md_error *err)
{
	CUdeviceptr address = 0;
	uint64_t began = md_clock_ns();
	MD_FORWARD(md_cuda_call(err, cuMemAddressReserve, &address, part->bytes, 0, 0, 0));
	enum md_status status = md_cuda_call(err, cuMemMap, address, part->bytes, 0, part->handle, 0);
	note_time(&lanes->times[MD_PEER_OWN_MAP], &began);
	if (status == MD_OK) {
		status = give_access(lanes, address, part->bytes, err);
		note_time(&lanes->times[MD_PEER_OWN_ACCESS], &began);
		if (status != MD_OK)
			md_cuda.cuMemUnmap(address, part->bytes);
	}
	if (status == MD_OK)
		part->address = address;
	else
		md_cuda.cuMemAddressFree(address, part->bytes);
	return status;
}

/* Without effect after a failure. */
static enum md_status import(struct md_lanes *lanes, int memory, uint64_t bytes, struct md_carrier_part *part,
			     struct md_error *err)
{
	struct md_carrier_part made = {.there = true, .bytes = bytes};
	uint64_t began = md_clock_ns();
	if (!lanes->count || !bytes || bytes % MD_SWAP_BLOCK || memory < 0)
		return md_error_set(err, MD_ERR_CORRUPT, "a part has %llu bytes, or came too early",
				    (unsigned long long)bytes);
	MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lanes->list[0].context));
	MD_FORWARD(md_cuda_call(err, cuMemImportFromShareableHandle, &made.handle, (void *)(intptr_t)memory,
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	note_time(&lanes->times[MD_PEER_OWN_IMPORT], &began);
	lanes->times[MD_PEER_OWN_PARTS]++;
	enum md_status status = map(lanes, &made, err);
	if (status == MD_OK)
		*part = made;
	else
		release(&made);
	return status;
}

static enum md_status forget(struct md_carrier_part *part, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuMemUnmap, part->address, part->bytes));
	md_cuda.cuMemAddressFree(part->address, part->bytes);
	MD_FORWARD(md_cuda_call(err, cuMemRelease, part->handle));
	*part = (struct md_carrier_part){0};
	return MD_OK;
}

static enum md_status make_room(struct md_lanes *lanes, uint32_t part, struct md_error *err)
{
	uint32_t wanted = part + 1;
	if (part >= PARTS_MOST || (part < lanes->part_count && lanes->parts[part].there))
		return md_error_set(err, MD_ERR_CORRUPT, "part %u is there already, or there are too many", part);
	if (wanted <= lanes->part_count)
		return MD_OK;
	struct md_carrier_part *parts = md_array_resize(lanes->parts, wanted, sizeof(*parts));
	if (!parts)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u parts", wanted);
	memset(parts + lanes->part_count, 0, (wanted - lanes->part_count) * sizeof(*parts));
	lanes->parts = parts;
	lanes->part_count = wanted;
	return MD_OK;
}

enum md_status md_lanes_part(struct md_lanes *lanes, uint32_t part, uint64_t bytes, int memory, struct md_error *err)
{
	struct md_carrier_part made;
	if (!lanes->count)
		return md_error_set(err, MD_ERR_CORRUPT, "part %u came too early", part);
	MD_FORWARD(make_room(lanes, part, err));
	MD_FORWARD(import(lanes, memory, bytes, &made, err));
	lanes->parts[part] = made;
	return MD_OK;
}

/* ---- copies ---- */

bool md_lanes_covers(const struct md_lanes *lanes, uint32_t part, uint64_t offset, uint64_t bytes)
{
	const struct md_carrier_part *at = part < lanes->part_count ? &lanes->parts[part] : NULL;
	return at && at->there && offset % MD_SWAP_BLOCK == 0 && bytes <= at->bytes && offset <= at->bytes - bytes;
}

enum md_status md_lanes_check(const struct md_lanes *lanes, const struct md_carry_message *chunk, struct md_error *err)
{
	uint64_t blocks = 0;
	const struct md_carrier_part *part = chunk->part < lanes->part_count ? &lanes->parts[chunk->part] : NULL;
	if (!part || !part->there || !chunk->count)
		return md_error_set(err, MD_ERR_CORRUPT, "a chunk of part %u, which is not there", chunk->part);
	for (uint32_t i = 0; i < chunk->count; i++) {
		const struct md_carry_run *run = &chunk->runs[i];
		uint64_t bytes = run->count * MD_SWAP_BLOCK;
		if (!run->count || !md_lanes_covers(lanes, chunk->part, run->offset, bytes) ||
		    run->count > lanes->blocks || run->block > lanes->blocks - run->count)
			return md_error_set(err, MD_ERR_CORRUPT, "a chunk outside of its part or of the pool");
		blocks += run->count;
	}
	if (blocks > MD_CARRY_CHUNK_BLOCKS)
		return md_error_set(err, MD_ERR_CORRUPT, "a chunk of %llu blocks", (unsigned long long)blocks);
	return MD_OK;
}

/* A buffer of the neighbour that has the most free ones. */
static struct md_carrier_buffer *free_buffer(struct md_lanes *lanes, struct md_carrier_lane **lane)
{
	struct md_carrier_buffer *found = NULL;
	unsigned most = 0;
	for (unsigned i = 0; i < lanes->count; i++) {
		struct md_carrier_buffer *last = NULL;
		unsigned count = 0;
		for (unsigned b = 0; b < MD_LANE_BUFFERS; b++) {
			if (lanes->list[i].buffers[b].busy)
				continue;
			last = &lanes->list[i].buffers[b];
			count++;
		}
		if (count <= most)
			continue;
		most = count;
		found = last;
		*lane = &lanes->list[i];
	}
	return found;
}

/* No copy from the host crosses the border of two parts of the pool that are page-locked one by one. */
static enum md_status stage(const struct md_lanes *lanes, const struct md_carry_run *run,
			    const struct md_carrier_buffer *buffer, uint64_t at, struct md_error *err)
{
	for (uint32_t done = 0, count; done < run->count; done += count) {
		uint32_t block = run->block + done, left = MD_SWAP_CHUNK - block % MD_SWAP_CHUNK;
		count = run->count - done < left ? run->count - done : left;
		MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, buffer->address + at + done * MD_SWAP_BLOCK,
					md_swap_pool_bytes(lanes->pool, block), count * MD_SWAP_BLOCK, buffer->stream));
	}
	return MD_OK;
}

static enum md_status copy(const struct md_lanes *lanes, const struct md_carry_message *chunk,
			   struct md_carrier_buffer *buffer, struct md_error *err)
{
	CUdeviceptr base = lanes->parts[chunk->part].address;
	uint64_t at = 0, sent = 0;
	for (uint32_t i = 0; i < chunk->count; i++) {
		MD_FORWARD(stage(lanes, &chunk->runs[i], buffer, at, err));
		at += chunk->runs[i].count * MD_SWAP_BLOCK;
	}
	/* Runs that follow each other in the part go as one. */
	for (uint32_t i = 0, next; i < chunk->count; i = next) {
		uint64_t bytes = 0;
		for (next = i; next < chunk->count && chunk->runs[next].offset == chunk->runs[i].offset + bytes; next++)
			bytes += chunk->runs[next].count * MD_SWAP_BLOCK;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoDAsync_v2, base + chunk->runs[i].offset, buffer->address + sent,
					bytes, buffer->stream));
		sent += bytes;
	}
	buffer->bytes = at;
	return MD_OK;
}

enum md_status md_lanes_copy(struct md_lanes *lanes, const struct md_carry_message *chunk, bool *begun,
			     struct md_error *err)
{
	struct md_carrier_lane *lane = NULL;
	struct md_carrier_buffer *buffer = free_buffer(lanes, &lane);
	*begun = false;
	if (!buffer)
		return MD_OK;
	MD_FORWARD(lock_pages(lanes, chunk, err));
	MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lane->context));
	buffer->busy = true;
	buffer->chunk = chunk->chunk;
	MD_FORWARD(copy(lanes, chunk, buffer, err));
	*begun = true;
	return MD_OK;
}

enum md_status md_lanes_done(struct md_lanes *lanes, struct md_carry_message *done, bool *there, struct md_error *err)
{
	*there = false;
	for (unsigned i = 0; i < lanes->count; i++)
		for (unsigned b = 0; b < MD_LANE_BUFFERS; b++) {
			struct md_carrier_buffer *buffer = &lanes->list[i].buffers[b];
			if (!buffer->busy)
				continue;
			MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lanes->list[i].context));
			CUresult result = md_cuda.cuStreamQuery(buffer->stream);
			if (result == CUDA_ERROR_NOT_READY)
				continue;
			MD_FORWARD(md_cuda_status(result, "cuStreamQuery of copies", err));
			buffer->busy = false;
			*done = (struct md_carry_message){
			    .kind = MD_CARRY_DONE, .chunk = buffer->chunk, .link = i, .bytes = buffer->bytes};
			*there = true;
			return MD_OK;
		}
	return MD_OK;
}

enum md_status md_lanes_drop(struct md_lanes *lanes, struct md_error *err)
{
	for (unsigned i = 0; i < lanes->count; i++) {
		MD_FORWARD(md_cuda_call(err, cuCtxSetCurrent, lanes->list[i].context));
		for (unsigned b = 0; b < MD_LANE_BUFFERS; b++) {
			MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, lanes->list[i].buffers[b].stream));
			lanes->list[i].buffers[b].busy = false;
		}
	}
	for (uint32_t i = 0; i < lanes->part_count; i++) {
		if (lanes->parts[i].there)
			MD_FORWARD(forget(&lanes->parts[i], err));
	}
	free(lanes->parts);
	lanes->parts = NULL;
	lanes->part_count = 0;
	memset(lanes->times, 0, sizeof(lanes->times));
	return MD_OK;
}
