/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA graph from patched nodes: nodes in order, with their attributes, then the edges. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "format/attributes.h"
#include "format/codec/columns.h"
#include "restore/build.h"
#include "restore/edges.h"
#include "restore/library_made.h"
#include "restore/restore.h"
#include "restore/verify/read_back.h"

static bool ends_early(const struct md_kernel *kernel, const struct md_node *node)
{
	const struct md_param *last = kernel->param_count ? &kernel->params[kernel->param_count - 1] : NULL;
	return last && (uint64_t)last->offset + last->size > node->params_size;
}

static enum md_status scratch_reserve(struct md_restore *r, const struct md_artifact_graph *stored,
				      struct md_error *err)
{
	struct md_scratch *s = &r->scratch;
	uint32_t params = s->params_room;
	bool early = false;
	for (uint32_t i = 0; i < stored->node_count; i++) {
		if (stored->nodes[i].type != MD_NODE_KERNEL)
			continue;
		const struct md_kernel *kernel = &r->artifact.kernels[stored->nodes[i].kernel];
		params = kernel->param_count > params ? kernel->param_count : params;
		early = early || ends_early(kernel, &stored->nodes[i]);
	}
	if (early && !s->block)
		s->block = malloc(MD_PARAMS_MAX);
	uint32_t from = s->edges_room, to = s->edges_room, data = s->edges_room;
	bool ok = (!early || s->block) && MD_ARRAY_RESERVE(s->from, stored->edge_count, from) &&
		  MD_ARRAY_RESERVE(s->to, from, to) && MD_ARRAY_RESERVE(s->edge_data, from, data) &&
		  MD_ARRAY_RESERVE(s->params, params, s->params_room);
	s->edges_room = ok ? from : s->edges_room;
	return ok ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u nodes", stored->node_count);
}

void md_restore_scratch_finish(struct md_scratch *s)
{
	free(s->from);
	free(s->to);
	free(s->edge_data);
	free(s->params);
	free(s->block);
	*s = (struct md_scratch){0};
}

static enum md_status set_attributes(const struct md_node *node, CUgraphNode handle, struct md_error *err)
{
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		const struct md_attribute *attribute = &node->attributes[i];
		CUlaunchAttributeValue value;
		_Static_assert(sizeof(value) == sizeof(attribute->value), "CUlaunchAttributeValue is 64 bytes");
		memcpy(&value, attribute->value, sizeof(value));
		if (!md_attribute_is_launchs_alone(attribute->id) &&
		    !md_attribute_is_idle(attribute->id, attribute->value) &&
		    md_cuda_call(err, cuGraphKernelNodeSetAttribute, handle, (CUlaunchAttributeID)attribute->id,
				 &value) != MD_OK)
			return md_error_prefix(err, "attribute %u", attribute->id);
	}
	return MD_OK;
}

static bool needs_launch(const struct md_node *node)
{
	for (uint32_t i = 0; i < node->attribute_count; i++)
		if (md_attribute_is_launchs_alone(node->attributes[i].id))
			return true;
	return false;
}

/* Everything else needs the stream, so it must leave the capture even if the call that ends the capture fails. */
static enum md_status end_capture(CUstream stream, struct md_error *err)
{
	CUgraph same = NULL;
	enum md_status status = md_cuda_call(err, cuStreamEndCapture, stream, &same);
	if (status != MD_OK)
		md_cuda.cuStreamEndCapture(stream, &same);
	return status;
}

