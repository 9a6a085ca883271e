/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/passed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/accounting/usage_scan.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/answer_kind.h"
#include "worker/core/api_keys.h"
#include "worker/core/forward.h"
#include "worker/core/relay.h"
#include "worker/core/worker.h"

#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow client before the target is made to wait */

struct md_passed {
	struct md_worker *worker;
	struct md_passed *next, **at; /* in the worker's list */
	struct md_pass_target *target;
	uint32_t *unfinished; /* NULL: nobody counts */
	struct md_relay relay;
	struct md_usage_scan scan; /* until_close: whether the answer itself says that it is whole */
	bool until_close;
	bool once;
	bool good;     /* what it answers is no error */
	bool declined; /* the target takes no requests: what it says besides is not the client's */
	struct md_http_call *call;
	char *path, *body;
	size_t body_size;
	struct md_prefix_request *prefix; /* of a request at a node of the cluster; NULL: none */
};

bool md_pass_target_read(struct md_pass_target *target, const char *url, struct md_http_outside *outside)
{
	if (!md_http_remote_read(url, &target->remote, target->prefix, target->host))
		return false;
	target->remote.outside = outside;
	target->way = md_http_remote_way(&target->remote, target->kind);
	return true;
}

/* ---- the end of a request ---- */

static void let_go(struct md_pass_target *target)
{
	if (!--target->open && target->unused)
		target->unused(target);
}

/* The exchange is the caller's, and so is what it holds of the target. */
static void finish(struct md_passed *passed)
{
	struct md_pass_target *target = passed->target;
	if (passed->unfinished)
		--*passed->unfinished;
	passed->worker->passed_count--;
	*passed->at = passed->next;
	if (passed->next)
		passed->next->at = passed->at;
	md_http_call_cancel(passed->call);
	md_relay_finish(&passed->relay);
	free(passed->path);
	free(passed->body);
	free(passed->prefix);
	free(passed);
	let_go(target);
}

void md_passed_end_all(struct md_worker *worker)
{
	while (worker->passed)
		finish(worker->passed);
}

size_t md_passed_open(const struct md_worker *worker)
{
	return worker->passed_count;
}

bool md_passed_use(const struct md_worker *worker, const struct md_worker_config *config)
{
	for (const struct md_passed *at = worker->passed; at; at = at->next)
		if (at->target->config == config)
			return true;
	return false;
}

/* Nothing of an answer has come. False: nobody else takes it, and the request is still there. */
static bool try_elsewhere(struct md_passed *passed, const char *why)
{
	struct md_worker *worker = passed->worker;
	struct md_pass_target *target = passed->target;
	struct md_http_exchange *exchange = passed->relay.exchange;
	bool tried = exchange && !passed->relay.head_sent && !passed->once && target->again &&
		     target->again(worker, target, exchange, why);
	if (tried)
		finish(passed);
	return tried;
}

static void end_failed(struct md_passed *passed, const char *why)
{
	char message[400];
	passed->target->counts->failed++;
	md_prefixes_passed_failed(passed->worker, passed->prefix, passed->target);
	if (try_elsewhere(passed, why))
		return;
	snprintf(message, sizeof(message), "%s %.60s: %.300s", passed->target->kind, passed->target->id, why);
	if (passed->declined)
		md_relay_fail(&passed->relay, MD_REPLY_UNAVAILABLE, "draining", message);
	else
		md_relay_fail(&passed->relay, MD_REPLY_UPSTREAM, "peer_failed", message);
	finish(passed);
}

/* This daemon had no memory or no descriptor: the peer or node is as good as before, and another one can't be asked either. */
static void end_lacking(struct md_passed *passed, const char *why)
{
	char message[400];
	passed->target->counts->failed++;
	md_prefixes_passed_failed(passed->worker, passed->prefix, passed->target);
	snprintf(message, sizeof(message), "%s %.60s: %.300s", passed->target->kind, passed->target->id, why);
	md_relay_fail(&passed->relay, MD_REPLY_UNAVAILABLE, "unavailable", message);
	finish(passed);
}

void md_passed_fail(struct md_worker *worker, const struct md_pass_target *target, const char *why)
{
	for (struct md_passed *at = worker->passed, *next; at; at = next) {
		next = at->next;
		if (at->target == target)
			end_failed(at, why);
	}
}

void md_passed_cut(struct md_worker *worker)
{
	while (worker->passed) {
		struct md_passed *passed = worker->passed;
		passed->target->counts->failed++;
		md_relay_fail(&passed->relay, MD_REPLY_UNAVAILABLE, "draining", "the daemon ends");
		finish(passed);
	}
}

/* ---- the client ---- */

static void on_gone(void *context)
{
	struct md_passed *passed = context;
	passed->relay.exchange = NULL;
	passed->target->counts->cancelled++;
	finish(passed);
}

static void on_drained(void *context)
{
	md_http_call_pause(((struct md_passed *)context)->call, false);
}

static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};

/* ---- the answer ---- */

/* A node of the cluster that takes no requests has not begun with this one. */
static bool declines(const struct md_passed *passed, const struct md_http_head *head)
{
	const char *code = md_http_head_find(head, MD_REPLY_CODE_HEADER);
	return passed->target->again && head->status == 503 && code && !strcmp(code, "draining");
}

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_passed *passed = context;
	passed->declined = declines(passed, head);
	if (passed->declined)
		return;
	passed->relay.head_sent = true;
	passed->until_close = head->until_close;
	passed->scan.kind = md_answer_kind(head);
	passed->good = head->status / 100 == 2;
	md_relay_head(&passed->relay, head);
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_passed *passed = context;
	if (passed->declined)
		return;
	if (passed->good)
		md_prefixes_passed_answers(passed->worker, passed->prefix, passed->target);
	if (passed->until_close)
		md_usage_scan(&passed->scan, bytes, size);
	if (md_relay_body(&passed->relay, bytes, size) > UNSENT_MAX)
		md_http_call_pause(passed->call, true);
}

