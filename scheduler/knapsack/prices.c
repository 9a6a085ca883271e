/* SPDX-License-Identifier: Apache-2.0 */
/* The Lagrangian dual of the preloading problem: rooms become prices, groups become independent of each other. */
#include <math.h>

#include "scheduler/knapsack/knapsack_state.h"

#define NONE MD_KNAPSACK_NONE

struct offer {
	double profit;
	double used[MD_KNAP_KINDS];
};

static bool fits(const struct md_knap *knap, const struct md_knap_prices *prices, uint32_t artifact, int kind)
{
	return knap->in->artifacts[artifact].bytes <= prices->largest[kind];
}

static void buy(const struct md_knap *knap, const struct md_knap_prices *prices, struct offer *offer, uint32_t artifact,
		int kind, double gain)
{
	double bytes = (double)knap->in->artifacts[artifact].bytes;
	offer->profit += gain - bytes * prices->price[kind];
	offer->used[kind] += bytes;
}

static void keep_better(struct offer *best, const struct offer *offer)
{
	if (offer->profit > best->profit)
		*best = *offer;
}

/* Adds kernels to an offer that has the library; possible: and the models. */
static void add_kernels(const struct md_knap *knap, const struct md_knap_state *state,
			const struct md_knap_prices *prices, uint32_t function, bool possible, struct offer *with)
{
	uint32_t kernels = knap->kernels[function];
	if (!possible || kernels == NONE || state->copies[kernels] || !fits(knap, prices, kernels, MD_KNAP_GPU))
		return;
	struct offer more = *with;
	buy(knap, prices, &more, kernels, MD_KNAP_GPU, knap->gpu_value[kernels]);
	keep_better(with, &more);
}

static struct offer best_with_library(const struct md_knap *knap, const struct md_knap_state *state,
				      const struct md_knap_prices *prices, uint32_t function, unsigned backbone,
				      struct offer base)
{
	uint32_t adapter = knap->adapter[function];
	bool none = knap->backbone[knap->group[function]] == NONE, there = backbone || none;
	bool in_container = adapter != NONE && state->container[adapter] != NONE,
	     on_gpu = adapter != NONE && state->copies[adapter];
	struct offer best = base;
	add_kernels(knap, state, prices, function, there && (adapter == NONE || in_container || on_gpu), &best);
	if (adapter == NONE || on_gpu)
		return best;
	if (!in_container && fits(knap, prices, adapter, MD_KNAP_CONTAINER)) {
		struct offer offer = base;
		buy(knap, prices, &offer, adapter, MD_KNAP_CONTAINER, knap->container_value[adapter]);
		add_kernels(knap, state, prices, function, there, &offer);
		keep_better(&best, &offer);
	}
	if (((backbone & MD_KNAP_ON_GPU) || none) && fits(knap, prices, adapter, MD_KNAP_GPU)) {
		struct offer offer = base;
		buy(knap, prices, &offer, adapter, MD_KNAP_GPU,
		    knap->gpu_value[adapter] - (in_container ? knap->container_value[adapter] : 0));
		add_kernels(knap, state, prices, function, true, &offer);
		keep_better(&best, &offer);
	}
	return best;
}

double md_knap_function_profit(const struct md_knap *knap, const struct md_knap_state *state,
			       const struct md_knap_prices *prices, uint32_t function, unsigned backbone, bool library,
			       double *used)
{
	struct offer best = {.profit = library ? -INFINITY : 0}, base = {0};
	bool has = md_knap_has_library(knap, state, function);
	if (has || fits(knap, prices, knap->library[function], MD_KNAP_CONTAINER)) {
		if (!has)
			buy(knap, prices, &base, knap->library[function], MD_KNAP_CONTAINER,
			    knap->container_value[knap->library[function]]);
		base = best_with_library(knap, state, prices, function, backbone, base);
		keep_better(&best, &base);
	}
	for (int kind = 0; used && kind < MD_KNAP_KINDS; kind++)
		used[kind] += best.used[kind];
	return best.profit;
}

/* The group's functions; at least one of them has its library if the backbone is new. */
static double functions_profit(const struct md_knap *knap, const struct md_knap_state *state,
			       const struct md_knap_prices *prices, uint32_t group, unsigned backbone, bool library,
			       double *used)
{
	double profit = 0, least = INFINITY;
	uint32_t cheapest = NONE;
	for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++) {
		uint32_t f = knap->members[m];
		double free_choice = md_knap_function_profit(knap, state, prices, f, backbone, false, used);
		profit += free_choice;
		if (!library)
			continue;
		double loss = free_choice - md_knap_function_profit(knap, state, prices, f, backbone, true, NULL);
		if (loss < least) {
			least = loss;
			cheapest = f;
		}
	}
	if (!library || least <= 0)
		return profit;
	if (cheapest != NONE)
		md_knap_function_profit(knap, state, prices, cheapest, backbone, true, used);
	return profit - least;
}

