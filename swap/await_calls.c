/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each call waits for while memory is on its way. A call that is being captured waits for nothing. And what may not be
 * written, because other engines have it.
 */
#include "swap/arrival.h"
#include "swap/gate.h"
#include "swap/graph_words.h"
#include "swap/kernel_words.h"
#include "swap/layer.h"
#include "swap/merge.h"
#include "swap/reach.h"

/* Without a handle, the variants for the per-thread default stream mean that one. */
static CUstream own_default(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

static bool any_comes(void)
{
	return atomic_load_explicit(&md_swap_arriving, memory_order_relaxed) != 0;
}

static bool is_captured(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	return md_swap_gate_captures() && md_swap_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- kernels and graphs ---- */

static CUresult launch(CUfunction function, void **params, void **extra, CUstream stream)
{
	if (!any_comes() || is_captured(stream))
		return CUDA_SUCCESS;
	md_swap_wish_begin();
	md_swap_kernel_wish(function, params, extra);
	return md_swap_wish_await(stream, true);
}

CUresult md_swap_await_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
				      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
				      unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	(void)gridDimX, (void)gridDimY, (void)gridDimZ, (void)blockDimX, (void)blockDimY, (void)blockDimZ;
	(void)sharedMemBytes;
	return launch(f, kernelParams, extra, hStream);
}

CUresult md_swap_await_cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
					   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
					   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
					   void **kernelParams, void **extra)
{
	(void)gridDimX, (void)gridDimY, (void)gridDimZ, (void)blockDimX, (void)blockDimY, (void)blockDimZ;
	(void)sharedMemBytes;
	return launch(f, kernelParams, extra, own_default(hStream));
}

CUresult md_swap_await_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	return config ? launch(f, kernelParams, extra, config->hStream) : CUDA_SUCCESS;
}

CUresult md_swap_await_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
					     void **extra)
{
	return config ? launch(f, kernelParams, extra, own_default(config->hStream)) : CUDA_SUCCESS;
}

CUresult md_swap_await_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
						 unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
						 unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
						 void **kernelParams)
{
	(void)gridDimX, (void)gridDimY, (void)gridDimZ, (void)blockDimX, (void)blockDimY, (void)blockDimZ;
	(void)sharedMemBytes;
	return launch(f, kernelParams, NULL, hStream);
}

CUresult md_swap_await_cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
						      unsigned int gridDimZ, unsigned int blockDimX,
						      unsigned int blockDimY, unsigned int blockDimZ,
						      unsigned int sharedMemBytes, CUstream hStream,
						      void **kernelParams)
{
	(void)gridDimX, (void)gridDimY, (void)gridDimZ, (void)blockDimX, (void)blockDimY, (void)blockDimZ;
	(void)sharedMemBytes;
	return launch(f, kernelParams, NULL, own_default(hStream));
}

static CUresult launch_graph(CUgraphExec graph, CUstream stream)
{
	if (!any_comes() || is_captured(stream))
		return CUDA_SUCCESS;
	md_swap_wish_begin();
	md_swap_graph_wish(graph);
	return md_swap_wish_await(stream, true);
}

CUresult md_swap_await_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	return launch_graph(hGraph, hStream);
}

CUresult md_swap_await_cuGraphLaunch_ptsz(CUgraphExec hGraph, CUstream hStream)
{
	return launch_graph(hGraph, own_default(hStream));
}

/* ---- copies ---- */

/* The bytes that are read may be addresses, which a kernel follows at the place to which they are copied. */
static void wish_copy(uint64_t to, uint64_t from, size_t bytes)
{
	md_swap_wish_begin();
	md_swap_wish_range(to, bytes, false);
	md_swap_wish_source(from, bytes, to);
}

static CUresult copy(uint64_t to, uint64_t from, size_t bytes, CUstream stream)
{
	CUresult result = md_swap_merge_store(to, bytes);
	if (result != CUDA_SUCCESS || !any_comes() || is_captured(stream))
		return result;
	wish_copy(to, from, bytes);
	return md_swap_wish_await(stream, false);
}

static CUresult copy_now(uint64_t to, uint64_t from, size_t bytes)
{
	CUresult result = md_swap_merge_store(to, bytes);
	if (result != CUDA_SUCCESS || !any_comes())
		return result;
	wish_copy(to, from, bytes);
	return md_swap_wish_block();
}

