/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: classifies every word of every parameter block, and the addresses of memset and memcpy nodes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "driver/maker.h"

struct open_word { /* judged last, when all allocations that the graph refers to are known */
	uint32_t node, at;
	uint64_t one, two;
};

struct walk { /* of one graph */
	struct md_analysis *analysis;
	struct md_pair *pair;
	uint8_t *referenced; /* per allocation of the first capture */
	struct open_word *open;
	uint32_t open_count, open_capacity;
};

static const struct md_node *node_of(const struct walk *walk, unsigned capture, uint32_t node)
{
	return &walk->pair->graph[capture]->nodes[node];
}

/* With one capture both sides of every comparison are the same node. */
static const struct md_node *other_node(const struct walk *walk, uint32_t node)
{
	return node_of(walk, walk->analysis->captures - 1, node);
}

/* Byte by byte: a good 4-byte constant may stand beside 4 bytes of noise. */
static bool add_noise_bytes(struct md_pair *pair, uint32_t node, uint32_t at, const uint8_t *one, const uint8_t *two,
			    uint32_t size)
{
	for (uint32_t i = 0; i < size; i++) {
		if (one[i] != two[i] && !md_noises_add(&pair->noises, node, at + i, 1))
			return false;
	}
	return true;
}

static bool add_open(struct walk *walk, uint32_t node, uint32_t at, uint64_t one, uint64_t two)
{
	if (!MD_ARRAY_GROW(walk->open, walk->open_count, walk->open_capacity))
		return false;
	walk->open[walk->open_count++] = (struct open_word){node, at, one, two};
	return true;
}

static bool add_pointer(struct walk *walk, uint32_t node, uint32_t at, const struct md_target *target)
{
	walk->referenced[target->alloc] = 1;
	walk->pair->pointer_words++;
	return md_findings_add(&walk->pair->findings, node, at, target);
}

/* Kernels are named in refusals, so that a reader can find the word's owner. */
static void refuse_word(struct walk *walk, uint32_t node, uint32_t at, const char *why)
{
	const struct md_node *n = node_of(walk, 0, node);
	if (n->type == MD_NODE_KERNEL)
		md_pair_refuse(walk->pair,
			       "node %" PRIu32 " (%s): parameter bytes %" PRIu32 "..%" PRIu32 " unprovable: %s", node,
			       walk->analysis->traces[0]->kernels[n->kernel].name, at, at + 7, why);
	else
		md_pair_refuse(walk->pair, "node %" PRIu32 ": its address unprovable: %s", node, why);
}

static uint64_t read_word(const uint8_t *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof(value));
	return value;
}

/* The word is left to a replay, if there will be one. The views stand at the launch. */
static bool add_doubt(struct walk *walk, uint32_t node, uint32_t at, const uint8_t *one, const uint8_t *two,
		      const struct md_target *target, const char *why)
{
	struct md_doubts *doubts = &walk->pair->doubts;
	struct md_doubt doubt = {.node = node, .at = at, .target = *target};
	if (!walk->analysis->options.keep_doubtful || doubts->count == MD_DOUBTFUL_MAX) {
		refuse_word(walk, node, at, why);
		return true;
	}
	md_view_locate(&walk->analysis->views[0], read_word(one), &doubt.one);
	md_view_locate(&walk->analysis->views[1], read_word(two), &doubt.two);
	return md_doubts_add(doubts, &doubt);
}

static bool in_doubt(const struct md_pair *pair, uint32_t node, uint32_t at)
{
	const struct md_doubts *doubts = &pair->doubts;
	for (uint32_t i = 0; i < doubts->count; i++) {
		if (doubts->items[i].node == node && at >= doubts->items[i].at && at - doubts->items[i].at < 8)
			return true;
	}
	return false;
}

/* A word that is a pointer by itself is no part of another address. */
static bool is_pointer(struct walk *walk, uint32_t node, uint32_t at)
{
	const struct md_node *one = node_of(walk, 0, node), *two = other_node(walk, node);
	enum md_word word = MD_WORD_NOISE;
	struct md_target target;
	char why[MD_WORD_WHY_BYTES];
	if (at + 8 <= one->params_size)
		word = md_word_resolve(walk->analysis, read_word(one->params + at), read_word(two->params + at),
				       walk->pair->graph[0]->sequence, &target, why);
	return word == MD_WORD_POINTER || word == MD_WORD_DOUBTFUL;
}

