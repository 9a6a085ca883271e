/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a restored graph back from the driver. Equal outputs do not show that a graph is the recorded one: a driver that
 * made full dependencies programmatic changed graphs whose outputs stayed equal, but for chance.
 */
#include "restore/verify/read_back.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/attributes.h"
#include "restore/build.h"

struct number {
	const char *field;
	uint64_t wanted, told;
};

static enum md_status compare_numbers(const struct number *numbers, size_t count, struct md_error *err)
{
	for (size_t i = 0; i < count; i++)
		if (numbers[i].wanted != numbers[i].told)
			return md_error_set(err, MD_ERR_DRIVER,
					    "%s: artifact has %" PRIu64 ", the driver has made %" PRIu64 " of it",
					    numbers[i].field, numbers[i].wanted, numbers[i].told);
	return MD_OK;
}

#define COMPARE_NUMBERS(numbers, err) compare_numbers(numbers, sizeof(numbers) / sizeof(*(numbers)), err)

static enum md_status compare_bytes(const char *field, uint32_t at, const uint8_t *wanted, const uint8_t *told,
				    size_t size, struct md_error *err)
{
	for (size_t i = 0; i < size; i++)
		if (wanted[i] != told[i])
			return md_error_set(
			    err, MD_ERR_DRIVER,
			    "%s %u, byte %zu of %zu: artifact has 0x%02x, the driver has made 0x%02x of it", field, at,
			    i, size, wanted[i], told[i]);
	return MD_OK;
}

/* ---- kernel nodes ---- */

static bool is_same_function(CUfunction wanted, CUfunction told)
{
	const char *names[2] = {NULL, NULL};
	CUmodule modules[2] = {NULL, NULL};
	if (wanted == told)
		return true;
	return told && md_cuda.cuFuncGetName && md_cuda.cuFuncGetModule &&
	       md_cuda.cuFuncGetName(&names[0], wanted) == CUDA_SUCCESS &&
	       md_cuda.cuFuncGetName(&names[1], told) == CUDA_SUCCESS &&
	       md_cuda.cuFuncGetModule(&modules[0], wanted) == CUDA_SUCCESS &&
	       md_cuda.cuFuncGetModule(&modules[1], told) == CUDA_SUCCESS && modules[0] == modules[1] &&
	       !strcmp(names[0], names[1]);
}

static enum md_status compare_function(CUfunction wanted, const CUDA_KERNEL_NODE_PARAMS *told, struct md_error *err)
{
	CUfunction function = told->func;
	const char *name = NULL;
	if (!function && told->kern && md_cuda.cuKernelGetFunction)
		md_cuda.cuKernelGetFunction(&function, told->kern);
	if (is_same_function(wanted, function))
		return MD_OK;
	if (!function || !md_cuda.cuFuncGetName || md_cuda.cuFuncGetName(&name, function) != CUDA_SUCCESS)
		name = NULL;
	return md_error_set(err, MD_ERR_DRIVER, "function: the driver has made another one of it, %s",
			    name ? name : "which has no name");
}

