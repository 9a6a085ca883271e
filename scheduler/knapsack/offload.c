/* SPDX-License-Identifier: Apache-2.0 */
/* Which artifacts are evicted from a GPU when others need its memory: by the paper's greedy algorithm, and by ours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/knapsack/knapsack.h"

#define NONE MD_KNAPSACK_NONE
#define TRIES 32

/* What is evicted with a resident: itself, and what needs it and is not evicted yet. */
struct bundle {
	uint64_t bytes;
	double value;
	uint32_t pinned, count;
};

struct ranked {
	double key;
	uint32_t resident;
};

/*
 * Work is bounded by what a plan changes, not by the contents of the GPU: a plan is undone from the list of its changes, and
 * bundles that no plan has changed yet stand in the order of their density, which is sorted only as far as somebody looks.
 */
struct offload {
	const struct md_knapsack_resident *residents;
	uint32_t count;
	uint64_t bytes; /* asked for */
	bool *gone, *best_gone;
	struct bundle *bundles, *whole; /* now, and when nothing is evicted */
	uint32_t *order;                /* a resident stands before those that need it */
	uint32_t *dependent, *next;     /* who needs a resident: the first one, and others of the same need; or NONE */
	struct ranked *heap, *sorted;   /* bundles without pinned residents, by density: the rest, and the first ones */
	uint32_t heap_count, sorted_count;
	uint32_t *touched, touched_count; /* residents whose bundles the plan has changed */
	bool *is_touched;
	uint32_t *left, left_count; /* residents that the plan evicts */
	uint64_t freed;
	double lost, best_lost;
	bool found;
};

static double density(double value, uint64_t bytes)
{
	return value / (double)(bytes ? bytes : 1);
}

/* ---- a heap: the least key first, then the first resident ------------------------------------------------------- */

static bool ranks_before(struct ranked a, struct ranked b)
{
	return a.key != b.key ? a.key < b.key : a.resident < b.resident;
}

static void sink(struct ranked *heap, uint32_t count, uint32_t at)
{
	struct ranked item = heap[at];
	for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
		child += child + 1 < count && ranks_before(heap[child + 1], heap[child]);
		if (!ranks_before(heap[child], item))
			break;
		heap[at] = heap[child];
	}
	heap[at] = item;
}

static void heap_build(struct ranked *heap, uint32_t count)
{
	for (uint32_t at = count / 2; at-- > 0;)
		sink(heap, count, at);
}

