/* SPDX-License-Identifier: Apache-2.0 */
/* Walks graphs when they are instantiated or updated, and keeps the words of their nodes that may be addresses. */
#include "swap/graph_words.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/child.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/map.h"
#include "swap/between.h"
#include "swap/kernel_words.h"
#include "swap/layer.h"
#include "swap/reach.h"

#define LEAST_ADDRESS ((uint64_t)1 << 16)
#define ADDRESS_END ((uint64_t)1 << 57)
#define NESTED_MOST 32u

struct words {
	struct md_map set; /* word -> 1 if it lies at a multiple of 8 */
	bool anything;     /* the graph may touch anything */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct md_map known MD_GUARDED_BY(lock); /* CUgraphExec -> struct words * */

static void destroy(struct words *words)
{
	if (words)
		md_map_finish(&words->set);
	free(words);
}

/* ---- walking ---- */

static void add_word(struct words *words, uint64_t word, bool aligned)
{
	uint64_t before = 0;
	if (word < LEAST_ADDRESS || word >= ADDRESS_END)
		return;
	md_map_get(&words->set, word, &before);
	if (!md_map_put(&words->set, word, before || aligned))
		words->anything = true;
}

/* Kernels may give such a node other parameters. A driver that does not know the attribute has no such nodes. */
static bool is_updatable(CUgraphNode node)
{
	CUlaunchAttributeValue value = {0};
	return md_swap_real.cuGraphKernelNodeGetAttribute &&
	       md_swap_real.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
							  &value) == CUDA_SUCCESS &&
	       value.deviceUpdatableKernelNode.deviceUpdatable;
}

static void add_kernel(struct words *words, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS params = {0};
	uint8_t bytes[MD_SWAP_PARAMETERS_MOST];
	size_t size;
	if (is_updatable(node) || md_swap_real.cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS ||
	    !md_swap_kernel_parameters(params.func ? params.func : (CUfunction)params.kern, params.kernelParams,
				       params.extra, bytes, &size)) {
		words->anything = true;
		return;
	}
	for (size_t at = 0; at + 8 <= size; at += 4) {
		uint64_t word;
		memcpy(&word, bytes + at, sizeof(word));
		add_word(words, word, at % 8 == 0);
	}
}

/* Host memory at the time of the launch cannot be known here. */
static void add_copy(struct words *words, CUgraphNode node)
{
	CUDA_MEMCPY3D params = {0};
	if (md_swap_real.cuGraphMemcpyNodeGetParams(node, &params) != CUDA_SUCCESS ||
	    params.srcMemoryType != CU_MEMORYTYPE_DEVICE ||
	    (params.dstMemoryType != CU_MEMORYTYPE_DEVICE && params.dstMemoryType != CU_MEMORYTYPE_HOST)) {
		words->anything = true;
		return;
	}
	add_word(words, params.srcDevice, true);
	if (params.dstMemoryType == CU_MEMORYTYPE_DEVICE)
		add_word(words, params.dstDevice, true);
}

static void add_set(struct words *words, CUgraphNode node)
{
	CUDA_MEMSET_NODE_PARAMS params = {0};
	if (md_swap_real.cuGraphMemsetNodeGetParams(node, &params) != CUDA_SUCCESS)
		words->anything = true;
	else
		add_word(words, params.dst, true);
}

static void add_graph(struct words *words, CUgraph graph, unsigned depth);

