/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocations. An allocation gets memory at once. Freed memory waits for an event on the freeing stream;
 * the same stream may use it again at once, other streams only after that event.
 */
#include "swap/memory_ordered.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/map.h"
#include "swap/contexts.h"
#include "swap/constant.h"
#include "swap/discard.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/memory_own.h"
#include "swap/peers.h"
#include "swap/reach.h"

struct pool {
	CUmemoryPool handle;
	CUdevice device;
	bool drivers; /* exportable, or not on a device: the driver's own allocations serve it */
	uint64_t used, used_high, kept, reserved_high, threshold; /* kept: freed, and not given back */
	struct pool *next;
};

struct freed {
	CUdeviceptr address;
	uint64_t bytes;
	struct pool *pool;
	CUcontext context;
	CUstream stream;
	uint64_t thread; /* whose per-thread default stream it is; 0: another stream */
	CUevent event;   /* NULL: the work has passed it */
};

static struct pool *pools MD_GUARDED_BY(md_swap_memory_lock);
static struct md_map owners MD_GUARDED_BY(md_swap_memory_lock); /* address -> struct pool * */
static struct freed *freed MD_GUARDED_BY(md_swap_memory_lock);
static size_t freed_count MD_GUARDED_BY(md_swap_memory_lock), freed_room MD_GUARDED_BY(md_swap_memory_lock);

/* ---- pools ---- */

static struct pool *find_pool(CUmemoryPool handle) MD_REQUIRES(md_swap_memory_lock)
{
	struct pool *at = pools;
	while (at && at->handle != handle)
		at = at->next;
	return at;
}

/* A destroyed pool without any allocation, whose entry can be used again. */
static struct pool *find_dead(void) MD_REQUIRES(md_swap_memory_lock)
{
	struct pool *at = pools;
	while (at && (at->handle || at->used || at->kept))
		at = at->next;
	if (at)
		at->used_high = at->reserved_high = at->threshold = 0;
	return at;
}

static struct pool *add_pool(CUmemoryPool handle, CUdevice device, bool drivers) MD_REQUIRES(md_swap_memory_lock)
{
	struct pool *pool = find_pool(handle);
	if (!pool)
		pool = find_dead();
	if (!pool) {
		pool = calloc(1, sizeof(*pool));
		if (!pool)
			return NULL;
		pool->next = pools;
		pools = pool;
	}
	pool->handle = handle;
	pool->device = device;
	pool->drivers = drivers;
	return pool;
}

CUresult md_swap_own_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUresult result = md_swap_real.cuMemPoolCreate(pool, poolProps);
	if (result != CUDA_SUCCESS)
		return result;
	bool drivers = poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		       poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
		       poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || poolProps->maxSize;
	pthread_mutex_lock(&md_swap_memory_lock);
	bool known = add_pool(*pool, poolProps->location.id, drivers) != NULL;
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (known)
		return CUDA_SUCCESS;
	md_swap_real.cuMemPoolDestroy(*pool);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The current pool of a device, which the driver knows. */
static struct pool *current_pool(CUdevice device) MD_REQUIRES(md_swap_memory_lock)
{
	CUmemoryPool handle;
	struct pool *pool = NULL;
	if (md_swap_real.cuDeviceGetMemPool(&handle, device) == CUDA_SUCCESS) {
		pool = find_pool(handle);
		if (!pool)
			pool = add_pool(handle, device, false); /* the device's default pool */
	}
	return pool;
}

uint64_t md_swap_ordered_kept(CUdevice device)
{
	uint64_t bytes = 0;
	for (const struct pool *at = pools; at; at = at->next)
		bytes += at->device == device ? at->kept : 0;
	return bytes;
}

static void count_used(struct pool *pool, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock)
{
	pool->used += bytes;
	uint64_t reserved = pool->used + pool->kept;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (reserved > pool->reserved_high)
		pool->reserved_high = reserved;
}

/* ---- what was freed ---- */

static void event_done(struct freed *one) MD_REQUIRES(md_swap_memory_lock)
{
	md_swap_real.cuEventDestroy_v2(one->event);
	one->event = NULL;
}

