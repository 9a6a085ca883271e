/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: refuses graphs with events that others use too; the rest a restore makes anew, for each graph its own. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

static bool has_event(const struct md_node *node)
{
	return node->type == MD_NODE_EVENT_WAIT || node->type == MD_NODE_EVENT_RECORD;
}

uint32_t *md_analysis_number_events(const struct md_trace_graph *graph)
{
	uint32_t *numbers = malloc((graph->node_count + (size_t)1) * sizeof *numbers);
	uint32_t next = 0;
	struct md_map known;

	if (!numbers)
		return NULL;
	md_map_init(&known);
	for (uint32_t n = 0; n < graph->node_count; n++) {
		uint64_t number = next;
		numbers[n] = MD_NONE;
		if (!has_event(&graph->nodes[n]))
			continue;
		if (!md_map_get(&known, graph->nodes[n].event, &number)) {
			next++;
			if (!md_map_put(&known, graph->nodes[n].event, number)) {
				free(md_steal_ptr(&numbers));
				break;
			}
		}
		numbers[n] = (uint32_t)number;
	}
	md_map_finish(&known);
	return numbers;
}

static bool uses(const struct md_trace_graph *graph, uint32_t event, uint8_t type)
{
	for (uint32_t n = 0; n < graph->node_count; n++) {
		if (graph->nodes[n].type == type && graph->nodes[n].event == event)
			return true;
	}
	return false;
}

/* Nodes that the node depends on, in its own graph, are marked. False when out of memory. */
static bool mark_before(const struct md_trace_graph *graph, uint32_t node, uint8_t *marks)
{
	MD_AUTO_FREE uint32_t *stack = calloc(graph->node_count + (size_t)1, sizeof *stack);
	uint32_t depth = 0;

	if (!stack)
		return false;
	for (stack[depth++] = node; depth > 0;) {
		uint32_t at = stack[--depth];
		for (uint32_t e = 0; e < graph->edge_count; e++) {
			const struct md_edge *edge = &graph->edges[e];
			if (edge->to != at || marks[edge->from])
				continue;
			marks[edge->from] = 1;
			stack[depth++] = edge->from;
		}
	}
	return true;
}

/* 1: every node that waits for the event comes behind one that records it, in each replay; 0: not; -1: no memory. */
static int records_first(const struct md_trace_graph *graph, uint32_t event)
{
	MD_AUTO_FREE uint8_t *marks = malloc(graph->node_count + (size_t)1);

	if (!marks)
		return -1;
	for (uint32_t n = 0; n < graph->node_count; n++) {
		bool recorded = false;
		if (graph->nodes[n].type != MD_NODE_EVENT_WAIT || graph->nodes[n].event != event)
			continue;
		memset(marks, 0, graph->node_count);
		if (!mark_before(graph, n, marks))
			return -1;
		for (uint32_t m = 0; m < graph->node_count; m++)
			recorded |=
			    marks[m] && graph->nodes[m].type == MD_NODE_EVENT_RECORD && graph->nodes[m].event == event;
		if (!recorded)
			return 0;
	}
	return 1;
}

static const char *use_by_engine(const struct md_trace *trace, uint32_t event)
{
	for (uint32_t i = 0; i < trace->event_use_count; i++) {
		if (trace->event_uses[i].event == event)
			return trace->event_uses[i].call;
	}
	return NULL;
}

static const struct md_trace_graph *other_user(const struct md_trace *trace, const struct md_trace_graph *graph,
					       uint32_t event)
{
	for (uint32_t i = 0; i < trace->graph_count; i++) {
		const struct md_trace_graph *other = &trace->graphs[i];
		if (other != graph &&
		    (uses(other, event, MD_NODE_EVENT_WAIT) || uses(other, event, MD_NODE_EVENT_RECORD)))
			return other;
	}
	return NULL;
}

/*
 * An event can be made anew when nothing outside of the graph waits for it or records it. Other graphs may share it if
 * each records it before it waits: then none means another's record.
 */
static bool check_event(const struct md_trace *trace, struct md_pair *pair, const struct md_trace_graph *graph,
			uint32_t node)
{
	uint32_t event = graph->nodes[node].event;
	const char *call = use_by_engine(trace, event);
	const struct md_trace_graph *other;
	int first = 1;

	if (call) {
		md_pair_refuse(pair, "node %" PRIu32 ": the engine uses its event, too (%s)", node, call);
		return true;
	}
	if (graph->nodes[node].type == MD_NODE_EVENT_WAIT && !uses(graph, event, MD_NODE_EVENT_RECORD)) {
		md_pair_refuse(pair, "node %" PRIu32 ": waits for an event that the graph does not record", node);
		return true;
	}
	other = other_user(trace, graph, event);
	if (!other)
		return true;
	first = records_first(graph, event);
	for (uint32_t i = 0; first == 1 && i < trace->graph_count; i++)
		first = records_first(&trace->graphs[i], event);
	if (first == 0)
		md_pair_refuse(pair,
			       "node %" PRIu32 ": graph %s/%" PRIu32
			       " uses its event, too, and one of them waits before it records",
			       node, other->label ? other->label : "(no label)", other->batch);
	return first >= 0;
}

/* Both captures use their events in the same pattern. */
static bool check_pattern(struct md_pair *pair)
{
	MD_AUTO_FREE uint32_t *one = md_analysis_number_events(pair->graph[0]);
	MD_AUTO_FREE uint32_t *two = pair->graph[1] ? md_analysis_number_events(pair->graph[1]) : NULL;

	if (!one || (pair->graph[1] && !two))
		return false;
	for (uint32_t n = 0; two && n < pair->graph[0]->node_count; n++) {
		if (one[n] != two[n])
			md_pair_refuse(pair, "node %" PRIu32 ": its event is another in the second capture", n);
	}
	return true;
}

static bool check_pair(const struct md_analysis *analysis, struct md_pair *pair)
{
	bool any = false;

	for (uint32_t c = 0; c < analysis->captures; c++) {
		const struct md_trace_graph *graph = pair->graph[c];
		for (uint32_t n = 0; n < graph->node_count && !pair->why; n++) {
			if (!has_event(&graph->nodes[n]))
				continue;
			any = true;
			if (!check_event(analysis->traces[c], pair, graph, n))
				return false;
		}
	}
	return !any || pair->why || check_pattern(pair);
}

enum md_status md_pass_event(struct md_analysis *analysis, struct md_error *err)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		if (!analysis->pairs[i].why && !check_pair(analysis, &analysis->pairs[i]))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}
