/* SPDX-License-Identifier: Apache-2.0 */
/* A graph, read back from the driver: nodes, parameter blocks, attributes and edges, child graphs too. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "capture/record/events.h"
#include "capture/record/images.h"
#include "capture/record/kernels.h"
#include "capture/record/launched.h"
#include "capture/record/made.h"
#include "capture/record/objects.h"
#include "capture/record/others.h"
#include "capture/record/shared.h"
#include "capture/record/unset_words.h"
#include "capture/record/walk.h"
#include "format/artifact/artifact.h"

#define MAX_PARAMS_BYTES 65536 /* twice what any driver takes so far */

static void refuse(struct md_capture_walk *walk, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct md_capture_walk *walk, const char *format, ...)
{
	va_list args;
	if (walk->refused[0])
		return;
	va_start(args, format);
	vsnprintf(walk->refused, sizeof(walk->refused), format, args);
	va_end(args);
}

static void *take(struct md_capture_walk *walk, size_t bytes)
{
	void *block = md_arena_alloc(&walk->out.arena, bytes ? bytes : 1);
	if (!block)
		walk->out_of_memory = true;
	return block;
}

/* ---- candidates for the probe ---- */

/* A replay of the graph alone would wait for the other ranks, or write where they do not expect it. */
static void note_made(struct md_capture_walk *walk, uint32_t at, uint64_t word) MD_CAPTURE_HELD
{
	const struct md_capture_made *made = md_capture_made_at(word);
	enum md_others others = md_capture_others_at(word);
	char text[MD_MADE_SAID];
	if (others != MD_OTHERS_NONE)
		refuse(walk, "node at index %u has an address in %s", at, md_capture_others_said(others));
	else if (made && md_capture_has_multicast())
		refuse(walk, "node at index %u has an address in %s, which may reach %s", at,
		       md_capture_made_said(made, text), md_capture_others_said(MD_OTHERS_MULTICAST));
	if (!made || walk->communicates[0])
		return;
	snprintf(walk->communicates, sizeof(walk->communicates),
		 "node at index %u has an address in %s: no rank "
		 "restores it unless all ranks have replayed it together in a capture, so the engine captures it live",
		 at, md_capture_made_said(made, text));
}

static void add_candidate(struct md_capture_walk *walk, uint32_t at, uint64_t word) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, word);
	uint64_t known = 0;
	if (!item)
		return;
	note_made(walk, at, word);
	md_map_get(&walk->candidates, item->start, &known);
	known |= md_interval_find(&md_capture.binds, word) ? MD_CANDIDATE : MD_CANDIDATE | MD_CANDIDATE_PRIVATE;
	if (!md_map_put(&walk->candidates, item->start, known))
		walk->out_of_memory = true;
}

static void add_candidates(struct md_capture_walk *walk, uint32_t node, const uint8_t *params,
			   size_t size) MD_CAPTURE_HELD
{
	for (size_t at = 0; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, params + at, 8);
		add_candidate(walk, node, word);
	}
}

static bool is_shared(uint64_t word) MD_CAPTURE_HELD
{
	return md_capture_made_at(word) || md_capture_others_at(word) != MD_OTHERS_NONE;
}

/* An address of a communication library, or of other ranks, in a word that nobody sets is none, and its memory is not looked at. */
static void add_params(struct md_capture_walk *walk, uint32_t at) MD_CAPTURE_HELD
{
	const struct md_node *node = &walk->out.nodes[at];
	for (size_t offset = 0; offset + 8 <= node->params_size; offset += 8) {
		uint64_t word;
		memcpy(&word, node->params + offset, sizeof(word));
		if (!is_shared(word) || !md_capture_unset_words_has(node->kernel, offset))
			add_candidate(walk, at, word);
	}
}

/* ---- kernel nodes ---- */

