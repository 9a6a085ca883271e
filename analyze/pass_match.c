/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: pairs the graphs of both captures by (label, batch) and refuses those that differ in more than parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void name_pair(const struct md_trace *trace, uint32_t order, struct md_pair *pair)
{
	const struct md_trace_graph *graph = &trace->graphs[order];
	if (!graph->label)
		snprintf(pair->own_label, sizeof(pair->own_label), "graph/%" PRIu32, order);
	pair->label = graph->label;
	pair->batch = graph->batch;
	pair->graph[0] = graph;
}

static const char *pair_label(const struct md_pair *pair)
{
	return pair->label ? pair->label : pair->own_label;
}

static int compare_keys(const struct md_pair *a, const struct md_pair *b)
{
	int order = strcmp(pair_label(a), pair_label(b));
	return order ? order : (a->batch > b->batch) - (a->batch < b->batch);
}

/* Equal keys stay in the order of the trace. */
static int compare_pairs(const void *left, const void *right)
{
	const struct md_pair *a = left, *b = right;
	int order = compare_keys(a, b);
	return order ? order : (a->graph[0] > b->graph[0]) - (a->graph[0] < b->graph[0]);
}

/*
 * The graphs of one trace by (label, batch). Of several graphs with one name the last stays. An engine that labels
 * graphs cannot ask for one without a label, so those are left out.
 */
static struct md_pair *list_graphs(const struct md_trace *trace, bool labelled, uint32_t *count)
{
	struct md_pair *list = calloc(trace->graph_count + 1u, sizeof(*list));
	uint32_t listed = 0, kept = 0;
	if (!list)
		return NULL;
	for (uint32_t i = 0; i < trace->graph_count; i++)
		if (!labelled || trace->graphs[i].label)
			name_pair(trace, i, &list[listed++]);
	qsort(list, listed, sizeof(*list), compare_pairs);
	for (uint32_t i = 0; i < listed; i++) {
		if (i + 1 < listed && compare_keys(&list[i], &list[i + 1]) == 0)
			continue;
		list[kept++] = list[i];
	}
	*count = kept;
	return list;
}

/* ---- differences; each returns whether it refused the pair ------------------------------------------------------- */

static bool refuse_number(struct md_pair *pair, uint32_t node, const char *what, uint64_t one, uint64_t two)
{
	if (one == two)
		return false;
	md_pair_refuse(pair, "node %" PRIu32 ": %s %" PRIu64 " and %" PRIu64, node, what, one, two);
	return true;
}

static bool refuse_dimensions(struct md_pair *pair, uint32_t node, const char *what, const uint32_t one[3],
			      const uint32_t two[3])
{
	if (memcmp(one, two, 3 * sizeof(*one)) == 0)
		return false;
	md_pair_refuse(pair,
		       "node %" PRIu32 ": %s %" PRIu32 ",%" PRIu32 ",%" PRIu32 " and %" PRIu32 ",%" PRIu32 ",%" PRIu32,
		       node, what, one[0], one[1], one[2], two[0], two[1], two[2]);
	return true;
}

static bool refuse_attributes(struct md_pair *pair, uint32_t n, const struct md_node *one, const struct md_node *two)
{
	if (refuse_number(pair, n, "attribute count", one->attribute_count, two->attribute_count))
		return true;
	for (uint32_t i = 0; i < one->attribute_count; i++) {
		const struct md_attribute *a = &one->attributes[i], *b = &two->attributes[i];
		/* A window begins with its address: a pointer, or nothing if it is not used. */
		size_t skip = a->id == MD_ATTRIBUTE_WINDOW ? 8 : 0;
		if (refuse_number(pair, n, "attribute id", a->id, b->id))
			return true;
		if (memcmp(a->value + skip, b->value + skip, sizeof(a->value) - skip) != 0) {
			md_pair_refuse(pair, "node %" PRIu32 ": attribute %" PRIu32 " has different values", n, a->id);
			return true;
		}
	}
	return false;
}

static bool refuse_kernels(const struct md_analysis *analysis, struct md_pair *pair, uint32_t n,
			   const struct md_node *one, const struct md_node *two)
{
	const struct md_kernel *a = &analysis->traces[0]->kernels[one->kernel];
	const struct md_kernel *b = &analysis->traces[1]->kernels[two->kernel];
	if (analysis->kernel_identity[0][one->kernel] == analysis->kernel_identity[1][two->kernel])
		return false;
	if (strcmp(a->name, b->name) != 0)
		md_pair_refuse(pair, "node %" PRIu32 ": kernel %s and %s", n, a->name, b->name);
	else
		md_pair_refuse(
		    pair, "node %" PRIu32 ": kernel %s comes from different images or has another parameter layout", n,
		    a->name);
	return true;
}

