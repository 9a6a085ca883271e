/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes and edges, added, copied, listed and destroyed. What a node holds is in graph_node.c. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/graph.h"
#include "hostcuda/graph_node.h"
#include "hostcuda/node_fault.h"
#include "hostcuda/stream_capture.h"

static const CUgraphEdgeData plain_edge;

struct hc_graph *hc_graph_new(void)
{
	struct hc_graph *graph = calloc(1, sizeof(*graph));
	if (graph && !hc_handle_add(graph, HC_GRAPH)) {
		free(graph);
		graph = NULL;
	}
	return graph;
}

void hc_graph_free(struct hc_graph *graph)
{
	HC_STATE_GUARD();
	if (!graph)
		return;
	hc_handle_remove(graph);
	for (size_t i = 0; i < graph->count; i++)
		hc_node_free(graph->nodes[i]);
	free(graph->nodes);
	free(graph);
}

static struct hc_graph *graph_of(CUgraph handle)
{
	return hc_handle_kind(handle) == HC_GRAPH ? (struct hc_graph *)handle : NULL;
}

static struct hc_node *node_of(CUgraphNode handle)
{
	return hc_handle_kind(handle) == HC_NODE ? (struct hc_node *)handle : NULL;
}

CUresult hc_node_new(struct hc_graph *graph, CUgraphNodeType type, struct hc_node **made)
{
	struct hc_node *node = calloc(1, sizeof(*node));
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->type = type;
	node->graph = graph;
	*made = node;
	return CUDA_SUCCESS;
}

void hc_node_free(struct hc_node *node)
{
	hc_handle_remove(node);
	hc_node_clear_content(node);
	hc_front_clear(&node->from);
	free(node);
}

CUresult hc_node_attach(struct hc_node *node)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = node->graph;
	if (!MD_ARRAY_GROW(graph->nodes, graph->count, graph->capacity) || !hc_handle_add(node, HC_NODE)) {
		hc_node_free(node);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	node->id = graph->count;
	graph->nodes[graph->count++] = node;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = (CUgraph)hc_graph_new();
	return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hc_cuGraphDestroy(CUgraph hGraph)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = graph_of(hGraph);
	if (!graph || graph->borrowed)
		return CUDA_ERROR_INVALID_VALUE;
	hc_graph_free(graph);
	return CUDA_SUCCESS;
}

/* Node i of the copy is a copy of node i. Ids are positions, so edges are translated by id. */
CUresult hc_graph_copy(const struct hc_graph *graph, struct hc_graph **made)
{
	HC_STATE_GUARD();
	struct hc_graph *copy = hc_graph_new();
	CUresult result = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		struct hc_node *node;
		result = hc_node_new(copy, graph->nodes[i]->type, &node);
		if (result != CUDA_SUCCESS)
			break;
		result = hc_node_copy_content(node, graph->nodes[i]);
		if (result == CUDA_SUCCESS)
			result = hc_node_attach(node);
		else
			hc_node_free(node);
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		const struct hc_front *from = &graph->nodes[i]->from;
		for (size_t j = 0; j < from->count; j++)
			if (!hc_front_add(&copy->nodes[i]->from, copy->nodes[from->items[j].node->id],
					  &from->items[j].data))
				result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		hc_graph_free(copy);
		return result;
	}
	*made = copy;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = graph_of(originalGraph), *copy;
	if (!phGraphClone || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_graph_copy(graph, &copy));
	*phGraphClone = (CUgraph)copy;
	return CUDA_SUCCESS;
}

/* With an array, fills *count entries, with NULL beyond the last node; without one, returns the number of nodes. */
CUresult hc_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = graph_of(hGraph);
	if (!graph || !numNodes)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; nodes && i < *numNodes; i++)
		nodes[i] = i < graph->count ? (CUgraphNode)graph->nodes[i] : NULL;
	if (!nodes || *numNodes > graph->count)
		*numNodes = graph->count;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = graph_of(hGraph);
	size_t count = 0;
	if (!graph || !numRootNodes)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < graph->count; i++) {
		if (graph->nodes[i]->from.count)
			continue;
		if (rootNodes && count < *numRootNodes)
			rootNodes[count] = (CUgraphNode)graph->nodes[i];
		count++;
	}
	if (!rootNodes || *numRootNodes > count)
		*numRootNodes = count;
	return CUDA_SUCCESS;
}

static bool is_plain(const CUgraphEdgeData *data)
{
	return !memcmp(data, &plain_edge, sizeof(*data));
}

