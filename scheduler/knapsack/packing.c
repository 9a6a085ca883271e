/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our preloading: bundles by value over price, at the dual's prices; then parts of the plan are taken out and packed
 * anew.
 */
#include <stdlib.h>

#include "base/splitmix.h"

#include "scheduler/knapsack/packing.h"

#define NONE MD_KNAPSACK_NONE
#define PRICE_ROUNDS 40
/* roughly the number of places that are examined: keeps 50 adapters on 20 containers and 20 GPUs well within 4 ms */
#define WORK_LIMIT 300000

struct packing {
	struct md_knap_packer packer;
	const struct md_knap_state *start;
	struct md_knap_state state;
	struct md_knap_queue queue;
	double *noise; /* per function, then per place */
	uint64_t *reserve;
	uint64_t random, work, limit;
};

static uint32_t draw_below(struct packing *packing, uint32_t limit)
{
	return (uint32_t)(md_random_next(&packing->random) % limit);
}

/* A random factor between 1 / (1 + by) and 1 + by. */
static double draw_around(struct packing *packing, double by)
{
	double up = 1 + by * ((double)(md_random_next(&packing->random) >> 11) / (1ull << 53));
	return md_random_next(&packing->random) & 1 ? up : 1 / up;
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

static void look_at(struct packing *packing, uint32_t function)
{
	struct md_knap_bundle bundle;
	bool found = md_knap_bundle_find(&packing->packer, function, &bundle);
	packing->work += packing->packer.knap->in->place_count + 24;
	md_knap_queue_put(&packing->queue, function, found ? bundle.density * packing->noise[function] : 0);
}

static bool has_backbone_placement(const struct md_knap *knap, const struct md_knap_bundle *bundle)
{
	for (uint32_t i = 0; i < bundle->count; i++)
		if (knap->in->artifacts[bundle->placements[i].artifact].class == MD_KNAPSACK_BACKBONE)
			return true;
	return false;
}

/*
 * Adds bundles until none fits. The density of a bundle can only fall, except when its group gets a backbone that it
 * shares.
 */
static void add_bundles(struct packing *packing)
{
	const struct md_knap *knap = packing->packer.knap;
	for (uint32_t f = 0; f < knap->in->function_count; f++)
		look_at(packing, f);
	while (packing->queue.count) {
		uint32_t function = packing->queue.heap[0], group = knap->group[function];
		struct md_knap_bundle bundle;
		bool found = md_knap_bundle_find(&packing->packer, function, &bundle);
		double key = found ? bundle.density * packing->noise[function] : 0;
		packing->work += knap->in->place_count + 24;
		if (key < packing->queue.key[function]) {
			md_knap_queue_put(&packing->queue, function, key);
			continue;
		}
		md_knap_bundle_add(knap, &packing->state, &bundle);
		if (!has_backbone_placement(knap, &bundle)) {
			look_at(packing, function);
			continue;
		}
		for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++)
			look_at(packing, knap->members[m]);
	}
}

/* ---- taking out ------------------------------------------------------------------------------------------------- */

static void take_out(struct packing *packing, uint32_t artifact, uint32_t place)
{
	const struct md_knap *knap = packing->packer.knap;
	if (place != NONE && md_knap_has(knap, &packing->state, artifact, place) &&
	    !md_knap_has(knap, packing->start, artifact, place))
		md_knap_remove(knap, &packing->state, artifact, place);
}

static void take_out_everywhere(struct packing *packing, uint32_t artifact)
{
	const struct md_knap *knap = packing->packer.knap;
	if (artifact == NONE)
		return;
	take_out(packing, artifact, packing->state.container[artifact]);
	if (knap->in->artifacts[artifact].class != MD_KNAPSACK_BACKBONE) {
		take_out(packing, artifact, packing->state.gpu[artifact]);
		return;
	}
	for (uint32_t k = knap->containers; k < knap->in->place_count && packing->state.copies[artifact]; k++)
		take_out(packing, artifact, knap->places[k]);
}

