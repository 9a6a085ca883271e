/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks that answer for placed memory as the driver would if it had allocated it. */
#include "capture/hooks/hook.h"
#include "capture/place/place.h"

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
