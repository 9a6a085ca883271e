/* SPDX-License-Identifier: Apache-2.0 */
/* Where an engine serves, as its `proxy` says. */
#ifndef MD_WORKER_CORE_ENGINE_URL_H
#define MD_WORKER_CORE_ENGINE_URL_H

#include "http/address.h"
#include "worker/config/config.h"

struct md_engine_url {
	char host[256]; /* with the port, for the Host header */
	char prefix[256];
	struct md_http_address address;
};

/*
 * Of each model: http://HOST[:PORT][/PREFIX]. The lookup of a name waits, so the loop must not call it. The caller frees
 * *urls.
 */
enum md_status md_engine_url_read_all(const struct md_worker_config *config, struct md_engine_url **urls,
				      struct md_error *err);

#endif
