/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA runtime in small: what it takes of the driver, and the way that it is asked for. */
#ifndef MD_TESTS_DOORS_RUNTIME_H
#define MD_TESTS_DOORS_RUNTIME_H

#include <cuda.h>

/* cuda.h has the prototype of the newest version alone. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

/* RT(symbol, name that cuGetProcAddress is asked for, version) */
#define RT_LIST                                                                                                        \
	RT(cuInit, cuInit, 2000)                                                                                       \
	RT(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                                                   \
	RT(cuCtxCreate_v2, cuCtxCreate, 3020)                                                                          \
	RT(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                                                     \
	RT(cuStreamCreate, cuStreamCreate, 2000)                                                                       \
	RT(cuStreamSynchronize, cuStreamSynchronize, 7000)                                                             \
	RT(cuMemAlloc_v2, cuMemAlloc, 3020)                                                                            \
	RT(cuMemsetD8_v2, cuMemsetD8, 3020)                                                                            \
	RT(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020)                                                              \
	RT(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020)                                                              \
	RT(cuModuleLoad, cuModuleLoad, 2000)                                                                           \
	RT(cuModuleGetFunction, cuModuleGetFunction, 2000)                                                             \
	RT(cuLaunchKernel, cuLaunchKernel, 4000)                                                                       \
	RT(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010)                                                       \
	RT(cuStreamEndCapture, cuStreamEndCapture, 10000)                                                              \
	RT(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)                                            \
	RT(cuGraphDestroy, cuGraphDestroy, 10000)                                                                      \
	RT(cuGraphLaunch, cuGraphLaunch, 10000)

struct rt {
#define RT(symbol, base, version) __typeof__(symbol) *symbol;
	RT_LIST
#undef RT
};

/* NULL, or the first name that was not found. flags: as for cuGetProcAddress. */
const char *rt_open(struct rt *rt, cuuint64_t flags);

#endif
