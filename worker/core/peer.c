/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/accounting/usage_scan.h"
#include "worker/core/forward.h"
#include "worker/core/relay.h"
#include "worker/core/worker.h"

#define UNSENT_MAX (256u << 10) /* bytes that wait for a slow client before the peer is made to wait */

struct peer {
	const struct md_config_peer *config;
	struct md_http_remote remote;
	struct md_http_way way;
	char prefix[256], host[272]; /* of its URL */
	unsigned connect_s, answer_s;
	struct md_peer_counts *counts;
	uint32_t *unfinished; /* by its models */
};

/* What peers of one ID have counted, in this configuration and those before. */
struct counted {
	struct md_peer_counts counts;
	unsigned refs;
};

struct md_peers {
	struct md_worker *worker;
	const struct md_worker_config *config;
	struct md_http_outside *outside;
	struct peer *items;
	struct counted **counted; /* by peers; references */
	uint32_t count;
	uint32_t open; /* requests that have not ended */
	bool retired;
};

struct md_passed {
	struct md_peers *peers;
	struct md_passed *next, **at; /* in the worker's list */
	struct peer *peer;
	uint32_t model; /* of the peer's */
	struct md_relay relay;
	struct md_usage_scan scan; /* until_close: whether the answer itself says that it is whole */
	bool until_close;
	struct md_http_call *call;
	char *target, *body;
	size_t body_size;
};

/* ---- peers of a configuration ---- */

static void free_peers(struct md_peers *peers)
{
	for (uint32_t i = 0; i < peers->count; i++) {
		free(peers->items[i].unfinished);
		if (peers->counted[i] && !--peers->counted[i]->refs)
			free(peers->counted[i]);
	}
	md_http_outside_destroy(peers->outside);
	free(peers->items);
	free(peers->counted);
	free(peers);
}

static struct counted *find_counted(const struct md_peers *previous, const char *id)
{
	for (uint32_t i = 0; previous && i < previous->count; i++)
		if (!strcmp(previous->items[i].config->id, id))
			return previous->counted[i];
	return calloc(1, sizeof(struct counted));
}

static unsigned seconds(uint64_t ns)
{
	return (unsigned)(ns / 1000000000u);
}

static enum md_status make_peer(struct md_peers *peers, const struct md_config_peer *config,
				const struct md_peers *previous, struct md_error *err)
{
	struct peer *peer = &peers->items[peers->count];
	peer->config = config;
	if (!md_http_remote_read(config->proxy, &peer->remote, peer->prefix, peer->host))
		return md_error_set(
		    err, MD_ERR_CORRUPT,
		    "peers.%.60s.proxy: http://HOST[:PORT][/PATH] is wanted, or with https, with at most "
		    "255 bytes of host and of path, and without a user or a query",
		    config->id);
	peer->remote.outside = peers->outside;
	peer->way = md_http_remote_way(&peer->remote, "peer");
	peer->connect_s =
	    seconds(config->timeouts.connect_ns) + (peer->remote.tls ? seconds(config->timeouts.tls_handshake_ns) : 0);
	peer->answer_s = seconds(config->timeouts.response_header_ns);
	peer->unfinished = calloc(config->models.count, sizeof(*peer->unfinished));
	struct counted *counted = find_counted(previous, config->id);
	if (counted)
		counted->refs++;
	peers->counted[peers->count++] = counted;
	if (!peer->unfinished || !counted)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for peers.%.60s", config->id);
	peer->counts = &counted->counts;
	return MD_OK;
}

enum md_status md_peers_trust(const struct md_worker_config *config, struct md_http_trust **trust, struct md_error *err)
{
	*trust = NULL;
	for (uint32_t i = 0; i < config->peer_count; i++)
		if (!strncasecmp(config->peers[i].proxy, "https:", 6))
			return md_http_trust_create(trust, err);
	return MD_OK;
}

enum md_status md_peers_create(struct md_worker *worker, const struct md_worker_config *config,
			       const struct md_peers *previous, struct md_http_trust *trust, struct md_peers **made,
			       struct md_error *err)
{
	struct md_peers *peers = calloc(1, sizeof(*peers));
	enum md_status status = MD_OK;
	if (peers) {
		peers->worker = worker;
		peers->config = config;
		peers->items = calloc(config->peer_count + 1, sizeof(*peers->items));
		peers->counted = calloc(config->peer_count + 1, sizeof(struct counted *));
	}
	if (!peers || !peers->items || !peers->counted)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for peers");
	if (status == MD_OK && config->peer_count)
		status = md_http_outside_create(worker->base, trust, &peers->outside, err);
	else
		md_http_trust_destroy(trust);
	for (uint32_t i = 0; status == MD_OK && i < config->peer_count; i++)
		status = make_peer(peers, &config->peers[i], previous, err);
	if (status == MD_OK)
		*made = peers;
	else if (peers)
		free_peers(peers);
	return status;
}

void md_peers_retire(struct md_peers *peers)
{
	if (!peers)
		return;
	peers->retired = true;
	if (!peers->open)
		free_peers(peers);
}

struct md_peer_counts md_peer_counts_of(const struct md_peers *peers, uint32_t peer)
{
	return *peers->items[peer].counts;
}

static uint32_t model_of(const struct md_config_peer *config, const char *name)
{
	uint32_t at = 0;
	while (at + 1 < config->models.count && strcmp(config->models.items[at], name) != 0)
		at++;
	return at;
}

uint32_t md_peer_unfinished(const struct md_peers *peers, uint32_t peer, const char *model)
{
	return peers->items[peer].unfinished[model_of(peers->items[peer].config, model)];
}

/* ---- the end of a request ---- */

