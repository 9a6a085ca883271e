/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of contexts, modules, libraries and their variables. */
#include "capture/hooks/hook.h"
#include "capture/place/place.h"
#include "capture/probe/poison_test.h"
#include "capture/record/images.h"
#include "capture/record/module_variables.h"
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