static void copy_params(struct md_capture_walk *walk, uint32_t at, void **values, const struct md_kernel *kernel)
{
	struct md_node *node = &walk->out.nodes[at];
	uint32_t size = 0;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		uint64_t end = (uint64_t)kernel->params[i].offset + kernel->params[i].size;
		if (end > MAX_PARAMS_BYTES) {
			refuse(walk, "kernel %s at index %u has a parameter block of %llu bytes", kernel->name, at,
			       (unsigned long long)end);
			return;
		}
		size = end > size ? (uint32_t)end : size;
	}
	node->params = take(walk, size);
	if (!node->params)
		return;
	node->params_size = size;
	memset(node->params, 0, size);
	for (uint32_t i = 0; i < kernel->param_count; i++)
		memcpy(node->params + kernel->params[i].offset, values[i], kernel->params[i].size);
}

static void copy_extra(struct md_capture_walk *walk, uint32_t at, void **extra)
{
	struct md_node *node = &walk->out.nodes[at];
	size_t size;
	const void *buffer = md_cuda_extra_block(extra, &size);
	node->via_extra = true;
	if (!buffer || size > MAX_PARAMS_BYTES) {
		refuse(walk, "kernel node at index %u has no parameter buffer, or one of %zu bytes", at, size);
		return;
	}
	node->params = take(walk, size);
	if (!node->params)
		return;
	node->params_size = (uint32_t)size;
	memcpy(node->params, buffer, size);
}

static bool has_attribute(const struct md_attribute *list, uint32_t count, uint32_t id)
{
	for (uint32_t i = 0; i < count; i++) {
		if (list[i].id == id)
			return true;
	}
	return false;
}

/* Copies the attributes that can be read back from the node, then those of the launch that cannot. */
static void copy_attributes(struct md_capture_walk *walk, uint32_t at,
			    const struct md_capture_memo *memo) MD_CAPTURE_HELD
{
	struct md_attribute list[2 * MD_NODE_ATTRIBUTES];
	struct md_node *node = &walk->out.nodes[at];
	CUlaunchAttributeValue updatable = {0};
	uint32_t count = 0;
	for (unsigned i = 0; i < MD_NODE_ATTRIBUTES; i++) {
		CUlaunchAttributeID id = (CUlaunchAttributeID)md_attribute_ids[i];
		CUlaunchAttributeValue value;
		memset(&value, 0, sizeof(value));
		if (md_cuda.cuGraphKernelNodeGetAttribute(walk->handles[at], id, &value) == CUDA_SUCCESS &&
		    md_attribute_copy(&list[count], id, &value, false))
			count++;
	}
	for (uint32_t i = 0; memo && i < memo->attribute_count; i++) {
		if (!has_attribute(list, count, memo->attributes[i].id)) {
			list[count++] = memo->attributes[i];
			walk->unread = true;
		}
	}
	if (memo && memo->strange)
		refuse(walk, "kernel node at index %u: launch attribute %u is not known", at, memo->strange);
	if ((memo && memo->updatable) ||
	    (md_cuda.cuGraphKernelNodeGetAttribute(walk->handles[at], CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
						   &updatable) == CUDA_SUCCESS &&
	     updatable.deviceUpdatableKernelNode.deviceUpdatable))
		refuse(walk, "kernel node at index %u can be updated from the device", at);
	if (!count)
		return;
	node->attributes = take(walk, count * sizeof(*list));
	if (!node->attributes)
		return;
	memcpy(node->attributes, list, count * sizeof(*list));
	node->attribute_count = count;
	for (uint32_t i = 0; i < count; i++) {
		if (list[i].id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
			add_candidates(walk, at, list[i].value, 8);
	}
}

/* A restore makes every node in one context: not on another device, nor on a part of this one. */
static void check_context(struct md_capture_walk *walk, uint32_t at, const char *type, CUcontext context, bool green)
{
	if (green)
		refuse(walk, "%s node at index %u belongs to a green context", type, at);
	else if (context && walk->context && context != walk->context)
		refuse(walk, "%s node at index %u belongs to another context than its graph", type, at);
}

/*
 * A texture or surface object has another number in another process. Numbers inside of structs are not looked at,
 * because too many of them look like one.
 */
static void check_objects(struct md_capture_walk *walk, uint32_t at, const struct md_kernel *kernel) MD_CAPTURE_HELD
{
	const struct md_node *node = &walk->out.nodes[at];
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		const char *kind;
		uint64_t number;
		if (kernel->params[i].size != sizeof(number) ||
		    (uint64_t)kernel->params[i].offset + sizeof(number) > node->params_size)
			continue;
		memcpy(&number, node->params + kernel->params[i].offset, sizeof(number));
		kind = md_capture_object_kind(number);
		if (kind)
			refuse(walk, "kernel %s at index %u: parameter %u may be a %s object", kernel->name, at, i,
			       kind);
	}
}

