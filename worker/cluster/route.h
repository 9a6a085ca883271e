/* SPDX-License-Identifier: Apache-2.0 */
/* Where a request is computed: the node of the cluster whose first token is expected first. */
#ifndef MD_WORKER_CLUSTER_ROUTE_H
#define MD_WORKER_CLUSTER_ROUTE_H

#include "worker/cluster/node_view.h"

struct md_cluster;
struct md_model;
struct md_worker;

/*
 * The node that a request for this name is passed on to; NULL: it stays here. local: what is called so here; NULL: nothing.
 * What another node has passed on stays, and so does what another node does not do clearly sooner.
 */
struct md_view_node *md_route_choose(const struct md_worker *worker, const struct md_http_head *head, const char *name,
				     const struct md_model *local);
/* Of these nodes, sorted by name; here_s: md_offer_here_s of this node. NULL: none is clearly sooner. */
struct md_view_node *md_route_pick(const struct md_cluster *cluster, struct md_view_node *const *nodes, uint32_t count,
				   const char *name, double here_s);
/* What a request for this name would find there. */
struct md_offer md_route_offer(const struct md_cluster *cluster, const struct md_view_node *node, const char *name,
			       uint64_t now);
/* request->target and once are set here. */
void md_route_pass(struct md_worker *worker, struct md_view_node *node, struct md_http_exchange *exchange,
		   struct md_pass_request *request);
/*
 * Nobody takes a request for this name. True: other nodes have it, and the client has been told why they don't; false: no node of
 * the cluster is known to have it.
 */
bool md_route_refuse(const struct md_worker *worker, struct md_http_exchange *exchange, const char *name);

#endif
