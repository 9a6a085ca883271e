/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/peer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/worker.h"

struct peer {
	struct md_pass_target target;
	struct md_peers *peers;
	const struct md_config_peer *config;
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
	bool retired;
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

static bool are_used(const struct md_peers *peers)
{
	for (uint32_t i = 0; i < peers->count; i++)
		if (peers->items[i].target.open)
			return true;
	return false;
}

static void on_unused(struct md_pass_target *target)
{
	struct md_peers *peers = ((struct peer *)target)->peers;
	if (peers->retired && !are_used(peers))
		free_peers(peers);
}

static enum md_status make_peer(struct md_peers *peers, const struct md_config_peer *config,
				const struct md_peers *previous, struct md_error *err)
{
	struct peer *peer = &peers->items[peers->count];
	struct md_pass_target *target = &peer->target;
	*peer = (struct peer){.peers = peers, .config = config};
	*target = (struct md_pass_target){.kind = "peer",
					  .id = config->id,
					  .config = peers->config,
					  .answer_s = seconds(config->timeouts.response_header_ns),
					  .api_key = config->api_key,
					  .unused = on_unused};
	if (!md_pass_target_read(target, config->proxy, peers->outside))
		return md_error_set(
		    err, MD_ERR_CORRUPT,
		    "peers.%.60s.proxy: http://HOST[:PORT][/PATH] is wanted, or with https, with at most "
		    "255 bytes of host and of path, and without a user or a query",
		    config->id);
	target->connect_s = seconds(config->timeouts.connect_ns) +
			    (target->remote.tls ? seconds(config->timeouts.tls_handshake_ns) : 0);
	peer->unfinished = calloc(config->models.count, sizeof(*peer->unfinished));
	struct counted *counted = find_counted(previous, config->id);
	if (counted)
		counted->refs++;
	peers->counted[peers->count++] = counted;
	if (!peer->unfinished || !counted)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for peers.%.60s", config->id);
	target->counts = &counted->counts;
	return MD_OK;
}

enum md_status md_peers_trust(const struct md_worker_config *config, struct md_http_trust **trust, struct md_error *err)
{
	*trust = NULL;
	for (uint32_t i = 0; i < config->peer_count; i++)
		if (!strncasecmp(config->peers[i].proxy, "https:", 6))
			return md_http_trust_create(NULL, trust, err);
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
	if (!are_used(peers))
		free_peers(peers);
}

struct md_peer_counts md_peer_counts_of(const struct md_peers *peers, uint32_t peer)
{
	return *peers->items[peer].target.counts;
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

void md_peer_take(struct md_worker *worker, struct md_http_exchange *exchange, const struct md_peer_request *request)
{
	struct peer *peer = &worker->peers->items[request->peer];
	md_pass_begin(worker, exchange,
		      &(struct md_pass_request){.target = &peer->target,
						.unfinished = &peer->unfinished[model_of(peer->config, request->model)],
						.path = request->target,
						.body = request->body,
						.body_size = request->body_size,
						.stream = request->stream});
}
