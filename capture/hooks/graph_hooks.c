/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of launches, stream capture and graphs: which call made which node, and which graph became which executable. */
#include "capture/hooks/hook.h"
#include "capture/probe/poison_test.h"
#include "capture/record/allocs.h"
#include "capture/record/events.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/launched.h"
#include "capture/record/objects.h"
#include "capture/record/tensor_maps.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

/* ---- stream capture ---- */

static void before_first_capture(void)
{
	size_t free_bytes = 0, total;
	if (md_capture.free_before_capture || md_cuda.cuMemGetInfo_v2(&free_bytes, &total))
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
		md_capture_node_note(stream, attributes, count);
	else
		md_capture_given(md_capture_launch_count(func), params, extra);
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

/* ---- graphs ---- */

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph)
MD_HOOK(cuGraphDestroy, (hGraph), md_capture_graph_forget(hGraph), MD_NOTHING)

CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *params)
MD_HOOK(cuGraphKernelNodeSetParams_v2, (hNode, params), MD_NOTHING, md_capture_node_touched(hNode))

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *params)
MD_HOOK(cuGraphMemcpyNodeSetParams, (hNode, params), MD_NOTHING, md_capture_node_touched(hNode))

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *params)
MD_HOOK(cuGraphMemsetNodeSetParams, (hNode, params), MD_NOTHING, md_capture_node_touched(hNode))

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *params)
MD_HOOK(cuGraphNodeSetParams, (hNode, params), MD_NOTHING, md_capture_node_touched(hNode))

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode)
MD_HOOK(cuGraphDestroyNode, (hNode), md_capture_node_forget(hNode), MD_NOTHING)

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
MD_HOOK(cuGraphAddKernelNode_v2, (node, hGraph, dependencies, count, params), MD_NOTHING,
        md_capture_node_added(*node, NULL))

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_MEMCPY3D *params, CUcontext ctx)
MD_HOOK(cuGraphAddMemcpyNode, (node, hGraph, dependencies, count, params, ctx), MD_NOTHING,
        md_capture_node_added(*node, ctx))

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *node, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
                                      const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
MD_HOOK(cuGraphAddMemsetNode, (node, hGraph, dependencies, count, params, ctx), MD_NOTHING,
        md_capture_node_added(*node, ctx))

/* The context of a copy or set. A kernel node has its context in its parameters. */
static CUcontext context_of(const CUgraphNodeParams *params)
{
	return params->type == CU_GRAPH_NODE_TYPE_MEMSET   ? params->memset.ctx
	       : params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? params->memcpy.copyCtx
							   : NULL;
}

/* One call for nodes of every type. */
static void any_node_added(CUgraphNode node, const CUgraphNodeParams *params)
{
	md_capture_node_added(node, context_of(params));
	if (params->type == CU_GRAPH_NODE_TYPE_GRAPH && params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
		md_capture_child_added(node, params->graph.graph);
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		md_capture_alloc_note(MD_ALLOC_GRAPH, params->alloc.dptr, params->alloc.bytesize);
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
                                CUgraphNodeParams *params)
MD_HOOK(cuGraphAddNode, (node, hGraph, dependencies, count, params), MD_NOTHING, any_node_added(*node, params))

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *node, CUgraph hGraph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
MD_HOOK(cuGraphAddNode_v2, (node, hGraph, dependencies, data, count, params), MD_NOTHING, any_node_added(*node, params))

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph hGraph, unsigned long long flags)
MD_HOOK(cuGraphInstantiateWithFlags, (exec, hGraph, flags), md_capture_context_seen(),
        md_capture_graph_instantiated(hGraph, *exec, flags))

#define INSTANTIATE(suffix)                                                                                            \
	CUresult CUDAAPI cuGraphInstantiateWithParams##suffix(CUgraphExec *exec, CUgraph hGraph,                       \
	                                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)                   \
	MD_HOOK(cuGraphInstantiateWithParams##suffix, (exec, hGraph, params), md_capture_context_seen(),               \
	        md_capture_graph_instantiated(hGraph, *exec, params->flags))
INSTANTIATE()
INSTANTIATE(_ptsz)

CUresult CUDAAPI cuGraphClone(CUgraph *clone, CUgraph hGraph)
MD_HOOK(cuGraphClone, (clone, hGraph), MD_NOTHING, md_capture_graph_copied(hGraph, *clone))

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t count, CUgraph child)
MD_HOOK(cuGraphAddChildGraphNode, (node, hGraph, dependencies, count, child), MD_NOTHING,
        md_capture_child_added(*node, child))

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID id,
                                               const CUkernelNodeAttrValue *value)
MD_HOOK(cuGraphKernelNodeSetAttribute, (hNode, id, value), MD_NOTHING, md_capture_node_attribute(hNode, id, value))

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
MD_HOOK(cuGraphKernelNodeCopyAttributes, (dst, src), MD_NOTHING, md_capture_node_alike(dst, src))

