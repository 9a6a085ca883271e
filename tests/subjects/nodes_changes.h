/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of nodes_subject.c that live off what lies in memory, and graphs that are changed by later calls. */
#ifndef TESTS_SUBJECTS_NODES_CHANGES_H
#define TESTS_SUBJECTS_NODES_CHANGES_H

#include "tests/subjects/nodes_subject.h"

/* ---- memory that must be as it was ---- */

/* Nothing but the first zero in it comes from outside of the graph. */
static CUgraph workspace(void)
{
	int32_t n = N;
	void *params[] = {&out, &in, &counter, &n};
	begin();
	TRY(cuLaunchKernel, counted, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

static CUgraph draw(CUdeviceptr *words)
{
	int32_t n = N;
	void *params[] = {&out, &words[0], &words[1], &n};
	begin();
	TRY(cuLaunchKernel, draws, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	return end();
}

static CUgraph random_bound(void)
{
	return draw(drawn);
}

static CUgraph random_unbound(void)
{
	return draw(drawn_unbound);
}

/* ---- calls that change what was captured ---- */

static void cleared(void)
{
	clear();
	launch(out, in, 2, stream);
}

/* Memory that was not there when the node was made. */
static CUgraph set_anew(void)
{
	CUDA_MEMSET_NODE_PARAMS params;
	CUgraph graph = captured(cleared);
	CUgraphNode nodes[2];
	CUdeviceptr late;
	size_t count = 2;
	TRY(cuMemAlloc_v2, &late, BYTES);
	TRY(cuGraphGetNodes, graph, nodes, &count);
	TRY(cuGraphMemsetNodeGetParams, nodes[0], &params);
	params.dst = late;
	TRY(cuGraphMemsetNodeSetParams, nodes[0], &params);
	return graph;
}

static CUgraphNode first_node(CUgraph graph)
{
	CUgraphNode nodes[8];
	size_t count = 8;
	TRY(cuGraphGetNodes, graph, nodes, &count);
	return nodes[0];
}

static CUgraph steps(void)
{
	return captured(two_steps);
}

static void change_memset(CUgraphExec exec, CUgraph graph)
{
	CUDA_MEMSET_NODE_PARAMS params;
	TRY(cuGraphMemsetNodeGetParams, first_node(graph), &params);
	params.value = 1;
	TRY(cuGraphExecMemsetNodeSetParams, exec, first_node(graph), &params, context);
}

static void change_memcpy(CUgraphExec exec, CUgraph graph)
{
	CUDA_MEMCPY3D params;
	TRY(cuGraphMemcpyNodeGetParams, first_node(graph), &params);
	params.WidthInBytes /= 2;
	TRY(cuGraphExecMemcpyNodeSetParams, exec, first_node(graph), &params, context);
}

static void disable(CUgraphExec exec, CUgraph graph)
{
	TRY(cuGraphNodeSetEnabled, exec, first_node(graph), 0);
}

static void disable_twice(CUgraphExec exec, CUgraph graph)
{
	disable(exec, graph);
	TRY(cuGraphNodeSetEnabled, exec, first_node(graph), 1);
}

/* The kernel behind the memset: it reads memory that was not there when its node was made, and has another factor. */
static CUgraphNode last_node(CUgraph graph)
{
	CUgraphNode nodes[8];
	size_t count = 8;
	TRY(cuGraphGetNodes, graph, nodes, &count);
	return nodes[count - 1];
}

static void change_kernel(CUgraphExec exec, CUgraph graph)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUdeviceptr late;
	float factor = 7;
	TRY(cuMemAlloc_v2, &late, BYTES);
	TRY(cuMemsetD32_v2, late, 0x3fc00000, N); /* 1.5f, which nobody binds */
	TRY(cuCtxSynchronize);
	TRY(cuGraphKernelNodeGetParams_v2, last_node(graph), &params);
	void *values[] = {params.kernelParams[0], &late, &factor, params.kernelParams[3]};
	params.kernelParams = values;
	TRY(cuGraphExecKernelNodeSetParams_v2, exec, last_node(graph), &params);
}

static void change_any(CUgraphExec exec, CUgraph graph)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	float factor = 5;
	TRY(cuGraphKernelNodeGetParams_v2, last_node(graph), &params);
	void *values[] = {params.kernelParams[0], params.kernelParams[1], &factor, params.kernelParams[3]};
	params.kernelParams = values;
	memcpy(&given.kernel, &params, sizeof(params));
	TRY(cuGraphExecNodeSetParams, exec, last_node(graph), &given);
}

static CUgraph clear_and_launch(void)
{
	return captured(cleared);
}

/* As llama.cpp does it: an update to what it is already. */
static void update_idly(CUgraphExec exec, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;
	TRY(cuGraphExecUpdate_v2, exec, graph, &info);
}

static void cleared_thrice(void)
{
	clear();
	launch(out, in, 3, stream);
}

static void update_wholly(CUgraphExec exec, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph other = captured(cleared_thrice);
	(void)graph;
	TRY(cuGraphExecUpdate_v2, exec, other, &info);
	TRY(cuGraphDestroy, other);
}

/* An update that the driver refuses leaves everything as it was. */
static void update_in_vain(CUgraphExec exec, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph other = captured(two_steps);
	(void)graph;
	if (md_cuda.cuGraphExecUpdate_v2(exec, other, &info) == CUDA_SUCCESS)
		fprintf(stderr, "updated to another topology\n");
	TRY(cuGraphDestroy, other);
}

static CUgraph one_event(void)
{
	CUgraph graph;
	CUgraphNode nodes[2];
	TRY(cuGraphCreate, &graph, 0);
	TRY(cuGraphAddEventRecordNode, &nodes[0], graph, NULL, 0, own_one);
	TRY(cuGraphAddEventWaitNode, &nodes[1], graph, &nodes[0], 1, own_one);
	return graph;
}

static void change_event(CUgraphExec exec, CUgraph graph)
{
	TRY(cuGraphExecEventRecordNodeSetEvent, exec, first_node(graph), engines);
}

static CUgraph one_wait(void)
{
	CUgraph graph;
	CUgraphNode node;
	TRY(cuGraphCreate, &graph, 0);
	TRY(cuGraphAddEventWaitNode, &node, graph, NULL, 0, own_two);
	return graph;
}

static void change_wait(CUgraphExec exec, CUgraph graph)
{
	TRY(cuGraphExecEventWaitNodeSetEvent, exec, first_node(graph), own_two);
}

#endif
