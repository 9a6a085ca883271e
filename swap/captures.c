/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the gate which streams are being captured, because no thread may wait for the device meanwhile. */
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/memory_ordered.h"

/* Without a handle, the variants for the per-thread default stream mean that one. */
static CUstream own_default(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

static CUcontext context_of(CUstream stream)
{
	CUcontext context = NULL;
	bool handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
	if (!handle || !md_swap_real.cuStreamGetCtx || md_swap_real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
		md_swap_real.cuCtxGetCurrent(&context);
	return context;
}

static CUresult begun(CUresult result, CUstream stream)
{
	if (result == CUDA_SUCCESS)
		md_swap_gate_capture_begins(stream, context_of(stream));
	return result;
}

/* An invalidated capture ends with an error; only "was not capturing" changes nothing. */
static CUresult ended(CUresult result, CUstream stream)
{
	if (result != CUDA_ERROR_ILLEGAL_STATE)
		md_swap_gate_capture_ends(stream);
	return result;
}

CUresult md_swap_own_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	return begun(md_swap_real.cuStreamBeginCapture_v2(hStream, mode), hStream);
}

CUresult md_swap_own_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	return begun(md_swap_real.cuStreamBeginCapture_v2_ptsz(hStream, mode), own_default(hStream));
}

CUresult md_swap_own_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
						 const CUgraphEdgeData *dependencyData, size_t numDependencies,
						 CUstreamCaptureMode mode)
{
	return begun(md_swap_real.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
							      numDependencies, mode),
		     hStream);
}

CUresult md_swap_own_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
						      const CUgraphEdgeData *dependencyData, size_t numDependencies,
						      CUstreamCaptureMode mode)
{
	return begun(md_swap_real.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
								   numDependencies, mode),
		     own_default(hStream));
}

CUresult md_swap_own_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	return ended(md_swap_real.cuStreamEndCapture(hStream, phGraph), hStream);
}

CUresult md_swap_own_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	return ended(md_swap_real.cuStreamEndCapture_ptsz(hStream, phGraph), own_default(hStream));
}

CUresult md_swap_own_cuStreamDestroy_v2(CUstream hStream)
{
	md_swap_ordered_stream_gone(hStream);
	CUresult result = md_swap_real.cuStreamDestroy_v2(hStream);
	if (result == CUDA_SUCCESS)
		md_swap_gate_capture_ends(hStream);
	return result;
}
