/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While this node leads, it divides tenants' quotas among nodes (PREFIX/quotas/TENANT, quota_ledger.h), and says with which weights nodes serve them
 * (PREFIX/weights/NAME, medusa_sched_cluster_weights), by what their states say.
 */
#ifndef MD_WORKER_CLUSTER_QUOTA_LEADER_H
#define MD_WORKER_CLUSTER_QUOTA_LEADER_H

#include <stdint.h>

struct md_cluster;
struct md_quota_leader;

struct md_quota_leader *md_quota_leader_create(struct md_cluster *cluster); /* NULL: out of memory */
void md_quota_leader_destroy(struct md_quota_leader *leader);               /* NULL is fine */
void md_quota_leader_begin(struct md_quota_leader *leader);
void md_quota_leader_end(struct md_quota_leader *leader); /* nothing is written any more; NULL is fine */
/* The node has said that it leaves, and has ended what it ran: nothing is held for it any more. NULL is fine. */
void md_quota_leader_left(struct md_quota_leader *leader, const char *node);
uint64_t md_quota_leader_writes(const struct md_quota_leader *leader); /* that it has ordered; NULL: 0 */

#endif
