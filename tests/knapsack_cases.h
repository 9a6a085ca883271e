/* SPDX-License-Identifier: Apache-2.0 */
/* Random preloading problems: LoRA functions over backbones, with sizes and delays of the order that xLoRA reports. */
#ifndef MD_TESTS_KNAPSACK_CASES_H
#define MD_TESTS_KNAPSACK_CASES_H

#include <math.h>
#include <stdlib.h>

#include "scheduler/knapsack/knapsack.h"

struct knapsack_case {
	struct md_knapsack problem;
	struct md_knapsack_place *places;
	struct md_knapsack_function *functions;
	struct md_knapsack_artifact *artifacts;
	struct md_knapsack_placement *held;
};

struct knapsack_shape {
	uint32_t functions, backbones, containers, gpus;
	double own_weights;            /* part of the functions that have no backbone */
	double without;                /* part of the artifacts that are left out */
	bool one_value;                /* as in the paper: a container spares as much as a GPU */
	double container_gib, gpu_gib; /* room in one, in the mean; 0: 12 and 40 */
};

static inline double case_uniform(uint64_t *random)
{
	*random = *random * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(*random >> 11) / (double)(1ull << 53);
}

static inline double case_between(uint64_t *random, double low, double high)
{
	return low + (high - low) * case_uniform(random);
}

static inline uint32_t case_below(uint64_t *random, uint32_t limit)
{
	return (uint32_t)(case_uniform(random) * limit);
}

static inline void case_artifact(struct knapsack_case *one, const struct knapsack_shape *shape, uint64_t *random,
				 enum md_knapsack_class class, uint32_t owner, double gib, double cold_s, double gpu_s)
{
	if (case_uniform(random) < shape->without)
		return;
	one->artifacts[one->problem.artifact_count++] = (struct md_knapsack_artifact){
	    .class = class,
	    .owner = owner,
	    .bytes = (uint64_t)(gib * (1ull << 30)),
	    .container_s = shape->one_value ? cold_s + gpu_s : cold_s,
	    .gpu_s = class == MD_KNAPSACK_LIBRARY ? 0 : cold_s + gpu_s,
	};
}

/* Published sizes of 7 to 14 billion parameters in two bytes, with other ones between. */
static inline void case_backbone(struct knapsack_case *one, const struct knapsack_shape *shape, uint64_t *random,
				 uint32_t backbone)
{
	static const double sizes[] = {12.6, 24.2, 16.4, 26.4};
	double gib = case_uniform(random) < 0.7 ? sizes[case_below(random, 4)] : case_between(random, 2, 28);
	case_artifact(one, shape, random, MD_KNAPSACK_BACKBONE, backbone, gib, gib / case_between(random, 1, 5),
		      gib / 20);
}

static inline void case_function(struct knapsack_case *one, const struct knapsack_shape *shape, uint64_t *random,
				 uint32_t function)
{
	bool own = case_uniform(random) < shape->own_weights || !shape->backbones;
	double gib = own ? case_between(random, 1, 16) : case_between(random, 0.02, 0.5);
	one->functions[function] = (struct md_knapsack_function){
	    .backbone = own ? MD_KNAPSACK_NONE : case_below(random, shape->backbones),
	    .rate = exp(case_between(random, log(0.002), log(0.5))),
	};
	case_artifact(one, shape, random, MD_KNAPSACK_LIBRARY, function, case_between(random, 0.8, 3),
		      case_between(random, 3, 8), 0);
	case_artifact(one, shape, random, MD_KNAPSACK_ADAPTER, function, gib,
		      case_between(random, 0.1, 1) + gib / case_between(random, 1, 5), 0.02 + gib / 20);
	case_artifact(one, shape, random, MD_KNAPSACK_KERNELS, function, case_between(random, 0.3, 0.9), 0,
		      case_between(random, 1, 5));
}

static inline struct knapsack_case knapsack_case_make(const struct knapsack_shape *shape, uint64_t seed)
{
	uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;
	struct knapsack_case one = {0};
	double container = shape->container_gib > 0 ? shape->container_gib : 12,
	       gpu = shape->gpu_gib > 0 ? shape->gpu_gib : 40;
	one.problem.place_count = shape->containers + shape->gpus;
	one.problem.function_count = shape->functions;
	one.problem.backbone_count = shape->backbones;
	one.places = calloc(one.problem.place_count + 1, sizeof(*one.places));
	one.functions = calloc(shape->functions + 1, sizeof(*one.functions));
	one.artifacts = calloc(3 * (size_t)shape->functions + shape->backbones + 1, sizeof(*one.artifacts));
	one.held = calloc(3 * (size_t)shape->functions + shape->backbones + 1, sizeof(*one.held));
	if (!one.places || !one.functions || !one.artifacts || !one.held)
		abort();
	for (uint32_t p = 0; p < one.problem.place_count; p++) {
		one.places[p].gpu = p >= shape->containers;
		one.places[p].bytes =
		    (uint64_t)(case_between(&random, 0.3, 1.7) * (one.places[p].gpu ? gpu : container) * (1ull << 30));
	}
	for (uint32_t b = 0; b < shape->backbones; b++)
		case_backbone(&one, shape, &random, b);
	for (uint32_t f = 0; f < shape->functions; f++)
		case_function(&one, shape, &random, f);
	one.problem.places = one.places;
	one.problem.functions = one.functions;
	one.problem.artifacts = one.artifacts;
	one.problem.held = one.held;
	return one;
}

static inline void knapsack_case_finish(struct knapsack_case *one)
{
	free(one->places);
	free(one->functions);
	free(one->artifacts);
	free(one->held);
}

#endif
