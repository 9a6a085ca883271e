/* SPDX-License-Identifier: Apache-2.0 */
/* The vendor-style matrix library: picks a kernel by shape and launches it with one struct parameter. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#include <cuda.h>

#include "models/llama/gemm.h"
#include "base/export.h"
#include "models/llama/gemm_params.h"

/* symbol, the name and the version that cuGetProcAddress is asked for */
#define DRIVER_ENTRIES(ENTRY)                                                                                          \
	ENTRY(cuCtxGetDevice, cuCtxGetDevice, 2000)                                                                    \
	ENTRY(cuDeviceGetName, cuDeviceGetName, 2000)                                                                  \
	ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                                                        \
	ENTRY(cuMemAlloc_v2, cuMemAlloc, 3020)                                                                         \
	ENTRY(cuMemFree_v2, cuMemFree, 3020)                                                                           \
	ENTRY(cuMemsetD32_v2, cuMemsetD32, 3020)                                                                       \
	ENTRY(cuStreamSynchronize, cuStreamSynchronize, 2000)                                                          \
	ENTRY(cuLibraryLoadData, cuLibraryLoadData, 12000)                                                             \
	ENTRY(cuLibraryUnload, cuLibraryUnload, 12000)                                                                 \
	ENTRY(cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040)                                                 \
	ENTRY(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040)                                             \
	ENTRY(cuKernelGetName, cuKernelGetName, 12030)                                                                 \
	ENTRY(cuKernelGetFunction, cuKernelGetFunction, 12000)                                                         \
	ENTRY(cuLaunchKernelEx, cuLaunchKernelEx, 11060)

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_ != CUDA_SUCCESS)                                                                           \
			return result_;                                                                                \
	} while (0)

enum { FULL_DEVICE_TILES = 128, KERNEL_LIMIT = 16 };
enum kernel { ROWS, TILED, SPLIT_K, KERNELS };

static const char *const kernel_names[KERNELS] = {"gemm_rows", "gemm_tiled", "gemm_split_k"};

struct llama_gemm {
	int max_rows, max_columns;
	bool on_host;      /* the device is hostcuda */
	bool programmatic; /* the device knows programmatic launch */
	float *workspace;
	uint32_t *counters;
	pthread_mutex_t loading;
	CUlibrary library; /* NULL until the first multiplication */
	CUfunction functions[KERNELS];
};

extern const unsigned char gemm_host_image_begin[] __attribute__((visibility("hidden")));
extern const unsigned char gemm_fatbin_begin[] __attribute__((visibility("hidden")));
extern const unsigned char gemm_fatbin_end[] __attribute__((visibility("hidden")));

/* ---- the driver -------------------- */

static struct {
#define ENTRY(symbol, base, version) __typeof__(symbol) *symbol;
	DRIVER_ENTRIES(ENTRY)
#undef ENTRY
} driver;
static CUresult driver_result;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void *find_entry(void *library, __typeof__(cuGetProcAddress_v2) *get, const char *symbol, const char *base,
			int version)
{
	CUdriverProcAddressQueryResult found;
	void *entry = NULL;
	if (get && get(base, &entry, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS && entry)
		return entry;
	return dlsym(library, symbol);
}

/* The library is never closed: as long as the process has a context, it has the driver. */
static void load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	__typeof__(cuGetProcAddress_v2) *get;
	driver_result = CUDA_ERROR_NOT_INITIALIZED;
	if (!library)
		return;
	get = (__typeof__(get))dlsym(library, "cuGetProcAddress_v2");
	driver_result = CUDA_SUCCESS;
#define ENTRY(symbol, base, version)                                                                                   \
	driver.symbol = (__typeof__(driver.symbol))find_entry(library, get, #symbol, #base, version);                  \
	if (!driver.symbol)                                                                                            \
		driver_result = CUDA_ERROR_NOT_SUPPORTED;
	DRIVER_ENTRIES(ENTRY)
#undef ENTRY
}

/* ---- the image, at the first multiplication -------------------- */

/* By substring: in the CUDA image the local symbols carry C++ mangling. */
static CUresult take_kernel(struct llama_gemm *gemm, CUkernel kernel)
{
	const char *name;
	CHECK(driver.cuKernelGetName(&name, kernel));
	for (int i = 0; i < KERNELS; i++)
		if (strstr(name, kernel_names[i]))
			return driver.cuKernelGetFunction(&gemm->functions[i], kernel);
	return CUDA_SUCCESS;
}

static CUresult find_kernels(struct llama_gemm *gemm, CUlibrary library)
{
	CUkernel kernels[KERNEL_LIMIT];
	unsigned int count;
	CHECK(driver.cuLibraryGetKernelCount(&count, library));
	if (count > KERNEL_LIMIT)
		return CUDA_ERROR_INVALID_IMAGE;
	CHECK(driver.cuLibraryEnumerateKernels(kernels, count, library));
	for (unsigned int i = 0; i < count; i++)
		CHECK(take_kernel(gemm, kernels[i]));
	for (int i = 0; i < KERNELS; i++)
		if (!gemm->functions[i])
			return CUDA_ERROR_NOT_FOUND;
	return CUDA_SUCCESS;
}

static CUresult load_image(struct llama_gemm *gemm)
{
	const void *image = gemm->on_host ? gemm_host_image_begin : gemm_fatbin_begin;
	CUlibrary library;
	CUresult result;
	if (!gemm->on_host && &gemm_fatbin_begin[0] == &gemm_fatbin_end[0])
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	CHECK(driver.cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	result = find_kernels(gemm, library);
	if (result != CUDA_SUCCESS) {
		driver.cuLibraryUnload(library);
		return result;
	}
	gemm->library = library;
	return CUDA_SUCCESS;
}

static CUresult ensure_image(struct llama_gemm *gemm)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&gemm->loading);
	if (!gemm->library)
		result = load_image(gemm);
	pthread_mutex_unlock(&gemm->loading);
	return result;
}

