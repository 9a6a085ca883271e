/* SPDX-License-Identifier: Apache-2.0 */
/* The artifacts that a function lacks, as a bundle: prerequisites included, each at its cheapest place. */
#include <math.h>

#include "scheduler/knapsack/packing.h"

#define NONE MD_KNAPSACK_NONE

enum { BACKBONE = 1, ADAPTER = 2, KERNELS = 4, SETS = 8 };

/* What a function has, and what it lacks. */
struct wanting {
	const struct md_knap_packer *packer;
	uint32_t function, group, library, backbone, adapter, kernels; /* NONE: no such artifact */
	bool library_missing;
	unsigned missing; /* sets of BACKBONE, ADAPTER, KERNELS; missing: at no place */
	unsigned no_container, no_gpu;
};

static void read_function(const struct md_knap_packer *packer, uint32_t function, struct wanting *want)
{
	const struct md_knap *knap = packer->knap;
	const struct md_knap_state *state = packer->state;
	*want = (struct wanting){.packer = packer,
				 .function = function,
				 .group = knap->group[function],
				 .library = knap->library[function],
				 .adapter = knap->adapter[function],
				 .kernels = knap->kernels[function]};
	want->backbone = knap->backbone[want->group];
	want->library_missing = !md_knap_has_library(knap, state, function);
	const uint32_t artifacts[] = {want->backbone, want->adapter, want->kernels};
	for (int i = 0; i < 3; i++) {
		uint32_t artifact = artifacts[i];
		unsigned bit = 1u << i;
		if (artifact == NONE)
			continue;
		want->no_container |= state->container[artifact] == NONE ? bit : 0;
		want->no_gpu |= state->copies[artifact] ? 0 : bit;
	}
	want->missing = want->no_container & want->no_gpu;
}

static uint32_t artifact_of(const struct wanting *want, unsigned bit)
{
	return bit == BACKBONE ? want->backbone : bit == ADAPTER ? want->adapter : want->kernels;
}

static uint64_t bytes_of(const struct wanting *want, unsigned set)
{
	uint64_t bytes = 0;
	for (unsigned bit = BACKBONE; bit < SETS; bit <<= 1)
		if (set & bit)
			bytes += want->packer->knap->in->artifacts[artifact_of(want, bit)].bytes;
	return bytes;
}

/* ---- containers ---- */

/* The container with the least room that is enough, counting what the bundle has put there already. */
static bool put_in_container(const struct md_knap_packer *packer, uint32_t artifact, struct md_knap_bundle *bundle)
{
	const struct md_knap *knap = packer->knap;
	uint64_t bytes = knap->in->artifacts[artifact].bytes;
	double least = INFINITY;
	uint32_t best = NONE;
	for (uint32_t k = 0; k < knap->containers; k++) {
		uint32_t place = knap->places[k];
		uint64_t room = packer->state->room[place], taken = 0;
		double looks = (double)room * packer->bias[place];
		if (room < bytes || looks >= least)
			continue;
		for (uint32_t i = 0; i < bundle->count; i++)
			if (bundle->placements[i].place == place)
				taken += knap->in->artifacts[bundle->placements[i].artifact].bytes;
		if (room - bytes < taken)
			continue;
		least = looks;
		best = place;
	}
	if (best == NONE)
		return false;
	bundle->placements[bundle->count++] = (struct md_knapsack_placement){artifact, best};
	bundle->gain += md_knap_gain(knap, packer->state, artifact, best);
	bundle->cost += (double)bytes * packer->price[MD_KNAP_CONTAINER];
	return true;
}

/* Puts the library, if it is missing, and the models of `set` into containers. */
static bool put_in_containers(const struct wanting *want, unsigned set, struct md_knap_bundle *bundle)
{
	*bundle = (struct md_knap_bundle){.function = want->function};
	if ((set & BACKBONE) && !put_in_container(want->packer, want->backbone, bundle))
		return false;
	if (want->library_missing && !put_in_container(want->packer, want->library, bundle))
		return false;
	return !(set & ADAPTER) || put_in_container(want->packer, want->adapter, bundle);
}

/* ---- GPUs ---- */

/*
 * Which GPUs are possible once the models of `in_containers` are there: those with a copy of the backbone, or those
 * without.
 */
static bool set_is_possible(const struct wanting *want, unsigned in_containers, unsigned set, bool copy)
{
	unsigned in_container = ~want->no_container | in_containers;
	if ((set & ~want->no_gpu & (ADAPTER | KERNELS)) || (set & in_containers) ||
	    (set & BACKBONE && (copy || want->backbone == NONE)))
		return false;
	bool with_backbone = copy || (set & BACKBONE) || want->backbone == NONE;
	if ((set & ADAPTER) && (want->adapter == NONE || !with_backbone))
		return false;
	if (!(set & KERNELS))
		return true;
	if (want->kernels == NONE || (!with_backbone && !(in_container & BACKBONE)))
		return false;
	return want->adapter == NONE || (set & ADAPTER) || !(want->no_gpu & ADAPTER) || (in_container & ADAPTER);
}

