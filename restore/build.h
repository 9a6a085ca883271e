/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs from patched nodes. */
#ifndef MD_RESTORE_BUILD_H
#define MD_RESTORE_BUILD_H

#include "restore/restore.h"

/* Adds up to graph->slice nodes; then, once all nodes exist, the edges. */
enum md_status md_restore_build_nodes(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
enum md_status md_restore_build_edges(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
/* The event of an event node: the graph's own, or the communication library's. */
enum md_status md_restore_event_of(const struct md_restore *r, const struct md_restore_graph *graph,
				   const struct md_node *node, CUevent *out, struct md_error *err);
/* The graph that a node belongs to: this one, or a child graph of it. While the graph is being built. */
static inline CUgraph md_restore_home_of(const struct md_restore_graph *graph, uint32_t node)
{
	uint32_t parent = graph->parents ? graph->parents[node] : MD_NONE;
	return parent == MD_NONE ? graph->graph : graph->children[parent];
}

/* Frees memory that only building needs; destroys the events, after the nodes that use them. */
void md_restore_build_finish(struct md_restore_graph *graph);
void md_restore_events_destroy(struct md_restore_graph *graph);
void md_restore_scratch_finish(struct md_scratch *scratch);

#endif
