/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node as a part of a cluster: what it says of itself (member.h), what it knows of others (node_view.h), and where requests go
 * (route.h). All of it is there only with endpoints of etcd; else the daemon's `cluster` is NULL, which all of these take.
 */
#ifndef MD_WORKER_CLUSTER_CLUSTER_H
#define MD_WORKER_CLUSTER_CLUSTER_H

#include "http/head.h"
#include "worker/config/config.h"

struct md_cluster;
struct md_http_exchange;
struct md_view_node;
struct md_worker;

/* What counts instead of the configuration's; NULL: its own. */
struct md_cluster_options {
	const char *endpoints, *node, *advertise;
	const char *listen;        /* where HTTP is served */
	const char *etcd_password; /* of the environment; NULL: a file has it, or there is no user */
	const char *state;         /* folder in which the node's identity is kept */
};

/*
 * Reads files, and speaks to nobody yet; *made is NULL where there are no endpoints. MD_ERR_INVALID: a value of the command line,
 * a missing URL; MD_ERR_CORRUPT, MD_ERR_NOT_FOUND, MD_ERR_IO: of files; MD_ERR_NO_MEMORY.
 */
enum md_status md_cluster_create(struct md_worker *worker, const struct md_cluster_options *options,
				 struct md_cluster **made, struct md_error *err);
void md_cluster_destroy(struct md_cluster *cluster); /* no request is open */
/*
 * Runs the loop until the node is in the cluster, or knows that etcd can't be reached, with which it serves alone until that
 * changes. MD_ERR_BUSY: another node that lives has the name.
 */
enum md_status md_cluster_join(struct md_cluster *cluster, unsigned port, struct md_error *err);
void md_cluster_leave(
    struct md_cluster *cluster); /* the others are told, for which the loop runs for a second at most */

/* Whether another node of the cluster has sent the request, and, where there is a key, has proved that. */
bool md_cluster_is_node(const struct md_cluster *cluster, const struct md_http_head *head);
/* The same with a key: the node that has sent it knows who its client is, and answers for it. */
bool md_cluster_vouches(const struct md_cluster *cluster, const struct md_http_head *head);
/* Why the cluster is not as it should be, a sentence without its end; NULL: it is, or there is none. */
const char *md_cluster_lack(const struct md_cluster *cluster);

bool md_cluster_has(const struct md_cluster *cluster, const char *node); /* it is there, or a wish for it is */
/* A user's wish for a node, which is written to etcd. `done` is called later; why: NULL: it is there. */
enum md_cluster_wish { MD_CLUSTER_UNCORDON, MD_CLUSTER_CORDON, MD_CLUSTER_DRAIN };
/* NULL: out of memory. */
void *md_cluster_wish(struct md_cluster *cluster, const char *node, enum md_cluster_wish wish,
		      void (*done)(void *context, const struct md_error *err), void *context);
/* Where a user wants the model, by its ID: there, and nowhere else; node: NULL: where the leader puts it. As md_cluster_wish. */
void *md_cluster_move(struct md_cluster *cluster, const char *model, const char *node,
		      void (*done)(void *context, const struct md_error *err), void *context);
/* MD_ERR_NOT_FOUND, MD_ERR_INVALID, MD_ERR_UNSUPPORTED: err says why it makes no sense. */
enum md_status md_cluster_can_move(const struct md_cluster *cluster, const char *model, const char *node,
				   struct md_error *err);
void md_cluster_forget(void *wish); /* `done` is not called; the wish may be written all the same */

#endif