/*
 * A block that is packed to 4 bytes may hold an address that begins between two words, and half of it would count as
 * noise. Such addresses are rare, and stale pointers are common: without a verification such bytes are noise. False
 * when out of memory.
 */
static bool doubt_crooked(struct walk *walk, uint32_t node, uint32_t at)
{
	const struct md_node *one = node_of(walk, 0, node), *two = other_node(walk, node);
	struct md_target target;
	char why[MD_WORD_WHY_BYTES];
	for (uint32_t start = at < 4 ? 4 : at - 4;
	     walk->analysis->options.keep_doubtful && start <= at + 4 && start + 8 <= one->params_size; start += 8) {
		enum md_word word =
		    md_word_resolve(walk->analysis, read_word(one->params + start), read_word(two->params + start),
				    walk->pair->graph[0]->sequence, &target, why);
		if ((word != MD_WORD_POINTER && word != MD_WORD_DOUBTFUL) || in_doubt(walk->pair, node, start) ||
		    in_doubt(walk->pair, node, start + 7) || is_pointer(walk, node, start < at ? at - 8 : at + 8))
			continue;
		if (!add_doubt(walk, node, start, one->params + start, two->params + start, &target,
			       "may be an address, which does not begin at a multiple of 8 bytes"))
			return false;
	}
	return true;
}

/* A byte that is in doubt is no noise until a replay proves it. */
static bool add_rest(struct walk *walk, uint32_t node, uint32_t at, const uint8_t *one, const uint8_t *two,
		     uint32_t size)
{
	for (uint32_t i = 0; i < size; i++) {
		if (!in_doubt(walk->pair, node, at + i) &&
		    !add_noise_bytes(walk->pair, node, at + i, one + i, two + i, 1))
			return false;
	}
	return true;
}

static bool settle_noise(struct walk *walk, uint32_t node, uint32_t at, const uint8_t *one, const uint8_t *two,
			 uint32_t size)
{
	walk->pair->noise_words++;
	if (!md_unset_judge(walk->analysis, walk->pair, node, at, size, false))
		return false;
	if (!walk->pair->why && (size == 4 || size == 8) && !doubt_crooked(walk, node, at))
		return false;
	return walk->pair->why || add_rest(walk, node, at, one, two, size);
}

static bool is_made(const struct md_view *view, uint64_t word)
{
	struct md_place place;
	return md_view_locate(view, word, &place) && place.binding != MD_NONE &&
	       md_maker_is_name(view->bindings[place.binding].name);
}

/*
 * A capture refuses graphs with addresses of a communication library's memory, except in words that nobody sets. At
 * another place in each capture, such a word is noise; at the same one, pass_admit.c refuses the graph. In a graph that all
 * ranks have replayed together, nothing tells such a word from one that counts.
 */
static bool was_left_there(const struct walk *walk, const uint8_t *one, const uint8_t *two)
{
	return is_made(&walk->analysis->views[0], read_word(one)) || is_made(&walk->analysis->views[1], read_word(two));
}

/* False when out of memory. */
static bool settle_word(struct walk *walk, uint32_t node, uint32_t at, enum md_word word, const uint8_t *one,
			const uint8_t *two, const struct md_target *target, const char *why)
{
	if ((word == MD_WORD_DOUBTFUL || word == MD_WORD_REFUSED) && was_left_there(walk, one, two)) {
		if (!walk->pair->graph[0]->together)
			return settle_noise(walk, node, at, one, two, 8);
		refuse_word(walk, node, at, why);
		return true;
	}
	switch (word) {
	case MD_WORD_CONSTANT:
		walk->pair->constant_words++;
		return true;
	case MD_WORD_POINTER:
		return add_pointer(walk, node, at, target);
	case MD_WORD_DOUBTFUL:
		return md_unset_judge(walk->analysis, walk->pair, node, at, 8, true) &&
		       (walk->pair->why || add_doubt(walk, node, at, one, two, target, why));
	case MD_WORD_REFUSED:
		refuse_word(walk, node, at, why);
		return true;
	default:
		return settle_noise(walk, node, at, one, two, 8);
	}
}

