/* SPDX-License-Identifier: Apache-2.0 */
#include "http/reader.h"
#include "http/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BLANK_LINES_MAX 8u
#define LENGTH_DIGITS_MAX 18u

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
		return md_http_reader_refuse(reader, 503, "out of memory for the head of a message"), 1;
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
	reader->in_value = false;
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
	if (!reader->in_value) {
		if (end_string(reader))
			return 1;
		head->headers[head->count - 1].value = (uint32_t)head->text.size;
		reader->in_value = true;
	}
	return add(reader, bytes, size);
}

static bool check_host(struct md_http_reader *reader, unsigned hosts)
{
	const struct md_http_head *head = &reader->head;
	const char *host = md_http_head_find(head, "Host");
	if (hosts > 1)
		return md_http_reader_refuse(reader, 400, "Host stands there more than once");
	if (!hosts && head->minor)
		return md_http_reader_refuse(reader, 400, "HTTP/1.1 wants a Host, which is missing");
	if (host && strpbrk(host, " \t,/@?#\\"))
		return md_http_reader_refuse(reader, 400, "Host is something else than a name with a port");
	return true;
}

static bool check_framing(struct md_http_reader *reader, unsigned lengths, unsigned encodings)
{
	if (lengths && encodings)
		return md_http_reader_refuse(reader, 400, "Content-Length and Transfer-Encoding stand there both");
	if (lengths > 1)
		return md_http_reader_refuse(reader, 400, "Content-Length stands there more than once");
	if (encodings > 1)
		return md_http_reader_refuse(reader, 400, "Transfer-Encoding stands there more than once");
	if (encodings && reader->parser.type == HTTP_REQUEST && !reader->head.minor)
		return md_http_reader_refuse(reader, 400, "HTTP/1.0 knows no Transfer-Encoding");
	return true;
}

static bool check_target(struct md_http_reader *reader)
{
	for (const char *at = md_http_head_target(&reader->head); *at; at++)
		if ((unsigned char)*at <= ' ' || *at == 0x7f)
			return md_http_reader_refuse(reader, 400, "the target holds a control character");
	return true;
}

/* Digits alone (RFC 9110, section 8.6). The parser's own reading counts for nothing. */
static bool read_length(struct md_http_reader *reader, const char *value)
{
	size_t digits = strspn(value, "0123456789");
	if (!digits || value[digits])
		return md_http_reader_refuse(reader, 400, "Content-Length is something else than a number");
	if (digits > LENGTH_DIGITS_MAX)
		return md_http_reader_refuse(reader, 413, "Content-Length is too large");
	reader->head.length = (int64_t)strtoull(value, NULL, 10);
	return true;
}

/*
 * libhttp_parser takes a header whose name only begins so for the header itself. Whoever stands before this server does
 * not, and would see another message.
 */
static bool is_alike(const char *name)
{
	static const char encoding[] = "Transfer-Encoding", length[] = "Content-Length";
	return (!strncasecmp(name, encoding, sizeof(encoding) - 1) && name[sizeof(encoding) - 1]) ||
	       (!strncasecmp(name, length, sizeof(length) - 1) && name[sizeof(length) - 1]);
}

static bool check_header(struct md_http_reader *reader, const char *name, const char *value)
{
	if (!md_http_is_token(name))
		return md_http_reader_refuse(reader, 400,
					     "a header's name holds something else than letters and signs");
	if (!md_http_is_clean(value))
		return md_http_reader_refuse(reader, 400, "a header holds a control character");
	if (is_alike(name))
		return md_http_reader_refuse(reader, 400,
					     "a header's name begins like Transfer-Encoding or Content-Length");
	if (!strcasecmp(name, "Transfer-Encoding") && strcasecmp(value, "chunked") != 0)
		return md_http_reader_refuse(reader, 501, "Transfer-Encoding is not chunked");
	return strcasecmp(name, "Content-Length") != 0 || read_length(reader, value);
}

/*
 * Blanks behind a value are no part of it (RFC 9110, section 5.5). Those behind a transfer encoding stay, which is refused for
 * them: whoever stands before this server may not have known it for one.
 */