#define COPY_NOW(symbol, to_type, from_type)                                                                           \
	CUresult md_swap_await_##symbol(to_type to, from_type from, size_t bytes)                                      \
	{                                                                                                              \
		return copy_now((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes);                            \
	}
#define COPIES_NOW(symbol, to_type, from_type)                                                                         \
	COPY_NOW(symbol, to_type, from_type)                                                                           \
	COPY_NOW(symbol##_ptds, to_type, from_type)
#define COPIES(symbol, to_type, from_type)                                                                             \
	CUresult md_swap_await_##symbol(to_type to, from_type from, size_t bytes, CUstream stream)                     \
	{                                                                                                              \
		return copy((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes, stream);                        \
	}                                                                                                              \
	CUresult md_swap_await_##symbol##_ptsz(to_type to, from_type from, size_t bytes, CUstream stream)              \
	{                                                                                                              \
		return copy((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes, own_default(stream));           \
	}
COPIES_NOW(cuMemcpy, CUdeviceptr, CUdeviceptr)
COPIES_NOW(cuMemcpyHtoD_v2, CUdeviceptr, const void *)
COPIES_NOW(cuMemcpyDtoH_v2, void *, CUdeviceptr)
COPIES_NOW(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr)
COPIES(cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
COPIES(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
COPIES(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
COPIES(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)

CUresult md_swap_await_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
					 CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	(void)dstContext, (void)srcContext;
	return copy(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult md_swap_await_cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
					      CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	(void)dstContext, (void)srcContext;
	return copy(dstDevice, srcDevice, ByteCount, own_default(hStream));
}

/* ---- sets ---- */

static CUresult set(uint64_t to, size_t count, size_t element, CUstream stream)
{
	CUresult result = md_swap_merge_store(to, count * element);
	if (result != CUDA_SUCCESS || !any_comes() || is_captured(stream))
		return result;
	md_swap_wish_begin();
	md_swap_wish_range(to, count * element, false);
	return md_swap_wish_await(stream, false);
}

static CUresult set_now(uint64_t to, size_t count, size_t element)
{
	CUresult result = md_swap_merge_store(to, count * element);
	if (result != CUDA_SUCCESS || !any_comes())
		return result;
	md_swap_wish_begin();
	md_swap_wish_range(to, count * element, false);
	return md_swap_wish_block();
}

#define SETS(symbol, type)                                                                                             \
	CUresult md_swap_await_##symbol##_v2(CUdeviceptr to, type value, size_t count)                                 \
	{                                                                                                              \
		(void)value;                                                                                           \
		return set_now(to, count, sizeof(type));                                                               \
	}                                                                                                              \
	CUresult md_swap_await_##symbol##_v2_ptds(CUdeviceptr to, type value, size_t count)                            \
	{                                                                                                              \
		(void)value;                                                                                           \
		return set_now(to, count, sizeof(type));                                                               \
	}                                                                                                              \
	CUresult md_swap_await_##symbol##Async(CUdeviceptr to, type value, size_t count, CUstream stream)              \
	{                                                                                                              \
		(void)value;                                                                                           \
		return set(to, count, sizeof(type), stream);                                                           \
	}                                                                                                              \
	CUresult md_swap_await_##symbol##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream)         \
	{                                                                                                              \
		(void)value;                                                                                           \
		return set(to, count, sizeof(type), own_default(stream));                                              \
	}
SETS(cuMemsetD8, unsigned char)
SETS(cuMemsetD16, unsigned short)
SETS(cuMemsetD32, unsigned int)

/* ---- host functions ---- */

static CUresult host_function(CUstream stream)
{
	if (any_comes() && !is_captured(stream))
		md_swap_reach_unsteady();
	return CUDA_SUCCESS;
}

CUresult md_swap_await_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	(void)fn, (void)userData;
	return host_function(hStream);
}

CUresult md_swap_await_cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	(void)fn, (void)userData;
	return host_function(own_default(hStream));
}

CUresult md_swap_await_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
					   unsigned int flags)
{
	(void)callback, (void)userData, (void)flags;
	return host_function(hStream);
}

CUresult md_swap_await_cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
						unsigned int flags)
{
	(void)callback, (void)userData, (void)flags;
	return host_function(own_default(hStream));
}
