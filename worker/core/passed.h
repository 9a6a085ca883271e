/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that other nodes answer: each is passed on with its body, and the answer as it comes. */
#ifndef MD_WORKER_CORE_PASSED_H
#define MD_WORKER_CORE_PASSED_H

#include "http/front.h"
#include "http/outside.h"
#include "worker/config/config.h"

struct md_worker;

/* What was asked of another node; each request that was taken and has ended is in one of the others. */
struct md_peer_counts {
	uint64_t taken, served, failed, cancelled, refused;
};

/* Who answers instead of this node. The owner keeps it in its place until no request is open, and `unused` was called. */
struct md_pass_target {
	const char *kind, *id;                 /* in messages: "peer", "b" */
	const struct md_worker_config *config; /* requests need it; NULL: none */
	struct md_http_remote remote;
	struct md_http_way way;       /* by md_pass_target_read, as remote, prefix and host are */
	char prefix[256], host[272];  /* of its URL */
	unsigned connect_s, answer_s; /* as of md_http_call_send */
	const char *api_key;          /* sent in place of the client's; "" or NULL: none */
	const char *node,
	    *node_key;      /* of the cluster: by whom the request comes, and what proves it; NULL: no node of it */
	bool names_clients; /* it believes who the client is, and does not get the client's key */
	struct md_peer_counts *counts;                 /* borrowed */
	uint32_t open;                                 /* requests that have not ended */
	void (*unused)(struct md_pass_target *target); /* the last one has ended */
	/*
	 * Nothing of an answer has come, and nothing will: the target could not be asked, said that it is draining, or broke off.
	 * True: somebody else has the exchange now. NULL: nobody takes it. why: a sentence without its end.
	 */
	bool (*again)(struct md_worker *worker, struct md_pass_target *target, struct md_http_exchange *exchange,
		      const char *why);
};

/* False: see md_http_remote_read. */
bool md_pass_target_read(struct md_pass_target *target, const char *url, struct md_http_outside *outside);

/* path: at the target, without its URL's prefix; path and body (NULL: the exchange's) are taken over. */
struct md_pass_request {
	struct md_pass_target *target;
	uint32_t *unfinished; /* counts it as long as it has not ended; NULL: nobody wants that */
	char *path, *body;
	size_t body_size;
	bool stream;
	bool once; /* it is not tried elsewhere */
};
void md_pass_begin(struct md_worker *worker, struct md_http_exchange *exchange, const struct md_pass_request *request);

/* What has not ended at the target fails, or is tried elsewhere. why: a sentence without its end. */
void md_passed_fail(struct md_worker *worker, const struct md_pass_target *target, const char *why);
/* The daemon ends, and they have had their time: clients are told so. */
void md_passed_cut(struct md_worker *worker);
void md_passed_end_all(struct md_worker *worker); /* the daemon ends: requests are dropped */
size_t md_passed_open(
    const struct md_worker *worker); /* requests that have not ended, of earlier configurations, too */
bool md_passed_use(const struct md_worker *worker, const struct md_worker_config *config); /* one of them needs it */

#endif