static void take_out_unsupported(struct packing *packing, uint32_t artifact)
{
	const struct md_knap *knap = packing->packer.knap;
	if (artifact == NONE)
		return;
	const uint32_t places[] = {packing->state.container[artifact], packing->state.gpu[artifact]};
	for (int i = 0; i < 2; i++)
		if (places[i] != NONE && !md_knap_supported(knap, &packing->state, artifact, places[i]))
			take_out(packing, artifact, places[i]);
}

/* Something of the group was taken out: takes out what needs it, too. */
static void mend_group(struct packing *packing, uint32_t group)
{
	const struct md_knap *knap = packing->packer.knap;
	uint32_t backbone = knap->backbone[group];
	if (backbone != NONE && !md_knap_supported(knap, &packing->state, backbone, 0))
		take_out_everywhere(packing, backbone);
	for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++) {
		take_out_unsupported(packing, knap->adapter[knap->members[m]]);
		take_out_unsupported(packing, knap->kernels[knap->members[m]]);
	}
	packing->work += knap->first[group + 1] - knap->first[group];
}

/* Takes out copies in containers of what is on a GPU, too, unless kernels elsewhere need them. */
static bool take_out_redundant(struct packing *packing)
{
	const struct md_knap *knap = packing->packer.knap;
	bool any = false;
	for (uint32_t i = 0; i < knap->in->artifact_count; i++) {
		uint32_t place = packing->state.container[i], group = knap->in->artifacts[i].owner;
		if (place == NONE || !packing->state.copies[i] || md_knap_has(knap, packing->start, i, place))
			continue;
		md_knap_remove(knap, &packing->state, i, place);
		bool needed = false;
		if (knap->in->artifacts[i].class == MD_KNAPSACK_BACKBONE)
			for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++) {
				uint32_t kernels = knap->kernels[knap->members[m]];
				needed |=
				    kernels != NONE && packing->state.gpu[kernels] != NONE &&
				    !md_knap_supported(knap, &packing->state, kernels, packing->state.gpu[kernels]);
			}
		if (needed)
			md_knap_add(knap, &packing->state, i, place);
		any |= !needed;
	}
	return any;
}

static void fill(struct packing *packing)
{
	add_bundles(packing);
	if (take_out_redundant(packing))
		add_bundles(packing);
}

static void take_out_function(struct packing *packing, uint32_t function)
{
	const struct md_knap *knap = packing->packer.knap;
	take_out_everywhere(packing, knap->kernels[function]);
	take_out_everywhere(packing, knap->adapter[function]);
	take_out_everywhere(packing, knap->library[function]);
}

static void take_out_group(struct packing *packing, uint32_t group)
{
	const struct md_knap *knap = packing->packer.knap;
	for (uint32_t m = knap->first[group]; m < knap->first[group + 1]; m++)
		take_out_function(packing, knap->members[m]);
	if (knap->backbone[group] != NONE)
		take_out_everywhere(packing, knap->backbone[group]);
	packing->work += 4 * (knap->first[group + 1] - knap->first[group] + knap->in->place_count);
}

static void take_out_place(struct packing *packing, uint32_t place)
{
	const struct md_knap *knap = packing->packer.knap;
	for (uint32_t i = 0; i < knap->in->artifact_count; i++)
		take_out(packing, i, place);
	for (uint32_t g = 0; g < knap->groups; g++)
		mend_group(packing, g);
	packing->work += knap->in->artifact_count;
}

static void take_out_some(struct packing *packing)
{
	const struct md_knap *knap = packing->packer.knap;
	uint32_t count = 1 + draw_below(packing, 3);
	switch (draw_below(packing, 7)) {
	case 0:
		md_knap_state_copy(&packing->state, packing->start);
		break;
	case 1:
	case 2:
		for (uint32_t i = 0; i < (count + 1) / 2; i++)
			take_out_place(packing, draw_below(packing, knap->in->place_count));
		break;
	case 3:
	case 4:
		for (uint32_t i = 0; i < count; i++)
			take_out_group(packing, draw_below(packing, knap->groups));
		break;
	default:
		for (uint32_t i = 0; i < 2 * count; i++) {
			uint32_t function = draw_below(packing, knap->in->function_count);
			take_out_function(packing, function);
			mend_group(packing, knap->group[function]);
		}
	}
}

