/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets of the engine outside of graphs, in unbound memory that a recorded graph uses. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "capture/probe/handed.h"
#include "capture/record/graphs.h"
#include "capture/record/module_variables.h"
#include "capture/record/touched.h"

#define MOST 16384 /* different touches; a process with more has one for each allocation */

static atomic_bool watching;                     /* false: no graph has unbound memory yet */
static struct md_map watched MD_CAPTURE_GUARDED; /* starts of allocations that recorded graphs use */
static struct md_capture_touch *touches MD_CAPTURE_GUARDED;
static size_t touch_count MD_CAPTURE_GUARDED, touch_room MD_CAPTURE_GUARDED;
static struct md_map by_key MD_CAPTURE_GUARDED;               /* hash of call, place and direction -> index */
static struct md_capture_output *declared MD_CAPTURE_GUARDED; /* outputs of graphs, which the engine may read */
static size_t declared_count MD_CAPTURE_GUARDED;

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
	if (!MD_ARRAY_EXTEND(declared, declared_count))
		return md_capture_trouble("out of memory for output %u of a graph", output.index);
	declared[declared_count++] = output;
}

static bool is_declared(uint64_t address, uint64_t size) MD_CAPTURE_HELD
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

static void keep(struct md_capture_touch touch) MD_CAPTURE_HELD
{
	uint64_t key[4] = {(uintptr_t)touch.call, touch.address, touch.size, touch.writes}, at, hash;
	hash = md_hash_checksum(key, sizeof(key));
	if (md_map_get(&by_key, hash, &at)) {
		touches[at].last = touch.last;
		return;
	}
	if (!MD_ARRAY_GROW(touches, touch_count, touch_room) || !md_map_put(&by_key, hash, touch_count))
		return md_capture_trouble("out of memory for what the engine copies");
	touches[touch_count++] = touch;
}

/* The part of [address, address + size) that lies in one allocation. */
static void note(const char *call, const struct md_interval *item, uint64_t address, uint64_t size,
		 bool writes) MD_CAPTURE_HELD
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
	bool variables = md_capture_variables_watching();
	if ((!atomic_load_explicit(&watching, memory_order_relaxed) && !variables) || !size)
		return;
	md_capture_lock();
	while (md_capture.writer && size && (item = md_interval_find(&md_capture.live, address))) {
		uint64_t left = item->start + item->size - address, part = size < left ? size : left;
		note(call, item, address, part, writes);
		if (item->value == MD_ALLOC_GLOBAL && writes)
			md_capture_variable_set(address);
		else if (item->value == MD_ALLOC_GLOBAL)
			md_capture_variable_used(address);
		address += part;
		size -= part;
	}
	md_capture_unlock();
}

/* One end of a copy: slices of rows. */
struct side {
	CUmemorytype type;
	CUdeviceptr base;
	uint64_t x, y, z, pitch, height;
};

/* Notes the memory from the first byte to the last one. Arrays have no address, and host memory does not count. */
static void touched_side(const char *call, const CUDA_MEMCPY3D *copy, struct side side, bool writes)
{
	uint64_t pitch = side.pitch ? side.pitch : copy->WidthInBytes;
	uint64_t slice = (side.height ? side.height : copy->Height) * pitch;
	if ((side.type != CU_MEMORYTYPE_DEVICE && side.type != CU_MEMORYTYPE_UNIFIED) || !copy->WidthInBytes ||
	    !copy->Height || !copy->Depth)
		return;
	md_capture_touched(call, side.base + side.z * slice + side.y * pitch + side.x,
			   (copy->Depth - 1) * slice + (copy->Height - 1) * pitch + copy->WidthInBytes, writes);
}

