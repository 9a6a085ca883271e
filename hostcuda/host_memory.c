/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned and registered host memory, and attributes of pointers. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hostcuda/address_space.h"
#include "hostcuda/context.h"
#include "hostcuda/device_state.h"
#include "hostcuda/memory.h"

#define PAGE ((size_t)4096)

/* Write-combined memory has another address on the device: the same pages are mapped there, too. */
static CUresult see_elsewhere(struct hc_memory *host) HC_STATE_HELD
{
	struct hc_memory *seen = calloc(1, sizeof(*seen));
	if (!seen)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*seen = *host;
	seen->kind = HC_MEMORY_SEEN;
	seen->other = host->address;
	CUresult result = hc_space_take(&seen->address, host->extent, PAGE, 0);
	if (result == CUDA_SUCCESS) {
		void *got = mremap((void *)host->address, 0, host->extent, MREMAP_MAYMOVE | MREMAP_FIXED,
				   (void *)seen->address);
		result = got == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : hc_memory_add(seen);
		if (result != CUDA_SUCCESS)
			hc_space_give(seen->address, seen->extent);
	}
	if (result != CUDA_SUCCESS)
		free(seen);
	else
		host->other = seen->address;
	return result;
}

CUresult hc_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	if (!pp || !bytesize || Flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytesize > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct hc_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t extent = (bytesize + PAGE - 1) & ~(PAGE - 1);
	bool elsewhere = Flags & CU_MEMHOSTALLOC_WRITECOMBINED;
	void *address =
	    mmap(NULL, extent, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | (elsewhere ? MAP_SHARED : MAP_PRIVATE), -1, 0);
	*memory = (struct hc_memory){.kind = HC_MEMORY_HOST,
				     .address = (uint64_t)(uintptr_t)address,
				     .size = bytesize,
				     .extent = extent,
				     .context = hc_context_home(),
				     .device = hc_context_current()->device,
				     .flags = Flags};
	HC_STATE_GUARD();
	if (address == MAP_FAILED || hc_memory_add(memory) != CUDA_SUCCESS) {
		if (address != MAP_FAILED)
			munmap(address, extent);
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (elsewhere && see_elsewhere(memory) != CUDA_SUCCESS) {
		hc_memory_release(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pp = address;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return hc_cuMemHostAlloc(pp, bytesize, 0);
}

static struct hc_memory *host_memory_at(const void *p, enum hc_memory_kind kind) HC_STATE_HELD
{
	struct hc_memory *memory = hc_memory_at((uint64_t)(uintptr_t)p);
	return memory && memory->kind == kind && memory->address == (uint64_t)(uintptr_t)p ? memory : NULL;
}

CUresult hc_cuMemFreeHost(void *p)
{
	hc_state_lock();
	struct hc_memory *memory = host_memory_at(p, HC_MEMORY_HOST);
	struct hc_context *context = memory ? memory->context : NULL;
	hc_state_unlock();
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult sticky = hc_context_drain(context);
	HC_STATE_GUARD();
	memory = host_memory_at(p, HC_MEMORY_HOST);
	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	if (memory->other)
		hc_memory_release(hc_memory_at(memory->other));
	hc_memory_release(memory);
	return sticky;
}

CUresult hc_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	HC_STATE_GUARD();
	uint64_t address = (uint64_t)(uintptr_t)p;
	if (!p || !bytesize || bytesize > UINT64_MAX - address)
		return CUDA_ERROR_INVALID_VALUE;
	if (hc_memory_at(address) || hc_memory_at(address + bytesize - 1))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	struct hc_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*memory = (struct hc_memory){.kind = HC_MEMORY_REGISTERED,
				     .address = address,
				     .size = bytesize,
				     .extent = bytesize,
				     .context = hc_context_home(),
				     .device = hc_context_current()->device,
				     .flags = Flags};
	CUresult result = hc_memory_add(memory);
	if (result != CUDA_SUCCESS)
		free(memory);
	return result;
}

CUresult hc_cuMemHostUnregister(void *p)
{
	hc_state_lock();
	struct hc_memory *memory = host_memory_at(p, HC_MEMORY_REGISTERED);
	struct hc_context *context = memory ? memory->context : NULL;
	hc_state_unlock();
	if (!context)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	CUresult sticky = hc_context_drain(context);
	HC_STATE_GUARD();
	memory = host_memory_at(p, HC_MEMORY_REGISTERED);
	if (!memory)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	hc_memory_forget(memory);
	return sticky;
}

CUresult hc_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	HC_STATE_GUARD();
	struct hc_memory *memory = hc_memory_at((uint64_t)(uintptr_t)p);
	bool host = memory && (memory->kind == HC_MEMORY_HOST || memory->kind == HC_MEMORY_REGISTERED);
	if (!pdptr || Flags || !host)
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (CUdeviceptr)(uintptr_t)p + (memory->other ? memory->other - memory->address : 0);
	return CUDA_SUCCESS;
}

CUresult hc_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	HC_STATE_GUARD();
	struct hc_memory *memory = hc_memory_at(dptr);
	if (!memory)
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = memory->address;
	if (psize)
		*psize = memory->size;
	return CUDA_SUCCESS;
}

CUresult hc_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	HC_STATE_GUARD();
	const struct hc_memory *memory = hc_memory_at(ptr);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
		*(int *)data = memory != NULL;
		return CUDA_SUCCESS;
	}
	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	bool seen = memory->kind == HC_MEMORY_SEEN;
	bool host = seen || memory->kind == HC_MEMORY_HOST || memory->kind == HC_MEMORY_REGISTERED;
	uint64_t there = memory->other ? memory->other - memory->address : 0; /* the other of the two addresses */
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = (CUcontext)memory->context;
		return memory->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data =
		    host || (memory->pool && memory->pool->on_host) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = seen ? ptr : ptr + there;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && memory->kind != HC_MEMORY_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)(seen ? ptr + there : ptr);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = memory->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = memory->kind == HC_MEMORY_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = memory->device->ordinal;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = memory->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = memory->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = (CUmemoryPool)memory->pool;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* An attribute that does not apply to this memory is 0, and no error. */
CUresult hc_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
				   CUdeviceptr ptr)
{
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < numAttributes; i++) {
		bool number = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
			      attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
			      attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
			      attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED;
		if (hc_cuPointerGetAttribute(data[i], attributes[i], ptr) != CUDA_SUCCESS && data[i])
			memset(data[i], 0, number ? sizeof(int) : sizeof(void *));
	}
	return CUDA_SUCCESS;
}
