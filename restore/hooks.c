/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of the restore library: contexts, images, captures and replays are seen; everything else passes straight
 * through. */
#include <pthread.h>

#include "driver/hooks.h"
#include "driver/jit_options.h"
#include "kvprofile/kvprofile.h"
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/groups.h"
#include "restore/image_registry.h"
#include "restore/library_made.h"
#include "restore/restore.h"
#include "restore/restore_facts.h"
#include "restore/restore_sequence.h"
#include "restore/shared_handles.h"
#include "restore/unload.h"
#include "restore/variables.h"
#include "restore/verify/live_graphs.h"

#define DEVICES_MAX 64

/* The real entry point; the table is loaded already but for the very first call of a process. */
#define REAL(entry) (__builtin_expect(md_cuda.entry != NULL, 1) ? md_cuda.entry : MD_HOOK_REAL(entry))
/* The result of the call, or CUDA_ERROR_NOT_SUPPORTED if this driver has no such entry point. */
#define CALL(entry, ...) (REAL(entry) ? md_cuda.entry(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

/* ---- contexts ---- */

static struct primary {
	CUcontext context;
	unsigned retained;
} primaries[DEVICES_MAX];
static pthread_mutex_t primaries_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The context is current. The CUDA runtime makes a primary context current before anybody has initialized it, and loads
 * libraries then; nothing can be done in it yet, and a later call will start the restore.
 */
static void start_in(CUcontext context)
{
	size_t free_bytes, total_bytes;
	if (md_restore.phase == MD_PHASE_IDLE && context && REAL(cuMemGetInfo_v2) &&
	    md_cuda.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS)
		md_restore_start(context);
}

/* Outputs are handed on as pointers: a hook's arguments may be evaluated before the driver has filled them. */
static CUresult context_made(CUresult result, const CUcontext *context)
{
	if (result == CUDA_SUCCESS && context && *context && md_guard_enter()) {
		start_in(*context);
		md_guard_leave();
	}
	return result;
}

static void context_dies(CUcontext context)
{
	if (!context || !md_guard_enter())
		return;
	if (context == md_restore.context)
		md_restore_stop("its context was destroyed");
	md_restore_context_gone(context);
	md_guard_leave();
}

#define hook_cuCtxCreate_v2(pctx, flags, dev) context_made(CALL(cuCtxCreate_v2, pctx, flags, dev), pctx)
#define hook_cuCtxCreate_v3(pctx, array, n, flags, dev)                                                                \
	context_made(CALL(cuCtxCreate_v3, pctx, array, n, flags, dev), pctx)
#define hook_cuCtxCreate_v4(pctx, params, flags, dev) context_made(CALL(cuCtxCreate_v4, pctx, params, flags, dev), pctx)
#define hook_cuCtxSetCurrent(ctx) context_made(CALL(cuCtxSetCurrent, ctx), &ctx)
#define hook_cuCtxPushCurrent_v2(ctx) context_made(CALL(cuCtxPushCurrent_v2, ctx), &ctx)
#define hook_cuCtxDestroy_v2(ctx) (context_dies(ctx), CALL(cuCtxDestroy_v2, ctx))

/* A restore waits until the limits are those of the capture. */
static CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUresult result = CALL(cuCtxSetLimit, limit, value);
	if (result == CUDA_SUCCESS && md_guard_enter()) {
		md_restore_limits_changed(&md_restore);
		md_guard_leave();
	}
	return result;
}

static CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult result = CALL(cuDevicePrimaryCtxRetain, context, device);
	if (result == CUDA_SUCCESS && device >= 0 && device < DEVICES_MAX && !md_guard_is_closed()) {
		pthread_mutex_lock(&primaries_lock);
		primaries[device].context = *context;
		primaries[device].retained++;
		pthread_mutex_unlock(&primaries_lock);
	}
	return result;
}

/* The context to take down before the last holder lets go of it, or NULL. */
static CUcontext primary_released(CUdevice device, bool at_once)
{
	CUcontext dies = NULL;
	if (device < 0 || device >= DEVICES_MAX || md_guard_is_closed())
		return NULL;
	pthread_mutex_lock(&primaries_lock);
	struct primary *primary = &primaries[device];
	if (primary->retained)
		primary->retained--;
	if (at_once || !primary->retained) {
		dies = primary->context;
		primary->retained = 0;
	}
	pthread_mutex_unlock(&primaries_lock);
	return dies;
}

