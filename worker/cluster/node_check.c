/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With TLS between nodes, one other node a second is asked whether it is there, one after the other: whoever can't be reached, because a
 * certificate has expired or is of nobody who is trusted, is known before a client asks for it.
 */
#include <stdlib.h>
#include <string.h>

#include "http/call.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/forward.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define PATIENCE_S 3u

struct md_node_check {
	struct md_cluster *cluster;
	struct md_view_node *node; /* held as a request is; NULL: none is asked now */
	struct md_http_call *call;
	unsigned status;
	char last[72]; /* the name of the one that was asked last */
	struct event *turn;
};

static void let_go(struct md_node_check *check)
{
	struct md_pass_target *target = &check->node->target;
	check->node->checked = false;
	check->node = NULL;
	if (!--target->open)
		target->unused(target);
}

static void end(struct md_node_check *check, const char *why)
{
	struct md_view_node *node = check->node;
	check->call = NULL;
	if (why && strcmp(node->trouble, why) != 0)
		md_warn("cluster: node %s, at %s, cannot be reached: %s", node->name,
			node->record ? node->record->url : "", why);
	else if (!why && *node->trouble)
		md_warn("cluster: node %s is reached again", node->name);
	snprintf(node->trouble, sizeof(node->trouble), "%s", why ? why : "");
	let_go(check);
}

static void on_head(void *context, const struct md_http_head *head)
{
	((struct md_node_check *)context)->status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	(void)context, (void)bytes, (void)size;
}

static void on_end(void *context)
{
	struct md_node_check *check = context;
	end(check, check->status == 403 ? "its listener says that this node's certificate is not for its name" : NULL);
}

static void on_failed(void *context, const char *why)
{
	end(context, why);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

static void ask(struct md_node_check *check, struct md_view_node *node)
{
	struct md_pass_target *target = &node->target;
	char path[280];
	snprintf(path, sizeof(path), "%s/health", target->prefix);
	check->status = 0;
	check->call = md_http_call_begin_by(check->cluster->worker->base, &target->way, "GET", path, &calling, check);
	if (!check->call)
		return; /* no memory: later */
	check->node = node;
	target->open++;
	node->checked = true;
	md_http_call_header(check->call, "Host", target->host);
	md_http_call_header(check->call, MD_FORWARD_NODE, check->cluster->name);
	md_http_call_bound(check->call, PATIENCE_S);
	md_http_call_send(check->call, NULL, 0, PATIENCE_S, PATIENCE_S);
}

/* The next name behind the last one; NULL: there is nobody else. */
static struct md_view_node *next_of(const struct md_node_check *check)
{
	struct md_view_node *first = NULL;
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(check->cluster->view, &count);
	for (uint32_t i = 0; i < count; i++) {
		if (!md_view_has_lease(nodes[i]) || !strcmp(nodes[i]->name, check->cluster->name))
			continue;
		if (strcmp(nodes[i]->name, check->last) > 0)
			return nodes[i];
		first = first ? first : nodes[i];
	}
	return first;
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
	struct md_node_check *check = context;
	(void)fd, (void)what;
	struct md_view_node *node = check->node ? NULL : next_of(check);
	if (!node)
		return;
	snprintf(check->last, sizeof(check->last), "%s", node->name);
	ask(check, node);
}

struct md_node_check *md_node_check_create(struct md_cluster *cluster)
{
	struct timeval second = {.tv_sec = 1};
	struct md_node_check *check = calloc(1, sizeof(*check));
	if (!check)
		return NULL;
	*check = (struct md_node_check){.cluster = cluster};
	check->turn = event_new(cluster->worker->base, -1, EV_PERSIST, on_turn, check);
	if (check->turn && !event_add(check->turn, &second))
		return check;
	md_node_check_destroy(check);
	return NULL;
}

void md_node_check_destroy(struct md_node_check *check)
{
	if (!check)
		return;
	md_http_call_cancel(check->call);
	if (check->node)
		let_go(check);
	if (check->turn)
		event_free(check->turn);
	free(check);
}
