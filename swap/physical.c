/* SPDX-License-Identifier: Apache-2.0 */
/* Physical memory and its mappings: makes the driver's calls, and keeps the list of both. */
#include "swap/physical.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/child.h"
#include "base/environment.h"
#include "base/interval.h"
#include "swap/arrival.h"
#include "swap/constant.h"
#include "swap/discard.h"
#include "swap/equal.h"
#include "swap/layer.h"
#include "swap/contents_stage.h"
#include "swap/lending.h"

pthread_mutex_t md_swap_memory_lock = PTHREAD_MUTEX_INITIALIZER;
struct md_swap_physical *md_swap_physicals;
uint64_t md_swap_physical_serial;
_Atomic(uint32_t) md_swap_read_only;

static struct md_interval_index mappings MD_GUARDED_BY(md_swap_memory_lock); /* value: struct md_swap_mapping * */

/* ---- physical memory ---- */

/* Memory that was freed while it was lent to another engine has its room for a moment longer; so has what the carrier maps. */
static CUresult create(CUmemGenericAllocationHandle *handle, uint64_t bytes, const CUmemAllocationProp *prop,
		       unsigned long long flags)
{
	CUresult result = md_swap_real.cuMemCreate(handle, bytes, prop, flags);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	bool staged = md_swap_stage_await();
	if (!md_swap_lending_await() && !staged)
		return result;
	return md_swap_real.cuMemCreate(handle, bytes, prop, flags);
}

CUresult md_swap_physical_create(uint64_t bytes, const CUmemAllocationProp *prop, unsigned long long flags,
				 struct md_swap_physical **physical)
{
	struct md_swap_physical *made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = create(&made->handle, bytes, prop, flags);
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	made->serial = ++md_swap_physical_serial;
	made->bytes = bytes;
	made->prop = *prop;
	made->holds = 1;
	made->next = md_swap_physicals;
	if (made->next)
		made->next->previous = made;
	md_swap_physicals = made;
	*physical = made;
	return CUDA_SUCCESS;
}

static void set_read_only(struct md_swap_physical *physical, bool read_only) MD_REQUIRES(md_swap_memory_lock)
{
	if (physical->read_only != read_only)
		atomic_fetch_add(&md_swap_read_only, read_only ? 1 : -1);
	physical->read_only = read_only;
}

static void end_lease(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	if (physical->lease)
		md_swap_equal_end(physical->lease);
	physical->lease = NULL;
	physical->granted = physical->alone = false;
	set_read_only(physical, false);
}

static CUresult forget(struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock)
{
	CUresult result = physical->handle ? md_swap_real.cuMemRelease(physical->handle) : CUDA_SUCCESS;
	if (physical->previous)
		physical->previous->next = physical->next;
	else
		md_swap_physicals = physical->next;
	if (physical->next)
		physical->next->previous = physical->previous;
	end_lease(physical);
	if (physical->shared_fd)
		close(physical->shared_fd - 1);
	free(physical->slab);
	free(physical);
	return result;
}

CUresult md_swap_physical_drop(struct md_swap_physical *physical)
{
	physical->holds--;
	return physical->holds || physical->mappings ? CUDA_SUCCESS : forget(physical);
}

/* ---- mappings ---- */

struct md_swap_mapping *md_swap_mapping_at(CUdeviceptr address)
{
	const struct md_interval *found = md_interval_find(&mappings, address);
	return found ? (struct md_swap_mapping *)(uintptr_t)found->value : NULL;
}

