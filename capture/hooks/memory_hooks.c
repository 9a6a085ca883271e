/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of memory: allocated, mapped, shared and freed. To the engine, placed memory looks like the driver's own. */
#include "capture/hooks/hook.h"
#include "capture/place/place.h"
#include "capture/place/reserve.h"
#include "capture/record/allocs.h"
#include "capture/record/made.h"
#include "capture/record/shared.h"

/* In a hook: names what a communication library has made. */
#define MADE(address) md_capture_made(__builtin_return_address(0), address)
#define MADE_AFTER(note, address) ((note), MADE(address))
/* ... and, behind that, what other processes have, too. */
#define SHARED(address, own) md_capture_made_shared(__builtin_return_address(0), address, own)
#define SHARED_HANDLE(handle, own)                                                                                     \
	(md_capture_handle_foreign(handle, own), md_capture_handle_named(__builtin_return_address(0), handle))

/* ---- memory that may be placed ---- */

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
		MADE_AFTER(md_capture_alloc_note(MD_ALLOC_DEVICE, *address, bytes), *address);
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
		MADE(*address);
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
		result = wanted || flags ? MD_REAL(cuMemAddressReserve, (address, bytes, alignment, wanted, flags))
					 : md_capture_reserve(address, bytes, alignment);
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

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

/* ---- other allocations ---- */

#define BEFORE_ALLOC(bytes) (md_capture_context_seen(), md_capture_shift_before_alloc(bytes))

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
MD_HOOK(cuMemAllocManaged, (dptr, bytesize, flags), BEFORE_ALLOC(bytesize),
        MADE_AFTER(md_capture_alloc_note(MD_ALLOC_MANAGED, *dptr, bytesize), *dptr))

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
MD_HOOK(cuMemHostAlloc, (pp, bytesize, flags), MD_NOTHING,
        MADE_AFTER(md_capture_alloc_note(MD_ALLOC_HOST, (uintptr_t)*pp, bytesize), (uintptr_t)*pp))

CUresult CUDAAPI cuMemAllocHost_v2(void **pp, size_t bytesize)
MD_HOOK(cuMemAllocHost_v2, (pp, bytesize), MD_NOTHING,
        MADE_AFTER(md_capture_alloc_note(MD_ALLOC_HOST, (uintptr_t)*pp, bytesize), (uintptr_t)*pp))

CUresult CUDAAPI cuMemFreeHost(void *p)
MD_HOOK(cuMemFreeHost, (p), md_capture_free_note((uintptr_t)p), MD_NOTHING)

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags)
MD_HOOK(cuMemHostRegister_v2, (p, bytesize, flags), MD_NOTHING,
        MADE_AFTER(md_capture_alloc_note(MD_ALLOC_HOST, (uintptr_t)p, bytesize), (uintptr_t)p))

CUresult CUDAAPI cuMemHostUnregister(void *p)
MD_HOOK(cuMemHostUnregister, (p), md_capture_free_note((uintptr_t)p), MD_NOTHING)

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags)
MD_HOOK(cuMemHostGetDevicePointer_v2, (pdptr, p, flags), MD_NOTHING,
        (md_capture_host_seen(p, *pdptr), md_capture_made_seen(__builtin_return_address(0), (uintptr_t)p, *pdptr)))

#define ASYNC_ALLOC(suffix)                                                                                            \
	CUresult CUDAAPI cuMemAllocAsync##suffix(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)                 \
	MD_HOOK(cuMemAllocAsync##suffix, (dptr, bytesize, hStream), BEFORE_ALLOC(bytesize),                            \
	        MADE_AFTER(md_capture_alloc_note_on(hStream, *dptr, bytesize), *dptr))                                                    \
	CUresult CUDAAPI cuMemAllocFromPoolAsync##suffix(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,        \
	                                                 CUstream hStream)                                             \
	MD_HOOK(cuMemAllocFromPoolAsync##suffix, (dptr, bytesize, pool, hStream), BEFORE_ALLOC(bytesize),              \
	        MADE_AFTER(md_capture_alloc_note_on(hStream, *dptr, bytesize), *dptr))
ASYNC_ALLOC()
ASYNC_ALLOC(_ptsz)

/* ---- virtual memory management: what counts is the mapped range ---- */

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
MD_HOOK(cuMemMap, (ptr, size, offset, handle, flags), MD_NOTHING,
        (MADE_AFTER(md_capture_mapped(ptr, size, handle), ptr),
         md_capture_handle_named(__builtin_return_address(0), handle)))

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
MD_HOOK(cuMemSetAccess, (ptr, size, desc, count), MD_NOTHING, md_capture_access_given(ptr, size, desc, count))

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags)
MD_HOOK(cuMemCreate, (handle, size, prop, flags), MD_NOTHING,
        md_capture_handle_made(*handle, prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE))

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
MD_HOOK(cuMemRetainAllocationHandle, (handle, addr), MD_NOTHING, md_capture_handle_retained(*handle, (uintptr_t)addr))

/* ---- memory that other processes, or graphs, have too ---- */

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags)
MD_HOOK(cuMemExportToShareableHandle, (shareable, handle, type, flags), MD_NOTHING, SHARED_HANDLE(handle, true))

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os,
                                                CUmemAllocationHandleType type)
MD_HOOK(cuMemImportFromShareableHandle, (handle, os, type), MD_NOTHING, SHARED_HANDLE(*handle, false))

CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
MD_HOOK(cuMulticastCreate, (handle, prop), MD_NOTHING, md_capture_handle_multicast(*handle))

/* Of a rank that has imported the object, nothing else tells what it is. */
CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                                    CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                    unsigned long long flags)
MD_HOOK(cuMulticastBindMem, (object, offset, memory, memory_offset, size, flags), MD_NOTHING,
        (md_capture_handle_multicast(object), md_capture_handle_multicast(memory)))

CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr memory,
                                     size_t size, unsigned long long flags)
MD_HOOK(cuMulticastBindAddr, (object, offset, memory, size, flags), MD_NOTHING,
        (md_capture_handle_multicast(object), md_capture_shared_multicast(memory)))

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
MD_HOOK(cuMemPoolExportPointer, (data, ptr), MD_NOTHING, (md_capture_shared_exported(ptr), SHARED(ptr, true)))

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
MD_HOOK(cuMemPoolImportPointer, (ptr, pool, data), MD_NOTHING,
        (MADE_AFTER(md_capture_shared_imported(*ptr), *ptr), SHARED(*ptr, false)))

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
MD_HOOK(cuIpcGetMemHandle, (handle, dptr), MD_NOTHING, (md_capture_shared_exported(dptr), SHARED(dptr, true)))

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
MD_HOOK(cuIpcOpenMemHandle_v2, (pdptr, handle, flags), MD_NOTHING,
        (MADE_AFTER(md_capture_shared_opened(*pdptr), *pdptr), SHARED(*pdptr, false)))

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr)
MD_HOOK(cuIpcCloseMemHandle, (dptr), md_capture_shared_closed(dptr), MD_NOTHING)

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS *params)
MD_HOOK(cuGraphAddMemAllocNode, (node, graph, dependencies, count, params), MD_NOTHING,
        md_capture_alloc_note(MD_ALLOC_GRAPH, params->dptr, params->bytesize))

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
MD_HOOK(cuMemUnmap, (ptr, size), md_capture_unmap_note(ptr, size), MD_NOTHING)
