/* SPDX-License-Identifier: Apache-2.0 */
/* Device, managed and host memory: which addresses belong to what, and how much of the device's capacity is used. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/interval.h"
#include "base/setting.h"
#include "hostcuda/address_space.h"
#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/graph.h"
#include "hostcuda/memory.h"
#include "hostcuda/queue.h"
#include "hostcuda/shared_devices.h"
#include "hostcuda/stream.h"
#include "hostcuda/stream_capture.h"

static struct md_interval_index live HC_STATE_GUARDED; /* value: struct hc_memory * */
static uint64_t next_memory_id HC_STATE_GUARDED;

#define PAGE ((size_t)4096)
#define LARGE ((size_t)1 << 20)

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

CUresult hc_memory_add(struct hc_memory *memory)
{
	HC_STATE_GUARD();
	memory->id = ++next_memory_id;
	if (!md_interval_add(&live, memory->address, memory->size, (uint64_t)(uintptr_t)memory))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

struct hc_memory *hc_memory_at(uint64_t address)
{
	const struct md_interval *found = md_interval_find(&live, address);
	return found ? (struct hc_memory *)(uintptr_t)found->value : NULL;
}

struct hc_memory *hc_memory_opened(uint64_t inode, const struct hc_context *context)
{
	for (size_t i = 0; i < live.count; i++) {
		struct hc_memory *memory = (struct hc_memory *)(uintptr_t)live.items[i].value;
		if (memory->opened.inode == inode && memory->context == context)
			return memory;
	}
	return NULL;
}

struct hc_memory *hc_memory_mapping(const struct hc_physical *physical, const struct hc_memory *after)
{
	const struct md_interval *next = after ? md_interval_after(&live, after->address) : live.items;
	for (; next && next < live.items + live.count; next++) {
		struct hc_memory *memory = (struct hc_memory *)(uintptr_t)next->value;
		if (memory->kind == HC_MEMORY_MAPPED && (!physical || memory->physical == physical))
			return memory;
	}
	return NULL;
}

bool hc_memory_any(enum hc_memory_kind kind)
{
	for (size_t i = 0; i < live.count; i++)
		if (((const struct hc_memory *)(uintptr_t)live.items[i].value)->kind == kind)
			return true;
	return false;
}

void hc_memory_forget(struct hc_memory *memory)
{
	HC_STATE_GUARD();
	md_interval_remove(&live, memory->address);
	free(memory);
}

/* As on a real device, adjacent mappings count as one range, and adjacent allocations do not. */
bool hc_memory_covers(uint64_t address, size_t bytes)
{
	HC_STATE_GUARD();
	const struct hc_memory *memory, *first = hc_memory_at(address);
	if (bytes > UINT64_MAX - address)
		return false;
	for (uint64_t end = address + bytes; address < end;) {
		memory = hc_memory_at(address);
		if (!memory ||
		    (memory != first && (memory->kind != HC_MEMORY_MAPPED || first->kind != HC_MEMORY_MAPPED)))
			return false;
		address = memory->address + memory->size;
	}
	return true;
}

bool hc_memory_is_pinned(uint64_t address)
{
	HC_STATE_GUARD();
	return hc_memory_at(address) != NULL;
}

/* Allocates size bytes of the current device (charged in whole pages), readable and writable, filled with zeros. */
static CUresult device_memory_make(size_t size, enum hc_memory_kind kind, struct hc_memory **made)
{
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	struct hc_context *context = hc_context_home();
	if (size > context->device->capacity)
		return CUDA_ERROR_OUT_OF_MEMORY;
	HC_STATE_GUARD();
	size_t charged = round_up(size, PAGE);
	HC_TRY(hc_device_charge(context->device, charged));
	struct hc_memory *memory = calloc(1, sizeof(*memory));
	bool large = size >= LARGE;
	/* An inaccessible page follows a small allocation; large ones may be adjacent. */
	size_t extent = large ? round_up(size, HC_GRANULARITY) : charged + PAGE;
	CUresult result = memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		result = hc_space_take(&memory->address, extent, large ? HC_GRANULARITY : PAGE, 0);
	if (result == CUDA_SUCCESS) {
		memory->kind = kind;
		memory->size = size;
		memory->extent = extent;
		memory->charged = charged;
		memory->context = context;
		memory->device = context->device;
		bool mapped = !mprotect((void *)memory->address, charged, PROT_READ | PROT_WRITE);
		if (large) /* most of it is touched: a fault for each small page takes longer than all that engines do */
			madvise((void *)memory->address, charged, MADV_HUGEPAGE);
		result = mapped ? hc_memory_add(memory) : CUDA_ERROR_OUT_OF_MEMORY;
		if (result != CUDA_SUCCESS)
			hc_space_give(memory->address, extent);
	}
	if (result != CUDA_SUCCESS) {
		hc_device_credit(context->device, charged);
		free(memory);
		return result;
	}
	*made = memory;
	return CUDA_SUCCESS;
}

void hc_memory_release(struct hc_memory *memory)
{
	if (memory->kind == HC_MEMORY_HOST) {
		munmap((void *)memory->address, memory->extent);
	} else if (memory->kind != HC_MEMORY_REGISTERED && memory->kind != HC_MEMORY_GLOBAL) {
		hc_space_give(memory->address, memory->extent);
		hc_device_credit(memory->device, memory->charged);
	}
	if (memory->shared_fd)
		close(memory->shared_fd);
	hc_memory_forget(memory);
}

void hc_memory_drop_context(struct hc_context *context)
{
	HC_STATE_GUARD();
	for (size_t i = live.count; i-- > 0;) {
		struct hc_memory *memory = (struct hc_memory *)(uintptr_t)live.items[i].value;
		if (memory->context == context && memory->kind != HC_MEMORY_MAPPED)
			hc_memory_release(memory);
	}
}

CUresult hc_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	HC_STATE_GUARD();
	const struct hc_device *device = hc_context_current()->device;
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*free_bytes = device->capacity - device->used - hc_shared_others(device);
	*total = device->capacity;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct hc_memory *memory;
	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(device_memory_make(bytesize, HC_MEMORY_DEVICE, &memory));
	*dptr = memory->address;
	return CUDA_SUCCESS;
}