static bool classify_params(struct walk *walk, uint32_t node)
{
	struct md_analysis *analysis = walk->analysis;
	const struct md_node *one = node_of(walk, 0, node), *two = other_node(walk, node);
	uint64_t lowest = analysis->views[0].lowest, highest = analysis->views[0].highest;
	uint32_t at = 0, left;
	char why[MD_WORD_WHY_BYTES];
	for (; at + 8 <= one->params_size && !walk->pair->why; at += 8) {
		struct md_target target;
		uint64_t first, second;
		enum md_word word;
		memcpy(&first, one->params + at, 8);
		memcpy(&second, two->params + at, 8);
		if (first == second && (first < lowest || first >= highest)) {
			walk->pair->constant_words++;
			continue;
		}
		word = md_word_resolve(analysis, first, second, walk->pair->graph[0]->sequence, &target, why);
		if (word == MD_WORD_OPEN) {
			if (!add_open(walk, node, at, first, second))
				return false;
		} else if (!settle_word(walk, node, at, word, one->params + at, two->params + at, &target, why)) {
			return false;
		}
	}
	left = one->params_size - at;
	if (walk->pair->why || !left || left >= 8)
		return true;
	if (memcmp(one->params + at, two->params + at, left) == 0) {
		walk->pair->constant_words++;
		return true;
	}
	return settle_noise(walk, node, at, one->params + at, two->params + at, left);
}

/* The address of a copy or set is a pointer by definition: anything else refuses the graph. */
static bool classify_address(struct walk *walk, uint32_t node, uint32_t at, const char *what, uint64_t one,
			     uint64_t two)
{
	struct md_target target;
	char why[MD_WORD_WHY_BYTES];
	enum md_word word = md_word_resolve(walk->analysis, one, two, walk->pair->graph[0]->sequence, &target, why);
	if (word == MD_WORD_POINTER)
		return add_pointer(walk, node, at, &target);
	if (word == MD_WORD_REFUSED || word == MD_WORD_DOUBTFUL)
		md_pair_refuse(walk->pair, "node %" PRIu32 ": its %s %s", node, what, why);
	else
		md_pair_refuse(walk->pair, "node %" PRIu32 ": its %s %#" PRIx64 " lies in no recorded allocation", node,
			       what, one);
	return true;
}

/* An access policy window holds an address beside the parameters. */
static bool classify_windows(struct walk *walk, uint32_t node)
{
	const struct md_node *one = node_of(walk, 0, node), *two = other_node(walk, node);
	for (uint32_t i = 0; i < one->attribute_count && !walk->pair->why; i++) {
		uint32_t at = MD_ATTRIBUTES_AT + i * (uint32_t)sizeof(one->attributes->value);
		uint64_t first[2], second[2]; /* address, size */
		if (one->attributes[i].id != MD_ATTRIBUTE_WINDOW)
			continue;
		memcpy(first, one->attributes[i].value, sizeof(first));
		memcpy(second, two->attributes[i].value, sizeof(second));
		if (first[1] && !classify_address(walk, node, at, "access policy window", first[0], second[0]))
			return false;
	}
	return true;
}

#define MEMORY_HOST 1 /* CU_MEMORYTYPE_HOST */

/* The engine has page-locked and bound memory at a cold start, too; a restore could not find other host memory. */
static bool classify_copied(struct walk *walk, uint32_t node, uint32_t at, uint32_t type, uint64_t one, uint64_t two)
{
	const struct md_findings *findings = &walk->pair->findings;
	uint32_t before = findings->count;
	struct md_place place;
	if (type == MEMORY_HOST && !md_view_locate(&walk->analysis->views[0], one, &place)) {
		md_pair_refuse(walk->pair, "node %" PRIu32 ": copies %s host memory that is not page-locked", node,
			       at ? "to" : "from");
		return true;
	}
	if (!classify_address(walk, node, at, at ? "copy destination" : "copy source", one, two))
		return false;
	if (type != MEMORY_HOST || walk->pair->why)
		return true;
	if (findings->count == before ||
	    walk->analysis->views[0].allocs[findings->items[before].target.alloc].family != MD_ALLOC_HOST)
		md_pair_refuse(walk->pair, "node %" PRIu32 ": copies %s host memory that is not page-locked", node,
			       at ? "to" : "from");
	return true;
}