#define hook_cuDevicePrimaryCtxRelease_v2(dev)                                                                         \
	(context_dies(primary_released(dev, false)), CALL(cuDevicePrimaryCtxRelease_v2, dev))
#define hook_cuDevicePrimaryCtxReset_v2(dev)                                                                           \
	(context_dies(primary_released(dev, true)), CALL(cuDevicePrimaryCtxReset_v2, dev))

/* A context that no hook has seen come (made through an export table, say) is found at the first load. */
static void find_context(void)
{
	CUcontext context = NULL;
	if (md_restore.phase == MD_PHASE_IDLE && md_cuda.cuCtxGetCurrent(&context) == CUDA_SUCCESS)
		start_in(context);
}

/* ---- modules and libraries ---- */

/* handle: CUmodule * or CUlibrary *, filled by now */
/* option: the option with which PTX was compiled, if it changes the code; NULL: none. */
static CUresult image_loaded(CUresult result, const void *handle, bool is_library, const void *image, const char *path,
			     const char *option)
{
	if (result != CUDA_SUCCESS || !handle || !md_guard_enter())
		return result;
	if (path)
		md_registry_add_file(&md_restore.registry, *(void *const *)handle, is_library, path, option);
	else
		md_registry_add(&md_restore.registry, *(void *const *)handle, is_library, image, option);
	md_restore_watch_exit();
	find_context();
	md_guard_leave();
	return result;
}

/* An engine may leave out either output, and we need both. */
#define ASKED(entry, at, bytes, handle, name)                                                                          \
	({                                                                                                             \
		CUdeviceptr address_ = 0;                                                                              \
		size_t size_ = 0;                                                                                      \
		CUdeviceptr *at_ = (at) ? (at) : &address_;                                                            \
		size_t *bytes_ = (bytes) ? (bytes) : &size_;                                                           \
		CUresult result_ = CALL(entry, at_, bytes_, handle, name);                                             \
		if (result_ == CUDA_SUCCESS && md_guard_enter()) {                                                     \
			md_restore_variable_asked(&md_restore, handle, *at_, *bytes_);                                 \
			md_guard_leave();                                                                              \
		}                                                                                                      \
		result_;                                                                                               \
	})

static void image_goes(void *handle)
{
	if (md_guard_is_closed() || !md_registry_holds(&md_restore.registry, handle) || !md_guard_enter())
		return;
	md_restore_module_gone(handle);
	md_guard_leave();
}

#define hook_cuModuleLoad(m, name) image_loaded(CALL(cuModuleLoad, m, name), m, false, NULL, name, NULL)
#define hook_cuModuleLoadData(m, image) image_loaded(CALL(cuModuleLoadData, m, image), m, false, image, NULL, NULL)
#define hook_cuModuleLoadDataEx(m, image, n, options, values)                                                          \
	image_loaded(CALL(cuModuleLoadDataEx, m, image, n, options, values), m, false, image, NULL,                    \
		     md_jit_option_of_code(n, options, values))
#define hook_cuModuleLoadFatBinary(m, image)                                                                           \
	image_loaded(CALL(cuModuleLoadFatBinary, m, image), m, false, image, NULL, NULL)
#define hook_cuLibraryLoadData(l, code, o, v, n, lo, lv, ln)                                                           \
	image_loaded(CALL(cuLibraryLoadData, l, code, o, v, n, lo, lv, ln), l, true, code, NULL,                       \
		     md_jit_option_of_code(n, o, v))
#define hook_cuLibraryLoadFromFile(l, name, o, v, n, lo, lv, ln)                                                       \
	image_loaded(CALL(cuLibraryLoadFromFile, l, name, o, v, n, lo, lv, ln), l, true, NULL, name,                   \
		     md_jit_option_of_code(n, o, v))
#define hook_cuModuleGetGlobal_v2(at, size, m, name) ASKED(cuModuleGetGlobal_v2, at, size, m, name)
#define hook_cuLibraryGetGlobal(at, size, l, name) ASKED(cuLibraryGetGlobal, at, size, l, name)
#define hook_cuModuleUnload(m) (image_goes(m), CALL(cuModuleUnload, m))
#define hook_cuLibraryUnload(l) (image_goes(l), CALL(cuLibraryUnload, l))
#define hook_cuLibraryGetModule(m, l) CALL(cuLibraryGetModule, m, l)

/* ---- memory: what the KV profile wants to know ---- */

static pthread_mutex_t sizes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_map sizes MD_GUARDED_BY(sizes_lock); /* address or handle -> bytes */

