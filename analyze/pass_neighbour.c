/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: bindings that lie side by side, where one launch has an address in the first binding and the address of their
 * common border. The border is the beginning of the second binding or the end of the first one ([begin, end)). Other
 * launches of the same kernel may show which one the parameter is. If they do not, a restore demands that the two
 * bindings lie side by side again, unless a verification proves that the word is the beginning of the second one.
 */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "analyze/border_evidence.h"
#include "base/array.h"
#include "base/cleanup.h"

struct border { /* a word that is the end of binding `before` and the beginning of its target */
	struct md_pair *pair;
	uint32_t finding, before;
};

struct borders {
	struct md_analysis *analysis;
	struct border *items;
	uint32_t count, room;
	struct md_map evidence; /* md_border_key -> a set of enum md_border_meaning */
};

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

static bool add_border(struct borders *borders, struct md_pair *pair, uint32_t finding, uint32_t before)
{
	uint64_t key = md_border_key(borders->analysis, pair, &pair->findings.items[finding]);
	if (!MD_ARRAY_GROW(borders->items, borders->count, borders->room))
		return false;
	borders->items[borders->count++] = (struct border){pair, finding, before};
	return md_map_put(&borders->evidence, key, 0);
}

/* The node's findings are those from `first` on. False when out of memory. */
static bool find_borders(struct borders *borders, struct md_pair *pair, uint32_t first, uint32_t count)
{
	const struct md_finding *items = &pair->findings.items[first];
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t j = 0; begins(&items[i]) && j < count; j++)
			if (side_by_side(borders->analysis, items[j].target.binding, items[i].target.binding) &&
			    !add_border(borders, pair, first + i, items[j].target.binding))
				return false;
	}
	return true;
}

/* The set for a parameter; false: it is none that a border is in. */
static bool find_evidence(const struct borders *borders, const struct md_pair *pair, const struct md_finding *finding,
			  uint64_t *set)
{
	return finding->at < MD_ATTRIBUTES_AT &&
	       md_map_get(&borders->evidence, md_border_key(borders->analysis, pair, finding), set);
}

static enum md_status gather(struct borders *borders, struct md_pair *pair, uint32_t first, uint32_t count,
			     struct md_error *err)
{
	const struct md_finding *items = &pair->findings.items[first];
	bool sought = false;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t set;
		if (!find_evidence(borders, pair, &items[i], &set))
			continue;
		if (!sought)
			MD_FORWARD(md_analysis_seek_node(borders->analysis, pair, items[i].node, err));
		sought = true;
		set |= md_border_evidence(borders->analysis, pair, items, count, i);
		if (!md_map_put(&borders->evidence, md_border_key(borders->analysis, pair, &items[i]), set))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

/* Only launches that point to the end of one binding and nothing else tell that the word is an end. */
static void settle(const struct borders *borders, const struct border *border)
{
	struct md_analysis *analysis = borders->analysis;
	struct md_finding *finding = &border->pair->findings.items[border->finding];
	const struct md_view_binding *before = &analysis->views[0].bindings[border->before];
	uint64_t set = 0;
	find_evidence(borders, border->pair, finding, &set);
	if (set == MD_BORDER_IS_END)
		finding->target = (struct md_target){before->alloc, border->before, (int64_t)before->size};
	else if (set != MD_BORDER_IS_BEGIN && begins(finding)) /* one that has become an end stays so */
		analysis->before[finding->target.binding] = border->before;
}

static uint32_t words_of_node(const struct md_findings *findings, uint32_t first)
{
	uint32_t count = 1;
	while (first + count < findings->count && findings->items[first + count].node == findings->items[first].node)
		count++;
	return count;
}

static bool is_kernel(const struct md_pair *pair, uint32_t finding)
{
	return pair->graph[0]->nodes[pair->findings.items[finding].node].type == MD_NODE_KERNEL;
}

static enum md_status find_all(struct borders *borders, struct md_error *err)
{
	for (uint32_t p = 0; p < borders->analysis->pair_count; p++) {
		struct md_pair *pair = &borders->analysis->pairs[p];
		uint32_t count;
		for (uint32_t i = 0; !pair->why && i < pair->findings.count; i += count) {
			count = words_of_node(&pair->findings, i);
			if (is_kernel(pair, i) && !find_borders(borders, pair, i, count))
				return md_analysis_no_memory(err);
		}
	}
	return MD_OK;
}

/* One capture alone proves no pointer, and so it proves no meaning of one. */
static enum md_status gather_all(struct borders *borders, struct md_error *err)
{
	struct md_analysis *analysis = borders->analysis;
	for (uint32_t p = 0; borders->count && analysis->captures == 2 && p < analysis->pair_count; p++) {
		struct md_pair *pair = &analysis->pairs[p];
		uint32_t count;
		for (uint32_t i = 0; i < pair->findings.count; i += count) {
			count = words_of_node(&pair->findings, i);
			if (is_kernel(pair, i))
				MD_FORWARD(gather(borders, pair, i, count, err));
		}
	}
	return MD_OK;
}

enum md_status md_pass_neighbour(struct md_analysis *analysis, struct md_error *err)
{
	struct borders borders = {.analysis = analysis};
	size_t bytes = (analysis->views[0].binding_count + (size_t)1) * sizeof(*analysis->before);
	analysis->before = malloc(bytes);
	if (!analysis->before)
		return md_analysis_no_memory(err);
	memset(analysis->before, 0xff, bytes);
	md_map_init(&borders.evidence);
	enum md_status status = find_all(&borders, err);
	if (status == MD_OK)
		status = gather_all(&borders, err);
	for (uint32_t i = 0; status == MD_OK && i < borders.count; i++)
		settle(&borders, &borders.items[i]);
	free(borders.items);
	md_map_finish(&borders.evidence);
	return status;
}
