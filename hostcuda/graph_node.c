/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of graph nodes: parameters of each type (set, read, changed, copied), and attributes of kernel nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "hostcuda/context.h"
#include "hostcuda/copy.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/graph.h"
#include "hostcuda/graph_node.h"
#include "hostcuda/launch.h"
#include "hostcuda/memory.h"
#include "hostcuda/module_image.h"
#include "hostcuda/node_fault.h"
#include "hostcuda/stream_capture.h"

static struct hc_node *node_of(CUgraphNode handle, CUgraphNodeType type)
{
	struct hc_node *node = hc_handle_kind(handle) == HC_NODE ? (struct hc_node *)handle : NULL;
	return node && node->type == type ? node : NULL;
}

/* ---- kernel nodes ---- */
/* Makes the argument pointers (or the `extra` list) point into the node's own copy. */
static CUresult point_arguments(struct hc_node_kernel *kernel)
{
	const struct hc_symbol *symbol = kernel->launch.symbol;
	free(kernel->kernel_params);
	kernel->kernel_params = NULL;
	if (kernel->from_extra) {
		kernel->extra_size = kernel->launch.given;
		void *list[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kernel->launch.params, CU_LAUNCH_PARAM_BUFFER_SIZE,
				 &kernel->extra_size, CU_LAUNCH_PARAM_END};
		memcpy(kernel->extra, list, sizeof(list));
		return CUDA_SUCCESS;
	}
	kernel->kernel_params = calloc(symbol->param_count + 1u, sizeof(void *));
	if (!kernel->kernel_params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < symbol->param_count; i++)
		kernel->kernel_params[i] = kernel->launch.params + symbol->params[i].offset;
	return CUDA_SUCCESS;
}

CUresult hc_node_set_kernel(struct hc_node *node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	const unsigned grid[3] = {params->gridDimX, params->gridDimY, params->gridDimZ};
	const unsigned block[3] = {params->blockDimX, params->blockDimY, params->blockDimZ};
	CUfunction handle = params->func ? params->func : (CUfunction)params->kern;
	struct hc_launch launch;
	struct hc_function *function;
	HC_TRY(hc_launch_make(handle, grid, block, params->sharedMemBytes, params->kernelParams, params->extra, &launch,
			      &function));
	struct hc_node_kernel *kernel = &node->kernel;
	hc_launch_finish(&kernel->launch);
	kernel->launch = launch;
	kernel->func = handle; /* the handle as it was given, which may be a CUkernel */
	kernel->kern = (CUkernel)function->kernel;
	kernel->ctx = (CUcontext)function->module->context;
	kernel->from_extra = params->extra != NULL;
	return point_arguments(kernel);
}

static CUresult copy_kernel(struct hc_node_kernel *to, const struct hc_node_kernel *from)
{
	size_t bytes = from->launch.symbol->params_size + 1u;
	*to = *from;
	to->kernel_params = NULL;
	to->attributes = NULL;
	to->attribute_count = 0;
	hc_image_ref(to->launch.image);
	to->launch.params = malloc(bytes);
	if (!to->launch.params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(to->launch.params, from->launch.params, bytes);
	if (from->attribute_count) {
		to->attributes = malloc(from->attribute_count * sizeof(*to->attributes));
		if (!to->attributes)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(to->attributes, from->attributes, from->attribute_count * sizeof(*to->attributes));
		to->attribute_count = from->attribute_count;
	}
	return point_arguments(to);
}

CUresult hc_node_copy_content(struct hc_node *to, const struct hc_node *from)
{
	switch (from->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return copy_kernel(&to->kernel, &from->kernel);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		HC_TRY(hc_graph_copy(from->child, &to->child));
		to->child->borrowed = true;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		to->memcpy = from->memcpy;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		to->memset = from->memset;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		to->host = from->host;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		to->event = from->event;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		to->address = from->address;
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

void hc_node_clear_content(struct hc_node *node)
{
	if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		hc_launch_finish(&node->kernel.launch);
		free(node->kernel.kernel_params);
		free(node->kernel.attributes);
		node->kernel = (struct hc_node_kernel){0};
	} else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		hc_graph_free(node->child);
		node->child = NULL;
	}
}

CUresult hc_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_KERNEL);
	if (!node || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	const struct hc_node_kernel *kernel = &node->kernel;
	const struct hc_launch *launch = &kernel->launch;
	*nodeParams = (CUDA_KERNEL_NODE_PARAMS){.func = kernel->func,
						.gridDimX = launch->grid[0],
						.gridDimY = launch->grid[1],
						.gridDimZ = launch->grid[2],
						.blockDimX = launch->block[0],
						.blockDimY = launch->block[1],
						.blockDimZ = launch->block[2],
						.sharedMemBytes = launch->shared,
						.kernelParams = kernel->kernel_params,
						.extra = kernel->from_extra ? node->kernel.extra : NULL,
						.kern = kernel->kern,
						.ctx = kernel->ctx};
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_KERNEL);
	return node && nodeParams ? hc_node_set_kernel(node, nodeParams) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- attributes ---- */
