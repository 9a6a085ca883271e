/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best plan of preloading, by branch and bound over groups and functions; the bound is the Lagrangian dual with what
 * is decided so far.
 */
#include <stdlib.h>

#include "scheduler/knapsack/knapsack_state.h"
#include "tests/judges/judges.h"

#define NONE MD_KNAPSACK_NONE

struct exact {
	const struct md_knap *knap;
	const struct md_knap_state *start;
	struct md_knap_state state;
	struct md_knap_state *best;
	struct md_knap_prices prices;
	double room[MD_KNAP_KINDS];
	double *later;  /* per group: the most that this group and later ones can add */
	double *within; /* [member * MD_KNAP_BACKBONES + backbone]: the same for functions within their group */
	uint64_t nodes, limit;
};

static void search_group(struct exact *exact, uint32_t group);
static void search_member(struct exact *exact, uint32_t group, uint32_t member, unsigned backbone);

/* ---- tables ---- */

static void fill_tables(struct exact *exact)
{
	const struct md_knap *knap = exact->knap;
	exact->later[knap->groups] = 0;
	for (uint32_t g = knap->groups; g-- > 0;) {
		exact->later[g] =
		    exact->later[g + 1] + md_knap_group_profit(knap, exact->start, &exact->prices, g, NULL);
		for (unsigned b = 0; b < MD_KNAP_BACKBONES; b++) {
			double sum = 0;
			for (uint32_t m = knap->first[g + 1]; m-- > knap->first[g];) {
				sum += md_knap_function_profit(knap, exact->start, &exact->prices, knap->members[m], b,
							       false, NULL);
				exact->within[(size_t)m * MD_KNAP_BACKBONES + b] = sum;
			}
		}
	}
}

/* True: no plan below this node is worth more (by over a billionth) than the best one known. */
static bool hopeless(struct exact *exact, double rest)
{
	double bound = exact->state.value + rest;
	for (int kind = 0; kind < MD_KNAP_KINDS; kind++)
		bound += exact->prices.price[kind] * exact->room[kind];
	exact->nodes++;
	return exact->nodes > exact->limit || bound <= exact->best->value * (1 + 1e-9);
}

static void put(struct exact *exact, uint32_t artifact, uint32_t place, int sign)
{
	int kind = exact->knap->in->places[place].gpu ? MD_KNAP_GPU : MD_KNAP_CONTAINER;
	exact->room[kind] -= sign * (double)exact->knap->in->artifacts[artifact].bytes;
	if (sign > 0)
		md_knap_add(exact->knap, &exact->state, artifact, place);
	else
		md_knap_remove(exact->knap, &exact->state, artifact, place);
}

/*
 * True if an earlier place of the kind is equivalent: equal room, and the same artifacts of this function and its
 * backbone.
 */
static bool repeats(const struct exact *exact, uint32_t k, uint32_t from, uint32_t group, uint32_t function)
{
	const struct md_knap *knap = exact->knap;
	uint32_t place = knap->places[k];
	bool gpu = knap->in->places[place].gpu;
	for (uint32_t j = from; j < k; j++) {
		uint32_t other = knap->places[j];
		if (exact->state.room[other] != exact->state.room[place])
			continue;
		if (!gpu)
			return true;
		if (md_knap_has_backbone(knap, &exact->state, group, other) !=
		    md_knap_has_backbone(knap, &exact->state, group, place))
			continue;
		uint32_t adapter = function == NONE ? NONE : knap->adapter[function],
			 kernels = function == NONE ? NONE : knap->kernels[function];
		if ((adapter == NONE || (exact->state.gpu[adapter] != other && exact->state.gpu[adapter] != place)) &&
		    (kernels == NONE || (exact->state.gpu[kernels] != other && exact->state.gpu[kernels] != place)))
			return true;
	}
	return false;
}

/* ---- one function: library, then adapter, then kernels ---- */