/* ---- create and destroy -------------------- */

static int at_most(int value, int limit)
{
	return value < limit ? value : limit;
}

static size_t ceiling(size_t value, size_t unit)
{
	return (value + unit - 1) / unit;
}

/* Room for what choose() may ever split: at most one tile of rows, at most GEMM_SPLIT_MAX_COLUMNS columns. */
static CUresult create_workspace(struct llama_gemm *gemm)
{
	const size_t rows = at_most(gemm->max_rows, GEMM_TILE_ROWS),
		     columns = at_most(gemm->max_columns, GEMM_SPLIT_MAX_COLUMNS);
	const size_t tiles = ceiling(columns, GEMM_ROWS_COLUMNS);
	CUdeviceptr workspace, counters;
	CUresult result;
	CHECK(driver.cuMemAlloc_v2(&workspace, GEMM_SPLITS_MAX * rows * columns * sizeof(float)));
	result = driver.cuMemAlloc_v2(&counters, tiles * sizeof(uint32_t));
	if (result != CUDA_SUCCESS)
		goto free_workspace;
	result = driver.cuMemsetD32_v2(counters, 0, tiles);
	/* the set is asynchronous, and callers' streams do not wait for the stream that it is on */
	if (result == CUDA_SUCCESS)
		result = driver.cuStreamSynchronize(NULL);
	if (result != CUDA_SUCCESS)
		goto free_counters;
	gemm->workspace = (float *)(uintptr_t)workspace;
	gemm->counters = (uint32_t *)(uintptr_t)counters;
	return CUDA_SUCCESS;

free_counters:
	driver.cuMemFree_v2(counters);
free_workspace:
	driver.cuMemFree_v2(workspace);
	return result;
}

