/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "json/tree_text.h"
#include "worker/core/answer_kind.h"

#define HELD_MAX 65536u /* bytes of an event, or of JSON, that are held back; what is longer is passed on as it comes */

/* ---- the head ---- */

static void pass_headers(struct md_relay *relay, const struct md_http_head *head)
{
	for (uint32_t i = 0; i < head->count; i++) {
		const char *name = md_http_head_name(head, i);
		bool ours = !strcasecmp(name, "Date") || (!strcasecmp(name, "Access-Control-Allow-Origin") &&
							  md_http_exchange_is_shared(relay->exchange));
		if (!ours && !md_http_head_is_hop(head, name))
			md_http_answer_header(relay->exchange, name, md_http_head_value(head, i));
	}
	/* a proxy before us must not collect the events of a stream */
	if (relay->events || relay->stream)
		md_http_answer_header(relay->exchange, "X-Accel-Buffering", "no");
}

void md_relay_head(struct md_relay *relay, const struct md_http_head *head)
{
	enum md_answer_kind kind = md_answer_kind(head);
	relay->events = kind == MD_ANSWER_EVENTS;
	if (kind == MD_ANSWER_JSON && !relay->stream)
		md_http_answer_hold(relay->exchange);
	/* a stream of events has room for one more, which says that it has failed */
	md_http_answer_begin(relay->exchange, head->status, relay->events ? -1 : head->length);
	pass_headers(relay, head);
	md_http_answer_body(relay->exchange);
}

/* What the engine says is no event of the stream that was begun. */
static bool refuse(char *why, size_t size, const char *what, const char *value)
{
	int made = snprintf(why, size, "the engine answered with %s", what);
	size_t used = made > 0 && (size_t)made < size ? (size_t)made : 0;
	for (; *value && used + 1 < size; value++) /* a header may hold any byte, and JSON may not */
		why[used++] = (char)(*value >= ' ' && *value < 0x7f ? *value : '?');
	why[used] = '\0';
	return false;
}

bool md_relay_continues(const struct md_http_head *head, char *why, size_t size)
{
	const char *encoding = md_answer_encoding(head), *type = md_http_head_find(head, "Content-Type");
	char status[12];
	snprintf(status, sizeof(status), "%u", head->status);
	if (head->status != 200)
		return refuse(why, size, "", status);
	if (encoding)
		return refuse(why, size, "Content-Encoding: ", encoding);
	if (type && !*type)
		return refuse(why, size, "an empty Content-Type", "");
	if (type && md_answer_kind(head) != MD_ANSWER_EVENTS)
		return refuse(why, size, "Content-Type: ", type);
	return true;
}

/* ---- the body ---- */

/* True: the unfinished event is held back, with these bytes of it. */
static bool hold(struct md_relay *relay, const char *bytes, size_t size)
{
	if (relay->held.size + size > HELD_MAX)
		return false;
	md_buf_put(&relay->held, bytes, size);
	return !relay->held.failed;
}

static size_t send_held(struct md_relay *relay, const char *bytes, size_t size)
{
	md_http_answer_write(relay->exchange, relay->held.data, relay->held.size);
	md_buf_clear(&relay->held);
	return md_http_answer_write(relay->exchange, bytes, size);
}

/* Events are sent when they are whole, and one that is too long to be held as it comes. */
static size_t pass_events(struct md_relay *relay, const char *bytes, size_t size)
{
	size_t whole = md_event_border_find(&relay->border, bytes, size), unsent = 0;
	if (whole) {
		unsent = send_held(relay, bytes, whole);
		relay->torn = false;
	}
	if (whole == size || (!relay->torn && hold(relay, bytes + whole, size - whole)))
		return unsent;
	relay->torn = relay->border.pending;
	return send_held(relay, bytes + whole, size - whole);
}

/*
 * A byte order mark means nothing at the beginning of a stream alone. Behind events of ours it would be a part of the name of
 * the engine's first field, which clients would not know.
 */
static size_t pass_behind_ours(struct md_relay *relay, const char *bytes, size_t size)
{
	static const char mark[] = MD_EVENT_MARK;
	while (size && relay->mark < MD_EVENT_MARK_SIZE && *bytes == mark[relay->mark]) {
		relay->mark++;
		bytes++;
		size--;
	}
	if (!size)
		return 0;
	if (relay->mark < MD_EVENT_MARK_SIZE) /* it was none */
		pass_events(relay, mark, relay->mark);
	relay->mark = MD_EVENT_MARK_SIZE;
	return pass_events(relay, bytes, size);
}

size_t md_relay_body(struct md_relay *relay, const char *bytes, size_t size)
{
	if (!size)
		return 0;
	if (relay->head_made)
		return pass_behind_ours(relay, bytes, size);
	if (relay->events)
		return pass_events(relay, bytes, size);
	size_t unsent = md_http_answer_write(relay->exchange, bytes, size);
	if (unsent > HELD_MAX)
		md_http_answer_release(relay->exchange);
	return unsent;
}

void md_relay_end(struct md_relay *relay)
{
	md_http_answer_write(relay->exchange, relay->held.data, relay->held.size);
	md_http_answer_release(relay->exchange);
}

void md_relay_finish(struct md_relay *relay)
{
	md_buf_finish(&relay->held);
}

/* ---- failures ---- */

/*
 * What was held of an unfinished event is dropped. Whatever the last byte was, two line ends make the event one of its own,
 * and no other one of what was sent, because that was whole.
 */
static void send_event(struct md_http_exchange *exchange, const char *code, const char *message)
{
	json_t *event = json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", md_jansson_text(message), "type",
				  "server_error", "param", "code", code);
	char *line = event ? md_jansson_print(event, JSON_COMPACT) : NULL;
	json_decref(event);
	if (!line) {
		md_http_answer_abort(exchange);
		return;
	}
	md_http_answer_write(exchange, "\n\ndata: ", 8);
	md_http_answer_write(exchange, line, strlen(line));
	md_http_answer_write(exchange, "\n\n", 2);
	md_http_answer_end(exchange);
	free(line);
}

void md_relay_fail(struct md_relay *relay, enum md_reply_error error, const char *code, const char *message)
{
	struct md_http_exchange *exchange = relay->exchange;
	relay->exchange = NULL;
	if (!exchange)
		return;
	if ((!relay->head_sent && !relay->head_made) || md_http_answer_retract(exchange))
		md_reply_error(exchange, error, code, "%s", message);
	else if ((relay->events || relay->head_made) && !relay->torn)
		send_event(exchange, code ? code : "bad_gateway", message);
	else /* a client gives up half an event where the connection ends, and would take it for a whole one before another */
		md_http_answer_abort(exchange);
}
