/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: pairs allocations by the graphs' words where these contradict the order of calls. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MD_LOG_DOMAIN "analyze"
#include "analyze/analysis.h"
#include "base/cleanup.h"
#include "base/log.h"

/*
 * The order of calls alone does not pair the allocations. An allocator that takes the lower one of two equal blocks
 * takes the other one when the driver has given their addresses in another order. A word at the same offset of two
 * allocations of one size is a vote for pairing the two.
 */
struct vote {
	uint32_t one, two;
	uint64_t count;
	bool straight; /* for the pair that the order of calls gives */
};

struct ballot {
	struct md_analysis *analysis;
	uint64_t *straight;     /* per allocation of the first capture: votes for its partner by the order of calls */
	struct md_map crossing; /* one << 32 | two -> votes for another partner */
};

/* ---- counting ---- */

/* A recorded allocation of which nothing is bound at this place; else MD_NONE. Bindings are paired by name. */
static uint32_t unbound_alloc(const struct md_view *view, uint64_t value, uint64_t *offset)
{
	uint32_t alloc = md_view_find(view, value);
	if (alloc == MD_NONE || view->allocs[alloc].made_up)
		return MD_NONE;
	*offset = value - view->allocs[alloc].address;
	return md_view_piece_at(view, alloc, *offset) ? MD_NONE : alloc;
}

static bool count_word(struct ballot *ballot, uint64_t one_value, uint64_t two_value)
{
	const struct md_view *views = ballot->analysis->views;
	uint64_t one_offset = 0, two_offset = 0, count = 0, key;
	uint32_t one = unbound_alloc(&views[0], one_value, &one_offset), two;
	if (one == MD_NONE)
		return true;
	two = unbound_alloc(&views[1], two_value, &two_offset);
	if (two == MD_NONE || one_offset != two_offset || views[0].allocs[one].size != views[1].allocs[two].size ||
	    views[0].allocs[one].family != views[1].allocs[two].family)
		return true;
	if (ballot->analysis->partner[one] == two) {
		ballot->straight[one]++;
		return true;
	}
	key = (uint64_t)one << 32 | two;
	md_map_get(&ballot->crossing, key, &count);
	return md_map_put(&ballot->crossing, key, count + 1);
}

static bool count_node(struct ballot *ballot, const struct md_node *one, const struct md_node *two)
{
	bool counted = true;
	if (one->type == MD_NODE_MEMSET)
		return count_word(ballot, one->memset.dst, two->memset.dst);
	if (one->type == MD_NODE_MEMCPY)
		return count_word(ballot, one->memcpy.src, two->memcpy.src) &&
		       count_word(ballot, one->memcpy.dst, two->memcpy.dst);
	for (uint32_t at = 0; counted && one->type == MD_NODE_KERNEL && at + 8 <= one->params_size; at += 8) {
		uint64_t first, second;
		memcpy(&first, one->params + at, 8);
		memcpy(&second, two->params + at, 8);
		counted = count_word(ballot, first, second);
	}
	return counted;
}

static enum md_status count_graph(struct ballot *ballot, const struct md_pair *pair, struct md_error *err)
{
	MD_AUTO_FREE uint32_t *order = md_analysis_order_nodes(pair->graph[0]);
	if (!order)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < pair->graph[0]->node_count; i++) {
		MD_FORWARD(md_analysis_seek_node(ballot->analysis, pair, order[i], err));
		if (!count_node(ballot, &pair->graph[0]->nodes[order[i]], &pair->graph[1]->nodes[order[i]]))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}

static enum md_status count_graphs(struct ballot *ballot, struct md_error *err)
{
	uint32_t count;
	MD_AUTO_FREE struct md_pair **order = md_analysis_order_pairs(ballot->analysis, &count);
	if (!order)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < count; i++)
		MD_FORWARD(count_graph(ballot, order[i], err));
	return MD_OK;
}

/* ---- deciding ---- */

/* The most votes come first; among equals, the order of calls. */
static int compare_votes(const void *left, const void *right)
{
	const struct vote *a = left, *b = right;
	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	if (a->straight != b->straight)
		return a->straight ? -1 : 1;
	if (a->one != b->one)
		return a->one < b->one ? -1 : 1;
	return (a->two > b->two) - (a->two < b->two);
}