static void finish(struct md_passed *passed)
{
	struct md_peers *peers = passed->peers;
	passed->peer->unfinished[passed->model]--;
	peers->worker->passed_count--;
	*passed->at = passed->next;
	if (passed->next)
		passed->next->at = passed->at;
	md_http_call_cancel(passed->call);
	md_relay_finish(&passed->relay);
	free(passed->target);
	free(passed->body);
	free(passed);
	if (!--peers->open && peers->retired)
		free_peers(peers);
}

void md_peers_end_all(struct md_worker *worker)
{
	while (worker->passed)
		finish(worker->passed);
}

size_t md_peers_open(const struct md_worker *worker)
{
	return worker->passed_count;
}

bool md_peers_use(const struct md_worker *worker, const struct md_worker_config *config)
{
	for (const struct md_passed *at = worker->passed; at; at = at->next)
		if (at->peers->config == config)
			return true;
	return false;
}

static void end_failed(struct md_passed *passed, const char *why)
{
	char message[400];
	snprintf(message, sizeof(message), "peer %.60s: %.300s", passed->peer->config->id, why);
	passed->peer->counts->failed++;
	md_relay_fail(&passed->relay, MD_REPLY_UPSTREAM, "peer_failed", message);
	finish(passed);
}

void md_peers_cut(struct md_worker *worker)
{
	while (worker->passed) {
		struct md_passed *passed = worker->passed;
		passed->peer->counts->failed++;
		md_relay_fail(&passed->relay, MD_REPLY_UNAVAILABLE, "draining", "the daemon ends");
		finish(passed);
	}
}

/* ---- the client ---- */

static void on_gone(void *context)
{
	struct md_passed *passed = context;
	passed->relay.exchange = NULL;
	passed->peer->counts->cancelled++;
	finish(passed);
}

static void on_drained(void *context)
{
	md_http_call_pause(((struct md_passed *)context)->call, false);
}

static const struct md_http_exchange_events watching = {.gone = on_gone, .drained = on_drained};

/* ---- the answer ---- */

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_passed *passed = context;
	passed->relay.head_sent = true;
	passed->until_close = head->until_close;
	passed->scan.kind = md_answer_kind(head);
	md_relay_head(&passed->relay, head);
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_passed *passed = context;
	if (passed->until_close)
		md_usage_scan(&passed->scan, bytes, size);
	if (md_relay_body(&passed->relay, bytes, size) > UNSENT_MAX)
		md_http_call_pause(passed->call, true);
}

static void end_served(struct md_passed *passed)
{
	struct md_http_exchange *exchange = passed->relay.exchange;
	passed->peer->counts->served++;
	md_relay_end(&passed->relay);
	finish(passed);
	md_http_answer_end(exchange);
}

static void on_end(void *context)
{
	struct md_passed *passed = context;
	passed->call = NULL;
	if (passed->until_close && md_usage_scan_is_half(&passed->scan))
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

static const struct md_http_call_events calling = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

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

/* False: the client has been told why not. */
static bool admit(struct md_worker *worker, struct md_http_exchange *exchange, struct md_peer_counts *counts,
		  const char *id)
{
	counts->taken++;
	if (md_drain_is_on(worker->drain))
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, "draining", "the daemon takes no more requests");
	else if (was_here(worker, exchange))
		md_reply_error(exchange, MD_REPLY_LOOP, NULL,
			       "peer %.60s: the request has been here already: peers name each other for its model",
			       id);
	else
		return true;
	counts->refused++;
	return false;
}

static void send_request(struct md_passed *passed)
{
	struct md_http_exchange *exchange = passed->relay.exchange;
	struct peer *peer = passed->peer;
	struct md_worker *worker = passed->peers->worker;
	size_t size = passed->body_size;
	const char *body = passed->body ? passed->body : md_http_exchange_body(exchange, &size);
	char via[sizeof(worker->node_name) + 8];
	passed->call = md_http_call_begin_by(worker->base, &peer->way, md_http_exchange_head(exchange)->method,
					     passed->target, &calling, passed);
	if (!passed->call) {
		end_failed(passed, "out of memory for the request");
		return;
	}
	snprintf(via, sizeof(via), "1.1 %s", worker->node_name);
	md_forward_headers(passed->call, exchange,
			   &(struct md_forward){.host = peer->host,
						.host_is_theirs = true,
						.keys = worker->passes_keys,
						.key = peer->config->api_key,
						.via = via});
	md_http_call_send(passed->call, body, size, peer->connect_s, peer->answer_s);
}

void md_peer_take(struct md_worker *worker, struct md_http_exchange *exchange, struct md_peer_request request)
{
	struct md_peers *peers = worker->peers;
	struct peer *peer = &peers->items[request.peer];
	struct md_passed *passed = NULL;
	char *target = NULL;
	bool admitted = admit(worker, exchange, peer->counts, peer->config->id);
	if (admitted && request.target && asprintf(&target, "%s%s", peer->prefix, request.target) < 0)
		target = NULL;
	free(request.target);
	if (target)
		passed = calloc(1, sizeof(*passed));
	if (!passed) {
		free(target);
		free(request.body);
		if (admitted) {
			peer->counts->refused++;
			md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the request");
		}
		return;
	}
	*passed = (struct md_passed){.peers = peers,
				     .next = worker->passed,
				     .at = &worker->passed,
				     .peer = peer,
				     .model = model_of(peer->config, request.model),
				     .relay = {.exchange = exchange, .stream = request.stream},
				     .target = target,
				     .body = request.body,
				     .body_size = request.body_size};
	if (passed->next)
		passed->next->at = &passed->next;
	worker->passed = passed;
	worker->passed_count++;
	peers->open++;
	peer->unfinished[passed->model]++;
	md_http_exchange_watch(exchange, &watching, passed);
	send_request(passed);
}
