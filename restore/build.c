/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA graph from patched nodes: nodes in order, attributes, then all edges with their data in one call. */
#include <stdlib.h>
#include <string.h>

#include "restore/restore.h"

static bool grow(void *slot, size_t count, size_t size)
{
	void *grown = realloc(*(void **)slot, count * size);
	if (grown)
		*(void **)slot = grown;
	return grown != NULL;
}

static enum md_status scratch_reserve(struct md_restore *r, const struct md_artifact_graph *stored,
				      struct md_error *err)
{
	struct md_scratch *s = &r->scratch;
	uint32_t params = s->params_room;
	for (uint32_t i = 0; i < stored->node_count; i++)
		if (stored->nodes[i].type == MD_NODE_KERNEL &&
		    r->artifact.kernels[stored->nodes[i].kernel].param_count > params)
			params = r->artifact.kernels[stored->nodes[i].kernel].param_count;
	bool ok = true;
	if (ok && stored->edge_count > s->edges_room) {
		ok = grow(&s->from, stored->edge_count, sizeof(*s->from)) &&
		     grow(&s->to, stored->edge_count, sizeof(*s->to)) &&
		     grow(&s->edge_data, stored->edge_count, sizeof(*s->edge_data));
		s->edges_room = ok ? stored->edge_count : s->edges_room;
	}
	if (ok && params > s->params_room) {
		ok = grow(&s->params, params, sizeof(*s->params));
		s->params_room = ok ? params : s->params_room;
	}
	return ok ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "no memory to build %u nodes", stored->node_count);
}

void md_restore_scratch_finish(struct md_scratch *s)
{
	free(s->from);
	free(s->to);
	free(s->edge_data);
	free(s->params);
	*s = (struct md_scratch){0};
}

/* An access policy window holds an address that no pointer table names; other attributes are plain values. */
static enum md_status check_attribute(const struct md_attribute *attribute, const CUlaunchAttributeValue *value,
				      bool *skip, struct md_error *err)
{
	*skip = false;
	if (attribute->id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		return MD_OK;
	*skip = value->accessPolicyWindow.num_bytes == 0 || !value->accessPolicyWindow.base_ptr;
	if (*skip)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "it has an access policy window, whose address cannot be relocated");
}

static enum md_status set_attributes(const struct md_node *node, CUgraphNode handle, struct md_error *err)
{
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		CUlaunchAttributeValue value;
		bool skip;
		_Static_assert(sizeof(value) == sizeof(node->attributes[i].value),
			       "CUlaunchAttributeValue is 64 bytes");
		memcpy(&value, node->attributes[i].value, sizeof(value));
		MD_FORWARD(check_attribute(&node->attributes[i], &value, &skip, err));
		if (!skip && md_cuda_call(err, cuGraphKernelNodeSetAttribute, handle,
					  (CUlaunchAttributeID)node->attributes[i].id, &value) != MD_OK)
			return md_error_prefix(err, "attribute %u", node->attributes[i].id);
	}
	return MD_OK;
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
	if (md_cuda_call(err, cuGraphAddKernelNode_v2, out, graph, NULL, 0, &params) != MD_OK)
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

static enum md_status add_node(struct md_restore *r, CUgraph graph, const struct md_node *node, CUgraphNode *out,
			       struct md_error *err)
{
	switch (node->type) {
	case MD_NODE_KERNEL:
		return add_kernel(r, graph, node, out, err);
	case MD_NODE_MEMSET:
		return add_memset(r, graph, &node->memset, out, err);
	case MD_NODE_MEMCPY:
		return add_memcpy(r, graph, &node->memcpy, out, err);
	case MD_NODE_EMPTY:
		return md_cuda_call(err, cuGraphAddEmptyNode, out, graph, NULL, 0);
	default:
		return md_error_set(err, MD_ERR_UNSUPPORTED, "node type %u cannot be restored", node->type);
	}
}

static enum md_status add_edges(struct md_restore *r, const struct md_restore_graph *into, struct md_error *err)
{
	struct md_scratch *s = &r->scratch;
	const struct md_artifact_graph *stored = into->stored;
	CUgraph graph = into->graph;
	bool with_data = false;
	if (!stored->edge_count)
		return MD_OK;
	for (uint32_t i = 0; i < stored->edge_count; i++) {
		const struct md_edge *edge = &stored->edges[i];
		s->from[i] = into->nodes[edge->from];
		s->to[i] = into->nodes[edge->to];
		s->edge_data[i] =
		    (CUgraphEdgeData){.from_port = edge->from_port, .to_port = edge->to_port, .type = edge->type};
		with_data |= edge->from_port || edge->to_port || edge->type;
	}
	if (md_cuda.cuGraphAddDependencies_v2)
		return md_cuda_call(err, cuGraphAddDependencies_v2, graph, s->from, s->to, s->edge_data,
				    stored->edge_count);
	if (with_data)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "it has programmatic edges, and this driver has no cuGraphAddDependencies_v2");
	return md_cuda_call(err, cuGraphAddDependencies, graph, s->from, s->to, stored->edge_count);
}

static enum md_status begin_graph(struct md_restore_graph *graph, struct md_error *err)
{
	uint32_t count = graph->stored->node_count;
	graph->nodes = malloc((count ? count : 1) * sizeof(*graph->nodes));
	if (!graph->nodes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "no memory to build %u nodes", count);
	return md_cuda_call(err, cuGraphCreate, &graph->graph, 0);
}

enum md_status md_restore_build_nodes(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	MD_FORWARD(scratch_reserve(r, stored, err)); /* another graph's turn may have been in between */
	if (!graph->graph)
		MD_FORWARD(begin_graph(graph, err));
	for (uint32_t n = 0; n < graph->slice && graph->nodes_added < stored->node_count; n++) {
		uint32_t i = graph->nodes_added;
		if (add_node(r, graph->graph, &stored->nodes[i], &graph->nodes[i], err) != MD_OK)
			return md_error_prefix(err, "node %u", i);
		graph->nodes_added++;
	}
	return MD_OK;
}

enum md_status md_restore_build_edges(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	MD_FORWARD(scratch_reserve(r, graph->stored, err));
	MD_FORWARD(add_edges(r, graph, err));
	free(graph->nodes);
	graph->nodes = NULL;
	return MD_OK;
}