/* HOSTCUDA_NESTED=1: like a driver that calls itself through an exported name, which a preloaded library may define. */
static CUresult allocate_nested(CUdeviceptr *dptr, size_t bytes)
{
	__typeof__(hc_cuMemAlloc_v2) *exported = NULL;
	if (md_setting_is_on("HOSTCUDA_NESTED", false, false, "the device does not call itself"))
		exported = (__typeof__(exported))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	return exported ? exported(dptr, bytes) : hc_cuMemAlloc_v2(dptr, bytes);
}

CUresult hc_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			       unsigned int ElementSizeBytes)
{
	if (!dptr || !pPitch || !WidthInBytes || !Height ||
	    (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	size_t bytes;
	if (WidthInBytes > SIZE_MAX / 2 || __builtin_mul_overflow(round_up(WidthInBytes, 512), Height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	HC_TRY(allocate_nested(dptr, bytes));
	*pPitch = round_up(WidthInBytes, 512);
	return CUDA_SUCCESS;
}

CUresult hc_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct hc_memory *memory;
	if (!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(device_memory_make(bytesize, HC_MEMORY_MANAGED, &memory));
	*dptr = memory->address;
	return CUDA_SUCCESS;
}

static struct hc_memory *freeable_at(uint64_t address) HC_STATE_HELD
{
	struct hc_memory *memory = hc_memory_at(address);
	bool good = memory && memory->address == address && !memory->of_graph &&
		    (memory->kind == HC_MEMORY_DEVICE || memory->kind == HC_MEMORY_MANAGED ||
		     (memory->kind == HC_MEMORY_IMPORTED && memory->pool));
	return good ? memory : NULL;
}

static CUresult free_now(uint64_t address)
{
	HC_STATE_GUARD();
	struct hc_memory *memory = freeable_at(address);
	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	hc_memory_release(memory);
	return CUDA_SUCCESS;
}

/* Waits for the work that may use the memory, as the driver does. */
CUresult hc_cuMemFree_v2(CUdeviceptr dptr)
{
	if (!dptr)
		return CUDA_SUCCESS;
	hc_state_lock();
	struct hc_memory *memory = freeable_at(dptr);
	struct hc_context *context = memory ? memory->context : NULL;
	hc_state_unlock();
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult sticky = hc_context_drain(context);
	CUresult result = free_now(dptr);
	return result == CUDA_SUCCESS ? sticky : result;
}

/* ---- stream-ordered
 * --------------------------------------------------------------------------------------------------- */
CUresult hc_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	if (!pool_out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*pool_out = (CUmemoryPool)&hc_devices[dev].default_pool;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	if (!pool || !poolProps || !hc_device_at(poolProps->location.id) ||
	    (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
	     poolProps->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA))
		return CUDA_ERROR_INVALID_VALUE;
	struct hc_pool *made = calloc(1, sizeof(*made));
	if (!made || !hc_handle_add(made, HC_POOL)) {
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	made->device = poolProps->location.id;
	made->on_host = poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	made->exportable = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	*pool = (CUmemoryPool)made;
	return CUDA_SUCCESS;
}

CUresult hc_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	struct hc_pool *wanted = hc_handle_kind(pool) == HC_POOL ? (struct hc_pool *)pool : NULL;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!wanted || wanted->imported || wanted->device != dev)
		return CUDA_ERROR_INVALID_VALUE;
	HC_STATE_GUARD();
	hc_devices[dev].pool = wanted;
	return CUDA_SUCCESS;
}

CUresult hc_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	HC_STATE_GUARD();
	*pool = (CUmemoryPool)(hc_devices[dev].pool ? hc_devices[dev].pool : &hc_devices[dev].default_pool);
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolDestroy(CUmemoryPool pool)
{
	if (hc_handle_kind(pool) != HC_POOL)
		return CUDA_ERROR_INVALID_VALUE;
	HC_STATE_GUARD();
	for (int i = 0; i < hc_device_count; i++) {
		if ((struct hc_pool *)pool == &hc_devices[i].default_pool)
			return CUDA_ERROR_INVALID_VALUE;
		if ((struct hc_pool *)pool == hc_devices[i].pool)
			hc_devices[i].pool = NULL;
	}
	hc_handle_remove(pool);
	free(pool);
	return CUDA_SUCCESS;
}

static struct hc_pool *any_pool(CUmemoryPool handle)
{
	for (int i = 0; i < hc_device_count; i++)
		if ((struct hc_pool *)handle == &hc_devices[i].default_pool)
			return &hc_devices[i].default_pool;
	return hc_handle_kind(handle) == HC_POOL ? (struct hc_pool *)handle : NULL;
}

/* Pools keep nothing that was freed: only the threshold is remembered, and what is used is not counted. */
CUresult hc_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct hc_pool *wanted = any_pool(pool);
	if (!wanted || !value)
		return CUDA_ERROR_INVALID_VALUE;
	HC_STATE_GUARD();
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		wanted->threshold = *(cuuint64_t *)value;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct hc_pool *wanted = any_pool(pool);
	if (!wanted || !value)
		return CUDA_ERROR_INVALID_VALUE;
	HC_STATE_GUARD();
	if (attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		*(int *)value = 1;
	else
		*(cuuint64_t *)value = attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? wanted->threshold : 0;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	(void)minBytesToKeep;
	return any_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	return any_pool(pool) && map && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* In a capture this becomes a node; its memory exists at once, until the context is destroyed. */
static CUresult capture_alloc(struct hc_stream *stream, size_t bytesize, CUdeviceptr *dptr)
{
	struct hc_node *node;
	uint64_t address;
	HC_STATE_GUARD();
	HC_TRY(hc_memory_of_graph(stream->context, bytesize, &address));
	HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node));
	node->address = address;
	HC_TRY(hc_capture_append(stream, node, false));
	*dptr = address;
	return CUDA_SUCCESS;
}

static CUresult capture_free(struct hc_stream *stream, CUdeviceptr dptr) HC_STATE_HELD
{
	struct hc_node *node;
	HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_MEM_FREE, &node));
	node->address = dptr;
	return hc_capture_append(stream, node, false);
}

