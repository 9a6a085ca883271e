/* SPDX-License-Identifier: Apache-2.0 */
/* What may stand in a head. */
#ifndef MD_WORKER_HTTP_TEXT_H
#define MD_WORKER_HTTP_TEXT_H

#include <stdbool.h>
#include <string.h>

/* False: the text holds a byte that could end a header, or begin another one, when it is written. */
static inline bool md_http_is_clean(const char *text)
{
	for (; *text; text++)
		if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
			return false;
	return true;
}

/* True for names of headers (RFC 9110, section 5.6.2): libhttp_parser may be built to take spaces in them. */
static inline bool md_http_is_token(const char *text)
{
	return *text &&
	       !text[strspn(text, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

#endif