static bool classify_memcpy(struct walk *walk, uint32_t node)
{
	const struct md_memcpy *one = &node_of(walk, 0, node)->memcpy, *two = &other_node(walk, node)->memcpy;
	return classify_copied(walk, node, 0, one->src_type, one->src, two->src) &&
	       classify_copied(walk, node, 8, one->dst_type, one->dst, two->dst);
}

static bool classify_node(struct walk *walk, uint32_t node)
{
	const struct md_node *one = node_of(walk, 0, node), *two = other_node(walk, node);
	switch (one->type) {
	case MD_NODE_KERNEL:
		return classify_params(walk, node) && classify_windows(walk, node);
	case MD_NODE_MEMSET:
		return classify_address(walk, node, 0, "set destination", one->memset.dst, two->memset.dst);
	case MD_NODE_MEMCPY:
		return classify_memcpy(walk, node);
	case MD_NODE_EMPTY:
	case MD_NODE_CHILD: /* its nodes come behind it */
	case MD_NODE_EVENT_WAIT:
	case MD_NODE_EVENT_RECORD:
		return true;
	default:
		md_pair_refuse(walk->pair, "node %" PRIu32 ": type %u cannot be materialized", node, one->type);
		return true;
	}
}

static enum md_status settle_open(struct walk *walk, struct md_error *err)
{
	for (uint32_t i = 0; i < walk->open_count && !walk->pair->why; i++) {
		const struct open_word *open = &walk->open[i];
		struct md_target target;
		char why[MD_WORD_WHY_BYTES];
		enum md_word word;
		MD_FORWARD(md_analysis_seek_node(walk->analysis, walk->pair, open->node, err));
		word = md_word_origin(walk->analysis, open->one, open->two, walk->pair->graph[0]->sequence,
				      walk->referenced, &target, why);
		if (!settle_word(walk, open->node, open->at, word, node_of(walk, 0, open->node)->params + open->at,
				 other_node(walk, open->node)->params + open->at, &target, why))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

/* A word that was judged last may be a pointer that overlaps a word in doubt. */
static void refuse_overlaps(struct walk *walk)
{
	const struct md_findings *findings = &walk->pair->findings;
	for (uint32_t i = 0; i < findings->count && walk->pair->doubts.count; i++) {
		uint32_t node = findings->items[i].node, at = findings->items[i].at;
		if (in_doubt(walk->pair, node, at) || in_doubt(walk->pair, node, at + 7))
			refuse_word(walk, node, at, "a pointer, and a part of what may be another one");
	}
}

static enum md_status walk_graph(struct walk *walk, const uint32_t *order, struct md_error *err)
{
	for (uint32_t i = 0; i < walk->pair->graph[0]->node_count && !walk->pair->why; i++) {
		MD_FORWARD(md_analysis_seek_node(walk->analysis, walk->pair, order[i], err));
		if (!classify_node(walk, order[i]))
			return md_analysis_no_memory(err);
	}
	MD_FORWARD(settle_open(walk, err));
	refuse_overlaps(walk);
	md_findings_sort(&walk->pair->findings);
	md_noises_sort(&walk->pair->noises);
	md_doubts_sort(&walk->pair->doubts);
	return MD_OK;
}

static enum md_status classify_graph(struct md_analysis *analysis, struct md_pair *pair, struct md_error *err)
{
	struct walk walk = {.analysis = analysis, .pair = pair};
	MD_AUTO_FREE uint32_t *order = md_analysis_order_nodes(pair->graph[0]);
	enum md_status status = MD_OK;
	walk.referenced = calloc(analysis->views[0].alloc_count + 1u, 1);
	if (!order || !walk.referenced)
		status = md_analysis_no_memory(err);
	else
		status = walk_graph(&walk, order, err);
	free(walk.referenced);
	free(walk.open);
	return status;
}

/* Graphs are taken in the order of their captures, so that the views mostly move forward. */
enum md_status md_pass_pointer(struct md_analysis *analysis, struct md_error *err)
{
	uint32_t count;
	MD_AUTO_FREE struct md_pair **order = md_analysis_order_pairs(analysis, &count);
	if (!order)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < count; i++)
		MD_FORWARD(classify_graph(analysis, order[i], err));
	return MD_OK;
}
