/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/prefix_choice.h"

#define WORTH_S 0.005    /* what a cache must be able to save: as HOP_S of first_token.c */
#define EQUAL_PART 1.5   /* two numbers of seconds are told in steps of a quarter, and both are measured */
#define CROWDED_TIMES 2u /* requests, against the node that has the fewest of equal ones, */
#define CROWDED_MORE 3u  /* and so many more */
#define APART 2.0        /* what a node says of a byte counts as that many times the usual time at most, and least */
#define SAMPLES_MAX 33u  /* nodes that are asked how long a byte takes */

/* What counts for a model on all nodes; 0: nobody has measured it. */
struct usual {
	double prefill_s, rest_s;
};

static double measured(const struct md_prefix_candidate *candidate, bool rest)
{
	return rest ? candidate->rest_s : candidate->prefill_s;
}

/* The one in the middle of those that are known. */
static double find_median(const struct md_prefix_candidate *list, uint32_t count, bool rest)
{
	uint32_t known = 0;
	double values[SAMPLES_MAX];
	for (uint32_t i = 0; i < count && known < SAMPLES_MAX; i++) {
		double value = measured(&list[i], rest);
		uint32_t at = known;
		if (list[i].uncached || !(value > 0))
			continue;
		for (; at && values[at - 1] > value; at--)
			values[at] = values[at - 1];
		values[at] = value;
		known++;
	}
	return known ? values[(known - 1) / 2] : 0;
}

/* An odd number that a node has measured would keep requests away from it, without which it measures no other. */
static double prefill_of(const struct md_prefix_candidate *candidate, const struct usual *usual)
{
	double most = usual->prefill_s * APART, least = usual->prefill_s / APART, own = candidate->prefill_s;
	if (!(own > 0))
		return usual->prefill_s;
	return own > most ? most : own < least ? least : own;
}

/* All of the prompt is counted everywhere, so what a cache has never makes the time less than nothing. */
static double expect(const struct md_prefix_candidate *candidate, const struct usual *usual, double bytes)
{
	double cached = candidate->uncached ? 0 : candidate->cached < bytes ? candidate->cached : bytes;
	double rest = candidate->prefill_s > 0 ? candidate->rest_s : usual->rest_s;
	double besides = rest < candidate->first_s ? candidate->first_s - rest : 0;
	return candidate->seconds - besides + prefill_of(candidate, usual) * (bytes - cached);
}

static double cached_of(const struct md_prefix_candidate *candidate)
{
	return candidate->uncached ? -1 : candidate->cached;
}

static bool is_rather(const struct md_prefix_candidate *one, const struct md_prefix_candidate *than,
		      uint32_t least_load)
{
	uint64_t most = (uint64_t)least_load * CROWDED_TIMES + CROWDED_MORE;
	bool crowded = one->load > most, other_crowded = than->load > most;
	if (crowded != other_crowded)
		return other_crowded;
	if (cached_of(one) > cached_of(than) || cached_of(one) < cached_of(than))
		return cached_of(one) > cached_of(than);
	return one->rank > than->rank;
}

/* Known is what somebody has of it beyond its first turn: what comes before may be others' as well. */
static void assume(struct md_prefix_candidate *list, uint32_t count, const struct md_prefix_prompt *prompt)
{
	uint32_t first = MD_PREFIX_NOBODY;
	for (uint32_t i = 0; i < count; i++) {
		if (list[i].cached > prompt->begun)
			return;
		if (!list[i].uncached && !list[i].away &&
		    (first == MD_PREFIX_NOBODY || list[i].rank > list[first].rank))
			first = i;
	}
	if (first != MD_PREFIX_NOBODY && prompt->told > list[first].cached)
		list[first].cached = prompt->told;
}

uint32_t md_prefix_choose(struct md_prefix_candidate *list, uint32_t count, const struct md_prefix_prompt *prompt)
{
	struct usual usual = {find_median(list, count, false), find_median(list, count, true)};
	uint32_t least_load = UINT32_MAX, chosen = MD_PREFIX_NOBODY;
	double best_s = 0, bytes = prompt->bytes;
	if (!(usual.prefill_s * bytes >= WORTH_S))
		return MD_PREFIX_NOBODY;
	if (prompt->told > 0)
		assume(list, count, prompt);
	for (uint32_t i = 0; i < count; i++) {
		double seconds = expect(&list[i], &usual, bytes);
		if (!i || seconds < best_s)
			best_s = seconds;
	}
	double most_s = best_s * EQUAL_PART + WORTH_S;
	for (uint32_t i = 0; i < count; i++)
		if (expect(&list[i], &usual, bytes) <= most_s && list[i].load < least_load)
			least_load = list[i].load;
	for (uint32_t i = 0; i < count; i++)
		if (expect(&list[i], &usual, bytes) <= most_s &&
		    (chosen == MD_PREFIX_NOBODY || is_rather(&list[i], &list[chosen], least_load)))
			chosen = i;
	return chosen != MD_PREFIX_NOBODY && list[chosen].away ? MD_PREFIX_NOBODY : chosen;
}
