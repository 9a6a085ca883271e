/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes, as the configuration names them: requests for their models are passed on. */
#ifndef MD_WORKER_CORE_PEER_H
#define MD_WORKER_CORE_PEER_H

#include "worker/core/passed.h"

struct md_peers; /* of one configuration */

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
/* What was asked of it since the daemon began, or since it was in no configuration. */
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
void md_peer_take(struct md_worker *worker, struct md_http_exchange *exchange, const struct md_peer_request *request);

#endif
