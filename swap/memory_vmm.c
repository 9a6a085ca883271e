/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's own virtual memory management. The engine holds a name for its physical memory instead of the driver's
 * handle, because the memory that comes back has another handle; its reservations are the driver's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "swap/arrival.h"
#include "swap/layer.h"
#include "swap/physical.h"
#include "swap/reach.h"
#include "swap/sharing.h"

/* High bits of our names, which no address and no handle of the driver has. */
#define NAME_BITS 0x5357000000000000u
#define NAME_MASK 0xffff000000000000u

static struct md_map named MD_GUARDED_BY(md_swap_memory_lock); /* name -> struct md_swap_physical * */
static uint64_t last_name MD_GUARDED_BY(md_swap_memory_lock);

static bool is_name(CUmemGenericAllocationHandle handle)
{
	return (handle & NAME_MASK) == NAME_BITS;
}

static struct md_swap_physical *find_named(CUmemGenericAllocationHandle name) MD_REQUIRES(md_swap_memory_lock)
{
	uint64_t found = 0;
	return is_name(name) && md_map_get(&named, name, &found) ? (struct md_swap_physical *)(uintptr_t)found : NULL;
}

/* The driver's handle for a handle or name that the engine holds; false if it is a name of ours without memory. */
static bool translate(CUmemGenericAllocationHandle *handle, const char *now_resident)
{
	bool known = true;
	if (!is_name(*handle))
		return true;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_physical *physical = find_named(*handle);
	known = physical != NULL;
	if (known) {
		*handle = physical->handle;
		if (now_resident)
			physical->resident = now_resident;
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return known;
}

static bool give_name(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	if (!physical->name)
		physical->name = NAME_BITS | ++last_name;
	return md_map_put(&named, physical->name, (uint64_t)(uintptr_t)physical);
}

/* ---- handles ---- */

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
		       unsigned long long flags) MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *physical;
	CUresult result = md_swap_physical_create(size, prop, flags, &physical);
	if (result != CUDA_SUCCESS)
		return result;
	if (!give_name(physical)) {
		md_swap_physical_drop(physical);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = physical->name;
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
				 unsigned long long flags)
{
	if (!handle || !prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return md_swap_real.cuMemCreate(handle, size, prop, flags);
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = create(handle, size, prop, flags);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	if (!is_name(handle))
		return md_swap_real.cuMemRelease(handle);
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_physical *physical = find_named(handle);
	if (physical) {
		if (physical->holds == 1)
			md_map_remove(&named, handle, NULL);
		result = md_swap_physical_drop(physical);
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

static CUresult retain(const struct md_swap_mapping *mapping, CUmemGenericAllocationHandle *handle)
    MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *physical = mapping->physical;
	if (md_swap_is_piece(physical))
		return CUDA_ERROR_INVALID_VALUE;
	if (!give_name(physical))
		return CUDA_ERROR_OUT_OF_MEMORY;
	physical->holds++;
	*handle = physical->name;
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct md_swap_mapping *mapping = md_swap_mapping_at((CUdeviceptr)(uintptr_t)addr);
	if (handle && mapping)
		result = retain(mapping, handle);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return mapping ? result : md_swap_real.cuMemRetainAllocationHandle(handle, addr);
}

CUresult md_swap_own_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							    CUmemGenericAllocationHandle handle)
{
	return translate(&handle, NULL) ? md_swap_real.cuMemGetAllocationPropertiesFromHandle(prop, handle)
					: CUDA_ERROR_INVALID_VALUE;
}

/* ---- mappings ---- */

/* Waits for the memory by each of its addresses. */
static CUresult settle_physical(const struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	CUresult result = CUDA_SUCCESS;
	for (const struct md_swap_mapping *at = physical->mappings; at && result == CUDA_SUCCESS; at = at->next)
		result = md_swap_arrival_settle(at->address, at->bytes);
	return result;
}

/*
 * From now on an address may lead from this mapping into those before and behind it without a gap; they did not count as
 * one when memory was searched (reach.c).
 */
static CUresult settle_beside(CUdeviceptr ptr, size_t size) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_swap_mapping *at;
	CUresult result = CUDA_SUCCESS;
	if (!atomic_load(&md_swap_arriving))
		return CUDA_SUCCESS;
	for (CUdeviceptr end = ptr + size; result == CUDA_SUCCESS && (at = md_swap_mapping_at(end)) != NULL;
	     end = at->address + at->bytes)
		result = settle_physical(at->physical);
	for (CUdeviceptr start = ptr; result == CUDA_SUCCESS && (at = md_swap_mapping_at(start - 1)) != NULL;
	     start = at->address)
		result = settle_physical(at->physical);
	return result;
}

static CUresult map_foreign(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			    unsigned long long flags)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = settle_beside(ptr, size);
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemMap(ptr, size, offset, handle, flags);
	if (result == CUDA_SUCCESS)
		md_swap_reach_came(ptr, size);
	return result;
}