static void trim(struct md_http_head *head, uint32_t index)
{
	char *value = (char *)head->text.data + head->headers[index].value;
	size_t size = strlen(value);
	while (size && (value[size - 1] == ' ' || value[size - 1] == '\t') &&
	       strcasecmp(md_http_head_name(head, index), "Transfer-Encoding") != 0)
		value[--size] = '\0';
}

static bool check_head(struct md_http_reader *reader)
{
	struct md_http_head *head = &reader->head;
	unsigned lengths = 0, encodings = 0, hosts = 0;
	if (memchr(head->text.data + 1, '\n', head->text.size - 1) ||
	    memchr(head->text.data + 1, '\r', head->text.size - 1))
		return md_http_reader_refuse(reader, 400, "the head holds a line break inside of a field");
	for (uint32_t i = 0; i < head->count; i++) {
		const char *name = md_http_head_name(head, i);
		trim(head, i);
		if (!check_header(reader, name, md_http_head_value(head, i)))
			return false;
		lengths += !strcasecmp(name, "Content-Length");
		encodings += !strcasecmp(name, "Transfer-Encoding");
		hosts += !strcasecmp(name, "Host");
	}
	head->chunked = encodings != 0;
	if (!check_framing(reader, lengths, encodings))
		return false;
	return reader->parser.type == HTTP_RESPONSE || (check_target(reader) && check_host(reader, hosts));
}

static bool has_no_body(const struct md_http_reader *reader)
{
	unsigned status = reader->head.status;
	return reader->parser.type == HTTP_RESPONSE &&
	       (reader->no_body || status < 200 || status == 204 || status == 304);
}

static void note_end(struct md_http_reader *reader)
{
	struct md_http_head *head = &reader->head;
	head->until_close =
	    reader->parser.type == HTTP_RESPONSE && !head->chunked && head->length < 0 && !has_no_body(reader);
}

/* How the body ends (RFC 9112, section 6.3). */
static void begin_body(struct md_http_reader *reader)
{
	struct md_http_head *head = &reader->head;
	bool none = has_no_body(reader);
	note_end(reader); /* again: who has seen the head may have said that there is no body, or that there is one */
	if (!none && head->chunked)
		md_http_framing_begin_chunks(&reader->framing);
	else if (head->until_close)
		md_http_framing_begin_length(&reader->framing, UINT64_MAX);
	else
		md_http_framing_begin_length(&reader->framing, none || head->length < 0 ? 0 : (uint64_t)head->length);
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
	head->keep_alive = http_should_keep_alive(parser) != 0;
	if (parser->http_major != 1)
		return md_http_reader_refuse(reader, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"), -1;
	if (!check_head(reader))
		return -1;
	head->until_close = parser->type == HTTP_RESPONSE && !head->chunked && head->length < 0 && !has_no_body(reader);
	if (!reader->events->head(reader->context, head))
		return -1;
	/* an offer to change the protocol is not taken: the body follows as always */
	parser->upgrade = 0;
	begin_body(reader);
	return 1; /* the body is not the parser's */
}

/* The head has ended. */
static int on_end(http_parser *parser)
{
	of(parser)->whole = true;
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
    .on_message_complete = on_end,
};

/* ---- feeding ---- */

static void begin_message(struct md_http_reader *reader)
{
	http_parser_init(&reader->parser, reader->parser.type);
	reader->parser.data = reader;
	reader->framing = (struct md_http_framing){0};
	reader->lines = reader->blank_lines = reader->line_size = 0;
	reader->body_size = 0;
	reader->last = '\0';
	reader->whole = reader->ended = reader->began = false;
}

void md_http_reader_init(struct md_http_reader *reader, enum http_parser_type type,
			 const struct md_http_reader_events *events, void *context)
{
	*reader = (struct md_http_reader){.events = events, .context = context, .parser.type = type};
	begin_message(reader);
	md_http_head_init(&reader->head);
}

void md_http_reader_finish(struct md_http_reader *reader)
{
	md_http_head_finish(&reader->head);
}

void md_http_reader_drop_head(struct md_http_reader *reader)
{
	md_http_head_clear(&reader->head);
	md_buf_put_u8(&reader->head.text, 0);
}

/* An error that no event has named. */
static void note_error(struct md_http_reader *reader)
{
	enum http_errno error = HTTP_PARSER_ERRNO(&reader->parser);
	char why[128];
	snprintf(why, sizeof(why), "this is no HTTP/1.1: %s", http_errno_description(error));
	if (error == HPE_UNEXPECTED_CONTENT_LENGTH)
		snprintf(why, sizeof(why), "Content-Length stands there twice, or beside Transfer-Encoding");
	md_http_reader_refuse(reader, error == HPE_HEADER_OVERFLOW ? 431 : 400, why);
}

/* Lines that end with LF alone are taken of responses (RFC 9112, section 2.2), and a CR is nowhere but before a LF. */
static bool check_line_end(struct md_http_reader *reader, char byte, char last)
{
	if (byte != '\n' && last == '\r' && reader->parser.type == HTTP_RESPONSE)
		return md_http_reader_refuse(reader, 502, "a CR without LF stands in the status line or in a header");
	if ((byte == '\n') != (last == '\r') && reader->parser.type == HTTP_REQUEST)
		return md_http_reader_refuse(reader, 400, "a line of the head does not end with CR LF");
	return true;
}

/*
 * libhttp_parser takes lines that end with LF alone, a CR within one, and headers that go on in a further line; others may
 * see other headers there. Returns how many bytes belong to the head; of one that is refused, 0.
 */
static size_t check_lines(struct md_http_reader *reader, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		char byte = bytes[i], last = reader->last;
		reader->last = byte;
		if (!check_line_end(reader, byte, last))
			return 0;
		if (byte == '\n' && !reader->line_size) {
			if (reader->lines)
				return i + 1;
			if (++reader->blank_lines > BLANK_LINES_MAX)
				return md_http_reader_refuse(reader, 400, "blank lines stand before the message");
		} else if (byte == '\n') {
			reader->lines++;
			reader->line_size = 0;
		} else if (byte != '\r') {
			if (!reader->line_size && reader->lines && (byte == ' ' || byte == '\t'))
				return md_http_reader_refuse(reader, 400, "a header goes on in a further line");
			reader->line_size++;
		}
	}
	return size;
}

