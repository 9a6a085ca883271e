/* SPDX-License-Identifier: Apache-2.0 */
/* What the leader wants of each node, planned by medusa_sched_cluster_plan from what it knows of the cluster. */
#ifndef MD_WORKER_CLUSTER_CLUSTER_PLACEMENT_H
#define MD_WORKER_CLUSTER_CLUSTER_PLACEMENT_H

#include <jansson.h>

#include "worker/cluster/node_view.h"
#include "worker/cluster/wanted.h"

/*
 * {"NODE": {"MODEL": "kept" or "wanted"}} for each node that can get models, with nothing in it if it gets none; NULL: out of
 * memory. The caller has the reference.
 */
json_t *md_placement_plan(const struct md_view *view, const struct md_wanted *wanted);

#endif
