/* SPDX-License-Identifier: Apache-2.0 */
/* GET /medusa/bill/SINCE, for other nodes: pieces are read on the ledger's thread, and the next one when what was written has been sent. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/accounting/bill_reader.h"
#include "worker/cluster/cluster_bill.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/reply.h"
#include "worker/core/worker.h"

#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow reader: the rest waits until they are sent */
#define SERVERS_MAX 16u
#define SINCE_MAX INT64_C(1000000000000)
#define BEATS_MAX 3600u /* seconds: SQLite keeps the file as it was when the bill began for so long at most */

struct bill_server {
	struct md_cluster *cluster;
	struct md_http_exchange *exchange;
	struct md_bill_reader *reader;
	struct event *beat;
	unsigned beats;
	bool works; /* the next piece is being read */
};

static void free_server(struct bill_server *server)
{
	server->cluster->bill_servers--;
	md_bill_reader_end(server->reader);
	if (server->beat)
		event_free(server->beat);
	free(server);
}

static void on_gone(void *context)
{
	free_server(context);
}

static void go_on(struct bill_server *server)
{
	server->works = true;
	md_bill_reader_more(server->reader);
}

static void on_drained(void *context)
{
	struct bill_server *server = context;
	if (!server->works)
		go_on(server);
}

static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};

static void end_answer(struct bill_server *server)
{
	struct md_http_exchange *exchange = server->exchange;
	server->reader = NULL;
	free_server(server);
	md_http_answer_end(exchange);
}

static void on_piece(void *context, const char *bytes, size_t size, bool last)
{
	struct bill_server *server = context;
	size_t unsent = md_http_answer_write(server->exchange, bytes, size);
	server->works = false;
	if (last)
		end_answer(server);
	else if (unsent <= UNSENT_MAX)
		go_on(server);
}

/* The answer has begun, so that the reason is a line of it. */
static void on_failed(void *context, const struct md_error *err)
{
	struct bill_server *server = context;
	json_t *line = json_pack("{s:o}", "error", md_jansson_text(err->message));
	MD_AUTO_FREE char *text = line ? md_jansson_print(line, JSON_COMPACT) : NULL;
	json_decref(line);
	if (text) {
		md_http_answer_write(server->exchange, text, strlen(text));
		md_http_answer_write(server->exchange, "\n", 1);
	}
	end_answer(server);
}

static const struct md_bill_reader_events reading = {.piece = on_piece, .failed = on_failed};

/* An empty line says that the node works: whoever asks has a deadline for those that hang. */
static void on_beat(evutil_socket_t fd, short what, void *context)
{
	struct bill_server *server = context;
	(void)fd, (void)what;
	if (++server->beats > BEATS_MAX)
		md_http_exchange_drop(server->exchange);
	else if (server->works)
		md_http_answer_write(server->exchange, "\n", 1);
}

static void serve(struct md_worker *worker, struct md_http_exchange *exchange, int64_t since)
{
	struct md_cluster *cluster = worker->cluster;
	struct bill_server *server = cluster->bill_servers < SERVERS_MAX ? calloc(1, sizeof(*server)) : NULL;
	if (!server) {
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "this node is asked for %u bills already",
			       cluster->bill_servers);
		return;
	}
	cluster->bill_servers++;
	*server = (struct bill_server){.cluster = cluster, .exchange = exchange, .works = true};
	server->beat = event_new(worker->base, -1, EV_PERSIST, on_beat, server);
	if (server->beat && !event_add(server->beat, &(struct timeval){.tv_sec = 1}))
		server->reader =
		    md_bill_reader_begin(worker->ledger, cluster->name, cluster->identity, since, &reading, server);
	if (!server->reader) {
		free_server(server);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the bill");
		return;
	}
	md_http_exchange_watch(exchange, &watching, server);
	md_http_answer_begin(exchange, 200, -1);
	md_http_answer_header(exchange, "Content-Type", "application/x-ndjson");
	md_http_answer_body(exchange);
}

/* Seconds since 1970; below 0: none. */
static int64_t read_since(const char *text)
{
	char *end;
	if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 12 || !*text)
		return -1;
	int64_t since = strtoll(text, &end, 10);
	return since <= SINCE_MAX ? since : -1;
}

/* Who is not proved to be a node learns nothing, not even whether anything is kept. */
bool md_bill_answer(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const struct md_http_head *head = md_http_exchange_head(exchange);
	size_t prefix = strlen(MD_BILL_PATH);
	if (strncmp(path, MD_BILL_PATH, prefix) != 0 || !worker->cluster || strcmp(head->method, "GET") != 0)
		return false;
	int64_t since = read_since(path + prefix);
	if (!md_cluster_vouches(worker->cluster, head))
		md_reply_error(
		    exchange, MD_REPLY_FORBIDDEN, NULL,
		    "bills are for nodes that prove that they are of the cluster (medusa.cluster.tls or key_file)");
	else if (since < 0)
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, NULL,
			       "a number of seconds since 1970 is wanted behind " MD_BILL_PATH);
	else if (!worker->ledger)
		md_reply_error(exchange, MD_REPLY_CONFLICT, "bill_not_kept",
			       "nothing is kept there: medusa.state is not set");
	else
		serve(worker, exchange, since);
	return true;
}