static size_t feed_head(struct md_http_reader *reader, const char *bytes, size_t size)
{
	size = check_lines(reader, bytes, size);
	if (reader->status)
		return 0;
	size_t used = http_parser_execute(&reader->parser, &settings, bytes, size);
	if (!reader->whole && (reader->status || HTTP_PARSER_ERRNO(&reader->parser) != HPE_OK || used < size))
		note_error(reader);
	return used;
}

static size_t feed_body(struct md_http_reader *reader, const char *bytes, size_t size)
{
	struct md_http_framing *framing = &reader->framing;
	const char *piece;
	size_t count, used = md_http_framing_take(framing, bytes, size, &piece, &count);
	bool announced = framing->state == MD_HTTP_FRAMING_DATA && framing->left != UINT64_MAX;
	uint64_t more = count + (announced ? framing->left : 0);
	reader->body_size += count;
	if (framing->state == MD_HTTP_FRAMING_BAD)
		md_http_reader_refuse(reader, 400, framing->why);
	else if (reader->body_most && more > reader->body_most - (reader->body_size - count))
		md_http_reader_refuse(reader, 413, "the body of the request is too large");
	else if (count)
		reader->events->body(reader->context, piece, count);
	return used;
}

size_t md_http_reader_feed(struct md_http_reader *reader, const char *bytes, size_t size)
{
	size_t used = 0;
	while (used < size && !reader->status && !reader->ended) {
		reader->began = true;
		used += (reader->whole ? feed_body : feed_head)(reader, bytes + used, size - used);
		reader->ended = reader->whole && !reader->status && reader->framing.state == MD_HTTP_FRAMING_END;
	}
	if (reader->ended && used)
		reader->events->end(reader->context);
	return used;
}

void md_http_reader_close(struct md_http_reader *reader)
{
	if (reader->status || reader->ended || !reader->began)
		return;
	reader->ended = reader->whole && reader->head.until_close;
	if (reader->ended)
		reader->events->end(reader->context);
	else
		md_http_reader_refuse(reader, 400, "the message was cut off");
}

void md_http_reader_next(struct md_http_reader *reader)
{
	if (reader->ended)
		begin_message(reader);
}
