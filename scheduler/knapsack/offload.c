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

struct offload {
	const struct md_knapsack_resident *residents;
	uint32_t count;
	uint64_t bytes; /* asked for */
	bool *gone, *best_gone;
	struct bundle *bundles;
	uint32_t *order; /* a resident stands before those that need it */
	uint32_t *tried; /* by resident: it is among those to begin with */
	uint64_t freed;
	double lost, best_lost;
	bool found;
};

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static double density(double value, uint64_t bytes)
{
	return value / (double)(bytes ? bytes : 1);
}

/* Orders level by level; false if `needs` has a cycle. */
static bool put_in_order(struct offload *offload)
{
	uint32_t placed = 0, before;
	for (uint32_t i = 0; i < offload->count; i++)
		if (offload->residents[i].needs != NONE && offload->residents[i].needs >= offload->count)
			return false;
	memset(offload->gone, 0, offload->count);
	do {
		before = placed;
		for (uint32_t i = 0; i < offload->count; i++) {
			uint32_t needs = offload->residents[i].needs;
			if (offload->gone[i] || (needs != NONE && !offload->gone[needs]))
				continue;
			offload->gone[i] = true;
			offload->order[placed++] = i;
		}
	} while (placed != before && placed < offload->count);
	return placed == offload->count;
}

static void start(struct offload *offload)
{
	const struct md_knapsack_resident *residents = offload->residents;
	offload->freed = 0;
	offload->lost = 0;
	memset(offload->gone, 0, offload->count);
	for (uint32_t i = 0; i < offload->count; i++)
		offload->bundles[i] = (struct bundle){.bytes = residents[i].bytes,
						      .value = residents[i].value,
						      .pinned = residents[i].pinned,
						      .count = 1};
	for (uint32_t k = offload->count; k-- > 0;) {
		uint32_t i = offload->order[k], needs = residents[i].needs;
		if (needs == NONE)
			continue;
		offload->bundles[needs].bytes += offload->bundles[i].bytes;
		offload->bundles[needs].value += offload->bundles[i].value;
		offload->bundles[needs].pinned += offload->bundles[i].pinned;
		offload->bundles[needs].count += offload->bundles[i].count;
	}
}

static enum md_status prepare(struct offload *offload, const struct md_knapsack_resident *residents, uint32_t count,
			      uint64_t bytes, bool *gone)
{
	size_t room = (size_t)count + 1;
	*offload = (struct offload){
	    .residents = residents, .count = count, .bytes = bytes, .gone = gone, .best_lost = INFINITY};
	for (uint32_t i = 0; i < count; i++)
		if (!(residents[i].value >= 0))
			return MD_ERR_INVALID;
	offload->bundles = malloc(room * (sizeof(*offload->bundles) + 2 * sizeof(uint32_t) + sizeof(bool)));
	if (!offload->bundles)
		return MD_ERR_NO_MEMORY;
	offload->order = (uint32_t *)(offload->bundles + room);
	offload->tried = offload->order + room;
	offload->best_gone = (bool *)(offload->tried + room);
	memset(offload->best_gone, 0, room);
	if (!put_in_order(offload)) {
		free(offload->bundles);
		return MD_ERR_INVALID;
	}
	start(offload);
	return MD_OK;
}

/* ---- moves ------------------------------------------------------------------------------------------------------ */

static void leave(struct offload *offload, uint32_t first)
{
	const struct bundle bundle = offload->bundles[first];
	for (uint32_t up = first; up != NONE; up = offload->residents[up].needs) {
		offload->bundles[up].bytes -= bundle.bytes;
		offload->bundles[up].value -= bundle.value;
		offload->bundles[up].count -= bundle.count;
	}
	offload->gone[first] = true;
	if (bundle.count > 1)
		for (uint32_t k = 0; k < offload->count; k++) {
			uint32_t i = offload->order[k], needs = offload->residents[i].needs;
			if (needs != NONE && offload->gone[needs])
				offload->gone[i] = true;
		}
	offload->freed += bundle.bytes;
	offload->lost += bundle.value;
}

/* The next resident to evict; whole: with all that needs it, where bytes beyond what is asked for do not count. */
static uint32_t next_to_leave(const struct offload *offload, bool whole)
{
	uint64_t still = offload->bytes - offload->freed;
	double least = INFINITY;
	uint32_t best = NONE;
	for (uint32_t i = 0; i < offload->count; i++) {
		const struct bundle *bundle = &offload->bundles[i];
		if (offload->gone[i] || bundle->pinned || (whole ? !bundle->bytes : bundle->count > 1))
			continue;
		double now = density(bundle->value, whole && bundle->bytes > still ? still : bundle->bytes);
		if (now < least) {
			least = now;
			best = i;
		}
	}
	return best;
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

/* Puts back what turned out unnecessary, the most valuable first. */
static void put_back(struct offload *offload)
{
	for (;;) {
		uint32_t best = NONE;
		for (uint32_t i = 0; i < offload->count; i++) {
			uint32_t needs = offload->residents[i].needs;
			if (!offload->gone[i] || (needs != NONE && offload->gone[needs]) ||
			    offload->freed - offload->residents[i].bytes < offload->bytes)
				continue;
			if (best == NONE || offload->residents[i].value > offload->residents[best].value)
				best = i;
		}
		if (best == NONE)
			return;
		offload->gone[best] = false;
		offload->freed -= offload->residents[best].bytes;
		offload->lost -= offload->residents[best].value;
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
	uint32_t limit = 65536 / (offload->count * 8 + 1) + 1, chosen = 0;
	start(offload);
	limit = limit < TRIES ? limit : TRIES;
	memset(offload->tried, 0, offload->count * sizeof(*offload->tried));
	while (chosen < limit) {
		double least = INFINITY;
		uint32_t best = NONE;
		for (uint32_t i = 0; i < offload->count; i++) {
			const struct bundle *bundle = &offload->bundles[i];
			uint64_t counts = bundle->bytes < offload->bytes ? bundle->bytes : offload->bytes;
			if (offload->tried[i] || bundle->pinned || density(bundle->value, counts) >= least)
				continue;
			least = density(bundle->value, counts);
			best = i;
		}
		if (best == NONE)
			break;
		offload->tried[best] = 1;
		firsts[chosen++] = best;
	}
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
