/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported functions: each checks the preconditions (initialized, context, sticky error, injected fault, capture)
 * and calls hc_SYMBOL.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/export.h"
#include "hostcuda/checkpoint.h"
#include "hostcuda/context.h"
#include "hostcuda/device_state.h"
#include "hostcuda/stream_capture.h"

/* Which preconditions an entry point lacks. By default it needs cuInit, a current context, and no sticky error. */
enum {
	NO_INIT = 1,    /* works before cuInit */
	NO_CONTEXT = 2, /* works without a current context */
	NO_STICKY = 4,  /* works after the context has failed */
	UNSAFE = 8,     /* prohibited while a stream is being captured */
	UNLOCKED = 16,  /* works while another process has locked this one; NO_INIT means that, too */
};
#define FREE (NO_INIT | NO_CONTEXT | NO_STICKY)
#define DEVICE (NO_CONTEXT | NO_STICKY)

static const uint8_t gate_flags[HC_INDEX_COUNT] = {
    [HC_INDEX_cuInit] = FREE,
    [HC_INDEX_cuDriverGetVersion] = FREE,
    [HC_INDEX_cuGetProcAddress] = FREE,
    [HC_INDEX_cuGetProcAddress_v2] = FREE,
    [HC_INDEX_cuGetErrorName] = FREE,
    [HC_INDEX_cuGetErrorString] = FREE,
    [HC_INDEX_cuGetExportTable] = FREE,
    [HC_INDEX_cuThreadExchangeStreamCaptureMode] = FREE,
    [HC_INDEX_cuModuleGetLoadingMode] = DEVICE,
    [HC_INDEX_cuDeviceGet] = DEVICE,
    [HC_INDEX_cuDeviceGetCount] = DEVICE,
    [HC_INDEX_cuDeviceGetName] = DEVICE,
    [HC_INDEX_cuDeviceGetUuid_v2] = DEVICE,
    [HC_INDEX_cuDeviceGetAttribute] = DEVICE,
    [HC_INDEX_cuDeviceTotalMem_v2] = DEVICE,
    [HC_INDEX_cuDeviceCanAccessPeer] = DEVICE,
    [HC_INDEX_cuDeviceGetP2PAttribute] = DEVICE,
    [HC_INDEX_cuDevicePrimaryCtxRetain] = DEVICE,
    [HC_INDEX_cuDevicePrimaryCtxRelease_v2] = DEVICE,
    [HC_INDEX_cuDevicePrimaryCtxReset_v2] = DEVICE,
    [HC_INDEX_cuDevicePrimaryCtxGetState] = DEVICE,
    [HC_INDEX_cuDevicePrimaryCtxSetFlags_v2] = DEVICE,
    [HC_INDEX_cuDeviceGetDefaultMemPool] = DEVICE,
    [HC_INDEX_cuCtxCreate_v2] = DEVICE,
    [HC_INDEX_cuCtxCreate_v3] = DEVICE,
    [HC_INDEX_cuCtxCreate_v4] = DEVICE,
    [HC_INDEX_cuCtxDestroy_v2] = DEVICE,
    [HC_INDEX_cuCtxFromGreenCtx] = DEVICE,
    [HC_INDEX_cuGreenCtxCreate] = DEVICE,
    [HC_INDEX_cuGreenCtxDestroy] = DEVICE,
    [HC_INDEX_cuGreenCtxStreamCreate] = NO_CONTEXT,
    [HC_INDEX_cuDeviceGetDevResource] = DEVICE,
    [HC_INDEX_cuDevSmResourceSplitByCount] = DEVICE,
    [HC_INDEX_cuDevResourceGenerateDesc] = DEVICE,
    [HC_INDEX_cuCtxGetCurrent] = DEVICE,
    [HC_INDEX_cuCtxSetCurrent] = DEVICE,
    [HC_INDEX_cuCtxPushCurrent_v2] = DEVICE,
    [HC_INDEX_cuCtxPopCurrent_v2] = DEVICE,
    [HC_INDEX_cuCtxGetApiVersion] = DEVICE,
    [HC_INDEX_cuCtxGetId] = DEVICE,
    [HC_INDEX_cuCheckpointProcessGetRestoreThreadId] = DEVICE | UNLOCKED,
    [HC_INDEX_cuCheckpointProcessGetState] = DEVICE | UNLOCKED,
    [HC_INDEX_cuCheckpointProcessLock] = DEVICE | UNLOCKED,
    [HC_INDEX_cuCheckpointProcessCheckpoint] = DEVICE | UNLOCKED,
    [HC_INDEX_cuCheckpointProcessRestore] = DEVICE | UNLOCKED,
    [HC_INDEX_cuCheckpointProcessUnlock] = DEVICE | UNLOCKED,
    [HC_INDEX_cuMemGetAllocationGranularity] = NO_CONTEXT,
    [HC_INDEX_cuMemAddressReserve] = NO_CONTEXT,
    [HC_INDEX_cuMemAddressFree] = DEVICE,
    [HC_INDEX_cuMemCreate] = NO_CONTEXT,
    [HC_INDEX_cuMemRelease] = DEVICE,
    [HC_INDEX_cuMemMap] = NO_CONTEXT,
    [HC_INDEX_cuMemUnmap] = DEVICE,
    [HC_INDEX_cuMemSetAccess] = NO_CONTEXT,
    [HC_INDEX_cuMemGetAccess] = NO_CONTEXT,
    [HC_INDEX_cuMemExportToShareableHandle] = NO_CONTEXT,
    [HC_INDEX_cuMemImportFromShareableHandle] = NO_CONTEXT,
    [HC_INDEX_cuMemRetainAllocationHandle] = NO_CONTEXT,
    [HC_INDEX_cuMemGetAllocationPropertiesFromHandle] = NO_CONTEXT,
    [HC_INDEX_cuMemPoolCreate] = NO_CONTEXT,
    [HC_INDEX_cuMemPoolDestroy] = DEVICE,
    [HC_INDEX_cuDeviceSetMemPool] = DEVICE,
    [HC_INDEX_cuDeviceGetMemPool] = DEVICE,
    [HC_INDEX_cuPointerGetAttribute] = NO_CONTEXT,
    [HC_INDEX_cuLibraryUnload] = DEVICE,
    [HC_INDEX_cuLibraryLoadData] = NO_CONTEXT,
    [HC_INDEX_cuLibraryLoadFromFile] = NO_CONTEXT,
    [HC_INDEX_cuLibraryGetKernel] = NO_CONTEXT,
    [HC_INDEX_cuLibraryGetKernelCount] = NO_CONTEXT,
    [HC_INDEX_cuLibraryEnumerateKernels] = NO_CONTEXT,
    [HC_INDEX_cuKernelGetName] = NO_CONTEXT,
    [HC_INDEX_cuKernelGetLibrary] = NO_CONTEXT,
    [HC_INDEX_cuKernelGetParamInfo] = NO_CONTEXT,
    [HC_INDEX_cuStreamDestroy_v2] = DEVICE,
    [HC_INDEX_cuEventDestroy_v2] = DEVICE,
    [HC_INDEX_cuGraphDestroy] = DEVICE,
    [HC_INDEX_cuGraphExecDestroy] = DEVICE,
    [HC_INDEX_cuGraphCreate] = NO_CONTEXT,
    [HC_INDEX_cuGraphGetNodes] = NO_CONTEXT,
    [HC_INDEX_cuGraphGetEdges] = NO_CONTEXT,
    [HC_INDEX_cuGraphGetEdges_v2] = NO_CONTEXT,
    [HC_INDEX_cuGraphNodeGetType] = NO_CONTEXT,
    [HC_INDEX_cuTensorMapEncodeTiled] = FREE,
    [HC_INDEX_cuTensorMapReplaceAddress] = FREE,
    [HC_INDEX_cuMemAlloc_v2] = UNSAFE,
    [HC_INDEX_cuMemAllocPitch_v2] = UNSAFE,
    [HC_INDEX_cuMemAllocManaged] = UNSAFE,
    [HC_INDEX_cuMemFree_v2] = UNSAFE | NO_STICKY,
    [HC_INDEX_cuMemHostAlloc] = UNSAFE,
    [HC_INDEX_cuMemAllocHost_v2] = UNSAFE,
    [HC_INDEX_cuMemFreeHost] = UNSAFE | NO_STICKY,
    [HC_INDEX_cuMemHostRegister_v2] = UNSAFE,
    [HC_INDEX_cuMemHostUnregister] = UNSAFE | NO_STICKY,
    [HC_INDEX_cuIpcGetMemHandle] = UNSAFE,
    [HC_INDEX_cuIpcOpenMemHandle_v2] = UNSAFE,
    [HC_INDEX_cuIpcCloseMemHandle] = UNSAFE | NO_STICKY,
    [HC_INDEX_cuMemcpy] = UNSAFE,
    [HC_INDEX_cuMemcpyHtoD_v2] = UNSAFE,
    [HC_INDEX_cuMemcpyDtoH_v2] = UNSAFE,
    [HC_INDEX_cuMemcpyDtoD_v2] = UNSAFE,
    [HC_INDEX_cuMemsetD8_v2] = UNSAFE,
    [HC_INDEX_cuMemsetD16_v2] = UNSAFE,
    [HC_INDEX_cuMemsetD32_v2] = UNSAFE,
    [HC_INDEX_cuMemcpy2D_v2] = UNSAFE,
    [HC_INDEX_cuMemcpy2DUnaligned_v2] = UNSAFE,
    [HC_INDEX_cuMemcpy3D_v2] = UNSAFE,
    [HC_INDEX_cuMemcpy3DPeer] = UNSAFE,
    [HC_INDEX_cuMemcpyPeer] = UNSAFE,
    [HC_INDEX_cuMemsetD2D8_v2] = UNSAFE,
    [HC_INDEX_cuMemsetD2D16_v2] = UNSAFE,
    [HC_INDEX_cuMemsetD2D32_v2] = UNSAFE,
    [HC_INDEX_cuCtxSynchronize] = UNSAFE,
    [HC_INDEX_cuEventQuery] = UNSAFE,
    [HC_INDEX_cuEventSynchronize] = UNSAFE,
    [HC_INDEX_cuModuleUnload] = UNSAFE | NO_STICKY,
};

