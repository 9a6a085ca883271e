/* SPDX-License-Identifier: Apache-2.0 */
/* A knapsack problem with its tables, and which artifact is where during a search; shared by the solvers. */
#ifndef MD_SCHEDULER_KNAPSACK_KNAPSACK_STATE_H
#define MD_SCHEDULER_KNAPSACK_KNAPSACK_STATE_H

#include "scheduler/knapsack/knapsack.h"

/* A group is a backbone with the functions that use it, or a function without one: groups share only room. */
struct md_knap {
	const struct md_knapsack *in;
	uint32_t groups;                               /* backbones first */
	uint32_t *library, *adapter, *kernels, *group; /* per function; artifacts or MD_KNAPSACK_NONE */
	uint32_t *backbone;                            /* per group; an artifact or MD_KNAPSACK_NONE */
	uint32_t *first, *members;                     /* members[first[g]] ... members[first[g + 1] - 1] */
	double *container_value, *gpu_value;           /* per artifact */
	uint32_t *places;                              /* containers, then GPUs, each by index */
	uint32_t containers;
	void *memory;
};

struct md_knap_state {
	uint64_t *room;      /* per place */
	uint32_t *container; /* per artifact */
	uint32_t *gpu;       /* per artifact; of backbones see copy */
	uint32_t *copies;    /* per artifact: on GPUs */
	uint32_t *libraries; /* per group: libraries that are in place */
	uint8_t *copy;       /* [backbone * place_count + place] */
	double value;
	void *memory;
	size_t size;
};

enum md_status md_knap_init(struct md_knap *knap, const struct md_knapsack *problem);
void md_knap_finish(struct md_knap *knap);

/* Begins with the artifacts that are held. */
enum md_status md_knap_state_init(const struct md_knap *knap, struct md_knap_state *state);
enum md_status md_knap_state_clone(const struct md_knap *knap, const struct md_knap_state *from,
				   struct md_knap_state *to);                        /* a new one */
void md_knap_state_copy(struct md_knap_state *to, const struct md_knap_state *from); /* both of the same problem */
void md_knap_state_finish(struct md_knap_state *state);

bool md_knap_has(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place);
bool md_knap_has_library(const struct md_knap *knap, const struct md_knap_state *state, uint32_t function);
bool md_knap_has_backbone(const struct md_knap *knap, const struct md_knap_state *state, uint32_t group, uint32_t gpu);

/* The value that the artifact would add. */
double md_knap_gain(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place);
/* True if everything that the rules demand for it is in place; room does not matter. */
bool md_knap_supported(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact,
		       uint32_t place);
/*
 * True if the artifact may be placed there now: supported, with room, and not yet at this or another place of that
 * kind.
 */
bool md_knap_may_add(const struct md_knap *knap, const struct md_knap_state *state, uint32_t artifact, uint32_t place);
void md_knap_add(const struct md_knap *knap, struct md_knap_state *state, uint32_t artifact, uint32_t place);
void md_knap_remove(const struct md_knap *knap, struct md_knap_state *state, uint32_t artifact, uint32_t place);

/* The plan from `start` (what is held) to `end`: prerequisites first, otherwise the greatest value / bytes first. */
enum md_status md_knap_plan(const struct md_knap *knap, const struct md_knap_state *start,
			    const struct md_knap_state *end, struct md_knapsack_plan *plan);

/* ---- solvers ---------------------------------------------------------------------------------------------------- */

/* Our algorithm, beginning with `start`; `best` is a plan already, or a copy of `start`. */
enum md_status md_knap_improve(const struct md_knap *knap, const struct md_knap_state *start,
			       struct md_knap_state *best);

/*
 * Candidates (numbers below a limit) by key, the greatest first, then the lowest number. Each is in the queue at most
 * once.
 */
struct md_knap_queue {
	double *key;            /* per number */
	uint32_t *heap, *where; /* where: MD_KNAPSACK_NONE if it is not in the queue */
	uint32_t count;
};

bool md_knap_queue_init(struct md_knap_queue *queue, uint32_t limit);
void md_knap_queue_finish(struct md_knap_queue *queue);
/* inserts it or changes its key; key 0 removes it */
void md_knap_queue_put(struct md_knap_queue *queue, uint32_t number, double key);
/* For the first ones: appends numbers that are not in it, and then puts all in order. */
void md_knap_queue_append(struct md_knap_queue *queue, uint32_t number, double key);
void md_knap_queue_order(struct md_knap_queue *queue);

/* ---- prices: what a byte of room is worth, in containers and on GPUs -------------------------------------------- */

enum { MD_KNAP_CONTAINER, MD_KNAP_GPU, MD_KNAP_KINDS };

struct md_knap_prices {
	double price[MD_KNAP_KINDS];     /* of a byte */
	uint64_t largest[MD_KNAP_KINDS]; /* most room in one place */
	double room[MD_KNAP_KINDS];      /* in all places */
	double bound;                    /* value that no plan exceeds */
};

/* The copies of a group's backbone, as a bit set. */
enum { MD_KNAP_IN_CONTAINER = 1, MD_KNAP_ON_GPU = 2, MD_KNAP_BACKBONES = 4 };

/* The prices at which the bound is (nearly) lowest. */
void md_knap_prices(const struct md_knap *knap, const struct md_knap_state *state, uint32_t rounds,
		    struct md_knap_prices *prices);
/*
 * The most value that a function, or a whole group, can add beyond the price of its room. The room that this takes is
 * added to used, if that is not NULL. `library`: the function must have its library.
 */
double md_knap_function_profit(const struct md_knap *knap, const struct md_knap_state *state,
			       const struct md_knap_prices *prices, uint32_t function, unsigned backbone, bool library,
			       double *used);
double md_knap_group_profit(const struct md_knap *knap, const struct md_knap_state *state,
			    const struct md_knap_prices *prices, uint32_t group, double *used);

#endif
