/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node may take of tenants' quotas of the cluster, and with which weights it serves them: what the leader has written (PREFIX/quotas/TENANT,
 * PREFIX/weights/NAME) is told to the scheduler, and what is obeyed is said in the node's state. A share holds for the lease for which it is, and until
 * medusa.cluster.quota_hold after etcd has last been heard to keep that lease.
 */
#ifndef MD_WORKER_CLUSTER_QUOTA_SHARE_H
#define MD_WORKER_CLUSTER_QUOTA_SHARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct md_cluster; /* NULL in what takes a cluster: there is none */
struct md_quotas;
struct md_worker;
struct md_worker_config;

struct md_quotas *md_quotas_create(struct md_cluster *cluster); /* NULL: out of memory */
void md_quotas_destroy(struct md_quotas *quotas);               /* NULL is fine */
void md_quotas_run(struct md_quotas *quotas);                   /* it looks at itself from now on */

/* All keys are read anew, and were read: as of md_wanted_begin. */
void md_quotas_begin(struct md_quotas *quotas);
void md_quotas_take(struct md_quotas *quotas, const char *key, const json_t *pair, const struct md_buf *value);
void md_quotas_end(struct md_quotas *quotas);
/* As etcd has them, borrowed: {"TENANT": {"revision": ..., "value": {...}}}. */
const json_t *md_quotas_ledgers(const struct md_quotas *quotas);
const json_t *md_quotas_weights(const struct md_quotas *quotas); /* {"NODE": {"TENANT": weight}} */

/* Time that goes on while the machine sleeps. */
uint64_t md_quotas_clock_ns(void);
/* Etcd has kept this lease of the node at this time (of md_quotas_clock_ns) or later. */
void md_quotas_contact(struct md_quotas *quotas, int64_t lease, uint64_t at);
/* How tenants stand here, for the node's state; a new reference; NULL: there is nothing to say, or no memory. */
json_t *md_quotas_tell(struct md_quotas *quotas, int64_t lease);
/* The configuration's tenants, for the node's record; likewise. */
json_t *md_quotas_describe(const struct md_worker *worker);
void md_quotas_leave(struct md_quotas *quotas); /* nothing is started by a share any more */

/* The scheduler knows the configuration's tenants. */
void md_quota_configured(struct md_cluster *cluster, const struct md_worker_config *config);
/* Before the scheduler decides: what has run out is taken back. */
void md_quota_check(struct md_cluster *cluster);

/* How a tenant stands here, for reports. */
struct md_quota_here {
	bool limited;              /* it has a quota of the cluster */
	bool lost;                 /* its share has run out, because etcd is not reached */
	uint32_t running, waiting; /* the share; MD_TENANT_ANY: no limit */
	double weight;             /* by which it is served here; 0: the configuration's */
};
struct md_quota_here md_quotas_here(const struct md_quotas *quotas, const char *tenant);

#endif