static bool refuse_kernel_nodes(const struct md_analysis *analysis, struct md_pair *pair, uint32_t n,
				const struct md_node *one, const struct md_node *two)
{
	return refuse_kernels(analysis, pair, n, one, two) ||
	       refuse_dimensions(pair, n, "grid", one->grid, two->grid) ||
	       refuse_dimensions(pair, n, "block", one->block, two->block) ||
	       refuse_number(pair, n, "dynamic shared bytes", one->shared_bytes, two->shared_bytes) ||
	       refuse_number(pair, n, "parameter bytes", one->params_size, two->params_size) ||
	       refuse_number(pair, n, "parameters in one buffer", one->via_extra, two->via_extra) ||
	       refuse_attributes(pair, n, one, two);
}

static bool refuse_memsets(struct md_pair *pair, uint32_t n, const struct md_memset *one, const struct md_memset *two)
{
	return refuse_number(pair, n, "memset pitch", one->pitch, two->pitch) ||
	       refuse_number(pair, n, "memset width", one->width, two->width) ||
	       refuse_number(pair, n, "memset height", one->height, two->height) ||
	       refuse_number(pair, n, "memset value", one->value, two->value) ||
	       refuse_number(pair, n, "memset element size", one->element_size, two->element_size);
}

static bool refuse_memcpys(struct md_pair *pair, uint32_t n, const struct md_memcpy *one, const struct md_memcpy *two)
{
	struct md_memcpy a = *one, b = *two;
	a.src = b.src = a.dst = b.dst = 0;
	return refuse_number(pair, n, "memcpy width", a.width, b.width) ||
	       refuse_number(pair, n, "memcpy height", a.height, b.height) ||
	       refuse_number(pair, n, "memcpy depth", a.depth, b.depth) ||
	       refuse_number(pair, n, "memcpy source type", a.src_type, b.src_type) ||
	       refuse_number(pair, n, "memcpy destination type", a.dst_type, b.dst_type) ||
	       /* no padding between the fields: the rest is compared as bytes */
	       refuse_number(pair, n, "memcpy geometry differs:", 0, memcmp(&a, &b, sizeof(a)) != 0);
}

static bool refuse_nodes(const struct md_analysis *analysis, struct md_pair *pair)
{
	for (uint32_t n = 0; n < pair->graph[0]->node_count; n++) {
		const struct md_node *one = &pair->graph[0]->nodes[n], *two = &pair->graph[1]->nodes[n];
		bool refused = refuse_number(pair, n, "type", one->type, two->type);
		if (!refused && one->type == MD_NODE_KERNEL)
			refused = refuse_kernel_nodes(analysis, pair, n, one, two);
		else if (!refused && one->type == MD_NODE_MEMSET)
			refused = refuse_memsets(pair, n, &one->memset, &two->memset);
		else if (!refused && one->type == MD_NODE_MEMCPY)
			refused = refuse_memcpys(pair, n, &one->memcpy, &two->memcpy);
		else if (!refused && one->type == MD_NODE_CHILD)
			refused = refuse_number(pair, n, "nodes of a child graph", one->child_nodes, two->child_nodes);
		if (refused)
			return true;
	}
	return false;
}

static bool refuse_edges(struct md_pair *pair)
{
	const struct md_trace_graph *one = pair->graph[0], *two = pair->graph[1];
	if (one->edge_count != two->edge_count) {
		md_pair_refuse(pair, "%" PRIu32 " and %" PRIu32 " edges", one->edge_count, two->edge_count);
		return true;
	}
	for (uint32_t i = 0; i < one->edge_count; i++) {
		const struct md_edge *a = &one->edges[i], *b = &two->edges[i];
		if (a->from == b->from && a->to == b->to && a->from_port == b->from_port && a->to_port == b->to_port &&
		    a->type == b->type)
			continue;
		md_pair_refuse(pair,
			       "edge %" PRIu32 ": %" PRIu32 "->%" PRIu32 " (ports %u,%u type %u) and %" PRIu32
			       "->%" PRIu32 " (ports %u,%u type %u)",
			       i, a->from, a->to, a->from_port, a->to_port, a->type, b->from, b->to, b->from_port,
			       b->to_port, b->type);
		return true;
	}
	return false;
}

static void refuse_notes(struct md_pair *pair)
{
	const struct md_trace_graph *one = pair->graph[0], *two = pair->graph[1];
	if (one->note_size != two->note_size)
		md_pair_refuse(pair, "the engine's note has %" PRIu64 " and %" PRIu64 " bytes", one->note_size,
			       two->note_size);
	for (uint64_t at = 0; !pair->why && at < one->note_size; at++) {
		if (one->note[at] != two->note[at])
			md_pair_refuse(pair, "the engine's note differs at byte %" PRIu64, at);
	}
}

