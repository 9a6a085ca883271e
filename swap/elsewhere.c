/* SPDX-License-Identifier: Apache-2.0 */
/* Lists host memory that the engine has locked, and tells other memory that stays from memory that goes. */
#include "swap/elsewhere.h"

#include "base/interval.h"
#include "swap/layer.h"
#include "swap/memory_managed.h"
#include "swap/reach.h"

static struct md_interval_index locked MD_GUARDED_BY(md_swap_memory_lock);

static bool meets(uint64_t start, uint64_t end, uint64_t address, uint64_t bytes)
{
	return address < end && start < address + bytes;
}

/* A physical memory with several mappings is in the list of what goes by one of them. */
static bool stays(const struct md_swap_physical *physical)
{
	return physical->resident || !physical->mappings || physical->mappings->next ||
	       physical->mappings->bytes != physical->bytes;
}

bool md_swap_elsewhere(uint64_t start, uint64_t end)
{
	const struct md_interval *here = md_interval_find(&locked, start);
	const struct md_interval *next = here ? here : md_interval_after(&locked, start);
	if (next && meets(start, end, next->start, next->size))
		return true;
	for (const struct md_swap_managed *at = md_swap_all_managed; at; at = at->next)
		if (meets(start, end, at->address, at->bytes))
			return true;
	for (const struct md_swap_physical *at = md_swap_physicals; at; at = at->next)
		for (const struct md_swap_mapping *m = stays(at) ? at->mappings : NULL; m; m = m->next)
			if (meets(start, end, m->address, m->bytes))
				return true;
	return false;
}

void md_swap_elsewhere_regions(struct md_swap_leads *leads)
{
	for (size_t i = 0; i < locked.count; i++)
		md_swap_leads_add_region(leads, locked.items[i].start, locked.items[i].size);
	for (const struct md_swap_managed *at = md_swap_all_managed; at; at = at->next)
		md_swap_leads_add_region(leads, at->address, at->bytes);
	for (const struct md_swap_physical *at = md_swap_physicals; at; at = at->next)
		for (const struct md_swap_mapping *m = at->mappings; m; m = m->next)
			md_swap_leads_add_region(leads, m->address, m->bytes);
}

/* ---- host memory comes and goes ---- */

static CUresult came(CUresult result, void *at, size_t bytes)
{
	uint64_t address = (uint64_t)(uintptr_t)at;
	CUdeviceptr seen = address;
	if (result != CUDA_SUCCESS)
		return result;
	if (md_swap_real.cuMemHostGetDevicePointer_v2 &&
	    md_swap_real.cuMemHostGetDevicePointer_v2(&seen, at, 0) != CUDA_SUCCESS)
		seen = address;
	pthread_mutex_lock(&md_swap_memory_lock);
	md_interval_add(&locked, address, bytes, 0);
	if (seen != address)
		md_interval_add(&locked, seen, bytes, address);
	pthread_mutex_unlock(&md_swap_memory_lock);
	md_swap_reach_came(seen, bytes);
	if (seen != address)
		md_swap_reach_came(address, bytes);
	return CUDA_SUCCESS;
}

static CUresult went(CUresult result, void *at)
{
	uint64_t address = (uint64_t)(uintptr_t)at;
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	md_interval_remove(&locked, address);
	for (size_t i = locked.count; i-- > 0;)
		if (locked.items[i].value == address && address)
			md_interval_remove(&locked, locked.items[i].start);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	CUresult result = md_swap_real.cuMemHostAlloc(pp, bytesize, Flags);
	return came(result, result == CUDA_SUCCESS ? *pp : NULL, bytesize);
}

CUresult md_swap_own_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	CUresult result = md_swap_real.cuMemAllocHost_v2(pp, bytesize);
	return came(result, result == CUDA_SUCCESS ? *pp : NULL, bytesize);
}

CUresult md_swap_own_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	return came(md_swap_real.cuMemHostRegister_v2(p, bytesize, Flags), p, bytesize);
}

CUresult md_swap_own_cuMemFreeHost(void *p)
{
	return went(md_swap_real.cuMemFreeHost(p), p);
}

CUresult md_swap_own_cuMemHostUnregister(void *p)
{
	return went(md_swap_real.cuMemHostUnregister(p), p);
}

/* ---- memory that is read without an address ---- */

CUresult md_swap_own_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
				       const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	md_swap_reach_hide();
	return md_swap_real.cuTexObjectCreate(pTexObject, pResDesc, pTexDesc, pResViewDesc);
}

CUresult md_swap_own_cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	md_swap_reach_hide();
	return md_swap_real.cuSurfObjectCreate(pSurfObject, pResDesc);
}

/* An engine that sets how much memory kernels may allocate has kernels that allocate, and that memory cannot be searched. */
CUresult md_swap_own_cuCtxSetLimit(CUlimit limit, size_t value)
{
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
		md_swap_reach_hide();
	return md_swap_real.cuCtxSetLimit(limit, value);
}