static struct ranked heap_pop(struct ranked *heap, uint32_t *count)
{
	struct ranked first = heap[0];
	heap[0] = heap[--*count];
	if (*count)
		sink(heap, *count, 0);
	return first;
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static bool link_dependents(struct offload *offload)
{
	memset(offload->dependent, 0xff, offload->count * sizeof(*offload->dependent)); /* NONE */
	for (uint32_t i = 0; i < offload->count; i++) {
		uint32_t needs = offload->residents[i].needs;
		if (needs != NONE && needs >= offload->count)
			return false;
		if (needs == NONE)
			continue;
		offload->next[i] = offload->dependent[needs];
		offload->dependent[needs] = i;
	}
	return true;
}

/* Orders level by level; false if `needs` has a cycle. */
static bool put_in_order(struct offload *offload)
{
	bool *is_placed = offload->is_touched; /* not in use yet */
	uint32_t placed = 0, before;
	do {
		before = placed;
		for (uint32_t i = 0; i < offload->count; i++) {
			uint32_t needs = offload->residents[i].needs;
			if (is_placed[i] || (needs != NONE && !is_placed[needs]))
				continue;
			is_placed[i] = true;
			offload->order[placed++] = i;
		}
	} while (placed != before && placed < offload->count);
	memset(is_placed, 0, offload->count * sizeof(*is_placed));
	return placed == offload->count;
}

static void measure_bundles(struct offload *offload)
{
	const struct md_knapsack_resident *residents = offload->residents;
	for (uint32_t i = 0; i < offload->count; i++)
		offload->whole[i] = (struct bundle){.bytes = residents[i].bytes,
						    .value = residents[i].value,
						    .pinned = residents[i].pinned,
						    .count = 1};
	for (uint32_t k = offload->count; k-- > 0;) {
		uint32_t i = offload->order[k], needs = residents[i].needs;
		if (needs == NONE)
			continue;
		offload->whole[needs].bytes += offload->whole[i].bytes;
		offload->whole[needs].value += offload->whole[i].value;
		offload->whole[needs].pinned += offload->whole[i].pinned;
		offload->whole[needs].count += offload->whole[i].count;
	}
	memcpy(offload->bundles, offload->whole, offload->count * sizeof(*offload->bundles));
	for (uint32_t i = 0; i < offload->count; i++)
		if (!offload->whole[i].pinned)
			offload->heap[offload->heap_count++] =
			    (struct ranked){density(offload->whole[i].value, offload->whole[i].bytes), i};
	heap_build(offload->heap, offload->heap_count);
}

static bool get_memory(struct offload *offload)
{
	size_t room = (size_t)offload->count + 1;
	offload->bundles = malloc(
	    room * (2 * sizeof(struct bundle) + 2 * sizeof(struct ranked) + 5 * sizeof(uint32_t) + 2 * sizeof(bool)));
	if (!offload->bundles)
		return false;
	offload->whole = offload->bundles + room;
	offload->heap = (struct ranked *)(offload->whole + room);
	offload->sorted = offload->heap + room;
	offload->order = (uint32_t *)(offload->sorted + room);
	offload->dependent = offload->order + room;
	offload->next = offload->dependent + room;
	offload->touched = offload->next + room;
	offload->left = offload->touched + room;
	offload->best_gone = (bool *)(offload->left + room);
	offload->is_touched = offload->best_gone + room;
	memset(offload->best_gone, 0, 2 * room * sizeof(bool));
	memset(offload->gone, 0, offload->count * sizeof(bool));
	return true;
}

static enum md_status prepare(struct offload *offload, const struct md_knapsack_resident *residents, uint32_t count,
			      uint64_t bytes, bool *gone)
{
	*offload = (struct offload){
	    .residents = residents, .count = count, .bytes = bytes, .gone = gone, .best_lost = INFINITY};
	for (uint32_t i = 0; i < count; i++)
		if (!(residents[i].value >= 0))
			return MD_ERR_INVALID;
	if (!get_memory(offload))
		return MD_ERR_NO_MEMORY;
	if (!link_dependents(offload) || !put_in_order(offload)) {
		free(offload->bundles);
		return MD_ERR_INVALID;
	}
	measure_bundles(offload);
	return MD_OK;
}

/* ---- moves ------------------------------------------------------------------------------------------------------ */

/* Takes the plan back: everything is there again. */
static void start(struct offload *offload)
{
	while (offload->touched_count) {
		uint32_t i = offload->touched[--offload->touched_count];
		offload->bundles[i] = offload->whole[i];
		offload->is_touched[i] = false;
	}
	while (offload->left_count)
		offload->gone[offload->left[--offload->left_count]] = false;
	offload->freed = 0;
	offload->lost = 0;
}

static void touch(struct offload *offload, uint32_t i)
{
	if (!offload->is_touched[i])
		offload->touched[offload->touched_count++] = i;
	offload->is_touched[i] = true;
}

static void go(struct offload *offload, uint32_t i)
{
	if (!offload->gone[i])
		offload->left[offload->left_count++] = i;
	offload->gone[i] = true;
}

static void leave(struct offload *offload, uint32_t first)
{
	const struct bundle bundle = offload->bundles[first];
	for (uint32_t up = first; up != NONE; up = offload->residents[up].needs) {
		touch(offload, up);
		offload->bundles[up].bytes -= bundle.bytes;
		offload->bundles[up].value -= bundle.value;
		offload->bundles[up].count -= bundle.count;
	}
	uint32_t last = offload->left_count;
	go(offload, first);
	for (; bundle.count > 1 && last < offload->left_count; last++)
		for (uint32_t i = offload->dependent[offload->left[last]]; i != NONE; i = offload->next[i])
			go(offload, i);
	offload->freed += bundle.bytes;
	offload->lost += bundle.value;
}

/* The bundle at this place of the order by density, or NULL behind the last one. */
static const struct ranked *in_order(struct offload *offload, uint32_t place)
{
	if (place == offload->sorted_count) {
		if (!offload->heap_count)
			return NULL;
		offload->sorted[offload->sorted_count++] = heap_pop(offload->heap, &offload->heap_count);
	}
	return &offload->sorted[place];
}

/* What evicting it loses for a byte; whole: with all that needs it. INFINITY: it may not be evicted so. */
static double loses(const struct offload *offload, uint32_t i, bool whole)
{
	const struct bundle *bundle = &offload->bundles[i];
	uint64_t still = offload->bytes - offload->freed;
	if (offload->gone[i] || bundle->pinned || (whole ? !bundle->bytes : bundle->count > 1))
		return INFINITY;
	/* bytes beyond what is asked for do not count */
	return density(bundle->value, whole && bundle->bytes > still ? still : bundle->bytes);
}

static void keep_least(struct ranked *least, double key, uint32_t resident)
{
	if (key < least->key || (key == least->key && resident < least->resident && key < INFINITY))
		*least = (struct ranked){key, resident};
}

/* The next resident to evict: the one that loses least for a byte, and of equals the first. */
static uint32_t next_to_leave(struct offload *offload, bool whole)
{
	struct ranked least = {INFINITY, NONE};
	const struct ranked *at;
	/* nobody loses less than its density says */
	for (uint32_t place = 0; (at = in_order(offload, place)) && at->key <= least.key; place++)
		if (!offload->is_touched[at->resident])
			keep_least(&least, loses(offload, at->resident, whole), at->resident);
	for (uint32_t k = 0; k < offload->touched_count; k++)
		keep_least(&least, loses(offload, offload->touched[k], whole), offload->touched[k]);
	return least.resident;
}

static void leave_until_enough(struct offload *offload, bool whole)
{
	while (offload->freed < offload->bytes) {
		uint32_t i = next_to_leave(offload, whole);
		if (i == NONE)
			break;
		leave(offload, i);
	}
}

/* Puts back what turned out unnecessary, the most valuable first, and of equals the first. */
static void put_back(struct offload *offload)
{
	const struct md_knapsack_resident *residents = offload->residents;
	for (;;) {
		uint32_t best = NONE;
		for (uint32_t k = 0; k < offload->left_count; k++) {
			uint32_t i = offload->left[k], needs = residents[i].needs;
			if (!offload->gone[i] || (needs != NONE && offload->gone[needs]) ||
			    offload->freed - residents[i].bytes < offload->bytes)
				continue;
			if (best == NONE || residents[i].value > residents[best].value ||
			    (residents[i].value == residents[best].value && i < best))
				best = i;
		}
		if (best == NONE)
			return;
		offload->gone[best] = false;
		offload->freed -= residents[best].bytes;
		offload->lost -= residents[best].value;
	}
}

static void keep_better(struct offload *offload)
{
	if (offload->freed < offload->bytes || offload->lost >= offload->best_lost)
		return;
	offload->found = true;
	offload->best_lost = offload->lost;
	memcpy(offload->best_gone, offload->gone, offload->count);
}

/* Sums are computed in the order of the residents, so that they do not depend on the order of eviction. */
static void finish(struct offload *offload, struct md_knapsack_loss *loss)
{
	*loss = (struct md_knapsack_loss){0};
	if (offload->found)
		memcpy(offload->gone, offload->best_gone, offload->count);
	for (uint32_t i = 0; i < offload->count; i++) {
		loss->bytes += offload->gone[i] ? offload->residents[i].bytes : 0;
		loss->value += offload->gone[i] ? offload->residents[i].value : 0;
	}
	loss->enough = loss->bytes >= offload->bytes;
	free(offload->bundles);
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

enum md_status md_knapsack_offload_greedy(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
					  bool *gone, struct md_knapsack_loss *loss)
{
	struct offload offload;
	MD_FORWARD(prepare(&offload, residents, count, bytes, gone));
	leave_until_enough(&offload, false);
	finish(&offload, loss);
	return MD_OK;
}

/* Tries the plan that begins with `first`, if `first` may be evicted. */
static void try_first(struct offload *offload, uint32_t first)
{
	start(offload);
	if (first != NONE && offload->bundles[first].pinned)
		return;
	if (first != NONE)
		leave(offload, first);
	leave_until_enough(offload, true);
	if (offload->freed >= offload->bytes)
		put_back(offload);
	keep_better(offload);
}

/* The bundles to begin with: those that lose the least value for each byte of what is asked for. */
static uint32_t choose_firsts(struct offload *offload, uint32_t *firsts)
{
	uint32_t limit = 65536 / (offload->count * 8 + 1) + 1, chosen = 0, count = 0;
	struct ranked *heap = malloc(((size_t)offload->count + 1) * sizeof(*heap));
	for (uint32_t i = 0; heap && i < offload->count; i++) {
		const struct bundle *bundle = &offload->whole[i];
		uint64_t counts = bundle->bytes < offload->bytes ? bundle->bytes : offload->bytes;
		double key = bundle->pinned ? INFINITY : density(bundle->value, counts);
		if (key < INFINITY)
			heap[count++] = (struct ranked){key, i};
	}
	heap_build(heap, count);
	for (limit = limit < TRIES ? limit : TRIES; count && chosen < limit;)
		firsts[chosen++] = heap_pop(heap, &count).resident;
	free(heap);
	return chosen;
}

enum md_status md_knapsack_offload(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
				   bool *gone, struct md_knapsack_loss *loss)
{
	struct offload offload;
	uint32_t firsts[TRIES];
	MD_FORWARD(prepare(&offload, residents, count, bytes, gone));
	leave_until_enough(&offload, false);
	if (offload.freed >= bytes) {
		put_back(&offload);
		keep_better(&offload);
		uint32_t tries = choose_firsts(&offload, firsts);
		try_first(&offload, NONE);
		for (uint32_t i = 0; i < tries; i++)
			try_first(&offload, firsts[i]);
	}
	finish(&offload, loss);
	return MD_OK;
}