CUresult md_swap_own_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			      unsigned long long flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	if (!is_name(handle))
		return map_foreign(ptr, size, offset, handle, flags);
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_physical *physical = find_named(handle);
	if (physical) {
		/* Addresses that were found before may lead to where it is mapped now. */
		result = settle_physical(physical);
		if (result == CUDA_SUCCESS)
			result = settle_beside(ptr, size);
		if (result == CUDA_SUCCESS)
			result = md_swap_physical_map(physical, ptr, size, offset, flags);
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

/* Whether the range holds memory that replaces allocations of the driver's, which none of these calls may touch. */
static bool has_pieces(CUdeviceptr start, size_t size) MD_REQUIRES(md_swap_memory_lock)
{
	CUdeviceptr end = size > UINT64_MAX - start ? UINT64_MAX : start + size;
	const struct md_swap_mapping *at = md_swap_mapping_next(start, end);
	while (at && !md_swap_is_piece(at->physical))
		at = at->address + at->bytes < end ? md_swap_mapping_next(at->address + at->bytes, end) : NULL;
	return at != NULL;
}

static CUresult unmap(CUdeviceptr ptr, size_t size) MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_mapping *at;
	if (has_pieces(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = md_swap_arrival_settle(ptr, size);
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemUnmap(ptr, size);
	if (result != CUDA_SUCCESS)
		return result;
	while ((at = md_swap_mapping_next(ptr, ptr + size)) != NULL)
		md_swap_mapping_forget(at);
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = unmap(ptr, size);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
    MD_REQUIRES(md_swap_memory_lock)
{
	if (has_pieces(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	/* Memory that is on its way must still be written. */
	CUresult result = md_swap_arrival_settle(ptr, size);
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemSetAccess(ptr, size, desc, count);
	CUdeviceptr end = ptr + size;
	struct md_swap_mapping *at = result == CUDA_SUCCESS ? md_swap_mapping_next(ptr, end) : NULL;
	while (at && result == CUDA_SUCCESS) {
		result = md_swap_mapping_note(at, desc, count);
		at = at->address + at->bytes < end ? md_swap_mapping_next(at->address + at->bytes, end) : NULL;
	}
	return result;
}

CUresult md_swap_own_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = set_access(ptr, size, desc, count);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	CUresult result = has_pieces(ptr, size) ? CUDA_ERROR_INVALID_VALUE : md_swap_real.cuMemAddressFree(ptr, size);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

/* ---- what leaves this process, or is bound elsewhere, stays ---- */

CUresult md_swap_own_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
						  CUmemAllocationHandleType handleType, unsigned long long flags)
{
	if (md_swap_arrival_settle_all() != CUDA_SUCCESS || !translate(&handle, "exported to other processes"))
		return CUDA_ERROR_INVALID_VALUE;
	return md_swap_sharing_note(
	    md_swap_real.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags),
	    "cuMemExportToShareableHandle");
}

CUresult md_swap_own_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
					CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
					unsigned long long flags)
{
	if (md_swap_arrival_settle_all() != CUDA_SUCCESS || !translate(&memHandle, "bound to a multicast object"))
		return CUDA_ERROR_INVALID_VALUE;
	return md_swap_sharing_note(
	    md_swap_real.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags),
	    "cuMulticastBindMem");
}

static void make_resident(CUdeviceptr start, size_t size, const char *why)
{
	CUdeviceptr end = start + size;
	pthread_mutex_lock(&md_swap_memory_lock);
	struct md_swap_mapping *at = md_swap_mapping_next(start, end);
	while (at) {
		at->physical->resident = why;
		at = at->address + at->bytes < end ? md_swap_mapping_next(at->address + at->bytes, end) : NULL;
	}
	pthread_mutex_unlock(&md_swap_memory_lock);
}

/* What other engines may have, too, goes to nobody who could write to it. */
static bool is_leased(CUdeviceptr start, size_t size)
{
	CUdeviceptr end = start + size;
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct md_swap_mapping *at = md_swap_mapping_next(start, end);
	while (at && !at->physical->lease)
		at = at->address + at->bytes < end ? md_swap_mapping_next(at->address + at->bytes, end) : NULL;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return at != NULL;
}

CUresult md_swap_own_cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr,
					 size_t size, unsigned long long flags)
{
	md_swap_arrival_settle_all();
	if (is_leased(memptr, size))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = md_swap_real.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
	if (result == CUDA_SUCCESS)
		make_resident(memptr, size, "bound to a multicast object");
	return md_swap_sharing_note(result, "cuMulticastBindAddr");
}

CUresult md_swap_own_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
						   CUmemRangeHandleType handleType, unsigned long long flags)
{
	md_swap_arrival_settle_all();
	if (is_leased(dptr, size))
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = md_swap_real.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
	if (result == CUDA_SUCCESS)
		make_resident(dptr, size, "exported as a dma-buf");
	return md_swap_sharing_note(result, "cuMemGetHandleForAddressRange");
}

/* A copy of the list with the driver's handles, or NULL. */
static CUarrayMapInfo *translate_list(const CUarrayMapInfo *infos, unsigned count)
{
	CUarrayMapInfo *copy = count ? calloc(count, sizeof(*copy)) : NULL;
	if (!copy)
		return NULL;
	memcpy(copy, infos, count * sizeof(*copy));
	for (unsigned i = 0; i < count; i++)
		if (copy[i].memHandleType == CU_MEM_HANDLE_TYPE_GENERIC &&
		    !translate(&copy[i].memHandle.memHandle, "mapped into a sparse array"))
			copy[i].memHandle.memHandle = 0;
	return copy;
}

typedef CUresult CUDAAPI map_array_function(CUarrayMapInfo *, unsigned int, CUstream);

static CUresult map_array(map_array_function *real, CUarrayMapInfo *infos, unsigned count, CUstream stream)
{
	CUresult result = md_swap_arrival_settle_all();
	CUarrayMapInfo *copy = infos ? translate_list(infos, count) : NULL;
	if (result == CUDA_SUCCESS)
		result = real(copy ? copy : infos, count, stream);
	free(copy);
	return result;
}

CUresult md_swap_own_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	return map_array(md_swap_real.cuMemMapArrayAsync, mapInfoList, count, hStream);
}

CUresult md_swap_own_cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	return map_array(md_swap_real.cuMemMapArrayAsync_ptsz, mapInfoList, count, hStream);
}