static const char *const entry_names[HC_INDEX_COUNT] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) #symbol,
#include "driver/cuda_api.def"
};

/* True: the thread is inside, and leaves when the call ends. */
static bool enter(enum hc_index index)
{
	md_child_check();
	if (hc_copied || gate_flags[index] & (NO_INIT | UNLOCKED))
		return false;
	hc_checkpoint_enter();
	return true;
}

static void leave(const bool *inside)
{
	if (*inside)
		hc_checkpoint_leave();
}

#define INSIDE(index) __attribute__((cleanup(leave), unused)) bool inside_ = enter(index)

static CUresult pass_gate(enum hc_index index, const char *base, const void *caller)
{
	unsigned flags = gate_flags[index];
	if (hc_copied && !(flags & NO_INIT))
		return CUDA_ERROR_NOT_INITIALIZED;
	hc_call_count(index);
	HC_TRY(hc_fault_due(entry_names[index], base, caller));
	if (!(flags & NO_INIT) && !__atomic_load_n(&hc_initialised, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_NOT_INITIALIZED;
	struct hc_context *context = hc_context_current();
	if (!(flags & NO_CONTEXT) && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!(flags & NO_CONTEXT) && context->dead)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!(flags & NO_STICKY) && context)
		HC_TRY(hc_context_sticky(context));
	return flags & UNSAFE ? hc_capture_unsafe() : CUDA_SUCCESS;
}

/* ---- the exports ------------------------------------------------------------------------------------------------- */

/* A row without its own implementation (the per-thread variants) follows the row whose implementation it shares. */
static void *const implementations[HC_INDEX_COUNT] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) (void *)hc_##symbol,
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args) NULL,
#include "driver/cuda_api.def"
};