/* The GPU that adapter and kernels must share, if one of them is on a GPU already. */
static uint32_t bound_to(const struct wanting *want, unsigned set)
{
	const struct md_knap_state *state = want->packer->state;
	if ((set & KERNELS) && want->adapter != NONE && state->gpu[want->adapter] != NONE)
		return state->gpu[want->adapter];
	if ((set & ADAPTER) && want->kernels != NONE && state->gpu[want->kernels] != NONE)
		return state->gpu[want->kernels];
	return NONE;
}

/*
 * The GPU with the least room that is enough; for a new backbone, with room for all its adapters and kernels, too, if
 * possible.
 */
static uint32_t choose_gpu(const struct wanting *want, unsigned set, bool copy)
{
	const struct md_knap *knap = want->packer->knap;
	uint64_t bytes = bytes_of(want, set),
		 reserve = want->packer->keep_reserve && (set & BACKBONE) ? want->packer->reserve[want->group] : 0;
	double least = INFINITY, most = -1;
	uint32_t best = NONE, only = bound_to(want, set);
	for (uint32_t k = knap->containers; k < knap->in->place_count; k++) {
		uint32_t place = knap->places[k];
		uint64_t room = want->packer->state->room[place];
		if (room < bytes || (only != NONE && place != only) ||
		    (want->backbone != NONE &&
		     md_knap_has_backbone(knap, want->packer->state, want->group, place) != copy))
			continue;
		double looks = (double)room * want->packer->bias[place];
		if (room - bytes >= reserve && looks < least) {
			least = looks;
			best = place;
		} else if (least == INFINITY && looks > most) {
			best = place;
		}
		if (looks > most)
			most = looks;
	}
	return best;
}

static double gain_on_gpu(const struct wanting *want, unsigned set, uint32_t gpu)
{
	const struct md_knap *knap = want->packer->knap;
	double gain = 0;
	for (unsigned bit = BACKBONE; bit < SETS; bit <<= 1)
		if (set & bit)
			gain += md_knap_gain(knap, want->packer->state, artifact_of(want, bit), gpu);
	return gain;
}

static void try_gpus(const struct wanting *want, const struct md_knap_bundle *base, unsigned in_containers,
		     struct md_knap_bundle *best)
{
	const struct md_knap *knap = want->packer->knap;
	uint32_t any = knap->containers < knap->in->place_count ? knap->places[knap->containers] : NONE;
	if (any == NONE)
		return;
	for (unsigned set = 1; set < SETS; set++) {
		for (int copy = 0; copy < 2; copy++) {
			if ((copy && (want->backbone == NONE || !(~want->no_gpu & BACKBONE))) ||
			    !set_is_possible(want, in_containers, set, copy))
				continue;
			struct md_knap_bundle bundle = *base;
			bundle.gain += gain_on_gpu(want, set, any);
			bundle.cost += (double)bytes_of(want, set) * want->packer->price[MD_KNAP_GPU];
			if (bundle.gain <= best->density * bundle.cost)
				continue;
			uint32_t gpu = choose_gpu(want, set, copy);
			if (gpu == NONE)
				continue;
			bundle.density = bundle.gain / bundle.cost;
			for (unsigned bit = BACKBONE; bit < SETS; bit <<= 1)
				if (set & bit)
					bundle.placements[bundle.count++] =
					    (struct md_knapsack_placement){artifact_of(want, bit), gpu};
			*best = bundle;
		}
	}
}

bool md_knap_bundle_find(const struct md_knap_packer *packer, uint32_t function, struct md_knap_bundle *best)
{
	struct wanting want;
	read_function(packer, function, &want);
	best->density = 0;
	if (!want.library_missing && !want.missing && !(want.no_gpu & (ADAPTER | BACKBONE)))
		return false;
	for (unsigned set = 0; set <= (BACKBONE | ADAPTER); set++) {
		struct md_knap_bundle base;
		if ((set & ~want.no_container) || (set & ADAPTER & ~want.no_gpu))
			continue;
		if (!put_in_containers(&want, set, &base))
			continue;
		if (base.gain > best->density * base.cost) {
			*best = base;
			best->density = base.gain / base.cost;
		}
		try_gpus(&want, &base, set, best);
	}
	return best->density > 0;
}

void md_knap_bundle_add(const struct md_knap *knap, struct md_knap_state *state, const struct md_knap_bundle *bundle)
{
	static const enum md_knapsack_class order[] = {MD_KNAPSACK_LIBRARY, MD_KNAPSACK_BACKBONE, MD_KNAPSACK_ADAPTER,
						       MD_KNAPSACK_KERNELS};
	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++)
		for (uint32_t i = 0; i < bundle->count; i++)
			if (knap->in->artifacts[bundle->placements[i].artifact].class == order[k])
				md_knap_add(knap, state, bundle->placements[i].artifact, bundle->placements[i].place);
}
