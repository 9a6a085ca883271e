/* SPDX-License-Identifier: Apache-2.0 */
/* The residents whose eviction loses the least, by branch and bound; shares no code with the solvers that it judges. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/judges/judges.h"

#define NONE MD_KNAPSACK_NONE

struct search {
	const struct md_knapsack_resident *residents;
	uint32_t count;
	uint64_t bytes;         /* asked for */
	uint32_t *order, *rank; /* a resident stands before those that need it; rank: resident -> its place there */
	uint32_t *dense;        /* by value / bytes */
	bool *stays;            /* pinned, or needed by what is */
	bool *gone, *best;
	uint64_t freed, nodes, limit;
	double lost, least;
};

static double density(const struct md_knapsack_resident *resident)
{
	return resident->value / (double)(resident->bytes ? resident->bytes : 1);
}

/* A lower bound of what freeing the rest costs: as if residents from the k-th on could leave in part and alone. */
static double least_loss(const struct search *search, uint32_t k)
{
	uint64_t missing = search->freed < search->bytes ? search->bytes - search->freed : 0;
	double loss = 0;
	for (uint32_t j = 0; missing && j < search->count; j++) {
		const struct md_knapsack_resident *resident = &search->residents[search->dense[j]];
		if (search->rank[search->dense[j]] < k || resident->pinned)
			continue;
		if (resident->bytes >= missing)
			return loss + density(resident) * (double)missing;
		missing -= resident->bytes;
		loss += resident->value;
	}
	return missing ? INFINITY : loss;
}

static void walk(struct search *search, uint32_t k)
{
	if (++search->nodes > search->limit)
		return;
	if (k == search->count) {
		if (search->freed < search->bytes || search->lost >= search->least)
			return;
		search->least = search->lost;
		memcpy(search->best, search->gone, search->count);
		return;
	}
	if (search->lost + least_loss(search, k) >= search->least)
		return;
	uint32_t i = search->order[k], needs = search->residents[i].needs;
	bool forced = needs != NONE && search->gone[needs];
	if (forced || !search->stays[i]) {
		search->gone[i] = true;
		search->freed += search->residents[i].bytes;
		search->lost += search->residents[i].value;
		walk(search, k + 1);
		search->gone[i] = false;
		search->freed -= search->residents[i].bytes;
		search->lost -= search->residents[i].value;
	}
	if (!forced)
		walk(search, k + 1);
}

/* Fills order, rank, dense and stays; `needs` has no cycle. */
static void prepare(struct search *search)
{
	uint32_t placed = 0;
	while (placed < search->count) {
		for (uint32_t i = 0; i < search->count; i++) {
			uint32_t needs = search->residents[i].needs;
			if (search->rank[i] != NONE || (needs != NONE && search->rank[needs] == NONE))
				continue;
			search->rank[i] = placed;
			search->order[placed++] = i;
		}
	}
	for (uint32_t k = search->count; k-- > 0;) {
		uint32_t i = search->order[k], needs = search->residents[i].needs;
		search->stays[i] |= search->residents[i].pinned;
		if (search->stays[i] && needs != NONE)
			search->stays[needs] = true;
	}
	for (uint32_t i = 0; i < search->count; i++) {
		uint32_t at = i;
		for (; at && density(&search->residents[search->dense[at - 1]]) > density(&search->residents[i]); at--)
			search->dense[at] = search->dense[at - 1];
		search->dense[at] = i;
	}
}

static void weigh(const struct search *search, struct md_knapsack_loss *loss)
{
	*loss = (struct md_knapsack_loss){0};
	for (uint32_t i = 0; i < search->count; i++) {
		loss->bytes += search->best[i] ? search->residents[i].bytes : 0;
		loss->value += search->best[i] ? search->residents[i].value : 0;
	}
	loss->enough = loss->bytes >= search->bytes;
}

enum md_status offload_exact(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
			     uint64_t limit, bool *gone, struct md_knapsack_loss *loss, struct knapsack_proof *proof)
{
	struct search search = {.residents = residents, .count = count, .bytes = bytes, .limit = limit};
	/* ours says whether the input is good and whether enough can go at all */
	MD_FORWARD(md_knapsack_offload(residents, count, bytes, gone, loss));
	*proof = (struct knapsack_proof){.proven = true};
	if (!loss->enough)
		return MD_OK; /* everything evictable is evicted */
	uint32_t *numbers = malloc(3 * ((size_t)count + 1) * sizeof(*numbers));
	bool *flags = calloc((size_t)count + 1, 3 * sizeof(*flags));
	if (numbers && flags) {
		search.order = numbers;
		search.rank = numbers + count;
		search.dense = numbers + 2 * (size_t)count;
		memset(search.rank, 0xff, count * sizeof(*search.rank)); /* NONE */
		search.stays = flags;
		search.gone = flags + count;
		search.best = flags + 2 * (size_t)count;
		search.least = INFINITY;
		prepare(&search);
		walk(&search, 0);
		*proof = (struct knapsack_proof){.proven = search.nodes <= limit, .nodes = search.nodes};
		/* ours is the answer only if the search gave up, because the search is there to judge ours */
		if (proof->proven || search.least < loss->value) {
			memcpy(gone, search.best, count);
			weigh(&search, loss);
		}
	}
	enum md_status status = numbers && flags ? MD_OK : MD_ERR_NO_MEMORY;
	free(numbers);
	free(flags);
	return status;
}
