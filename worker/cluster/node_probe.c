/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node whose lease has ended may be dead, hang, or only be cut off from etcd. It is asked whether it is there, and as long as it
 * answers, requests at it may end.
 */
#include <stdlib.h>

#include "http/call.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/worker.h"

#define PATIENCE_S 1u

struct md_probe {
	struct md_cluster *cluster;
	struct md_probe *next, **at;
	struct md_view_node *node; /* held as a request is */
	struct md_http_call *call;
	bool answers;
};

static void finish(struct md_probe *probe)
{
	struct md_pass_target *target = &probe->node->target;
	*probe->at = probe->next;
	if (probe->next)
		probe->next->at = probe->at;
	md_http_call_cancel(probe->call);
	free(probe);
	if (!--target->open)
		target->unused(target);
}

static void judge(struct md_probe *probe)
{
	probe->call = NULL;
	if (!probe->answers)
		md_passed_fail(probe->cluster->worker, &probe->node->target,
			       "its lease in the cluster has ended, and it does not answer");
	finish(probe);
}

static void on_head(void *context, const struct md_http_head *head)
{
	(void)head;
	((struct md_probe *)context)->answers = true;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	(void)context, (void)bytes, (void)size;
}

static void on_end(void *context)
{
	judge(context);
}

static void on_failed(void *context, const char *why)
{
	(void)why;
	judge(context);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

void md_probe_begin(struct md_cluster *cluster, struct md_view_node *node)
{
	struct md_probe *probe = calloc(1, sizeof(*probe));
	char path[280];
	if (!probe)
		return; /* requests wait for what the node says, as they do without a cluster */
	*probe = (struct md_probe){.cluster = cluster, .next = cluster->probes, .at = &cluster->probes, .node = node};
	if (probe->next)
		probe->next->at = &probe->next;
	cluster->probes = probe;
	node->target.open++;
	snprintf(path, sizeof(path), "%s/health", node->target.prefix);
	probe->call = md_http_call_begin_by(cluster->worker->base, &node->target.way, "GET", path, &calling, probe);
	if (!probe->call) {
		finish(probe);
		return;
	}
	md_http_call_header(probe->call, "Host", node->target.host);
	md_http_call_bound(probe->call, PATIENCE_S);
	md_http_call_send(probe->call, NULL, 0, PATIENCE_S, PATIENCE_S);
}

void md_probe_end_all(struct md_cluster *cluster)
{
	while (cluster->probes)
		finish(cluster->probes);
}
