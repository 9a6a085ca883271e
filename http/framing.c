/* SPDX-License-Identifier: Apache-2.0 */
#include "http/framing.h"

#define DIGITS_MAX 15u   /* of a chunk's size: less than 2^60 */
#define EXTRA_MAX 16384u /* bytes of all extensions and trailers of a message */

void md_http_framing_begin_length(struct md_http_framing *framing, uint64_t length)
{
	*framing = (struct md_http_framing){.left = length};
	if (!length)
		framing->state = MD_HTTP_FRAMING_END;
}

void md_http_framing_begin_chunks(struct md_http_framing *framing)
{
	*framing = (struct md_http_framing){.state = MD_HTTP_FRAMING_SIZE, .chunked = true};
}

static void fail(struct md_http_framing *framing, const char *why)
{
	framing->state = MD_HTTP_FRAMING_BAD;
	framing->why = why;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

static void take_size(struct md_http_framing *framing, char c)
{
	int value = digit(c);
	if (value >= 0 && framing->digits < DIGITS_MAX) {
		framing->digits++;
		framing->left = framing->left << 4 | (unsigned)value;
	} else if (value >= 0) {
		fail(framing, "the size of a chunk has more than 15 digits");
	} else if (!framing->digits) {
		fail(framing, "a chunk has no size");
	} else if (c == '\r') {
		framing->state = MD_HTTP_FRAMING_SIZE_LF;
	} else if (c == ';' || c == ' ' || c == '\t') {
		framing->state = MD_HTTP_FRAMING_EXTENSION;
		framing->named = c == ';';
	} else {
		fail(framing, "something else than hexadecimal digits stands in the size of a chunk");
	}
}

static void take_extra(struct md_http_framing *framing, char c)
{
	if (++framing->extra > EXTRA_MAX)
		fail(framing, "extensions of chunks and trailers have more than 16,384 bytes");
	else if (((unsigned char)c < ' ' && c != '\t') || c == 0x7f)
		fail(framing, "a control character stands in an extension of a chunk or a trailer");
}

static void take_extension(struct md_http_framing *framing, char c)
{
	framing->named = framing->named || c == ';';
	if (framing->named || c == ' ' || c == '\t')
		take_extra(framing, c);
	else
		fail(framing, "something else than an extension stands behind the size of a chunk");
}

static void want_lf(struct md_http_framing *framing, char c)
{
	if (c != '\n') {
		fail(framing, "CR without LF stands in the frame of a chunk");
	} else if (framing->state == MD_HTTP_FRAMING_TRAILER_LF) {
		framing->state = framing->line ? MD_HTTP_FRAMING_TRAILER : MD_HTTP_FRAMING_END;
		framing->line = 0;
	} else if (framing->state == MD_HTTP_FRAMING_SIZE_LF && framing->left) {
		framing->state = MD_HTTP_FRAMING_DATA;
	} else {
		framing->state =
		    framing->state == MD_HTTP_FRAMING_SIZE_LF ? MD_HTTP_FRAMING_TRAILER : MD_HTTP_FRAMING_SIZE;
		framing->digits = 0;
	}
}

/* A byte of the frame around a chunk. */
static void take_byte(struct md_http_framing *framing, char c)
{
	switch (framing->state) {
	case MD_HTTP_FRAMING_SIZE:
		take_size(framing, c);
		break;
	case MD_HTTP_FRAMING_DATA_CR:
		if (c == '\r')
			framing->state = MD_HTTP_FRAMING_DATA_LF;
		else
			fail(framing, "a chunk is longer than its size");
		break;
	case MD_HTTP_FRAMING_EXTENSION:
		if (c == '\r')
			framing->state = MD_HTTP_FRAMING_SIZE_LF;
		else
			take_extension(framing, c);
		break;
	case MD_HTTP_FRAMING_TRAILER:
		if (c == '\r') {
			framing->state = MD_HTTP_FRAMING_TRAILER_LF;
		} else {
			framing->line++;
			take_extra(framing, c);
		}
		break;
	default:
		want_lf(framing, c);
	}
}

static void take_data(struct md_http_framing *framing, size_t size)
{
	if (framing->left != UINT64_MAX)
		framing->left -= size;
	if (!framing->left)
		framing->state = framing->chunked ? MD_HTTP_FRAMING_DATA_CR : MD_HTTP_FRAMING_END;
}

size_t md_http_framing_take(struct md_http_framing *framing, const char *bytes, size_t size, const char **piece,
			    size_t *piece_size)
{
	*piece = bytes;
	*piece_size = 0;
	if (framing->state == MD_HTTP_FRAMING_DATA) {
		*piece_size = size < framing->left ? size : (size_t)framing->left;
		take_data(framing, *piece_size);
		return *piece_size;
	}
	size_t used = 0;
	while (used < size && framing->state != MD_HTTP_FRAMING_DATA && framing->state != MD_HTTP_FRAMING_END &&
	       framing->state != MD_HTTP_FRAMING_BAD)
		take_byte(framing, bytes[used++]);
	return used;
}
