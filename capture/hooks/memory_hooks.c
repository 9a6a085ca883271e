/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of memory, contexts, modules and libraries: what is allocated, and what images are loaded. */
#include "capture/hooks/hook.h"
#include "capture/place/place.h"
#include "capture/probe/poison_test.h"
#include "capture/record/allocs.h"
#include "capture/record/images.h"
#include "capture/record/module_variables.h"
#include "capture/record/shared.h"
#include "driver/jit_options.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

/* ---- contexts ---- */

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
MD_HOOK(cuCtxCreate_v2, (pctx, flags, dev), MD_NOTHING, md_capture_context_seen())

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int count, unsigned int flags,
                                CUdevice dev)
MD_HOOK(cuCtxCreate_v3, (pctx, params, count, flags, dev), MD_NOTHING, md_capture_context_seen())

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
MD_HOOK(cuCtxCreate_v4, (pctx, params, flags, dev), MD_NOTHING, md_capture_context_seen())

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
MD_HOOK(cuCtxSetCurrent, (ctx), MD_NOTHING, md_capture_context_seen())

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx)
MD_HOOK(cuCtxPushCurrent_v2, (ctx), MD_NOTHING, md_capture_context_seen())

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx)
MD_HOOK(cuCtxDestroy_v2, (ctx), (md_capture_probe_context(ctx), md_capture_context_destroyed(ctx), md_capture_place_context_gone(ctx)), MD_NOTHING)

/* The driver counts the holders of a primary context. A release that is not the last one only probes a little early. */
CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
MD_HOOK(cuDevicePrimaryCtxRelease_v2, (dev), md_capture_probe_context(NULL),
        (md_capture_primary_released(dev), md_capture_place_primary_gone(dev)))

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
MD_HOOK(cuDevicePrimaryCtxReset_v2, (dev), md_capture_probe_context(NULL),
        (md_capture_primary_released(dev), md_capture_place_primary_gone(dev)))

/* ---- modules and libraries ---- */

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *fname)
MD_HOOK(cuModuleLoad, (module, fname), MD_NOTHING, md_capture_module_loaded_file(*module, fname))

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
MD_HOOK(cuModuleLoadData, (module, image), MD_NOTHING, md_capture_module_loaded(*module, image, NULL))

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                    void **values)
MD_HOOK(cuModuleLoadDataEx, (module, image, count, options, values), MD_NOTHING,
        md_capture_module_loaded(*module, image, md_jit_option_of_code(count, options, values)))

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
MD_HOOK(cuModuleLoadFatBinary, (module, fatCubin), MD_NOTHING, md_capture_module_loaded(*module, fatCubin, NULL))

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
MD_HOOK(cuModuleUnload, (hmod), md_capture_module_unloaded(hmod), MD_NOTHING)

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	CUdeviceptr address = 0;
	size_t size = 0;
	/* The caller may leave out either output, but the hook needs both. */
	MD_HOOK(cuModuleGetGlobal_v2, (dptr ? dptr : &address, bytes ? bytes : &size, hmod, name), MD_NOTHING,
	        md_capture_variable_asked(hmod, NULL, name, dptr ? *dptr : address, bytes ? *bytes : size))
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUdeviceptr address = 0;
	size_t size = 0;
	MD_HOOK(cuLibraryGetGlobal, (dptr ? dptr : &address, bytes ? bytes : &size, library, name), MD_NOTHING,
	        md_capture_variable_asked(NULL, library, name, dptr ? *dptr : address, bytes ? *bytes : size))
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                   void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                   void **libraryOptionValues, unsigned int numLibraryOptions)
MD_HOOK(cuLibraryLoadData,
        (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
         numLibraryOptions),
        MD_NOTHING,
        md_capture_library_loaded(*library, code, md_jit_option_of_code(numJitOptions, jitOptions, jitOptionsValues)))

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                                       void **jitOptionsValues, unsigned int numJitOptions,
                                       CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                       unsigned int numLibraryOptions)
MD_HOOK(cuLibraryLoadFromFile,
        (library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
         numLibraryOptions),
        MD_NOTHING,
        md_capture_library_loaded_file(*library, fileName,
                                       md_jit_option_of_code(numJitOptions, jitOptions, jitOptionsValues)))

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
MD_HOOK(cuLibraryUnload, (library), md_capture_library_unloaded(library), MD_NOTHING)

CUresult CUDAAPI cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
MD_HOOK(cuLibraryGetModule, (pMod, library), MD_NOTHING, md_capture_library_module(library, *pMod))

/* ---- allocations: the rest is in place_hooks.c ---- */