void md_restore_hooks_renew(void)
{
	pthread_mutex_init(&primaries_lock, NULL);
	pthread_mutex_init(&sizes_lock, NULL);
	md_restore_made_renew();
}

/* key: the address or handle; pitch: NULL, or what to multiply bytes (rows then) by. Both filled by now. */
static CUresult memory_taken(CUresult result, const unsigned long long *key, const size_t *pitch, uint64_t bytes)
{
	if (result != CUDA_SUCCESS || !key || !md_guard_enter())
		return result;
	bytes *= pitch ? *pitch : 1;
	pthread_mutex_lock(&sizes_lock);
	if (md_map_put(&sizes, *key, bytes))
		md_kvprofile_note_alloc(bytes);
	pthread_mutex_unlock(&sizes_lock);
	find_context();
	md_guard_leave();
	return result;
}

/* The same for memory that kernels get by address, which counts in the sequence of allocations. */
static CUresult allocated(CUresult result, enum md_alloc_family family, const unsigned long long *address,
			  const size_t *pitch, uint64_t bytes)
{
	if (result == CUDA_SUCCESS && address && md_guard_enter()) {
		md_restore_sequence_alloc(family, *address, bytes * (pitch ? *pitch : 1));
		md_guard_leave();
	}
	return memory_taken(result, address, pitch, bytes);
}

/* ---- what communication libraries make ---- */

/* In an exported function: whoever called it. */
#define CALLER __builtin_return_address(0)

/* address: of what the driver has filled by now; bytes 0: the driver tells them. */
static CUresult made(CUresult result, const void *caller, const void *address, const size_t *pitch, uint64_t bytes)
{
	if (result == CUDA_SUCCESS && address && !atomic_load(&md_restore.off) && md_guard_enter()) {
		md_restore_made(caller, *(const uint64_t *)address, bytes * (pitch ? *pitch : 1));
		md_guard_leave();
	}
	return result;
}

static CUresult made_seen(CUresult result, const void *caller, const void *host, const CUdeviceptr *device)
{
	if (result == CUDA_SUCCESS && device && !atomic_load(&md_restore.off) && md_guard_enter()) {
		md_restore_made_seen(caller, (uintptr_t)host, *device);
		md_guard_leave();
	}
	return result;
}

/* ---- what processes share ---- */

/* Begins and ends with the guard; false: the call failed, or nothing is restored. */
static bool shares(CUresult result)
{
	return result == CUDA_SUCCESS && !atomic_load(&md_restore.off) && md_guard_enter();
}

static CUresult opened(CUresult result, const void *caller, const CUdeviceptr *address)
{
	if (address && shares(result)) {
		md_restore_made_shared(caller, *address, 0, false);
		md_guard_leave();
	}
	return result;
}

/* The size that was asked for, as in a capture. */
static CUresult exported(CUresult result, const void *caller, CUdeviceptr address)
{
	CUdeviceptr start = address;
	uint64_t bytes = 0;
	size_t whole;
	if (!shares(result))
		return result;
	if (REAL(cuMemGetAddressRange_v2) && md_cuda.cuMemGetAddressRange_v2(&start, &whole, address) != CUDA_SUCCESS)
		start = address;
	pthread_mutex_lock(&sizes_lock);
	md_map_get(&sizes, start, &bytes);
	pthread_mutex_unlock(&sizes_lock);
	md_restore_made_shared(caller, start, bytes, true);
	md_guard_leave();
	return result;
}

static CUresult handle_shared(CUresult result, const void *caller, const CUmemGenericAllocationHandle *handle, bool own)
{
	if (handle && shares(result)) {
		md_restore_handle_shared(caller, *handle, own);
		md_guard_leave();
	}
	return result;
}

static CUresult handle_retained(CUresult result, const CUmemGenericAllocationHandle *handle, const void *address)
{
	if (handle && shares(result)) {
		md_restore_handle_retained(*handle, (uintptr_t)address);
		md_guard_leave();
	}
	return result;
}

static CUresult handle_made(CUresult result, const CUmemGenericAllocationHandle *handle)
{
	if (handle && shares(result)) {
		md_restore_handle_made(*handle);
		md_guard_leave();
	}
	return result;
}

static CUresult handle_mapped(CUresult result, const void *caller, uint64_t address, uint64_t bytes,
			      CUmemGenericAllocationHandle handle)
{
	if (shares(result)) {
		md_restore_handle_mapped(caller, address, bytes, handle);
		md_guard_leave();
	}
	return result;
}

