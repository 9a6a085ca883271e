/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an HTTP/1 message, which is its first line and its headers. */
#ifndef MD_WORKER_HTTP_HEAD_H
#define MD_WORKER_HTTP_HEAD_H

#include <stdbool.h>

#include "base/buf.h"

#define MD_HTTP_HEADERS_MAX 128u
#define MD_HTTP_HEAD_MAX 65536u /* bytes */

struct md_http_certificate;

struct md_http_header {
	uint32_t name, value; /* offsets in the text */
};

struct md_http_head {
	struct md_buf text; /* all strings, each with its NUL */
	struct md_http_header headers[MD_HTTP_HEADERS_MAX];
	uint32_t count;
	uint32_t target;    /* of a request, as it was sent; an offset */
	const char *method; /* of a request; static */
	unsigned status;    /* of a response */
	unsigned minor;     /* 0: HTTP/1.0 */
	bool keep_alive;
	bool chunked;
	bool until_close; /* of a response: neither a length nor chunks say where its body ends; its connection does */
	int64_t length;   /* Content-Length; -1: none */
	/* Of a request that has come by TLS: of who has sent it, verified; NULL: it has not. */
	const struct md_http_certificate *certificate;
};

void md_http_head_init(struct md_http_head *head);
void md_http_head_finish(struct md_http_head *head);
void md_http_head_clear(struct md_http_head *head);

const char *md_http_head_target(const struct md_http_head *head);
const char *md_http_head_name(const struct md_http_head *head, uint32_t header);
const char *md_http_head_value(const struct md_http_head *head, uint32_t header);
/* The first header of this name, in any case of letters; NULL: there is none. */
const char *md_http_head_find(const struct md_http_head *head, const char *name);
/* True if one of the comma-separated words of a header of this name is `word`. */
bool md_http_head_says(const struct md_http_head *head, const char *name, const char *word);

/*
 * True for headers that belong to one connection and are not passed on (RFC 9110, section 7.6.1): Connection and those
 * that it names, Keep-Alive, Transfer-Encoding, Upgrade, TE, Trailer, Proxy-Connection; and Content-Length, which
 * whoever sends the message writes anew.
 */
bool md_http_head_is_hop(const struct md_http_head *head, const char *name);

#endif
