/* SPDX-License-Identifier: Apache-2.0 */
/* TLS: who is trusted, and what this side shows. Made of files, outside of the loop; connections that are there keep what they began with. */
#ifndef MD_HTTP_TRUST_H
#define MD_HTTP_TRUST_H

#include <event2/bufferevent.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Paths of PEM files; NULL or "": see each. */
struct md_http_trust_files {
	const char
	    *ca; /* who is trusted; else OpenSSL's own places, or those that SSL_CERT_FILE and SSL_CERT_DIR name */
	const char *certificate; /* of this side, with those between it and the CA; else none is shown */
	const char *key;         /* of that certificate; else it is in the same file */
};

struct md_http_trust;
struct md_http_certificate; /* of the other end of a connection */

/* Of calls. files: NULL: none of those. TLS 1.2 at least. MD_ERR_NO_MEMORY, MD_ERR_IO. */
enum md_status md_http_trust_create(const struct md_http_trust_files *files, struct md_http_trust **made,
				    struct md_error *err);
/* Of a front: who connects must show a certificate that `ca` has issued. All files are needed, but for the key. */
enum md_status md_http_trust_serve(const struct md_http_trust_files *files, struct md_http_trust **made,
				   struct md_error *err);
bool md_http_trust_names(const struct md_http_trust *trust, const char *name); /* what this side shows */
void md_http_trust_destroy(struct md_http_trust *trust);                       /* NULL is fine */

/*
 * Until when a file's certificates are valid, in seconds since 1970: the first one, or, `any`, the one that lasts longest. MD_ERR_IO:
 * it has none.
 */
enum md_status md_http_trust_expiry(const char *path, bool any, int64_t *expires, struct md_error *err);

/* Whether the name is, letter by letter, one of the DNS names that the certificate is for. */
bool md_http_certificate_names(const struct md_http_certificate *certificate, const char *name);

/* For http/outside.c. NULL: out of memory. */
struct bufferevent *md_http_trust_call(struct md_http_trust *trust, struct event_base *base, const char *host,
				       const char *name);
/* Why a wire has failed, a sentence without its end; "" stays: for a reason that is not TLS's. */
void md_http_trust_explain(struct bufferevent *wire, char *why, size_t size);
/* Reads what is there without waiting, as recv(2). */
ssize_t md_http_trust_read(struct bufferevent *wire, char *bytes, size_t size);

/* What a front needs of TLS, so that who serves without it needs no OpenSSL. */
struct md_http_trust_ops {
	/* NULL: out of memory, and the descriptor is closed. */
	struct bufferevent *(*accept)(struct md_http_trust *trust, struct event_base *base, int fd);
	/* The other end's, which was verified. It lives as long as the wire. */
	const struct md_http_certificate *(*certificate)(struct bufferevent *wire);
	void (*explain)(struct bufferevent *wire, char *why, size_t size); /* as md_http_trust_explain */
	void (*close)(struct bufferevent *wire);                           /* says that no more is sent */
	void (*destroy)(struct md_http_trust *trust);
};
extern const struct md_http_trust_ops md_http_trust_ops;

#endif