#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args)                                                \
	MD_EXPORT CUresult CUDAAPI symbol params;                                                                      \
	MD_EXPORT CUresult CUDAAPI symbol params                                                                       \
	{                                                                                                              \
		INSIDE(HC_INDEX_##symbol);                                                                             \
		HC_TRY(pass_gate(HC_INDEX_##symbol, #base, __builtin_return_address(0)));                              \
		return hc_##symbol args;                                                                               \
	}
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args)                                             \
	MD_EXPORT CUresult CUDAAPI symbol params;                                                                      \
	MD_EXPORT CUresult CUDAAPI symbol params                                                                       \
	{                                                                                                              \
		INSIDE(HC_INDEX_##symbol - 1);                                                                         \
		HC_TRY(pass_gate(HC_INDEX_##symbol - 1, #base, __builtin_return_address(0)));                          \
		CUresult(*implementation) params = (CUresult(*) params)implementations[HC_INDEX_##symbol - 1];         \
		bool before = hc_thread.per_thread;                                                                    \
		hc_thread.per_thread = true;                                                                           \
		CUresult result = implementation args;                                                                 \
		hc_thread.per_thread = before;                                                                         \
		return result;                                                                                         \
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#include "driver/cuda_api.def"
#pragma GCC diagnostic pop

/* ---- cuGetProcAddress ---- */
struct row {
	const char *base;
	int version;
	bool per_thread;
	void *address;
};

static const struct row rows[] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) {#base, version, false, (void *)symbol},
#define CU_ENTRY_TS(symbol, base, version, need, hook, swap, params, args) {#base, version, true, (void *)symbol},
#include "driver/cuda_api.def"
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
static pthread_once_t sorted_once = PTHREAD_ONCE_INIT;
static const struct row *sorted[ROWS]; /* by name; of one name in the order of the table */

static int compare_rows(const void *a, const void *b)
{
	const struct row *one = *(const struct row *const *)a, *other = *(const struct row *const *)b;
	int order = strcmp(one->base, other->base);
	return order ? order : one < other ? -1 : one > other;
}

static void sort_rows(void)
{
	for (size_t i = 0; i < ROWS; i++)
		sorted[i] = &rows[i];
	qsort(sorted, ROWS, sizeof(sorted[0]), compare_rows);
}

static size_t first_of(const char *name)
{
	size_t from = 0, to = ROWS;
	while (from < to) {
		size_t middle = (from + to) / 2;
		if (strcmp(sorted[middle]->base, name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/* The newest row of that name and kind that a caller of this version may see. */
static const struct row *find_row(const char *name, int version, bool per_thread, bool *known)
{
	const struct row *best = NULL;
	pthread_once(&sorted_once, sort_rows);
	for (size_t i = first_of(name); i < ROWS && !strcmp(sorted[i]->base, name); i++) {
		*known = true;
		if (sorted[i]->per_thread == per_thread && sorted[i]->version <= version &&
		    (!best || sorted[i]->version >= best->version))
			best = sorted[i];
	}
	return best;
}

CUresult hc_cuGetProcAddress_v2(const char *symbol, void **pfn, int driverVersion, cuuint64_t flags,
				CUdriverProcAddressQueryResult *symbolFound)
{
	if (!symbol || !pfn || flags > 3 || driverVersion > 13000)
		return CUDA_ERROR_INVALID_VALUE;
	bool known = false;
	const struct row *row = NULL;
	if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		row = find_row(symbol, driverVersion, true, &known);
	if (!row)
		row = find_row(symbol, driverVersion, false, &known);
	*pfn = row ? row->address : NULL;
	if (symbolFound)
		*symbolFound = row     ? CU_GET_PROC_ADDRESS_SUCCESS
			       : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS; /* as cuda.h says, this succeeds when there is no such function, too, with *pfn NULL */
}

CUresult hc_cuGetProcAddress(const char *symbol, void **pfn, int driverVersion, cuuint64_t flags)
{
	return hc_cuGetProcAddress_v2(symbol, pfn, driverVersion, flags, NULL);
}

CUresult hc_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	(void)pExportTableId;
	if (ppExportTable)
		*ppExportTable = NULL;
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hc_cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = 13000;
	return CUDA_SUCCESS;
}
