/* SPDX-License-Identifier: Apache-2.0 */
/* What quota_share.c (what is obeyed) and quota_tell.c (what is said of it) share. */
#ifndef MD_WORKER_CLUSTER_QUOTA_PARTS_H
#define MD_WORKER_CLUSTER_QUOTA_PARTS_H

#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/quota_ledger.h"

#define MD_QUOTA_PEAK 10u /* looks for which the most that was wanted counts */

struct md_quota_share {
	char *tenant; /* "": requests of none, which have a weight alone */
	bool configured;
	uint32_t stated[MD_QUOTAS]; /* by this node's configuration; MD_QUOTA_ANY: no limit */
	uint32_t limits[MD_QUOTAS]; /* for the whole cluster, by the configuration or by etcd; MD_QUOTA_ANY: none */
	uint64_t serial;            /* of the entry that is obeyed; 0: none */
	int64_t session;            /* of it */
	uint32_t given[MD_QUOTAS];  /* by it */
	uint64_t contact;           /* md_quotas_clock_ns: its lease was there then, as far as is known */
	uint32_t now[MD_QUOTAS];    /* what the scheduler was told */
	bool lost, broken;          /* it has run out; what ran was broken off */
	double weight, told_weight; /* of the leader, and what the scheduler was told; 0: the configuration's */
	/* What is said of it: */
	uint32_t peaks[MD_QUOTA_PEAK][MD_QUOTAS];
	bool more[MD_QUOTA_PEAK];
	uint64_t gpu_ns, rejected;
	double used, told_used;
};

struct md_quota_keys {
	json_t *ledgers, *weights;
};

struct md_quotas {
	struct md_cluster *cluster;
	struct md_quota_share *shares;
	uint32_t count, room;
	struct md_quota_keys known, coming; /* coming: all NULL: no reading is under way */
	int64_t lease;                      /* the one that was kept last */
	uint64_t contact;                   /* when */
	uint64_t expires;                   /* the first share, or what runs by it, does; UINT64_MAX: none */
	uint64_t told_at;
	unsigned peak;
	bool left;
	struct event *look;
};

bool md_quota_is_limited(const struct md_quota_share *share);
void md_quotas_apply(struct md_quotas *quotas); /* what has run out by now is taken back */

#endif
