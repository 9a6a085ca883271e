/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edges of a restored graph. Driver 580.159 gives all edges of one cuGraphAddDependencies_v2() the data of the first
 * one. Then either every edge is a full dependency, and the graph is slower, or every edge is programmatic, and kernels
 * that do not wait for each other read what is not written yet. So a call gets edges with equal data, and the edges of a
 * graph with programmatic ones are read back; a verification reads back those of all graphs.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "restore/build.h"
#include "restore/edges.h"

static bool is_plain(const struct md_edge *edge)
{
	return !edge->from_port && !edge->to_port && !edge->type;
}

static CUgraphEdgeData data_of(const struct md_edge *edge)
{
	return (CUgraphEdgeData){.from_port = edge->from_port, .to_port = edge->to_port, .type = edge->type};
}

/* ---- adding them ---- */

/* One call adds only edges of one graph, and with equal data. */
static bool go_together(const struct md_restore_graph *graph, const struct md_edge *one, const struct md_edge *two)
{
	return one->from_port == two->from_port && one->to_port == two->to_port && one->type == two->type &&
	       md_restore_home_of(graph, one->from) == md_restore_home_of(graph, two->from);
}

/* Adds the edges that are in the scratch memory; `first` is the first of them. */
static enum md_status add_run(struct md_restore *r, const struct md_restore_graph *graph, const struct md_edge *first,
			      uint32_t count, struct md_error *err)
{
	struct md_scratch *s = &r->scratch;
	CUgraph into = md_restore_home_of(graph, first->from);
	if (md_cuda.cuGraphAddDependencies_v2)
		return md_cuda_call(err, cuGraphAddDependencies_v2, into, s->from, s->to, s->edge_data, count);
	if (!is_plain(first))
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "it has programmatic edges, and this driver has no cuGraphAddDependencies_v2");
	return md_cuda_call(err, cuGraphAddDependencies, into, s->from, s->to, count);
}

/* In two passes, because full dependencies and programmatic ones usually alternate. */
static enum md_status add_kind(struct md_restore *r, const struct md_restore_graph *graph, bool plain,
			       struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	struct md_scratch *s = &r->scratch;
	const struct md_edge *first = NULL;
	uint32_t count = 0;
	for (uint32_t i = 0; i < stored->edge_count; i++) {
		const struct md_edge *edge = &stored->edges[i];
		if (is_plain(edge) != plain)
			continue;
		if (first && !go_together(graph, first, edge)) {
			MD_FORWARD(add_run(r, graph, first, count, err));
			first = NULL;
		}
		if (!first) {
			first = edge;
			count = 0;
		}
		s->from[count] = graph->nodes[edge->from];
		s->to[count] = graph->nodes[edge->to];
		s->edge_data[count++] = data_of(edge);
	}
	return first ? add_run(r, graph, first, count, err) : MD_OK;
}

/* ---- reading them back ---- */

struct told_edge {
	CUgraphNode from, to;
	CUgraphEdgeData data;
};

static int compare_edges(const void *left, const void *right)
{
	return memcmp(left, right, sizeof(struct told_edge));
}

/* A driver without the newer call has no edges but full dependencies. */
static enum md_status get_edges(struct md_scratch *s, CUgraph graph, bool count_only, size_t *found,
				struct md_error *err)
{
	CUgraphNode *from = count_only ? NULL : s->from, *to = count_only ? NULL : s->to;
	if (md_cuda.cuGraphGetEdges_v2)
		return md_cuda_call(err, cuGraphGetEdges_v2, graph, from, to, count_only ? NULL : s->edge_data, found);
	if (!count_only)
		memset(s->edge_data, 0, *found * sizeof(*s->edge_data));
	return md_cuda_call(err, cuGraphGetEdges, graph, from, to, found);
}

