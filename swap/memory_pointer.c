/* SPDX-License-Identifier: Apache-2.0 */
/* Answers questions of the engine about its memory, for our allocations as the driver answers for its own. */
#include "swap/contexts.h"
#include "swap/layer.h"
#include "swap/memory_ordered.h"
#include "swap/memory_own.h"

static bool find(CUdeviceptr address, struct md_swap_allocation *found)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	bool ours = md_swap_own_find(address, found);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return ours;
}

/* Memory of ours that holds no allocation. */
static bool is_in_piece(CUdeviceptr address)
{
	pthread_mutex_lock(&md_swap_memory_lock);
	const struct md_swap_mapping *mapping = md_swap_mapping_at(address);
	bool in = mapping && md_swap_is_piece(mapping->physical);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return in;
}

CUresult md_swap_own_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct md_swap_allocation found;
	if (!find(dptr, &found))
		return is_in_piece(dptr) ? CUDA_ERROR_NOT_FOUND
					 : md_swap_real.cuMemGetAddressRange_v2(pbase, psize, dptr);
	if (pbase)
		*pbase = found.address;
	if (psize)
		*psize = found.bytes;
	return CUDA_SUCCESS;
}

/* Attributes whose value for mapped memory differs from that for an allocation of the driver's. */
static bool answer(void *data, CUpointer_attribute attribute, const struct md_swap_allocation *found)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = found->context;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = found->address;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = found->bytes;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		pthread_mutex_lock(&md_swap_memory_lock);
		*(CUmemoryPool *)data = md_swap_ordered_pool(found->address);
		pthread_mutex_unlock(&md_swap_memory_lock);
		return true;
	default:
		return false;
	}
}

static bool is_ours_to_answer(CUpointer_attribute attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_CONTEXT || attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
	       attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE || attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
}

CUresult md_swap_own_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct md_swap_allocation found;
	if (data && is_ours_to_answer(attribute) && find(ptr, &found) && answer(data, attribute, &found))
		return CUDA_SUCCESS;
	return md_swap_real.cuPointerGetAttribute(data, attribute, ptr);
}

CUresult md_swap_own_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
					    CUdeviceptr ptr)
{
	struct md_swap_allocation found;
	CUresult result = md_swap_real.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
	if (result != CUDA_SUCCESS || !find(ptr, &found))
		return result;
	for (unsigned i = 0; i < numAttributes; i++)
		if (data[i])
			answer(data[i], attributes[i], &found);
	return CUDA_SUCCESS;
}

CUresult md_swap_own_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUcontext context;
	CUdevice device;
	CUresult result = md_swap_real.cuMemGetInfo_v2(free, total);
	if (result != CUDA_SUCCESS || md_swap_context_current(&context, &device) != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	*free += md_swap_own_kept(device) + md_swap_ordered_kept(device);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return CUDA_SUCCESS;
}
