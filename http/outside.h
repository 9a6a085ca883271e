/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to other machines: their names are looked up, and TLS is spoken, without making the loop wait. */
#ifndef MD_HTTP_OUTSIDE_H
#define MD_HTTP_OUTSIDE_H

#include "base/status.h"
#include "http/call.h"
#include "http/trust.h"

/* What all such calls of a loop have in common: trust, and name servers and /etc/hosts as they were when it was made. */
struct md_http_outside;

/* trust: taken over, also on failure; NULL: nobody is asked by TLS. MD_ERR_NO_MEMORY. */
enum md_status md_http_outside_create(struct event_base *base, struct md_http_trust *trust,
				      struct md_http_outside **made, struct md_error *err);
void md_http_outside_destroy(
    struct md_http_outside *
	outside); /* no call is left; lookups of calls that were cancelled end in the loop's next turns; NULL is fine */

/* What counts for connections that begin from now on. Taken over. */
void md_http_outside_trust(struct md_http_outside *outside, struct md_http_trust *trust);

struct md_http_remote {
	struct md_http_outside *outside;
	char host[256]; /* a name, an IPv4 address, or an IPv6 address without brackets */
	uint16_t port;
	bool tls;         /* 1.2 at least; its certificate must be for the host, or else for this name: */
	const char *name; /* borrowed; NULL: for the host */
};

/*
 * "http://HOST[:PORT][/PREFIX]", or with https; prefix: without slashes at its end; named: as the Host header says it.
 * False: it is too long, has a user or a query, or no such port.
 */
bool md_http_remote_read(const char *url, struct md_http_remote *remote, char prefix[256], char named[272]);
/* For md_http_call_begin_by; the remote is the context. whom: a constant. */
struct md_http_way md_http_remote_way(struct md_http_remote *remote, const char *whom);

#endif