/* Appends the edges of one graph; `count` are known already. verify: all are counted, even those that have no room. */
static enum md_status read_edges(struct md_restore *r, CUgraph graph, struct told_edge *told, uint32_t *count,
				 uint32_t room, struct md_error *err)
{
	struct md_scratch *s = &r->scratch;
	size_t found = room - *count, all = 0;
	if (r->reads_back) {
		MD_FORWARD(get_edges(s, graph, true, &all, err));
		if (all > found) {
			*count += (uint32_t)all;
			return MD_OK;
		}
	}
	if (!found)
		return MD_OK;
	MD_FORWARD(get_edges(s, graph, false, &found, err));
	for (size_t i = 0; i < found && *count < room; i++)
		told[(*count)++] = (struct told_edge){s->from[i], s->to[i], s->edge_data[i]};
	return MD_OK;
}

static uint32_t index_of(const struct md_restore_graph *graph, CUgraphNode node)
{
	uint32_t i = 0;
	while (i < graph->stored->node_count && graph->nodes[i] != node)
		i++;
	return i;
}

static enum md_status say_different(const struct md_restore_graph *graph, const struct told_edge *wanted,
				    const struct told_edge *told, struct md_error *err)
{
	if (wanted->from != told->from || wanted->to != told->to)
		return md_error_set(err, MD_ERR_DRIVER, "the driver does not have the edge from node %u to node %u",
				    index_of(graph, wanted->from), index_of(graph, wanted->to));
	return md_error_set(err, MD_ERR_DRIVER,
			    "edge from node %u to node %u: artifact has ports %u and %u, type %u, the driver has made "
			    "ports %u and %u, type %u of it",
			    index_of(graph, wanted->from), index_of(graph, wanted->to), wanted->data.from_port,
			    wanted->data.to_port, wanted->data.type, told->data.from_port, told->data.to_port,
			    told->data.type);
}

static enum md_status check(struct md_restore *r, const struct md_restore_graph *graph, struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	uint32_t count = 0, edges = stored->edge_count;
	MD_AUTO_FREE struct told_edge *told = calloc(2 * (size_t)edges + 1, sizeof(*told));
	if (!told)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u edges", edges);
	struct told_edge *wanted = told + edges;
	MD_FORWARD(read_edges(r, graph->graph, told, &count, edges, err));
	for (uint32_t i = 0; graph->children && i < stored->node_count && count <= edges; i++)
		if (graph->children[i])
			MD_FORWARD(read_edges(r, graph->children[i], told, &count, edges, err));
	if (count != edges)
		return md_error_set(err, MD_ERR_DRIVER, "artifact has %u edges, the driver has %u", edges, count);
	for (uint32_t i = 0; i < edges; i++)
		wanted[i] = (struct told_edge){graph->nodes[stored->edges[i].from], graph->nodes[stored->edges[i].to],
					       data_of(&stored->edges[i])};
	qsort(told, edges, sizeof(*told), compare_edges);
	qsort(wanted, edges, sizeof(*wanted), compare_edges);
	for (uint32_t i = 0; i < edges; i++)
		if (compare_edges(&wanted[i], &told[i]))
			return say_different(graph, &wanted[i], &told[i], err);
	return MD_OK;
}

static bool any_programmatic(const struct md_artifact_graph *stored)
{
	for (uint32_t i = 0; i < stored->edge_count; i++)
		if (!is_plain(&stored->edges[i]))
			return true;
	return false;
}

/* A verification reads back the edges of every graph. */
enum md_status md_restore_edges_add(struct md_restore *r, const struct md_restore_graph *graph, struct md_error *err)
{
	bool programmatic = any_programmatic(graph->stored);
	MD_FORWARD(add_kind(r, graph, true, err));
	if (programmatic)
		MD_FORWARD(add_kind(r, graph, false, err));
	if (programmatic && !md_cuda.cuGraphGetEdges_v2)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "it has programmatic edges, and this driver has no cuGraphGetEdges_v2");
	return programmatic || r->reads_back ? check(r, graph, err) : MD_OK;
}