static CUlaunchAttribute *find_attribute(const struct hc_node *node, CUlaunchAttributeID id)
{
	for (size_t i = 0; i < node->kernel.attribute_count; i++)
		if (node->kernel.attributes[i].id == id)
			return &node->kernel.attributes[i];
	return NULL;
}

bool hc_node_set_attribute(struct hc_node *node, const CUlaunchAttribute *attribute)
{
	CUlaunchAttribute *slot = find_attribute(node, attribute->id);
	if (!slot) {
		struct hc_node_kernel *kernel = &node->kernel;
		if (!MD_ARRAY_EXTEND(kernel->attributes, kernel->attribute_count))
			return false;
		slot = &kernel->attributes[kernel->attribute_count++];
		memset(slot, 0, sizeof(*slot));
	}
	slot->id = attribute->id;
	slot->value = attribute->value;
	return true;
}

static bool is_node_attribute(CUlaunchAttributeID id)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return true;
	default:
		return false;
	}
}

/* Two attributes have a default that is not zero. */
bool hc_node_tell_attribute(const struct hc_node *node, CUlaunchAttributeID id, CUlaunchAttributeValue *value)
{
	const CUlaunchAttribute *set = find_attribute(node, id);
	if (!is_node_attribute(id))
		return false;
	memset(value, 0, sizeof(*value));
	if (set)
		*value = set->value;
	else if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
		value->memSyncDomainMap.remote = 1;
	else if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
		value->sharedMemCarveout = (unsigned)-1;
	return true;
}

/*
 * An attribute that a node can only get from a captured launch: it can be neither read nor set, as with a real driver.
 */
static bool is_launchs_alone(CUlaunchAttributeID id)
{
	return id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
}

static bool is_named(const char *variable, CUlaunchAttributeID id)
{
	const char *named = secure_getenv(variable);
	return named && (int)id == atoi(named);
}

/* HOSTCUDA_UNREADABLE=ID: like a driver that accepts this attribute and cannot report it. */
CUresult hc_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_KERNEL);
	if (!node || !value_out || is_launchs_alone(attr) || is_named("HOSTCUDA_UNREADABLE", attr))
		return CUDA_ERROR_INVALID_VALUE;
	return hc_node_tell_attribute(node, attr, value_out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* HOSTCUDA_SETTABLE=ID: like a driver that lets this attribute be set, which others take from launches only. */
CUresult hc_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
					  const CUkernelNodeAttrValue *value)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_KERNEL);
	if (!node || !value || !is_node_attribute(attr) ||
	    (is_launchs_alone(attr) && !is_named("HOSTCUDA_SETTABLE", attr)))
		return CUDA_ERROR_INVALID_VALUE;
	CUlaunchAttribute attribute = {.id = attr, .value = *value};
	if (hc_node_fault("attribute"))
		return CUDA_SUCCESS;
	return hc_node_set_attribute(node, &attribute) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hc_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	HC_STATE_GUARD();
	struct hc_node *to = node_of(dst, CU_GRAPH_NODE_TYPE_KERNEL), *from = node_of(src, CU_GRAPH_NODE_TYPE_KERNEL);
	if (!to || !from)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; to != from && i < from->kernel.attribute_count; i++)
		if (!hc_node_set_attribute(to, &from->kernel.attributes[i]))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

/* ---- adding nodes ---- */
struct adding {
	CUgraphNode *out;
	struct hc_node *node;
};

