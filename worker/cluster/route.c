/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/route.h"

#include <string.h>

#include "base/clock.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/reply.h"
#include "worker/core/worker.h"

#define DOUBT_NS UINT64_C(3000000000)

struct md_offer md_route_offer(const struct md_cluster *cluster, const struct md_view_node *node, const char *name,
			       uint64_t now)
{
	const struct md_record_model *model = node->record ? md_record_find(node->record, name) : NULL;
	return (struct md_offer){
	    .standing = model ? &model->standing : NULL,
	    .loads = node->record ? node->record->loads : (struct md_loads){0},
	    .closed = node->draining || node == cluster->avoided || !strcmp(node->name, cluster->name),
	    .cordoned = node->cordoned,
	    .doubted = node->doubted > now,
	    .ended = node->ended != 0,
	    .open = md_view_open(node),
	};
}

static double expect_here(const struct md_cluster *cluster, const struct md_model *local)
{
	struct md_standing standing;
	if (!local || md_drain_is_on(cluster->worker->drain))
		return MD_OFFER_NOT_HERE;
	md_standing_of(local, &standing);
	return md_offer_here_s(&standing, md_crowd_now(cluster->worker), cluster->wish != MD_WISH_NONE);
}

/* Nodes are looked at from this one on, in the order of their names: where many are equal, not all nodes choose the same one. */
struct md_view_node *md_route_pick(const struct md_cluster *cluster, struct md_view_node *const *nodes, uint32_t count,
				   const char *name, double here_s)
{
	struct md_offer_best best = {.found = false};
	uint64_t now = md_clock_ns();
	uint32_t first = 0;
	while (first < count && strcmp(nodes[first]->name, cluster->name) < 0)
		first++;
	for (uint32_t k = 0; k < count; k++) {
		uint32_t i = (first + k) % count;
		const struct md_offer offer = md_route_offer(cluster, nodes[i], name, now);
		md_offer_consider(&best, i, &offer);
	}
	return md_offer_is_better(&best, here_s) ? nodes[best.index] : NULL;
}

struct md_view_node *md_route_choose(const struct md_worker *worker, const struct md_http_head *head, const char *name,
				     const struct md_model *local)
{
	const struct md_cluster *cluster = worker->cluster;
	struct md_view_node *chosen;
	uint32_t count;
	if (!cluster)
		return NULL;
	md_prefixes_find(cluster->prefixes, head, name, local);
	if (md_cluster_is_node(cluster, head))
		return NULL;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	if (md_prefixes_choose(cluster->prefixes, nodes, count, name, local, &chosen))
		return chosen;
	return md_route_pick(cluster, nodes, count, name, expect_here(cluster, local));
}

void md_route_pass(struct md_worker *worker, struct md_view_node *node, struct md_http_exchange *exchange,
		   struct md_pass_request *request)
{
	worker->cluster->passed++;
	request->target = &node->target;
	request->once = worker->cluster->avoided;
	bool probed = node->ended; /* it may hang */
	node->target.open++;       /* it may be forgotten within */
	md_pass_begin(worker, exchange, request);
	if (probed && md_view_open(node) > 1)
		md_probe_begin(worker->cluster, node);
	if (!--node->target.open)
		node->target.unused(&node->target);
}

bool md_route_again(struct md_worker *worker, struct md_pass_target *target, struct md_http_exchange *exchange,
		    const char *why)
{
	struct md_cluster *cluster = worker->cluster;
	struct md_view_node *node = (struct md_view_node *)target;
	node->doubted = md_clock_ns() + DOUBT_NS;
	if (cluster->avoided || md_drain_ends(worker->drain))
		return false;
	cluster->retries++;
	cluster->avoided = node;
	cluster->avoided_why = why;
	md_router_take(worker, exchange);
	cluster->avoided = NULL;
	return true;
}

bool md_route_refuse(const struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	const struct md_cluster *cluster = worker->cluster;
	uint32_t count;
	if (!cluster)
		return false;
	if (cluster->avoided && cluster->avoided->ended) {
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, "node_unreachable",
			       "model %.200s is on node %.60s alone, whose lease has ended: %.300s", name,
			       cluster->avoided->name, cluster->avoided_why);
		return true;
	}
	if (cluster->avoided) {
		md_reply_error(exchange, MD_REPLY_UPSTREAM, "peer_failed",
			       "node %.60s: %.300s, and no other one takes it", cluster->avoided->name,
			       cluster->avoided_why);
		return true;
	}
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++) {
		if (!nodes[i]->record || !md_record_find(nodes[i]->record, name))
			continue;
		if (nodes[i]->draining && strcmp(nodes[i]->name, cluster->name) != 0) {
			md_reply_error(exchange, MD_REPLY_UNAVAILABLE, "draining",
				       "model %.200s is on node %.60s, which takes no more requests", name,
				       nodes[i]->name);
			return true;
		}
	}
	return false;
}