CUresult hc_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
			       size_t *numEdges)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = graph_of(hGraph);
	size_t count = 0;
	if (!graph || !numEdges || !from != !to || (edgeData && !from))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < graph->count; i++) {
		const struct hc_front *edges = &graph->nodes[i]->from;
		for (size_t j = 0; j < edges->count; j++, count++) {
			if (!from || count >= *numEdges)
				continue;
			if (!edgeData && !is_plain(&edges->items[j].data))
				return CUDA_ERROR_LOSSY_QUERY;
			from[count] = (CUgraphNode)edges->items[j].node;
			to[count] = (CUgraphNode)graph->nodes[i];
			if (edgeData)
				edgeData[count] = edges->items[j].data;
		}
	}
	if (!from || *numEdges > count)
		*numEdges = count;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return hc_cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult hc_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
					  size_t *numDependencies)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode);
	if (!node || !numDependencies || (edgeData && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; dependencies && i < *numDependencies; i++) {
		bool there = i < node->from.count;
		if (there && !edgeData && !is_plain(&node->from.items[i].data))
			return CUDA_ERROR_LOSSY_QUERY;
		dependencies[i] = there ? (CUgraphNode)node->from.items[i].node : NULL;
		if (edgeData && there)
			edgeData[i] = node->from.items[i].data;
	}
	if (!dependencies || *numDependencies > node->from.count)
		*numDependencies = node->from.count;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
	return hc_cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

/* Programmatic edges lead from a kernel's port to a kernel; other nodes have no ports. */
static bool edge_allowed(const struct hc_node *from, const struct hc_node *to, const CUgraphEdgeData *data)
{
	static const unsigned char none[sizeof(data->reserved)];
	if (data->to_port || memcmp(data->reserved, none, sizeof(none)))
		return false;
	if (data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
		return data->from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
	bool port = data->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
		    data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
	return data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && port && from->type == CU_GRAPH_NODE_TYPE_KERNEL &&
	       to->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

static bool depends_directly(const struct hc_node *node, const struct hc_node *on)
{
	for (size_t i = 0; i < node->from.count; i++)
		if (node->from.items[i].node == on)
			return true;
	return false;
}

/*
 * As driver 580.159 does: all edges get the data of the first one. HOSTCUDA_EDGE_DATA=ignored: all edges become full
 * dependencies, for tests of a driver with another fault.
 */
CUresult hc_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	HC_STATE_GUARD();
	struct hc_graph *graph = graph_of(hGraph);
	const char *data = secure_getenv("HOSTCUDA_EDGE_DATA");
	bool ignored = data && !strcmp(data, "ignored");
	if (!graph || (numDependencies && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numDependencies; i++) {
		struct hc_node *source = node_of(from[i]), *target = node_of(to[i]);
		if (!source || !target || source == target || source->graph != graph || target->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
		if (depends_directly(target, source) ||
		    !edge_allowed(source, target, edgeData ? &edgeData[i] : &plain_edge))
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i + (hc_node_fault("edge") && numDependencies > 1) < numDependencies; i++)
		if (!hc_front_add(&node_of(to[i])->from, node_of(from[i]), ignored ? NULL : edgeData))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				   size_t numDependencies)
{
	return hc_cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

/* HOSTCUDA_EMPTY_TYPE=N: empty nodes report type N, for tests of node types that this device does not have. */
CUresult hc_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	HC_STATE_GUARD();
	const char *other = secure_getenv("HOSTCUDA_EMPTY_TYPE");
	if (!node_of(hNode) || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node_of(hNode)->type;
	if (*type == CU_GRAPH_NODE_TYPE_EMPTY && other)
		*type = (CUgraphNodeType)atoi(other);
	return CUDA_SUCCESS;
}

static void remove_edge(struct hc_front *front, const struct hc_node *node)
{
	size_t kept = 0;
	for (size_t i = 0; i < front->count; i++)
		if (front->items[i].node != node)
			front->items[kept++] = front->items[i];
	front->count = kept;
}

CUresult hc_cuGraphDestroyNode(CUgraphNode hNode)
{
	HC_STATE_GUARD();
	struct hc_node *node = node_of(hNode);
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	struct hc_graph *graph = node->graph;
	size_t kept = 0;
	for (size_t i = 0; i < graph->count; i++) {
		if (graph->nodes[i] == node)
			continue;
		graph->nodes[kept] = graph->nodes[i];
		graph->nodes[kept]->id = kept;
		remove_edge(&graph->nodes[kept++]->from, node);
	}
	graph->count = kept;
	hc_node_free(node);
	return CUDA_SUCCESS;
}