static void end_served(struct md_passed *passed)
{
	struct md_http_exchange *exchange = passed->relay.exchange;
	passed->target->counts->served++;
	md_relay_end(&passed->relay);
	finish(passed);
	md_http_answer_end(exchange);
}

static void on_end(void *context)
{
	struct md_passed *passed = context;
	passed->call = NULL;
	if (passed->declined)
		end_failed(passed, "it takes no more requests");
	else if (passed->until_close && md_usage_scan_is_half(&passed->scan))
		end_failed(passed, "the connection ended within the JSON of its answer");
	else
		end_served(passed);
}

/* Many servers close a TLS connection without saying so. An answer that says itself that all of it has come is whole. */
static void on_failed(void *context, const char *why)
{
	struct md_passed *passed = context;
	passed->call = NULL;
	if (passed->until_close && md_usage_scan_is_whole(&passed->scan))
		end_served(passed);
	else
		end_failed(passed, why);
}

static void on_lacking(void *context, const char *why)
{
	struct md_passed *passed = context;
	passed->call = NULL;
	end_lacking(passed, why);
}

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed, .lacking = on_lacking};

/* ---- the request ---- */

/* A node that is asked for what it has asked for itself would ask for ever. */
static bool was_here(const struct md_worker *worker, const struct md_http_exchange *exchange)
{
	const struct md_http_head *head = md_http_exchange_head(exchange);
	for (uint32_t i = 0; i < head->count; i++)
		if (!strcasecmp(md_http_head_name(head, i), "Via") &&
		    strstr(md_http_head_value(head, i), worker->node_name))
			return true;
	return false;
}

/* Requests for the cluster's models go on while this node itself is drained, but not when its daemon is to end. */
static bool takes_no_more(const struct md_worker *worker, const struct md_pass_target *target)
{
	return target->node ? md_drain_ends(worker->drain) : md_drain_is_on(worker->drain);
}

/* False: the client has been told why not. */
static bool admit(struct md_worker *worker, struct md_http_exchange *exchange, const struct md_pass_target *target)
{
	target->counts->taken++;
	if (takes_no_more(worker, target))
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, "draining", "the daemon takes no more requests");
	else if (was_here(worker, exchange))
		md_reply_error(exchange, MD_REPLY_LOOP, NULL,
			       "%s %.60s: the request has been here already: peers name each other for its model",
			       target->kind, target->id);
	else
		return true;
	target->counts->refused++;
	return false;
}

static void send_request(struct md_passed *passed)
{
	struct md_http_exchange *exchange = passed->relay.exchange;
	const struct md_pass_target *target = passed->target;
	struct md_worker *worker = passed->worker;
	size_t size = passed->body_size;
	const char *body = passed->body ? passed->body : md_http_exchange_body(exchange, &size);
	char via[sizeof(worker->node_name) + 8], client[MD_USAGE_KEY_BYTES] = "";
	passed->call = md_http_call_begin_by(worker->base, &target->way, md_http_exchange_head(exchange)->method,
					     passed->path, &calling, passed);
	if (!passed->call) {
		end_lacking(passed, "out of memory for the request");
		return;
	}
	snprintf(via, sizeof(via), "1.1 %s", worker->node_name);
	if (target->names_clients)
		md_keys_name(worker->config, md_http_exchange_head(exchange), client, sizeof(client));
	md_forward_headers(passed->call, exchange,
			   &(struct md_forward){.host = target->host,
						.host_is_theirs = true,
						.keys = worker->passes_keys || (target->node && !target->names_clients),
						.key = target->api_key,
						.node = target->node,
						.node_key = target->node_key,
						.client = client,
						.via = via});
	md_http_call_send(passed->call, body, size, target->connect_s, target->answer_s);
}

void md_pass_begin(struct md_worker *worker, struct md_http_exchange *exchange, const struct md_pass_request *request)
{
	struct md_pass_target *target = request->target;
	struct md_passed *passed = NULL;
	char *path = NULL;
	bool admitted = admit(worker, exchange, target);
	if (admitted && request->path && asprintf(&path, "%s%s", target->prefix, request->path) < 0)
		path = NULL;
	free(request->path);
	if (path)
		passed = calloc(1, sizeof(*passed));
	if (!passed) {
		free(path);
		free(request->body);
		if (admitted) {
			target->counts->refused++;
			md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the request");
		}
		return;
	}
	*passed = (struct md_passed){.worker = worker,
				     .next = worker->passed,
				     .at = &worker->passed,
				     .target = target,
				     .unfinished = request->unfinished,
				     .relay = {.exchange = exchange, .stream = request->stream},
				     .once = request->once,
				     .path = path,
				     .body = request->body,
				     .body_size = request->body_size,
				     .prefix = target->node ? md_prefixes_take(worker) : NULL};
	if (passed->next)
		passed->next->at = &passed->next;
	worker->passed = passed;
	worker->passed_count++;
	target->open++;
	if (passed->unfinished)
		++*passed->unfinished;
	md_http_exchange_watch(exchange, &watching, passed);
	send_request(passed);
}
