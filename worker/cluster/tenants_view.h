/* SPDX-License-Identifier: Apache-2.0 */
/* What all nodes say of tenants: their limits for the cluster and their weights (of records), and how they stand (of states). */
#ifndef MD_WORKER_CLUSTER_TENANTS_VIEW_H
#define MD_WORKER_CLUSTER_TENANTS_VIEW_H

#include "worker/cluster/node_view.h"
#include "worker/cluster/quota_ledger.h"

/* What nodes' configurations say of a tenant. Where they differ, the least limit and the least weight count. */
struct md_tenant_terms {
	uint32_t limits[MD_QUOTAS]; /* MD_QUOTA_ANY: nobody states one */
	double weight;
	uint32_t nodes;          /* that have it, and a lease */
	bool differ;             /* in what they say */
	char one[64], other[64]; /* two that do */
};
/* {"TENANT": true} of all tenants of nodes that are known; limited: of those with a limit for the cluster; a new reference; NULL: out of memory. */
json_t *md_tenants_of_nodes(const struct md_view *view, bool limited);
struct md_tenant_terms md_tenant_terms_of(const struct md_view *view, const char *tenant);
/* What the node's record has of the tenant; NULL: nothing. */
const json_t *md_tenant_of_record(const struct md_view_node *node, const char *tenant);
/* How the tenant stands there, of the node's state; NULL: it does not say. */
const json_t *md_tenant_of_state(const struct md_view_node *node, const char *tenant);
/* All but gone_s and left of a node that is listed. */
void md_tenant_said(const struct md_view_node *node, const char *tenant, struct md_quota_said *said);

#endif
