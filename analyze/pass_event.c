/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: refuses graphs whose events are used outside of the graph; a restore makes all other events anew, for each
 * graph its own. Events of communication libraries are those of the live library (pass_admit.c).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"
#include "driver/maker.h"

static bool has_event(const struct md_node *node)
{
	return node->type == MD_NODE_EVENT_WAIT || node->type == MD_NODE_EVENT_RECORD;
}

const char *md_analysis_event_name(const struct md_trace *trace, uint32_t event)
{
	for (uint32_t i = 0; i < trace->event_name_count; i++)
		if (trace->event_names[i].event == event)
			return trace->event_names[i].name;
	return NULL;
}

/* False: it is no event of a communication library. */
static bool number_made(const struct md_trace *trace, const struct md_trace_graph *graph, uint32_t node,
			uint32_t *number)
{
	const char *name = graph->together ? md_analysis_event_name(trace, graph->nodes[node].event) : NULL;
	uint32_t place;
	if (!name || !md_maker_event_of(name, &place) || place >= MD_LIBRARY_EVENTS_MOST)
		return false;
	*number = graph->node_count + place;
	return true;
}

uint32_t *md_analysis_number_events(const struct md_trace *trace, const struct md_trace_graph *graph)
{
	uint32_t *numbers = calloc(graph->node_count + (size_t)1, sizeof(*numbers));
	uint32_t next = 0;
	struct md_map known;
	if (!numbers)
		return NULL;
	md_map_init(&known);
	for (uint32_t n = 0; n < graph->node_count; n++) {
		uint64_t number = next;
		numbers[n] = MD_NONE;
		if (!has_event(&graph->nodes[n]) || number_made(trace, graph, n, &numbers[n]))
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

/*
 * 1: every node that waits for the event comes behind a node that records it, in each replay; 0: some node does not;
 * -1: out of memory. Edges mostly ascend, because nodes were captured in that order, so one turn usually marks all.
 */
static int records_first(const struct md_trace_graph *graph, uint32_t event)
{
	MD_AUTO_FREE uint8_t *behind = calloc(graph->node_count + (size_t)1, 1);
	bool more = true;
	if (!behind)
		return -1;
	while (more) {
		more = false;
		for (uint32_t e = 0; e < graph->edge_count; e++) {
			const struct md_edge *edge = &graph->edges[e];
			const struct md_node *from = &graph->nodes[edge->from];
			bool records = from->type == MD_NODE_EVENT_RECORD && from->event == event;
			if (behind[edge->to] || !(behind[edge->from] || records))
				continue;
			behind[edge->to] = 1;
			more = true;
		}
	}
	for (uint32_t n = 0; n < graph->node_count; n++) {
		const struct md_node *node = &graph->nodes[n];
		if (node->type == MD_NODE_EVENT_WAIT && node->event == event && !behind[n])
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
 * An event can be made anew when nothing outside of the graph waits for it or records it. Several graphs may share it
 * if each of them records it before it waits: then no graph waits for another graph's record.
 */
static bool check_event(const struct md_trace *trace, struct md_pair *pair, const struct md_trace_graph *graph,
			uint32_t node)
{
	uint32_t event = graph->nodes[node].event;
	const char *call = use_by_engine(trace, event);
	const struct md_trace_graph *other;
	int first = 1;
	if (call) {
		md_pair_refuse(pair, "node %" PRIu32 ": the engine also uses the node's event outside of graphs (%s)",
			       node, call);
		return true;
	}
	if (graph->nodes[node].type == MD_NODE_EVENT_WAIT && !uses(graph, event, MD_NODE_EVENT_RECORD)) {
		md_pair_refuse(pair, "node %" PRIu32 ": waits for an event that the graph does not record", node);
		return true;
	}
	other = other_user(trace, graph, event);
	for (uint32_t i = 0; other && first == 1 && i < trace->graph_count; i++)
		first = records_first(&trace->graphs[i], event);
	if (first == 0)
		md_pair_refuse(
		    pair,
		    "node %" PRIu32 ": graph %s/%" PRIu32
		    " also uses the node's event, and one of the two graphs waits for it before recording it",
		    node, other->label ? other->label : "(no label)", other->batch);
	else if (!uses(graph, event, MD_NODE_EVENT_WAIT))
		md_pair_refuse(pair, "node %" PRIu32 ": records an event that the graph does not wait for", node);
	return first >= 0;
}

/* Each event once, at the first node that uses it. */
static bool check_events(const struct md_trace *trace, struct md_pair *pair, const struct md_trace_graph *graph,
			 const uint32_t *numbers)
{
	uint32_t next = 0;
	for (uint32_t n = 0; n < graph->node_count && !pair->why; n++) {
		if (numbers[n] != next)
			continue;
		next++;
		if (!check_event(trace, pair, graph, n))
			return false;
	}
	return true;
}

/* Both captures use their events in the same pattern. */
static void compare_patterns(struct md_pair *pair, const uint32_t *one, const uint32_t *two)
{
	for (uint32_t n = 0; n < pair->graph[0]->node_count; n++) {
		if (one[n] != two[n])
			md_pair_refuse(pair, "node %" PRIu32 ": its event is a different one in the second capture", n);
	}
}

static bool check_pair(const struct md_analysis *analysis, struct md_pair *pair)
{
	uint32_t *numbers[2] = {NULL, NULL};
	bool enough = true;
	for (uint32_t c = 0; enough && c < analysis->captures; c++) {
		numbers[c] = md_analysis_number_events(analysis->traces[c], pair->graph[c]);
		enough = numbers[c] && check_events(analysis->traces[c], pair, pair->graph[c], numbers[c]);
	}
	if (enough && analysis->captures == 2)
		compare_patterns(pair, numbers[0], numbers[1]);
	free(numbers[0]);
	free(numbers[1]);
	return enough;
}

enum md_status md_pass_event(struct md_analysis *analysis, struct md_error *err)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		if (!analysis->pairs[i].why && !check_pair(analysis, &analysis->pairs[i]))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}
