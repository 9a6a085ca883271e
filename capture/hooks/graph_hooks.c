/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of graphs: their nodes, the executables that are instantiated from them, and launches of these. */
#include "capture/hooks/hook.h"
#include "capture/probe/poison_test.h"
#include "capture/record/allocs.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/graphs.h"
#include "capture/record/launched.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

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
	md_capture_lock();
	md_capture_constants_launching(exec);
	md_capture_unlock();
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
