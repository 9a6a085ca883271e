/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a tenant's quota is divided among the nodes of a cluster, as PREFIX/quotas/TENANT in etcd has it. Of each node the ledger says what it may (its
 * share), and what the leader reckons with, because the node may still have that much: `held`. The sum of what is held never exceeds the quota by
 * a step of this ledger, and a node never has more than what is held for it (worker/cluster/quota_share.c), so all of them together never have
 * more than the quota. docs/cluster.md says why that holds when parts fail. Nothing here knows etcd, a clock, or this node.
 */
#ifndef MD_WORKER_CLUSTER_QUOTA_LEDGER_H
#define MD_WORKER_CLUSTER_QUOTA_LEDGER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum md_quota { MD_QUOTA_RUNNING, MD_QUOTA_WAITING, MD_QUOTAS };
#define MD_QUOTA_ANY UINT32_MAX         /* no limit */
#define MD_QUOTA_LIMIT_MOST 1000000000u /* as of cluster_max_running and cluster_max_waiting */
#define MD_QUOTA_HOLD_LEAST_S 4.0       /* as of medusa.cluster.quota_hold, as the most is */
#define MD_QUOTA_HOLD_MOST_S 1e6
#define MD_QUOTA_SERIAL_MOST (INT64_MAX / 2) /* a greater one is of nobody who counts */

struct md_quota_entry {
	char node[64];
	char identity
	    [40]; /* of the node (docs/cluster.md): another one that takes its name later proves nothing about it */
	int64_t session; /* the lease of the node for which the share is; with another one the node does not take it */
	uint64_t serial; /* each change of share or session has a greater one, up to MD_QUOTA_SERIAL_MOST */
	uint32_t share[MD_QUOTAS], held[MD_QUOTAS];
	uint32_t
	    turns[MD_QUOTAS]; /* that it has had of what is less than one for each who wants more; the least first */
	double hold_s;        /* how long the node starts requests without etcd, as it says */
};

struct md_quota_ledger {
	uint32_t limits[MD_QUOTAS];
	struct md_quota_entry *entries; /* by node */
	uint32_t count, room;
};

enum md_status md_quota_ledger_read(const json_t *value, struct md_quota_ledger *ledger, struct md_error *err);
char *md_quota_ledger_print(const struct md_quota_ledger *ledger); /* for free(); NULL: out of memory */
void md_quota_ledger_finish(struct md_quota_ledger *ledger);
/* NULL: the node has none. Valid until the ledger changes. */
const struct md_quota_entry *md_quota_ledger_find(const struct md_quota_ledger *ledger, const char *node);

/* A node as it is known now. */
struct md_quota_said {
	char node[64];
	char identity[40];
	bool there;      /* it has a lease, and the tenant in its configuration */
	double gone_s;   /* else: for so long it has been known that it is not there */
	bool told;       /* its state is known, and all below is of that */
	bool left;       /* it leaves by itself, and starts nothing any more */
	bool spare;      /* it may get what nobody asks for */
	int64_t session; /* its lease */
	uint64_t serial; /* of the entry that it obeys; 0: none */
	int64_t obeys;   /* the session of that */
	uint32_t most
	    [MD_QUOTAS]; /* it has no more than that, and will not by what it obeys; MD_QUOTA_ANY: it obeys nothing */
	uint32_t wants[MD_QUOTAS]; /* that it could make use of */
	double hold_s;
};

/* The name is now that of another node than the one for which the entry is; in a step, that one is not there. */
bool md_quota_is_other(const struct md_quota_entry *entry, const struct md_quota_said *said);
/*
 * What is left when all have as much as all can have is less than one for each node that wants more: they have it by turns. A node that waits for its turn to
 * begin, because others still use what it is due, has had none.
 */
struct md_quota_turns {
	bool over[MD_QUOTAS]; /* those whose turn it is have had it, if they have what they are due */
	bool runs[MD_QUOTAS]; /* set by the step: somebody's turn goes on, and none has begun in this step */
};

/*
 * One step: lowers shares, takes note of what nodes say that they obey, and gives what is free. said: by node, each once; of nodes that are in the ledger
 * and not there, too. limits: MD_QUOTA_ANY: none. *changed: it is to be written. False: out of memory, and the ledger is worth nothing.
 */
bool md_quota_ledger_step(struct md_quota_ledger *ledger, const uint32_t limits[MD_QUOTAS],
			  const struct md_quota_said *said, uint32_t count, struct md_quota_turns *turns,
			  bool *changed);

/*
 * Whole parts of a quota by what is wanted, as equal as can be; what nobody wants is spread over those with `spare`. One more than all can have goes to the
 * first by `order` (numbers below count; NULL: as they come) of those that want more. *level: what all can have. Returns how many get one more.
 */
uint32_t md_quota_divide(uint32_t limit, const uint32_t *wants, const bool *spare, uint32_t count,
			 const uint32_t *order, uint32_t *parts, uint32_t *level);

#endif