/* State of the function, which its nodes launch with; others may have raised it since. */
static enum md_status compare_state(const struct md_func_state *state, CUfunction function, struct md_error *err)
{
	int shared = 0, portable = 0, carveout = 0;
	MD_FORWARD(
	    md_cuda_call(err, cuFuncGetAttribute, &shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
	MD_FORWARD(md_cuda_call(err, cuFuncGetAttribute, &carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
				function));
	if (state->non_portable_cluster > 0)
		MD_FORWARD(md_cuda_call(err, cuFuncGetAttribute, &portable,
					CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, function));
	if (shared < state->max_dynamic_shared_bytes)
		return md_error_set(err, MD_ERR_DRIVER,
				    "dynamic shared memory of the function: artifact has %d, the driver %d",
				    state->max_dynamic_shared_bytes, shared);
	if (portable < state->non_portable_cluster)
		return md_error_set(err, MD_ERR_DRIVER,
				    "clusters of any size for the function: artifact has %d, the driver %d",
				    state->non_portable_cluster, portable);
	if (state->preferred_carveout >= 0 && carveout != state->preferred_carveout)
		return md_error_set(err, MD_ERR_DRIVER, "carveout of the function: artifact has %d, the driver %d",
				    state->preferred_carveout, carveout);
	return MD_OK;
}

/* The driver may tell parameters in either form, whichever they were given in. */
static enum md_status compare_params(const struct md_kernel *kernel, const struct md_node *node,
				     const CUDA_KERNEL_NODE_PARAMS *told, struct md_error *err)
{
	size_t size = 0;
	const uint8_t *block = told->kernelParams || !told->extra ? NULL : md_cuda_extra_block(told->extra, &size);
	if (node->via_extra && block) {
		const struct number sizes[] = {{"size of the parameters", node->params_size, size}};
		MD_FORWARD(COMPARE_NUMBERS(sizes, err));
		return compare_bytes("parameter block", 0, node->params, block, size, err);
	}
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		const struct md_param *param = &kernel->params[i];
		uint64_t end = (uint64_t)param->offset + param->size;
		const uint8_t *value = told->kernelParams     ? told->kernelParams[i]
				       : block && end <= size ? block + param->offset
							      : NULL;
		if (!value || end > node->params_size)
			return md_error_set(err, MD_ERR_DRIVER, "parameter %u: artifact has %u bytes, the driver none",
					    i, param->size);
		MD_FORWARD(compare_bytes("parameter", i, node->params + param->offset, value, param->size, err));
	}
	return MD_OK;
}

static const struct md_attribute *stored_attribute(const struct md_node *node, uint32_t id)
{
	for (uint32_t i = 0; i < node->attribute_count; i++)
		if (node->attributes[i].id == id && !md_attribute_is_idle(id, node->attributes[i].value))
			return &node->attributes[i];
	return NULL;
}

/* A cluster of one block is none, and a driver may tell it so. */
static bool is_one_block(uint32_t id, const uint8_t *value)
{
	uint32_t of[3];
	memcpy(of, value, sizeof(of));
	return id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && of[0] <= 1 && of[1] <= 1 && of[2] <= 1;
}

/* A preferred cluster was given with the launch; no driver tells it. */
static enum md_status compare_attribute(CUgraphNode handle, uint32_t id, const struct md_attribute *stored,
					struct md_error *err)
{
	CUlaunchAttributeValue value;
	struct md_attribute told = {0};
	memset(&value, 0, sizeof(value));
	CUresult result = md_cuda.cuGraphKernelNodeGetAttribute(handle, (CUlaunchAttributeID)id, &value);
	if (result != CUDA_SUCCESS && (!stored || md_attribute_is_launchs_alone(id)))
		return MD_OK;
	if (result != CUDA_SUCCESS)
		return md_error_set(err, MD_ERR_DRIVER_MISSING,
				    "attribute %u cannot be read back: cuGraphKernelNodeGetAttribute: %s", id,
				    md_cuda_error_name(result));
	if (is_one_block(id, (const uint8_t *)&value) && (!stored || is_one_block(id, stored->value)))
		return MD_OK;
	if (stored)
		return compare_bytes("attribute", id, stored->value, (const uint8_t *)&value, md_attribute_size(id),
				     err);
	if (!md_attribute_copy(&told, (CUlaunchAttributeID)id, &value, false) || md_attribute_is_idle(id, told.value))
		return MD_OK;
	return md_error_set(err, MD_ERR_DRIVER, "attribute %u: artifact has none, the driver has set it", id);
}

static enum md_status compare_attributes(const struct md_node *node, CUgraphNode handle, struct md_error *err)
{
	for (uint32_t i = 0; i < MD_NODE_ATTRIBUTES; i++)
		MD_FORWARD(
		    compare_attribute(handle, md_attribute_ids[i], stored_attribute(node, md_attribute_ids[i]), err));
	return MD_OK;
}

static enum md_status compare_kernel(const struct md_restore *r, const struct md_node *node, CUgraphNode handle,
				     struct md_error *err)
{
	const struct md_kernel *kernel = &r->artifact.kernels[node->kernel];
	CUDA_KERNEL_NODE_PARAMS told;
	memset(&told, 0, sizeof(told));
	MD_FORWARD(md_cuda_call(err, cuGraphKernelNodeGetParams_v2, handle, &told));
	const struct number numbers[] = {
	    {"grid x", node->grid[0], told.gridDimX},
	    {"grid y", node->grid[1], told.gridDimY},
	    {"grid z", node->grid[2], told.gridDimZ},
	    {"block x", node->block[0], told.blockDimX},
	    {"block y", node->block[1], told.blockDimY},
	    {"block z", node->block[2], told.blockDimZ},
	    {"bytes of shared memory", node->shared_bytes, told.sharedMemBytes},
	};
	enum md_status status = compare_function(r->kernels[node->kernel].function, &told, err);
	if (status == MD_OK)
		status = compare_state(&kernel->state, r->kernels[node->kernel].function, err);
	if (status == MD_OK)
		status = COMPARE_NUMBERS(numbers, err);
	if (status == MD_OK)
		status = compare_params(kernel, node, &told, err);
	if (status == MD_OK)
		status = compare_attributes(node, handle, err);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "kernel %s", kernel->name);
}

