/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of kernel launches and stream capture: which call made which node, and what is launched outside of graphs. */
#include "capture/hooks/hook.h"
#include "capture/record/given.h"
#include "capture/record/launched.h"
#include "capture/record/unset_words.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

/* ---- stream capture ---- */

static void before_first_capture(void)
{
	size_t free_bytes = 0, total;
	md_capture_lock();
	bool known = md_capture.free_before_capture != 0;
	md_capture_unlock();
	if (known || md_cuda.cuMemGetInfo_v2(&free_bytes, &total))
		return;
	md_capture_lock();
	md_capture.free_before_capture = free_bytes;
	md_capture_unlock();
}

#define STREAM_CAPTURE(suffix, which)                                                                                  \
	CUresult CUDAAPI cuStreamBeginCapture_v2##suffix(CUstream hStream, CUstreamCaptureMode mode)                   \
	MD_HOOK(cuStreamBeginCapture_v2##suffix, (hStream, mode), before_first_capture(),                              \
	        md_capture_stream_begun(which(hStream)))                                                               \
	CUresult CUDAAPI cuStreamBeginCaptureToGraph##suffix(CUstream hStream, CUgraph hGraph,                         \
	                                                     const CUgraphNode *dependencies,                          \
	                                                     const CUgraphEdgeData *data, size_t count,                \
	                                                     CUstreamCaptureMode mode)                                 \
	MD_HOOK(cuStreamBeginCaptureToGraph##suffix, (hStream, hGraph, dependencies, data, count, mode),               \
	        before_first_capture(), md_capture_stream_begun(which(hStream)))                                       \
	CUresult CUDAAPI cuStreamEndCapture##suffix(CUstream hStream, CUgraph *phGraph)                                \
	{                                                                                                              \
		bool recording = md_capture_enter();                                                                   \
		CUresult result = MD_REAL(cuStreamEndCapture##suffix, (hStream, phGraph));                             \
		if (recording) {                                                                                       \
			md_capture_stream_ending(which(hStream));                                                      \
			md_capture_leave();                                                                            \
		}                                                                                                      \
		return result;                                                                                         \
	}
STREAM_CAPTURE(, MD_AS_GIVEN)
STREAM_CAPTURE(_ptsz, md_hook_per_thread)

/* ---- launches: the hot path ---- */

static void launched(CUfunction func, CUstream stream, void **params, void **extra, const CUlaunchAttribute *attributes,
                     unsigned count)
{
	if (md_hook_in_capture(stream))
		return md_capture_node_note(stream, attributes, count);
	struct md_capture_layout layout = md_capture_launch_count(func);
	md_capture_unset_words_note(layout, params, extra);
	md_capture_given(layout, params, extra);
}

#define LAUNCHES(suffix, which)                                                                                        \
	CUresult CUDAAPI cuLaunchKernel##suffix(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,       \
	                                        unsigned int bx, unsigned int by, unsigned int bz,                     \
	                                        unsigned int shared, CUstream hStream, void **params, void **extra)    \
	MD_HOOK(cuLaunchKernel##suffix, (f, gx, gy, gz, bx, by, bz, shared, hStream, params, extra), MD_NOTHING,       \
	        launched(f, which(hStream), params, extra, NULL, 0))                                                                  \
	CUresult CUDAAPI cuLaunchKernelEx##suffix(const CUlaunchConfig *config, CUfunction f, void **params,           \
	                                          void **extra)                                                        \
	MD_HOOK(cuLaunchKernelEx##suffix, (config, f, params, extra), MD_NOTHING,                                      \
	        launched(f, which(config->hStream), params, extra, config->attrs, config->numAttrs))                                  \
	CUresult CUDAAPI cuLaunchCooperativeKernel##suffix(CUfunction f, unsigned int gx, unsigned int gy,             \
	                                                   unsigned int gz, unsigned int bx, unsigned int by,          \
	                                                   unsigned int bz, unsigned int shared, CUstream hStream,     \
	                                                   void **params)                                              \
	MD_HOOK(cuLaunchCooperativeKernel##suffix, (f, gx, gy, gz, bx, by, bz, shared, hStream, params), MD_NOTHING,   \
	        launched(f, which(hStream), params, NULL, &cooperative, 1))
static const CUlaunchAttribute cooperative = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = { .cooperative = 1 } };
LAUNCHES(, MD_AS_GIVEN)
LAUNCHES(_ptsz, md_hook_per_thread)

static void launched_each(const CUDA_LAUNCH_PARAMS *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		launched(list[i].function, list[i].hStream, list[i].kernelParams, NULL, &cooperative, 1);
}

CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
MD_HOOK(cuLaunchCooperativeKernelMultiDevice, (list, count, flags), MD_NOTHING, launched_each(list, count))

/* Parameters that were set by cuParamSet* cannot be read back: any of them may be any address. */
static void launched_somehow(CUfunction func)
{
	md_capture_launch_count(func);
	md_capture_given((struct md_capture_layout){.kernel = MD_NONE}, NULL, NULL);
}

CUresult CUDAAPI cuLaunch(CUfunction f)
MD_HOOK(cuLaunch, (f), MD_NOTHING, launched_somehow(f))

CUresult CUDAAPI cuLaunchGrid(CUfunction f, int width, int height)
MD_HOOK(cuLaunchGrid, (f, width, height), MD_NOTHING, launched_somehow(f))

CUresult CUDAAPI cuLaunchGridAsync(CUfunction f, int width, int height, CUstream hStream)
MD_HOOK(cuLaunchGridAsync, (f, width, height, hStream), MD_NOTHING, launched_somehow(f))
