/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the engine's own graphs in verify mode: they tell where its copy of unbound memory lies. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "restore/restore.h"
#include "restore/verify/live_parameters.h"

#define BYTES_MAX 65536u /* of a parameter block */

void md_verify_nodes_finish(struct md_live_nodes *nodes)
{
	for (uint32_t i = 0; i < nodes->count; i++)
		free(nodes->items[i].bytes);
	free(nodes->items);
	*nodes = (struct md_live_nodes){0};
}

/* Appends a node; NULL: out of memory. */
static struct md_live_node *add_node(struct md_live_nodes *nodes)
{
	if (!MD_ARRAY_GROW(nodes->items, nodes->count, nodes->room))
		return NULL;
	nodes->items[nodes->count] = (struct md_live_node){0};
	return &nodes->items[nodes->count++];
}

static bool keep(struct md_live_node *node, const void *bytes, size_t size)
{
	node->bytes = malloc(size ? size : 1);
	if (!node->bytes)
		return false;
	memcpy(node->bytes, bytes, size);
	node->size = (uint32_t)size;
	return true;
}

/* ---- kernels ---- */

static CUresult param_info(const CUDA_KERNEL_NODE_PARAMS *params, size_t index, size_t *offset, size_t *size)
{
	return params->func ? md_cuda.cuFuncGetParamInfo(params->func, index, offset, size)
			    : md_cuda.cuKernelGetParamInfo(params->kern, index, offset, size);
}

static bool keep_values(struct md_live_node *node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	MD_AUTO_FREE uint8_t *block = calloc(BYTES_MAX, 1);
	size_t offset, size, end = 0;
	if (!block)
		return false;
	for (size_t i = 0; param_info(params, i, &offset, &size) == CUDA_SUCCESS; i++) {
		if (offset > BYTES_MAX || size > BYTES_MAX - offset)
			return false;
		memcpy(block + offset, params->kernelParams[i], size);
		end = offset + size > end ? offset + size : end;
	}
	return keep(node, block, end);
}

static bool keep_extra(struct md_live_node *node, void **extra)
{
	size_t size;
	const void *block = md_cuda_extra_block(extra, &size);
	return block && size <= BYTES_MAX && keep(node, block, size);
}

static bool keep_kernel(CUgraphNode handle, struct md_live_node *node)
{
	CUDA_KERNEL_NODE_PARAMS params;
	memset(&params, 0, sizeof(params));
	if (md_cuda.cuGraphKernelNodeGetParams_v2(handle, &params) != CUDA_SUCCESS)
		return false;
	if (params.kernelParams)
		return keep_values(node, &params);
	return !params.extra || keep_extra(node, params.extra);
}

/* ---- the others, as pointers of artifacts name their bytes ---- */

static bool keep_copy(CUgraphNode handle, struct md_live_node *node)
{
	CUDA_MEMCPY3D params;
	memset(&params, 0, sizeof(params));
	if (md_cuda.cuGraphMemcpyNodeGetParams(handle, &params) != CUDA_SUCCESS)
		return false;
	const uint64_t ends[2] = {
	    params.srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)params.srcHost : params.srcDevice,
	    params.dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)params.dstHost : params.dstDevice};
	return keep(node, ends, sizeof(ends));
}

static bool keep_set(CUgraphNode handle, struct md_live_node *node)
{
	CUDA_MEMSET_NODE_PARAMS params;
	memset(&params, 0, sizeof(params));
	if (md_cuda.cuGraphMemsetNodeGetParams(handle, &params) != CUDA_SUCCESS)
		return false;
	const uint64_t to = params.dst;
	return keep(node, &to, sizeof(to));
}

static bool walk(struct md_live_nodes *nodes, CUgraph graph, unsigned depth);

/* The nodes of a child graph follow its node, as in an artifact. */
static bool walk_node(struct md_live_nodes *nodes, CUgraphNode handle, unsigned depth)
{
	struct md_live_node *node = add_node(nodes);
	CUgraphNodeType type;
	CUgraph child;
	if (!node || md_cuda.cuGraphNodeGetType(handle, &type) != CUDA_SUCCESS)
		return false;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return keep_kernel(handle, node);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return keep_copy(handle, node);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return keep_set(handle, node);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return depth < MD_CHILD_DEPTH_MAX && md_cuda.cuGraphChildGraphNodeGetGraph &&
		       md_cuda.cuGraphChildGraphNodeGetGraph(handle, &child) == CUDA_SUCCESS &&
		       walk(nodes, child, depth + 1);
	default:
		return true;
	}
}

static bool walk(struct md_live_nodes *nodes, CUgraph graph, unsigned depth)
{
	size_t count = 0;
	if (md_cuda.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count > UINT32_MAX / 2 - nodes->count)
		return false;
	MD_AUTO_FREE CUgraphNode *handles = calloc(count + 1, sizeof(CUgraphNode));
	if (!handles || (count && md_cuda.cuGraphGetNodes(graph, handles, &count) != CUDA_SUCCESS))
		return false;
	for (size_t i = 0; i < count; i++)
		if (!walk_node(nodes, handles[i], depth))
			return false;
	return true;
}

void md_verify_nodes_read(struct md_live_nodes *nodes, CUgraph graph)
{
	md_verify_nodes_finish(nodes);
	nodes->known = graph && walk(nodes, graph, 0);
}

enum md_status md_verify_nodes_find(const struct md_live_nodes *nodes, const struct md_artifact_graph *stored,
				    uint32_t alloc, uint64_t *start, struct md_error *err)
{
	*start = 0;
	if (!nodes->known || nodes->count != stored->node_count)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "the live graph's nodes cannot be read, or there are %" PRIu32
				    " of them where the artifact has %" PRIu32,
				    nodes->count, stored->node_count);
	for (uint32_t i = 0; i < stored->pointer_count; i++) {
		const struct md_pointer *pointer = &stored->pointers[i];
		const struct md_live_node *node = &nodes->items[pointer->node];
		uint64_t value;
		if (pointer->alloc != alloc || pointer->kind != MD_POINTER_PLAIN || pointer->at >= MD_ATTRIBUTES_AT)
			continue;
		if (pointer->at > node->size || node->size - pointer->at < sizeof(value))
			return md_error_set(err, MD_ERR_MISMATCH,
					    "node %" PRIu32 " has %" PRIu32
					    " bytes of parameters, a pointer at %" PRIu32,
					    pointer->node, node->size, pointer->at);
		memcpy(&value, node->bytes + pointer->at, sizeof(value));
		value -= (uint64_t)pointer->offset;
		if (*start && *start != value)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "node %" PRIu32 ", byte %" PRIu32
					    ": memory that was one allocation in the capture is not one here",
					    pointer->node, pointer->at);
		*start = value;
	}
	return *start
		   ? MD_OK
		   : md_error_set(err, MD_ERR_MISMATCH, "no parameter says where allocation %" PRIu32 " lies", alloc);
}
