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
 * either. Each artifact is in at most one container and on at most one GPU; a backbone may be on several GPUs, once on
 * each. Libraries come before models: an adapter needs its function's library, a backbone the library of one function
 * that uses it. Models come before kernels: each model of the function must be on that GPU or in a container. An
 * adapter on a GPU needs its backbone on the same GPU, and a function's kernels are on the GPU of its adapter.
 * Artifacts that the arrays do not list need no room and are always there: a function with weights of its own has an
 * adapter and no backbone, a plain backbone is a function without an adapter.
 *
 * Value of an artifact: the seconds of loading that it saves, times the requests per second that need it (of a
 * backbone: of all functions that use it). It counts once, where it saves most, however many copies there are.
 */
enum md_knapsack_class {
	MD_KNAPSACK_LIBRARY,
	MD_KNAPSACK_BACKBONE,
	MD_KNAPSACK_ADAPTER,
	MD_KNAPSACK_KERNELS,
};

struct md_knapsack_place {
	uint64_t bytes; /* including what lies there already */
	bool gpu;       /* false: a container */
};

struct md_knapsack_function {
	uint32_t backbone; /* MD_KNAPSACK_NONE: none */
	double rate;       /* requests per second, predicted */
};

struct md_knapsack_artifact {
	enum md_knapsack_class class;
	uint32_t owner; /* a function, or of MD_KNAPSACK_BACKBONE a backbone; one artifact of each class */
	uint64_t bytes;
	/*
	 * seconds of loading saved there; on a GPU at least as many as in a container. The paper has one number for
	 * both
	 */
	double container_s, gpu_s;
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
	uint64_t work; /* of md_knapsack_bundles: about as many places are examined at most; 0: 300000, a few ms */
};

struct md_knapsack_plan {
	struct md_knapsack_placement *placements; /* new ones, in the order of loading; freed by plan_finish */
	uint32_t count;
	double value; /* of everything that lies there then */
	double added; /* of the new ones alone */
};

/*
 * These functions return MD_OK, MD_ERR_INVALID (an index out of range, a second artifact of one class, or one that is
 * held twice) or MD_ERR_NO_MEMORY; the plan is set on success alone. Held artifacts may break the rules or overfill a
 * place; new ones never do. Equal input gives equal plans, bit for bit.
 */

/*
 * The paper's greedy algorithm, equation 2: repeatedly places the artifact with the greatest value / bytes among those
 * that may be placed now, in the first place that has room; if a GPU and a container save equally much, on the GPU.
 */
enum md_status md_knapsack_greedy(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

/*
 * Our algorithm: places bundles (what a function lacks, prerequisites included) by value over price, where the prices
 * of a byte in a container and on a GPU come from the Lagrangian dual; then takes parts of the plan out and packs them
 * anew, a bounded number of times. Never worse than md_knapsack_greedy.
 */
enum md_status md_knapsack_bundles(const struct md_knapsack *problem, struct md_knapsack_plan *plan);

void md_knapsack_plan_finish(struct md_knapsack_plan *plan);

/* ---- offloading ------------------------------------------------------------------------------------------------- */

/* The contents of one GPU. */
struct md_knapsack_resident {
	uint64_t bytes;
	double value;   /* value that is lost when it is evicted */
	uint32_t needs; /* another resident: kernels their adapter, an adapter its backbone; MD_KNAPSACK_NONE: none */
	bool pinned;    /* in use: it stays, and so does what it needs */
};

struct md_knapsack_loss {
	uint64_t bytes; /* freed */
	double value;   /* lost */
	bool enough;    /* as many bytes as asked for are freed; false: everything evictable is evicted */
};

/*
 * Which residents to evict to free at least `bytes` (equations 7 and 8): gone[i] is set for those. What stays never
 * needs what goes. A cycle of `needs` is MD_ERR_INVALID.
 *
 * greedy is the paper's algorithm: by least value / bytes among residents that nothing remaining needs, until enough is
 * free. offload is ours: it weighs whole bundles, puts back what turns out unnecessary, and compares with a single
 * resident that is enough by itself.
 */
typedef enum md_status md_knapsack_offloader(const struct md_knapsack_resident *residents, uint32_t count,
					     uint64_t bytes, bool *gone, struct md_knapsack_loss *loss);
md_knapsack_offloader md_knapsack_offload_greedy, md_knapsack_offload;

#endif
