/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the search for bundles and the packing of them. */
#ifndef MD_SCHEDULER_KNAPSACK_PACKING_H
#define MD_SCHEDULER_KNAPSACK_PACKING_H

#include "scheduler/knapsack/knapsack_state.h"

struct md_knap_packer {
	const struct md_knap *knap;
	struct md_knap_state *state;
	double price[MD_KNAP_KINDS]; /* above 0 */
	const double *bias;          /* per place: 1, or a factor that makes its room look larger or smaller */
	const uint64_t *reserve;     /* per group: bytes of the adapters and kernels of all its functions */
	bool keep_reserve;           /* keep the reserve free beside a new backbone, if possible */
};

/* Artifacts that are placed together for one function. */
struct md_knap_bundle {
	uint32_t function, count;
	struct md_knapsack_placement placements[4];
	double gain, cost, density;
};

/* The bundle of a function with the greatest value over price that has room now; false: none adds value. */
bool md_knap_bundle_find(const struct md_knap_packer *packer, uint32_t function, struct md_knap_bundle *best);
void md_knap_bundle_add(const struct md_knap *knap, struct md_knap_state *state, const struct md_knap_bundle *bundle);

#endif
