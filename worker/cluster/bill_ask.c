/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a node for its bill, and hands on what comes as it comes: nothing of it is kept or read here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "http/call.h"
#include "json/tree_text.h"
#include "worker/accounting/bill_reader.h"
#include "worker/cluster/cluster_bill.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/forward.h"
#include "worker/core/worker.h"

#define CONNECT_S 3u
#define LOOK_MS 200u
#define REASON_MAX 2000u /* bytes of an answer that is none, in which the reason is looked for */

struct md_bill_ask {
	struct md_cluster *cluster;
	const struct md_bill_ask_events *events;
	void *context;
	unsigned deadline_s;
	bool paused;
	uint64_t began, came_at; /* md_clock_ns() */
	struct event *look;
	/* of this node itself: */
	struct md_bill_reader *reader;
	bool works; /* the next piece is being read */
	/* of another one: */
	struct md_view_node *node; /* held as a request is */
	struct md_http_call *http;
	uint64_t bytes;
	unsigned status;
	struct md_buf reason;
	char refused[300]; /* why the answer is of no use; "": it may be */
};

static void free_ask(struct md_bill_ask *ask)
{
	md_bill_reader_end(ask->reader);
	md_http_call_cancel(ask->http);
	if (ask->look)
		event_free(ask->look);
	md_buf_finish(&ask->reason);
	struct md_pass_target *target = ask->node ? &ask->node->target : NULL;
	free(ask);
	if (target && !--target->open)
		target->unused(target);
}

static void end(struct md_bill_ask *ask, const char *why)
{
	const struct md_bill_ask_events *events = ask->events;
	void *context = ask->context;
	char copy[300];
	snprintf(copy, sizeof(copy), "%s", why ? why : "");
	free_ask(ask);
	events->ended(context, why ? copy : NULL);
}

/* ---- this node ---- */

static void on_piece(void *context, const char *bytes, size_t size, bool last)
{
	struct md_bill_ask *ask = context;
	ask->works = false;
	if (last)
		ask->reader = NULL;
	ask->events->piece(ask->context, bytes, size);
	if (last) {
		end(ask, NULL);
	} else if (!ask->paused) {
		ask->works = true;
		md_bill_reader_more(ask->reader);
	}
}

static void on_unread(void *context, const struct md_error *err)
{
	struct md_bill_ask *ask = context;
	ask->reader = NULL;
	end(ask, err->message);
}

static const struct md_bill_reader_events reading = {.piece = on_piece, .failed = on_unread};

static enum md_status read_own(struct md_bill_ask *ask, int64_t since, struct md_error *err)
{
	const struct md_cluster *cluster = ask->cluster;
	struct md_ledger *ledger = cluster->worker->ledger;
	if (!ledger)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "nothing is kept there: medusa.state is not set");
	ask->works = true;
	ask->reader = md_bill_reader_begin(ledger, cluster->name, cluster->identity, since, &reading, ask);
	return ask->reader ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
}

/* ---- another node ---- */

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_bill_ask *ask = context;
	ask->came_at = md_clock_ns();
	ask->status = head->status;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_bill_ask *ask = context;
	ask->came_at = md_clock_ns();
	ask->bytes += size;
	if (ask->status != 200) {
		if (ask->bytes <= REASON_MAX)
			md_buf_put(&ask->reason, bytes, size);
		return;
	}
	if (ask->bytes > MD_BILL_BYTES_MAX && !*ask->refused)
		snprintf(ask->refused, sizeof(ask->refused), "its bill has more than %u MiB", MD_BILL_BYTES_MAX >> 20);
	if (!*ask->refused)
		ask->events->piece(ask->context, bytes, size);
}

static void on_end(void *context)
{
	struct md_bill_ask *ask = context;
	char why[300];
	ask->http = NULL;
	if (ask->status == 200) {
		end(ask, *ask->refused ? ask->refused : NULL);
		return;
	}
	json_t *answer = md_jansson_parse((const char *)ask->reason.data, ask->reason.size, 0, NULL);
	const char *message = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
	snprintf(why, sizeof(why), "its answer is %u, and 200 is wanted%s%.200s%s", ask->status, message ? ": " : "",
		 message ? message : "",
		 ask->status == 404 || ask->status == 401 ? " (an earlier version knows nothing of bills of a cluster)"
							  : "");
	json_decref(answer);
	end(ask, why);
}