/* params: as read back from the driver, or as a call gave them. */
static void take_kernel(struct md_capture_walk *walk, uint32_t at,
			const CUDA_KERNEL_NODE_PARAMS *params) MD_CAPTURE_HELD
{
	struct md_node *node = &walk->out.nodes[at];
	const struct md_kernel *kernel;
	check_context(walk, at, "kernel", params->ctx, false);
	node->kernel = md_capture_kernel_find_fresh(params->func, params->kern);
	kernel = md_capture_kernel_get(node->kernel);
	if (!kernel) {
		refuse(walk, "kernel node at index %u: the driver does not name its kernel", at);
		return;
	}
	const char *option = md_capture_image_option(kernel->image);
	if (option)
		refuse(
		    walk,
		    "kernel %s at index %u: its PTX was loaded with the JIT option %s, which a restore would not give: "
		    "link it to a cubin with that option (cuLinkCreate), and load the cubin",
		    kernel->name, at, option);
	memcpy(node->grid, (uint32_t[3]){params->gridDimX, params->gridDimY, params->gridDimZ}, sizeof(node->grid));
	memcpy(node->block, (uint32_t[3]){params->blockDimX, params->blockDimY, params->blockDimZ},
	       sizeof(node->block));
	node->shared_bytes = params->sharedMemBytes;
	if (params->extra && !params->kernelParams)
		copy_extra(walk, at, params->extra);
	else if (params->kernelParams)
		copy_params(walk, at, params->kernelParams, kernel);
	else if (kernel->param_count)
		refuse(walk, "kernel %s at index %u has no parameters to read", kernel->name, at);
	if (node->params) {
		md_capture_unset_words_note_block(node->kernel, kernel, node->params, node->params_size);
		add_params(walk, at);
		check_objects(walk, at, kernel);
	}
}

static void walk_kernel(struct md_capture_walk *walk, uint32_t at, const struct md_capture_memo *memo) MD_CAPTURE_HELD
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUresult result;
	memset(&params, 0, sizeof(params));
	result = md_cuda.cuGraphKernelNodeGetParams_v2(walk->handles[at], &params);
	if (result) {
		refuse(walk, "kernel node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	if (memo && md_capture_kernel_unloaded_since(params.func, params.kern, memo->sequence)) {
		refuse(walk, "kernel node at index %u: its module was unloaded after the launch was captured", at);
		return;
	}
	take_kernel(walk, at, &params);
	if (walk->out.nodes[at].kernel != MD_NONE)
		copy_attributes(walk, at, memo);
}

/* ---- the other nodes ---- */

static void take_memset(struct md_capture_walk *walk, uint32_t at,
			const CUDA_MEMSET_NODE_PARAMS *params) MD_CAPTURE_HELD
{
	walk->out.nodes[at].memset = (struct md_memset){
	    .dst = params->dst,
	    .pitch = params->pitch,
	    .width = params->width,
	    .height = params->height,
	    .value = params->value,
	    .element_size = params->elementSize,
	};
	add_candidate(walk, at, params->dst);
}

