/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets of the engine's own, outside of graphs, in memory that a recorded graph uses and nobody bound. */
#include <stdlib.h>
#include <string.h>

#include "capture/capture_handed.h"

#define MOST 16384 /* different ones; a process with more is told apart by allocation */

/* All under md_capture.lock but `watching`, by which a hook sees that no graph has memory of its own yet. */
static atomic_bool watching;
static struct md_map watched; /* starts of allocations that recorded graphs use */
static struct md_capture_touch *touches;
static size_t touch_count;
static struct md_map by_key;               /* hash of call, place and direction -> index */
static struct md_capture_output *declared; /* outputs of graphs, which the engine may read */
static size_t declared_count;

void md_capture_touched_watch(const uint64_t *candidates, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!md_map_put(&watched, candidates[i], 0))
			md_capture_trouble("out of memory for the memory of graphs");
	if (count)
		atomic_store(&watching, true);
}

void md_capture_touched_declared(struct md_capture_output output)
{
	struct md_capture_output *grown = realloc(declared, (declared_count + 1) * sizeof(*grown));

	if (!grown)
		return md_capture_trouble("out of memory at output %u of a graph", output.index);
	declared = grown;
	declared[declared_count++] = output;
}

static bool is_declared(uint64_t address, uint64_t size)
{
	for (size_t i = 0; i < declared_count; i++)
		if (address >= declared[i].address && address - declared[i].address < declared[i].size &&
		    size <= declared[i].size - (address - declared[i].address))
			return true;
	return false;
}

static bool is_bound(uint64_t address, uint64_t size)
{
	const struct md_interval *bind = md_interval_find(&md_capture.binds, address);

	return bind && size <= bind->start + bind->size - address;
}

static void keep(struct md_capture_touch touch)
{
	uint64_t key[4] = {(uintptr_t)touch.call, touch.address, touch.size, touch.writes}, at, hash;
	struct md_capture_touch *grown;

	hash = md_hash_checksum(key, sizeof(key));
	if (md_map_get(&by_key, hash, &at)) {
		touches[at].last = touch.last;
		return;
	}
	if ((touch_count & (touch_count - 1)) == 0) {
		grown = realloc(touches, (touch_count ? 2 * touch_count : 1) * sizeof(*grown));
		if (!grown)
			return md_capture_trouble("out of memory for what the engine copies");
		touches = grown;
	}
	if (!md_map_put(&by_key, hash, touch_count))
		return md_capture_trouble("out of memory for what the engine copies");
	touches[touch_count++] = touch;
}

/* The part of [address, address + size) that lies in one allocation. */
static void note(const char *call, const struct md_interval *item, uint64_t address, uint64_t size, bool writes)
{
	struct md_capture_touch touch = {call, address, size, 0, 0, writes};

	if (!md_map_get(&watched, item->start, NULL) || is_bound(address, size) ||
	    (!writes && is_declared(address, size)))
		return;
	if (touch_count >= MOST) {
		touch.address = item->start;
		touch.size = item->size;
	}
	touch.last = md_capture_next();
	keep(touch);
}

void md_capture_touched(const char *call, uint64_t address, uint64_t size, bool writes)
{
	const struct md_interval *item;

	if (!atomic_load_explicit(&watching, memory_order_relaxed) || !size)
		return;
	md_capture_lock();
	while (md_capture.writer && size && (item = md_interval_find(&md_capture.live, address))) {
		uint64_t left = item->start + item->size - address, part = size < left ? size : left;
		note(call, item, address, part, writes);
		address += part;
		size -= part;
	}
	md_capture_unlock();
}

/* Rows of `width` bytes: from the first byte to the last one. Arrays have no address, and host memory is nobody's. */
static void touched_rows(const char *call, CUmemorytype type, CUdeviceptr base, uint64_t offset, uint64_t extent,
			 bool writes)
{
	if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
		md_capture_touched(call, base + offset, extent, writes);
}

void md_capture_touched_copy2d(const char *call, const CUDA_MEMCPY2D *copy)
{
	uint64_t rows = copy->Height ? copy->Height - 1 : 0;

	touched_rows(call, copy->srcMemoryType, copy->srcDevice, copy->srcY * copy->srcPitch + copy->srcXInBytes,
		     rows * copy->srcPitch + copy->WidthInBytes, false);
	touched_rows(call, copy->dstMemoryType, copy->dstDevice, copy->dstY * copy->dstPitch + copy->dstXInBytes,
		     rows * copy->dstPitch + copy->WidthInBytes, true);
}

static uint64_t place_3d(uint64_t pitch, uint64_t height, uint64_t x, uint64_t y, uint64_t z)
{
	return (z * height + y) * pitch + x;
}

void md_capture_touched_copy3d(const char *call, const CUDA_MEMCPY3D *copy)
{
	uint64_t rows = copy->Height ? copy->Height - 1 : 0, slices = copy->Depth ? copy->Depth - 1 : 0;

	touched_rows(call, copy->srcMemoryType, copy->srcDevice,
		     place_3d(copy->srcPitch, copy->srcHeight, copy->srcXInBytes, copy->srcY, copy->srcZ),
		     place_3d(copy->srcPitch, copy->srcHeight, copy->WidthInBytes, rows, slices), false);
	touched_rows(call, copy->dstMemoryType, copy->dstDevice,
		     place_3d(copy->dstPitch, copy->dstHeight, copy->dstXInBytes, copy->dstY, copy->dstZ),
		     place_3d(copy->dstPitch, copy->dstHeight, copy->WidthInBytes, rows, slices), true);
}

struct md_capture_touch *md_capture_touch_at(size_t index)
{
	return index < touch_count ? &touches[index] : NULL;
}
