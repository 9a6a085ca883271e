/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ledgers the cluster has: PREFIX/ledgers/ID, which no lease takes away, so that a bill misses the nodes that are gone. A node that joins puts the key of its ledger;
 * one that leaves by itself writes until when there are rows in it. docs/cluster.md has the values.
 */
#ifndef MD_WORKER_CLUSTER_LEDGERS_H
#define MD_WORKER_CLUSTER_LEDGERS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

struct md_cluster;
struct md_ledgers;

struct md_ledgers *md_ledgers_create(struct md_cluster *cluster); /* NULL: out of memory */
void md_ledgers_destroy(struct md_ledgers *ledgers);              /* NULL is fine */
void md_ledgers_begin(struct md_ledgers *ledgers);
bool md_ledgers_settled(const struct md_ledgers *ledgers); /* the key stands, or the ledger itself can't be read */
void md_ledgers_serve(
    struct md_ledgers *ledgers); /* requests are taken from now on, whether the node has joined or not */
void md_ledgers_leave(struct md_ledgers *ledgers); /* the node takes no more requests: that is written */
bool md_ledgers_has_left(const struct md_ledgers *ledgers);

/* As md_wanted_begin, md_wanted_take and md_wanted_end. */
void md_ledgers_reads(struct md_ledgers *ledgers);
void md_ledgers_take(struct md_ledgers *ledgers, const char *key, const json_t *pair, const struct md_buf *value);
void md_ledgers_has_read(struct md_ledgers *ledgers);

/*
 * Who is to be asked for a bill, and which ledgers must be in it: {"node", "current", "why" (null: all is known), "nodes": [{"node", "identity"}], "ledgers":
 * [{"ledger", "copy_of" (null: none), "node", "identity", "first", "until" (0: none), "why" (null: it can be read)}]}. A node or an identity that is not known
 * is null.
 */
json_t *md_ledgers_report(const struct md_cluster *cluster);

/* {ID: {"node", "identity", "copy_of" (may be missing), "first", "until", "revision", "why"}} as etcd has them, borrowed. */
const json_t *md_ledgers_known(const struct md_ledgers *ledgers);

/*
 * The ledgers of a node, by its name, or one, by its ID, are no longer missed. `done` is called later. NULL: err says why not: MD_ERR_NOT_FOUND, MD_ERR_BUSY:
 * the node is there; MD_ERR_NO_MEMORY.
 */
void *md_ledgers_forget(struct md_cluster *cluster, const char *name,
			void (*done)(void *context, const struct md_error *err), void *context, struct md_error *err);
void md_ledgers_leave_order(void *order); /* `done` is not called */

#endif
