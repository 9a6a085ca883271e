/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of memory that may be placed: allocating, freeing and
 * asking about it look as if the driver had served the call.
 */
#include "capture/hooks/hook.h"
#include "capture/place/place.h"
#include "capture/record/allocs.h"

/* ---- taking ---- */

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
	CUresult result;
	md_capture_context_seen();
	if (md_capture_place_alloc(MD_ALLOC_DEVICE, bytes, address))
		return CUDA_SUCCESS;
	md_capture_shift_before_alloc(bytes);
	result = MD_REAL(cuMemAlloc_v2, (address, bytes));
	if (result)
		md_capture_place_failed(MD_ALLOC_DEVICE, bytes);
	return result;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	CUresult result;
	if (!md_capture_enter())
		return MD_REAL(cuMemAlloc_v2, (address, bytes));
	result = allocate(address, bytes);
	if (result == CUDA_SUCCESS)
		md_capture_alloc_note(MD_ALLOC_DEVICE, *address, bytes);
	md_capture_leave();
	return result;
}

/* Only the driver knows the pitch. */
CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
				    unsigned int element)
{
	CUdeviceptr placed;
	CUresult result;
	if (!md_capture_enter())
		return MD_REAL(cuMemAllocPitch_v2, (address, pitch, width, height, element));
	md_capture_context_seen();
	md_capture_shift_before_alloc(width * height);
	result = MD_REAL(cuMemAllocPitch_v2, (address, pitch, width, height, element));
	if (result == CUDA_SUCCESS) {
		if (md_capture_place_alloc(MD_ALLOC_PITCH, *pitch * height, &placed)) {
			md_cuda.cuMemFree_v2(*address);
			*address = placed;
		}
		md_capture_alloc_note(MD_ALLOC_PITCH, *address, *pitch * height);
	}
	md_capture_leave();
	return result;
}

/* An engine that asks for a certain address gets it from the driver. */
CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
				     unsigned long long flags)
{
	CUresult result = CUDA_SUCCESS;
	if (!md_capture_enter())
		return MD_REAL(cuMemAddressReserve, (address, bytes, alignment, wanted, flags));
	md_capture_context_seen();
	if (wanted || flags || !md_capture_place_reserve(bytes, alignment, address)) {
		md_capture_shift_before_reserve();
		result = MD_REAL(cuMemAddressReserve, (address, bytes, alignment, wanted, flags));
		if (result && !wanted && !flags)
			md_capture_place_failed(MD_ORDER_RESERVATION, bytes);
	}
	if (result == CUDA_SUCCESS && !wanted && !flags)
		md_capture_reserve_note(*address, bytes);
	md_capture_leave();
	return result;
}

/* ---- giving back: what was placed stays so when recording has ended ---- */

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address)
{
	bool recording = md_capture_enter();
	CUresult result;
	if (recording)
		md_capture_free_note(address);
	if (!md_capture_place_free(address, &result))
		result = MD_REAL(cuMemFree_v2, (address));
	if (recording)
		md_capture_leave();
	return result;
}

#define FREE_ASYNC(suffix)                                                                                             \
	CUresult CUDAAPI cuMemFreeAsync##suffix(CUdeviceptr address, CUstream stream)                                  \
	{                                                                                                              \
		bool recording = md_capture_enter();                                                                   \
		CUresult result;                                                                                       \
		if (recording)                                                                                         \
			md_capture_free_note(address);                                                                 \
		if (!md_capture_place_free_on(address, stream, &result))                                               \
			result = MD_REAL(cuMemFreeAsync##suffix, (address, stream));                                   \
		if (recording)                                                                                         \
			md_capture_leave();                                                                            \
		return result;                                                                                         \
	}
FREE_ASYNC()
FREE_ASYNC(_ptsz)

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	bool recording = md_capture_enter();
	CUresult result = CUDA_SUCCESS; /* the range is ours, and stays */
	if (recording)
		md_capture_unreserve_note(address, bytes);
	if (!md_capture_place_holds(address, bytes))
		result = MD_REAL(cuMemAddressFree, (address, bytes));
	if (recording)
		md_capture_leave();
	return result;
}

/* ---- asking ---- */

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct md_placed placed;
	if (!md_capture_place_find(address, &placed))
		return MD_REAL(cuMemGetAddressRange_v2, (base, bytes, address));
	if (base)
		*base = placed.address;
	if (bytes)
		*bytes = placed.size;
	return CUDA_SUCCESS;
}

/* True: answered as for an allocation, because the driver would describe the mapping behind it. */
static bool answer(const struct md_placed *placed, CUpointer_attribute attribute, void *data)
{
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = placed->context;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = placed->address;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = placed->size;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = 1;
		return true;
	default:
		return false;
	}
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct md_placed placed;
	if (data && md_capture_place_find(address, &placed) && answer(&placed, attribute, data))
		return CUDA_SUCCESS;
	return MD_REAL(cuPointerGetAttribute, (data, attribute, address));
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
					CUdeviceptr address)
{
	CUresult result = MD_REAL(cuPointerGetAttributes, (count, attributes, data, address));
	struct md_placed placed;
	if (result != CUDA_SUCCESS || !md_capture_place_find(address, &placed))
		return result;
	for (unsigned i = 0; i < count; i++)
		answer(&placed, attributes[i], data[i]);
	return result;
}

/* A driver may refuse for mappings what it accepts for allocations. Both attributes only ask for a stricter order. */
CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	CUresult result = MD_REAL(cuPointerSetAttribute, (value, attribute, address));
	struct md_placed placed;
	return result && md_capture_place_find(address, &placed) ? CUDA_SUCCESS : result;
}

/* ---- other devices ---- */

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult result = MD_REAL(cuCtxEnablePeerAccess, (peer, flags));
	if (result == CUDA_SUCCESS)
		md_capture_place_peer(peer, true);
	return result;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult result = MD_REAL(cuCtxDisablePeerAccess, (peer));
	if (result == CUDA_SUCCESS)
		md_capture_place_peer(peer, false);
	return result;
}