static void made_closes(uint64_t address)
{
	if (!atomic_load(&md_restore.off) && md_guard_enter()) {
		md_restore_made_closed(address);
		md_guard_leave();
	}
}

static CUresult event_made(CUresult result, const void *caller, const CUevent *event)
{
	if (result == CUDA_SUCCESS && event && !atomic_load(&md_restore.off) && md_guard_enter()) {
		md_restore_made_event(caller, *event);
		md_guard_leave();
	}
	return result;
}

static void event_goes(CUevent event)
{
	if (!atomic_load(&md_restore.off) && md_guard_enter()) {
		md_restore_made_event_gone(event);
		md_guard_leave();
	}
}

#define hook_cuMemHostAlloc(pp, n, flags) made(CALL(cuMemHostAlloc, pp, n, flags), CALLER, pp, NULL, n)
#define hook_cuMemAllocHost_v2(pp, n) made(CALL(cuMemAllocHost_v2, pp, n), CALLER, pp, NULL, n)
#define hook_cuMemHostRegister_v2(p, n, flags) made(CALL(cuMemHostRegister_v2, p, n, flags), CALLER, &(p), NULL, n)
#define hook_cuMemHostGetDevicePointer_v2(at, p, flags)                                                                \
	made_seen(CALL(cuMemHostGetDevicePointer_v2, at, p, flags), CALLER, p, at)
#define hook_cuMemPoolImportPointer(at, pool, data)                                                                    \
	opened(made(CALL(cuMemPoolImportPointer, at, pool, data), CALLER, at, NULL, 0), CALLER, at)
#define hook_cuIpcOpenMemHandle_v2(at, handle, flags)                                                                  \
	opened(made(CALL(cuIpcOpenMemHandle_v2, at, handle, flags), CALLER, at, NULL, 0), CALLER, at)
#define hook_cuIpcGetMemHandle(handle, p) exported(CALL(cuIpcGetMemHandle, handle, p), CALLER, p)
#define hook_cuMemPoolExportPointer(data, p) exported(CALL(cuMemPoolExportPointer, data, p), CALLER, p)
#define hook_cuMemExportToShareableHandle(out, h, type, flags)                                                         \
	handle_shared(CALL(cuMemExportToShareableHandle, out, h, type, flags), CALLER, &(h), true)
#define hook_cuMemImportFromShareableHandle(h, os, type)                                                               \
	handle_shared(CALL(cuMemImportFromShareableHandle, h, os, type), CALLER, h, false)
#define hook_cuMemRetainAllocationHandle(h, p) handle_retained(CALL(cuMemRetainAllocationHandle, h, p), h, p)
#define hook_cuIpcCloseMemHandle(p) (made_closes(p), CALL(cuIpcCloseMemHandle, p))
#define hook_cuEventCreate(event, flags) event_made(CALL(cuEventCreate, event, flags), CALLER, event)
#define hook_cuEventDestroy_v2(event) (event_goes(event), CALL(cuEventDestroy_v2, event))

/* ---- device memory ---- */

static CUresult mapped(CUresult result, uint64_t address, uint64_t bytes)
{
	if (result == CUDA_SUCCESS && md_guard_enter()) {
		md_restore_sequence_alloc(MD_ALLOC_VMM, address, bytes);
		md_guard_leave();
	}
	return result;
}

static void freed(uint64_t address, uint64_t bytes)
{
	if (!md_guard_enter())
		return;
	md_restore_sequence_free(address, bytes);
	md_restore_made_gone(address, bytes);
	md_guard_leave();
}

static void unmapped(uint64_t address, uint64_t bytes)
{
	atomic_fetch_add(&md_restore.unmaps, 1);
	freed(address, bytes);
	if (md_guard_enter()) {
		md_restore_handle_unmapped(address, bytes);
		md_guard_leave();
	}
}

static uint64_t memory_goes(uint64_t key)
{
	uint64_t bytes = 0;
	if (md_guard_is_closed())
		return 0;
	pthread_mutex_lock(&sizes_lock);
	if (md_map_remove(&sizes, key, &bytes))
		md_kvprofile_note_free(bytes);
	pthread_mutex_unlock(&sizes_lock);
	return bytes;
}

/* Graphs may have its address, which is somebody else's soon. */
static void memory_freed(uint64_t address)
{
	uint64_t bytes = memory_goes(address);
	freed(address, 1);
	if (atomic_load(&md_restore.off) || !md_guard_enter())
		return;
	md_restore_bindings_freed(&md_restore, address, bytes ? bytes : 1);
	md_guard_leave();
}