/* ---- search ----------------------------------------------------------------------------------------------------- */

static void set_prices(struct packing *packing, const struct md_knap_prices *prices, double by)
{
	double floor[MD_KNAP_KINDS], all = prices->bound > 0 ? prices->bound : 1;
	/* room that the dual gives away still costs a little, otherwise bundles there would have unlimited density */
	for (int kind = 0; kind < MD_KNAP_KINDS; kind++) {
		floor[kind] = 0.02 * all / (prices->room[kind] + 1);
		double price = prices->price[kind] > floor[kind] ? prices->price[kind] : floor[kind];
		packing->packer.price[kind] = price * draw_around(packing, by);
	}
	const struct md_knapsack *in = packing->packer.knap->in;
	double among = by > 0 && draw_below(packing, 2) ? 8 : by, elsewhere = by > 0 && draw_below(packing, 2) ? 8 : 0;
	for (uint32_t f = 0; f < in->function_count; f++)
		packing->noise[f] = draw_around(packing, among);
	for (uint32_t p = 0; p < in->place_count; p++)
		packing->noise[in->function_count + p] = draw_around(packing, elsewhere);
	packing->packer.keep_reserve = !elsewhere || draw_below(packing, 2);
}

static void search(struct packing *packing, struct md_knap_state *best)
{
	const struct md_knap *knap = packing->packer.knap;
	uint32_t rounds = PRICE_ROUNDS * 100 / (knap->in->function_count + 100) + 6;
	struct md_knap_prices prices;
	md_knap_prices(knap, packing->start, rounds, &prices);
	md_knap_state_copy(&packing->state, packing->start);
	set_prices(packing, &prices, 0);
	fill(packing);
	if (packing->state.value > best->value)
		md_knap_state_copy(best, &packing->state);
	/* a plan within a billionth of the bound cannot be improved */
	while (packing->work < packing->limit && best->value < prices.bound * (1 - 1e-9)) {
		md_knap_state_copy(&packing->state, best);
		take_out_some(packing);
		set_prices(packing, &prices, 0.4);
		fill(packing);
		packing->work += 100;
		if (packing->state.value >= best->value)
			md_knap_state_copy(best, &packing->state);
	}
}

enum md_status md_knap_improve(const struct md_knap *knap, const struct md_knap_state *start,
			       struct md_knap_state *best)
{
	const struct md_knapsack *in = knap->in;
	struct packing packing = {.start = start, .packer = {.knap = knap}, .limit = in->work ? in->work : WORK_LIMIT};
	if (!in->function_count || !in->place_count)
		return MD_OK;
	enum md_status status = md_knap_state_clone(knap, start, &packing.state);
	if (status)
		return status;
	packing.noise = calloc((size_t)in->function_count + in->place_count, sizeof(*packing.noise));
	packing.reserve = calloc(knap->groups, sizeof(*packing.reserve));
	status = MD_ERR_NO_MEMORY;
	if (packing.noise && packing.reserve && md_knap_queue_init(&packing.queue, in->function_count)) {
		for (uint32_t i = 0; i < in->artifact_count; i++)
			if (in->artifacts[i].class == MD_KNAPSACK_ADAPTER ||
			    in->artifacts[i].class == MD_KNAPSACK_KERNELS)
				packing.reserve[knap->group[in->artifacts[i].owner]] += in->artifacts[i].bytes;
		packing.packer.state = &packing.state;
		packing.packer.reserve = packing.reserve;
		packing.packer.bias = packing.noise + in->function_count;
		search(&packing, best);
		md_knap_queue_finish(&packing.queue);
		status = MD_OK;
	}
	free(packing.reserve);
	free(packing.noise);
	md_knap_state_finish(&packing.state);
	return status;
}
