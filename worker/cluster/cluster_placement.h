/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the leader wants of each node: copied from what it knows of the cluster, in the loop and a part in each turn, and planned by
 * medusa_sched_cluster_plan on a thread. What changes meanwhile makes the plan stale for the nodes that it concerns.
 */
#ifndef MD_WORKER_CLUSTER_CLUSTER_PLACEMENT_H
#define MD_WORKER_CLUSTER_CLUSTER_PLACEMENT_H

#include <jansson.h>

#include "worker/cluster/node_view.h"
#include "worker/cluster/wanted.h"

struct md_placement;

struct md_placement *md_placement_create(const struct md_wanted *wanted); /* NULL: out of memory */
void md_placement_free(struct md_placement *placement);                   /* in the loop; NULL is fine */

enum md_placement_step { MD_PLACEMENT_MORE, MD_PLACEMENT_COPIED, MD_PLACEMENT_NO_MEMORY };
/* Copies some more nodes, as many as take a few milliseconds. */
enum md_placement_step md_placement_copy(struct md_placement *placement, const struct md_view *view,
					 const struct md_wanted *wanted);
void md_placement_solve(struct md_placement *placement); /* on any thread; nobody else uses it meanwhile */

/*
 * {"NODE": {"MODEL": "kept" or "wanted"}} for each node that can get models, with nothing in it if it gets none. Borrowed. NULL: there is no
 * plan, and *why says why.
 */
const json_t *md_placement_plan(const struct md_placement *placement, const char **why);

/* Whether users have moved no model since. */
bool md_placement_pins_stand(const struct md_placement *placement, const struct md_wanted *wanted);
/* Whether a node of the plan is as it was: it takes models, and has the record, the wishes and the placement that it had. */
bool md_placement_stands(const struct md_placement *placement, const char *node, const struct md_view *view,
			 const struct md_wanted *wanted);
bool md_placement_takes_models(const struct md_view_node *node);

#endif
