/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what to preload where, and what to offload: xLoRA's precedence-constrained knapsack (sections 4.1, 4.3). */
#ifndef MD_SCHEDULER_KNAPSACK_KNAPSACK_H
#define MD_SCHEDULER_KNAPSACK_KNAPSACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MD_KNAPSACK_NONE UINT32_MAX

/*
 * Rules. A library goes into a container only, kernels (a context) onto a GPU only, a model (backbone, adapter) into
 * either; each lies in one container at most and on one GPU at most, a backbone on each GPU once at most.
 * Libraries come before models: an adapter needs its function's library, a backbone the library of one function that
 * uses it. Models come before kernels: each model of the function must lie on that GPU or in a container.
 * An adapter on a GPU needs its backbone on the same GPU, and a function's kernels are on the GPU of its adapter.
 * What the arrays don't list needs no room and is always at hand: a function of its own weights has an adapter and no
 * backbone, a plain backbone a function without an adapter.
 *
 * Value of an artifact: seconds of loading that it spares, times the requests a second that need it (of a backbone: of
 * all functions that use it); counted once, where it spares most, however many copies there are.
 */
enum md_knapsack_class {
	MD_KNAPSACK_LIBRARY,
	MD_KNAPSACK_BACKBONE,
	MD_KNAPSACK_ADAPTER,
	MD_KNAPSACK_KERNELS,
};

struct md_knapsack_place {
	uint64_t bytes; /* what lies there already included */
	bool gpu;       /* or else a container */
};

struct md_knapsack_function {
	uint32_t backbone; /* MD_KNAPSACK_NONE: none */
	double rate;       /* requests a second, predicted */
};

struct md_knapsack_artifact {
	enum md_knapsack_class class;
	uint32_t owner; /* a function, or of MD_KNAPSACK_BACKBONE a backbone; one artifact of each class */
	uint64_t bytes;
	double container_s, gpu_s; /* loading that it spares there; a GPU never less than a container. The paper has one
				      number for both */
};

struct md_knapsack_placement {
	uint32_t artifact, place;
};

struct md_knapsack {
	const struct md_knapsack_place *places;
	const struct md_knapsack_function *functions;
	const struct md_knapsack_artifact *artifacts;
	const struct md_knapsack_placement *held; /* lies there already, and stays */
	uint32_t place_count, function_count, backbone_count, artifact_count, held_count;
};

struct md_knapsack_plan {
	struct md_knapsack_placement *placements; /* new ones, in the order of loading; freed by plan_finish */
	uint32_t count;
	double value;   /* of all that lies there then */
	double added;   /* of the new ones alone */
	bool proven;    /* md_knapsack_exact: nothing is better; else always false */
	uint64_t nodes; /* md_knapsack_exact: looked at */
};

/*
 * All of these: MD_OK, MD_ERR_INVALID (an index, a second artifact of one class, or held twice) or MD_ERR_NO_MEMORY;
 * the plan is set on success alone. Held artifacts may break the rules or overfill a place; new ones never do.
 * The same input gives the same plan, bit for bit.
 */

/*
 * The paper's greedy, equation 2: again and again the one artifact of greatest value / bytes that may be placed as
 * things stand, in the first place that has room; where a GPU and a container spare equally much, the GPU.
 */
enum md_status md_knapsack_greedy(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

/*
 * Ours: bundles (what a function lacks, prerequisites included) by value over price, where a byte in a container and a
 * byte on a GPU have the prices of the Lagrangian dual; then parts of the plan are taken out and packed anew, a bounded
 * number of times. Never worse than md_knapsack_greedy.
 */
enum md_status md_knapsack_bundles(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

/* The best plan by branch and bound, to judge the others by; the best one found where `limit` nodes don't suffice. */
enum md_status md_knapsack_exact(const struct md_knapsack *problem, uint64_t limit, struct md_knapsack_plan *plan);

/* No plan has more value than this (Lagrangian dual, all containers and all GPUs as one each). */
enum md_status md_knapsack_bound(const struct md_knapsack *problem, double *value);

void md_knapsack_plan_finish(struct md_knapsack_plan *plan);

/* ---- offloading ------------------------------------------------------------------------------------------------- */

/* The contents of one GPU. */
struct md_knapsack_resident {
	uint64_t bytes;
	double value;   /* lost when it goes */
	uint32_t needs; /* another resident: kernels their adapter, an adapter its backbone; MD_KNAPSACK_NONE: none */
	bool pinned;    /* in use: it stays, and what it needs */
};

struct md_knapsack_loss {
	uint64_t bytes; /* freed */
	double value;   /* lost */
	bool enough;    /* as many bytes as asked for; false: all that may go, goes */
	bool proven;    /* md_knapsack_offload_exact: nothing loses less */
};

/*
 * Which residents to take off to free at least `bytes` (equations 7 and 8): gone[i] is set for those. Nothing that
 * stays needs something that goes. `needs` must not go in circles: MD_ERR_INVALID.
 *
 * greedy is the paper's: by least value / bytes among those that nothing needs any more, until enough is free.
 * offload is ours: whole bundles count, what turns out too much is put back, and one that does it alone is compared.
 */
enum md_status md_knapsack_offload_greedy(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
					  bool *gone, struct md_knapsack_loss *loss);
enum md_status md_knapsack_offload(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
				   bool *gone, struct md_knapsack_loss *loss);
enum md_status md_knapsack_offload_exact(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
					 uint64_t limit, bool *gone, struct md_knapsack_loss *loss);

#endif