static void walk_memset(struct md_capture_walk *walk, uint32_t at) MD_CAPTURE_HELD
{
	CUDA_MEMSET_NODE_PARAMS params;
	CUresult result;
	memset(&params, 0, sizeof(params));
	result = md_cuda.cuGraphMemsetNodeGetParams(walk->handles[at], &params);
	if (result)
		refuse(walk, "memset node at index %u: %s", at, md_cuda_error_name(result));
	else
		take_memset(walk, at, &params);
}

static void take_memcpy(struct md_capture_walk *walk, uint32_t at, CUDA_MEMCPY3D p) MD_CAPTURE_HELD
{
	if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY || p.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		refuse(walk, "memcpy node at index %u: it copies from or to a CUDA array", at);
		return;
	}
	walk->out.nodes[at].memcpy = (struct md_memcpy){
	    .src = p.srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)p.srcHost : p.srcDevice,
	    .dst = p.dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)p.dstHost : p.dstDevice,
	    .src_type = p.srcMemoryType,
	    .dst_type = p.dstMemoryType,
	    .src_x = p.srcXInBytes,
	    .src_y = p.srcY,
	    .src_z = p.srcZ,
	    .src_pitch = p.srcPitch,
	    .src_height = p.srcHeight,
	    .dst_x = p.dstXInBytes,
	    .dst_y = p.dstY,
	    .dst_z = p.dstZ,
	    .dst_pitch = p.dstPitch,
	    .dst_height = p.dstHeight,
	    .width = p.WidthInBytes,
	    .height = p.Height,
	    .depth = p.Depth,
	};
	add_candidate(walk, at, walk->out.nodes[at].memcpy.src);
	add_candidate(walk, at, walk->out.nodes[at].memcpy.dst);
	if (p.dstMemoryType != CU_MEMORYTYPE_DEVICE &&
	    !md_interval_find(&md_capture.live, walk->out.nodes[at].memcpy.dst))
		walk->pageable = true;
}

static void walk_memcpy(struct md_capture_walk *walk, uint32_t at) MD_CAPTURE_HELD
{
	CUDA_MEMCPY3D params;
	CUresult result;
	memset(&params, 0, sizeof(params));
	result = md_cuda.cuGraphMemcpyNodeGetParams(walk->handles[at], &params);
	if (result)
		refuse(walk, "memcpy node at index %u: %s", at, md_cuda_error_name(result));
	else
		take_memcpy(walk, at, params);
}

static const char *type_name(CUgraphNodeType type)
{
	static const char *const names[] = {"kernel",
					    "memcpy",
					    "memset",
					    "host",
					    "child graph",
					    "empty",
					    "event wait",
					    "event record",
					    "semaphore signal",
					    "semaphore wait",
					    "memory allocation",
					    "memory free",
					    "batch memory operation",
					    "conditional"};
	return (unsigned)type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}

static void walk_graph(struct md_capture_walk *walk, CUgraph graph, unsigned depth) MD_CAPTURE_HELD;

static void walk_event(struct md_capture_walk *walk, uint32_t at, CUgraphNodeType type) MD_CAPTURE_HELD
{
	bool record = type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	CUevent event = NULL;
	if (record && md_cuda.cuGraphEventRecordNodeGetEvent)
		result = md_cuda.cuGraphEventRecordNodeGetEvent(walk->handles[at], &event);
	else if (!record && md_cuda.cuGraphEventWaitNodeGetEvent)
		result = md_cuda.cuGraphEventWaitNodeGetEvent(walk->handles[at], &event);
	if (result)
		refuse(walk, "%s node at index %u: %s", type_name(type), at, md_cuda_error_name(result));
	else if (!md_capture_event_number(event, &walk->out.nodes[at].event))
		walk->out_of_memory = true;
}