/* Inside of a stream capture a launch makes a child graph node, and a probe would break the capture. */
static void graph_launching(CUgraphExec exec, CUstream stream)
{
	if (md_hook_in_capture(stream))
		return;
	md_capture_probe_exec(exec);
	md_capture_check_launch();
}

static void graph_launched(CUgraphExec exec, CUstream stream)
{
	if (md_hook_in_capture(stream))
		md_capture_graph_launched(exec, stream);
}

#define LAUNCH_GRAPH(suffix, which)                                                                                    \
	CUresult CUDAAPI cuGraphLaunch##suffix(CUgraphExec hGraph, CUstream hStream)                                   \
	MD_HOOK(cuGraphLaunch##suffix, (hGraph, hStream),                                                              \
	        (md_capture_graph_launching(hGraph, !md_hook_in_capture(which(hStream))), graph_launching(hGraph, which(hStream))),                         \
	        graph_launched(hGraph, which(hStream)))
LAUNCH_GRAPH(, MD_AS_GIVEN)
LAUNCH_GRAPH(_ptsz, md_hook_per_thread)

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec)
MD_HOOK(cuGraphExecDestroy, (hGraphExec),
        (md_capture_probe_leaving(hGraphExec), md_capture_exec_destroyed(hGraphExec)), MD_NOTHING)

/* ---- what kernels are handed by number ---- */

CUresult CUDAAPI cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                                   const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
MD_HOOK(cuTexObjectCreate, (object, resource, texture, view), MD_NOTHING, md_capture_texture_made(*object))

CUresult CUDAAPI cuTexObjectDestroy(CUtexObject object)
MD_HOOK(cuTexObjectDestroy, (object), md_capture_object_gone(object), MD_NOTHING)

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource)
MD_HOOK(cuSurfObjectCreate, (object, resource), MD_NOTHING, md_capture_surface_made(*object))

CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject object)
MD_HOOK(cuSurfObjectDestroy, (object), md_capture_object_gone(object), MD_NOTHING)

/* ---- events, as far as nodes of graphs use them; and tensor maps ---- */

/* In a stream capture, an event without a flag that makes it a node only shapes edges. */
static void used_on_stream(CUevent event, CUstream stream, const char *call)
{
	if (!md_hook_in_capture(stream))
		md_capture_event_used(event, call);
}

#define EVENTS(suffix, which)                                                                                          \
	CUresult CUDAAPI cuEventRecord##suffix(CUevent hEvent, CUstream hStream)                                       \
	MD_HOOK(cuEventRecord##suffix, (hEvent, hStream), MD_NOTHING,                                                  \
	        used_on_stream(hEvent, which(hStream), "cuEventRecord"))                                               \
	CUresult CUDAAPI cuEventRecordWithFlags##suffix(CUevent hEvent, CUstream hStream, unsigned int flags)          \
	MD_HOOK(cuEventRecordWithFlags##suffix, (hEvent, hStream, flags), MD_NOTHING,                                  \
	        used_on_stream(hEvent, which(hStream), "cuEventRecord"))                                               \
	CUresult CUDAAPI cuStreamWaitEvent##suffix(CUstream hStream, CUevent hEvent, unsigned int flags)               \
	MD_HOOK(cuStreamWaitEvent##suffix, (hStream, hEvent, flags), MD_NOTHING,                                       \
	        used_on_stream(hEvent, which(hStream), "cuStreamWaitEvent"))
EVENTS(, MD_AS_GIVEN)
EVENTS(_ptsz, md_hook_per_thread)

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
MD_HOOK(cuEventQuery, (hEvent), md_capture_event_used(hEvent, "cuEventQuery"), MD_NOTHING)

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent)
MD_HOOK(cuEventSynchronize, (hEvent), md_capture_event_used(hEvent, "cuEventSynchronize"), MD_NOTHING)

#define ELAPSED(symbol)                                                                                                \
	CUresult CUDAAPI symbol(float *ms, CUevent start, CUevent end)                                                 \
	MD_HOOK(symbol, (ms, start, end),                                                                              \
	        (md_capture_event_used(start, "cuEventElapsedTime"), md_capture_event_used(end, "cuEventElapsedTime")), \
	        MD_NOTHING)
ELAPSED(cuEventElapsedTime)
ELAPSED(cuEventElapsedTime_v2)

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent)
MD_HOOK(cuEventDestroy_v2, (hEvent), md_capture_event_destroyed(hEvent), MD_NOTHING)

CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
MD_HOOK(cuTensorMapReplaceAddress, (map, address), MD_NOTHING, md_capture_tensor_map(map))

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                        const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                        const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill)
MD_HOOK(cuTensorMapEncodeTiled,
        (map, type, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill), MD_NOTHING,
        md_capture_tensor_map(map))

CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                         const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                         const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                         const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                         CUtensorMapFloatOOBfill fill)
MD_HOOK(cuTensorMapEncodeIm2col,
        (map, type, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave, swizzle,
         promotion, fill), MD_NOTHING, md_capture_tensor_map(map))
