/* SPDX-License-Identifier: Apache-2.0 */
/* Where the body of an HTTP/1 message ends: by its length, in chunks (RFC 9112, section 7.1, strictly), or with the connection. */
#ifndef MD_HTTP_FRAMING_H
#define MD_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct md_http_framing {
	enum {
		MD_HTTP_FRAMING_DATA, /* `left` bytes of the body follow */
		MD_HTTP_FRAMING_DATA_CR,
		MD_HTTP_FRAMING_DATA_LF,
		MD_HTTP_FRAMING_SIZE,
		MD_HTTP_FRAMING_EXTENSION,
		MD_HTTP_FRAMING_SIZE_LF,
		MD_HTTP_FRAMING_TRAILER,
		MD_HTTP_FRAMING_TRAILER_LF,
		MD_HTTP_FRAMING_END,
		MD_HTTP_FRAMING_BAD,
	} state;
	uint64_t left; /* of the body, or of a chunk */
	bool chunked;
	bool named;      /* a semicolon stands behind a chunk's size: an extension follows */
	unsigned digits; /* of a chunk's size */
	unsigned line;   /* bytes of a trailer's line */
	unsigned extra;  /* bytes of extensions and trailers, which are dropped */
	const char *why; /* of MD_HTTP_FRAMING_BAD; static */
};

void md_http_framing_begin_length(struct md_http_framing *framing, uint64_t length); /* UINT64_MAX: no end */
void md_http_framing_begin_chunks(struct md_http_framing *framing);
/*
 * Takes bytes, and returns how many it has used; *piece are those that belong to the body, *piece_size 0: none. Called
 * again until all are used, or the state is MD_HTTP_FRAMING_END or _BAD.
 */
size_t md_http_framing_take(struct md_http_framing *framing, const char *bytes, size_t size, const char **piece,
			    size_t *piece_size);

#endif
