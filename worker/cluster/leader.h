/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for leader in etcd's election, and while this node leads, places models: it writes PREFIX/placements/NAME for nodes for which
 * they change. Its orders are carried out only while its election holds (md_etcd_put_while).
 */
#ifndef MD_WORKER_CLUSTER_LEADER_H
#define MD_WORKER_CLUSTER_LEADER_H

#include "worker/cluster/member.h"
#include "worker/cluster/node_view.h"
#include "worker/cluster/wanted.h"

struct md_leader;

struct md_leader_options {
	struct event_base *base;
	struct md_etcd *etcd;
	const struct md_member *member;
	const struct md_view *view;
	const struct md_wanted *wanted;
	const char *prefix; /* with "/" at its end */
	const char *name;   /* of this node */
};

/* What options point to is borrowed. NULL: out of memory. It stands for election as soon as the node has joined. */
struct md_leader *md_leader_create(const struct md_leader_options *options);
void md_leader_destroy(struct md_leader *leader); /* NULL is fine */
void md_leader_begin(struct md_leader *leader);
void md_leader_end(struct md_leader *leader);   /* nothing is asked of etcd any more */
void md_leader_moved(struct md_leader *leader); /* another endpoint of etcd is asked: the one that was may hang */

/* The key that is there as long as this node leads, and the revision that has made it; NULL: it does not lead. */
const char *md_leader_key(const struct md_leader *leader, int64_t *created);

struct md_leader_state {
	bool leads;
	uint64_t elections; /* that it has won */
	uint64_t rounds;    /* plans that it has made */
	uint64_t writes;    /* placements that it has written */
};
struct md_leader_state md_leader_state_of(const struct md_leader *leader); /* NULL: all 0 */

#endif
