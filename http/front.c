/* SPDX-License-Identifier: Apache-2.0 */
#include "http/front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/address.h"
#include "http/reader.h"
#include "http/text.h"

#define AHEAD 65536u /* bytes of a next request that are read while an answer is under way */
#define SECOND 1000000000ull
#define LINGER_S 2u

enum state {
	WAITING,   /* for a request */
	READING,   /* a request */
	ANSWERING, /* the request is whole, its answer is not */
	CLOSING,   /* the last answer is being sent */
	LINGERING, /* it was sent; what the client still sends is dropped, so that the client gets to read the answer */
};

struct md_http_exchange {
	struct md_http_front *front;
	struct md_http_exchange *older, *newer; /* connections of the front */
	struct bufferevent *wire;
	struct md_http_reader reader;
	struct md_buf body;
	enum state state;
	uint64_t since; /* of this state; ns */
	const struct md_http_exchange_events *events;
	void *context;
	char peer[INET6_ADDRSTRLEN];
	bool head_read;
	/* the answer */
	bool chunked, no_body, keep_alive;
	int64_t left; /* bytes of the body that were announced and are to come; -1: not announced */
};

struct md_http_front {
	struct event_base *base;
	struct evconnlistener *listener;
	struct event *tick;
	struct md_http_limits limits;
	const struct md_http_front_events *events;
	void *context;
	struct md_http_exchange *oldest, *newest;
	unsigned count, port;
	bool draining;
	char *unlink;
};

/* ---- connections ---- */

static void link_connection(struct md_http_front *front, struct md_http_exchange *x)
{
	x->older = front->newest;
	if (x->older)
		x->older->newer = x;
	else
		front->oldest = x;
	front->newest = x;
	front->count++;
}

static void unlink_connection(struct md_http_exchange *x)
{
	struct md_http_front *front = x->front;
	*(x->older ? &x->older->newer : &front->oldest) = x->newer;
	*(x->newer ? &x->newer->older : &front->newest) = x->older;
	front->count--;
}

static void close_connection(struct md_http_exchange *x)
{
	const struct md_http_exchange_events *events = x->state == ANSWERING ? x->events : NULL;
	x->events = NULL;
	unlink_connection(x);
	bufferevent_free(x->wire);
	md_http_reader_finish(&x->reader);
	md_buf_finish(&x->body);
	if (events)
		events->gone(x->context);
	free(x);
}

static void enter(struct md_http_exchange *x, enum state state)
{
	x->state = state;
	x->since = md_clock_ns();
}

static void linger(struct md_http_exchange *x)
{
	enter(x, LINGERING);
	shutdown(bufferevent_getfd(x->wire), SHUT_WR);
}

/* What was written is sent, then the connection is closed. */
static void close_when_sent(struct md_http_exchange *x)
{
	enter(x, CLOSING);
	if (!evbuffer_get_length(bufferevent_get_output(x->wire)))
		linger(x);
}

static void drop_input(struct md_http_exchange *x)
{
	struct evbuffer *input = bufferevent_get_input(x->wire);
	evbuffer_drain(input, evbuffer_get_length(input));
}

/* ---- reading ---- */

static void refuse(struct md_http_exchange *x, unsigned status, const char *why)
{
	char text[256];
	int size = snprintf(text, sizeof(text), "%s\n", why);
	enter(x, ANSWERING);
	x->events = NULL;
	x->keep_alive = x->no_body = false;
	md_http_answer_begin(x, status, size);
	md_http_answer_header(x, "Content-Type", "text/plain; charset=utf-8");
	md_http_answer_body(x);
	md_http_answer_write(x, text, (size_t)size);
	md_http_answer_end(x);
}

