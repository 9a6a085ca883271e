/* SPDX-License-Identifier: Apache-2.0 */
#include "http/reader.h"
#include "http/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct md_http_reader *of(http_parser *parser)
{
	return parser->data;
}

bool md_http_reader_refuse(struct md_http_reader *reader, unsigned status, const char *why)
{
	if (!reader->status) {
		reader->status = status;
		snprintf(reader->why, sizeof(reader->why), "%s", why);
	}
	return false;
}

/* ---- the head ---- */

/* Adds bytes to the string that is being read. */
static int add(struct md_http_reader *reader, const char *bytes, size_t size)
{
	md_buf_put(&reader->head.text, bytes, size);
	if (reader->head.text.failed)
		return md_http_reader_refuse(reader, 500, "out of memory for the head of a message"), 1;
	if (reader->head.text.size > MD_HTTP_HEAD_MAX)
		return md_http_reader_refuse(reader, 431, "the first line and the headers have more than 65,536 bytes"),
		       1;
	return 0;
}

static int end_string(struct md_http_reader *reader)
{
	return add(reader, "", 1);
}

static int on_begin(http_parser *parser)
{
	struct md_http_reader *reader = of(parser);
	md_http_head_clear(&reader->head);
	reader->in_value = reader->whole = false;
	return end_string(reader); /* offset 0 is an empty string */
}

static int on_url(http_parser *parser, const char *bytes, size_t size)
{
	struct md_http_reader *reader = of(parser);
	if (!reader->head.target)
		reader->head.target = (uint32_t)reader->head.text.size;
	return add(reader, bytes, size);
}

static int on_field(http_parser *parser, const char *bytes, size_t size)
{
	struct md_http_reader *reader = of(parser);
	struct md_http_head *head = &reader->head;
	if (reader->whole)
		return 0;
	if (!head->count || reader->in_value) {
		if (end_string(reader)) /* of the target, or of the last value */
			return 1;
		if (head->count == MD_HTTP_HEADERS_MAX)
			return md_http_reader_refuse(reader, 431, "there are more than 128 headers"), 1;
		head->headers[head->count++] = (struct md_http_header){.name = (uint32_t)head->text.size};
		reader->in_value = false;
	}
	return add(reader, bytes, size);
}

static int on_value(http_parser *parser, const char *bytes, size_t size)
{
	struct md_http_reader *reader = of(parser);
	struct md_http_head *head = &reader->head;
	if (reader->whole)
		return 0;
	if (!reader->in_value) {
		if (end_string(reader))
			return 1;
		head->headers[head->count - 1].value = (uint32_t)head->text.size;
		reader->in_value = true;
	}
	return add(reader, bytes, size);
}

static bool check_head(struct md_http_reader *reader)
{
	const struct md_http_head *head = &reader->head;
	unsigned lengths = 0, encodings = 0;
	if (memchr(head->text.data + 1, '\n', head->text.size - 1) ||
	    memchr(head->text.data + 1, '\r', head->text.size - 1))
		return md_http_reader_refuse(reader, 400, "the head holds a line break inside of a field");
	for (uint32_t i = 0; i < head->count; i++) {
		const char *name = md_http_head_name(head, i), *value = md_http_head_value(head, i);
		if (!md_http_is_token(name))
			return md_http_reader_refuse(reader, 400,
						     "a header's name holds something else than letters and signs");
		if (!md_http_is_clean(value))
			return md_http_reader_refuse(reader, 400, "a header holds a control character");
		lengths += !strcasecmp(name, "Content-Length");
		encodings += !strcasecmp(name, "Transfer-Encoding");
		if (!strcasecmp(name, "Transfer-Encoding") && strcasecmp(value, "chunked") != 0)
			return md_http_reader_refuse(reader, 501, "Transfer-Encoding is not chunked");
	}
	if (lengths + encodings > 1)
		return md_http_reader_refuse(reader, 400,
					     "Content-Length and Transfer-Encoding stand there more than once");
	if (encodings && reader->parser.type == HTTP_REQUEST && !head->minor)
		return md_http_reader_refuse(reader, 400, "HTTP/1.0 knows no Transfer-Encoding");
	return true;
}

static int on_head(http_parser *parser)
{
	struct md_http_reader *reader = of(parser);
	struct md_http_head *head = &reader->head;
	if (end_string(reader))
		return -1;
	/* a header whose value is empty got no call */
	for (uint32_t i = 0; i < head->count; i++)
		if (!head->headers[i].value)
			head->headers[i].value = (uint32_t)head->text.size - 1;
	head->method = parser->type == HTTP_REQUEST ? http_method_str((enum http_method)parser->method) : NULL;
	head->status = parser->status_code;
	head->minor = parser->http_minor;
	head->chunked = parser->uses_transfer_encoding;
	head->length = md_http_head_find(head, "Content-Length") ? (int64_t)parser->content_length : -1;
	head->keep_alive = http_should_keep_alive(parser) != 0;
	reader->whole = true;
	if (parser->http_major != 1)
		return md_http_reader_refuse(reader, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"), -1;
	if (head->length < -1)
		return md_http_reader_refuse(reader, 413, "Content-Length is too large"), -1;
	if (!check_head(reader) || !reader->events->head(reader->context, head))
		return -1;
	/* an offer to change the protocol is not taken: the body follows as always */
	parser->upgrade = 0;
	return reader->no_body ? 1 : 0;
}

/* ---- the body ---- */

static int on_body(http_parser *parser, const char *bytes, size_t size)
{
	struct md_http_reader *reader = of(parser);
	return reader->events->body(reader->context, bytes, size) ? 0 : -1;
}

static int on_end(http_parser *parser)
{
	struct md_http_reader *reader = of(parser);
	reader->ended = true;
	reader->began = false;
	parser->upgrade = 0;
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_end,
};

/* ---- feeding ---- */

void md_http_reader_init(struct md_http_reader *reader, enum http_parser_type type,
			 const struct md_http_reader_events *events, void *context)
{
	*reader = (struct md_http_reader){.events = events, .context = context};
	http_parser_init(&reader->parser, type);
	reader->parser.data = reader;
	md_http_head_init(&reader->head);
}

void md_http_reader_finish(struct md_http_reader *reader)
{
	md_http_head_finish(&reader->head);
}

/* An error that no event has named. */
static void note_error(struct md_http_reader *reader)
{
	enum http_errno error = HTTP_PARSER_ERRNO(&reader->parser);
	char why[128];
	snprintf(why, sizeof(why), "this is no HTTP/1.1: %s", http_errno_description(error));
	md_http_reader_refuse(reader, error == HPE_HEADER_OVERFLOW ? 431 : 400, why);
}

size_t md_http_reader_feed(struct md_http_reader *reader, const char *bytes, size_t size)
{
	if (reader->status || reader->ended || !size)
		return 0;
	reader->began = true;
	size_t used = http_parser_execute(&reader->parser, &settings, bytes, size);
	if (reader->ended)
		reader->events->end(reader->context);
	else if (reader->status || HTTP_PARSER_ERRNO(&reader->parser) != HPE_OK || used < size)
		note_error(reader);
	return used;
}

void md_http_reader_close(struct md_http_reader *reader)
{
	if (reader->status || reader->ended || !reader->began)
		return;
	http_parser_execute(&reader->parser, &settings, NULL, 0);
	if (reader->ended)
		reader->events->end(reader->context);
	else
		md_http_reader_refuse(reader, 400, "the message was cut off");
}

void md_http_reader_next(struct md_http_reader *reader)
{
	if (!reader->ended)
		return;
	reader->ended = false;
	http_parser_pause(&reader->parser, 0);
}
