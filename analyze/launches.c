/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which launches were made. Passes go through the graphs in this order, because a view moves forward
 * cheaply.
 */
#include <stdlib.h>

#include "analyze/analysis.h"

static uint64_t launch_sequence(const struct md_trace_graph *graph, uint32_t node)
{
	return graph->nodes[node].sequence ? graph->nodes[node].sequence : graph->sequence;
}

enum md_status md_analysis_seek_node(struct md_analysis *analysis, const struct md_pair *pair, uint32_t node,
				     struct md_error *err)
{
	for (unsigned c = 0; c < analysis->captures; c++)
		MD_FORWARD(md_view_seek(&analysis->views[c], launch_sequence(pair->graph[c], node), err));
	return MD_OK;
}

static int compare_launches(const void *left, const void *right, void *user)
{
	const struct md_trace_graph *graph = user;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	uint64_t one = launch_sequence(graph, a), two = launch_sequence(graph, b);
	if (one != two)
		return one < two ? -1 : 1;
	return (a > b) - (a < b);
}

uint32_t *md_analysis_order_nodes(const struct md_trace_graph *graph)
{
	uint32_t *order = calloc(graph->node_count + 1u, sizeof(*order));
	for (uint32_t i = 0; order && i < graph->node_count; i++)
		order[i] = i;
	if (order)
		qsort_r(order, graph->node_count, sizeof(*order), compare_launches, (void *)(uintptr_t)graph);
	return order;
}

static int compare_captured(const void *left, const void *right)
{
	const struct md_pair *a = *(struct md_pair *const *)left, *b = *(struct md_pair *const *)right;
	return (a->graph[0]->sequence > b->graph[0]->sequence) - (a->graph[0]->sequence < b->graph[0]->sequence);
}

struct md_pair **md_analysis_order_pairs(struct md_analysis *analysis, uint32_t *count)
{
	struct md_pair **order = calloc(analysis->pair_count + (size_t)1, sizeof(*order));
	*count = 0;
	for (uint32_t i = 0; order && i < analysis->pair_count; i++) {
		if (!analysis->pairs[i].why)
			order[(*count)++] = &analysis->pairs[i];
	}
	if (order)
		qsort(order, *count, sizeof(*order), compare_captured);
	return order;
}