static void search_kernels(struct exact *exact, uint32_t group, uint32_t member, unsigned backbone)
{
	const struct md_knap *knap = exact->knap;
	uint32_t function = knap->members[member], kernels = knap->kernels[function];
	for (uint32_t k = knap->containers; kernels != NONE && k < knap->in->place_count; k++) {
		uint32_t place = knap->places[k];
		if (!md_knap_may_add(knap, &exact->state, kernels, place) ||
		    repeats(exact, k, knap->containers, group, function))
			continue;
		put(exact, kernels, place, 1);
		search_member(exact, group, member + 1, backbone);
		put(exact, kernels, place, -1);
	}
	search_member(exact, group, member + 1, backbone);
}

static void search_adapter(struct exact *exact, uint32_t group, uint32_t member, unsigned backbone)
{
	const struct md_knap *knap = exact->knap;
	uint32_t function = knap->members[member], adapter = knap->adapter[function];
	for (uint32_t k = 0; adapter != NONE && k < knap->in->place_count; k++) {
		uint32_t place = knap->places[k];
		/* if it is on a GPU already, a second copy in a container adds nothing */
		if ((k < knap->containers && exact->state.copies[adapter]) ||
		    !md_knap_may_add(knap, &exact->state, adapter, place) ||
		    repeats(exact, k, k < knap->containers ? 0 : knap->containers, group, function))
			continue;
		put(exact, adapter, place, 1);
		search_kernels(exact, group, member, backbone);
		put(exact, adapter, place, -1);
	}
	search_kernels(exact, group, member, backbone);
}

static void search_member(struct exact *exact, uint32_t group, uint32_t member, unsigned backbone)
{
	const struct md_knap *knap = exact->knap;
	if (member == knap->first[group + 1]) {
		uint32_t artifact = knap->backbone[group];
		if (artifact != NONE && !md_knap_supported(knap, &exact->state, artifact, 0) &&
		    (exact->state.copies[artifact] != exact->start->copies[artifact] ||
		     exact->state.container[artifact] != exact->start->container[artifact]))
			return; /* a new backbone needs a library */
		search_group(exact, group + 1);
		return;
	}
	if (hopeless(exact, exact->later[group + 1] + exact->within[(size_t)member * MD_KNAP_BACKBONES + backbone]))
		return;
	uint32_t library = knap->library[knap->members[member]];
	for (uint32_t k = 0; library != NONE && k < knap->containers; k++) {
		uint32_t place = knap->places[k];
		if (!md_knap_may_add(knap, &exact->state, library, place) || repeats(exact, k, 0, group, NONE))
			continue;
		put(exact, library, place, 1);
		search_adapter(exact, group, member, backbone);
		put(exact, library, place, -1);
	}
	if (md_knap_has_library(knap, &exact->state, knap->members[member]))
		search_adapter(exact, group, member, backbone);
	else
		search_member(exact, group, member + 1, backbone);
}

/* ---- one group: copies of its backbone, then its functions ---- */

/* Searches the GPUs from the k-th on. */
static void search_copies(struct exact *exact, uint32_t group, uint32_t k, bool skipped)
{
	const struct md_knap *knap = exact->knap;
	uint32_t artifact = knap->backbone[group];
	if (k == knap->in->place_count) {
		unsigned backbone = (exact->state.container[artifact] != NONE ? MD_KNAP_IN_CONTAINER : 0) |
				    (exact->state.copies[artifact] ? MD_KNAP_ON_GPU : 0);
		search_member(exact, group, knap->first[group], backbone);
		return;
	}
	uint32_t place = knap->places[k];
	/* of equivalent neighbours, the first ones are used first */
	bool alike = k > knap->containers && !knap->in->held_count &&
		     exact->state.room[place] == exact->state.room[knap->places[k - 1]];
	if (!(alike && skipped) && !md_knap_has(knap, &exact->state, artifact, place) &&
	    exact->state.room[place] >= knap->in->artifacts[artifact].bytes) {
		put(exact, artifact, place, 1);
		search_copies(exact, group, k + 1, false);
		put(exact, artifact, place, -1);
	}
	search_copies(exact, group, k + 1, true);
}