/* Launches into a capture that adds to this graph itself, because a child graph's nodes could not be moved there. */
static enum md_status launch_into(struct md_restore *r, CUgraph graph, const struct md_node *node,
				  const CUDA_KERNEL_NODE_PARAMS *params, CUgraphNode *out, struct md_error *err)
{
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config = {
	    .gridDimX = params->gridDimX,
	    .gridDimY = params->gridDimY,
	    .gridDimZ = params->gridDimZ,
	    .blockDimX = params->blockDimX,
	    .blockDimY = params->blockDimY,
	    .blockDimZ = params->blockDimZ,
	    .sharedMemBytes = params->sharedMemBytes,
	    .hStream = r->stream,
	    .attrs = attributes,
	};
	/* The driver refuses a preferred cluster without the cluster of which it is a multiple. */
	for (uint32_t i = 0; i < node->attribute_count && config.numAttrs < 2; i++) {
		if (!md_attribute_is_launchs_alone(node->attributes[i].id) &&
		    node->attributes[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			continue;
		attributes[config.numAttrs].id = (CUlaunchAttributeID)node->attributes[i].id;
		memcpy(&attributes[config.numAttrs++].value, node->attributes[i].value, sizeof(attributes[0].value));
	}
	MD_FORWARD(md_cuda_call(err, cuStreamBeginCaptureToGraph, r->stream, graph, NULL, NULL, 0,
				CU_STREAM_CAPTURE_MODE_RELAXED));
	enum md_status status =
	    md_cuda_call(err, cuLaunchKernelEx, &config, params->func, params->kernelParams, params->extra);
	*out = status == MD_OK ? md_cuda_captured_node(r->stream) : NULL;
	struct md_error end = {0};
	if (end_capture(r->stream, &end) != MD_OK && status == MD_OK)
		status = md_error_set(err, end.status, "%s", end.message);
	if (status == MD_OK && !*out)
		status = md_error_set(err, MD_ERR_DRIVER, "a captured launch made no node");
	return status;
}

static enum md_status add_kernel(struct md_restore *r, CUgraph graph, const struct md_node *node, CUgraphNode *out,
				 struct md_error *err)
{
	const struct md_kernel *kernel = &r->artifact.kernels[node->kernel];
	size_t size = node->params_size;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, node->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CUDA_KERNEL_NODE_PARAMS params = {
	    .func = r->kernels[node->kernel].function,
	    .gridDimX = node->grid[0],
	    .gridDimY = node->grid[1],
	    .gridDimZ = node->grid[2],
	    .blockDimX = node->block[0],
	    .blockDimY = node->block[1],
	    .blockDimZ = node->block[2],
	    .sharedMemBytes = node->shared_bytes,
	};
	if (node->via_extra) {
		/* A driver may read on behind a buffer that is shorter than what the kernel declares. */
		if (ends_early(kernel, node)) {
			memset(r->scratch.block + size, 0, MD_PARAMS_MAX - size);
			extra[1] = memcpy(r->scratch.block, node->params, size);
		}
		params.extra = extra;
	} else {
		for (uint32_t i = 0; i < kernel->param_count; i++) {
			if ((uint64_t)kernel->params[i].offset + kernel->params[i].size > size)
				return md_error_set(err, MD_ERR_CORRUPT,
						    "kernel %s: parameter %u lies past the block of %zu bytes",
						    kernel->name, i, size);
			r->scratch.params[i] = node->params + kernel->params[i].offset;
		}
		params.kernelParams = r->scratch.params;
	}
	enum md_status status = needs_launch(node)
				    ? launch_into(r, graph, node, &params, out, err)
				    : md_cuda_call(err, cuGraphAddKernelNode_v2, out, graph, NULL, 0, &params);
	if (status != MD_OK)
		return md_error_prefix(err, "kernel %s", kernel->name);
	return set_attributes(node, *out, err);
}

static enum md_status add_memset(struct md_restore *r, CUgraph graph, const struct md_memset *set, CUgraphNode *out,
				 struct md_error *err)
{
	CUDA_MEMSET_NODE_PARAMS params = {
	    .dst = set->dst,
	    .pitch = set->pitch,
	    .value = set->value,
	    .elementSize = set->element_size,
	    .width = set->width,
	    .height = set->height,
	};
	return md_cuda_call(err, cuGraphAddMemsetNode, out, graph, NULL, 0, &params, r->context);
}

static enum md_status add_memcpy(struct md_restore *r, CUgraph graph, const struct md_memcpy *copy, CUgraphNode *out,
				 struct md_error *err)
{
	CUDA_MEMCPY3D params = {
	    .srcXInBytes = copy->src_x,
	    .srcY = copy->src_y,
	    .srcZ = copy->src_z,
	    .srcMemoryType = (CUmemorytype)copy->src_type,
	    .srcPitch = copy->src_pitch,
	    .srcHeight = copy->src_height,
	    .dstXInBytes = copy->dst_x,
	    .dstY = copy->dst_y,
	    .dstZ = copy->dst_z,
	    .dstMemoryType = (CUmemorytype)copy->dst_type,
	    .dstPitch = copy->dst_pitch,
	    .dstHeight = copy->dst_height,
	    .WidthInBytes = copy->width,
	    .Height = copy->height,
	    .Depth = copy->depth,
	};
	if (copy->src_type == CU_MEMORYTYPE_HOST)
		params.srcHost = (const void *)(uintptr_t)copy->src;
	else
		params.srcDevice = copy->src;
	if (copy->dst_type == CU_MEMORYTYPE_HOST)
		params.dstHost = (void *)(uintptr_t)copy->dst;
	else
		params.dstDevice = copy->dst;
	return md_cuda_call(err, cuGraphAddMemcpyNode, out, graph, NULL, 0, &params, r->context);
}

/*
 * Nodes are added to the graph that the driver embeds. It would
 * copy any other graph, and a copy may lose parts of a node.
 */
static enum md_status add_child(struct md_restore_graph *graph, CUgraph into, uint32_t index, struct md_error *err)
{
	CUgraph empty = NULL;
	MD_FORWARD(md_cuda_call(err, cuGraphCreate, &empty, 0));
	enum md_status status = md_cuda_call(err, cuGraphAddChildGraphNode, &graph->nodes[index], into, NULL, 0, empty);
	md_cuda.cuGraphDestroy(empty);
	MD_FORWARD(status);
	return md_cuda_call(err, cuGraphChildGraphNodeGetGraph, graph->nodes[index], &graph->children[index]);
}

enum md_status md_restore_event_of(const struct md_restore *r, const struct md_restore_graph *graph,
				   const struct md_node *node, CUevent *out, struct md_error *err)
{
	if (node->event >= graph->stored->node_count)
		return md_restore_made_event_of(r, graph, node, out, err);
	*out = graph->events[node->event];
	return MD_OK;
}

static enum md_status add_event(const struct md_restore *r, const struct md_restore_graph *graph, CUgraph into,
				const struct md_node *node, CUgraphNode *out, struct md_error *err)
{
	CUevent event = NULL;
	MD_FORWARD(md_restore_event_of(r, graph, node, &event, err));
	if (node->type == MD_NODE_EVENT_RECORD)
		return md_cuda_call(err, cuGraphAddEventRecordNode, out, into, NULL, 0, event);
	return md_cuda_call(err, cuGraphAddEventWaitNode, out, into, NULL, 0, event);
}

static enum md_status add_node(struct md_restore *r, struct md_restore_graph *graph, uint32_t index,
			       struct md_error *err)
{
	const struct md_node *node = &graph->stored->nodes[index];
	CUgraphNode *out = &graph->nodes[index];
	CUgraph into = md_restore_home_of(graph, index);
	switch (node->type) {
	case MD_NODE_KERNEL:
		return add_kernel(r, into, node, out, err);
	case MD_NODE_MEMSET:
		return add_memset(r, into, &node->memset, out, err);
	case MD_NODE_MEMCPY:
		return add_memcpy(r, into, &node->memcpy, out, err);
	case MD_NODE_EMPTY:
		return md_cuda_call(err, cuGraphAddEmptyNode, out, into, NULL, 0);
	case MD_NODE_CHILD:
		return add_child(graph, into, index, err);
	case MD_NODE_EVENT_WAIT:
	case MD_NODE_EVENT_RECORD:
		return add_event(r, graph, into, node, out, err);
	default:
		return md_error_set(err, MD_ERR_UNSUPPORTED, "node type %u cannot be restored", node->type);
	}
}

/* ---- what a graph needs beside its nodes ---- */

static uint32_t count_events(const struct md_artifact_graph *stored)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < stored->node_count; i++) {
		const struct md_node *node = &stored->nodes[i];
		if ((node->type == MD_NODE_EVENT_WAIT || node->type == MD_NODE_EVENT_RECORD) && node->event >= count &&
		    node->event < stored->node_count)
			count = node->event + 1;
	}
	return count;
}

