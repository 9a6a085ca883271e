/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node whose lease has ended may be dead, hang, or only be cut off from etcd. It is asked every second whether it is there, and as
 * long as it answers, requests at it may end.
 */
#include <stdlib.h>

#include "http/call.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/forward.h"
#include "worker/core/worker.h"

#define PATIENCE_S 1u
#define PAUSE_S 1

struct md_probe {
	struct md_cluster *cluster;
	struct md_probe *next, **at;
	struct md_view_node *node; /* held as a request is */
	struct md_http_call *call;
	struct event *again;
	bool answers;
};

static void ask(struct md_probe *probe);

static void finish(struct md_probe *probe)
{
	struct md_pass_target *target = &probe->node->target;
	*probe->at = probe->next;
	if (probe->next)
		probe->next->at = probe->at;
	md_http_call_cancel(probe->call);
	if (probe->again)
		event_free(probe->again);
	probe->node->probed = false;
	free(probe);
	if (!--target->open)
		target->unused(target);
}

/* A node that has come back with another lease is believed, and one whose last request has ended is left alone. */
static void judge(struct md_probe *probe)
{
	const struct md_view_node *node = probe->node;
	bool doubtful = !node->listed || !md_view_has_lease(node);
	probe->call = NULL;
	if (!probe->answers && doubtful)
		md_passed_fail(probe->cluster->worker, &probe->node->target,
			       "its lease in the cluster has ended, and it does not answer");
	if (doubtful && md_view_open(node) > 1)
		event_add(probe->again, &(struct timeval){.tv_sec = PAUSE_S});
	else
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

static void ask(struct md_probe *probe)
{
	const struct md_pass_target *target = &probe->node->target;
	char path[280];
	probe->answers = false;
	snprintf(path, sizeof(path), "%s/health", target->prefix);
	probe->call = md_http_call_begin_by(probe->cluster->worker->base, &target->way, "GET", path, &calling, probe);
	if (!probe->call) {
		finish(probe);
		return;
	}
	md_http_call_header(probe->call, "Host", target->host);
	if (probe->cluster->settings.tls.given)
		md_http_call_header(probe->call, MD_FORWARD_NODE, probe->cluster->name);
	md_http_call_bound(probe->call, PATIENCE_S);
	md_http_call_send(probe->call, NULL, 0, PATIENCE_S, PATIENCE_S);
}

static void on_again(evutil_socket_t fd, short what, void *context)
{
	struct md_probe *probe = context;
	(void)fd, (void)what;
	if (md_view_open(probe->node) > 1)
		ask(probe);
	else
		finish(probe);
}

void md_probe_begin(struct md_cluster *cluster, struct md_view_node *node)
{
	struct md_probe *probe = node->probed ? NULL : calloc(1, sizeof(*probe));
	if (!probe)
		return; /* no memory: requests wait for what the node says, as they do without a cluster */
	*probe = (struct md_probe){.cluster = cluster, .next = cluster->probes, .at = &cluster->probes, .node = node};
	if (probe->next)
		probe->next->at = &probe->next;
	cluster->probes = probe;
	node->target.open++;
	node->probed = true;
	probe->again = evtimer_new(cluster->worker->base, on_again, probe);
	if (probe->again)
		ask(probe);
	else
		finish(probe);
}

void md_probe_end_all(struct md_cluster *cluster)
{
	while (cluster->probes)
		finish(cluster->probes);
}