/* Nodes inside a child graph inherit the sequence of the node that holds it. */
static void walk_child(struct md_capture_walk *walk, uint32_t at, unsigned depth) MD_CAPTURE_HELD
{
	uint64_t before = walk->sequence;
	CUgraph child;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	if (depth >= MD_CHILD_DEPTH_MAX) {
		refuse(walk, "child graph node at index %u: child graphs nest more than %u deep", at,
		       MD_CHILD_DEPTH_MAX);
		return;
	}
	if (md_cuda.cuGraphChildGraphNodeGetGraph)
		result = md_cuda.cuGraphChildGraphNodeGetGraph(walk->handles[at], &child);
	if (result) {
		refuse(walk, "child graph node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	walk->sequence = walk->out.nodes[at].sequence;
	walk_graph(walk, child, depth + 1);
	walk->sequence = before;
	walk->out.nodes[at].child_nodes = walk->out.node_count - at - 1;
}

static void walk_node(struct md_capture_walk *walk, uint32_t at, unsigned depth) MD_CAPTURE_HELD
{
	const struct md_capture_memo *memo = md_capture_node_memo(walk->handles[at]);
	struct md_node *node = &walk->out.nodes[at];
	CUgraphNodeType type;
	CUresult result = md_cuda.cuGraphNodeGetType(walk->handles[at], &type);
	*node = (struct md_node){.type = MD_NODE_EMPTY,
				 .kernel = MD_NONE,
				 .sequence = memo && memo->sequence ? memo->sequence : walk->sequence};
	if (result) {
		refuse(walk, "node at index %u: %s", at, md_cuda_error_name(result));
		return;
	}
	if (memo)
		check_context(walk, at, type_name(type), memo->context, memo->green);
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		node->type = MD_NODE_KERNEL;
		walk_kernel(walk, at, memo);
		/* A node that could not be read keeps its place as an empty node, because edges go by index. */
		if (node->kernel == MD_NONE)
			node->type = MD_NODE_EMPTY;
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		node->type = MD_NODE_MEMSET;
		walk_memset(walk, at);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		node->type = MD_NODE_MEMCPY;
		walk_memcpy(walk, at);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		node->type = MD_NODE_CHILD;
		if (memo && memo->opaque)
			refuse(walk,
			       "child graph node at index %u: made by launching a graph whose nodes have "
			       "attributes that cannot be read back",
			       at);
		walk_child(walk, at, depth);
		break;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		node->type = (uint8_t)type;
		walk_event(walk, at, type);
		break;
	case CU_GRAPH_NODE_TYPE_EMPTY:
		break;
	default:
		refuse(walk, "%s node at index %u", type_name(type), at);
	}
}

/* ---- edges ---- */

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	if (md_cuda.cuGraphGetEdges_v2)
		return md_cuda.cuGraphGetEdges_v2(graph, from, to, data, count);
	return md_cuda.cuGraphGetEdges(graph, from, to, count);
}

static void add_edge(struct md_capture_walk *walk, CUgraphNode from_node, CUgraphNode to_node,
		     const CUgraphEdgeData *data)
{
	uint64_t from, to;
	if (!md_map_get(&walk->index, (uintptr_t)from_node, &from) ||
	    !md_map_get(&walk->index, (uintptr_t)to_node, &to)) {
		refuse(walk, "edge %u: its nodes are not in the graph", walk->out.edge_count);
		return;
	}
	walk->out.edges[walk->out.edge_count++] =
	    (struct md_edge){(uint32_t)from, (uint32_t)to, data->from_port, data->to_port, data->type, .zero = 0};
}

static bool reserve_edges(struct md_capture_walk *walk, size_t more)
{
	bool room = MD_ARRAY_RESERVE(walk->out.edges, walk->out.edge_count + more, walk->edge_room);
	walk->out_of_memory |= !room;
	return room;
}