void md_capture_touched_copy3d(const char *call, const CUDA_MEMCPY3D *copy)
{
	struct side from = {copy->srcMemoryType, copy->srcDevice, copy->srcXInBytes, copy->srcY,
			    copy->srcZ,          copy->srcPitch,  copy->srcHeight};
	struct side to = {copy->dstMemoryType, copy->dstDevice, copy->dstXInBytes, copy->dstY,
			  copy->dstZ,          copy->dstPitch,  copy->dstHeight};
	touched_side(call, copy, from, false);
	touched_side(call, copy, to, true);
}

void md_capture_touched_copy2d(const char *call, const CUDA_MEMCPY2D *copy)
{
	const CUDA_MEMCPY3D all = {.srcMemoryType = copy->srcMemoryType,
				   .srcDevice = copy->srcDevice,
				   .srcXInBytes = copy->srcXInBytes,
				   .srcY = copy->srcY,
				   .srcPitch = copy->srcPitch,
				   .dstMemoryType = copy->dstMemoryType,
				   .dstDevice = copy->dstDevice,
				   .dstXInBytes = copy->dstXInBytes,
				   .dstY = copy->dstY,
				   .dstPitch = copy->dstPitch,
				   .WidthInBytes = copy->WidthInBytes,
				   .Height = copy->Height,
				   .Depth = 1};
	md_capture_touched_copy3d(call, &all);
}

void md_capture_touched_peer(const char *call, const CUDA_MEMCPY3D_PEER *copy)
{
	const CUDA_MEMCPY3D all = {.srcMemoryType = copy->srcMemoryType,
				   .srcDevice = copy->srcDevice,
				   .srcXInBytes = copy->srcXInBytes,
				   .srcY = copy->srcY,
				   .srcZ = copy->srcZ,
				   .srcPitch = copy->srcPitch,
				   .srcHeight = copy->srcHeight,
				   .dstMemoryType = copy->dstMemoryType,
				   .dstDevice = copy->dstDevice,
				   .dstXInBytes = copy->dstXInBytes,
				   .dstY = copy->dstY,
				   .dstZ = copy->dstZ,
				   .dstPitch = copy->dstPitch,
				   .dstHeight = copy->dstHeight,
				   .WidthInBytes = copy->WidthInBytes,
				   .Height = copy->Height,
				   .Depth = copy->Depth};
	md_capture_touched_copy3d(call, &all);
}

/* Elements of an operand that is a pointer are bytes. */
void md_capture_touched_operation(const char *call, const CUDA_MEMCPY3D_BATCH_OP *op)
{
	bool from = op->src.type == CU_MEMCPY_OPERAND_TYPE_POINTER, to = op->dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER;
	const CUDA_MEMCPY3D all = {.srcMemoryType = from ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_ARRAY,
				   .srcDevice = from ? op->src.op.ptr.ptr : 0,
				   .srcPitch = from ? op->src.op.ptr.rowLength : 0,
				   .srcHeight = from ? op->src.op.ptr.layerHeight : 0,
				   .dstMemoryType = to ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_ARRAY,
				   .dstDevice = to ? op->dst.op.ptr.ptr : 0,
				   .dstPitch = to ? op->dst.op.ptr.rowLength : 0,
				   .dstHeight = to ? op->dst.op.ptr.layerHeight : 0,
				   .WidthInBytes = op->extent.width,
				   .Height = op->extent.height,
				   .Depth = op->extent.depth};
	md_capture_touched_copy3d(call, &all);
}

void md_capture_touched_put(uint64_t from)
{
	for (size_t i = 0; i < touch_count; i++) {
		const struct md_capture_touch *touch = &touches[i];
		const struct md_trace_handed used = {.reader = touch->writes ? MD_ANY_GRAPH : 0,
						     .writer = touch->writes ? 0 : MD_ANY_GRAPH,
						     .call = (char *)touch->call,
						     .address = touch->address,
						     .size = touch->size};
		if (touch->last > from)
			md_trace_put_handed(md_capture.writer, touch->last, &used);
	}
}

struct md_capture_touch *md_capture_touch_at(size_t index)
{
	return index < touch_count ? &touches[index] : NULL;
}