static bool has_passed(struct freed *one, bool wait) MD_REQUIRES(md_swap_memory_lock)
{
	CUresult result;
	if (!one->event)
		return true;
	if (md_swap_gate_captures()) /* a capture forbids to ask */
		return false;
	result = wait ? md_swap_real.cuEventSynchronize(one->event) : md_swap_real.cuEventQuery(one->event);
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	event_done(one); /* a broken context has passed everything */
	return true;
}

static void remove_freed(size_t at) MD_REQUIRES(md_swap_memory_lock)
{
	if (freed[at].event)
		event_done(&freed[at]);
	freed[at].pool->kept -= freed[at].bytes;
	freed[at] = freed[--freed_count];
}

uint64_t md_swap_ordered_reclaim(bool all, bool wait)
{
	uint64_t bytes = 0;
	for (size_t i = freed_count; i-- > 0;) {
		if (!all && freed[i].pool->kept <= freed[i].pool->threshold)
			continue;
		if (!has_passed(&freed[i], wait))
			continue;
		bytes += freed[i].bytes;
		CUdeviceptr address = freed[i].address;
		remove_freed(i);
		md_swap_own_give(address);
	}
	return bytes;
}

void md_swap_ordered_context_gone(CUcontext context)
{
	for (size_t i = freed_count; i-- > 0;)
		if (freed[i].context == context) {
			freed[i].event = NULL; /* which ended with the context */
			remove_freed(i);
		}
}

/* A stream that comes later may have its handle. */
void md_swap_ordered_stream_gone(CUstream stream)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	for (size_t i = 0; i < freed_count; i++)
		if (freed[i].stream == stream)
			freed[i].thread = UINT64_MAX;
	pthread_mutex_unlock(&md_swap_memory_lock);
}

void md_swap_ordered_freed(CUdeviceptr address)
{
	uint64_t found;
	struct md_swap_allocation allocation;
	if (!md_map_remove(&owners, address, &found))
		return;
	struct pool *pool = (struct pool *)(uintptr_t)found;
	if (md_swap_own_find(address, &allocation))
		pool->used -= allocation.bytes;
}

CUmemoryPool md_swap_ordered_pool(CUdeviceptr address)
{
	uint64_t found;
	return md_map_get(&owners, address, &found) ? ((struct pool *)(uintptr_t)found)->handle : NULL;
}

/* ---- allocating ---- */

/* Where a call goes: a stream, its context and whether it is being captured. */
struct place {
	CUstream stream;
	uint64_t thread; /* as in struct freed */
	CUcontext context;
	CUdevice device;
	bool captured;
};

static CUresult find_place(CUstream stream, bool per_thread, struct place *place)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = md_swap_context_of_stream(stream, &place->context, &place->device);
	if (result != CUDA_SUCCESS)
		return result;
	bool own = stream == CU_STREAM_PER_THREAD || (per_thread && !stream);
	place->stream = own ? CU_STREAM_PER_THREAD : stream;
	place->thread = own ? md_swap_own_slot->serial : 0;
	if (md_swap_gate_captures())
		result = md_swap_real.cuStreamIsCapturing(place->stream, &status);
	place->captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return result;
}

static bool take_freed(struct pool *pool, const struct place *place, uint64_t bytes, CUdeviceptr *address)
    MD_REQUIRES(md_swap_memory_lock)
{
	for (size_t i = 0; i < freed_count; i++) {
		struct freed *one = &freed[i];
		if (one->pool != pool || one->bytes != bytes || one->context != place->context)
			continue;
		const struct md_swap_mapping *mapping = md_swap_mapping_at(one->address);
		if (!mapping || mapping->physical->lease) /* other processes read it */
			continue;
		bool same = one->stream == place->stream && one->thread == place->thread;
		if (!same && !has_passed(one, false))
			continue;
		*address = one->address;
		md_swap_discard_forget(*address, bytes);
		md_swap_constant_forget(*address, bytes);
		remove_freed(i);
		return true;
	}
	return false;
}

