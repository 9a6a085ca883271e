/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of a client's request as they go on to an engine or to another node. */
#ifndef MD_WORKER_CORE_FORWARD_H
#define MD_WORKER_CORE_FORWARD_H

#include "http/call.h"
#include "http/front.h"

/* Between the nodes of a cluster. Clients may send them, too; nobody else gets them. */
#define MD_FORWARD_NODE "X-Medusa-Node"
#define MD_FORWARD_NODE_KEY "X-Medusa-Node-Key"
#define MD_FORWARD_CLIENT "X-Medusa-Client" /* who pays; of a node whose certificate was verified */

struct md_forward {
	const char *host;    /* of whoever is asked: sent if the client has sent none, or in any case: */
	bool host_is_theirs; /* what the client calls us means nothing there */
	bool keys;           /* the client's keys go on, unless there is another one: */
	const char *key;     /* sent as Authorization: Bearer, and as X-Api-Key; NULL or "": none */
	const char
	    *node; /* of the cluster, by which the request comes; NULL: the daemon is in none, or asks somebody else */
	const char *node_key; /* what proves that; NULL: nothing does */
	const char *client;   /* who pays, for another node; NULL or "": not said */
	const char *via;      /* put behind what Via says; NULL: none is sent by us */
};

void md_forward_headers(struct md_http_call *call, const struct md_http_exchange *exchange,
			const struct md_forward *how);

#endif
