/* SPDX-License-Identifier: Apache-2.0 */
/* Exact solvers of the problems in scheduler/knapsack/knapsack.h, for small instances: the library's are judged by them. */
#ifndef MD_TESTS_JUDGES_JUDGES_H
#define MD_TESTS_JUDGES_JUDGES_H

#include "scheduler/knapsack/knapsack.h"

struct knapsack_proof {
	bool proven;    /* nothing is better */
	uint64_t nodes; /* of the search that were visited */
};

/*
 * The best plan, or the best one found if `limit` nodes are not enough. from_ours: the search begins with the plan of
 * md_knapsack_bundles, which saves time and may hide a fault of the search. Errors are those of md_knapsack_greedy; the
 * plan is set on success alone.
 */
enum md_status knapsack_exact(const struct md_knapsack *problem, bool from_ours, uint64_t limit,
			      struct md_knapsack_plan *plan, struct knapsack_proof *proof);

/* A value that no plan exceeds (Lagrangian dual; all containers are treated as one, and all GPUs as one). */
enum md_status knapsack_bound(const struct md_knapsack *problem, double *value);

/* The residents to evict that lose the least, or the best choice found. Errors are those of md_knapsack_offload. */
enum md_status offload_exact(const struct md_knapsack_resident *residents, uint32_t count, uint64_t bytes,
			     uint64_t limit, bool *gone, struct md_knapsack_loss *loss, struct knapsack_proof *proof);

#endif