static bool new_backbone(const struct md_knap *knap, const struct md_knap_prices *prices, uint32_t artifact,
			 unsigned has, unsigned wants, struct offer *offer)
{
	double value = 0, now = has & MD_KNAP_ON_GPU ? knap->gpu_value[artifact]
				: has                ? knap->container_value[artifact]
						     : 0;
	if ((wants & has) != has)
		return false;
	for (int kind = 0; kind < MD_KNAP_KINDS; kind++) {
		unsigned bit = kind == MD_KNAP_GPU ? MD_KNAP_ON_GPU : MD_KNAP_IN_CONTAINER;
		if (!(wants & ~has & bit))
			continue;
		if (!fits(knap, prices, artifact, kind))
			return false;
		buy(knap, prices, offer, artifact, kind, 0);
	}
	if (wants)
		value = wants & MD_KNAP_ON_GPU ? knap->gpu_value[artifact] : knap->container_value[artifact];
	offer->profit += value - now;
	return true;
}

double md_knap_group_profit(const struct md_knap *knap, const struct md_knap_state *state,
			    const struct md_knap_prices *prices, uint32_t group, double *used)
{
	uint32_t artifact = knap->backbone[group];
	if (artifact == NONE)
		return functions_profit(knap, state, prices, group, 0, false, used);
	unsigned has = (state->container[artifact] != NONE ? MD_KNAP_IN_CONTAINER : 0) |
		       (state->copies[artifact] ? MD_KNAP_ON_GPU : 0);
	struct offer best = {.profit = -INFINITY};

	for (unsigned wants = 0; wants < MD_KNAP_BACKBONES; wants++) {
		struct offer offer = {0};
		if (!new_backbone(knap, prices, artifact, has, wants, &offer))
			continue;
		offer.profit += functions_profit(knap, state, prices, group, wants, wants != has, offer.used);
		keep_better(&best, &offer);
	}
	for (int kind = 0; used && kind < MD_KNAP_KINDS; kind++)
		used[kind] += best.used[kind];
	return best.profit;
}

static double dual(const struct md_knap *knap, const struct md_knap_state *state, const struct md_knap_prices *prices,
		   double *used)
{
	double bound = state->value;
	for (int kind = 0; kind < MD_KNAP_KINDS; kind++)
		bound += prices->price[kind] * prices->room[kind];
	for (uint32_t group = 0; group < knap->groups; group++)
		bound += md_knap_group_profit(knap, state, prices, group, used);
	return bound;
}

/* Cuts the ellipse {center, shape} through its middle, and keeps the half against the gradient. */
static void cut(double center[2], double shape[2][2], const double gradient[2])
{
	double along[2] = {shape[0][0] * gradient[0] + shape[0][1] * gradient[1],
			   shape[1][0] * gradient[0] + shape[1][1] * gradient[1]},
	       length = sqrt(gradient[0] * along[0] + gradient[1] * along[1]);
	if (!(length > 0))
		return;
	for (int i = 0; i < 2; i++)
		along[i] /= length;
	for (int i = 0; i < 2; i++)
		center[i] -= along[i] / 3;
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			shape[i][j] = 4.0 / 3 * (shape[i][j] - 2.0 / 3 * along[i] * along[j]);
}

static void measure_room(const struct md_knap *knap, const struct md_knap_state *state, struct md_knap_prices *prices)
{
	*prices = (struct md_knap_prices){.bound = INFINITY};
	for (uint32_t p = 0; p < knap->in->place_count; p++) {
		int kind = knap->in->places[p].gpu ? MD_KNAP_GPU : MD_KNAP_CONTAINER;
		prices->room[kind] += (double)state->room[p];
		if (state->room[p] > prices->largest[kind])
			prices->largest[kind] = state->room[p];
	}
}

/*
 * The ellipsoid method in two dimensions. A variable is the price of all room of one kind, at most the value of
 * everything.
 */
void md_knap_prices(const struct md_knap *knap, const struct md_knap_state *state, uint32_t rounds,
		    struct md_knap_prices *prices)
{
	struct md_knap_prices now;
	double all = 0;
	measure_room(knap, state, prices);
	now = *prices;
	for (uint32_t i = 0; i < knap->in->artifact_count; i++)
		all += knap->gpu_value[i];
	double center[2] = {all / 2, all / 2}, shape[2][2] = {{all * all / 2, 0}, {0, all * all / 2}};
	for (uint32_t round = 0; round < rounds; round++) {
		double used[MD_KNAP_KINDS] = {0},
		       gradient[MD_KNAP_KINDS] = {center[0] < 0 ? -1 : 0, center[1] < 0 ? -1 : 0};
		if (gradient[0] == 0 && gradient[1] == 0) {
			for (int kind = 0; kind < MD_KNAP_KINDS; kind++)
				now.price[kind] = now.room[kind] > 0 ? center[kind] / now.room[kind] : 0;
			now.bound = dual(knap, state, &now, used);
			if (now.bound < prices->bound)
				*prices = now;
			for (int kind = 0; kind < MD_KNAP_KINDS; kind++)
				gradient[kind] = now.room[kind] > 0 ? 1 - used[kind] / now.room[kind] : 0;
		}
		cut(center, shape, gradient);
	}
	/* prices of 0: right where there is plenty of room, which the ellipse only approaches */
	now.price[0] = now.price[1] = 0;
	now.bound = dual(knap, state, &now, NULL);
	if (now.bound < prices->bound)
		*prices = now;
}