static void add_child(struct words *words, CUgraphNode node, unsigned depth)
{
	CUgraph child;
	if (depth == NESTED_MOST || !md_swap_real.cuGraphChildGraphNodeGetGraph ||
	    md_swap_real.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
		words->anything = true;
	else
		add_graph(words, child, depth + 1);
}

static void add_node(struct words *words, CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type;
	if (md_swap_real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
		words->anything = true;
		return;
	}
	switch ((int)type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		add_kernel(words, node);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		add_copy(words, node);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		add_set(words, node);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		add_child(words, node, depth);
		break;
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		break;
	default:
		words->anything = true;
	}
}

static void add_graph(struct words *words, CUgraph graph, unsigned depth)
{
	size_t count = 0;
	CUresult result = md_swap_real.cuGraphGetNodes(graph, NULL, &count);
	CUgraphNode *nodes = calloc(count + 1, sizeof(*nodes));
	if (result == CUDA_SUCCESS && nodes && count)
		result = md_swap_real.cuGraphGetNodes(graph, nodes, &count);
	if (result != CUDA_SUCCESS || !nodes)
		words->anything = true;
	for (size_t i = 0; nodes && i < count && !words->anything; i++)
		add_node(words, nodes[i], depth);
	free(nodes);
}

/* ---- what is known ---- */

static void keep(CUgraphExec exec, struct words *words)
{
	uint64_t before = 0;
	uint64_t key = (uint64_t)(uintptr_t)exec;
	pthread_mutex_lock(&lock);
	md_map_remove(&known, key, &before);
	if (words && !md_map_put(&known, key, (uint64_t)(uintptr_t)words)) {
		destroy(words);
		words = NULL;
	}
	pthread_mutex_unlock(&lock);
	destroy((struct words *)(uintptr_t)before);
}

/* Only where it may be asked for, since the walk takes time. What is not known may touch anything. */
static void learn(CUgraphExec exec, CUgraph graph)
{
	struct words *words = md_swap_prepares_overlap() ? calloc(1, sizeof(*words)) : NULL;
	if (words) {
		md_map_init(&words->set);
		add_graph(words, graph, 0);
	}
	keep(exec, words);
}

void md_swap_graphs_forget(void)
{
	uint64_t exec, words;
	size_t cursor = 0;
	pthread_mutex_lock(&lock);
	while (md_map_next(&known, &cursor, &exec, &words))
		destroy((struct words *)(uintptr_t)words);
	md_map_finish(&known);
	md_map_init(&known);
	pthread_mutex_unlock(&lock);
}

void md_swap_graph_wish(CUgraphExec exec)
{
	uint64_t found = 0, word, aligned;
	size_t cursor = 0;
	pthread_mutex_lock(&lock);
	md_map_get(&known, (uint64_t)(uintptr_t)exec, &found);
	const struct words *words = (const struct words *)(uintptr_t)found;
	if (!words || words->anything)
		md_swap_wish_all("it is a graph whose nodes cannot all be searched for addresses");
	else
		while (md_map_next(&words->set, &cursor, &word, &aligned))
			md_swap_wish_word(word, aligned);
	pthread_mutex_unlock(&lock);
}

/* ---- calls ---- */

/* Graphs that kernels launch themselves are not seen. */
static CUresult learned(CUresult result, const CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (result != CUDA_SUCCESS)
		return result;
	learn(*exec, graph);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		md_swap_reach_hide();
	return result;
}

CUresult md_swap_own_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	return learned(md_swap_real.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags), phGraphExec, hGraph,
		       flags);
}

CUresult md_swap_own_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
						  CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult result = md_swap_real.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
	return learned(result, phGraphExec, hGraph, result ? 0 : instantiateParams->flags);
}

CUresult md_swap_own_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
						       CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult result = md_swap_real.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams);
	return learned(result, phGraphExec, hGraph, result ? 0 : instantiateParams->flags);
}

CUresult md_swap_own_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	keep(hGraphExec, NULL);
	return md_swap_real.cuGraphExecDestroy(hGraphExec);
}

/* Done whether the update succeeded or not, because half of it may have been made. */
static CUresult updated(CUresult result, CUgraphExec exec, CUgraph graph)
{
	if (result == CUDA_SUCCESS)
		learn(exec, graph);
	else
		keep(exec, NULL);
	return result;
}

CUresult md_swap_own_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
				       CUgraphExecUpdateResult *updateResult_out)
{
	return updated(md_swap_real.cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out), hGraphExec,
		       hGraph);
}

CUresult md_swap_own_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
					  CUgraphExecUpdateResultInfo *resultInfo)
{
	return updated(md_swap_real.cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo), hGraphExec, hGraph);
}

/* When a single node of an executable is changed, the graph may touch anything from then on. */
CUresult md_swap_own_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
						       const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	keep(hGraphExec, NULL);
	return md_swap_real.cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams);
}

CUresult md_swap_own_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						    const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUresult result = md_swap_between_node(copyParams, ctx);
	if (result != CUDA_SUCCESS)
		return result;
	keep(hGraphExec, NULL);
	return md_swap_real.cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx);
}

CUresult md_swap_own_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						    const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	keep(hGraphExec, NULL);
	return md_swap_real.cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx);
}

CUresult md_swap_own_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	keep(hGraphExec, NULL);
	return md_swap_real.cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph);
}

CUresult md_swap_own_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUresult result = nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY
			      ? md_swap_between_node(&nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx)
			      : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	keep(hGraphExec, NULL);
	return md_swap_real.cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams);
}

/* The child has none of the driver's objects. */
static void renew(void)
{
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}