static void on_failed(void *context, const char *why)
{
	struct md_bill_ask *ask = context;
	ask->http = NULL;
	end(ask, *ask->refused ? ask->refused : why);
}

static const struct md_http_call_events asking = {.head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

static enum md_status call_node(struct md_bill_ask *ask, int64_t since, struct md_error *err)
{
	struct md_pass_target *target = &ask->node->target;
	struct event_base *base = ask->cluster->worker->base;
	char path[320];
	snprintf(path, sizeof(path), "%s" MD_BILL_PATH "%" PRId64, target->prefix, since);
	ask->http = md_http_call_begin_by(base, &target->way, "GET", path, &asking, ask);
	if (!ask->http)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a question to node %s", ask->node->name);
	md_http_call_header(ask->http, "Host", target->host);
	md_http_call_header(ask->http, "Accept-Encoding", "identity");
	md_http_call_header(ask->http, MD_FORWARD_NODE, target->node);
	if (target->node_key)
		md_http_call_header(ask->http, MD_FORWARD_NODE_KEY, target->node_key);
	md_http_call_send(ask->http, NULL, 0, ask->deadline_s < CONNECT_S ? ask->deadline_s : CONNECT_S,
			  ask->deadline_s);
	return MD_OK;
}

/* ---- both ---- */

/* Of this node nothing is late: who asked has nobody else to ask, but must take what comes, because SQLite keeps the file as it was meanwhile. */
static void on_look(evutil_socket_t fd, short what, void *context)
{
	struct md_bill_ask *ask = context;
	char why[80];
	uint64_t now = md_clock_ns(), deadline = ask->deadline_s * UINT64_C(1000000000);
	(void)fd, (void)what;
	if (*ask->refused) {
		end(ask, ask->refused);
	} else if (ask->http && !ask->paused && now - ask->came_at > deadline) {
		snprintf(why, sizeof(why), "nothing has come from it for %u s", ask->deadline_s);
		end(ask, why);
	} else if (now - ask->began > MD_BILL_WHOLE * deadline) {
		snprintf(why, sizeof(why), "its bill takes more than %u s", MD_BILL_WHOLE * ask->deadline_s);
		end(ask, why);
	}
}

static enum md_status find_node(struct md_bill_ask *ask, const char *name, struct md_error *err)
{
	struct md_view_node *node = md_view_find(ask->cluster->view, name);
	if (node && *node->why)
		return md_error_set(err, MD_ERR_INVALID, "what it says of itself can't be read: %.200s", node->why);
	if (!node || !node->record)
		return md_error_set(err, MD_ERR_NOT_FOUND, "the cluster has no node \"%.64s\"", name);
	ask->node = node;
	node->target.open++;
	return MD_OK;
}

enum md_status md_bill_ask_begin(struct md_cluster *cluster, const char *node, int64_t since, unsigned deadline_s,
				 const struct md_bill_ask_events *events, void *context, struct md_bill_ask **made,
				 struct md_error *err)
{
	struct md_bill_ask *ask = calloc(1, sizeof(*ask));
	if (!ask)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a question to a node");
	*ask = (struct md_bill_ask){.cluster = cluster, .events = events, .context = context, .deadline_s = deadline_s};
	enum md_status status;
	ask->began = ask->came_at = md_clock_ns();
	ask->look = event_new(cluster->worker->base, -1, EV_PERSIST, on_look, ask);
	if (!ask->look || event_add(ask->look, &(struct timeval){.tv_usec = LOOK_MS * 1000}))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a timer");
	else if (!strcmp(node, cluster->name))
		status = read_own(ask, since, err);
	else if ((status = find_node(ask, node, err)) == MD_OK)
		status = call_node(ask, since, err);
	if (status == MD_OK)
		*made = ask;
	else
		free_ask(ask);
	return status;
}

void md_bill_ask_pause(struct md_bill_ask *ask, bool paused)
{
	if (ask->paused == paused)
		return;
	ask->paused = paused;
	ask->came_at = md_clock_ns();
	if (ask->http)
		md_http_call_pause(ask->http, paused);
	if (paused || !ask->reader || ask->works)
		return;
	ask->works = true;
	md_bill_reader_more(ask->reader);
}

void md_bill_ask_cancel(struct md_bill_ask *ask)
{
	free_ask(ask);
}