static void walk_edges(struct md_capture_walk *walk, CUgraph graph)
{
	size_t count = 0;
	CUresult result = get_edges(graph, NULL, NULL, NULL, &count);
	CUgraphNode *ends = !result && count ? take(walk, 2 * count * sizeof(CUgraphNode)) : NULL;
	CUgraphEdgeData *data = !result && count ? take(walk, count * sizeof(*data)) : NULL;
	if (!result && count) {
		if (!ends || !data || !reserve_edges(walk, count))
			return;
		memset(data, 0, count * sizeof(*data));
		result = get_edges(graph, ends, ends + count, data, &count);
	}
	if (result) {
		refuse(walk, "edges: %s", md_cuda_error_name(result));
		return;
	}
	for (size_t i = 0; i < count; i++)
		add_edge(walk, ends[i], ends[count + i], &data[i]);
}

/* ---- graphs ---- */

static bool reserve_nodes(struct md_capture_walk *walk, size_t more)
{
	size_t count = walk->out.node_count + more;
	bool room = MD_ARRAY_RESERVE(walk->out.nodes, count, walk->node_room) &&
		    MD_ARRAY_RESERVE(walk->handles, count, walk->handle_room);
	walk->out_of_memory |= !room;
	return room;
}

static void walk_graph(struct md_capture_walk *walk, CUgraph graph, unsigned depth)
{
	size_t count = 0;
	CUresult result = md_cuda.cuGraphGetNodes(graph, NULL, &count);
	CUgraphNode *nodes;
	if (result || count > UINT32_MAX / 2 - walk->out.node_count) {
		refuse(walk, "nodes: %s", md_cuda_error_name(result));
		return;
	}
	nodes = take(walk, count * sizeof(CUgraphNode));
	if (!nodes)
		return;
	result = count ? md_cuda.cuGraphGetNodes(graph, nodes, &count) : CUDA_SUCCESS;
	if (result) {
		refuse(walk, "nodes: %s", md_cuda_error_name(result));
		return;
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t at = walk->out.node_count;
		if (!reserve_nodes(walk, 1))
			return;
		walk->handles[at] = nodes[i];
		walk->out.node_count++;
		walk->out_of_memory |= !md_map_put(&walk->index, (uintptr_t)nodes[i], at);
		walk_node(walk, at, depth);
	}
	walk_edges(walk, graph);
}

void md_capture_walk(struct md_capture_walk *walk, CUgraph graph)
{
	walk->sequence = walk->out.sequence;
	walk_graph(walk, graph, 0);
}

void md_capture_walk_change(struct md_capture_walk *walk, uint32_t at, const CUgraphNodeParams *params)
{
	struct md_node *node = &walk->out.nodes[at];
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUDA_MEMSET_NODE_PARAMS set;
	_Static_assert(sizeof(kernel) == sizeof(params->kernel), "two names of one layout");

	node->sequence = walk->sequence;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		memcpy(&kernel, &params->kernel, sizeof(kernel));
		node->params = NULL;
		node->params_size = 0;
		node->via_extra = false;
		take_kernel(walk, at, &kernel);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		check_context(walk, at, "memset", params->memset.ctx, false);
		set = (CUDA_MEMSET_NODE_PARAMS){.dst = params->memset.dst,
						.pitch = params->memset.pitch,
						.value = params->memset.value,
						.elementSize = params->memset.elementSize,
						.width = params->memset.width,
						.height = params->memset.height};
		take_memset(walk, at, &set);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		check_context(walk, at, "memcpy", params->memcpy.copyCtx, false);
		take_memcpy(walk, at, params->memcpy.copyParams);
		break;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT: /* both hold an event and nothing else */
		if (!md_capture_event_number(params->eventRecord.event, &node->event))
			walk->out_of_memory = true;
		break;
	default:
		refuse(walk, "%s node at index %u was changed", type_name(params->type), at);
	}
}

void md_capture_walk_finish(struct md_capture_walk *walk)
{
	md_map_finish(&walk->index);
	md_map_finish(&walk->candidates);
	free(walk->out.nodes);
	free(walk->out.edges);
	free(walk->handles);
	md_arena_free(&walk->out.arena);
}
