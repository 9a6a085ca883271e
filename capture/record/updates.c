/* SPDX-License-Identifier: Apache-2.0 */
/* Executables that are changed, as a whole or node by node: their records are brought up to date. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "capture/record/graphs.h"
#include "capture/record/updates.h"
#include "capture/record/walk.h"
#include "format/artifact/artifact.h"

/*
 * Until the engine labels a graph, the last change counts, because the graph is as it will be when the engine asks for
 * it. A later change comes between replays, or in a part of the start that a restored graph skips. Nothing tells which,
 * so such a graph is refused. An update that changes nothing does not count.
 */

void md_capture_graph_keep(struct md_capture_graph *graph, struct md_capture_walk *walk, CUgraph source)
{
	bool same = graph->source == source && graph->kept.node_count == walk->out.node_count;
	free(graph->kept.nodes);
	free(graph->kept.edges);
	md_arena_free(&graph->kept.arena);
	graph->kept = walk->out;
	graph->kept.refused = NULL;
	walk->out = (struct md_trace_graph){0};
	/* Calls name the nodes of the graph from which the executable was instantiated, even after an update. */
	if (!graph->source)
		graph->handles = md_steal_ptr(&walk->handles);
	else if (!same)
		free(md_steal_ptr(&graph->handles));
	graph->source = graph->source ? graph->source : source;
}

void md_capture_graph_drop(struct md_capture_graph *graph)
{
	free(graph->kept.nodes);
	free(graph->kept.edges);
	md_arena_free(&graph->kept.arena);
	graph->kept = (struct md_trace_graph){0};
	free(md_steal_ptr(&graph->written));
	graph->written_count = 0;
	graph->written_known = false;
	free(md_steal_ptr(&graph->handles));
	free(md_steal_ptr(&graph->off));
}

/* ---- telling the trace ---- */

/* A node that is switched off keeps its place between the others, and does nothing. */
static struct md_node *nodes_that_run(const struct md_capture_graph *graph)
{
	const struct md_trace_graph *kept = &graph->kept;
	struct md_node *nodes = malloc((kept->node_count + (size_t)1) * sizeof(*nodes));
	if (!nodes)
		return NULL;
	if (kept->node_count)
		memcpy(nodes, kept->nodes, kept->node_count * sizeof(*nodes));
	for (uint32_t i = 0; graph->off && i < kept->node_count; i++) {
		if (graph->off[i])
			nodes[i] =
			    (struct md_node){.type = MD_NODE_EMPTY, .kernel = MD_NONE, .sequence = nodes[i].sequence};
	}
	return nodes;
}

static void put(struct md_capture_graph *graph, const char *refused) MD_CAPTURE_HELD
{
	struct md_trace_graph out = graph->kept;
	MD_AUTO_FREE struct md_node *nodes = nodes_that_run(graph);
	char why[256];
	if (!refused && graph->communicates)
		refused = "it communicates with other ranks, and was changed after instantiation";
	graph->stale = false;
	if (!md_capture.writer)
		return;
	if (!nodes) {
		md_capture_trouble("out of memory for a graph that was changed");
		return;
	}
	snprintf(why, sizeof(why), "%s", refused ? refused : "");
	out.nodes = nodes;
	out.sequence = md_capture_next();
	out.refused = refused ? why : NULL;
	md_trace_put_graph(md_capture.writer, out.sequence, &out);
	graph->refused |= refused != NULL;
	graph->unwanted &= refused == NULL;
	graph->handed_seen = graph->handed_count = graph->handed_tested = 0;
	free(md_steal_ptr(&graph->written));
	graph->written_count = 0;
	graph->probed = graph->refused; /* the findings of a test belong to the graph before the change */
}

void md_capture_graph_flush(struct md_capture_graph *graph)
{
	if (graph->stale)
		put(graph, NULL);
}

void md_capture_graphs_flush(void)
{
	struct md_capture_graph *graph;
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++)
		md_capture_graph_flush(graph);
}