CUresult hc_memory_of_graph(struct hc_context *context, size_t size, uint64_t *address)
{
	struct hc_memory *memory;
	if (context != hc_context_home())
		return CUDA_ERROR_INVALID_CONTEXT;
	HC_TRY(device_memory_make(size, HC_MEMORY_DEVICE, &memory));
	memory->of_graph = true;
	*address = memory->address;
	return CUDA_SUCCESS;
}

static bool is_of_graph(CUdeviceptr dptr)
{
	HC_STATE_GUARD();
	const struct hc_memory *memory = hc_memory_at(dptr);
	return memory && memory->address == dptr && memory->of_graph;
}

/* The memory exists at once; only frees are ordered with the stream. */
static CUresult alloc_ordered(CUdeviceptr *dptr, size_t bytesize, struct hc_pool *pool, CUstream hStream)
{
	struct hc_stream *stream;
	CUresult result;
	HC_STATE_GUARD();
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (hc_capture_active(stream, &result))
		return result == CUDA_SUCCESS ? capture_alloc(stream, bytesize, dptr) : result;
	struct hc_memory *memory;
	HC_TRY(device_memory_make(bytesize, HC_MEMORY_DEVICE, &memory));
	memory->pool = pool;
	*dptr = memory->address;
	return CUDA_SUCCESS;
}

static struct hc_pool *pool_of(struct hc_device *device)
{
	HC_STATE_GUARD();
	return device->pool ? device->pool : &device->default_pool;
}

CUresult hc_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return dptr ? alloc_ordered(dptr, bytesize, pool_of(hc_context_current()->device), hStream)
		    : CUDA_ERROR_INVALID_VALUE;
}

CUresult hc_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	if (!dptr || hc_handle_kind(pool) != HC_POOL || ((struct hc_pool *)pool)->imported)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc_ordered(dptr, bytesize, (struct hc_pool *)pool, hStream);
}

static CUresult run_free(struct hc_op *op)
{
	return free_now(op->address);
}

CUresult hc_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct hc_stream *stream;
	CUresult result;
	HC_STATE_GUARD();
	HC_TRY(hc_stream_resolve(hStream, &stream));
	bool good = freeable_at(dptr) != NULL;
	if (is_of_graph(dptr)) {
		if (!hc_capture_active(stream, &result))
			return CUDA_SUCCESS;
		return result == CUDA_SUCCESS ? capture_free(stream, dptr) : result;
	}
	if (!good)
		return CUDA_ERROR_INVALID_VALUE;
	if (hc_capture_active(stream, &result)) { /* only memory of an allocation node can be freed by a node */
		if (!stream->capture)
			return result;
		hc_capture_invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	struct hc_op *op = hc_op_new(run_free, NULL);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->address = dptr;
	op->always = true;
	return hc_op_submit(stream, op);
}
