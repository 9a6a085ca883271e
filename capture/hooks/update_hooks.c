/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of calls that change an executable: their parameters are those that will be launched. */
#include <string.h>

#include "capture/hooks/hook.h"
#include "capture/record/updates.h"

/* clang-format off */ /* it takes a body that a macro makes for the next declaration's return type */

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *outcome)
MD_HOOK(cuGraphExecUpdate, (exec, graph, node, outcome), MD_NOTHING,
        md_capture_exec_updated(exec, graph, "cuGraphExecUpdate"))

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
MD_HOOK(cuGraphExecUpdate_v2, (exec, graph, info), MD_NOTHING,
        md_capture_exec_updated(exec, graph, "cuGraphExecUpdate"))

/* The two types have one layout; see md_capture_walk_change. */
static void kernel_changed(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	memcpy(&given.kernel, params, sizeof(*params));
	md_capture_exec_changed(exec, node, &given, "cuGraphExecKernelNodeSetParams");
}

static void memcpy_changed(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context)
{
	CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	given.memcpy.copyParams = *params;
	given.memcpy.copyCtx = context;
	md_capture_exec_changed(exec, node, &given, "cuGraphExecMemcpyNodeSetParams");
}

static void memset_changed(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	given.memset.dst = params->dst;
	given.memset.pitch = params->pitch;
	given.memset.value = params->value;
	given.memset.elementSize = params->elementSize;
	given.memset.width = params->width;
	given.memset.height = params->height;
	given.memset.ctx = context;
	md_capture_exec_changed(exec, node, &given, "cuGraphExecMemsetNodeSetParams");
}

static void event_changed(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, CUevent event, const char *call)
{
	CUgraphNodeParams given = {.type = type};
	given.eventRecord.event = event;
	md_capture_exec_changed(exec, node, &given, call);
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS *params)
MD_HOOK(cuGraphExecKernelNodeSetParams_v2, (exec, node, params), MD_NOTHING, kernel_changed(exec, node, params))

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                                CUcontext context)
MD_HOOK(cuGraphExecMemcpyNodeSetParams, (exec, node, params, context), MD_NOTHING,
        memcpy_changed(exec, node, params, context))

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
MD_HOOK(cuGraphExecMemsetNodeSetParams, (exec, node, params, context), MD_NOTHING,
        memset_changed(exec, node, params, context))

/* No call names the nodes of the child graph, and only the driver knows which is which. */
CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
MD_HOOK(cuGraphExecChildGraphNodeSetParams, (exec, node, child), MD_NOTHING,
        md_capture_exec_changed(exec, node, NULL, "cuGraphExecChildGraphNodeSetParams"))

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
MD_HOOK(cuGraphExecEventRecordNodeSetEvent, (exec, node, event), MD_NOTHING,
        event_changed(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, "cuGraphExecEventRecordNodeSetEvent"))

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
MD_HOOK(cuGraphExecEventWaitNodeSetEvent, (exec, node, event), MD_NOTHING,
        event_changed(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, "cuGraphExecEventWaitNodeSetEvent"))

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
MD_HOOK(cuGraphExecNodeSetParams, (exec, node, params), MD_NOTHING,
        md_capture_exec_changed(exec, node, params->type == CU_GRAPH_NODE_TYPE_GRAPH ? NULL : params,
                                "cuGraphExecNodeSetParams"))

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
MD_HOOK(cuGraphNodeSetEnabled, (exec, node, enabled), MD_NOTHING,
        md_capture_exec_switched(exec, node, enabled != 0, "cuGraphNodeSetEnabled"))