static bool on_head(void *context, const struct md_http_head *head)
{
	struct md_http_exchange *x = context;
	x->head_read = true;
	x->since = md_clock_ns();
	if (head->length > (int64_t)x->front->limits.body_bytes)
		return md_http_reader_refuse(&x->reader, 413, "the body of the request is too large");
	if (md_http_head_find(head, "Expect")) {
		if (!md_http_head_says(head, "Expect", "100-continue"))
			return md_http_reader_refuse(&x->reader, 417, "only 100-continue can be expected");
		if (head->minor)
			bufferevent_write(x->wire, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	}
	return true;
}

static bool on_body(void *context, const char *bytes, size_t size)
{
	struct md_http_exchange *x = context;
	if (size > x->front->limits.body_bytes - x->body.size)
		return md_http_reader_refuse(&x->reader, 413, "the body of the request is too large");
	md_buf_put(&x->body, bytes, size);
	if (x->body.failed)
		return md_http_reader_refuse(&x->reader, 503, "out of memory for the body of the request");
	return true;
}

static void on_end(void *context)
{
	struct md_http_exchange *x = context;
	md_buf_put_u8(&x->body, 0);
	if (x->body.failed)
		md_http_reader_refuse(&x->reader, 503, "out of memory for the body of the request");
}

static const struct md_http_reader_events reading = {.head = on_head, .body = on_body, .end = on_end};

/* A request is whole. */
static void hand_over(struct md_http_exchange *x)
{
	const struct md_http_head *head = &x->reader.head;
	enter(x, ANSWERING);
	x->keep_alive = head->keep_alive && !x->front->draining;
	x->no_body = !strcmp(head->method, "HEAD");
	x->front->events->request(x->front->context, x);
}

/* Feeds what has come. The connection may be closed on return. */
static void read_on(struct md_http_exchange *x)
{
	struct evbuffer *input = bufferevent_get_input(x->wire);
	while ((x->state == WAITING || x->state == READING) && !x->reader.status && !x->reader.ended) {
		size_t size = evbuffer_get_contiguous_space(input);
		if (!size)
			break;
		if (x->state == WAITING)
			enter(x, READING);
		evbuffer_drain(input,
			       md_http_reader_feed(&x->reader, (char *)evbuffer_pullup(input, (ssize_t)size), size));
	}
	if (x->state != WAITING && x->state != READING)
		return;
	if (x->reader.status)
		refuse(x, x->reader.status, x->reader.why);
	else if (x->reader.ended)
		hand_over(x);
}

static void on_read(struct bufferevent *wire, void *context)
{
	struct md_http_exchange *x = context;
	(void)wire;
	if (x->state == CLOSING || x->state == LINGERING)
		drop_input(x);
	else
		read_on(x);
}

/* A client may end its direction and still wait for the answer, but nobody can tell that from one that is gone. */
static void on_event(struct bufferevent *wire, short what, void *context)
{
	struct md_http_exchange *x = context;
	if ((what & BEV_EVENT_EOF) && x->state == CLOSING)
		bufferevent_disable(wire, EV_READ);
	else
		close_connection(x);
}

/* ---- the next request of a connection ---- */

static void begin_next(struct md_http_exchange *x)
{
	md_buf_clear(&x->body);
	if (x->body.capacity > AHEAD)
		md_buf_finish(&x->body);
	x->head_read = false;
	x->events = NULL;
	enter(x, WAITING);
	md_http_reader_next(&x->reader);
	if (x->front->draining)
		close_when_sent(x);
	else if (evbuffer_get_length(bufferevent_get_input(x->wire)))
		bufferevent_trigger(x->wire, EV_READ, BEV_TRIG_DEFER_CALLBACKS); /* outside of the caller's call */
}

static void on_write(struct bufferevent *wire, void *context)
{
	struct md_http_exchange *x = context;
	(void)wire;
	if (x->state == CLOSING)
		linger(x);
	else if (x->state == ANSWERING && x->events && x->events->drained)
		x->events->drained(x->context);
}

/* ---- accepting ---- */

static void note_peer(struct md_http_exchange *x, const struct sockaddr *address)
{
	const void *bytes = NULL;
	snprintf(x->peer, sizeof(x->peer), "unix");
	if (address->sa_family == AF_INET)
		bytes = &((const struct sockaddr_in *)address)->sin_addr;
	else if (address->sa_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *)address)->sin6_addr;
	if (bytes)
		inet_ntop(address->sa_family, bytes, x->peer, sizeof(x->peer));
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int size,
		      void *context)
{
	struct md_http_front *front = context;
	struct md_http_exchange *x = front->count < front->limits.connections ? calloc(1, sizeof(*x)) : NULL;
	struct bufferevent *wire = x ? bufferevent_socket_new(front->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
	(void)listener, (void)size;
	if (!wire) {
		free(x);
		close(fd);
		return;
	}
	x->front = front;
	x->wire = wire;
	md_http_reader_init(&x->reader, HTTP_REQUEST, &reading, x);
	md_buf_init(&x->body);
	note_peer(x, address);
	md_http_no_delay(fd);
	link_connection(front, x);
	enter(x, WAITING);
	bufferevent_setcb(wire, on_read, on_write, on_event, x);
	bufferevent_setwatermark(wire, EV_READ, 0, AHEAD);
	bufferevent_set_timeouts(wire, NULL, &(struct timeval){.tv_sec = front->limits.write_s});
	bufferevent_enable(
	    wire, EV_READ); /* writing is enabled from the start, and costs nothing while there is nothing to write */
}

/* ---- time ---- */

static bool is_late(const struct md_http_exchange *x, uint64_t now)
{
	const struct md_http_limits *limits = &x->front->limits;
	uint64_t most = x->state == LINGERING ? LINGER_S
			: x->state == WAITING ? limits->idle_s
			: x->head_read        ? limits->body_s
					      : limits->head_s;
	return x->state != ANSWERING && x->state != CLOSING && now - x->since > most * SECOND;
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
	struct md_http_front *front = context;
	uint64_t now = md_clock_ns();
	(void)fd, (void)what;
	for (struct md_http_exchange *next, *x = front->oldest; x; x = next) {
		next = x->newer;
		if (is_late(x, now) && x->state == READING)
			refuse(x, 408, "the request did not come in time");
		else if (is_late(x, now))
			close_connection(x);
	}
}

/* ---- beginning and end ---- */

static void set_limits(struct md_http_front *front, const struct md_http_limits *limits)
{
	struct md_http_limits *own = &front->limits;
	*own = limits ? *limits : (struct md_http_limits){0};
	own->connections = own->connections ? own->connections : 4096;
	own->body_bytes = own->body_bytes ? own->body_bytes : 64u << 20;
	own->head_s = own->head_s ? own->head_s : 15;
	own->body_s = own->body_s ? own->body_s : 300;
	own->idle_s = own->idle_s ? own->idle_s : 75;
	own->write_s = own->write_s ? own->write_s : 600;
}

static enum md_status open_listener(struct md_http_front *front, const char *listen, struct md_error *err)
{
	struct md_http_address address;
	MD_FORWARD(md_http_address_parse(listen, &address, err));
	if (address.any.sa_family == AF_UNIX)
		MD_FORWARD(md_http_address_clear(&address, err));
	front->listener = evconnlistener_new_bind(front->base, on_accept, front,
						  LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
						  1024, &address.any, (int)address.size);
	if (!front->listener)
		return md_error_set(err, MD_ERR_IO, "listening on %s: %s", listen, strerror(errno));
	front->port = md_http_address_port(evconnlistener_get_fd(front->listener));
	if (address.any.sa_family == AF_UNIX)
		front->unlink = strdup(address.local.sun_path);
	return MD_OK;
}

enum md_status md_http_front_create(struct event_base *base, const char *listen, const struct md_http_limits *limits,
				    const struct md_http_front_events *events, void *context,
				    struct md_http_front **front, struct md_error *err)
{
	struct timeval second = {.tv_sec = 1};
	struct md_http_front *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a listener");
	made->base = base;
	made->events = events;
	made->context = context;
	set_limits(made, limits);
	made->tick = event_new(base, -1, EV_PERSIST, on_tick, made);
	enum md_status status = made->tick && !event_add(made->tick, &second)
				    ? open_listener(made, listen, err)
				    : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a listener");
	if (status != MD_OK)
		md_http_front_destroy(made);
	else
		*front = made;
	return status;
}

void md_http_front_destroy(struct md_http_front *front)
{
	if (!front)
		return;
	while (front->oldest)
		close_connection(front->oldest);
	if (front->listener)
		evconnlistener_free(front->listener);
	if (front->tick)
		event_free(front->tick);
	if (front->unlink)
		unlink(front->unlink);
	free(front->unlink);
	free(front);
}

void md_http_front_drain(struct md_http_front *front)
{
	front->draining = true;
	evconnlistener_disable(front->listener);
	for (struct md_http_exchange *next, *x = front->oldest; x; x = next) {
		next = x->newer;
		if (x->state != WAITING)
			continue;
		if (evbuffer_get_length(bufferevent_get_output(x->wire)))
			close_when_sent(x); /* the last answer is still on its way */
		else
			close_connection(x);
	}
}

unsigned md_http_front_port(const struct md_http_front *front)
{
	return front->port;
}

unsigned md_http_front_connections(const struct md_http_front *front)
{
	return front->count;
}

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
	x->no_body = x->no_body || bodyless;
	x->left = length;
	x->chunked = length < 0 && x->reader.head.minor && !bodyless;
	x->keep_alive = x->keep_alive && (length >= 0 || x->chunked || bodyless);
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
	x->events = NULL;
	if (x->keep_alive)
		begin_next(x);
	else
		close_when_sent(x);
}

void md_http_answer_abort(struct md_http_exchange *x)
{
	x->events = NULL;
	close_connection(x);
}
