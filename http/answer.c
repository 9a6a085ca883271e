/* SPDX-License-Identifier: Apache-2.0 */
/* What a handler sees of a request, and how its answer is written. */
#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http/connection.h"
#include "http/text.h"
#include "http/wire_watch.h"

/* ---- a request ---- */

const struct md_http_head *md_http_exchange_head(const struct md_http_exchange *exchange)
{
	return &exchange->reader.head;
}

const char *md_http_exchange_body(const struct md_http_exchange *exchange, size_t *size)
{
	*size = exchange->body.size - 1;
	return (const char *)exchange->body.data;
}

const char *md_http_exchange_peer(const struct md_http_exchange *exchange)
{
	return exchange->peer;
}

uint64_t md_http_exchange_since(const struct md_http_exchange *exchange)
{
	return exchange->since;
}

void md_http_exchange_watch(struct md_http_exchange *exchange, const struct md_http_exchange_events *events,
			    void *context)
{
	exchange->events = events;
	exchange->context = context;
}

void md_http_exchange_share(struct md_http_exchange *exchange)
{
	exchange->shared = md_http_head_find(&exchange->reader.head, "Origin") != NULL;
}

bool md_http_exchange_is_shared(const struct md_http_exchange *exchange)
{
	return exchange->shared;
}

unsigned md_http_exchange_stalled_s(const struct md_http_exchange *exchange)
{
	return exchange->stalled_s;
}

void md_http_exchange_drop(struct md_http_exchange *exchange)
{
	md_http_connection_close(exchange);
}

/* ---- its answer ---- */

static void put_date(struct evbuffer *output)
{
	static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
					     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	struct tm at;
	time_t now = time(NULL);
	gmtime_r(&now, &at);
	evbuffer_add_printf(output, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[at.tm_wday], at.tm_mday,
			    months[at.tm_mon], at.tm_year + 1900, at.tm_hour, at.tm_min, at.tm_sec);
}

void md_http_answer_begin(struct md_http_exchange *x, unsigned status, int64_t length)
{
	struct evbuffer *output = bufferevent_get_output(x->wire);
	bool bodyless = status == 204 || status == 304;
	x->begun = true;
	x->no_body = x->no_body || bodyless;
	x->left = length;
	x->chunked = length < 0 && x->reader.head.minor && !bodyless;
	x->keep_alive = x->keep_alive && (length >= 0 || x->chunked || bodyless);
	md_http_connection_end_is_reset(x, length < 0 && !x->chunked && !x->no_body);
	evbuffer_add_printf(output, "HTTP/1.1 %u %s\r\n", status, http_status_str((enum http_status)status));
	put_date(output);
	if (x->chunked)
		evbuffer_add_printf(output, "Transfer-Encoding: chunked\r\n");
	else if (length >= 0 && !bodyless)
		evbuffer_add_printf(output, "Content-Length: %" PRId64 "\r\n", length);
	if (!x->keep_alive)
		evbuffer_add_printf(output, "Connection: close\r\n");
	else if (!x->reader.head.minor)
		evbuffer_add_printf(output, "Connection: keep-alive\r\n");
	if (x->shared)
		evbuffer_add_printf(output, "Access-Control-Allow-Origin: *\r\n");
}

void md_http_answer_header(struct md_http_exchange *x, const char *name, const char *value)
{
	if (md_http_is_token(name) && md_http_is_clean(value))
		evbuffer_add_printf(bufferevent_get_output(x->wire), "%s: %s\r\n", name, value);
}

void md_http_answer_body(struct md_http_exchange *x)
{
	evbuffer_add(bufferevent_get_output(x->wire), "\r\n", 2);
}

void md_http_answer_hold(struct md_http_exchange *x)
{
	if (bufferevent_disable(x->wire, EV_WRITE))
		return;
	x->held = true;
	x->held_keep_alive = x->keep_alive;
	x->before = md_http_connection_unsent(x);
}

void md_http_answer_release(struct md_http_exchange *x)
{
	if (x->held)
		md_http_wire_watch(x->wire, EV_WRITE);
	x->held = false;
}

bool md_http_answer_retract(struct md_http_exchange *x)
{
	struct evbuffer *output = bufferevent_get_output(x->wire), *earlier = x->held ? evbuffer_new() : NULL;
	if (!earlier)
		return false;
	evbuffer_unfreeze(output, 1); /* a buffer event lets nobody else take from its output */
	evbuffer_remove_buffer(output, earlier, x->before);
	evbuffer_drain(output, evbuffer_get_length(output));
	evbuffer_add_buffer(output, earlier);
	evbuffer_freeze(output, 1);
	evbuffer_free(earlier);
	md_http_connection_end_is_reset(x, false);
	x->keep_alive = x->held_keep_alive;
	x->no_body = !strcmp(x->reader.head.method, "HEAD");
	x->begun = false;
	md_http_answer_release(x);
	return true;
}

size_t md_http_answer_write(struct md_http_exchange *x, const void *bytes, size_t size)
{
	struct evbuffer *output = bufferevent_get_output(x->wire);
	if (x->left >= 0 && (int64_t)size > x->left)
		size = (size_t)x->left;
	if (x->left >= 0)
		x->left -= (int64_t)size;
	if (size && !x->no_body) {
		if (x->chunked)
			evbuffer_add_printf(output, "%zx\r\n", size);
		evbuffer_add(output, bytes, size);
		if (x->chunked)
			evbuffer_add(output, "\r\n", 2);
	}
	return evbuffer_get_length(output);
}

void md_http_answer_end(struct md_http_exchange *x)
{
	if (x->left > 0 && !x->no_body) {
		md_http_answer_abort(x);
		return;
	}
	if (x->chunked && !x->no_body)
		evbuffer_add(bufferevent_get_output(x->wire), "0\r\n\r\n", 5);
	md_http_answer_release(x);
	x->events = NULL;
	if (x->keep_alive)
		md_http_connection_next(x);
	else
		md_http_connection_close_when_sent(x);
}

void md_http_answer_abort(struct md_http_exchange *x)
{
	md_http_answer_release(x);
	x->events = NULL;
	x->keep_alive = false;
	/* what says where the answer ends is missing; else the end of the connection does, and is a reset */
	if (x->chunked || x->left > 0)
		md_http_connection_close_when_sent(x);
	else
		md_http_connection_close(x);
}