/* ---- the other nodes ---- */

static uint32_t low_bytes(uint32_t value, uint32_t count)
{
	return count < sizeof(value) ? value & ((1u << 8 * count) - 1) : value;
}

/* One row has no pitch. */
static enum md_status compare_memset(const struct md_memset *set, CUgraphNode handle, struct md_error *err)
{
	CUDA_MEMSET_NODE_PARAMS told;
	memset(&told, 0, sizeof(told));
	MD_FORWARD(md_cuda_call(err, cuGraphMemsetNodeGetParams, handle, &told));
	bool rows = set->height > 1;
	const struct number numbers[] = {
	    {"memset: address", set->dst, told.dst},
	    {"memset: element size", set->element_size, told.elementSize},
	    {"memset: value", low_bytes(set->value, set->element_size), low_bytes(told.value, told.elementSize)},
	    {"memset: width", set->width, told.width},
	    {"memset: height", set->height, told.height},
	    {"memset: pitch", rows ? set->pitch : 0, rows ? told.pitch : 0},
	};
	return COMPARE_NUMBERS(numbers, err);
}

/* A driver may say more precisely what an address is, if it was to find out by itself. */
static uint32_t type_of(uint32_t wanted, uint32_t told)
{
	return wanted == CU_MEMORYTYPE_UNIFIED && (told == CU_MEMORYTYPE_DEVICE || told == CU_MEMORYTYPE_HOST) ? wanted
													       : told;
}

/* One row has no pitch, and one slice no height. */
static enum md_status compare_memcpy(const struct md_memcpy *copy, CUgraphNode handle, struct md_error *err)
{
	CUDA_MEMCPY3D told;
	memset(&told, 0, sizeof(told));
	MD_FORWARD(md_cuda_call(err, cuGraphMemcpyNodeGetParams, handle, &told));
	bool slices = copy->depth > 1, rows = copy->height > 1 || slices;
	uint64_t from =
	    told.srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)told.srcHost : (uint64_t)told.srcDevice;
	uint64_t to =
	    told.dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)told.dstHost : (uint64_t)told.dstDevice;
	const struct number numbers[] = {
	    {"copy: type of the source", copy->src_type, type_of(copy->src_type, told.srcMemoryType)},
	    {"copy: type of the target", copy->dst_type, type_of(copy->dst_type, told.dstMemoryType)},
	    {"copy: source", copy->src, from},
	    {"copy: target", copy->dst, to},
	    {"copy: x of the source", copy->src_x, told.srcXInBytes},
	    {"copy: y of the source", copy->src_y, told.srcY},
	    {"copy: z of the source", copy->src_z, told.srcZ},
	    {"copy: x of the target", copy->dst_x, told.dstXInBytes},
	    {"copy: y of the target", copy->dst_y, told.dstY},
	    {"copy: z of the target", copy->dst_z, told.dstZ},
	    {"copy: width", copy->width, told.WidthInBytes},
	    {"copy: height", copy->height, told.Height},
	    {"copy: depth", copy->depth, told.Depth},
	    {"copy: pitch of the source", rows ? copy->src_pitch : 0, rows ? told.srcPitch : 0},
	    {"copy: pitch of the target", rows ? copy->dst_pitch : 0, rows ? told.dstPitch : 0},
	    {"copy: height of the source", slices ? copy->src_height : 0, slices ? told.srcHeight : 0},
	    {"copy: height of the target", slices ? copy->dst_height : 0, slices ? told.dstHeight : 0},
	};
	return COMPARE_NUMBERS(numbers, err);
}

static enum md_status cannot_tell(const char *entry, struct md_error *err)
{
	return md_error_set(err, MD_ERR_DRIVER_MISSING, "it cannot be read back: this driver has no %s", entry);
}