static enum md_status make_events(struct md_restore_graph *graph, struct md_error *err)
{
	uint32_t count = count_events(graph->stored);
	if (!count)
		return MD_OK;
	graph->events = calloc(count, sizeof(*graph->events));
	if (!graph->events)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u events", count);
	for (; graph->event_count < count; graph->event_count++)
		MD_FORWARD(
		    md_cuda_call(err, cuEventCreate, &graph->events[graph->event_count], CU_EVENT_DISABLE_TIMING));
	return MD_OK;
}

void md_restore_events_destroy(struct md_restore_graph *graph)
{
	while (graph->event_count > 0)
		md_cuda.cuEventDestroy_v2(graph->events[--graph->event_count]);
	free(graph->events);
	graph->events = NULL;
}

static enum md_status prepare_children(struct md_restore_graph *graph, struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	bool any = false;
	for (uint32_t i = 0; i < stored->node_count; i++)
		any |= stored->nodes[i].type == MD_NODE_CHILD;
	if (!any)
		return MD_OK;
	graph->parents = calloc(stored->node_count, sizeof(*graph->parents));
	graph->children = calloc(stored->node_count, sizeof(CUgraph));
	if (!graph->parents || !graph->children)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u nodes", stored->node_count);
	if (!md_nodes_parents(stored->nodes, stored->node_count, graph->parents))
		return md_error_set(err, MD_ERR_CORRUPT, "child-graph nesting is inconsistent");
	return MD_OK;
}