static struct vote *list_votes(const struct ballot *ballot, uint32_t *count)
{
	uint32_t allocs = ballot->analysis->views[0].alloc_count;
	struct vote *votes = calloc(ballot->crossing.used + allocs + 1, sizeof(*votes));
	uint64_t key, value;
	size_t cursor = 0;
	*count = 0;
	while (votes && md_map_next(&ballot->crossing, &cursor, &key, &value))
		votes[(*count)++] = (struct vote){(uint32_t)(key >> 32), (uint32_t)key, value, false};
	for (uint32_t i = 0; votes && i < allocs; i++) {
		if (ballot->straight[i])
			votes[(*count)++] = (struct vote){i, ballot->analysis->partner[i], ballot->straight[i], true};
	}
	if (votes)
		qsort(votes, *count, sizeof(*votes), compare_votes);
	return votes;
}

static void pair(uint32_t *partner, uint32_t *back, uint32_t one, uint32_t two)
{
	partner[one] = two;
	back[two] = one;
}

/*
 * No word voted for this allocation, and its partner was given to another one. It takes the partner that was left over
 * at the end of the exchange, as if the two had swapped. `before` is the order of calls.
 */
static void pair_displaced(const uint32_t *before, uint32_t *partner, uint32_t *back, uint32_t one)
{
	uint32_t two = before[one];
	while (two != MD_NONE && back[two] != MD_NONE)
		two = before[back[two]];
	if (two != MD_NONE)
		pair(partner, back, one, two);
}

static bool decide(struct ballot *ballot)
{
	struct md_analysis *analysis = ballot->analysis;
	uint32_t ones = analysis->views[0].alloc_count, twos = analysis->views[1].alloc_count, count, moved = 0;
	MD_AUTO_FREE struct vote *votes = list_votes(ballot, &count);
	uint32_t *partner = malloc((ones + (size_t)1) * sizeof(*partner));
	MD_AUTO_FREE uint32_t *before = analysis->partner;
	uint32_t *back = analysis->partner_back;
	analysis->partner = partner;
	if (!votes || !partner)
		return false;
	memset(partner, 0xff, ones * sizeof(*partner));
	memset(back, 0xff, twos * sizeof(*back));
	for (uint32_t i = 0; i < count; i++) {
		if (partner[votes[i].one] == MD_NONE && back[votes[i].two] == MD_NONE)
			pair(partner, back, votes[i].one, votes[i].two);
	}
	for (uint32_t i = 0; i < ones; i++) {
		if (partner[i] == MD_NONE && before[i] != MD_NONE && back[before[i]] == MD_NONE)
			pair(partner, back, i, before[i]);
	}
	for (uint32_t i = 0; i < ones; i++) {
		if (partner[i] == MD_NONE)
			pair_displaced(before, partner, back, i);
		if (partner[i] != before[i] && !moved++)
			md_info("allocation %" PRIu32 " (%" PRIu64 " bytes) of the first capture is allocation %" PRIu32
				" of the second, as the graphs' parameters show",
				i, analysis->views[0].allocs[i].size, partner[i]);
	}
	return true;
}

/* ---- what follows from the pairs ---- */

static bool collect_deltas(struct md_analysis *analysis)
{
	for (uint32_t i = 0; i < analysis->views[0].alloc_count; i++) {
		uint64_t delta;
		if (analysis->partner[i] == MD_NONE)
			continue;
		delta = analysis->views[1].allocs[analysis->partner[i]].address - analysis->views[0].allocs[i].address;
		if (delta && !md_map_put(&analysis->deltas, delta, 1))
			return false;
	}
	return true;
}

static enum md_status vote(struct md_analysis *analysis, struct md_error *err)
{
	struct ballot ballot = {.analysis = analysis};
	enum md_status status;
	md_map_init(&ballot.crossing);
	ballot.straight = calloc(analysis->views[0].alloc_count + (size_t)1, sizeof(*ballot.straight));
	status = ballot.straight ? count_graphs(&ballot, err) : md_analysis_no_memory(err);
	if (status == MD_OK && ballot.crossing.used && !decide(&ballot))
		status = md_analysis_no_memory(err);
	free(ballot.straight);
	md_map_finish(&ballot.crossing);
	return status;
}

enum md_status md_pass_evidence(struct md_analysis *analysis, struct md_error *err)
{
	if (analysis->captures == 2) {
		MD_FORWARD(vote(analysis, err));
		if (!collect_deltas(analysis))
			return md_analysis_no_memory(err);
	}
	return md_analysis_group_mappings(analysis) ? MD_OK : md_analysis_no_memory(err);
}
