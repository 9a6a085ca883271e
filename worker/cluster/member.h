/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node in the cluster: a lease that lasts for MD_MEMBER_TTL_S beyond the node's last sign of life, and the two keys that go
 * with it. Requests write nothing: now and then the node looks at itself, and writes what has changed.
 */
#ifndef MD_WORKER_CLUSTER_MEMBER_H
#define MD_WORKER_CLUSTER_MEMBER_H

#include "worker/cluster/etcd.h"
#include "worker/cluster/record.h"

#define MD_MEMBER_TTL_S 3u

struct md_member;
struct md_worker;

enum md_member_state {
	MD_MEMBER_JOINING, /* or etcd cannot be reached, since the node began */
	MD_MEMBER_JOINED,
	MD_MEMBER_CLASHES, /* another node that lives has the name */
};

struct md_member_options {
	struct md_worker *worker;
	struct md_etcd *etcd;
	const char *prefix; /* with "/" at its end */
	const char *name, *identity, *url;
	const char *domain; /* as of struct md_record_self, and `placed` */
	bool placed;
	struct md_quotas *quotas; /* what is said of tenants, and who is told when the lease was kept */
};

/* What options point to is borrowed. NULL: out of memory. */
struct md_member *md_member_create(const struct md_member_options *options);
/* The keys go when their lease ends, or was ended by md_member_leave. NULL is fine. */
void md_member_destroy(struct md_member *member);
void md_member_begin(struct md_member *member);
enum md_member_state md_member_state(const struct md_member *member);
/* Who has the name: its URL, as far as it is known. MD_MEMBER_CLASHES. */
const char *md_member_rival(const struct md_member *member);
void md_member_missing(struct md_member *member);             /* its record is not there: it is put again */
void md_member_mark(struct md_member *member, bool cordoned); /* what the next state says */
void md_member_leave(struct md_member *member);               /* ends the lease, and writes no more */
bool md_member_has_left(const struct md_member *member);      /* it has ended, or nobody can be told */

int64_t md_member_lease(
    const struct md_member *member); /* of a node that has joined; 0: it has not, or its lease has ended */

struct md_member_counts {
	uint64_t writes;  /* of its keys */
	uint64_t leases;  /* that it was given */
	int64_t revision; /* of the last write that was answered */
};
struct md_member_counts md_member_counts_of(const struct md_member *member);

#endif
