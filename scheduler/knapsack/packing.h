/* SPDX-License-Identifier: Apache-2.0 */
/* Between the search for bundles and the packing of them. */
#ifndef MD_SCHEDULER_KNAPSACK_PACKING_H
#define MD_SCHEDULER_KNAPSACK_PACKING_H

#include "scheduler/knapsack/knapsack_state.h"

struct md_knap_packer {
	const struct md_knap *knap;
	struct md_knap_state *state;
	double price[MD_KNAP_KINDS]; /* above 0 */
	const double *bias;          /* per place: 1, or what makes its room look larger or smaller */
	const uint64_t *reserve;     /* per group: adapters and kernels of all its functions */
	bool keep_reserve;           /* beside a new backbone, if there is room */
};

/* Artifacts that are put in place together for one function. */
struct md_knap_bundle {
	uint32_t function, count;
	struct md_knapsack_placement placements[4];
	double gain, cost, density;
};

/* The densest bundle of a function that has room as things stand; false: none that gains anything. */
bool md_knap_bundle_find(const struct md_knap_packer *packer, uint32_t function, struct md_knap_bundle *best);
void md_knap_bundle_add(const struct md_knap *knap, struct md_knap_state *state, const struct md_knap_bundle *bundle);

#endif
