/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a cluster's node share. */
#ifndef MD_WORKER_CLUSTER_CLUSTER_PARTS_H
#define MD_WORKER_CLUSTER_CLUSTER_PARTS_H

#include "worker/cluster/cluster.h"
#include "worker/cluster/cluster_ledgers.h"
#include "worker/cluster/cluster_tls.h"
#include "worker/cluster/leader.h"
#include "worker/cluster/member.h"
#include "worker/cluster/node_view.h"
#include "worker/cluster/obey.h"
#include "worker/cluster/quota_leader.h"
#include "worker/cluster/quota_share.h"
#include "worker/cluster/wanted.h"

struct md_node_check;
struct md_prefixes;
struct md_probe;

struct md_cluster {
	struct md_worker *worker;
	struct md_config_cluster settings; /* as they count; the command line's first */
	char *endpoints;                   /* of the command line, cut into pieces */
	const char **endpoint_list;
	char name[72], url[300], identity[40], prefix[260];
	char *key; /* NULL: none */
	bool url_given;
	struct md_http_outside *outside, *nodes_outside; /* of etcd, of other nodes */
	struct md_cluster_secrets *secrets;              /* what is used of them was taken out */
	struct md_http_front *front;                     /* of other nodes; NULL: everybody's */
	struct md_http_front_events front_events;
	struct event *expiry;
	unsigned expiry_looks;
	uint64_t unproven, unproven_silent; /* connections to it; ns: nothing is said before */
	struct md_node_check *check;        /* NULL: without TLS between nodes */
	struct md_etcd *etcd;
	struct md_member *member;
	struct md_view *view;
	struct md_wanted *wanted;
	struct md_leader *leader; /* NULL: the node takes no part in placement */
	struct md_quotas *quotas;
	struct md_quota_leader *quota_leader;
	struct md_obey *obey;
	struct event *obeys;
	struct md_probe *probes;
	struct md_prefixes *prefixes; /* NULL: medusa.cluster.prefixes is off */
	struct md_ledgers *ledgers;
	unsigned bill_servers; /* other nodes' questions for this node's bill */
	bool reached, known;   /* etcd answers; whether that is known */
	char why[300];         /* it does not */
	char lack[400];
	enum md_wish wish;
	bool drained; /* by a wish */
	/* A request is given out anew, because this node has not answered it: */
	const struct md_view_node *avoided;
	const char *avoided_why;
	uint64_t retries, passed;
};

/* Of struct md_pass_target: gives the request to somebody else, once. */
bool md_route_again(struct md_worker *worker, struct md_pass_target *target, struct md_http_exchange *exchange,
		    const char *why);
/* The node's lease has ended: requests at it go elsewhere, or fail, unless it answers. */
void md_probe_begin(struct md_cluster *cluster, struct md_view_node *node);
struct md_node_check *md_node_check_create(struct md_cluster *cluster); /* NULL: out of memory */
void md_node_check_destroy(struct md_node_check *check);
void md_probe_end_all(struct md_cluster *cluster);

#endif