static enum md_status compare_event(const struct md_restore_graph *graph, const struct md_node *node,
				    CUgraphNode handle, struct md_error *err)
{
	CUevent told = NULL, made = NULL;
	if (node->type == MD_NODE_EVENT_RECORD && !md_cuda.cuGraphEventRecordNodeGetEvent)
		return cannot_tell("cuGraphEventRecordNodeGetEvent", err);
	if (node->type == MD_NODE_EVENT_WAIT && !md_cuda.cuGraphEventWaitNodeGetEvent)
		return cannot_tell("cuGraphEventWaitNodeGetEvent", err);
	if (node->type == MD_NODE_EVENT_RECORD)
		MD_FORWARD(md_cuda_call(err, cuGraphEventRecordNodeGetEvent, handle, &told));
	else
		MD_FORWARD(md_cuda_call(err, cuGraphEventWaitNodeGetEvent, handle, &told));
	MD_FORWARD(md_restore_event_of(&md_restore, graph, node, &made, err));
	return told == made
		   ? MD_OK
		   : md_error_set(err, MD_ERR_DRIVER, "event %u: the driver has made another one of it", node->event);
}

static enum md_status compare_node(struct md_restore *r, const struct md_restore_graph *graph, uint32_t index,
				   struct md_error *err)
{
	const struct md_node *node = &graph->stored->nodes[index];
	CUgraphNode handle = graph->nodes[index];
	CUgraphNodeType type = (CUgraphNodeType)-1;
	MD_FORWARD(md_cuda_call(err, cuGraphNodeGetType, handle, &type));
	const struct number types[] = {{"type", node->type, (uint64_t)type}};
	MD_FORWARD(COMPARE_NUMBERS(types, err));
	switch (node->type) {
	case MD_NODE_KERNEL:
		return compare_kernel(r, node, handle, err);
	case MD_NODE_MEMSET:
		return compare_memset(&node->memset, handle, err);
	case MD_NODE_MEMCPY:
		return compare_memcpy(&node->memcpy, handle, err);
	case MD_NODE_EVENT_WAIT:
	case MD_NODE_EVENT_RECORD:
		return compare_event(graph, node, handle, err);
	default:
		return MD_OK;
	}
}

/* ---- which nodes there are ---- */

static int compare_handles(const void *left, const void *right)
{
	uintptr_t one = *(const uintptr_t *)left, two = *(const uintptr_t *)right;
	return (one > two) - (one < two);
}

/* Appends the nodes of one graph; those that have no room are counted. */
static enum md_status read_nodes(CUgraph graph, CUgraphNode *told, uint32_t *count, uint32_t room, struct md_error *err)
{
	size_t all = 0;
	MD_FORWARD(md_cuda_call(err, cuGraphGetNodes, graph, NULL, &all));
	if (all && *count <= room && all <= room - *count)
		MD_FORWARD(md_cuda_call(err, cuGraphGetNodes, graph, told + *count, &all));
	*count += (uint32_t)all;
	return MD_OK;
}

static enum md_status read_child(CUgraphNode node, CUgraphNode *told, uint32_t *count, uint32_t room,
				 struct md_error *err)
{
	CUgraph child = NULL;
	MD_FORWARD(md_cuda_call(err, cuGraphChildGraphNodeGetGraph, node, &child));
	return read_nodes(child, told, count, room, err);
}

static enum md_status compare_lists(const struct md_restore_graph *graph, struct md_error *err)
{
	uint32_t count = 0, nodes = graph->stored->node_count;
	MD_AUTO_FREE CUgraphNode *told = calloc(2 * (size_t)nodes + 1, sizeof(*told));
	if (!told)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u nodes", nodes);
	CUgraphNode *made = told + nodes;
	MD_FORWARD(read_nodes(graph->graph, told, &count, nodes, err));
	for (uint32_t i = 0; i < nodes; i++)
		if (graph->stored->nodes[i].type == MD_NODE_CHILD &&
		    read_child(graph->nodes[i], told, &count, nodes, err) != MD_OK)
			return md_error_prefix(err, "node %u", i);
	const struct number counts[] = {{"number of nodes", nodes, count}};
	MD_FORWARD(COMPARE_NUMBERS(counts, err));
	if (nodes)
		memcpy(made, graph->nodes, nodes * sizeof(*made));
	qsort(told, nodes, sizeof(*told), compare_handles);
	qsort(made, nodes, sizeof(*made), compare_handles);
	if (nodes && memcmp(told, made, nodes * sizeof(*told)) != 0)
		return md_error_set(err, MD_ERR_DRIVER, "the driver has other nodes than it has made");
	return MD_OK;
}

enum md_status md_verify_read_back(struct md_restore *r, const struct md_restore_graph *graph, struct md_error *err)
{
	MD_FORWARD(compare_lists(graph, err));
	for (uint32_t i = 0; i < graph->stored->node_count; i++)
		if (compare_node(r, graph, i, err) != MD_OK)
			return md_error_prefix(err, "node %u", i);
	return MD_OK;
}