#define BEFORE_ALLOC(bytes) (md_capture_context_seen(), md_capture_shift_before_alloc(bytes))

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
MD_HOOK(cuMemAllocManaged, (dptr, bytesize, flags), BEFORE_ALLOC(bytesize),
        md_capture_alloc_note(MD_ALLOC_MANAGED, *dptr, bytesize))

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
MD_HOOK(cuMemHostAlloc, (pp, bytesize, flags), MD_NOTHING,
        md_capture_alloc_note(MD_ALLOC_HOST, (uintptr_t)*pp, bytesize))

CUresult CUDAAPI cuMemAllocHost_v2(void **pp, size_t bytesize)
MD_HOOK(cuMemAllocHost_v2, (pp, bytesize), MD_NOTHING, md_capture_alloc_note(MD_ALLOC_HOST, (uintptr_t)*pp, bytesize))

CUresult CUDAAPI cuMemFreeHost(void *p)
MD_HOOK(cuMemFreeHost, (p), md_capture_free_note((uintptr_t)p), MD_NOTHING)

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags)
MD_HOOK(cuMemHostRegister_v2, (p, bytesize, flags), MD_NOTHING,
        md_capture_alloc_note(MD_ALLOC_HOST, (uintptr_t)p, bytesize))

CUresult CUDAAPI cuMemHostUnregister(void *p)
MD_HOOK(cuMemHostUnregister, (p), md_capture_free_note((uintptr_t)p), MD_NOTHING)

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags)
MD_HOOK(cuMemHostGetDevicePointer_v2, (pdptr, p, flags), MD_NOTHING, md_capture_host_seen(p, *pdptr))

#define ASYNC_ALLOC(suffix)                                                                                            \
	CUresult CUDAAPI cuMemAllocAsync##suffix(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)                 \
	MD_HOOK(cuMemAllocAsync##suffix, (dptr, bytesize, hStream), BEFORE_ALLOC(bytesize),                            \
	        md_capture_alloc_note_on(hStream, *dptr, bytesize))                                                    \
	CUresult CUDAAPI cuMemAllocFromPoolAsync##suffix(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,        \
	                                                 CUstream hStream)                                             \
	MD_HOOK(cuMemAllocFromPoolAsync##suffix, (dptr, bytesize, pool, hStream), BEFORE_ALLOC(bytesize),              \
	        md_capture_alloc_note_on(hStream, *dptr, bytesize))
ASYNC_ALLOC()
ASYNC_ALLOC(_ptsz)

/* ---- virtual memory management: what counts is the mapped range ---- */

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
MD_HOOK(cuMemMap, (ptr, size, offset, handle, flags), MD_NOTHING, md_capture_mapped(ptr, size, handle))

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags)
MD_HOOK(cuMemCreate, (handle, size, prop, flags), MD_NOTHING,
        md_capture_handle_made(*handle, prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE))

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
MD_HOOK(cuMemRetainAllocationHandle, (handle, addr), MD_NOTHING, md_capture_handle_retained(*handle, (uintptr_t)addr))

/* ---- memory that other processes, or graphs, have too ---- */

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags)
MD_HOOK(cuMemExportToShareableHandle, (shareable, handle, type, flags), MD_NOTHING, md_capture_handle_foreign(handle))

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os,
                                                CUmemAllocationHandleType type)
MD_HOOK(cuMemImportFromShareableHandle, (handle, os, type), MD_NOTHING, md_capture_handle_foreign(*handle))

CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
MD_HOOK(cuMulticastCreate, (handle, prop), MD_NOTHING, md_capture_handle_foreign(*handle))

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
MD_HOOK(cuMemPoolExportPointer, (data, ptr), MD_NOTHING, md_capture_shared_exported(ptr))

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
MD_HOOK(cuMemPoolImportPointer, (ptr, pool, data), MD_NOTHING, md_capture_shared_imported(*ptr))

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
MD_HOOK(cuIpcGetMemHandle, (handle, dptr), MD_NOTHING, md_capture_shared_exported(dptr))

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
MD_HOOK(cuIpcOpenMemHandle_v2, (pdptr, handle, flags), MD_NOTHING, md_capture_shared_opened(*pdptr))

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr)
MD_HOOK(cuIpcCloseMemHandle, (dptr), md_capture_shared_closed(dptr), MD_NOTHING)

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS *params)
MD_HOOK(cuGraphAddMemAllocNode, (node, graph, dependencies, count, params), MD_NOTHING,
        md_capture_alloc_note(MD_ALLOC_GRAPH, params->dptr, params->bytesize))

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
MD_HOOK(cuMemUnmap, (ptr, size), md_capture_unmap_note(ptr, size), MD_NOTHING)
