/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes: requests for their models are passed on, and the answers as they come. */
#ifndef MD_WORKER_CORE_PEER_H
#define MD_WORKER_CORE_PEER_H

#include "http/front.h"
#include "http/outside.h"
#include "worker/config/config.h"

struct md_worker;
struct md_peers; /* of one configuration */

/* What was asked of a peer since the daemon began, or since it was in no configuration; each request ends in one of the others. */
struct md_peer_counts {
	uint64_t taken, served, failed, cancelled, refused;
};

/* What peers of a configuration need of files, which are read outside of the loop; NULL: nothing. */
enum md_status md_peers_trust(const struct md_worker_config *config, struct md_http_trust **trust,
			      struct md_error *err);
/*
 * Those of the configuration. Counts go on where a peer of that ID was there before (previous; NULL: none). trust is taken
 * over, also on failure.
 */
enum md_status md_peers_create(struct md_worker *worker, const struct md_worker_config *config,
			       const struct md_peers *previous, struct md_http_trust *trust, struct md_peers **made,
			       struct md_error *err);
/* No new requests come. They live until the last one has ended. NULL is fine. */
void md_peers_retire(struct md_peers *peers);
/* The daemon ends, and they have had their time: clients are told so. */
void md_peers_cut(struct md_worker *worker);
void md_peers_end_all(struct md_worker *worker);      /* the daemon ends: requests are dropped */
size_t md_peers_open(const struct md_worker *worker); /* requests that have not ended, of earlier configurations, too */
bool md_peers_use(const struct md_worker *worker, const struct md_worker_config *config); /* one of them needs it */

struct md_peer_counts md_peer_counts_of(const struct md_peers *peers, uint32_t peer);
/* Requests of a model of a peer's that have not ended; model: as the configuration lists it. */
uint32_t md_peer_unfinished(const struct md_peers *peers, uint32_t peer, const char *model);

/* target: at the peer, without its URL's prefix; target and body (NULL: the exchange's) are taken over. */
struct md_peer_request {
	uint32_t peer;
	const char *model; /* as the configuration lists it */
	char *target, *body;
	size_t body_size;
	bool stream;
};
void md_peer_take(struct md_worker *worker, struct md_http_exchange *exchange, struct md_peer_request request);

#endif