static void search_group(struct exact *exact, uint32_t group)
{
	const struct md_knap *knap = exact->knap;
	if (group == knap->groups && exact->state.value > exact->best->value)
		md_knap_state_copy(exact->best, &exact->state);
	if (group == knap->groups || hopeless(exact, exact->later[group]))
		return;
	uint32_t artifact = knap->backbone[group];
	if (artifact == NONE) {
		search_member(exact, group, knap->first[group], 0);
		return;
	}
	for (uint32_t k = 0; k < knap->containers; k++) {
		uint32_t place = knap->places[k];
		if (exact->state.container[artifact] != NONE ||
		    exact->state.room[place] < knap->in->artifacts[artifact].bytes || repeats(exact, k, 0, group, NONE))
			continue;
		put(exact, artifact, place, 1);
		search_copies(exact, group, knap->containers, false);
		put(exact, artifact, place, -1);
	}
	search_copies(exact, group, knap->containers, false);
}

/* Improves exact->best, which is a plan already; stops after `limit` nodes. */
static enum md_status search(struct exact *exact)
{
	const struct md_knap *knap = exact->knap;
	enum md_status status = md_knap_state_init(knap, &exact->state);
	if (status || !knap->in->place_count) {
		md_knap_state_finish(&exact->state);
		return status;
	}
	exact->later = malloc((knap->groups + 1) * sizeof(double));
	exact->within = malloc(((size_t)knap->in->function_count * MD_KNAP_BACKBONES + 1) * sizeof(double));
	if (!exact->later || !exact->within) {
		status = MD_ERR_NO_MEMORY;
	} else {
		md_knap_prices(knap, exact->start, 200, &exact->prices);
		for (int kind = 0; kind < MD_KNAP_KINDS; kind++)
			exact->room[kind] = exact->prices.room[kind];
		fill_tables(exact);
		search_group(exact, 0);
	}
	free(exact->within);
	free(exact->later);
	md_knap_state_finish(&exact->state);
	return status;
}

/* Puts into `state` what our own algorithm would place: the plan that the search has to beat. */
static enum md_status begin_with_ours(const struct md_knap *knap, struct md_knap_state *state)
{
	struct md_knapsack_plan ours;
	MD_FORWARD(md_knapsack_bundles(knap->in, &ours));
	for (uint32_t i = 0; i < ours.count; i++)
		md_knap_add(knap, state, ours.placements[i].artifact, ours.placements[i].place);
	md_knapsack_plan_finish(&ours);
	return MD_OK;
}

struct judging {
	struct md_knap knap;
	struct md_knap_state start, best;
};

static void stop_judging(struct judging *judging)
{
	md_knap_state_finish(&judging->best);
	md_knap_state_finish(&judging->start);
	md_knap_finish(&judging->knap);
}

static enum md_status begin_judging(struct judging *judging, const struct md_knapsack *problem)
{
	*judging = (struct judging){0};
	enum md_status status = md_knap_init(&judging->knap, problem);
	if (!status)
		status = md_knap_state_init(&judging->knap, &judging->start);
	if (!status)
		status = md_knap_state_init(&judging->knap, &judging->best);
	if (status)
		stop_judging(judging);
	return status;
}

enum md_status knapsack_bound(const struct md_knapsack *problem, double *value)
{
	struct judging judging;
	struct md_knap_prices prices;
	MD_FORWARD(begin_judging(&judging, problem));
	md_knap_prices(&judging.knap, &judging.start, 200, &prices);
	*value = prices.bound;
	stop_judging(&judging);
	return MD_OK;
}

enum md_status knapsack_exact(const struct md_knapsack *problem, bool from_ours, uint64_t limit,
			      struct md_knapsack_plan *plan, struct knapsack_proof *proof)
{
	struct judging judging;
	MD_FORWARD(begin_judging(&judging, problem));
	struct exact exact = {.knap = &judging.knap, .start = &judging.start, .best = &judging.best, .limit = limit};
	enum md_status status = from_ours ? begin_with_ours(&judging.knap, &judging.best) : MD_OK;
	if (!status)
		status = search(&exact);
	if (!status)
		status = md_knap_plan(&judging.knap, &judging.start, &judging.best, plan);
	*proof = (struct knapsack_proof){.proven = exact.nodes <= limit, .nodes = exact.nodes};
	stop_judging(&judging);
	return status;
}