void md_restore_build_finish(struct md_restore_graph *graph)
{
	free(graph->nodes);
	free(graph->parents);
	free(graph->children);
	graph->nodes = NULL;
	graph->parents = NULL;
	graph->children = NULL;
}

static enum md_status begin_graph(struct md_restore_graph *graph, struct md_error *err)
{
	uint32_t count = graph->stored->node_count;
	graph->nodes = malloc((count ? count : 1) * sizeof(*graph->nodes));
	if (!graph->nodes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u nodes", count);
	MD_FORWARD(prepare_children(graph, err));
	MD_FORWARD(make_events(graph, err));
	return md_cuda_call(err, cuGraphCreate, &graph->graph, 0);
}

enum md_status md_restore_build_nodes(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	MD_FORWARD(scratch_reserve(r, stored, err)); /* another graph may have used the scratch buffers meanwhile */
	if (!graph->graph)
		MD_FORWARD(begin_graph(graph, err));
	for (uint32_t n = 0; n < graph->slice && graph->nodes_added < stored->node_count; n++) {
		uint32_t i = graph->nodes_added;
		if (add_node(r, graph, i, err) != MD_OK)
			return md_error_prefix(err, "node %u", i);
		graph->nodes_added++;
	}
	return MD_OK;
}

enum md_status md_restore_build_edges(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	MD_FORWARD(scratch_reserve(r, graph->stored, err));
	MD_FORWARD(md_restore_edges_add(r, graph, err));
	if (r->reads_back)
		MD_FORWARD(md_verify_read_back(r, graph, err));
	md_restore_build_finish(graph);
	return MD_OK;
}