#define ALLOCATED(result, family, p, pitch, n) made(allocated(result, family, p, pitch, n), CALLER, p, pitch, n)
#define hook_cuMemAlloc_v2(p, n) ALLOCATED(CALL(cuMemAlloc_v2, p, n), MD_ALLOC_DEVICE, p, NULL, n)
#define hook_cuMemAllocPitch_v2(p, pitch, width, height, element)                                                      \
	ALLOCATED(CALL(cuMemAllocPitch_v2, p, pitch, width, height, element), MD_ALLOC_PITCH, p, pitch, height)
#define hook_cuMemAllocManaged(p, n, flags)                                                                            \
	ALLOCATED(CALL(cuMemAllocManaged, p, n, flags), MD_ALLOC_MANAGED, p, NULL, n)
#define hook_cuMemAllocAsync(p, n, s) ALLOCATED(CALL(cuMemAllocAsync, p, n, s), MD_ALLOC_ASYNC, p, NULL, n)
#define hook_cuMemAllocAsync_ptsz(p, n, s) ALLOCATED(CALL(cuMemAllocAsync_ptsz, p, n, s), MD_ALLOC_ASYNC, p, NULL, n)
#define hook_cuMemAllocFromPoolAsync(p, n, pool, s)                                                                    \
	ALLOCATED(CALL(cuMemAllocFromPoolAsync, p, n, pool, s), MD_ALLOC_ASYNC, p, NULL, n)
#define hook_cuMemAllocFromPoolAsync_ptsz(p, n, pool, s)                                                               \
	ALLOCATED(CALL(cuMemAllocFromPoolAsync_ptsz, p, n, pool, s), MD_ALLOC_ASYNC, p, NULL, n)
#define hook_cuMemCreate(h, n, prop, flags)                                                                            \
	handle_made(memory_taken(CALL(cuMemCreate, h, n, prop, flags), h, NULL, n), h)
#define hook_cuMemFree_v2(p) (memory_freed(p), CALL(cuMemFree_v2, p))
#define hook_cuMemFreeAsync(p, s) (memory_freed(p), CALL(cuMemFreeAsync, p, s))
#define hook_cuMemFreeAsync_ptsz(p, s) (memory_freed(p), CALL(cuMemFreeAsync_ptsz, p, s))
#define hook_cuMemRelease(h) ((void)memory_goes(h), CALL(cuMemRelease, h))
#define hook_cuMemMap(p, n, offset, h, flags)                                                                          \
	handle_mapped(made(mapped(CALL(cuMemMap, p, n, offset, h, flags), p, n), CALLER, &(p), NULL, n), CALLER, p, n, \
		      h)
#define hook_cuMemFreeHost(p) (memory_freed((uintptr_t)(p)), CALL(cuMemFreeHost, p))
#define hook_cuMemHostUnregister(p) (memory_freed((uintptr_t)(p)), CALL(cuMemHostUnregister, p))
#define hook_cuMemUnmap(p, n) (unmapped(p, n), CALL(cuMemUnmap, p, n))

/* ---- stream capture ---- */

static CUresult capture_begun(CUresult result)
{
	if (result == CUDA_SUCCESS)
		atomic_fetch_add(&md_restore.captures, 1);
	return result;
}

static CUresult capture_ended(CUresult result)
{
	unsigned now = atomic_load(&md_restore.captures);
	/* An invalidated capture ends with an error; only "was not capturing" changes nothing. */
	while (result != CUDA_ERROR_ILLEGAL_STATE && now &&
	       !atomic_compare_exchange_weak(&md_restore.captures, &now, now - 1))
		;
	return result;
}

#define hook_cuStreamBeginCapture_v2(s, mode) capture_begun(CALL(cuStreamBeginCapture_v2, s, mode))
#define hook_cuStreamBeginCapture_v2_ptsz(s, mode) capture_begun(CALL(cuStreamBeginCapture_v2_ptsz, s, mode))
#define hook_cuStreamBeginCaptureToGraph(s, g, d, data, n, mode)                                                       \
	capture_begun(CALL(cuStreamBeginCaptureToGraph, s, g, d, data, n, mode))
#define hook_cuStreamBeginCaptureToGraph_ptsz(s, g, d, data, n, mode)                                                  \
	capture_begun(CALL(cuStreamBeginCaptureToGraph_ptsz, s, g, d, data, n, mode))