/* ---- comparing ---- */

static bool same_bytes(const void *a, const void *b, size_t bytes)
{
	return !bytes || (a && b && !memcmp(a, b, bytes));
}

static bool same_attributes(const struct md_node *a, const struct md_node *b)
{
	if (a->attribute_count != b->attribute_count)
		return false;
	for (uint32_t i = 0; i < a->attribute_count; i++)
		if (a->attributes[i].id != b->attributes[i].id ||
		    memcmp(a->attributes[i].value, b->attributes[i].value, sizeof(a->attributes[i].value)) != 0)
			return false;
	return true;
}

static bool same_node(const struct md_node *a, const struct md_node *b)
{
	if (a->type != b->type || a->kernel != b->kernel)
		return false;
	switch (a->type) {
	case MD_NODE_KERNEL:
		return !memcmp(a->grid, b->grid, sizeof(a->grid)) && !memcmp(a->block, b->block, sizeof(a->block)) &&
		       a->shared_bytes == b->shared_bytes && a->via_extra == b->via_extra &&
		       a->params_size == b->params_size && same_bytes(a->params, b->params, a->params_size) &&
		       same_attributes(a, b);
	case MD_NODE_MEMSET:
		return !memcmp(&a->memset, &b->memset, sizeof(a->memset));
	case MD_NODE_MEMCPY:
		return !memcmp(&a->memcpy, &b->memcpy, sizeof(a->memcpy));
	case MD_NODE_CHILD:
		return a->child_nodes == b->child_nodes;
	case MD_NODE_EVENT_RECORD:
	case MD_NODE_EVENT_WAIT:
		return a->event == b->event;
	default:
		return true;
	}
}

static bool same_edge(const struct md_edge *a, const struct md_edge *b)
{
	return a->from == b->from && a->to == b->to && a->from_port == b->from_port && a->to_port == b->to_port &&
	       a->type == b->type;
}

static bool same_graph(const struct md_trace_graph *a, const struct md_trace_graph *b)
{
	if (a->node_count != b->node_count || a->edge_count != b->edge_count)
		return false;
	for (uint32_t i = 0; i < a->node_count; i++)
		if (!same_node(&a->nodes[i], &b->nodes[i]))
			return false;
	for (uint32_t i = 0; i < a->edge_count; i++)
		if (!same_edge(&a->edges[i], &b->edges[i]))
			return false;
	return true;
}

/* ---- changes ---- */

static void refuse(struct md_capture_graph *graph, const char *call, const char *why) MD_CAPTURE_HELD
{
	char text[128];
	snprintf(text, sizeof(text), "%s (%s)", why, call);
	put(graph, text);
}

#define AFTER_NAME "updated again after it was labelled"

static bool is_followed(const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	return graph && graph->exec && !graph->refused && md_capture.writer;
}

static bool anything_off(const struct md_capture_graph *graph)
{
	for (uint32_t i = 0; graph->off && i < graph->kept.node_count; i++)
		if (graph->off[i])
			return true;
	return false;
}

void md_capture_exec_updated(CUgraphExec exec, CUgraph source, const char *call)
{
	struct md_capture_walk walk = {0};
	struct md_capture_graph *graph;
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (is_followed(graph)) {
		walk.out.id = graph->id;
		walk.out.sequence = md_capture_next();
		walk.out.instantiate_flags = graph->kept.instantiate_flags;
		walk.context = graph->context;
		md_capture_walk(&walk, source);
		if (walk.out_of_memory || !md_capture_graph_take_candidates(graph, &walk)) {
			md_capture_trouble("out of memory for a graph that was updated");
		} else if (anything_off(graph)) {
			refuse(graph, call, "updated while one of its nodes was switched off");
		} else if (!same_graph(&graph->kept, &walk.out) || md_capture_walk_reason(&walk)) {
			bool late = graph->labelled;
			graph->pageable |= walk.pageable;
			graph->unread |= walk.unread;
			md_capture_graph_keep(graph, &walk, source);
			graph->stale = true;
			if (late)
				refuse(graph, call, AFTER_NAME);
			else if (md_capture_walk_reason(&walk))
				put(graph, md_capture_walk_reason(&walk));
		}
	}
	md_capture_unlock();
	md_capture_walk_finish(&walk);
}