static CUresult take_in(struct pool *pool, const struct place *place, uint64_t bytes, CUdeviceptr *address)
    MD_REQUIRES(md_swap_memory_lock)
{
	if (!take_freed(pool, place, bytes, address)) {
		md_swap_ordered_reclaim(false, false);
		CUresult result = md_swap_own_take_in(place->context, place->device, bytes, address);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && md_swap_ordered_reclaim(true, true))
			result = md_swap_own_take_in(place->context, place->device, bytes, address);
		if (result != CUDA_SUCCESS)
			return result;
	}
	if (!md_map_put(&owners, *address, (uint64_t)(uintptr_t)pool)) {
		md_swap_own_give(*address);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	count_used(pool, bytes);
	return CUDA_SUCCESS;
}

/* CUDA_ERROR_NOT_SUPPORTED: the driver's own allocation serves the call. handle: NULL for the device's current pool. */
static CUresult take(CUdeviceptr *dptr, uint64_t bytes, CUmemoryPool handle, CUstream stream, bool per_thread)
{
	struct place place;
	if (!dptr || !bytes || find_place(stream, per_thread, &place) != CUDA_SUCCESS || place.captured)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct pool *pool = handle ? find_pool(handle) : current_pool(place.device);
	if (handle && !pool) { /* the default pool, which nobody has used yet, or an imported one */
		struct pool *now = current_pool(place.device);
		pool = now && now->handle == handle ? now : NULL;
	}
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	if (pool && !pool->drivers && pool->device == place.device)
		result = take_in(pool, &place, bytes, dptr);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

/* The driver's own allocation. One that is captured comes with the graph. */
static CUresult came(CUresult result, const CUdeviceptr *dptr, size_t bytes)
{
	if (result == CUDA_SUCCESS)
		md_swap_reach_came(*dptr, bytes);
	return result;
}

CUresult md_swap_own_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	CUresult result = take(dptr, bytesize, NULL, hStream, false);
	return result == CUDA_ERROR_NOT_SUPPORTED
		   ? came(md_swap_real.cuMemAllocAsync(dptr, bytesize, hStream), dptr, bytesize)
		   : result;
}

CUresult md_swap_own_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	CUresult result = take(dptr, bytesize, NULL, hStream, true);
	return result == CUDA_ERROR_NOT_SUPPORTED
		   ? came(md_swap_real.cuMemAllocAsync_ptsz(dptr, bytesize, hStream), dptr, bytesize)
		   : result;
}

CUresult md_swap_own_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	CUresult result = pool ? take(dptr, bytesize, pool, hStream, false) : CUDA_ERROR_NOT_SUPPORTED;
	return result == CUDA_ERROR_NOT_SUPPORTED
		   ? came(md_swap_real.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream), dptr, bytesize)
		   : result;
}

CUresult md_swap_own_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
						  CUstream hStream)
{
	CUresult result = pool ? take(dptr, bytesize, pool, hStream, true) : CUDA_ERROR_NOT_SUPPORTED;
	return result == CUDA_ERROR_NOT_SUPPORTED
		   ? came(md_swap_real.cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream), dptr, bytesize)
		   : result;
}

/* ---- freeing ---- */

static CUresult record(const struct place *place, CUevent *event)
{
	CUcontext ignored;
	CUresult result = md_swap_real.cuCtxPushCurrent_v2(place->context);
	if (result != CUDA_SUCCESS)
		return result;
	result = md_swap_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS) {
		result = md_swap_real.cuEventRecord(*event, place->stream);
		if (result != CUDA_SUCCESS)
			md_swap_real.cuEventDestroy_v2(*event);
	}
	md_swap_real.cuCtxPopCurrent_v2(&ignored);
	return result;
}

static CUresult give_after(const struct md_swap_allocation *found, const struct place *place)
    MD_REQUIRES(md_swap_memory_lock)
{
	uint64_t owner;
	CUevent event;
	struct pool *pool =
	    md_map_get(&owners, found->address, &owner) ? (struct pool *)(uintptr_t)owner : current_pool(place->device);
	if (!pool || !MD_ARRAY_GROW(freed, freed_count, freed_room))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = record(place, &event);
	if (result != CUDA_SUCCESS)
		return result;
	md_swap_ordered_freed(found->address);
	md_swap_constant_forget(found->address, found->bytes);
	pool->kept += found->bytes;
	freed[freed_count++] =
	    (struct freed){found->address, found->bytes, pool, found->context, place->stream, place->thread, event};
	return CUDA_SUCCESS;
}