static CUresult add_begin(struct adding *adding, CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies,
			  size_t count, CUgraphNodeType type)
{
	if (!out || hc_handle_kind(hGraph) != HC_GRAPH || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (hc_handle_kind(dependencies[i]) != HC_NODE ||
		    ((struct hc_node *)dependencies[i])->graph != (struct hc_graph *)hGraph)
			return CUDA_ERROR_INVALID_VALUE;
	adding->out = out;
	HC_TRY(hc_node_new((struct hc_graph *)hGraph, type, &adding->node));
	for (size_t i = 0; i < count; i++) {
		if (hc_front_add(&adding->node->from, (struct hc_node *)dependencies[i], NULL))
			continue;
		hc_node_free(adding->node);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Adds the node to its graph if its contents were valid; otherwise frees it. */
static CUresult add_end(struct adding *adding, CUresult filled)
{
	if (filled != CUDA_SUCCESS) {
		hc_node_free(adding->node);
		return filled;
	}
	HC_TRY(hc_node_attach(adding->node));
	*adding->out = (CUgraphNode)adding->node;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				    size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct adding adding;
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS params = *nodeParams;
	params.gridDimZ += hc_node_fault("grid");
	params.sharedMemBytes += hc_node_fault("shared") ? 16 : 0;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL));
	CUresult result = hc_node_set_kernel(adding.node, &params);
	if (result == CUDA_SUCCESS && hc_node_fault("parameter") && adding.node->kernel.launch.symbol->params_size)
		adding.node->kernel.launch.params[0] ^= 1;
	return add_end(&adding, result);
}

CUresult hc_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				 size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	HC_STATE_GUARD();
	struct adding adding;
	if (!copyParams || (ctx && hc_handle_kind(ctx) != HC_CONTEXT))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY));
	CUDA_MEMCPY3D *params = &adding.node->memcpy.params;
	*params = *copyParams;
	params->WidthInBytes -= params->WidthInBytes > 1 && hc_node_fault("memcpy");
	adding.node->memcpy.device = (ctx ? (const struct hc_context *)ctx : hc_context_current())->device;
	CUresult result = hc_copy_make(params, &adding.node->memcpy.copy);
	if (result == CUDA_SUCCESS && !hc_copy_reaches(adding.node->memcpy.device, &adding.node->memcpy.copy))
		result = CUDA_ERROR_INVALID_VALUE;
	return add_end(&adding, result);
}

CUresult hc_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_MEMCPY);
	if (!node || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	*nodeParams = node->memcpy.params;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				 size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	HC_STATE_GUARD();
	struct adding adding;
	if (!memsetParams || (ctx && hc_handle_kind(ctx) != HC_CONTEXT))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET));
	CUDA_MEMSET_NODE_PARAMS *params = &adding.node->memset.params;
	*params = *memsetParams;
	params->width -= params->width > 1 && hc_node_fault("memset");
	return add_end(&adding, hc_fill_make(params, &adding.node->memset.fill));
}

CUresult hc_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_MEMSET);
	if (!node || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	*nodeParams = node->memset.params;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_MEMCPY);
	struct hc_copy copy;
	if (!node || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_copy_make(nodeParams, &copy));
	if (node->memcpy.device && !hc_copy_reaches(node->memcpy.device, &copy))
		return CUDA_ERROR_INVALID_VALUE;
	node->memcpy.params = *nodeParams;
	node->memcpy.copy = copy;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_MEMSET);
	struct hc_fill fill;
	if (!node || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_fill_make(nodeParams, &fill));
	node->memset.params = *nodeParams;
	node->memset.fill = fill;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				size_t numDependencies)
{
	HC_STATE_GUARD();
	struct adding adding;
	for (int more = hc_node_fault("empty"); more >= 0; more--) {
		HC_TRY(
		    add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY));
		HC_TRY(add_end(&adding, CUDA_SUCCESS));
	}
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			       size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct adding adding;
	if (!nodeParams || !nodeParams->fn)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST));
	adding.node->host = *nodeParams;
	return add_end(&adding, CUDA_SUCCESS);
}

