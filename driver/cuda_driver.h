/* SPDX-License-Identifier: Apache-2.0 */
/* The typed table of the CUDA driver's real entry points, which is loaded at run time, and calls through it. */
#ifndef MD_DRIVER_CUDA_DRIVER_H
#define MD_DRIVER_CUDA_DRIVER_H

/* Symbols are named with their version suffix, so cuda.h must not rename them. */
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#include <cuda.h>

#include "base/status.h"

struct md_cuda {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) CUresult(CUDAAPI *symbol) params;
#include "driver/cuda_api.def"
};

/*
 * The real entry points (never a hook), or NULLs before md_cuda_load. Optional ones the driver lacks stay NULL.
 * Loading is done once per process and is thread-safe; later calls return the first outcome.
 * Errors: MD_ERR_DRIVER_MISSING names the library or the first required entry point that is not there.
 * MEDUSA_LIBCUDA=path overrides "libcuda.so.1".
 */
extern struct md_cuda md_cuda;
/* The driver's own entry points. In libmedusa-swap.so, md_cuda has functions of swap/ in place of some. */
extern struct md_cuda md_cuda_real;
enum md_status md_cuda_load(struct md_error *err);

/*
 * md_cuda_call(err, cuMemAlloc_v2, &address, bytes): calls the real entry point, and turns a failure into a status with
 * "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". MD_ERR_DRIVER_MEMORY for out of memory, else
 * MD_ERR_DRIVER; MD_ERR_UNSUPPORTED when the entry point is not there.
 */
#define md_cuda_call(err, entry, ...) md_cuda_call_in(&md_cuda, (err), entry, __VA_ARGS__)
/* The same through a table other than md_cuda. */
#define md_cuda_call_in(table, err, entry, ...)                                                                        \
	((table)->entry ? md_cuda_status((table)->entry(__VA_ARGS__), #entry, (err)) : md_cuda_absent(#entry, (err)))

enum md_status md_cuda_status(CUresult result, const char *entry, struct md_error *err);
enum md_status md_cuda_absent(const char *entry, struct md_error *err);
#ifdef __clang_analyzer__ /* see md_error_set */
#define md_cuda_absent(entry, err) ((md_cuda_absent)((entry), (err)), MD_ERR_UNSUPPORTED)
#endif
const char *md_cuda_error_name(CUresult result); /* "CUDA_ERROR_..."; never NULL */
/* The parameter block that a launch hands over in `extra`, and its size; NULL if it names none. Not owned. */
const void *md_cuda_extra_block(void **extra, size_t *size);
/* The node that the last call on a capturing stream made, or NULL if that cannot be determined. */
CUgraphNode md_cuda_captured_node(CUstream stream);

#endif