bool md_swap_ordered_is_freed(CUdeviceptr address)
{
	for (size_t i = 0; i < freed_count; i++)
		if (freed[i].address == address)
			return true;
	return false;
}

/* CUDA_ERROR_NOT_SUPPORTED: not ours. */
static CUresult give(CUdeviceptr address, CUstream stream, bool per_thread)
{
	struct md_swap_allocation found;
	struct place place;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&md_swap_memory_lock);
	bool ours = md_swap_own_find(address, &found);
	if (ours && (found.address != address || md_swap_ordered_is_freed(address)))
		result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (!ours || result == CUDA_ERROR_INVALID_VALUE)
		return result;
	result = find_place(stream, per_thread, &place);
	if (result != CUDA_SUCCESS)
		return result;
	if (place.captured)
		return CUDA_ERROR_NOT_SUPPORTED; /* the driver says what it thinks of that */
	pthread_mutex_lock(&md_swap_memory_lock);
	result = give_after(&found, &place);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	CUresult result = give(dptr, hStream, false);
	return result == CUDA_ERROR_NOT_SUPPORTED ? md_swap_real.cuMemFreeAsync(dptr, hStream) : result;
}

CUresult md_swap_own_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	CUresult result = give(dptr, hStream, true);
	return result == CUDA_ERROR_NOT_SUPPORTED ? md_swap_real.cuMemFreeAsync_ptsz(dptr, hStream) : result;
}

/* ---- what an engine asks of its pools, and sets ---- */

CUresult md_swap_own_cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = md_swap_real.cuMemPoolDestroy(pool);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct pool *gone = find_pool(pool);
	if (gone) {
		gone->handle = NULL; /* its allocations live on until they are freed */
		gone->threshold = 0;
		md_swap_ordered_reclaim(false, false);
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return CUDA_SUCCESS;
}

static void trim_to(struct pool *pool, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock)
{
	uint64_t threshold = pool->threshold;
	pool->threshold = bytes > pool->used ? bytes - pool->used : 0;
	md_swap_ordered_reclaim(false, false);
	pool->threshold = threshold;
	md_swap_own_trim();
}

CUresult md_swap_own_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result = md_swap_real.cuMemPoolTrimTo(pool, minBytesToKeep);
	pthread_mutex_lock(&md_swap_memory_lock);
	struct pool *known = find_pool(pool);
	if (known)
		trim_to(known, minBytesToKeep);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = md_swap_real.cuMemPoolSetAttribute(pool, attr, value);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct pool *known = find_pool(pool);
	CUdevice device;
	if (!known && md_swap_real.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
		known = current_pool(device);
		known = known && known->handle == pool ? known : NULL;
	}
	if (known && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		known->threshold = *(cuuint64_t *)value;
	else if (known && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		known->used_high = known->used;
	else if (known && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		known->reserved_high = known->used + known->kept;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return CUDA_SUCCESS;
}

static uint64_t own_part(const struct pool *pool, CUmemPool_attribute attr) MD_REQUIRES(md_swap_memory_lock)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return pool->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return pool->used_high;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return pool->used + pool->kept;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return pool->reserved_high;
	default:
		return 0;
	}
}

CUresult md_swap_own_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = md_swap_real.cuMemPoolGetAttribute(pool, attr, value);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct pool *known = find_pool(pool);
	uint64_t own = known ? own_part(known, attr) : 0;
	if (own)
		*(cuuint64_t *)value += own;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUdevice device = -1;
	CUresult result = md_swap_real.cuMemPoolSetAccess(pool, map, count);
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct pool *known = find_pool(pool);
	if (known && !known->drivers)
		device = known->device;
	pthread_mutex_unlock(&md_swap_memory_lock);
	for (size_t i = 0; i < count && device >= 0 && result == CUDA_SUCCESS; i++)
		if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
		    map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
			result = md_swap_peers_allow(device, map[i].location.id);
	return result;
}
