/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: bindings that lie side by side, where one launch has an address in the first binding and the address of their
 * common border. The border is the beginning of the second binding or the end of the first one ([begin, end)). No
 * replay can tell which, because both are the same address in a process like the captures'. A restore demands that the
 * two bindings lie side by side again.
 */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"

static bool touch(const struct md_view_binding *before, const struct md_view_binding *behind)
{
	return before->address + before->size == behind->address;
}

/* In all captures: if one capture had them apart, the addresses are known by now. */
static bool side_by_side(const struct md_analysis *analysis, uint32_t before, uint32_t behind)
{
	const struct md_view *one = &analysis->views[0], *two = &analysis->views[1];
	if (before == MD_NONE || before == behind || !touch(&one->bindings[before], &one->bindings[behind]))
		return false;
	if (analysis->captures < 2)
		return true;
	before = analysis->binding_match[before];
	behind = analysis->binding_match[behind];
	return before != MD_NONE && behind != MD_NONE && touch(&two->bindings[before], &two->bindings[behind]);
}

static bool begins(const struct md_finding *finding)
{
	return finding->target.binding != MD_NONE && finding->target.offset == 0 && finding->at < MD_ATTRIBUTES_AT;
}

/* items: those of one node. */
static void look_at_node(struct md_analysis *analysis, const struct md_finding *items, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t j = 0; begins(&items[i]) && j < count; j++)
			if (side_by_side(analysis, items[j].target.binding, items[i].target.binding))
				analysis->before[items[i].target.binding] = items[j].target.binding;
	}
}

static uint32_t words_of_node(const struct md_findings *findings, uint32_t first)
{
	uint32_t count = 1;
	while (first + count < findings->count && findings->items[first + count].node == findings->items[first].node)
		count++;
	return count;
}

enum md_status md_pass_neighbour(struct md_analysis *analysis, struct md_error *err)
{
	size_t bytes = (analysis->views[0].binding_count + (size_t)1) * sizeof(*analysis->before);
	analysis->before = malloc(bytes);
	if (!analysis->before)
		return md_analysis_no_memory(err);
	memset(analysis->before, 0xff, bytes);
	for (uint32_t p = 0; p < analysis->pair_count; p++) {
		const struct md_pair *pair = &analysis->pairs[p];
		uint32_t count;
		for (uint32_t i = 0; !pair->why && i < pair->findings.count; i += count) {
			count = words_of_node(&pair->findings, i);
			if (pair->graph[0]->nodes[pair->findings.items[i].node].type == MD_NODE_KERNEL)
				look_at_node(analysis, &pair->findings.items[i], count);
		}
	}
	return MD_OK;
}