#define hook_cuStreamEndCapture(s, g) capture_ended(CALL(cuStreamEndCapture, s, g))
#define hook_cuStreamEndCapture_ptsz(s, g) capture_ended(CALL(cuStreamEndCapture_ptsz, s, g))

/* ---- launches and replays ---- */

#define hook_cuLaunchKernel(...) CALL(cuLaunchKernel, __VA_ARGS__)
#define hook_cuLaunchKernel_ptsz(...) CALL(cuLaunchKernel_ptsz, __VA_ARGS__)
#define hook_cuLaunchKernelEx(...) CALL(cuLaunchKernelEx, __VA_ARGS__)
#define hook_cuLaunchKernelEx_ptsz(...) CALL(cuLaunchKernelEx_ptsz, __VA_ARGS__)
#define hook_cuLaunchCooperativeKernel(...) CALL(cuLaunchCooperativeKernel, __VA_ARGS__)
#define hook_cuLaunchCooperativeKernel_ptsz(...) CALL(cuLaunchCooperativeKernel_ptsz, __VA_ARGS__)

/* A verification wants to know which graph a thread has instantiated last. */
static CUresult graph_made(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
	if (__builtin_expect(md_restore.verify, 0) && result == CUDA_SUCCESS && exec && *exec && md_guard_enter()) {
		md_verify_instantiated(*exec, graph);
		md_guard_leave();
	}
	return result;
}

#define hook_cuGraphInstantiateWithFlags(exec, graph, flags)                                                           \
	graph_made(CALL(cuGraphInstantiateWithFlags, exec, graph, flags), exec, graph)
#define hook_cuGraphInstantiateWithParams(exec, graph, params)                                                         \
	graph_made(CALL(cuGraphInstantiateWithParams, exec, graph, params), exec, graph)
#define hook_cuGraphInstantiateWithParams_ptsz(exec, graph, params)                                                    \
	graph_made(CALL(cuGraphInstantiateWithParams_ptsz, exec, graph, params), exec, graph)

static void watched_launch(CUgraphExec exec)
{
	if (!md_guard_enter())
		return;
	pthread_mutex_lock(&md_restore_lock);
	md_restore_group_launched(&md_restore, exec);
	pthread_mutex_unlock(&md_restore_lock);
	md_guard_leave();
}

static void replay_comes(CUgraphExec exec)
{
	if (__builtin_expect(atomic_load_explicit(&md_restore_watching, memory_order_relaxed), 0))
		watched_launch(exec);
	if (__builtin_expect(md_restore.verify, 0)) {
		if (md_guard_enter()) {
			md_verify_launch(exec);
			md_guard_leave();
		}
	}
	md_pace_launch_begins(&md_pace_engine);
}

static CUresult replay_launched(CUresult result)
{
	md_pace_launch_ends(&md_pace_engine);
	return result;
}

static void executable_goes(CUgraphExec exec)
{
	if (atomic_load(&md_restore.off) || !md_guard_enter())
		return;
	if (md_restore.verify) {
		md_verify_forget(exec);
	} else {
		pthread_mutex_lock(&md_restore_lock);
		md_restore_graph_destroyed(&md_restore, exec);
		pthread_mutex_unlock(&md_restore_lock);
	}
	md_guard_leave();
}

#define hook_cuGraphLaunch(exec, s) (replay_comes(exec), replay_launched(CALL(cuGraphLaunch, exec, s)))
#define hook_cuGraphLaunch_ptsz(exec, s) (replay_comes(exec), replay_launched(CALL(cuGraphLaunch_ptsz, exec, s)))
#define hook_cuGraphExecDestroy(exec) (executable_goes(exec), CALL(cuGraphExecDestroy, exec))

/* ---- the exported symbols and their table, for every row that says RESTORE or BOTH ---- */

#define DEFINE_NONE(symbol, params, args)
#define DEFINE_CORE(symbol, params, args)
#define DEFINE_CAPTURE(symbol, params, args)
#define DEFINE_BOTH(symbol, params, args)                                                                              \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		return hook_##symbol args;                                                                             \
	}
#define DEFINE_RESTORE(symbol, params, args) DEFINE_BOTH(symbol, params, args)
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) DEFINE_##hook(symbol, params, args)
#include "driver/cuda_api.def"

const struct md_hook md_hooks[] = {
#define CU_ENTRY MD_HOOK_ENTRY
#include "driver/cuda_api.def"
};
MD_HOOK_COUNT;