CUresult md_swap_physical_map(struct md_swap_physical *physical, CUdeviceptr address, uint64_t bytes, uint64_t offset,
			      unsigned long long flags)
{
	struct md_swap_mapping *mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = md_swap_real.cuMemMap(address, bytes, offset, physical->handle, flags);
	if (result == CUDA_SUCCESS && !md_interval_add(&mappings, address, bytes, (uint64_t)(uintptr_t)mapping)) {
		md_swap_real.cuMemUnmap(address, bytes);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(mapping);
		return result;
	}
	*mapping = (struct md_swap_mapping){
	    .address = address, .bytes = bytes, .offset = offset, .physical = physical, .next = physical->mappings};
	physical->mappings = mapping;
	md_swap_discard_forget(address, bytes);
	md_swap_constant_forget(address, bytes);
	return CUDA_SUCCESS;
}

struct md_swap_mapping *md_swap_mapping_next(CUdeviceptr address, CUdeviceptr end)
{
	struct md_swap_mapping *here = md_swap_mapping_at(address);
	const struct md_interval *after = here ? NULL : md_interval_after(&mappings, address);
	if (here || !after || after->start >= end)
		return here;
	return (struct md_swap_mapping *)(uintptr_t)after->value;
}

CUresult md_swap_mapping_forget(struct md_swap_mapping *mapping)
{
	struct md_swap_physical *physical = mapping->physical;
	for (struct md_swap_mapping **link = &physical->mappings; *link; link = &(*link)->next)
		if (*link == mapping) {
			*link = mapping->next;
			break;
		}
	md_interval_remove(&mappings, mapping->address);
	md_swap_constant_forget(mapping->address, mapping->bytes);
	free(mapping->access);
	free(mapping);
	return physical->holds || physical->mappings ? CUDA_SUCCESS : forget(physical);
}

CUresult md_swap_mapping_unmap(struct md_swap_mapping *mapping)
{
	CUresult result = md_swap_arrival_settle(mapping->address, mapping->bytes);
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemUnmap(mapping->address, mapping->bytes);
	return result == CUDA_SUCCESS ? md_swap_mapping_forget(mapping) : result;
}

static bool same_location(const CUmemLocation *one, const CUmemLocation *other)
{
	return one->type == other->type && one->id == other->id;
}

static bool note_access(struct md_swap_mapping *mapping, const CUmemAccessDesc *wanted)
{
	for (uint32_t i = 0; i < mapping->access_count; i++)
		if (same_location(&mapping->access[i].location, &wanted->location)) {
			mapping->access[i].flags = wanted->flags;
			return true;
		}
	if (!MD_ARRAY_EXTEND(mapping->access, mapping->access_count))
		return false;
	mapping->access[mapping->access_count++] = *wanted;
	return true;
}

CUresult md_swap_mapping_note(struct md_swap_mapping *mapping, const CUmemAccessDesc *access, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!note_access(mapping, &access[i]))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

/* Whoever may reach it, may read it. */
static CUresult allow_reading(const struct md_swap_mapping *mapping, const CUmemAccessDesc *access, size_t count)
{
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		CUmemAccessDesc right = access[i];
		if (right.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			right.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
		result = md_swap_real.cuMemSetAccess(mapping->address, mapping->bytes, &right, 1);
	}
	return result;
}

CUresult md_swap_mapping_allow(struct md_swap_mapping *mapping, const CUmemAccessDesc *access, size_t count)
{
	CUresult result = mapping->physical->read_only
			      ? allow_reading(mapping, access, count)
			      : md_swap_real.cuMemSetAccess(mapping->address, mapping->bytes, access, count);
	return result == CUDA_SUCCESS ? md_swap_mapping_note(mapping, access, count) : result;
}

/* ---- away and back ---- */

/* Maps the first mappings, up to `end`. */
static CUresult map_again(const struct md_swap_physical *physical, CUmemGenericAllocationHandle handle,
			  const struct md_swap_mapping *end)
{
	for (const struct md_swap_mapping *at = physical->mappings; at != end; at = at->next) {
		CUresult result = md_swap_real.cuMemMap(at->address, at->bytes, at->offset, handle, 0);
		if (result == CUDA_SUCCESS && at->access_count) {
			result = physical->read_only ? allow_reading(at, at->access, at->access_count)
						     : md_swap_real.cuMemSetAccess(at->address, at->bytes, at->access,
										   at->access_count);
			if (result != CUDA_SUCCESS)
				md_swap_real.cuMemUnmap(at->address, at->bytes);
		}
		if (result == CUDA_SUCCESS)
			continue;
		for (const struct md_swap_mapping *back = physical->mappings; back != at; back = back->next)
			md_swap_real.cuMemUnmap(back->address, back->bytes);
		return result;
	}
	return CUDA_SUCCESS;
}