/* The node's memory exists from now on until the context is destroyed. */
CUresult hc_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				   size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct adding adding;
	uint64_t address;
	if (!nodeParams || nodeParams->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_ALLOC));
	CUresult result = hc_memory_of_graph(hc_context_home(), nodeParams->bytesize, &address);
	if (result == CUDA_SUCCESS)
		nodeParams->dptr = adding.node->address = address;
	return add_end(&adding, result);
}

CUresult hc_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  size_t numDependencies, CUdeviceptr dptr)
{
	HC_STATE_GUARD();
	struct adding adding;
	const struct hc_memory *memory = hc_memory_at(dptr);
	if (!memory || !memory->of_graph || memory->address != dptr)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_FREE));
	adding.node->address = dptr;
	return add_end(&adding, CUDA_SUCCESS);
}

static bool contains_graph(const struct hc_graph *graph, const struct hc_graph *other)
{
	if (graph == other)
		return true;
	for (size_t i = 0; i < graph->count; i++)
		if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_GRAPH && contains_graph(graph->nodes[i]->child, other))
			return true;
	return false;
}

CUresult hc_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				     size_t numDependencies, CUgraph childGraph)
{
	HC_STATE_GUARD();
	struct adding adding;
	if (hc_handle_kind(childGraph) != HC_GRAPH ||
	    contains_graph((struct hc_graph *)childGraph, (struct hc_graph *)hGraph))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH));
	CUresult result = hc_graph_copy((struct hc_graph *)childGraph, &adding.node->child);
	if (result == CUDA_SUCCESS)
		adding.node->child->borrowed = true;
	return add_end(&adding, result);
}

CUresult hc_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, CU_GRAPH_NODE_TYPE_GRAPH);
	if (!node || !phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = (CUgraph)node->child;
	return CUDA_SUCCESS;
}

/* For a fault. It lives as long as the process. */
static CUevent other_event(void)
{
	static CUevent other;
	if (!other)
		hc_cuEventCreate(&other, CU_EVENT_DISABLE_TIMING);
	return other;
}

static CUresult add_event_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
			       CUevent event, CUgraphNodeType type)
{
	HC_STATE_GUARD();
	struct adding adding;
	if (hc_handle_kind(event) != HC_EVENT)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(add_begin(&adding, out, graph, dependencies, count, type));
	adding.node->event = (struct hc_event *)(hc_node_fault("event") ? other_event() : event);
	return add_end(&adding, CUDA_SUCCESS);
}

CUresult hc_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				      size_t numDependencies, CUevent event)
{
	return add_event_node(phGraphNode, hGraph, dependencies, numDependencies, event,
			      CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult hc_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				    size_t numDependencies, CUevent event)
{
	return add_event_node(phGraphNode, hGraph, dependencies, numDependencies, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

static CUresult tell_event(CUgraphNode hNode, CUgraphNodeType type, CUevent *event)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode, type);
	if (!node || !event)
		return CUDA_ERROR_INVALID_VALUE;
	*event = (CUevent)node->event;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return tell_event(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult hc_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return tell_event(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

/* Supports kernel, copy, child graph, empty and allocation nodes. */
CUresult hc_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			      const CUgraphEdgeData *dependencyData, size_t numDependencies,
			      CUgraphNodeParams *nodeParams)
{
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (dependencyData)
		return CUDA_ERROR_NOT_SUPPORTED;
	switch (nodeParams->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		const CUDA_KERNEL_NODE_PARAMS_v3 *all = &nodeParams->kernel;
		const CUDA_KERNEL_NODE_PARAMS params = {.func = all->func,
							.gridDimX = all->gridDimX,
							.gridDimY = all->gridDimY,
							.gridDimZ = all->gridDimZ,
							.blockDimX = all->blockDimX,
							.blockDimY = all->blockDimY,
							.blockDimZ = all->blockDimZ,
							.sharedMemBytes = all->sharedMemBytes,
							.kernelParams = all->kernelParams,
							.extra = all->extra,
							.kern = all->kern,
							.ctx = all->ctx};
		return hc_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return hc_cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies,
					       &nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return hc_cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
						   nodeParams->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return hc_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
		CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = nodeParams->alloc.poolProps,
						     .bytesize = nodeParams->alloc.bytesize};
		HC_TRY(hc_cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies, &params));
		nodeParams->alloc.dptr = params.dptr;
		return CUDA_SUCCESS;
	}
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult hc_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	return hc_cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}
