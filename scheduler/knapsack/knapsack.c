/* SPDX-License-Identifier: Apache-2.0 */
/* Preloading by the paper's greedy algorithm, by ours, and the bound by which both are judged. */
#include "scheduler/knapsack/knapsack_state.h"

#define NONE MD_KNAPSACK_NONE

/* ---- the paper's greedy (xLoRA, section 4.1, equation 2) --------------------------------------------------------- */

struct greedy {
	const struct md_knap *knap;
	struct md_knap_state *state;
	struct md_knap_queue queue;
};

/* The first of these places that may take the artifact now, or NONE. */
static uint32_t first_place(const struct greedy *greedy, uint32_t artifact, uint32_t from, uint32_t to)
{
	for (uint32_t k = from; k < to; k++)
		if (md_knap_may_add(greedy->knap, greedy->state, artifact, greedy->knap->places[k]))
			return greedy->knap->places[k];
	return NONE;
}

/* Whether some GPU, or container, could take it if it had room; false negatives do not occur. */
static bool gpu_may(const struct greedy *greedy, uint32_t artifact)
{
	const struct md_knap *knap = greedy->knap;
	const struct md_knapsack_artifact *it = &knap->in->artifacts[artifact];
	if (it->class == MD_KNAPSACK_LIBRARY)
		return false;
	if (it->class == MD_KNAPSACK_BACKBONE)
		return true;
	uint32_t backbone = knap->backbone[knap->group[it->owner]];
	return !greedy->state->copies[artifact] &&
	       (it->class == MD_KNAPSACK_KERNELS || backbone == NONE || greedy->state->copies[backbone]);
}

/*
 * The greatest value / bytes of an artifact over all places that may take it now, GPUs first; 0: none. It is the same on all
 * GPUs, the same in all containers, and there it is not greater than on a GPU.
 */
static double densest_place(const struct greedy *greedy, uint32_t artifact, uint32_t *place)
{
	const struct md_knap *knap = greedy->knap;
	const struct md_knapsack *in = knap->in;
	double bytes = in->artifacts[artifact].bytes ? (double)in->artifacts[artifact].bytes : 1;
	uint32_t from = knap->containers, to = in->place_count;
	for (int kind = 0; kind < 2; kind++) {
		bool may = kind == 0 ? gpu_may(greedy, artifact) : greedy->state->container[artifact] == NONE;
		double gain = may && from < to ? md_knap_gain(knap, greedy->state, artifact, knap->places[from]) : 0;
		*place = gain > 0 ? first_place(greedy, artifact, from, to) : NONE;
		if (*place != NONE && gain / bytes > 0)
			return gain / bytes;
		from = 0;
		to = knap->containers;
	}
	return 0;
}

static void look_at(struct greedy *greedy, uint32_t artifact)
{
	uint32_t place;
	if (artifact != NONE)
		md_knap_queue_put(&greedy->queue, artifact, densest_place(greedy, artifact, &place));
}

static void look_at_function(struct greedy *greedy, uint32_t function)
{
	look_at(greedy, greedy->knap->library[function]);
	look_at(greedy, greedy->knap->adapter[function]);
	look_at(greedy, greedy->knap->kernels[function]);
}

/* Updates what a placement makes possible or impossible; apart from room, that concerns its group only. */
static void look_again(struct greedy *greedy, uint32_t artifact)
{
	const struct md_knap *knap = greedy->knap;
	uint32_t owner = knap->in->artifacts[artifact].owner;
	if (knap->in->artifacts[artifact].class != MD_KNAPSACK_BACKBONE) {
		look_at_function(greedy, owner);
		look_at(greedy, knap->backbone[knap->group[owner]]);
		return;
	}
	look_at(greedy, artifact);
	for (uint32_t m = knap->first[owner]; m < knap->first[owner + 1]; m++)
		look_at_function(greedy, knap->members[m]);
}

/*
 * Keys in the queue never are too small, because room only shrinks. So the first candidate whose key is still right is
 * the best.
 */
static enum md_status run_greedy(const struct md_knap *knap, struct md_knap_state *state)
{
	struct greedy greedy = {.knap = knap, .state = state};
	uint32_t first;
	if (!md_knap_queue_init(&greedy.queue, knap->in->artifact_count))
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < knap->in->artifact_count; i++)
		md_knap_queue_append(&greedy.queue, i, densest_place(&greedy, i, &first));
	md_knap_queue_order(&greedy.queue);
	while (greedy.queue.count) {
		uint32_t artifact = greedy.queue.heap[0], place = NONE;
		double density = densest_place(&greedy, artifact, &place);
		if (density < greedy.queue.key[artifact]) {
			md_knap_queue_put(&greedy.queue, artifact, density);
			continue;
		}
		md_knap_add(knap, state, artifact, place);
		look_again(&greedy, artifact);
	}
	md_knap_queue_finish(&greedy.queue);
	return MD_OK;
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

struct solving {
	struct md_knap knap;
	struct md_knap_state start, best;
};

static void stop_solving(struct solving *solving)
{
	md_knap_state_finish(&solving->best);
	md_knap_state_finish(&solving->start);
	md_knap_finish(&solving->knap);
}

static enum md_status begin_solving(struct solving *solving, const struct md_knapsack *problem)
{
	*solving = (struct solving){0};
	enum md_status status = md_knap_init(&solving->knap, problem);

	if (!status)
		status = md_knap_state_init(&solving->knap, &solving->start);
	if (!status)
		status = md_knap_state_clone(&solving->knap, &solving->start, &solving->best);
	if (status)
		stop_solving(solving);
	return status;
}

enum md_status md_knapsack_greedy(const struct md_knapsack *problem, struct md_knapsack_plan *plan)
{
	struct solving solving;
	MD_FORWARD(begin_solving(&solving, problem));
	enum md_status status = run_greedy(&solving.knap, &solving.best);
	if (!status)
		status = md_knap_plan(&solving.knap, &solving.start, &solving.best, plan);
	stop_solving(&solving);
	return status;
}

enum md_status md_knapsack_bundles(const struct md_knapsack *problem, struct md_knapsack_plan *plan)
{
	struct solving solving;
	MD_FORWARD(begin_solving(&solving, problem));
	enum md_status status = run_greedy(&solving.knap, &solving.best);
	if (!status)
		status = md_knap_improve(&solving.knap, &solving.start, &solving.best);
	if (!status)
		status = md_knap_plan(&solving.knap, &solving.start, &solving.best, plan);
	stop_solving(&solving);
	return status;
}