CUresult md_swap_physical_out(struct md_swap_physical *physical)
{
	CUresult result = CUDA_SUCCESS;
	const struct md_swap_mapping *at = physical->mappings;
	for (; at; at = at->next) {
		result = md_swap_real.cuMemUnmap(at->address, at->bytes);
		if (result != CUDA_SUCCESS)
			break;
	}
	if (result == CUDA_SUCCESS)
		result = md_swap_real.cuMemRelease(physical->handle);
	if (result != CUDA_SUCCESS) {
		map_again(physical, physical->handle, at);
		return result;
	}
	physical->handle = 0;
	end_lease(physical);
	return CUDA_SUCCESS;
}

static CUresult put(struct md_swap_physical *physical, CUmemGenericAllocationHandle handle)
    MD_REQUIRES(md_swap_memory_lock)
{
	CUresult result = map_again(physical, handle, NULL);
	if (result == CUDA_SUCCESS)
		physical->handle = handle;
	else
		md_swap_real.cuMemRelease(handle);
	return result;
}

CUresult md_swap_physical_in(struct md_swap_physical *physical)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = create(&handle, physical->bytes, &physical->prop, 0);
	if (result != CUDA_SUCCESS)
		return result;
	return put(physical, handle);
}

CUresult md_swap_physical_in_from(struct md_swap_physical *physical, int fd, bool read_only)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = md_swap_real.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
								      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return result;
	set_read_only(physical, read_only);
	result = put(physical, handle);
	set_read_only(physical, read_only && result == CUDA_SUCCESS);
	return result;
}

CUresult md_swap_physical_replace(struct md_swap_physical *physical, CUmemGenericAllocationHandle handle)
{
	bool read_only = physical->read_only;
	CUresult result = CUDA_SUCCESS;
	const struct md_swap_mapping *at = physical->mappings;
	for (; at && result == CUDA_SUCCESS; at = at->next)
		if ((result = md_swap_real.cuMemUnmap(at->address, at->bytes)) != CUDA_SUCCESS)
			break;
	if (result == CUDA_SUCCESS) {
		set_read_only(physical, false);
		result = map_again(physical, handle, NULL);
		set_read_only(physical, read_only);
	}
	if (result != CUDA_SUCCESS) {
		map_again(physical, physical->handle, at);
		return result;
	}
	md_swap_real.cuMemRelease(physical->handle);
	physical->handle = handle;
	end_lease(physical);
	return CUDA_SUCCESS;
}

CUresult md_swap_physical_protect(struct md_swap_physical *physical)
{
	CUresult result = CUDA_SUCCESS;
	for (const struct md_swap_mapping *at = physical->mappings; at && result == CUDA_SUCCESS; at = at->next)
		result = allow_reading(at, at->access, at->access_count);
	set_read_only(physical, result == CUDA_SUCCESS);
	return result;
}

CUresult md_swap_physical_unprotect(struct md_swap_physical *physical)
{
	CUresult result = CUDA_SUCCESS;
	for (const struct md_swap_mapping *at = physical->mappings; at && result == CUDA_SUCCESS; at = at->next)
		result = md_swap_real.cuMemSetAccess(at->address, at->bytes, at->access, at->access_count);
	if (result == CUDA_SUCCESS)
		end_lease(physical);
	return result;
}

static void renew(void)
{
	pthread_mutex_init(&md_swap_memory_lock, NULL);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
