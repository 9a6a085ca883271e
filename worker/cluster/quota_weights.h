/* SPDX-License-Identifier: Apache-2.0 */
/* With which weights nodes serve tenants, by what all of them say: what of PREFIX/weights/NAME has to be written anew. */
#ifndef MD_WORKER_CLUSTER_QUOTA_WEIGHTS_H
#define MD_WORKER_CLUSTER_QUOTA_WEIGHTS_H

#include "worker/cluster/node_view.h"

#define MD_QUOTA_CHANGES_MOST 64u /* keys of one transaction; etcd takes 128 operations */

/* Keys with values that are freed with them. */
struct md_quota_changes {
	struct md_etcd_pair pairs[MD_QUOTA_CHANGES_MOST];
	unsigned count;
};
/* published: {"NODE": {"TENANT": weight}}, as etcd has it. What is off by less than a twentieth stays. */
void md_quota_weigh(const struct md_view *view, const json_t *published, const char *prefix,
		    struct md_quota_changes *changes);
void md_quota_changes_drop(struct md_quota_changes *changes);

#endif