/* ---- what either capture already knows --------------------------------------------------------------------------- */

static bool refuse_known(struct md_pair *pair, unsigned capture)
{
	const struct md_trace_graph *graph = pair->graph[capture];
	if (graph->refused)
		md_pair_refuse(pair, "%s", graph->refused);
	else if (graph->probe == MD_PROBE_FAILED)
		md_pair_refuse(pair, "replay with changed private memory failed: %s",
			       graph->probe_why ? graph->probe_why : "no reason given");
	return pair->why != NULL;
}

/* A kernel that the capture could not name has no index. A trace may come from anywhere, so its indices are checked. */
static bool refuse_unknown_kernels(const struct md_trace *trace, struct md_pair *pair, unsigned capture)
{
	const struct md_trace_graph *graph = pair->graph[capture];
	for (uint32_t n = 0; n < graph->node_count; n++) {
		if (graph->nodes[n].type != MD_NODE_KERNEL || graph->nodes[n].kernel < trace->kernel_count)
			continue;
		md_pair_refuse(pair, "node %" PRIu32 ": its kernel is not known", n);
		return true;
	}
	return false;
}

/* A reason that one capture found holds for a third process, too. */
static bool is_refused_by_either(const struct md_analysis *analysis, struct md_pair *pair)
{
	for (unsigned i = 0; i < analysis->captures; i++)
		if (pair->graph[i] && (refuse_known(pair, i) || refuse_unknown_kernels(analysis->traces[i], pair, i)))
			return true;
	return false;
}

static void compare_captures(const struct md_analysis *analysis, struct md_pair *pair)
{
	if (!pair->graph[1]) {
		md_pair_refuse(pair, "the second capture has no such graph");
		return;
	}
	if (pair->graph[0]->node_count != pair->graph[1]->node_count) {
		md_pair_refuse(pair, "%" PRIu32 " and %" PRIu32 " nodes", pair->graph[0]->node_count,
			       pair->graph[1]->node_count);
		return;
	}
	if (pair->graph[0]->instantiate_flags != pair->graph[1]->instantiate_flags) {
		md_pair_refuse(pair, "instantiated with flags %#" PRIx64 " and %#" PRIx64,
			       pair->graph[0]->instantiate_flags, pair->graph[1]->instantiate_flags);
		return;
	}
	if (!refuse_nodes(analysis, pair) && !refuse_edges(pair))
		refuse_notes(pair);
}

/*
 * Both lists ascend by key. A graph that only the second capture has is refused, so that it does not vanish silently.
 */
static struct md_pair *merge(struct md_pair *one, uint32_t one_count, const struct md_pair *two, uint32_t two_count,
			     uint32_t *count)
{
	struct md_pair *merged = calloc((size_t)one_count + two_count + 1, sizeof(*merged));
	uint32_t i = 0, j = 0;
	*count = 0;
	while (merged && (i < one_count || j < two_count)) {
		struct md_pair *pair = &merged[(*count)++];
		int order = i == one_count ? 1 : j == two_count ? -1 : compare_keys(&one[i], &two[j]);
		*pair = order <= 0 ? one[i++] : two[j];
		if (order == 0)
			pair->graph[1] = two[j].graph[0];
		if (order > 0)
			md_pair_refuse(pair, "only the second capture has this graph");
		if (order >= 0)
			j++;
	}
	return merged;
}

enum md_status md_pass_match(struct md_analysis *analysis, struct md_error *err)
{
	uint32_t one_count = 0, two_count = 0, disagreed = 0;
	bool labelled = md_trace_labelled(analysis->traces[0]) ||
			(analysis->captures == 2 && md_trace_labelled(analysis->traces[1]));
	MD_AUTO_FREE struct md_pair *one = list_graphs(analysis->traces[0], labelled, &one_count);
	MD_AUTO_FREE struct md_pair *two = NULL;
	if (analysis->captures == 2)
		two = list_graphs(analysis->traces[1], labelled, &two_count);
	if (!one || (analysis->captures == 2 && !two))
		return md_analysis_no_memory(err);
	analysis->pairs = merge(one, one_count, two, two_count, &analysis->pair_count);
	if (!analysis->pairs)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		if (!pair->label)
			pair->label = pair->own_label;
		if (pair->why) { /* only the second capture has it */
			disagreed++;
		} else if (!is_refused_by_either(analysis, pair) && analysis->captures == 2) {
			compare_captures(analysis, pair);
			disagreed += pair->why != NULL;
		}
	}
	if (analysis->options.disagreed)
		*analysis->options.disagreed = disagreed;
	return MD_OK;
}