/* Which node of the graph the engine means; MD_NONE, and refused, when that is not known. */
static uint32_t find_node(struct md_capture_graph *graph, CUgraphNode node, const char *call) MD_CAPTURE_HELD
{
	for (uint32_t i = 0; graph->handles && i < graph->kept.node_count; i++)
		if (graph->handles[i] == node)
			return i;
	refuse(graph, call, "updated after instantiation in a way that Medusa does not record");
	return MD_NONE;
}

static void change_node(struct md_capture_graph *graph, uint32_t at, const CUgraphNodeParams *params,
			const char *call) MD_CAPTURE_HELD
{
	struct md_capture_walk walk = {.out = graph->kept, .context = graph->context};
	const struct md_node before = graph->kept.nodes[at];
	walk.sequence = md_capture_next();
	for (size_t i = 0; i < graph->candidate_count; i++)
		walk.out_of_memory |= !md_map_put(&walk.candidates, graph->candidates[i], 1);
	md_capture_walk_change(&walk, at, params);
	graph->kept.arena = walk.out.arena;
	graph->pageable |= walk.pageable;
	if (walk.out_of_memory || !md_capture_graph_take_candidates(graph, &walk)) {
		md_capture_trouble("out of memory for a node that was changed");
	} else if (md_capture_walk_reason(&walk)) {
		graph->kept.nodes[at] = before; /* half of a change cannot be recorded */
		put(graph, md_capture_walk_reason(&walk));
	} else if (!same_node(&before, &graph->kept.nodes[at])) {
		graph->stale = true;
		if (graph->labelled)
			refuse(graph, call, AFTER_NAME);
	}
	md_map_finish(&walk.candidates);
}

void md_capture_exec_changed(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params, const char *call)
{
	struct md_capture_graph *graph;
	uint32_t at;
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (is_followed(graph)) {
		at = params ? find_node(graph, node, call) : MD_NONE;
		if (at != MD_NONE)
			change_node(graph, at, params, call);
		else if (!params)
			refuse(graph, call, "updated after instantiation in a way that Medusa does not record");
	}
	md_capture_unlock();
}

/* Programmatic edges belong to kernels: if one of its kernels is switched off, the edge cannot be made anew. */
static bool has_ports(const struct md_trace_graph *kept, uint32_t at)
{
	for (uint32_t i = 0; i < kept->edge_count; i++)
		if ((kept->edges[i].from == at || kept->edges[i].to == at) && kept->edges[i].type)
			return true;
	return false;
}

static void switch_node(struct md_capture_graph *graph, uint32_t at, bool on, const char *call) MD_CAPTURE_HELD
{
	if (!graph->off)
		graph->off = calloc(graph->kept.node_count + (size_t)1, sizeof(*graph->off));
	if (!graph->off) {
		md_capture_trouble("out of memory for a node that was switched off");
		return;
	}
	if (graph->off[at] == !on)
		return;
	graph->off[at] = !on;
	graph->stale = true;
	if (graph->labelled)
		refuse(graph, call, AFTER_NAME);
	else if (has_ports(&graph->kept, at))
		refuse(graph, call, "a node with programmatic edges was switched off");
}

void md_capture_exec_switched(CUgraphExec exec, CUgraphNode node, bool on, const char *call)
{
	struct md_capture_graph *graph;
	uint32_t at;
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (is_followed(graph)) {
		at = find_node(graph, node, call);
		if (at != MD_NONE)
			switch_node(graph, at, on, call);
	}
	md_capture_unlock();
}