static CUresult look_at_device(struct llama_gemm *gemm)
{
	char name[256] = "";
	CUdevice device;
	int major;
	CHECK(driver.cuCtxGetDevice(&device));
	CHECK(driver.cuDeviceGetName(name, sizeof(name), device));
	CHECK(driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	gemm->on_host = strncmp(name, "hostcuda", strlen("hostcuda")) == 0;
	gemm->programmatic = gemm->on_host || major >= 9;
	return CUDA_SUCCESS;
}

MD_EXPORT int llama_gemm_create(struct llama_gemm **out, int max_rows, int max_columns)
{
	struct llama_gemm *gemm;
	CUresult result;
	if (!out || max_rows <= 0 || max_columns <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_once(&driver_once, load_driver);
	CHECK(driver_result);
	gemm = calloc(1, sizeof(*gemm));
	if (!gemm)
		return CUDA_ERROR_OUT_OF_MEMORY;
	gemm->max_rows = max_rows;
	gemm->max_columns = max_columns;
	pthread_mutex_init(&gemm->loading, NULL);
	result = look_at_device(gemm);
	if (result == CUDA_SUCCESS)
		result = create_workspace(gemm);
	if (result != CUDA_SUCCESS) {
		pthread_mutex_destroy(&gemm->loading);
		free(gemm);
		return result;
	}
	*out = gemm;
	return CUDA_SUCCESS;
}

MD_EXPORT void llama_gemm_destroy(struct llama_gemm *gemm)
{
	if (!gemm)
		return;
	/* freeing waits for work under way, so it comes before the code is unloaded */
	driver.cuMemFree_v2((CUdeviceptr)(uintptr_t)gemm->counters);
	driver.cuMemFree_v2((CUdeviceptr)(uintptr_t)gemm->workspace);
	if (gemm->library)
		driver.cuLibraryUnload(gemm->library);
	pthread_mutex_destroy(&gemm->loading);
	free(gemm);
}

/* ---- multiply -------------------- */

struct choice {
	enum kernel kernel;
	unsigned int columns, splits, row_tiles;
};

/*
 * By shape alone, so that a shape always takes the same kernel and gives the same bits. Split k where it is long
 * against n (the down projection), or where the tiles would leave a large device idle.
 */
static struct choice choose(const struct llama_gemm *gemm, int rows, int n, int k)
{
	const bool few = rows <= GEMM_FEW_ROWS;
	const size_t row_tiles = ceiling(rows, GEMM_TILE_ROWS), tiles = row_tiles * ceiling(n, GEMM_TILE_COLUMNS);
	const bool fits = rows <= GEMM_TILE_ROWS && gemm_parts(n, k) > 1;
	const bool split =
	    fits && (k >= 2 * (int64_t)n || (!few && tiles < FULL_DEVICE_TILES && k >= 4 * GEMM_SPLIT_MIN_K));
	struct choice choice = {.kernel = split ? SPLIT_K
					  : few ? ROWS
						: TILED,
				.splits = 1,
				.row_tiles = (unsigned int)row_tiles};
	if (split)
		choice.splits = (unsigned int)gemm_parts(n, k);
	choice.columns = gemm->on_host ? GEMM_HOST_COLUMNS : few ? GEMM_ROWS_COLUMNS : GEMM_TILE_COLUMNS;
	return choice;
}

static void set_grid(CUlaunchConfig *config, const struct choice *choice, int n)
{
	config->gridDimX = (unsigned int)ceiling((size_t)n, choice->columns);
	config->gridDimY = choice->kernel == TILED ? choice->row_tiles : choice->splits;
	config->gridDimZ = choice->kernel == SPLIT_K ? choice->row_tiles : 1;
	config->blockDimX = GEMM_BLOCK;
	config->blockDimY = 1;
	config->blockDimZ = 1;
}

static CUresult launch(const struct llama_gemm *gemm, const struct choice *choice, CUstream stream,
		       struct gemm_params *params, bool programmatic)
{
	size_t size = sizeof(*params);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
				       .value = {.programmaticStreamSerializationAllowed = 1}};
	CUlaunchConfig config = {.hStream = stream, .attrs = &attribute, .numAttrs = programmatic ? 1 : 0};
	set_grid(&config, choice, params->n);
	return driver.cuLaunchKernelEx(&config, gemm->functions[choice->kernel], NULL, extra);
}

MD_EXPORT int llama_gemm_run(struct llama_gemm *gemm, void *stream, float *y, const float *x, const uint16_t *w,
			     int rows, int n, int k, int accumulate, int pdl)
{
	struct gemm_params params; /* field by field: the gaps keep what the stack held, see gemm_params.h */
	struct choice choice;
	if (!gemm || !y || !x || !w || rows <= 0 || n <= 0 || k <= 0 || rows > gemm->max_rows || n > gemm->max_columns)
		return CUDA_ERROR_INVALID_VALUE;
	CHECK(ensure_image(gemm));
	choice = choose(gemm, rows, n, k);
	params.y = y;
	params.x = x;
	params.w = w;
	params.workspace = gemm->workspace;
	params.counters = gemm->counters;
	params.rows = rows;
	params.n = n;
	params.k = k;
	params.accumulate = accumulate != 0;
	params.columns = (int32_t)choice.columns;
	return launch(gemm, &choice, stream, &params, pdl && gemm->programmatic);
}
