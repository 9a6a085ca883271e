/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other launches show about a parameter that is an address between two bindings. A kernel's parameter means one thing
 * in all launches of the kernel: it is either the end of an object that the launch also has another address in, or an
 * address of its own.
 */
#include "analyze/border_evidence.h"

#include <string.h>

uint64_t md_border_key(const struct md_analysis *analysis, const struct md_pair *pair, const struct md_finding *finding)
{
	uint32_t kernel = pair->graph[0]->nodes[finding->node].kernel;
	return (uint64_t)analysis->kernel_identity[0][kernel] << 32 | finding->at;
}

static uint64_t word_of(const struct md_node *node, uint32_t at)
{
	const struct md_attribute *attribute = md_node_attribute_at(node, at);
	uint64_t value = 0;
	if (attribute || at + sizeof(value) <= node->params_size)
		memcpy(&value, attribute ? attribute->value : node->params + at, sizeof(value));
	return value;
}

/* Whether the launch has an address from `from` to `to` in any other word. */
static bool has_another(const struct md_node *node, const struct md_finding *items, uint32_t count, uint32_t except,
			uint64_t from, uint64_t to)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t value = word_of(node, items[i].at);
		if (i != except && value >= from && value <= to)
			return true;
	}
	return false;
}

/* Where unbound memory begins that holds the byte: at the end of the binding in front of it, or of the allocation. */
static uint64_t unbound_start(const struct md_view *view, const struct md_place *place)
{
	uint64_t start = 0;
	for (uint32_t i = view->first_piece[place->alloc]; i < view->first_piece[place->alloc + 1]; i++)
		if (view->pieces[i].end <= place->alloc_offset && view->pieces[i].end > start)
			start = view->pieces[i].end;
	return view->allocs[place->alloc].address + start;
}

/*
 * Whether the word can be no end in this capture: no binding ends there, and no unbound memory in which the launch has
 * another address.
 */
static bool is_no_end(const struct md_view *view, const struct md_node *node, const struct md_finding *items,
		      uint32_t count, uint32_t index)
{
	uint64_t value = word_of(node, items[index].at);
	struct md_place place;
	if (has_another(node, items, count, index, value, value))
		return false;
	if (!md_view_locate(view, value - 1, &place))
		return true;
	return place.binding == MD_NONE && !has_another(node, items, count, index, unbound_start(view, &place), value);
}

/* One past the last byte of memory in which the launch has another address. */
static bool is_end(const struct md_analysis *analysis, const struct md_finding *items, uint32_t count, uint32_t index)
{
	const struct md_view *view = &analysis->views[0];
	const struct md_target *target = &items[index].target;
	uint64_t size =
	    target->binding != MD_NONE ? view->bindings[target->binding].size : view->allocs[target->alloc].size;
	if (target->offset < 0 || (uint64_t)target->offset != size)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (i != index && items[i].target.binding == target->binding &&
		    (target->binding != MD_NONE || items[i].target.alloc == target->alloc))
			return true;
	return false;
}

static bool in_doubt(const struct md_pair *pair, uint32_t node)
{
	for (uint32_t i = 0; i < pair->doubts.count; i++)
		if (pair->doubts.items[i].node == node)
			return true;
	return false;
}

unsigned md_border_evidence(const struct md_analysis *analysis, const struct md_pair *pair,
			    const struct md_finding *items, uint32_t count, uint32_t index)
{
	const struct md_finding *item = &items[index];
	if (is_end(analysis, items, count, index))
		return MD_BORDER_IS_END;
	/* Refused graphs do not count, because not all of their addresses may be known. */
	if (pair->why || in_doubt(pair, item->node) || item->target.binding == MD_NONE || item->target.offset)
		return 0;
	for (unsigned c = 0; c < analysis->captures; c++)
		if (is_no_end(&analysis->views[c], &pair->graph[c]->nodes[item->node], items, count, index))
			return MD_BORDER_IS_BEGIN;
	return 0;
}
